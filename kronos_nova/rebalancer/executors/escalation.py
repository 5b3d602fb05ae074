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

"""Choice of the step against a live migration that does not converge. Pure.

Nova's record has the bytes that were sent and those that remain. The rest grows by the pages that
the guest writes, and falls by those that are sent. QEMU counts written pages at the end of each
round alone, so the rates are means over several rounds, and the choice waits for the last moment
at which the step still lets the migration arrive in time: until then a quieter time of the guest
may come, and auto-converge slows the guest down.
"""

from collections.abc import Sequence
import dataclasses
import math

from kronos_nova import model

MIB = 1024.0 * 1024.0
#: Number of samples for the rates, the newest.
KEPT_SAMPLES = 12
#: A rate needs so many samples, over so many seconds: Nova writes every 5 s, in whole seconds.
_FEWEST_SAMPLES = 3
_SHORTEST_SECONDS = 15.0
#: The expected time of a step may be so many times longer.
_MARGIN = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class CopySample:
    """Amounts of a live migration, in bytes of memory and disks, that Nova wrote at one time.

    ``at``: epoch seconds by Nova's clock; only differences count.
    """

    at: float
    sent: int
    remaining: int


@dataclasses.dataclass(frozen=True, slots=True)
class CopyRates:
    """Measured rates in bytes a second, and the bytes that remain."""

    remaining: float
    sent: float
    written: float

    @property
    def finish_seconds(self) -> float:
        """Seconds to send all that remains while the guest writes nothing."""
        return self.remaining / self.sent if self.sent > 0 else math.inf

    @property
    def arrival_seconds(self) -> float:
        """Seconds until the migration arrives if nothing is done; infinity: it does not."""
        left = self.sent - self.written
        return self.remaining / left if left > 0 else math.inf

    def __str__(self) -> str:
        return (f'its guest writes {self.written / MIB:.1f} MiB/s, {self.sent / MIB:.1f} MiB/s are '
                f'sent, and {self.remaining / MIB:.0f} MiB remain')


@dataclasses.dataclass(frozen=True, slots=True)
class EscalationLimits:
    """Limits of the configuration; without ``allowed`` nothing happens.

    ``arrival_seconds`` from the begin of the copying; ``longest_pause`` of a guest in seconds.
    """

    allowed: tuple[model.EscalationKind, ...] = ()
    arrival_seconds: float = 600.0
    longest_pause: float = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class CopyObservation:
    """A live migration under way: its begin, its newest samples and the steps of its task.

    ``deadline``: when the task is late, in epoch seconds. ``look_interval``: seconds between two
    choices.
    """

    began_at: float
    deadline: float
    samples: Sequence[CopySample]
    look_interval: float
    steps: tuple[model.EscalationStep, ...] = ()


def measure_rates(samples: Sequence[CopySample]) -> CopyRates | None:
    """Return the mean rates between the first and the last sample; None: too few."""
    if len(samples) < _FEWEST_SAMPLES:
        return None
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at
    if seconds < _SHORTEST_SECONDS or last.sent < first.sent:
        return None
    sent = (last.sent - first.sent) / seconds
    written = sent + (last.remaining - first.remaining) / seconds
    return CopyRates(last.remaining, sent, max(0.0, written))


def choose_step(seen: CopyObservation, limits: EscalationLimits,
                now: float) -> model.EscalationStep | None:
    """Return the step to take now; None: the migration goes on as it is.

    A guest that only copies slowly is not moved cold: it must be about to miss its task's deadline.

    :param now: epoch seconds, by the clock of ``seen.began_at``.
    """
    open_kinds = set(limits.allowed).difference(step.kind for step in seen.steps)
    rates = measure_rates(seen.samples) if open_kinds else None
    left = seen.began_at + limits.arrival_seconds - now
    if rates is None or rates.arrival_seconds <= left:
        return None
    reason = f'it does not arrive within {limits.arrival_seconds:.0f} s: {rates}'
    if (model.EscalationKind.FORCE_COMPLETE in open_kinds
            and rates.finish_seconds <= limits.longest_pause):
        if rates.finish_seconds * _MARGIN + 2 * seen.look_interval < left:
            return None
        return model.EscalationStep(
            model.EscalationKind.FORCE_COMPLETE, now,
            f'{reason}; a pause of {rates.finish_seconds:.0f} s lets it arrive')
    if (model.EscalationKind.COLD in open_kinds and left <= 0
            and now + rates.arrival_seconds > seen.deadline
            and now >= _find_last_end(seen, limits)):
        return model.EscalationStep(model.EscalationKind.COLD, now, reason)
    return None


def _find_last_end(seen: CopyObservation, limits: EscalationLimits) -> float:
    """Return when the steps that Nova may carry out should have ended."""
    return max((step.at + limits.longest_pause * _MARGIN + 2 * seen.look_interval
                for step in seen.steps if step.may_be_at_work), default=-math.inf)
