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

"""Time during which scores do not show a completed move.

A query over a range of W seconds, asked at T of samples that are A seconds old, covers the time
from T - A - W to T - A. It shows nothing of a move that completed at C before C + A, and all of the
move from C + A + W on. In between a mean shows the part of W that has passed, while a peak has
risen already and not fallen yet (:meth:`lookback.LookbackWindow.compute_unseen_part`).

Where A is not measured, or a recording rule may hide a range, no single such time exists: then only
the bounds of the unseen part are known.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from kronos_nova import lookback
from kronos_nova import model

#: Scores correct for a longer range, but moves do not wait for it: a query
#: for the peak of a week must not hold a scope for a week.
LONGEST_WAIT = 3600.0
#: Seconds that model.MoveHistory.completed reaches back, besides the range of the
#: queries: longer than the age of usable samples, and than the wait for scores
#: to show a move.
REMEMBERED = 10800.0
#: Imbalance moves follow scores, so they wait until scores show the last such
#: move. Drains and repairs do not wait: the view adds them to the scores.
FOLLOWING = (model.Phase.SPREAD, model.Phase.PACK)


class UnseenChange(NamedTuple):
    """Bounds of the part of a change that samples do not show."""

    least: float
    most: float


class UsageShare(NamedTuple):
    """Bounds of a change to a host's value, in usages of the instance."""

    host: str
    least: float
    most: float


def compute_retention(window: float) -> float:
    """Return the seconds for which completed moves matter to queries, with samples of any age.

    :param window: the longest time (s) that the queries look back.
    """
    return REMEMBERED + window


def compute_sample_age(policy: model.PolicyScores) -> float:
    """Return the age (s) of the samples; not measured: the highest at which they are usable."""
    return policy.staleness if policy.age is None else max(0.0, policy.age)


def compute_unseen_part(policy: model.PolicyScores, look: lookback.LookbackWindow, taken_at: float,
                        completed_at: float,
                        settle_seconds: float, *, arriving: bool) -> UnseenChange:
    """Return the bounds of the part of a completed move that samples do not show at one end.

    :param look: lookback of the query: a policy's scores and its fills may come from different
        queries.
    :param taken_at: time of the query for the scores, epoch seconds.
    :param settle_seconds: the shortest range to expect; 0: scores show everything at once.
    :param arriving: at the destination, else at the source.
    """
    if settle_seconds <= 0:
        return UnseenChange(0.0, 0.0)
    since = taken_at - completed_at
    youngest = 0.0 if policy.age is None else compute_sample_age(policy)
    least = look.compute_unseen_part(since - youngest, look.ramp, arriving=arriving)
    most = look.compute_unseen_part(since - compute_sample_age(policy),
                                    max(settle_seconds, look.ramp + look.slack),
                                    arriving=arriving)
    return UnseenChange(least, max(least, most))


def compute_host_shares(moves: Sequence[tuple[model.Move, float]], policy: model.PolicyScores,
                        look: lookback.LookbackWindow, taken_at: float,
                        settle_seconds: float) -> Iterator[UsageShare]:
    """Yield the changes that the moves of one instance make to its hosts' values.

    :param moves: the instance's moves with their times, newest first, each from where the next one
        led.
    """
    def compute_part(at: float, arriving: bool) -> UnseenChange:
        return compute_unseen_part(policy, look, taken_at, at, settle_seconds, arriving=arriving)

    if look.span <= 0:
        for move, at in moves:
            least, most = compute_part(at, arriving=True)
            if most:
                yield UsageShare(move.from_host, -most, -least)
                yield UsageShare(move.to_host, least, most)
        return
    # A peak shows an instance once, also when it came and went several times.
    arrival_times = {move.to_host: at for move, at in reversed(moves)}
    went = {move.from_host: at for move, at in reversed(moves)}
    stayed = moves[0][0].to_host if moves else None
    for host in dict.fromkeys([*arrival_times, *went]):
        coming = (compute_part(arrival_times[host], arriving=True) if host in arrival_times
                  else UnseenChange(0.0, 0.0))
        going = compute_part(went[host], arriving=False) if host in went else UnseenChange(0.0, 0.0)
        if host == stayed:  # the peak may still show its earlier stay
            least, most = max(0.0, coming.least - going.most), max(0.0, coming.most - going.least)
        else:
            least, most = coming.least - going.most, coming.most - going.least
        if least or most:
            yield UsageShare(host, least, most)


def clamp_to_bounds(middle: float, least: float, most: float) -> float:
    """Return the value between the bounds that is nearest to the middle.

    So an uncertain load makes a host neither hot nor cold, and an imbalance that is left is
    certain.
    """
    return min(most, max(least, middle))


def seconds_left(scores: model.ClusterScores, completed_at: float, settle_seconds: float) -> float:
    """Return the seconds until the scores of every policy show a move; <= 0: they do."""
    if settle_seconds <= 0:
        return 0.0
    waits = [compute_sample_age(p) + max(settle_seconds, min(p.window, LONGEST_WAIT))
             for p in scores.policies.values()]
    return max(waits, default=settle_seconds) - (scores.taken_at - completed_at)


def find_awaited_move(
        history: model.MoveHistory, scope_hosts: frozenset[str]) -> tuple[model.Move, float] | None:
    """Return the scope's last completed move that imbalance moves wait for, and its time."""
    awaited = [(move, at) for move, at in history.completed if move.phase in FOLLOWING
               and not scope_hosts.isdisjoint((move.from_host, move.to_host))]
    return max(awaited, key=lambda pair: pair[1], default=None)
