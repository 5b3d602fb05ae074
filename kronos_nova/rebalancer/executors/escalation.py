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

A guest may have written the same pages again soon after a count. Then a pause in the middle of a
round sends the rest of the round and all those pages, a pause at its end only the pages. So the
step waits for the end of a round while there is time.
Source: QEMU, migration/ram.c, migration_bitmap_sync.
"""

import collections
from collections.abc import Sequence
import dataclasses
import math
import statistics

from kronos_nova import model
from kronos_nova.rebalancer.planning import time_shares
from kronos_nova.text import times

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
#: Seconds from a choice until Nova's compute node pauses the guest: it looks twice a second.
_REQUEST = 2.0
#: Seconds before the end of a round at which the guest is to be paused: a moment too late, the
#: guest has written all again.
_EARLY = 5.0
#: Seconds beside the copying of a pause: the buffers of the connection, and the handover.
HANDOVER = 2.5
#: Number of arrivals from which an executor learns these seconds, the newest; and for how long:
#: compute nodes may have been busy.
_KEPT_HANDOVERS = 9
_LEARNT_SECONDS = 3600.0


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
    """A count of written bytes by QEMU, between two samples at ``after`` and ``until``.

    ``rest``: bytes that remained of the round at ``after``.
    """

    after: float
    until: float
    written: int
    rest: int

    def find_time(self, speed: float) -> float:
        """Return when the round had been sent at a rate, and QEMU counted."""
        return min(self.after + self.rest / speed, self.until)


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
                self.counts.append(_PageCount(last.at, sample.at, written, last.remaining))
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
    mean rate. ``longest``: with all that the guest may have written; ``longest_at_end``: the same
    at the end of the round. ``sent`` is a lower bound, ``speed`` the mean.

    ``counted``: bytes of the last count, ``round_seconds`` after the count before, and
    ``counted_seconds`` before the newest sample.
    """

    remaining: float
    expected: float
    longest: float
    longest_at_end: float
    sent: float
    speed: float
    written: float
    counted: float
    counted_seconds: float
    round_seconds: float

    def bound_pause(self, handover: float) -> float:
        """Return the seconds of a pause in which all is sent that may remain."""
        return handover + (self.longest / self.sent if self.sent > 0 else math.inf)

    @property
    def arrival_seconds(self) -> float:
        """Seconds until the migration arrives if nothing is done; infinity: it does not."""
        left = self.sent - self.written
        return self.expected / left if left > 0 else math.inf

    def find_round(self, seconds: float) -> tuple[float, float]:
        """Return the seconds until the round ends and since it began, so long after the sample."""
        left, since = self.remaining / self.speed - seconds, self.counted_seconds + seconds
        if left >= 0:
            return left, since
        return max(0.0, self.counted / self.speed + left), -left

    def expect_pause(self, seconds: float) -> float:
        """Return the seconds of sending in a pause that begins so long after the newest sample.

        At the end of a round the guest has written as much as was counted last. Before, it has
        written at least the part of the elapsed time, and at most all: the mean of both.
        """
        left, since = self.find_round(seconds)
        part = min(1.0, since / self.round_seconds) if self.round_seconds > 0 else 1.0
        return left + self.counted / self.speed * (1.0 + part) / 2

    def __str__(self) -> str:
        return (f'its guest writes {self.written / MIB:.1f} MiB/s, {self.sent / MIB:.1f} MiB/s are '
                f'sent, and {self.remaining / MIB:.0f} to {self.longest / MIB:.0f} MiB remain')


class HandoverHistory:
    """The seconds that arrivals after a pause took beside the copying, as one executor saw them.

    They depend on storage, the network and the load of the compute nodes.
    """

    def __init__(self) -> None:
        self._seen: collections.deque[tuple[float, float]] = collections.deque(
            maxlen=_KEPT_HANDOVERS)

    def record_arrival(self, seconds: float, copying: float, monotonic: float) -> None:
        """Record an arrival at a monotonic time.

        :param seconds: from the request until the arrival.
        :param copying: the part that was expected for the request and the sending.
        """
        self._seen.append((monotonic, max(0.0, seconds - copying)))

    def expect_handover(self, monotonic: float) -> float:
        """Return the median of the seconds of a quiet compute node and of all seen of late.

        One arrival alone may be an exception: of an even number the lower of both in the middle
        counts.
        """
        return statistics.median_low((HANDOVER, *(
            seconds for at, seconds in self._seen if monotonic - at <= _LEARNT_SECONDS)))


@dataclasses.dataclass(frozen=True, slots=True)
class EscalationLimits:
    """Limits of the configuration; without ``allowed`` nothing happens.

    ``arrival_seconds`` from the begin of the copying; ``longest_pause`` of a guest in seconds.
    ``cause``: a clause on the cause of ``arrival_seconds``, unless they are configured.
    """

    allowed: tuple[model.EscalationKind, ...] = ()
    arrival_seconds: float = 600.0
    longest_pause: float = 60.0
    cause: str = ''

    def compute_patience(self, look_interval: float) -> float:
        """Return the seconds after a completion by force until the migration is aborted."""
        return self.longest_pause * _MARGIN + 2 * look_interval


def apply_deadline(limits: EscalationLimits, arrive_by: float | None, began_at: float,
                   waiting: int, parallel: int) -> EscalationLimits:
    """Return the limits of a migration whose drain has a deadline.

    The deadline only shortens ``arrival_seconds``, to the part that
    :func:`time_shares.compute_time_share` gives; it allows no step and no longer pause.

    :param arrive_by: the deadline in epoch seconds; None: the drain has no deadline.
    :param began_at: when the copying began, in epoch seconds.
    :param waiting: number of moves off the host that have not begun.
    :param parallel: number of migrations that may leave the host at a time.
    """
    if arrive_by is None:
        return limits
    seconds = time_shares.compute_time_share(arrive_by - began_at, waiting, parallel)
    if seconds >= limits.arrival_seconds:
        return limits
    return dataclasses.replace(limits, arrival_seconds=seconds, cause=(
        f', its part of the time until {times.format_time(arrive_by)}, the deadline of the drain'))


@dataclasses.dataclass(frozen=True, slots=True)
class CopyObservation:
    """A live migration under way: when its copying began, its rates and the steps of its task.

    ``age``: seconds since Nova wrote new amounts. ``look_interval``: seconds between two choices.
    ``handover``: expected seconds of a pause beside the copying.
    """

    began_at: float
    rates: CopyRates | None
    age: float
    look_interval: float
    steps: tuple[model.EscalationStep, ...] = ()
    handover: float = HANDOVER


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
    copied = newest.sent - first.sent
    if seconds < _SHORTEST_SECONDS or copied <= 0:
        return None
    sent, speed = copied / (seconds + _ROUNDING), copied / seconds
    since = newest.at - last.after + _DELAY
    bounds = _bound_writes(counts, since)
    bounds_at_end = _bound_writes(counts, since + newest.remaining / sent)
    if bounds is None or bounds_at_end is None:
        return None
    unseen, written = bounds
    counted_at = last.find_time(speed)
    return CopyRates(
        newest.remaining, newest.remaining + written * (newest.at - last.until),
        newest.remaining + unseen, bounds_at_end[0], sent, speed, written, last.written,
        newest.at - counted_at, counted_at - counts[-2].find_time(speed))


def _bound_writes(counts: Sequence[_PageCount], since: float) -> tuple[float, float] | None:
    """Return the most bytes that the guest has written after a count, and the rate before it.

    :param since: seconds since the last count, at most.
    """
    last, total = counts[-1], 0
    unseen, written = math.inf, 0.0
    for count, earlier in zip(reversed(counts), list(reversed(counts))[1:], strict=False):
        total += count.written
        shortest = last.after - earlier.until - _ROUNDING
        if shortest > 0:
            unseen = total * max(1.0, since / shortest)
            written = total / (last.until - earlier.until)
            if shortest >= since:
                break
    return None if math.isinf(unseen) else (unseen, written)


def choose_step(seen: CopyObservation, limits: EscalationLimits,
                now: float) -> model.EscalationStep | None:
    """Return the step to take now; None: the migration goes on as it is.

    The choice waits for the last moment at which the step still lets the migration arrive in time:
    until then a quieter time of the guest may come, and auto-converge slows the guest down. Then it
    waits for the end of the round, if the migration is still expected in time. A migration that
    arrives without a step within the longest pause is not paused.

    :param now: epoch seconds, by the clock of ``seen.began_at``.
    """
    kind, rates = model.EscalationKind.FORCE_COMPLETE, seen.rates
    if (kind not in limits.allowed or any(step.kind is kind for step in seen.steps)
            or rates is None or seen.age > 2 * seen.look_interval + _DELAY):
        return None
    longest = rates.bound_pause(seen.handover)
    if longest > limits.longest_pause:
        return None
    left = seen.began_at + limits.arrival_seconds - now
    if (rates.arrival_seconds <= max(left, limits.longest_pause)
            or longest * _MARGIN + 2 * seen.look_interval < left
            or _has_better_moment(rates, seen, limits, left)):
        return None
    return model.EscalationStep(
        kind, now, f'it does not arrive within {limits.arrival_seconds:.0f} s{limits.cause}: '
                   f'{rates}; a pause of at most {longest:.0f} s lets it arrive',
        expected_seconds=round(_REQUEST + rates.expect_pause(_find_pause(seen)) + seen.handover,
                               1))


def _find_pause(seen: CopyObservation) -> float:
    """Return the seconds from the newest sample until a pause that is requested now.

    A look has found the sample half an interval after Nova wrote it, on average.
    """
    return seen.age + seen.look_interval / 2 + _REQUEST


def _has_better_moment(rates: CopyRates, seen: CopyObservation, limits: EscalationLimits,
                       left: float) -> bool:
    """Return whether a pause at the end of the round is shorter, and comes in time.

    :param left: seconds in which the migration is to arrive.
    """
    pause = _find_pause(seen)
    wait, _ = rates.find_round(pause)
    return (wait > seen.look_interval + _EARLY
            and seen.handover + rates.longest_at_end / rates.sent <= limits.longest_pause
            and wait + _REQUEST + rates.expect_pause(pause + wait) + seen.handover < left)
