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

"""Tenants whose instances have contracts in their metadata, and the operator's cap.

They are drawn by themselves: what else happens in a run does not hang on them.
"""

import dataclasses
import datetime
import random
from typing import TYPE_CHECKING

from kronos_nova import model
from tests.simulation.world import database

if TYPE_CHECKING:
    from tests.simulation.world import run as runs

#: By strictness.
GRADES = ('poweroff-ok', 'cold-ok', 'live', 'drain-only', 'never')
DRAINS = ('evacuate', 'requested')


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A contract: ``minutes`` are the first and the last minute of each hour in which it may move.

    ``quota``: most moves, and seconds. ``garbled``: one more value that cannot be read. ``notice``:
    minutes before a move; ``released``: until then (epoch seconds) none is needed.
    """

    grade: str | None
    minutes: tuple[int, int] | None
    quota: tuple[int, int] | None
    garbled: bool
    notice: int | None = None
    released: float | None = None

    def metadata(self) -> dict[str, str]:
        return {key: value for key, value in (
            ('kronos:disruption', 'not at all' if self.garbled else self.grade),
            ('kronos:hours', self.minutes and '{}-{} * * * *'.format(*self.minutes)),
            ('kronos:max_moves', self.quota and f'{self.quota[0]}/{self.quota[1] // 60}m'),
            ('kronos:notify', self.notice and f'{self.notice}m'),
            ('kronos:release', self.released and datetime.datetime.fromtimestamp(
                self.released, datetime.UTC).isoformat()),
            ('kronos:' + 'x' * 9, self.garbled and 'no rule knows it'))
            if value}


class Tenants:
    """Gives some instances of a run a contract, and judges requests by them."""

    def __init__(self, run: 'runs.Run') -> None:
        self.run = run
        rng = random.Random(f'contracts {run.seed}')
        self.cap = rng.choice(GRADES[2:])
        start = int(database.START % 3600 // 60)
        self.drawn: dict[str, Drawn] = {}
        for uuid in sorted(run.cloud.instances):
            if rng.random() < 0.6:
                first = (start + rng.randint(-5, 10)) % 50
                self.drawn[uuid] = Drawn(
                    rng.choice([None, *GRADES]),
                    rng.choice([None, None, (first, first + rng.randint(1, 9))]),
                    rng.choice([None, None, (1, 300), (1, 3600), (2, 3600)]), rng.random() < 0.1,
                    rng.choice([None, None, 1, 5, 15, 60]),
                    rng.choice([None, None, None, database.START - 60, database.START + 600]))
                run.cloud.instances[uuid].metadata = self.drawn[uuid].metadata()

    def configure(self) -> None:
        for conf in self.run.confs:
            conf.set_override('strongest_for_tenants', self.cap, 'contracts')

    def find_breach(self, uuid: str, phase: str, skew: float) -> str | None:
        """Return how a request breaks the contract of an instance; None: it does not.

        :param skew: seconds between two clocks of processes.
        """
        drawn = self.drawn.get(uuid)
        if drawn is None:
            return None
        grades = [drawn.grade] if drawn.grade is not None and not drawn.garbled else []
        if (drawn.garbled or self._is_closed(drawn, skew) or self._is_used_up(uuid, drawn, skew)
                or self._is_unannounced(uuid, drawn, skew)):
            grades.append('never')
        grade = min(max((GRADES.index(g) for g in grades), default=0), GRADES.index(self.cap))
        self.run.counts[f'requests judged by a contract, {GRADES[grade]}'] += 1
        if GRADES[grade] == 'never' or (GRADES[grade] == 'drain-only' and phase not in DRAINS):
            return f'{uuid} moves for {phase}, cap {self.cap}: {drawn}'
        return None

    def _is_closed(self, drawn: Drawn, skew: float) -> bool:
        """Whether the hours are over by every clock that a process may have."""
        if drawn.minutes is None:
            return False
        return all(not drawn.minutes[0] <= int((self.run.now + apart) % 3600 // 60)
                   <= drawn.minutes[1] for apart in (-skew, 0, skew))

    def _is_unannounced(self, uuid: str, drawn: Drawn, skew: float) -> bool:
        """Whether its owner had no notice for so long, by every clock, of a move off its host."""
        if drawn.notice is None or (drawn.released or 0.0) > self.run.now - skew:
            return False
        row = self.run.raw.execute(
            'SELECT host, noticed_at, valid_until, used_at FROM notice WHERE instance_uuid = ?',
            (uuid,)).fetchone()
        self.run.counts['requests that need a notice'] += 1
        if row is None or row[3] is not None:
            return True
        return bool(row[0] != self.run.cloud.instances[uuid].host or row[2] < self.run.now - skew
                    or self.run.now - row[1] < drawn.notice * 60 - skew)

    def _is_used_up(self, uuid: str, drawn: Drawn, skew: float) -> bool:
        if drawn.quota is None:
            return False
        most, seconds = drawn.quota
        (moves,) = self.run.raw.execute(
            'SELECT count(*) FROM task WHERE instance_uuid = ? AND state = ? '
            'AND completed_at > ?',
            (uuid, model.TaskState.COMPLETED.value, self.run.now - seconds + skew)).fetchone()
        return bool(moves >= most)
