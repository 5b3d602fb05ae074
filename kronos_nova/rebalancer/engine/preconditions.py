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
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import drain_requests

#: Seconds after an engine's last plan during which another engine goes on at once.
REMEMBERED_SECONDS = 600.0
#: Seconds between the times that an engine and the database give a plan, at most.
ROUNDING = 1.0


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

    The imbalance of a scope that may not move, or whose instances wait for notices, is unknown.
    """
    return (outcome.settled and history.paused is None and history.scope_cooling <= 0
            and not outcome.plan.rejections.get('contract-notice'))


def find_sustain_hold(since: float, needed: float, now: float) -> str | None:
    """Return why moves against an imbalance wait, or None.

    :param since: when the imbalance began.
    :param needed: seconds that it has to last.
    """
    seconds = since + needed - now
    if seconds <= 0:
        return None
    return f'the imbalance has to last for another {seconds:.0f} s (sustain_for)'


def find_overtaken_tasks(cluster: model.Cluster, options: model.PlanningOptions,
                         pending: Iterable[model.Task]) -> list[model.Task]:
    """Return the tasks for balance that wait while a person wants a host to be emptied.

    There are none unless the host has an instance that no other task moves.

    :param cluster: with its scope set, and with the moves of all tasks.
    :param pending: the tasks of the scope that wait for approval.
    """
    hosts = drain_requests.list_waiting_hosts(cluster, options)
    overtaken = drain_precedence.list_yielding_tasks(pending) if hosts else []
    moving = ({flight.instance_uuid for flight in cluster.flights}
              - {task.instance_uuid for task in overtaken})
    return overtaken if any(i.host in hosts and i.uuid not in moving
                            for i in cluster.instances.values()) else []


def let_drain_overtake(history: model.MoveHistory, overtaken: Sequence[model.Task], *,
                       cooldown: float, instance_cooldown: float, now: float) -> model.MoveHistory:
    """Return the history in which a drain goes before tasks that wait for approval.

    Cooldowns that began with these tasks protect nothing: the tasks have moved nothing.

    :param cooldown: seconds, of a scope; ``instance_cooldown``: of an instance.
    :param now: epoch seconds.
    """
    begun = {task.instance_uuid: task.created_at for task in overtaken}
    ends = max(begun.values()) + cooldown - now
    plans = ', '.join(sorted({task.plan_id for task in overtaken}))
    return dataclasses.replace(
        history, paused=None, waiting=f'a drain goes before plan {plans}',
        scope_cooling=0.0 if history.scope_cooling <= ends + ROUNDING else history.scope_cooling,
        cooling={uuid: seconds for uuid, seconds in history.cooling.items()
                 if uuid not in begun
                 or seconds > begun[uuid] + instance_cooldown - now + ROUNDING})


def list_drained_hosts(plan: model.Plan) -> list[str]:
    """Return the hosts that moves of a plan empty on an operator's order."""
    return sorted({m.from_host for m in plan.moves if m.phase is model.Phase.EVACUATE})
