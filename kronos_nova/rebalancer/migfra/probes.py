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


"""Probes in separate threads whether servers answer: a silent server holds up no other."""

from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import time

#: Most probes at a time; the next ones wait for their turn.
THREADS = 8
#: Seconds that an answer is valid: an older one may be of an earlier start.
BELIEVED = 120.0


@dataclasses.dataclass(slots=True)
class _ServerProbe:
    """A probe of one server; ``ended_at`` in ticks."""

    answer: futures.Future[bool]
    ended_at: float | None = None


class ServerProbes:
    """The probes of one thread.

    :param answers: whether a server answers at an address; it may block for a while.
    """

    def __init__(self, answers: Callable[[str], bool],
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._answers = answers
        self._ticks = ticks
        self._threads = futures.ThreadPoolExecutor(
            THREADS, thread_name_prefix='kronos-migfra-probe')
        self._running_probes: dict[str, _ServerProbe] = {}

    def has_answered(self, uuid: str, addresses: Sequence[str]) -> bool | None:
        """Return whether the server has answered at an address; None while that is unknown.

        After a negative answer a new probe begins, for the next call.
        """
        self._drop_old_answers()
        probe = self._running_probes.get(uuid)
        if probe is not None and not probe.answer.done():
            return None
        answered = None if probe is None else probe.answer.result()
        if answered:
            del self._running_probes[uuid]
        else:
            self._start_probe(uuid, tuple(addresses))
        return answered

    def close(self) -> None:
        """Cancel the probes that have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_probe(self, uuid: str, addresses: Sequence[str]) -> None:
        probe = self._running_probes[uuid] = _ServerProbe(self._threads.submit(
            lambda: any(self._answers(address) for address in addresses)))

        def record_end(answer: futures.Future[bool]) -> None:
            probe.ended_at = self._ticks()

        probe.answer.add_done_callback(record_end)

    def _drop_old_answers(self) -> None:
        """Drop answers that no call has fetched in time."""
        now = self._ticks()
        for uuid in [uuid for uuid, probe in self._running_probes.items()
                     if probe.ended_at is not None and now - probe.ended_at > BELIEVED]:
            del self._running_probes[uuid]
