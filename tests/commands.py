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


"""Runs Python programs as commands of their own, each in a fork of a process that has
loaded what our commands import: an eighth of the time that a new interpreter takes.

Tests of the imports of a program, of the seed of hashing and of the time before ``main()`` start an
interpreter instead.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import time
import types
from typing import Any

TOP = Path(__file__).resolve().parents[1]
LOADED = (
    'alembic', 'cliff.app', 'cliff.commandmanager', 'cliff.lister', 'cliff.show',
    'keystoneauth1.loading', 'openstack', 'oslo_db.sqlalchemy.engines', 'oslo_messaging',
    'oslo_messaging._drivers.impl_rabbit', 'oslo_upgradecheck.upgradecheck', 'prettytable',
    'pymysql', 'requests',
    'kronos_nova.cli.app', 'kronos_nova.wiring.daemons', 'kronos_nova.cmd.test_config',
    'kronos_nova.rebalancer.clients.collector', 'kronos_nova.rebalancer.engine.engine',
    'kronos_nova.rebalancer.executors.worker', 'kronos_nova.rebalancer.store.schema')


def run(program: str, *arguments: object, cwd: Path = TOP, timeout: float = 120,
        env: dict[str, str] | None = None) -> 'subprocess.CompletedProcess[str]':
    """As ``subprocess.run([sys.executable, '-W', 'ignore', '-c', program, *arguments])``, with
    its output captured as text.

    :param env: all of its environment; None for ours.
    :raises subprocess.TimeoutExpired: it was ended.
    """
    with tempfile.TemporaryDirectory() as directory:
        streams = [Path(directory) / name for name in ('out', 'err')]
        answer = _server().ask({
            'program': program, 'arguments': [str(a) for a in arguments], 'cwd': str(cwd),
            'env': dict(os.environ if env is None else env), 'timeout': timeout,
            'streams': [str(stream) for stream in streams]})
        out, err = (stream.read_text() for stream in streams)
    if answer is None:
        raise subprocess.TimeoutExpired(program, timeout, out, err)
    return subprocess.CompletedProcess([program, *map(str, arguments)], answer, out, err)


def main(module: str, *arguments: object, **kwargs: Any) -> 'subprocess.CompletedProcess[str]':
    """``module.main()`` as a console script runs it."""
    return run(f'import sys; from {module} import main; sys.exit(main())', *arguments, **kwargs)


class _Server:
    """The process that is forked; one for all tests of a process of pytest."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-m', 'tests.commands'], cwd=TOP, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, 'PYTHONPATH': str(TOP)})
        atexit.register(self.close)

    def ask(self, request: dict[str, Any]) -> int | None:
        """:returns: the exit status; None when it took too long."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """It ends with its standard input."""
        self._process.communicate()


@functools.cache
def _server() -> _Server:
    return _Server()


def _serve() -> dict[str, Any]:
    """Answer requests; in a child, returns the one that it is for."""
    from kronos_nova.wiring import tools

    tools.native_threads()
    for name in LOADED:
        importlib.import_module(name)
    _load_entry_points()
    gc.collect()
    gc.freeze()  # else each child looks at all of it when it ends
    answers = os.fdopen(os.dup(1), 'w')
    while line := sys.stdin.readline():
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            answers.close()
            return request
        print(json.dumps(_ended(child, request['timeout'])), file=answers, flush=True)
    os._exit(0)


def _load_entry_points() -> None:
    """Load the entry points that stevedore and cliff would look up again in every child."""
    from cliff import commandmanager

    made, _name, _rest = commandmanager.CommandManager('kronos_nova.cli').find_command(
        ['plan', 'list'])
    made(None, None).get_parser('kronos plan list')


def _ended(child: int, timeout: float) -> int | None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended_pid, status = os.waitpid(child, os.WNOHANG)
        if ended_pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become(request: dict[str, Any]) -> None:
    """What a new interpreter finds: its streams, arguments, environment and directory."""
    for number, path in ((0, os.devnull), *enumerate(request['streams'], 1)):
        stream = os.open(path, (os.O_WRONLY | os.O_CREAT) if number else os.O_RDONLY, 0o600)
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request['env'])
    os.chdir(request['cwd'])
    sys.argv = ['-c', *request['arguments']]


if __name__ == '__main__':
    _request = _serve()
    _become(_request)
    sys.modules['__main__'] = types.ModuleType('__main__')
    exec(compile(_request['program'], '<string>', 'exec'), sys.modules['__main__'].__dict__)
