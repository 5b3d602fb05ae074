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

"""A rolling upgrade under load, and back again. An actor of the soak.

Daemons of the old release die on the way and have to come up again, also on the schema of the
new one.
"""

from collections.abc import Iterator
import pathlib
import time

from tools.cloud import mariadb
from tools.cloud.progress import Progress
from tools.cloud.run import Run
from tools.cloud.soak.daemons import Daemons
from tools.cloud.soak.daemons import ENGINES
from tools.cloud.soak.daemons import EXECUTORS
from tools.cloud.soak.takeovers import TakeoverWatch

#: Seconds between two steps, in which migrations go on.
STEP_SECONDS = 45.0
#: Seconds within which a daemon that was started answers.
READY_SECONDS = 30.0


class RollingUpgrade:
    """Moves the daemons from an old release to a new one and back, one after the other.

    :param old: directory of the old release, for PYTHONPATH; None: this checkout.
    :param new: directory of the new release; None: this checkout.
    """

    def __init__(self, run: Run, daemons: Daemons, watch: TakeoverWatch, progress: Progress,
                 old: pathlib.Path | None, new: pathlib.Path | None) -> None:
        self._run, self._daemons, self._watch, self._progress = run, daemons, watch, progress
        self._old, self._new = old, new
        #: Daemons that did not come up, and what else was not as it should be, in words.
        self.failures: list[str] = []
        #: Steps that were taken.
        self.steps: list[str] = []

    def prepare(self) -> None:
        """Let every daemon begin with the old release."""
        for name in self._daemons.names:
            self._daemons.releases[name] = self._old

    def act(self) -> Iterator[float]:
        """Upgrade the schema, the executors, the engines; then take all back."""
        yield STEP_SECONDS
        self._daemons.sync_schema(self._new)
        self._note(f'the schema is at {self._read_revision()}')
        yield STEP_SECONDS
        yield from self._kill(EXECUTORS[0])
        for name in EXECUTORS:
            yield from self._change(name, self._new)
            if name == EXECUTORS[0]:
                yield from self._kill(EXECUTORS[1])
        yield from self._kill(ENGINES[0])
        for name in ENGINES:
            yield from self._change(name, self._new)
        for name in (*ENGINES, *EXECUTORS):
            yield from self._change(name, self._old)
        yield from self._kill(EXECUTORS[0])
        self._note('every daemon is of the old release again')

    def _note(self, text: str) -> None:
        self.steps.append(text)
        self._progress.step(text)

    def _read_revision(self) -> str:
        [[revision]] = mariadb.execute(
            self._run, ['SELECT version_num FROM kronos.alembic_version'])
        return str(revision)

    def _change(self, name: str, release: pathlib.Path | None) -> Iterator[float]:
        self._daemons.stop_in_order(name)
        self._daemons.releases[name] = release
        word = 'new' if release == self._new else 'old'
        yield from self._start(name, f'{name} is of the {word} release')

    def _kill(self, name: str) -> Iterator[float]:
        owner = next((owner for _, _, owner in self._watch.held
                      if self._daemons.find_name(owner) == name), None)
        self._run.kill(name)
        if owner is not None:
            self._watch.note_fall(owner)
        yield 5.0
        yield from self._start(name, f'{name} of the old release was killed and is up again')

    def _start(self, name: str, text: str) -> Iterator[float]:
        self._daemons.start(name)
        began = time.monotonic()
        while not self._answers(name):
            if time.monotonic() - began > READY_SECONDS:
                self.failures.append(f'{name} does not answer: not so that {text}')
                return
            yield 1.0
        self._note(text)
        yield STEP_SECONDS

    def _answers(self, name: str) -> bool:
        if self._daemons.find_process(name) is None:
            return False
        try:
            return any(series == 'kronos_alive' and value == 1.0
                       for series, value in self._daemons.read_metrics(name))
        except OSError:
            return False
