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

"""A service does not work for an hour, and tokens expire.

An outage draws of its own chance: what else happens in a run does not hang on it.
"""

import random
import types
from typing import TYPE_CHECKING

from keystoneauth1 import exceptions as ks_exceptions

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

SECONDS, SHORT = 3600.0, 400.0
#: A request waits so long for its answer.
TIMEOUT = 60.0
#: Seconds for which a token of Keystone is valid.
TOKEN = 60.0
#: Service and what it does meanwhile, by the name of the fault.
OUTAGES = {
    f'{service} {what} for an hour': (service, kind)
    for service in ('Nova', 'Placement', 'Keystone')
    for what, kind in (('answers 503', 503), ('answers 401', 401), ('hangs', None))}
#: What the database does meanwhile, by the name of the fault.
HANGS, FAILS_OVER, READ_ONLY = (
    f'database {what} for an hour' for what in ('hangs', 'fails over', 'is read-only'))
BROKER = 'broker is away for an hour'
OUTAGES |= dict.fromkeys((HANGS, FAILS_OVER, READ_ONLY), ('database', None))
OUTAGES[BROKER] = 'broker', None
#: A daemon waits so long for a database that says nothing.
DATABASE_TIMEOUT = 20.0
EXPIRED = 'Keystone lets tokens expire'
NAMES = (*OUTAGES, EXPIRED)
#: A run has one of the outages with this chance, and expiring tokens with the other.
PRESENT, EXPIRING = 0.6, 0.1


def draw(rng: random.Random) -> frozenset[str]:
    """Return the outage of a run, if it has any, and whether its tokens expire."""
    outages = set(rng.choices(list(OUTAGES), [
        # Few runs have a message left to send, or a pre-flight to make, by then.
        2 if name == BROKER or name.startswith('Placement') else 1 for name in OUTAGES]))
    if rng.random() >= PRESENT:
        outages.clear()
    return frozenset(outages | ({EXPIRED} if rng.random() < EXPIRING else set()))


class Outage:
    """At most one in a run; it begins while there are other troubles and outlasts them."""

    def __init__(self, run: 'runs.Run') -> None:
        rng = random.Random(f'outage {run.seed}')
        self._run = run
        present = sorted(run.faults.present & OUTAGES.keys())
        self._name = rng.choice(present) if present else ''
        self.service, self._kind = OUTAGES.get(self._name, ('', None))
        # After the first requests, and while there are others to come.
        begins = rng.uniform(*((90, 250) if run.faults.crowded else (20, 90)))
        self.begins = run.now + begins if present else float('inf')
        self.ends = self.begins + SECONDS if present else float('-inf')
        self._tokens: dict[str, float] = {}
        self._told: list[tuple[float, str]] = []
        self._met = False

    def shorten(self) -> None:
        """Let it last for some minutes: engines go on meanwhile, and their cycles cost time."""
        self.ends = min(self.ends, self.begins + SHORT)

    def meet_database(self, process: 'processes.Process') -> str:
        """Return what the database does now, one of the faults; empty: it works."""
        if self.service != 'database' or not self.lasts:
            return ''
        self._count()
        if self._name == HANGS:
            process.wait(DATABASE_TIMEOUT)
        return self._name

    def meet_broker(self) -> bool:
        """Return whether the broker is away."""
        if self.service != 'broker' or not self.lasts:
            return False
        self._count()
        return True

    def _count(self) -> None:
        """Count an outage once, and each request that met one."""
        self._run.counts[self._name] += not self._met
        self._met = True
        self._run.counts['requests that met an outage'] += 1

    @property
    def lasts(self) -> bool:
        return self.begins <= self._run.now < self.ends

    def meet(self, service: str, process: 'processes.Process') -> int | None:
        """Fail as the service does now; return the status that it answers, None: it works."""
        if not self.lasts or service != self.service:
            return None
        self._count()
        if self._kind is None:
            process.wait(TIMEOUT)
            raise ks_exceptions.ConnectTimeout('no answer')
        return self._kind

    def log_in(self, process: 'processes.Process') -> dict[str, str]:
        """Give a token; a valid one is not asked for again."""
        run, known = self._run, self._tokens.get(process.name)
        if known is not None and run.now < known:
            return {}
        status = self.meet('Keystone', process)
        if status is not None:
            raise ks_exceptions.from_response(  # as an auth plugin of keystoneauth does
                types.SimpleNamespace(status_code=status, headers={}, text=''), 'POST', 'keystone')
        expires = EXPIRED in run.faults.present
        if expires and known is not None:
            run.counts[EXPIRED] += 1
            process.wait(run.rng.uniform(1, 50))
        self._tokens[process.name] = run.now + (
            TOKEN if expires or self.service == 'Keystone' else float('inf'))
        return {}

    def announced(self, service: str) -> None:
        """Remember that an executor has announced an outage."""
        self._told.append((self._run.now, service))

    def count_announcements(self) -> int:
        """Return how often the outage of the run was announced while it lasted."""
        return sum(service == self.service and self.begins <= at < self.ends
                   for at, service in self._told)
