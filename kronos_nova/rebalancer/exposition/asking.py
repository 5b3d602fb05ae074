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

"""Asking something that may not answer, and not waiting for it for long."""

from collections.abc import Callable
import threading
import time
from typing import Generic, TypeVar

from oslo_log import log as logging

from kronos_nova import exception

LOG = logging.getLogger(__name__)

_T = TypeVar('_T')


class _Question(Generic[_T]):
    """One asking, in a thread of its own."""

    def __init__(self, ask: Callable[[], _T], began: float) -> None:
        self.began = began
        self.answered = threading.Event()
        self.answer: _T | None = None
        self._ask = ask
        threading.Thread(target=self._run, name='kronos-census', daemon=True).start()

    def _run(self) -> None:
        try:
            self.answer = self._ask()
        except exception.KronosException as e:
            LOG.debug('Metrics do without the database: %s', e)
        except Exception:
            LOG.exception('Metrics do without the database, for a reason that is a defect of '
                          'ours')
        self.answered.set()


class Asking(Generic[_T]):
    """One question at a time, however many want to know.

    :param patience: seconds that somebody waits at most.
    :param fresh: an answer serves for so many seconds.
    """

    def __init__(self, ask: Callable[[], _T], *, patience: float = 4.0, fresh: float = 2.0,
                 monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._patience = patience
        self._fresh = fresh
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._question: _Question[_T] | None = None

    def answer(self) -> _T | None:
        """None: there is none, or not in time."""
        now = self._monotonic()
        with self._lock:
            question = self._question
            if question is None or (question.answered.is_set()
                                    and now - question.began >= self._fresh):
                question = self._question = _Question(self._ask, now)
        question.answered.wait(max(0.0, question.began + self._patience - now))
        return question.answer if question.answered.is_set() else None
