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


"""The database's clock, as one process knows it.

Machines disagree on the time of day; claims, deadlines and expiries are compared across them, so
all processes use the database's clock. Between two readings it runs on monotonic time: a step of
this machine's clock changes nothing. A jump of the database's own clock (a failover, a step on the
one host of SQLite) is held back until it has lasted.
"""

from collections.abc import Callable
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Seconds between two readings: time in between is monotonic.
READ_SECONDS = 5.0
#: Clocks that differ by more (seconds) are wrong: nothing begins.
SKEW_SECONDS = 30.0
#: A jump of the database's clock that has lasted for so long (seconds) is believed, and so is
#: that clock where this machine's differs: which of the two is wrong is not known before.
JUMP_SECONDS = 300.0


class DatabaseClock:
    """Epoch seconds by the database's clock. Any thread may call it; one synchronises it.

    :param read: asks the database for its time; raises StoreError.
    :param wall: this machine's time of day.
    :param monotonic: seconds that no change of a clock touches.
    """

    def __init__(self, read: Callable[[], float], wall: Callable[[], float] = time.time,
                 monotonic: Callable[[], float] = time.monotonic) -> None:
        self._read, self._wall, self._monotonic = read, wall, monotonic
        #: What to add to monotonic time; None: the database was not asked yet.
        self._base: float | None = None
        self._read_at = float('-inf')
        self._jump: float | None = None
        self._jumped_at = 0.0
        #: Since when this machine's clock differs, in monotonic time; None: it does not.
        self._differs_since: float | None = None

    def __call__(self) -> float:
        """Return the time; before the first reading that of this machine."""
        return self._wall() if self._base is None else self._base + self._monotonic()

    @property
    def clock_jump(self) -> float | None:
        """Seconds by which the database's clock has jumped, not believed yet; None: none."""
        return self._jump

    def may_end(self) -> bool:
        """Return whether work may be cancelled or aborted by this time."""
        return self._jump is None and (
            self._differs_since is None
            or self._monotonic() - self._differs_since >= JUMP_SECONDS)

    def synchronise_clock(self) -> bool:
        """Read the database's clock, unless that was done a moment ago.

        :returns: whether the time given out has jumped, because the database's did and
            stayed there.
        :raises StoreError: the database is away; time goes on without it.
        """
        before = self._monotonic()
        if before - self._read_at < READ_SECONDS:
            return False
        now = self._read()
        after = self._read_at = self._monotonic()
        has_jumped = self._adopt_reading(now - (before + after) / 2, after)
        if abs(self._wall() - self()) <= SKEW_SECONDS:
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = self._jumped_at if has_jumped else after
        return has_jumped

    def _adopt_reading(self, base: float, after: float) -> bool:
        """Adopt a reading, or hold it back as a jump; return whether a jump was adopted."""
        ahead = 0.0 if self._base is None else base - self._base
        if abs(ahead) <= SKEW_SECONDS:
            self._base, self._jump = base, None
            return False
        if self._jump is None or abs(ahead - self._jump) > SKEW_SECONDS:
            self._jump, self._jumped_at = ahead, after
            return False
        if after - self._jumped_at < JUMP_SECONDS:
            return False
        LOG.warning('The database\'s clock has jumped by %+.0f s and stays there: it is believed '
                    'from now on', ahead)
        self._base, self._jump = base, None
        return True

    def find_problem(self) -> str | None:
        """Return why nothing may begin now."""
        if self._jump is not None:
            return (f'the database\'s clock has jumped by {self._jump:+.0f} s within this '
                    f'process: it is believed after {JUMP_SECONDS:.0f} s')
        skew = self._wall() - self()
        if abs(skew) <= SKEW_SECONDS:
            return None
        return (f'the clock of this machine is {abs(skew):.0f} s '
                f'{"ahead of" if skew > 0 else "behind"} the database\'s: set both by NTP')
