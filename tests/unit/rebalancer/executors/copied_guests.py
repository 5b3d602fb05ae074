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

"""A guest whose memory QEMU copies in rounds, second by second.

QEMU counts the pages that the guest writes only when the rest of a round is sent, so the rest that
Nova shows falls to nothing in each round and leaps up again.
"""

import dataclasses
import math

from kronos_nova.rebalancer.executors import escalation

MIB = 1024 * 1024
#: The migration arrives once so many seconds of sending remain: Nova's live_migration_downtime.
DOWNTIME = 0.5


@dataclasses.dataclass
class Guest:
    """A guest under migration; sizes in MiB, rates in MiB/s.

    It writes ``working_set`` again and again, at ``writes``: of the pages that it writes in a
    round, those that it has written before in this round are not new.
    """

    memory: float
    working_set: float
    writes: float
    link: float

    def __post_init__(self) -> None:
        self.remaining, self.unseen, self.sent, self.rounds = self.memory, 0.0, 0.0, 0
        self.has_arrived = False

    def pass_second(self, parts: int = 10) -> None:
        """Send and write for a second."""
        for _ in range(parts):
            if self.has_arrived:
                return
            sent = min(self.link / parts, self.remaining)
            self.remaining -= sent
            self.sent += sent
            self.unseen += (self.working_set - self.unseen) * (
                1 - math.exp(-self.writes / parts / self.working_set))
            if self.remaining <= 0:
                self.remaining, self.unseen, self.rounds = self.unseen, 0.0, self.rounds + 1
                self.has_arrived = self.remaining <= DOWNTIME * self.link

    @property
    def pause_seconds(self) -> float:
        """The seconds of a pause that began now, until all is sent."""
        return (self.remaining + self.unseen) / self.link

    def sample(self, at: float) -> escalation.CopySample:
        return escalation.CopySample(at, int(self.sent * MIB), int(self.remaining * MIB))
