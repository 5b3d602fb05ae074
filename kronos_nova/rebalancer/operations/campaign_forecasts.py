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

"""Forecasts of campaigns: hosts that are emptied one batch after the other. Pure.

A host that is done is enabled and empty when the next batch begins, so the instances of one batch
go where the batch before left room. An instance that lands on a host that is still to come moves
again; that happens only when none of the first :data:`TRIED` hosts can be emptied otherwise.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.rebalancer.backtest import allocations
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline

#: Plans that may empty one batch, as a plan may leave instances for the next cycle.
ROUNDS = 8
#: Hosts that are tried for a step before its destinations may be hosts that are still to come.
TRIED = 16
#: Steps that pass over a host before it is the last choice: hosts that are done may give it room.
TRIES = 3

#: Returns the seconds that a plan of the request takes; None: no migration was measured.
Estimate = Callable[[model.Plan, planner.PlanningInput], float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignStep:
    """Hosts that are emptied together.

    ``again``: instances that land on a host that is still to come. ``seconds``: the expected time
    until the hosts are empty; None: not known.
    """

    hosts: tuple[str, ...]
    moves: tuple[model.Move, ...]
    again: int = 0
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignForecast:
    """The steps of a campaign in order.

    ``staying``: hosts that do not become empty, with the instances that stay on each.
    ``instances``: how many the other hosts have before the campaign. ``obstacles``: why engines
    would not carry it out, or not now.
    """

    steps: tuple[CampaignStep, ...]
    staying: Mapping[str, tuple[drains.BlockedInstance, ...]]
    instances: int
    obstacles: tuple[str, ...] = ()

    @property
    def migrations(self) -> int:
        return sum(len(step.moves) for step in self.steps)

    @property
    def seconds(self) -> float | None:
        """The sum of all steps; None: one is not known."""
        known = [step.seconds for step in self.steps if step.seconds is not None]
        return sum(known) if len(known) == len(self.steps) else None


def forecast_campaign(request: planner.PlanningInput, hosts: Collection[str], together: int, *,
                      estimate: Estimate = lambda plan, request: None,
                      report_progress: Callable[[int], None] = lambda done: None,
                      ) -> CampaignForecast:
    """Forecast the campaign: which hosts are emptied together, and where their instances go.

    :param request: for the scope of the hosts, with ``evacuate`` among its strategies.
    :param together: most hosts that are emptied at a time.
    :param report_progress: called with the number of hosts that are done.
    :raises PlanRefused: the checker found a rule broken.
    """
    cloud, steps = SupposedCloud(request), list[CampaignStep]()
    hold = planner.scope_hold(planner.prepare_planning_input(cloud.build_request((), ())))
    if hold is not None:
        return CampaignForecast((), {}, 0, (hold,))
    counts = dict.fromkeys(hosts, 0)
    for instance in request.cluster.instances.values():
        if instance.host in counts:
            counts[instance.host] += 1
    # The largest first: each leaves room for the next, which is no larger. Among hosts of one
    # size the emptiest first: while all hosts are full, its instances move twice.
    to_come = sorted(counts, key=lambda host: (
        -_classify_size(request.cluster.hosts[host]), counts[host], host))
    tries, size = dict.fromkeys(counts, 0), together
    # No other host's end lets these instances go.
    aside = cloud.list_held_hosts(to_come)
    while True:
        report_progress(len(counts) - len(to_come))
        to_come.sort(key=lambda host: tries[host] >= TRIES)
        found = find_step(cloud, [host for host in to_come if host not in aside], to_come, size)
        if found is None:
            break
        cloud, hosts_done, plans = found
        cloud.enable_hosts(hosts_done)
        for host in to_come[:to_come.index(hosts_done[0])]:
            tries[host] += 1
        to_come = [host for host in to_come if host not in hosts_done]
        # A tight cloud would pay for the search of a large batch in each step.
        size = min(together, 2 * len(hosts_done))
        moves = [move for plan, _request in plans for move in plan.moves]
        seconds = [estimate(plan, planned) for plan, planned in plans]
        steps.append(CampaignStep(
            hosts_done, tuple(moves), sum(move.to_host in to_come for move in moves),
            None if None in seconds else sum(filter(None, seconds), 0.0)))
    return CampaignForecast(tuple(steps), {
        host: cloud.explain_host(host) for host in to_come}, sum(
        counts[host] for step in steps for host in step.hosts))


def _classify_size(host: model.Host) -> int:
    """Return the size class of a host by its memory; the next class has a tenth more."""
    inventory = host.provider and host.provider.inventories.get('MEMORY_MB')
    return round(math.log(max(1.0, inventory.capacity), 1.1)) if inventory else 0


#: Plans with their requests.
Plans = list[tuple[model.Plan, planner.PlanningInput]]
#: The cloud after a step, the hosts that became empty, and the plans of the step.
FoundStep = tuple['SupposedCloud', tuple[str, ...], Plans]


def find_step(cloud: 'SupposedCloud', candidates: Sequence[str], to_come: Sequence[str],
              together: int, is_over: Callable[[], bool] = lambda: False) -> FoundStep | None:
    """Find the hosts that are emptied next; return None if no host can be.

    Several hosts at a time while the first ones can be emptied together; nothing moves onto
    hosts that are still to come. Else one host, whose instances may.

    :param candidates: those of the hosts that are to come that may be next, in order.
    :param is_over: true ends the search, but for one try of the first host.
    """
    first = list(candidates[:together])
    while len(first) > 1 and not is_over():
        found = empty_hosts(cloud, first, to_come, is_over)
        if found is not None and len(found[1]) == len(first):
            return found
        # Hosts that could be emptied beside the others; without any, the first half.
        first = list(found[1]) if found is not None else first[:len(first) // 2]
    for closed, tried in ((to_come, candidates[:TRIED]), ((), candidates)):
        for number, host in enumerate(dict.fromkeys([*first, *tried])):
            if is_over() and (number or not closed):
                return None
            found = empty_hosts(cloud, [host], closed)
            if found is not None:
                return found
    return None


def empty_hosts(cloud: 'SupposedCloud', hosts: Sequence[str],
                closed: Collection[str], is_over: Callable[[], bool] = lambda: False,
                ) -> FoundStep | None:
    """Empty hosts in a supposed cloud: the cloud after it, and the hosts that became empty.

    :param closed: hosts onto which nothing moves.
    :param is_over: true cuts plans off.
    :returns: None where no host became empty.
    """
    cloud, plans = cloud.copy_cloud(), Plans()
    for _round in range(ROUNDS):
        if not cloud.count_instances(hosts):
            break
        request = cloud.build_request(hosts, closed)
        if planner.scope_hold(planner.prepare_planning_input(request)) is not None:
            break
        plan = planner.plan(request, is_over)
        planning_pipeline.check_plan(plan, request)
        if request.options.failover == model.FailoverMode.ENFORCE:
            plan, _certificate = planning_pipeline.keep_failover(request, plan, cloud.certificate,
                                                                 expired=is_over)
        if not plan.moves:
            break
        plans.append((plan, request))
        cloud.complete_moves(plan.moves)
    empty = tuple(host for host in hosts if cloud.is_empty(host))
    return (cloud, empty, plans) if empty else None


class SupposedCloud:
    """The cloud after some steps. Mutable.

    :param certificate: the failover certificate of today, from which those of plans follow sooner.
    """

    def __init__(self, request: planner.PlanningInput,
                 certificate: failover.FailoverCertificate | None = None) -> None:
        self._request = request
        self.certificate = certificate
        self._holdings = allocations.ProviderHoldings(request.cluster)
        for uuid, instance in request.cluster.instances.items():
            if instance.host in request.cluster.hosts:
                self._holdings.place_instance(uuid, instance.host)
        self._counted = contracts.map_counted_seconds(request.cluster)

    def copy_cloud(self) -> 'SupposedCloud':
        """Return a copy that changes on its own."""
        copied = object.__new__(SupposedCloud)
        copied._request, copied._counted = self._request, self._counted
        copied.certificate = self.certificate
        copied._holdings = self._holdings.copy_holdings()
        return copied

    def count_instances(self, hosts: Collection[str]) -> int:
        return sum(i.host in hosts for i in self._request.cluster.instances.values())

    def is_empty(self, host: str) -> bool:
        """Return whether no instance is on the host or on its way to it."""
        return drains.is_fully_drained(self._request.cluster, host)

    def list_held_hosts(self, hosts: Collection[str]) -> frozenset[str]:
        """Return hosts whose service is down, or with an instance that rules of its own hold."""
        request, services = self.build_request(hosts, ()), self._request.cluster.services
        view = cluster_view.ClusterView(request.cluster, request.options, request.history,
                                        request.scores)
        return frozenset(host for host in hosts if not services[host].up) | frozenset(
            instance.host for uuid, instance in request.cluster.instances.items()
            if instance.host in hosts and constraints.list_rejections(
                view, model.Move(uuid, instance.host, '', model.Phase.EVACUATE),
                constraints.ALONE))

    def enable_hosts(self, hosts: Collection[str]) -> None:
        """Enable hosts that are done, also if they were disabled before the campaign."""
        services = self._request.cluster.services
        self._request = dataclasses.replace(self._request, cluster=dataclasses.replace(
            self._request.cluster, services={**services, **{
                host: dataclasses.replace(services[host], status='enabled', disabled_reason=None)
                for host in hosts}}))

    def build_request(self, hosts: Collection[str],
                      closed: Collection[str]) -> planner.PlanningInput:
        """Return the request that empties hosts, and moves nothing onto the closed ones."""
        supposed = what_if.SupposedCluster(self._request.cluster, self._request.scores)
        for host in hosts:
            supposed = supposed.disable_host(host, what_if.REASON)
        options = dataclasses.replace(self._request.options,
                                      drain_reason_regex=f'^{what_if.REASON}$')
        request = drains.build_supposed_request(self._request, supposed.cluster, options)
        return dataclasses.replace(request, history=dataclasses.replace(
            request.history, campaign_hosts=frozenset(closed).difference(hosts)))

    def complete_moves(self, moves: Iterable[model.Move]) -> None:
        """Let the moves end: instances, allocations, loads, and the times that contracts count."""
        request = self._request
        cluster, scores, history = request.cluster, request.scores, request.history
        instances, times = dict(cluster.instances), dict(history.move_times)
        moves = sorted(moves, key=lambda move: move.wave)
        for move in moves:
            uuid = move.instance_uuid
            self._holdings.place_instance(uuid, move.to_host)
            instances[uuid] = dataclasses.replace(
                instances[uuid], host=move.to_host,
                allocations=self._holdings.map_allocations(uuid))
            if uuid in self._counted:
                times[uuid] = (*times.get(uuid, ()), request.now)
        shown, touched = self._holdings.show_allocations, {
            host for move in moves for host in (move.from_host, move.to_host)}
        hosts = {name: host if name not in touched or host.provider is None else
                 dataclasses.replace(host, provider=shown(host.provider),
                                     nested=tuple(map(shown, host.nested)))
                 for name, host in cluster.hosts.items()}
        self._request = dataclasses.replace(
            request, cluster=dataclasses.replace(
                cluster, hosts=hosts, instances=instances,
                sharing={uuid: shown(provider) for uuid, provider in cluster.sharing.items()}),
            scores=dataclasses.replace(scores, policies={
                name: _shift_load(policy_scores, moves)
                for name, policy_scores in scores.policies.items()}),
            history=dataclasses.replace(history, move_times=times))

    def explain_host(self, host: str) -> tuple[drains.BlockedInstance, ...]:
        """Return the instances that stay on the host or are on their way to it, with reasons."""
        cluster = self._request.cluster
        arriving = tuple(drains.BlockedInstance(uuid, 'it is on its way to the host', later=True)
                         for uuid in sorted(drains.list_incoming_instances(cluster, host)))
        if not cluster.services[host].up:
            return tuple(drains.BlockedInstance(uuid, f'nova-compute of {host} is down')
                         for uuid, i in cluster.instances.items() if i.host == host) + arriving
        return drains.plan_drain(self._request, host).blocked + arriving


def _shift_load(scores: model.PolicyScores, moves: Sequence[model.Move]) -> model.PolicyScores:
    """Move the usage of instances from host to host."""
    shifts: dict[str, float] = {}
    for move in moves:
        usage = scores.usages.get(move.instance_uuid, 0.0)
        for host, amount in ((move.from_host, -usage), (move.to_host, usage)):
            if amount and scores.capacity.get(host):
                shifts[host] = shifts.get(host, 0.0) + amount / scores.capacity[host]

    def shift_values(values: Mapping[str, float]) -> dict[str, float]:
        return {host: max(0.0, value + shifts[host]) if host in shifts else value
                for host, value in values.items()}

    return dataclasses.replace(scores, hosts=shift_values(scores.hosts),
                               fill=shift_values(scores.fill))
