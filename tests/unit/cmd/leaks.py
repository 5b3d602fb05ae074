# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Runs many commands one after the other, each in a fork of a process that has
loaded their packages: what they print and log at DEBUG, in a fifth of the time."""

import importlib
import json
import os
from pathlib import Path
import subprocess
import sys
import traceback

TOP = Path(__file__).resolve().parents[3]


def run(cases: dict[str, tuple[str, list[str]]]) -> dict[str, str]:
    """Standard output and error of each case, together.

    :param cases: name -> (module whose main() is called, its arguments).
    """
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-m', 'tests.unit.cmd.leaks'], input=json.dumps(cases),
        cwd=TOP, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    assert set(found) == set(cases)
    return found


def _main() -> None:
    cases = json.load(sys.stdin)
    from kronos_nova.cmd import _tool
    _tool.native_threads()
    for name in ('openstack', 'oslo_messaging', 'oslo_db.sqlalchemy.engines', 'pymysql',
                 'kronos_nova.cmd._wiring', 'kronos_nova.rebalancer.engine',
                 'kronos_nova.rebalancer.collector', 'kronos_nova.rebalancer.executors.worker'):
        importlib.import_module(name)
    print(json.dumps({name: _forked(module, argv) for name, (module, argv) in cases.items()}))


def _forked(module: str, argv: list[str]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.close(read)
        status: object = 1
        try:
            status = importlib.import_module(module).main(argv)
        except SystemExit as e:
            status = e.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.write(f'\nexit {status}\n')
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors='replace') as f:
        text = f.read()
    os.waitpid(child, 0)
    return text


if __name__ == '__main__':
    _main()
