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

Nova's record has the bytes that were sent and those that remain. QEMU sends a guest's memory in
rounds. At the end of a round it counts the pages that the guest has written since the round began,
and they become the rest of the next round. So the rest falls during a round, and leaves out the
pages that the guest has written since the last count: the true rest is larger. In a round as long
as an earlier one a guest writes at most as many pages, if it goes on as before, so two counts bound
the true rest; without them nothing is chosen.
Source: QEMU, migration/ram.c, migration_bitmap_sync.
"""

import collections
import dataclasses
import math

from kronos_nova import model

MIB = 1024.0 * 1024.0
#: Number of samples for the rate of the network, the newest.
_KEPT_SAMPLES = 4
_FEWEST_SAMPLES = 3
#: Number of counts of written pages, the newest: with short rounds, each look sees one.
_KEPT_COUNTS = 12
#: The rate needs samples over so many seconds.
_SHORTEST_SECONDS = 15.0
#: Nova writes times in whole seconds.
_ROUNDING = 1.0
#: Seconds between the newest sample and the begin of a pause, at most: Nova writes every 5 s.
_DELAY = 10.0
#: Bytes that are sent and do not lower the rest, such as headers, are a smaller part.
_OVERHEAD = 0.05
#: The expected time of a step may be so many times longer.
_MARGIN = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class CopySample:
    """Amounts of a live migration, in bytes of memory and disks, that Nova wrote at one time.

    ``at``: epoch seconds by Nova's clock; only differences count. ``is_postcopy``: the guest runs
    on its destination already, and the amounts have no meaning.
    """

    at: float
    sent: int
    remaining: int
    is_postcopy: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _PageCount:
    """A count of written bytes by QEMU, between two samples at ``after`` and ``until``."""

    after: float
    until: float
    written: int


class CopyHistory:
    """Samples of one live migration, as far as :func:`measure_rates` needs them."""

    def __init__(self) -> None:
        self.samples: collections.deque[CopySample] = collections.deque(maxlen=_KEPT_SAMPLES)
        self.counts: collections.deque[_PageCount] = collections.deque(maxlen=_KEPT_COUNTS)
        self._renewed_at = -math.inf

    def record_sample(self, sample: CopySample, monotonic: float) -> None:
        """Record the amounts of a look, unless Nova has not written since the last one.

        :param monotonic: the present monotonic time.
        """
        last = self.samples[-1] if self.samples else None
        if sample.is_postcopy or last is not None and sample.at <= last.at:
            return
        if last is not None:
            sent = sample.sent - last.sent
            written = sent + sample.remaining - last.remaining
            if sent < 0:
                self.samples.clear()
                self.counts.clear()
            elif written > max(MIB, _OVERHEAD * sent):
                self.counts.append(_PageCount(last.at, sample.at, written))
        self.samples.append(sample)
        self._renewed_at = monotonic

    def measure_age(self, monotonic: float) -> float:
        """Return the seconds since the newest sample was recorded.

        Nova does not write amounts that have not changed: an old sample means a network that sends
        nothing.
        """
        return monotonic - self._renewed_at


@dataclasses.dataclass(frozen=True, slots=True)
class CopyRates:
    """Measured rates in bytes a second, and bounds of the bytes that remain.

    ``remaining``: without the pages written since the last count. ``expected``: with those, by the
    mean rate. ``longest``: with all that the guest may have written.
    """

    remaining: float
    expected: float
    longest: float
    sent: float
    written: float

    @property
    def pause_seconds(self) -> float:
        """Seconds to send all that may remain while the guest writes nothing."""
        return self.longest / self.sent if self.sent > 0 else math.inf

    @property
    def arrival_seconds(self) -> float:
        """Seconds until the migration arrives if nothing is done; infinity: it does not."""
        left = self.sent - self.written
        return self.expected / left if left > 0 else math.inf

    def __str__(self) -> str:
        return (f'its guest writes {self.written / MIB:.1f} MiB/s, {self.sent / MIB:.1f} MiB/s are '
                f'sent, and {self.remaining / MIB:.0f} to {self.longest / MIB:.0f} MiB remain')


@dataclasses.dataclass(frozen=True, slots=True)
class EscalationLimits:
    """Limits of the configuration; without ``allowed`` nothing happens.

    ``arrival_seconds`` from the begin of the copying; ``longest_pause`` of a guest in seconds.
    """

    allowed: tuple[model.EscalationKind, ...] = ()
    arrival_seconds: float = 600.0
    longest_pause: float = 60.0

    def compute_patience(self, look_interval: float) -> float:
        """Return the seconds after a completion by force until the migration is aborted."""
        return self.longest_pause * _MARGIN + 2 * look_interval


@dataclasses.dataclass(frozen=True, slots=True)
class CopyObservation:
    """A live migration under way: when its copying began, its rates and the steps of its task.

    ``age``: seconds since Nova wrote new amounts. ``look_interval``: seconds between two choices.
    """

    began_at: float
    rates: CopyRates | None
    age: float
    look_interval: float
    steps: tuple[model.EscalationStep, ...] = ()


def measure_rates(history: CopyHistory) -> CopyRates | None:
    """Return the rates of the present round; None: too little is known.

    The guest may have written, since the last count, as much as in earlier rounds that were as long
    together. If none were, proportionally more: a guest that writes the same pages again writes
    fewer new ones as time goes on, not more.
    """
    samples, counts = history.samples, history.counts
    if len(samples) < _FEWEST_SAMPLES or not counts:
        return None
    first, newest, last = samples[0], samples[-1], counts[-1]
    seconds = newest.at - first.at
    if seconds < _SHORTEST_SECONDS:
        return None
    sent = (newest.sent - first.sent) / (seconds + _ROUNDING)
    since = newest.at - last.after + _DELAY
    total, unseen, written = 0, math.inf, 0.0
    for count, earlier in zip(reversed(counts), list(reversed(counts))[1:], strict=False):
        total += count.written
        shortest = last.after - earlier.until - _ROUNDING
        if shortest > 0:
            unseen = total * max(1.0, since / shortest)
            written = total / (last.until - earlier.until)
            if shortest >= since:
                break
    if math.isinf(unseen):
        return None
    return CopyRates(newest.remaining, newest.remaining + written * (newest.at - last.until),
                     newest.remaining + unseen, sent, written)


def choose_step(seen: CopyObservation, limits: EscalationLimits,
                now: float) -> model.EscalationStep | None:
    """Return the step to take now; None: the migration goes on as it is.

    The choice waits for the last moment at which the step still lets the migration arrive in time:
    until then a quieter time of the guest may come, and auto-converge slows the guest down. A
    migration that arrives without a step within the longest pause is not paused.

    :param now: epoch seconds, by the clock of ``seen.began_at``.
    """
    kind, rates = model.EscalationKind.FORCE_COMPLETE, seen.rates
    if (kind not in limits.allowed or any(step.kind is kind for step in seen.steps)
            or rates is None or seen.age > 2 * seen.look_interval + _DELAY
            or rates.pause_seconds > limits.longest_pause):
        return None
    left = seen.began_at + limits.arrival_seconds - now
    if (rates.arrival_seconds <= max(left, limits.longest_pause)
            or rates.pause_seconds * _MARGIN + 2 * seen.look_interval < left):
        return None
    return model.EscalationStep(
        kind, now, f'it does not arrive within {limits.arrival_seconds:.0f} s: {rates}; a pause of '
                   f'at most {rates.pause_seconds:.0f} s lets it arrive')
