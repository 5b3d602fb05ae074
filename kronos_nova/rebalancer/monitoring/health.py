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


"""The health of a daemon, as its parts have recorded it.

Each loop records its pulse in each round; a loop records each service that it needs, well or not,
when it uses the service. A reader gets the recorded state, so that reading costs nothing and cannot
hang.
"""

from collections.abc import Callable
from collections.abc import Mapping
import threading
import time
from typing import Any


class LoopPulse:
    """A loop that must begin a round every ``patience`` seconds at least."""

    def __init__(self, name: str, patience: float, monotonic: Callable[[], float]) -> None:
        self._name = name
        self._patience = patience
        self._monotonic = monotonic
        self._last = monotonic()

    def record_beat(self) -> None:
        self._last = self._monotonic()

    def find_problem(self) -> str | None:
        silent = self._monotonic() - self._last
        if silent <= self._patience:
            return None
        return (f'{self._name}: silent for {silent:.0f} s, at most {self._patience:.0f} s are '
                'expected; restart the daemon')


class DaemonHealth:
    """The health of one daemon. Any thread may write, any may read.

    :param facts: shown unchanged: name of the daemon, dry run.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, **facts: Any) -> None:
        self._monotonic = monotonic
        self._facts = facts
        self._pulses: list[LoopPulse] = []
        self._troubles: dict[str, Mapping[str, str]] = {}
        self._noted: dict[str, float] = {}
        self._lock = threading.Lock()

    def add_pulse(self, name: str, patience: float) -> LoopPulse:
        """Add a pulse, which has just beaten.

        :param patience: seconds.
        """
        pulse = LoopPulse(name, patience, self._monotonic)
        with self._lock:
            self._pulses.append(pulse)
        return pulse

    def expect_part(self, part: str) -> None:
        """Hold back readiness until this part is noted for the first time."""
        self._write(part, {'': 'it has not come round yet'})

    def record_part(self, part: str, troubles: Mapping[str, str]) -> None:
        """Record which tasks of a part failed last time, and why; empty ``troubles``: none."""
        self._write(part, dict(troubles))
        self._noted[part] = self._monotonic()

    def _write(self, part: str, troubles: Mapping[str, str]) -> None:
        with self._lock:
            self._troubles[part] = troubles

    def find_restart_reason(self) -> list[str]:
        """Return why the process should be restarted; empty when it should not."""
        with self._lock:
            pulses = list(self._pulses)
        return [problem for pulse in pulses if (problem := pulse.find_problem()) is not None]

    def find_unready_reason(self) -> list[str]:
        """Return why the daemon does not do all its work now; empty when it does."""
        with self._lock:
            parts = dict(self._troubles)
        return self.find_restart_reason() + [
            ': '.join(text for text in (part, what, why) if text)
            for part, troubles in parts.items() for what, why in troubles.items()]

    def map_facts(self) -> dict[str, Any]:
        """Return the further facts to show; ``seconds_since``: the last note of each part."""
        now = self._monotonic()
        return {**self._facts, 'seconds_since': {
            part: round(now - at, 1) for part, at in sorted(self._noted.items())}}
