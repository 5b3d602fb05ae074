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

"""How long scores do not show a move that has completed.

A query over a range of W seconds, asked at T of samples that are A seconds
old, speaks of the time from T - A - W to T - A. Of a move that completed at C
it shows nothing before C + A, all of it from C + A + W on; in between a mean
shows the part of W that has passed, while a peak has risen already and not
fallen yet (:meth:`lookback.Look.unseen`).

Where A is not measured, or a recording rule may hide a range, there is no one
such time: then it is known what at least and what at most is not shown.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from kronos_nova import lookback
from kronos_nova import model

#: A longer range is laid over the scores but not waited for: what asks for
#: the peak of a week must not hold a scope for a week.
LONGEST_WAIT = 3600.0
#: How far back model.History.completed reaches besides the range of the
#: queries, in seconds: longer than samples are old that are used, and than it is
#: waited for scores to show a move.
REMEMBERED = 10800.0
#: Imbalance moves follow scores, so they wait until these show the last of
#: them. Drains and repairs come when they must: they are laid over the scores.
FOLLOWING = (model.Phase.SPREAD, model.Phase.PACK)


class Unseen(NamedTuple):
    """The part of a change that samples do not show: at least, at most."""

    least: float
    most: float


class Share(NamedTuple):
    """What is to be added to a host's value, in usages of the instance:
    at least, at most."""

    host: str
    least: float
    most: float


def remembered(window: float) -> float:
    """Seconds for which completed moves matter to queries that look back over
    ``window`` at most, however old their samples are."""
    return REMEMBERED + window


def age(policy: model.PolicyScores) -> float:
    """Seconds; not measured, it may be anything that would still be used."""
    return policy.staleness if policy.age is None else max(0.0, policy.age)


def unseen(policy: model.PolicyScores, look: lookback.Look, taken_at: float, completed_at: float,
           settle_seconds: float, *, arriving: bool) -> Unseen:
    """The part of a completed move that samples do not show at one of its ends.

    :param look: of their query: a policy's scores and its fills may come from
        different queries.
    :param taken_at: when the scores were asked for, epoch seconds.
    :param settle_seconds: the shortest range to expect; 0: scores show
        everything at once.
    :param arriving: at the destination, else at the source.
    """
    if settle_seconds <= 0:
        return Unseen(0.0, 0.0)
    since = taken_at - completed_at
    youngest = 0.0 if policy.age is None else age(policy)
    least = look.unseen(since - youngest, look.ramp, arriving=arriving)
    most = look.unseen(since - age(policy), max(settle_seconds, look.ramp + look.slack),
                       arriving=arriving)
    return Unseen(least, max(least, most))


def shares(moves: Sequence[tuple[model.Move, float]], policy: model.PolicyScores,
           look: lookback.Look, taken_at: float, settle_seconds: float) -> Iterator[Share]:
    """What is to be laid over the hosts of one instance.

    :param moves: its moves with their times, newest first, each from where
        the next one led.
    """
    def part(at: float, arriving: bool) -> Unseen:
        return unseen(policy, look, taken_at, at, settle_seconds, arriving=arriving)

    if look.span <= 0:
        for move, at in moves:
            least, most = part(at, arriving=True)
            if most:
                yield Share(move.from_host, -most, -least)
                yield Share(move.to_host, least, most)
        return
    # A peak shows an instance once, however often it came and went.
    came = {move.to_host: at for move, at in reversed(moves)}
    went = {move.from_host: at for move, at in reversed(moves)}
    stayed = moves[0][0].to_host if moves else None
    for host in dict.fromkeys([*came, *went]):
        coming = part(came[host], arriving=True) if host in came else Unseen(0.0, 0.0)
        going = part(went[host], arriving=False) if host in went else Unseen(0.0, 0.0)
        if host == stayed:  # it was here before, and the peak has not forgotten it
            least, most = max(0.0, coming.least - going.most), max(0.0, coming.most - going.least)
        else:
            least, most = coming.least - going.most, coming.most - going.least
        if least or most:
            yield Share(host, least, most)


def towards(middle: float, least: float, most: float) -> float:
    """A value of which only bounds are known, taken as near to the middle as
    they let it be: what is uncertain makes a host neither hot nor cold, and an
    imbalance that is left is certainly there."""
    return min(most, max(least, middle))


def seconds_left(scores: model.Scores, completed_at: float, settle_seconds: float) -> float:
    """Until the scores of every policy show a move; <= 0: they do."""
    if settle_seconds <= 0:
        return 0.0
    waits = [age(p) + max(settle_seconds, min(p.window, LONGEST_WAIT))
             for p in scores.policies.values()]
    return max(waits, default=settle_seconds) - (scores.taken_at - completed_at)


def awaited(history: model.History, scope_hosts: frozenset[str]) -> tuple[model.Move, float] | None:
    """The last completed move of the scope that imbalance moves wait for."""
    found = [(move, at) for move, at in history.completed if move.phase in FOLLOWING
             and not scope_hosts.isdisjoint((move.from_host, move.to_host))]
    return max(found, key=lambda pair: pair[1], default=None)
