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


"""The threads of an engine: a cycle each interval, and renewals of its leases."""

from collections.abc import Mapping
import threading
import time
from typing import Protocol

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.rebalancer.engine import engine as engines
from kronos_nova.rebalancer.monitoring import health as healths

LOG = logging.getLogger(__name__)

#: Seconds between two renewals of the leases. An engine that waits for a scope looks
#: as often: it has the scope at most LEASE_SECONDS and this after the other's death.
BEAT_SECONDS = 8.0


class CycleRunner(Protocol):
    def run_safe_cycle(self) -> Mapping[str, str]: ...

    def keep_leases(self) -> bool: ...

    def stop(self) -> None: ...


class EngineDaemon:
    """Two threads: one runs cycles, one keeps the leases.

    :param interval: seconds from the beginning of a cycle to the next; a scope whose engine died is
        planned sooner.
    :param health: health registry to report both threads to.
    """

    def __init__(self, engine: CycleRunner, interval: float, beat: float = BEAT_SECONDS,
                 health: healths.DaemonHealth | None = None) -> None:
        self._engine = engine
        self._interval = interval
        self._beat = beat
        self._health = health or healths.DaemonHealth()
        self._health.expect_part('cycle')
        self._cycle_pulse = self._health.add_pulse('cycles', interval + engines.HUNG_SECONDS)
        self._beat_pulse = self._health.add_pulse('leases', beat + engines.HUNG_SECONDS)
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._threads = [threading.Thread(target=target, name=name, daemon=True)
                         for target, name in ((self._run_cycles, 'kronos-cycles'),
                                              (self._renew_leases, 'kronos-leases'))]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop both threads; wait for the running cycle, which ends soon."""
        self._stopping.set()
        self._engine.stop()
        self._due.set()
        for thread in self._threads:
            thread.join()

    def _run_cycles(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._cycle_pulse.record_beat()
            self._health.record_part('cycle', self._engine.run_safe_cycle())
            self._due.wait(max(0.0, began + self._interval - time.monotonic()))
            self._due.clear()

    def _renew_leases(self) -> None:
        failing = False
        while not self._stopping.wait(self._beat):
            try:
                self._beat_pulse.record_beat()
                if self._engine.keep_leases():
                    self._due.set()
                failing = False
                self._health.record_part('leases', {})
            except exception.StoreError as e:
                self._health.record_part('leases', {'': str(e)})
                if not failing:
                    LOG.warning('The leases were not renewed: %s It is tried again every %g s; '
                                'another engine may take them.', e, self._beat)
                failing = True
            except Exception:
                LOG.exception('The leases were not renewed for a reason that is a defect of '
                              'ours; it is tried again.')
                self._health.record_part('leases', {'': 'a defect of ours; see the log'})
