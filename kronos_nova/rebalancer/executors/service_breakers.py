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

"""Circuit breakers, one for each service that migrations need: Nova, Placement, Keystone.

A breaker opens after ``FAILURES`` failures in a row. While it is open, no task begins and the
executor does not ask Nova about migrations under way. After ``seconds`` one request tries the
service: it closes the breaker, or keeps it open for as long again. The database remembers an
outage, so that only one of all executors announces it, once, also while the service works and
fails in turn.
"""

from collections.abc import Callable
from collections.abc import Collection
import dataclasses
from typing import Any

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.messaging import plan_events
from kronos_nova.rebalancer.store import api

LOG = logging.getLogger(__name__)

NOVA, PLACEMENT, KEYSTONE = 'Nova', 'Placement', 'Keystone'
#: Services that a new migration needs.
ALL = (NOVA, PLACEMENT, KEYSTONE)
#: Services that a look at a migration needs.
WATCHING = (NOVA, KEYSTONE)
#: Failures in a row that open a breaker: a single request may fail because of its own content.
FAILURES = 2
#: An outage ends with a success, or so many seconds after its last failure. A failure within as
#: many seconds of its end belongs to the same outage. Where an open breaker waits for longer, the
#: time is that of three requests.
SAME_OUTAGE = 600.0
_TRIES = 3

#: Publishes an event of a scope: (event, scope, payload).
Announce = Callable[[str, str, dict[str, Any]], object]


@dataclasses.dataclass(slots=True)
class _BreakerState:
    """State of a breaker; ``until``: when an open one tries its service again; None: closed."""

    failures: int = 0
    until: float | None = None
    reason: str = ''


class ServiceBreakers:
    """The breakers of one executor.

    :param announce: publishes the begin of an outage; None: nothing is published.
    :param seconds: how long an open breaker waits before the service is tried again.
    """

    def __init__(self, store: api.Store, announce: Announce | None, seconds: float) -> None:
        self._store = store
        self._announce = announce
        self._seconds = seconds
        self._same_outage = max(SAME_OUTAGE, _TRIES * seconds)
        self._breakers = {name: _BreakerState() for name in ALL}

    def record_failure(self, error: exception.ServiceUnavailable, task: model.Task,
                       now: float) -> None:
        """Count a failure; open the breaker of its service when there are enough."""
        service = error.kwargs['service']
        if service not in self._breakers:
            service = NOVA
        breaker = self._breakers[service]
        breaker.failures += 1
        breaker.reason = exception.format_sentence(str(error.kwargs['problem']))
        if breaker.failures < FAILURES:
            return
        if breaker.until is None:
            LOG.warning('%s does not work: %s No migration begins until it does; tasks wait and '
                        'use up no retry. It is tried every %.0f s.', service, breaker.reason,
                        self._seconds)
        breaker.until = now + self._seconds
        if self._store.quarantine.record_outage(service, now, self._same_outage, breaker.reason):
            self._announce_outage(service, breaker.reason, task.aggregate, now)

    def record_success(self, services: Collection[str], now: float) -> None:
        """Close the breakers of services that have just answered."""
        for service in services:
            breaker = self._breakers[service]
            breaker.failures = 0
            if breaker.until is not None:
                breaker.until = None
                self._store.quarantine.end_outage(service, now)
                LOG.info('%s works again', service)

    def find_open(self, services: Collection[str], now: float) -> str | None:
        """Return why a request must not be sent to these services now; None: it may be sent."""
        for service in services:
            breaker = self._breakers[service]
            # A clock that was set back does not keep it open for longer.
            if breaker.until is not None and 0 < breaker.until - now <= self._seconds:
                return f'{service} does not work: {breaker.reason}'
        return None

    def list_outages(self) -> dict[str, str]:
        """Return the reason by service for each breaker that has not closed."""
        return {name: breaker.reason for name, breaker in self._breakers.items()
                if breaker.until is not None}

    def _announce_outage(self, service: str, reason: str, scope: str, now: float) -> None:
        if self._announce is None:
            return
        try:
            self._announce(plan_events.UNAVAILABLE, scope,
                           plan_events.outage_payload(service, reason, scope, now))
        except Exception as e:
            LOG.warning('The outage of %s was not announced (%s: %s)', service,
                        type(e).__name__, e)
