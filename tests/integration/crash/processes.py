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


"""Processes of the crash harness, and how they fall."""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from typing import Any

from tests.integration.crash import child

#: Seconds for anything that takes a few; machines may be busy.
PATIENCE = 300
TOP = pathlib.Path(__file__).resolve().parents[3]


@dataclasses.dataclass(frozen=True)
class Fall:
    """A daemon's end at a point; ``how`` is ``kill`` or ``stop``.

    A stop for an event ``meanwhile`` (a method of :class:`Run`) does not end the daemon: the
    process continues after it and needs no heir. ``late``: it thaws when all is over.
    """

    point: str
    how: str
    nth: int = 0
    meanwhile: str = ''
    late: bool = False

    def __str__(self) -> str:
        return f'{self.point}-{self.how}{self.meanwhile and "-" + self.meanwhile}'


class Process:
    """One of our modules as a process that answers each line by one."""

    def __init__(self, name: str, directory: pathlib.Path) -> None:
        self.name = name
        self._log = directory / f'{name}.log'
        with open(self._log, 'ab') as out:
            self._popen = subprocess.Popen(
                [sys.executable, '-W', 'ignore', '-m', f'tests.integration.crash.{name}'],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, cwd=TOP,
                env={**os.environ, 'PYTHONPATH': str(TOP), 'OPENBLAS_NUM_THREADS': '1',
                     'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'})

    def hear(self, patience: float = PATIENCE) -> Any:
        """Its next line; they are short and come whole."""
        answered, _, _ = select.select([self._popen.stdout], [], [], patience)
        if not answered:
            self._popen.send_signal(signal.SIGUSR1)  # it prints where it stands
            time.sleep(1)
        line = self._popen.stdout.readline() if answered else ''
        assert line, (f'{self.name} does not answer: '
                      f'{self._log.read_text(errors="replace")[-20000:]}')
        return json.loads(line)

    def ask(self, patience: float = PATIENCE, **command: Any) -> Any:
        self._popen.stdin.write(json.dumps(command) + '\n')
        self._popen.stdin.flush()
        return self.hear(patience)

    def close(self, seconds: float = 60) -> None:
        """The end of its input ends it."""
        with contextlib.suppress(OSError):
            self._popen.stdin.close()
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait(60)
        self._popen.stdout.close()


class Daemon:
    """An engine or executor of a run, and how it falls; ``one_lock`` as of child.arm."""

    def __init__(self, nursery: Process, name: str, role: str, fall: Fall | None,
                 directory: pathlib.Path, one_lock: bool) -> None:
        self.name, self.fall = name, fall
        self.fell = self.thawed = False
        self.pid = 0
        self.status: int | None = None
        self._nursery = nursery
        self._role = role
        self._directory = directory
        self._one_lock = one_lock

    @property
    def begun(self) -> bool:
        return self.pid > 0

    def begin(self) -> None:
        fall: list[Any] = []
        if self.fall is not None:
            point = child.POINTS[self._role][self.fall.point]
            fall = [self.fall.point, self.fall.nth or point.nth, self.fall.how,
                    self._one_lock]
        self.pid = self._nursery.ask(
            role=self._role, log=str(self._directory / f'{self.name}.log'), fall=fall,
            arguments=['--config-file', str(self._directory / 'kronos.conf')])

    def text(self) -> str:
        path = self._directory / f'{self.name}.log'
        return path.read_text(errors='replace') if path.exists() else ''

    @property
    def alive(self) -> bool:
        if self.begun and self.status is None:
            self.status = self._nursery.ask(look_at=self.pid)
        return self.begun and self.status is None

    @property
    def _stopped(self) -> bool:
        stat = pathlib.Path(f'/proc/{self.pid}/stat').read_text()
        return stat.rpartition(')')[2].split()[0] == 'T'

    def look(self) -> None:
        """Whether it has fallen by now; a wrong end is an error."""
        if not self.begun:
            return
        alive = self.alive
        if self.fall is None or self.fell:
            assert alive or (self.fell and self.fall.how == 'kill'), (
                f'{self.name} has ended by itself ({self.status}): {self.text()[-3000:]}')
        elif not alive:
            assert (self.fall.how, self.status) == ('kill', -signal.SIGKILL), self.text()[-3000:]
            self.fell = True
        elif self._stopped:
            assert self.fall.how == 'stop'
            self.fell = True

    def thaw(self) -> None:
        if self.fell and self.fall.how == 'stop' and not self.thawed:
            os.kill(self.pid, signal.SIGCONT)
            self.thawed = True

    def close(self) -> None:
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            while self.alive:
                time.sleep(0.01)

    def owns(self, name: str | None) -> bool:
        """Whether it is the owner or worker of that name (see store.owners)."""
        return name is not None and name.split(':')[-2] == str(self.pid)
