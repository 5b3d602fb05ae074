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

"""One run of a sandbox: starts processes, remembers them, waits until they are ready."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tools.cloud import errors
from tools.cloud import ports
from tools.cloud import processes
from tools.cloud import state
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout

#: their clients hang at SIGTERM once they are gone, so they stop last
BACKING = ('rabbitmq', 'mariadb', 'memcached')
SWEEPS = 3
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'


def tail(path: pathlib.Path, lines: int = 12) -> str:
    """The end of a log, for an error message."""
    try:
        text = path.read_text(errors='replace').splitlines()[-lines:]
    except OSError:
        return '(no log)'
    return '\n'.join('  | ' + line[:300] for line in text) or '(empty log)'


class Run:
    """Owns a layout and its state; every process of the sandbox is started here."""

    def __init__(self, layout: Layout, current: state.State) -> None:
        self.layout = layout
        self.state = current
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def ports(self) -> dict[str, int]:
        return self.state.ports

    def url(self, name: str) -> str:
        return f'http://127.0.0.1:{self.ports[name]}'

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """A clean environment: nothing of the caller's proxies, credentials or options."""
        venv = pathlib.Path(sys.prefix)
        return {
            'PATH': f'{venv}/bin:{PATH}',
            'HOME': str(self.layout.data),
            'LANG': 'C.UTF-8',
            'PYTHONPATH': str(CHECKOUT),
            'PYTHONUNBUFFERED': '1',
            'PYTHONWARNINGS': 'ignore',
            # keeps a changed process title from overwriting the mark in /proc/PID/environ
            'SPT_NOENV': '1',
            processes.MARK: str(self.layout.root),
            **(extra or {}),
        }

    def log(self, name: str) -> pathlib.Path:
        return self.layout.log / f'{name}.log'

    def spawn(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        """Start a long-lived process in its own session, its output in ``log/NAME.log``."""
        with self.log(name).open('ab') as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(env),
                cwd=self.layout.data,
                start_new_session=True,
            )
        self._children[name] = child
        # until it is reaped a child's /proc entry stays, so this never reads another's
        started = processes.start_time(child.pid) or 0
        self.state.processes.append(processes.Process(name, child.pid, started))
        self.state.commands[name] = list(command), dict(env or {})
        self.state.save(self.layout.state)

    def task(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        stdin: pathlib.Path = pathlib.Path(os.devnull),
    ) -> Callable[[], None]:
        """Start a short-lived command; the returned function waits until it has succeeded."""
        with self.log(name).open('ab') as log, stdin.open('rb') as source:
            child = subprocess.Popen(
                command,
                stdin=source,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(env),
                cwd=self.layout.data,
                start_new_session=True,
            )

        def finish() -> None:
            if child.wait() != 0:
                raise errors.ServiceDied(
                    f'{name} failed with code {child.returncode}; the end of '
                    f'{self.log(name)}:\n{tail(self.log(name))}'
                )

        return finish

    def check_alive(self) -> None:
        """Raise when anything started by this run has ended.

        :raises errors.ServiceDied: with the end of that process' log
        """
        for name, child in self._children.items():
            if child.poll() is not None:
                raise errors.ServiceDied(
                    f'{name} ended with code {child.returncode}; the end of '
                    f'{self.log(name)}:\n{tail(self.log(name))}'
                )

    def wait(
        self,
        what: str,
        ready: Callable[[], str | None],
        timeout: float = 180,
        interval: float = 0.2,
    ) -> None:
        """Poll ``ready`` until it returns None; otherwise it names the missing part.

        :raises errors.ServiceDied: a process ended meanwhile, or the time is over
        """
        deadline = time.monotonic() + timeout
        while missing := ready():
            self.check_alive()
            if time.monotonic() > deadline:
                raise errors.ServiceDied(
                    f'{what}: not so after {timeout:.0f} s: {missing}; logs: {self.layout.log}'
                )
            time.sleep(interval)
        self.check_alive()

    def wait_http(self, name: str, path: str = '/') -> None:
        """Wait until the service answers HTTP at all; the answers are checked elsewhere."""

        def ready() -> str | None:
            try:
                with _opener.open(self.url(name) + path, timeout=10):
                    return None
            except urllib.error.HTTPError as e:
                return None if e.code < 500 else f'HTTP {e.code}'
            except OSError as e:
                return str(e)

        self.wait(f'{name} answers on {self.url(name)}', ready)

    def forget(self, *names: str) -> None:
        """Remove processes from the state that have ended, or are to end, as they should."""
        for name in names:
            child = self._children.pop(name, None)
            if child is not None:
                child.wait()
        self.state.processes = [p for p in self.state.processes if p.name not in names]
        self.state.save(self.layout.state)

    def kill(self, name: str) -> None:
        """End a process and its children at once, as kill -9 does, and forget it."""
        [process] = [p for p in self.state.processes if p.name == name]
        if processes.is_alive(process):
            # It was started as the leader of a session of its own.
            os.killpg(process.pid, signal.SIGKILL)
        processes.stop([process], grace=0)
        self.forget(name)

    def freeze(self, name: str) -> None:
        """Let a process and its children stand still."""
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen process and its children go on; one that has ended stays so."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        for process in self.state.processes:
            if process.name == name and processes.is_alive(process):
                # It was started as the leader of a session of its own.
                os.killpg(process.pid, number)

    def restart(self, name: str) -> None:
        """Start a process again as it was started before."""
        command, env = self.state.commands[name]
        self.spawn(name, command, env)

    def stop_one(self, name: str, grace: float) -> int | None:
        """Stop a process that this run has started itself, and forget it.

        :returns: its exit code; None when it had to be killed
        """
        child = self._children.pop(name)
        child.terminate()
        try:
            code: int | None = child.wait(grace)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            code = None
        self.forget(name)
        return code

    def stop(self) -> list[processes.Process]:
        """Stop everything, clients first; returns what could not be stopped."""
        same_boot = self.state.boot == processes.boot_id()
        recorded = self.state.processes if same_boot else []
        backing = [p for p in recorded if p.name in BACKING]
        processes.stop([p for p in recorded if p.name not in BACKING], grace=2)
        # their data goes too, so nothing is lost when they have no time
        processes.stop(backing, grace=1)
        # their children, which were perhaps just being executed at the first look
        for _ in range(SWEEPS):
            left = processes.stop(processes.marked(self.layout.root), grace=1)
            time.sleep(0.05)
        return left


#: loopback only: never through a proxy
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let a clean-up finish, however often Ctrl-C is pressed."""
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def private(directory: pathlib.Path, names: Sequence[str] = ports.NAMES) -> Iterator[Run]:
    """A run of its own in an empty directory, for tests: stops and deletes all at the end.

    ``with private(tmp_path) as run: rabbitmq.start(run)``
    """
    layout = Layout(directory.resolve())
    layout.create()
    run = Run(layout, state.State(ports.choose(names), [], time.time()))
    run.state.save(layout.state)
    try:
        yield run
    finally:
        with interrupts_ignored():
            left = run.stop()
            layout.clean(keep_logs=False)
        if left:
            raise errors.ServiceDied(f'could not be stopped: {left}')


def effective_user_is_root() -> bool:
    return os.geteuid() == 0
