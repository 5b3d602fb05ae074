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


"""A hard bound on a call that waits for the network.

The timeouts of requests hold for one read: a server that sends a byte now and
then is never late for them. So the call runs on a thread of its own, and who
waits stops waiting when time is up.
"""

from collections.abc import Callable
from concurrent import futures
import threading
from typing import TypeVar

T = TypeVar('T')

#: Calls that may hang at once before no new one is begun.
MAX_HANGING = 4


class Exceeded(Exception):
    """Time is up; the call was left behind."""


class Exhausted(Exception):
    """Too many calls were left behind and still hang."""


class Bound:
    """Runs calls; remembers those that it had to leave behind."""

    def __init__(self) -> None:
        self._left_behind: list[threading.Thread] = []

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """What ``function()`` returns or raises, within ``seconds``.

        :raises Exceeded: it did neither in time.
        :raises Exhausted: it was not begun.
        """
        self._left_behind = [t for t in self._left_behind if t.is_alive()]
        if len(self._left_behind) >= MAX_HANGING:
            raise Exhausted(f'{len(self._left_behind)} earlier queries still hang')
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
            raise Exceeded from None
