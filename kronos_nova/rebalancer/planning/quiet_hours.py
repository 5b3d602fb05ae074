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

"""The quieter hours for which drains wait with instances that write much memory. Pure.

A live migration of an instance that writes memory faster than the network sends it does not
converge. Many instances repeat their load day by day: the rate of an hour of the last day is the
expected rate of the same hour to come.

The present hour counts as quiet if it was quiet a day before. So once the hour of a wait has begun,
the instance moves, even if it writes as much as before; and where the load of a day does not
repeat, no drain waits for it to do so.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import disks
from kronos_nova.constraints import relevant_cluster
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.planning import time_shares
from kronos_nova.rebalancer.simulation import migration_costs
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import times

HOUR = 3600.0
_HOURS_OF_DAY = 24
#: Seconds from a time until a move that a cycle plans then has begun.
START_SECONDS = 300.0
#: An hour in which an instance writes more than this part of its present rate is no quieter one.
QUIETER = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class _RiskyInstance:
    """An instance whose live migration is not expected to converge now, because of its rate.

    ``rates``: by hour of the day, the highest rate of the last day. ``end``: the latest time at
    which it may begin to move (epoch). ``deadline``: when its host is to be empty (epoch), and the
    order that says so. ``needed``: the seconds of the moves that have to end before.
    """

    uuid: str
    host: str
    rate: float
    rates: Mapping[int, float]
    end: float
    deadline: tuple[float, str]
    needed: float = 0.0

    def find_obstacle(self, at: float, freezes: Sequence[tuple[float, float]]) -> str | None:
        """Return why the instance may not begin to move as late as that (epoch); None: it may."""
        deadline, order = self.deadline
        frozen = math.fsum(max(0.0, min(end, deadline) - max(begin, at)) for begin, end in freezes)
        if at > self.end:
            return f'[engine] drain_quiet_wait ends before, at {times.format_time(self.end)}'
        if at + START_SECONDS + frozen + self.needed > deadline:
            return f'{order} at {times.format_time(deadline)} leaves the host no time after it'
        return None


def list_risky_instances(cluster: model.Cluster, rates: Mapping[str, float],
                         history: model.MoveHistory, options: model.PlanningOptions,
                         hosts: Collection[str]) -> list[str]:
    """Return the instances of the hosts whose live migration may not converge now.

    The highest risk comes first. Without a measured migration no risk is known.

    :param rates: bytes a second that instances write now.
    """
    return _list_risky_instances(cluster, _build_costs(history, options), rates, hosts)


def map_drain_deadlines(cluster: model.Cluster, history: model.MoveHistory) -> dict[str, float]:
    """Return the deadlines of the present drains (epoch), by host."""
    return {host: at for host in history.drain_deadlines
            if (at := model.find_drain_deadline(history.drain_deadlines,
                                                cluster.services.get(host))) is not None}


def find_quiet_waits(cluster: model.Cluster, scores: model.ClusterScores,
                     history: model.MoveHistory, options: model.PlanningOptions, now: float,
                     deadlines: Mapping[str, float] | None = None, *,
                     budget: int) -> dict[str, model.QuietWait]:
    """Return the instances of drains that wait for a quieter hour.

    Each one waits for the next hour in which it wrote, a day before, so little that its migration
    converges. The wait ends ``drain_quiet_wait`` after the begin of the drain at the latest. From
    then until the deadline of the drain, and until the window of its campaign closes, all moves
    off the host have time one after the other, and all moves off the hosts with the same deadline
    or an earlier one, ``budget`` at a time. No freeze begins before the move is expected to end.

    :param deadlines: None: those of the history.
    :param budget: moves of the scope that may be under way at a time.
    """
    if options.drain_quiet_wait <= 0 or not (
            history.hourly_write_rates or history.awaited_write_rates):
        return {}
    verdicts = _judge_waits(cluster, scores, history, options, now, deadlines, budget)
    return {uuid: verdict for uuid, verdict in verdicts.items()
            if isinstance(verdict, model.QuietWait)}


def explain_missing_waits(cluster: model.Cluster, scores: model.ClusterScores,
                          history: model.MoveHistory, options: model.PlanningOptions, now: float,
                          deadlines: Mapping[str, float] | None = None, *,
                          budget: int) -> dict[str, str]:
    """Return why instances of drains that may not converge now wait for no quieter hour.

    Empty, where the option is off. Parameters as of :func:`find_quiet_waits`.
    """
    if options.drain_quiet_wait <= 0:
        return {}
    verdicts = _judge_waits(cluster, scores, history, options, now, deadlines, budget)
    return {uuid: verdict for uuid, verdict in verdicts.items() if isinstance(verdict, str)}


def _judge_waits(cluster: model.Cluster, scores: model.ClusterScores, history: model.MoveHistory,
                 options: model.PlanningOptions, now: float, deadlines: Mapping[str, float] | None,
                 budget: int) -> dict[str, model.QuietWait | str]:
    """Return the wait of each instance that may not converge, or why it has none."""
    if deadlines is None:
        deadlines = map_drain_deadlines(cluster, history)
    costs = _build_costs(history, options)
    # A present rate that is missing for some minutes ends no wait.
    rates = {**history.last_write_rates, **migration_costs.dirty_rates(scores)}
    waiting = list(_list_candidates(cluster, costs, rates, history, options, now, {
        host: min((at, order) for ends, order in (
            (deadlines, 'the deadline of the drain'),
            (history.window_ends, 'the end of the window of its campaign'))
            if (at := ends.get(host)) is not None)
        for host in {**deadlines, **history.window_ends}}, budget))
    if not waiting:
        return {}
    probes = {one.uuid: model.Move(one.uuid, one.host, '', model.Phase.EVACUATE) for one in waiting}
    view = cluster_view.ClusterView(
        relevant_cluster.reduce_cluster(cluster, probes.values(), history), options, history)
    return {one.uuid: _judge_wait(one, costs, view, probes[one.uuid], now) for one in waiting}


def begin_hour(at: float) -> float:
    """Return the begin of the hour of a time, in epoch seconds."""
    return at // HOUR * HOUR


def _list_risky_instances(cluster: model.Cluster, costs: migration_costs.MigrationCosts,
                          rates: Mapping[str, float], hosts: Collection[str]) -> list[str]:
    flying = {flight.instance_uuid for flight in cluster.flights}
    risks = {
        uuid: expected.risk for uuid, rate in rates.items()
        if rate > 0 and uuid not in flying
        and (instance := cluster.instances.get(uuid)) is not None and instance.host in hosts
        and statuses.choose_method(instance.status) is model.MoveMethod.LIVE
        and costs.compute_rate_risk(rate) >= migration_costs.RISKY
        and (expected := _expect_migration(costs, cluster, instance, rate)) is not None
        and expected.risk >= migration_costs.RISKY}
    return sorted(risks, key=lambda uuid: (-risks[uuid], uuid))


def _list_candidates(cluster: model.Cluster, costs: migration_costs.MigrationCosts,
                     rates: Mapping[str, float], history: model.MoveHistory,
                     options: model.PlanningOptions, now: float,
                     deadlines: Mapping[str, tuple[float, str]],
                     budget: int) -> Iterator[_RiskyInstance]:
    hosts = drain_requests.drained_hosts(cluster, options)
    alone = _sum_needed_seconds(cluster, costs, rates, deadlines.keys() & set(hosts))
    needed = {host: max(seconds, math.fsum(
        more for other, more in alone.items()
        if deadlines[other][0] <= deadlines[host][0]) / budget) for host, seconds in alone.items()}
    for uuid in _list_risky_instances(cluster, costs, rates, hosts):
        host = cluster.instances[uuid].host
        end = min(now, history.drain_begins.get(host, now)) + options.drain_quiet_wait
        yield _RiskyInstance(uuid, host, rates[uuid], {
            _find_hour_of_day(at): rate
            for at, rate in history.hourly_write_rates.get(uuid, ())}, end,
            deadlines.get(host, (math.inf, '')), needed.get(host, 0.0))


def _judge_wait(instance: _RiskyInstance, costs: migration_costs.MigrationCosts,
                view: cluster_view.ClusterView, probe: model.Move,
                now: float) -> model.QuietWait | str:
    """Return the wait for the earliest quiet hour in which the instance may move, or why none."""
    freezes = view.history.freezes
    awaited = view.history.awaited_write_rates.get(instance.uuid)
    if awaited is not None and now < awaited and instance.find_obstacle(awaited, freezes) is None:
        return model.QuietWait(awaited, instance.rate, None)
    if not instance.rates:
        return 'its memory writes of the last day are not known'
    present, reason = begin_hour(now), ''
    if _find_quiet_rate(instance, costs, present) is not None:
        return 'in this hour it wrote little enough a day before'
    at, last = present + HOUR, max(instance.end, present + _HOURS_OF_DAY * HOUR)
    while at <= last and (at <= instance.end or not reason):
        rate = _find_quiet_rate(instance, costs, at)
        if rate is not None and rate <= QUIETER * instance.rate:
            opening = _find_opening(instance, costs, view, probe, at, rate)
            obstacle = (instance.find_obstacle(opening, freezes)
                        if opening is not None and begin_hour(opening) == at else
                        'contracts and freeze windows leave no time in it')
            if opening is not None and obstacle is None:
                return model.QuietWait(opening, instance.rate, rate)
            reason = reason or f'its quieter hour begins at {times.format_time(at)}, and {obstacle}'
            if opening is None:
                break
        at += HOUR
    return reason or 'in no hour of the last day it wrote little enough'


def _find_opening(instance: _RiskyInstance, costs: migration_costs.MigrationCosts,
                  view: cluster_view.ClusterView, probe: model.Move, at: float,
                  rate: float) -> float | None:
    """Return when contracts let the move begin, in time before the next freeze; None: never.

    Another hour than that of ``at`` is not searched to the end.
    """
    expected = _expect_migration(costs, view.cluster, view.cluster.instances[instance.uuid], rate)
    seconds = START_SECONDS + (0.0 if expected is None else expected.seconds)
    opening: float | None = at
    while opening is not None and begin_hour(opening) == at:
        opening = contracts.find_movable_from(view, probe, since=opening)
        blocking = None if opening is None else next(
            (end for begin, end in view.history.freezes
             if begin < opening + seconds and opening < end), None)
        if blocking is None:
            break
        opening = blocking
    return opening


def _find_quiet_rate(instance: _RiskyInstance, costs: migration_costs.MigrationCosts,
                     at: float) -> float | None:
    """Return the rate of the hour a day before; None: no migration converges then, or unknown."""
    rate = instance.rates.get(_find_hour_of_day(at))
    return rate if rate is not None and (
        costs.compute_rate_risk(rate) < migration_costs.RISKY) else None


def _find_hour_of_day(at: float) -> int:
    return int(at // HOUR) % _HOURS_OF_DAY


def _sum_needed_seconds(cluster: model.Cluster, costs: migration_costs.MigrationCosts,
                        rates: Mapping[str, float], hosts: Collection[str]) -> dict[str, float]:
    """Return the seconds that all moves off each host need one after the other, at present rates.
    """
    needed = dict.fromkeys(hosts, 0.0)
    for instance in cluster.instances.values():
        if instance.host in needed:
            expected = _expect_migration(costs, cluster, instance, rates.get(instance.uuid, 0.0))
            needed[instance.host] += max(time_shares.SHORTEST_SECONDS,
                                         0.0 if expected is None else expected.seconds)
    return needed


def _expect_migration(costs: migration_costs.MigrationCosts, cluster: model.Cluster,
                      instance: model.Instance,
                      rate: float) -> migration_costs.MigrationExpectation | None:
    return costs.expect_migration(instance.uuid, instance.memory_mb,
                                  disks.sum_local_gb(instance, cluster.sharing), rate)


def _build_costs(history: model.MoveHistory,
                 options: model.PlanningOptions) -> migration_costs.MigrationCosts:
    return migration_costs.MigrationCosts(history.measured, disks.has_local_storage(options))
