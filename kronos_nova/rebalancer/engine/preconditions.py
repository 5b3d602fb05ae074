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

"""Preconditions of a scope's moves, and the moves under way that a cycle counts. Pure."""

from collections.abc import Iterable
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.planning import planning_pipeline

#: Seconds after an engine's last plan during which another engine goes on at once.
REMEMBERED_SECONDS = 600.0


def merge_flights(cluster: model.Cluster, before: Iterable[model.InFlightMove],
                  now: tuple[model.InFlightMove, ...]) -> model.Cluster:
    """Return the cluster with the moves of our tasks that are under way.

    :param before: those before Nova was read; one that has ended since counts until the cycle is
        over.
    :param now: those under way now.
    """
    under_way = {f.instance_uuid for f in now}
    ended = tuple(f for f in before if f.instance_uuid not in under_way)
    return dataclasses.replace(cluster, flights=(*cluster.flights, *now, *ended))


def find_wrong_clock(ahead: float, allowed: float) -> str | None:
    """Return the difference from the database's clock, in words; None where it is small.

    Cooldowns are epoch times: by a clock that has stepped they would be over too soon, or last
    too long. The database's clock is the truth.
    """
    if abs(ahead) <= allowed:
        return None
    return (f'the clock of this machine is {abs(ahead):.0f} s '
            f'{"ahead of" if ahead > 0 else "behind"} the database\'s: set both by NTP')


def find_first_cycle_hold(planned: float | None, now: float, interval: float) -> str | None:
    """Return the reason to hold the first cycle after a start or a long silence, or None.

    An operator who restarts an engine because something is wrong has time to see it.

    :param planned: when an engine last planned the scope; None: never.
    :param interval: seconds between two cycles.
    """
    limit = max(REMEMBERED_SECONDS, 3 * interval)
    if planned is not None and abs(now - planned) <= limit:  # a clock may have been set
        return None
    return ('this is the first cycle after a start, and no engine has planned the scope '
            f'within {limit:.0f} s: the next cycle may move')


def has_imbalance_moves(plan: model.Plan) -> bool:
    return any(m.phase in metrics.IMBALANCE for m in plan.moves)


def is_balanced(outcome: planning_pipeline.PassOutcome, history: model.MoveHistory) -> bool:
    """Return whether a plan without imbalance moves shows that the scope needs none.

    The imbalance of a scope that may not move is unknown.
    """
    return outcome.settled and history.paused is None and history.scope_cooling <= 0


def find_sustain_hold(since: float, needed: float, now: float) -> str | None:
    """Return why moves against an imbalance wait, or None.

    :param since: when the imbalance began.
    :param needed: seconds that it has to last.
    """
    seconds = since + needed - now
    if seconds <= 0:
        return None
    return f'the imbalance has to last for another {seconds:.0f} s (sustain_for)'
