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

"""Faults of the message broker: one that has failed is spared for a while.

Nothing depends on the broker, so a fault is logged and raises no error.
"""

from collections.abc import Callable
import threading

from oslo_log import log as logging
import oslo_messaging

from kronos_nova import exception

LOG = logging.getLogger(__name__)

#: Retries of a message; oslo.messaging would otherwise try for ever.
RETRY = 1
#: Seconds without a message to a broker that has failed.
PAUSE_SECONDS = 30.0


class ConflictLog:
    """Log of conflicts with the broker's exchanges and queues, each once in a process."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._lock = threading.Lock()

    def log_conflict(self, error: exception.BrokerConflict) -> None:
        name = str(error.kwargs['name'])
        with self._lock:
            if name in self._logged:
                return
            self._logged.add(name)
        LOG.error('%s Until then no message is sent or received where it is needed; executors '
                  'poll the database. The connection is retried every %g s.', error, PAUSE_SECONDS)


CONFLICTS = ConflictLog()


class BrokerBreaker:
    """Circuit breaker that spares a broker which has just failed.

    :param instead: a clause that tells the consequence of an unsent message.
    """

    def __init__(self, clock: Callable[[], float], instead: str) -> None:
        self._clock = clock
        self._instead = instead
        self._until = float('-inf')

    def send_message(self, what: str, action: Callable[[], None]) -> bool:
        """Send a message unless the breaker is open; False: not sent, logged once per pause."""
        if self._clock() < self._until:
            return False
        try:
            action()
        except oslo_messaging.MessageUndeliverable:
            LOG.debug('%s: no listener; %s', what, self._instead)
            return False
        except exception.BrokerConflict as e:
            self._until = self._clock() + PAUSE_SECONDS
            CONFLICTS.log_conflict(e)
            return False
        except Exception as e:
            self._until = self._clock() + PAUSE_SECONDS
            LOG.warning('%s: the broker did not take it (%s); %s. Check transport_url.', what,
                        type(e).__name__, self._instead)
            return False
        return True
