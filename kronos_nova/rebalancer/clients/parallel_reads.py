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

"""Many reads at once, a few at a time, all within one time limit."""

from collections.abc import Callable
from collections.abc import Iterable
from concurrent import futures
import time
from typing import TypeVar

from kronos_nova.rebalancer.clients import api

#: Requests at a time.
CONCURRENCY = 8

T = TypeVar('T')


def read_with_retry(read: Callable[[], T]) -> T:
    """Return the result of a read; read once more if a listed record was gone."""
    try:
        return read()
    except api.ApiError as exc:
        if exc.status not in api.PASSING:
            raise
    return read()


class ReadingContext:
    """A context in which reads run; reads that have not begun at its end are dropped.

    :param seconds: limit of the whole, from now.
    """

    def __init__(self, seconds: float, option: str = '[nova] collect_timeout') -> None:
        self._pool = futures.ThreadPoolExecutor(CONCURRENCY, thread_name_prefix='reading')
        self._seconds = seconds
        self._option = option
        self._end = time.monotonic() + seconds

    def __enter__(self) -> 'ReadingContext':
        return self

    def __exit__(self, *_exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, read: Callable[[], T]) -> 'futures.Future[T]':
        return self._pool.submit(read_with_retry, read)

    def collect_result(self, future: 'futures.Future[T]', service: str, what: str) -> T:
        """Return the result of a started read.

        :raises ApiError: the read raised it, or the time is up.
        """
        try:
            return future.result(max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            raise api.ApiError(service, what, f'not read within {self._seconds:.0f} s '
                                              f'({self._option})', outage=service) from None

    def read_one(self, service: str, what: str, read: Callable[[], T]) -> T:
        """Run one read and return its result."""
        return self.collect_result(self.start(read), service, what)

    def read_each(self, service: str, what: str, read: Callable[[str], T],
                  keys: Iterable[str]) -> dict[str, T]:
        """Return ``read(key)`` by key; raise the first error."""
        started = {key: self._pool.submit(read, key) for key in keys}
        return {key: self.collect_result(future, service, what) for key, future in started.items()}

    def read_all(self, service: str, what: str, read: Callable[[str], T],
                 keys: Iterable[str]) -> dict[str, T | api.ApiError]:
        """Return ``read(key)`` by key, or the key's error where the read failed."""
        started = {key: self._pool.submit(read, key) for key in keys}
        answers: dict[str, T | api.ApiError] = {}
        for key, future in started.items():
            try:
                answers[key] = self.collect_result(future, service, what)
            except api.ApiError as exc:
                answers[key] = exc
        return answers
