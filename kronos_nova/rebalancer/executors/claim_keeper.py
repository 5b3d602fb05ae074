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

"""A thread that keeps an executor's claims alive while its worker waits for Nova.

Because the thread renews them, a slow pre-flight loses no claim. It has the same limit as the
lease keeper of an engine: a worker whose current step takes longer than ``HUNG_SECONDS`` hangs,
and its claims run out.
"""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.conf import executor as executor_conf
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.store import api

LOG = logging.getLogger(__name__)

#: A step of a worker (a pre-flight, a request, a look) that takes longer (seconds) hangs.
HUNG_SECONDS = executor_conf.STEP_SECONDS
#: Renewals within ``claim_seconds``: some may fail, and the claims still hold.
RENEWALS = 6


class TaskClaimKeeper:
    """Thread that renews the claims of one worker until :meth:`stop`.

    :param clock: returns epoch seconds, by the clock of the claims.
    :param monotonic: returns seconds that no change of a clock affects.
    """

    def __init__(self, store: api.Store, worker: str, claim_seconds: float,
                 clock: Callable[[], float],
                 monotonic: Callable[[], float] = time.monotonic) -> None:
        self.interval = claim_seconds / RENEWALS
        self._store, self._worker = store, worker
        self._clock, self._monotonic = clock, monotonic
        self._step_began = monotonic()
        self._is_failing = False
        self._health: healths.DaemonHealth | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def record_step(self) -> None:
        """Note that the worker begins another step."""
        self._step_began = self._monotonic()

    def renew_task_claims(self) -> bool:
        """Renew the worker's claims; False: the worker hangs, and nothing was written.

        :raises StoreError: the database is away.
        """
        if self._monotonic() - self._step_began > HUNG_SECONDS:
            return False
        self._store.tasks.renew_task_claim(self._worker, self._clock())
        return True

    def start(self, health: healths.DaemonHealth | None = None) -> None:
        """Start the thread.

        :param health: registry that gets failed renewals.
        """
        self._health = health
        self._thread = threading.Thread(target=self._run, name='kronos-claims', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after a renewal that has begun."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self.interval):
            problem = ''
            try:
                if not self.renew_task_claims():
                    problem = (f'the worker has been in one step for more than {HUNG_SECONDS:g} s; '
                               'its claims are not renewed')
            except exception.StoreError as e:
                problem = str(e)
            except Exception as e:
                # A dead thread would lose the claims of every slow step.
                problem = f'{type(e).__name__}, a defect of ours; see the log'
                LOG.exception('Executor %s: unexpected error; please report it', self._worker)
            if self._health is not None:
                self._health.record_part('claims', {'': problem} if problem else {})
            if problem and not self._is_failing:
                LOG.warning('Executor %s: claims were not renewed: %s Another executor may take '
                            'them over.', self._worker, exception.format_sentence(problem))
            self._is_failing = bool(problem)
