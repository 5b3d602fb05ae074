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


"""A background thread that repeats some work, and the count of our own errors.

Plain threading: Nova runs on native threads, and where eventlet is still selected the thread is a
green one that yields when it waits.
"""

import collections
from collections.abc import Callable
import contextlib
import os
import random
import threading
import time

from oslo_log import log as logging

from kronos_nova.feed import worker_records

LOG = logging.getLogger(__name__)

#: Part of the interval by which it varies, so that workers do not query in step.
JITTER = 0.1
#: Seconds to the next work when the interval cannot be computed.
PAUSE_AFTER_ERROR = 30.0


def jitter_interval(interval: float) -> float:
    """Return a random interval within a tenth of ``interval``.

    It differs in each process: forked children get a random generator of their own.
    """
    return interval * random.uniform(1 - JITTER, 1 + JITTER)


class FaultCounters:
    """Counters of our own errors by kind; the first error of a kind is logged.

    ``count_swallowed_error`` never raises, even when the error's text or a log handler does.
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        #: Epoch seconds of the newest error, by kind.
        self.newest: dict[str, float] = {}

    def count_swallowed_error(self, where: str, error: Exception) -> None:
        """Count an error that must not reach Nova."""
        kind = f'{where}: {type(error).__name__}'
        self.counts[kind] += 1
        self.newest[kind] = time.time()
        if self.counts[kind] > 1:
            return
        with contextlib.suppress(Exception):
            LOG.error('kronos: %s failed and is treated as absent: %s: %s. Further errors of '
                      'this kind are counted, not logged.', where, type(error).__name__, error)
            LOG.debug('kronos: where %s failed', where, exc_info=error)

    def describe_counts(self) -> dict[tuple[str, str], worker_records.FaultCount]:
        """Return the counts by place and name of the exception."""
        newest = self.newest.copy()
        fault_counts = {}
        for kind, number in self.counts.copy().items():
            where, _, error = kind.rpartition(': ')
            fault_counts[where, error] = worker_records.FaultCount(number, newest.get(kind, 0.0))
        return fault_counts

    def clear(self) -> None:
        """Forget all errors."""
        self.counts.clear()
        self.newest.clear()


class BackgroundRefresher:
    """A daemon thread that calls ``work`` every ``interval`` seconds.

    No thread runs until the first :meth:`ensure_running`, because nova-scheduler forks its workers
    after it has made the plug-ins; a child that calls it gets a thread of its own.

    :param on_wake: called on the same thread soon after :meth:`request_wake`.
    """

    def __init__(self, name: str, interval: Callable[[], float], work: Callable[[], None],
                 faults: FaultCounters, on_wake: Callable[[], None] | None = None) -> None:
        self._name = name
        self._interval = interval
        self._work = work
        self._on_wake = on_wake
        self._faults = faults
        self._reset_state()
        os.register_at_fork(after_in_child=self._reset_state)

    def _reset_state(self) -> None:
        # Another thread of the parent may have held the copied lock.
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def ensure_running(self) -> None:
        """Start the thread of this process unless it runs."""
        thread = self._thread
        if (thread is not None and thread.is_alive()) or self._stopped:
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def request_wake(self) -> None:
        """Request a call of ``on_wake``, without waiting for it."""
        self._wake.set()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread; :meth:`ensure_running` does not start it again."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped:
            self._call_safely(self._work)
            self._wait_until_due(time.monotonic() + self._find_pause())

    def _find_pause(self) -> float:
        """Return the seconds to the next work; an error must not end the thread."""
        try:
            return jitter_interval(self._interval())
        except Exception as e:
            self._faults.count_swallowed_error(self._name, e)
            return PAUSE_AFTER_ERROR

    def _wait_until_due(self, due: float) -> None:
        """Wait until ``due``; call ``on_wake`` when :meth:`request_wake` ends the wait early."""
        while (seconds := due - time.monotonic()) > 0 and self._wake.wait(seconds):
            self._wake.clear()
            if self._stopped:
                return
            if self._on_wake is not None:
                self._call_safely(self._on_wake)

    def _call_safely(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as e:
            self._faults.count_swallowed_error(self._name, e)
