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

"""The times of a campaign's steps, by windows, freezes and the engine's cycles. Pure."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import datetime
import math

from kronos_nova.model import maintenance_windows

#: Seconds ahead in which an opening is sought, where freezes cover windows again and again.
LONGEST = 366 * 86400.0
#: Cycles in which the engine sees a disabled host, and plans its drain.
TO_DRAIN = 1
#: Cycles in which the engine enables a host that is back, and sees that it is enabled.
TO_ENABLE = 2


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduledStep:
    """The times of a step, in seconds since the epoch.

    ``begins_at``: its hosts are disabled. ``work_at``: they are empty, and the work begins.
    ``ends_at``: they are enabled, and the next step may begin.
    """

    begins_at: float
    work_at: float
    ends_at: float


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignCalendar:
    """When engines carry a campaign on.

    ``windows``: when hosts begin, and the work; none: at any time. ``clocks``: the time zone of the
    windows. ``find_freeze_end``: returns when the freeze that is on at a time ends, None: none is
    on. ``find_freeze``: returns when the next freeze begins. ``cycle_seconds``: the engine goes on
    once in so many seconds. ``work_seconds``: for so long the work takes at the hosts of a step.
    """

    windows: Sequence[maintenance_windows.MaintenanceWindow] = ()
    clocks: datetime.tzinfo = datetime.UTC
    find_freeze_end: Callable[[float], float | None] = lambda at: None
    find_freeze: Callable[[float], float] = lambda at: math.inf
    cycle_seconds: float = 0.0
    work_seconds: float = 0.0

    def find_opening(self, at: float) -> float | None:
        """Return when hosts and work may begin next; None: freezes leave no time of a window."""
        latest = at + LONGEST
        while at <= latest:
            opening = maintenance_windows.find_opening(self.windows, at, self.clocks)
            freeze_end = self.find_freeze_end(opening)
            if freeze_end is None:
                return opening
            at = freeze_end
        return None

    def pass_unfrozen(self, at: float, seconds: float) -> float | None:
        """Return when migrations of so many seconds end; None: freezes leave too little time.

        No migration begins in a freeze.
        """
        latest = at + LONGEST
        while at <= latest:
            at = self.find_freeze_end(at) or at
            freeze = self.find_freeze(at)
            if at + seconds <= freeze:
                return at + seconds
            seconds -= max(0.0, freeze - at)
            at = max(at, freeze)
        return None


def schedule_steps(seconds: Sequence[float | None], calendar: CampaignCalendar,
                   begin: float) -> tuple[ScheduledStep, ...]:
    """Return the times of all steps, or of the steps before one whose time is not known.

    :param seconds: of the migrations of each step; None: not known.
    :param begin: when the campaign is started.
    """
    steps = list[ScheduledStep]()
    for needed in seconds:
        step = None if needed is None else _schedule_step(
            needed, calendar, steps[-1].ends_at if steps else begin)
        if step is None:
            break
        steps.append(step)
    return tuple(steps)


def _schedule_step(seconds: float, calendar: CampaignCalendar, at: float) -> ScheduledStep | None:
    cycle = calendar.cycle_seconds
    begins_at = calendar.find_opening(at)
    if begins_at is None:
        return None
    empty_at = calendar.pass_unfrozen(begins_at + TO_DRAIN * cycle, seconds)
    work_at = None if empty_at is None else calendar.find_opening(
        _find_cycle(begins_at, empty_at, cycle))
    if work_at is None:
        return None
    back_at = _find_cycle(work_at, work_at + max(calendar.work_seconds, cycle), cycle)
    return ScheduledStep(begins_at, work_at, back_at + TO_ENABLE * cycle)


def _find_cycle(first: float, at: float, cycle: float) -> float:
    """Return when the first cycle from a time on begins; one began at ``first``."""
    return at if cycle <= 0.0 else first + math.ceil((at - first) / cycle) * cycle
