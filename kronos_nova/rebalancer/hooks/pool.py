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


"""Calls that block, in a few threads of a hook's own."""

from collections.abc import Callable
from concurrent import futures

from kronos_nova.rebalancer.hooks import base

#: So many calls of a hook are under way at once; the next ones wait for their turn.
THREADS = 4


class Pool:
    """Makes steps of functions that block; they bound their waiting themselves."""

    def __init__(self, name: str) -> None:
        self._threads = futures.ThreadPoolExecutor(THREADS, thread_name_prefix=f'hook-{name}')

    def step(self, work: Callable[[], None]) -> base.Step:
        """:param work: may raise base.Failed."""
        return _Blocking(self._threads.submit(work))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Blocking(base.Step):

    def __init__(self, future: 'futures.Future[None]') -> None:
        self._future = future

    def poll(self, now: float) -> bool:
        if not self._future.done():
            return False
        self._future.result()
        return True

    def close(self) -> None:
        self._future.cancel()
