# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""How fast a soak lets a day pass. Pure."""

import dataclasses
import random

#: The example trace has two days of 10 minutes a step.
DAY_SECONDS = 86400.0


@dataclasses.dataclass(frozen=True)
class Pace:
    """Durations and intervals of a soak, in seconds, and the size of its cloud.

    ``seconds`` is how long load, people and faults act; ``trace_speed`` how many seconds of the
    trace pass in one. ``stagger_seconds`` is [executor] stagger_seconds. ``grace_seconds`` is how
    long an open task may take when everything else is over.
    """

    seconds: float
    trace_speed: float
    hosts: int
    instances_per_host: int
    drain_seconds: float
    fault_seconds: float
    people_seconds: float
    sample_seconds: float
    stagger_seconds: int
    migration_seconds: float
    grace_seconds: float = 900.0


def build_real_pace(hours: float) -> Pace:
    """Return the pace of real time: the executors have their default options."""
    return Pace(
        seconds=hours * 3600.0, trace_speed=1.0, hosts=6, instances_per_host=60,
        drain_seconds=3600.0, fault_seconds=600.0, people_seconds=60.0, sample_seconds=30.0,
        stagger_seconds=30, migration_seconds=8.0)


def build_compressed_pace(minutes: float) -> Pace:
    """Return the pace of a day that passes in minutes; cycles and leases are not shortened.

    A drain is of 15 instances, because 24 drains of 60 do not fit.
    """
    seconds = minutes * 60.0
    return Pace(
        seconds=seconds, trace_speed=DAY_SECONDS / seconds, hosts=6, instances_per_host=15,
        drain_seconds=240.0, fault_seconds=60.0, people_seconds=10.0, sample_seconds=5.0,
        stagger_seconds=2, migration_seconds=2.0)


@dataclasses.dataclass(frozen=True, order=True)
class Entry:
    """What begins when: ``at`` in seconds since the soak began."""

    at: float
    name: str


def _repeat(interval: float, end: float, first: float) -> list[float]:
    count = max(0, int((end - first) // interval) + 1) if end >= first else 0
    return [first + number * interval for number in range(count)]


def build_timetable(pace: Pace, ours: tuple[str, ...], others: tuple[str, ...],
                    people: tuple[str, ...], seed: int) -> list[Entry]:
    """Return everything that happens, in order.

    Each second fault is one of ``ours``, which strike the daemons of this project. Each list is
    dealt out in shuffled rounds, so that all its names come before one comes again.

    :param ours: none: no fault strikes.
    :param seed: decides the order within the rounds.
    """
    draws = random.Random(seed)
    entries = [Entry(at, 'drain') for at in
               _repeat(pace.drain_seconds, pace.seconds, min(300.0, pace.drain_seconds / 4))]
    decks: dict[tuple[str, ...], list[str]] = {}

    def deal(names: tuple[str, ...]) -> str:
        deck = decks.setdefault(names, [])
        if not deck:
            deck.extend(draws.sample(names, len(names)))
        return deck.pop()

    strikes = _repeat(pace.fault_seconds, pace.seconds, pace.fault_seconds) if ours else []
    for number, at in enumerate(strikes):
        entries.append(Entry(at, deal(others if number % 2 else ours)))
    for at in _repeat(pace.people_seconds, pace.seconds, pace.people_seconds):
        entries.append(Entry(at + draws.uniform(0.0, pace.people_seconds / 2), deal(people)))
    return sorted(entries)
