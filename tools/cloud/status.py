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

"""``status``: processes, memory, ports and Nova's own service list."""

import collections

from tools.cloud import errors
from tools.cloud import processes
from tools.cloud import state
from tools.cloud import tables
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress

MIB = 1024 * 1024


def status(layout: Layout, progress: Progress) -> None:
    """Print what there is.

    :raises errors.NotUp: nothing runs, or only some parts
    """
    current = state.load(layout.state)
    if current is None:
        raise errors.NotUp(f'no sandbox is up in {layout.root}')
    dead = [p.name for p in current.processes if not processes.is_alive(p)]
    rows = []
    for process in sorted(processes.marked(layout.root), key=lambda p: p.pid):
        proportional, private = processes.memory(process.pid)
        rows.append((_service(process, current), process.pid,
                     proportional // MIB, private // MIB))
    progress.say('Processes (memory in MiB)')
    progress.say(tables.table(('service', 'pid', 'proportional', 'private'), rows))
    progress.say(f'  {len(rows)} processes, {sum(r[2] for r in rows)} MiB\n')
    progress.say('Ports on 127.0.0.1')
    progress.say(tables.table(('service', 'port'), sorted(current.ports.items())) + '\n')
    if current.complete and not dead:
        _services(current, progress)
    progress.say(f'State {layout.state}\nLogs  {layout.log}\nLogin . {layout.openrc}')
    if dead or not current.complete:
        raise errors.NotUp(
            f'not whole: {", ".join(dead) or "it is still coming up, or its start was killed"}'
            + (' ended; tools/sandbox down cleans up' if dead else '')
        )


def _service(process: processes.Process, current: state.State) -> str:
    """The name under which a process was started, or that of its program."""
    by_pid = {p.pid: p.name for p in current.processes}
    return by_pid.get(process.pid, f'- {process.name}')


def _services(current: state.State, progress: Progress) -> None:
    from tools.cloud import client

    cloud = client.Cloud(current.ports)
    try:
        services = cloud.compute_services()
        running = collections.Counter(
            s['OS-EXT-SRV-ATTR:host'] for s in cloud.servers() if s['status'] == 'ACTIVE')
    except client.ApiError as e:
        raise errors.NotUp(f'Nova does not answer: {e}') from e
    progress.say('Services as Nova lists them')
    progress.say(tables.table(
        ('binary', 'host', 'status', 'state', 'servers'),
        [(s['binary'], s['host'], s['status'], s['state'],
          str(running[s['host']]) if s['binary'] == 'nova-compute' else '-')
         for s in sorted(services, key=lambda s: (s['binary'], s['host']))]) + '\n')
