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


"""A hard time limit on a call that waits for the network.

The timeouts of requests hold for one read: a server that sends a byte now and then never exceeds
them. So the call runs on a thread of its own, and the caller stops waiting when time is up.
"""

from collections.abc import Callable
from concurrent import futures
import threading
from typing import TypeVar

T = TypeVar('T')

#: Number of hanging calls at which no new call starts.
MAX_HANGING = 4


class DeadlineExceeded(Exception):
    """Time is up; the call was left behind."""


class TooManyHanging(Exception):
    """Too many calls were left behind and still hang."""


class BoundedCalls:
    """A runner of calls with a time limit; it remembers the calls that it left behind."""

    def __init__(self) -> None:
        self._left_behind: list[threading.Thread] = []

    def run_bounded(self, function: Callable[[], T], seconds: float) -> T:
        """Run ``function()``; return its result, or raise its error, within ``seconds``.

        :raises DeadlineExceeded: the function did not end in time.
        :raises TooManyHanging: the function was not started.
        """
        self._left_behind = [t for t in self._left_behind if t.is_alive()]
        if len(self._left_behind) >= MAX_HANGING:
            raise TooManyHanging(f'{len(self._left_behind)} earlier queries still hang')
        future: futures.Future[T] = futures.Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as e:
                future.set_exception(e)

        thread = threading.Thread(target=run, name='kronos-query', daemon=True)
        thread.start()
        try:
            return future.result(timeout=max(0.0, seconds))
        except futures.TimeoutError:
            if future.done():
                return future.result()
            self._left_behind.append(thread)
            raise DeadlineExceeded from None
