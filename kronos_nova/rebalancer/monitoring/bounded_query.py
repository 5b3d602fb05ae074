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

"""Queries to a service that may not answer, with a short waiting time."""

from collections.abc import Callable
import threading
import time
from typing import Generic, TypeVar

from oslo_log import log as logging

from kronos_nova import exception

LOG = logging.getLogger(__name__)

#: Most hanging queries that are abandoned: each has a thread and a connection.
LEFT = 4

_T = TypeVar('_T')


class _RunningQuery(Generic[_T]):
    """One query, in a thread of its own."""

    def __init__(self, ask: Callable[[], _T], began: float, subject: str) -> None:
        self.began = began
        self._subject = subject
        self.answered = threading.Event()
        self.answer: _T | None = None
        self._ask = ask
        threading.Thread(target=self._run, name='kronos-census', daemon=True).start()

    def _run(self) -> None:
        try:
            self.answer = self._ask()
        except exception.KronosException as e:
            LOG.debug('Metrics do without %s: %s', self._subject, e)
        except Exception:
            LOG.exception('Metrics do without %s, for a reason that is a defect of ours',
                          self._subject)
        self.answered.set()


class BoundedQuery(Generic[_T]):
    """One query at a time for all callers; a query that hangs is abandoned.

    :param patience: seconds that a caller waits at most.
    :param fresh: seconds for which an answer serves.
    :param hung: seconds without an answer after which the query is sent again.
    :param renew: called before that, to share no connection with the query that hangs.
    :param subject: the service that is queried, for the log.
    """

    def __init__(self, ask: Callable[[], _T], *, patience: float = 4.0, fresh: float = 2.0,
                 hung: float = 60.0, renew: Callable[[], object] = lambda: None,
                 subject: str = 'the database',
                 monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._patience = patience
        self._fresh = fresh
        self._hung = hung
        self._renew = renew
        self._subject = subject
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._question: _RunningQuery[_T] | None = None
        self._abandoned: list[_RunningQuery[_T]] = []

    def begin_query(self) -> _RunningQuery[_T]:
        """Send a query, unless one is under way or its answer serves; wait for nothing."""
        now = self._monotonic()
        with self._lock:
            question = self._question
            if question is None or self._is_outdated(question, now):
                question = self._question = _RunningQuery(self._ask, now, self._subject)
        return question

    def read_answer(self) -> _T | None:
        """Return the answer; None when the query failed or is too slow."""
        question = self.begin_query()
        question.answered.wait(max(0.0, question.began + self._patience - self._monotonic()))
        return question.answer if question.answered.is_set() else None

    def _is_outdated(self, question: _RunningQuery[_T], now: float) -> bool:
        """Return whether to send a new query."""
        if question.answered.is_set():
            return now - question.began >= self._fresh
        self._abandoned = [other for other in self._abandoned if not other.answered.is_set()]
        if now - question.began < self._hung or len(self._abandoned) >= LEFT:
            return False
        LOG.warning('Metrics: %s has not answered for %.0f s, nor has the connection ended; '
                    'repeating the query through another one', self._subject, now - question.began)
        self._abandoned.append(question)
        self._renew()
        return True
