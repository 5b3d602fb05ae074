# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``python -m tools.cloud.computes ETC LOG HOST...``: one nova-compute process per host.

Nova is imported once and a child is forked per host, which saves seconds of
CPU and about 100 MB for each; a child then is what ``nova-compute
--config-file nova-compute.conf --config-file HOST.conf`` is.

SIGHUP starts the nova-compute of each host whose process has ended, as a service manager does.
"""

import gc
import os
import pathlib
import signal
import sys
from typing import Any

#: What the parent waits for; they are blocked meanwhile, so that none is lost.
HANDLED = {signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM}


def preload(config_file: pathlib.Path) -> Any:
    """Import what a nova-compute imports; returns nova.cmd.compute."""
    sys.argv = ['nova-compute', '--config-file', str(config_file)]
    from nova.cmd import compute  # decides on threads or greenthreads, so it is the first
    import nova.compute.manager
    import nova.network.neutron
    import nova.objects
    import nova.virt

    from tools.cloud import driver

    # compute_driver can only name something below nova.virt
    sys.modules['nova.virt.sandbox'] = driver
    nova.virt.sandbox = driver
    nova.objects.register_all()
    return compute


def become(compute: Any, host: str, etc: pathlib.Path, log: pathlib.Path) -> None:
    """In a forked child: be the nova-compute of a host."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    descriptor = os.open(log / f'nova-compute-{host}.log',
                         os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # the name that status, ps and top show; at most 15 bytes
    pathlib.Path('/proc/self/comm').write_text(host[:15])
    sys.argv = ['nova-compute']
    for name in ('nova-compute', host):
        sys.argv += ['--config-file', str(etc / f'{name}.conf')]
    code = 1
    try:
        code = compute.main() or 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(code)


def main() -> int:
    etc, log = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    hosts = sys.argv[3:]
    compute = preload(etc / 'nova-compute.conf')
    # the collector's marks would copy every shared page into every child
    gc.collect()
    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    children: dict[int, str] = {}

    def start_missing() -> None:
        for host in hosts:
            if host not in children.values():
                pid = os.fork()
                if pid == 0:
                    become(compute, host, etc, log)
                children[pid] = host

    start_missing()
    while children:
        number = signal.sigwait(HANDLED)
        if number == signal.SIGHUP:
            start_missing()
        elif number == signal.SIGCHLD:
            collect_ended(children)
        else:
            for pid in children:
                os.kill(pid, number)
    return 0


def collect_ended(children: dict[int, str]) -> None:
    """Remove the children that have ended."""
    for pid, host in list(children.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del children[pid]
            print(f'nova-compute {host} (pid {pid}) ended with status {status}', flush=True)


if __name__ == '__main__':
    sys.exit(main())
