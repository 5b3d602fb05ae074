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


"""Calls that block, in a few threads of each hook."""

from collections.abc import Callable
from concurrent import futures
import threading

from kronos_nova.rebalancer.hooks import base

#: Calls of a hook that are under way at once; the next ones wait for their turn.
THREADS = 4


class StepPool:
    """Pool that makes steps of blocking functions; these limit their waiting themselves."""

    def __init__(self, name: str) -> None:
        self._threads = futures.ThreadPoolExecutor(THREADS, thread_name_prefix=f'hook-{name}')
        self._busy: dict[str, futures.Future[None]] = {}

    def start_step(self, key: str, work: Callable[[threading.Event], None]) -> base.HookStep:
        """Start a blocking function and return it as a step.

        :param key: key of the call: ``after`` does not begin while its ``before`` is at work.
        :param work: may raise base.StepFailed; its argument is set when the executor waits no more.
        :raises StepFailed: the call before is still at work, and its outcome is unknown.
        """
        self._busy = {k: future for k, future in self._busy.items() if not future.done()}
        if key in self._busy:
            raise base.StepFailed(problem='is still busy with its last call')
        over = threading.Event()
        self._busy[key] = self._threads.submit(work, over)
        return _BlockingStep(self._busy[key], over)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _BlockingStep(base.HookStep):

    def __init__(self, future: 'futures.Future[None]', over: threading.Event) -> None:
        self._future = future
        self._over = over

    def poll(self, now: float) -> bool:
        if not self._future.done():
            return False
        self._future.result()
        return True

    def close(self) -> None:
        self._over.set()
        self._future.cancel()
