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
it shows nothing before C + A, all of it from C + A + W on, and the part
between that has passed in between.
"""

from kronos_nova import model

#: A longer range is laid over the scores but not waited for: what asks for
#: the peak of a week must not hold a scope for a week.
LONGEST_WAIT = 3600.0
#: How far back model.History.completed reaches, in seconds: longer than it is
#: waited for scores to show a move.
REMEMBERED = 10800.0


def age(policy: model.PolicyScores) -> float:
    """Seconds; not measured, it may be anything that would still be used."""
    return policy.staleness if policy.age is None else max(0.0, policy.age)


def unseen(policy: model.PolicyScores, window: float, taken_at: float, completed_at: float,
           settle_seconds: float) -> float:
    """The part of a completed move, 0 to 1, that samples do not show.

    :param window: over which their query looks back, seconds: a policy's
        scores and its fills may come from different queries.
    :param taken_at: when the scores were asked for, epoch seconds.
    :param settle_seconds: the shortest range to expect; 0: scores show
        everything at once.
    """
    if settle_seconds <= 0:
        return 0.0
    shown = (taken_at - age(policy) - completed_at) / max(settle_seconds, window)
    return min(1.0, max(0.0, 1.0 - shown))


def seconds_left(scores: model.Scores, completed_at: float, settle_seconds: float) -> float:
    """Until the scores of every policy show a move; <= 0: they do."""
    if settle_seconds <= 0:
        return 0.0
    waits = [age(p) + max(settle_seconds, min(p.window, LONGEST_WAIT))
             for p in scores.policies.values()]
    return max(waits, default=settle_seconds) - (scores.taken_at - completed_at)
