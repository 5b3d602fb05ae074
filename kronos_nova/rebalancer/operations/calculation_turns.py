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

"""Turns of requests to kronos-api that calculate for long."""

import contextlib
import threading
from typing import Any

from kronos_nova import exception


class CalculationTurns:
    """The turns of requests that plan or simulate a whole scope: one at a time in a process.

    Others would share its processor, and each takes as much memory.
    """

    def __init__(self, wait: float = 10.0) -> None:
        self._lock = threading.Lock()
        self._wait = wait

    @contextlib.contextmanager
    def take_turn(self) -> Any:
        """Hold the turn.

        :raises BusyError: another request has held it for too long.
        """
        if not self._lock.acquire(timeout=self._wait):
            raise exception.BusyError(
                path='kronos-api', field='request', problem='another calculation is under way',
                remedy='Try again later')
        try:
            yield
        finally:
            self._lock.release()
