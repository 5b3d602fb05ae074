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

"""Clock of one executor: the database's, and whether work may begin or end by it."""

from collections.abc import Callable

from kronos_nova.rebalancer.store import database_clock


class ExecutorClock:
    """Clock that the parts of one executor share.

    :param clock: returns epoch seconds; only a :class:`database_clock.DatabaseClock` may be wrong.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._database = clock if isinstance(clock, database_clock.DatabaseClock) else None

    def __call__(self) -> float:
        return self._clock()

    def synchronise_clock(self) -> bool:
        """Read the database's clock; return whether the time given out has jumped.

        :raises StoreError: the database is away.
        """
        return self._database is not None and self._database.synchronise_clock()

    def has_jumped(self) -> bool:
        """Return whether the database's clock may have just jumped: nothing ends by it then."""
        return self._database is not None and not self._database.may_end()

    def find_problem(self) -> str | None:
        """Return why nothing may begin now."""
        return None if self._database is None else self._database.find_problem()
