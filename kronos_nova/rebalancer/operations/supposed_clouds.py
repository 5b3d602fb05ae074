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

"""The cloud after some steps of a campaign, and the plans that empty its next hosts. Pure.

A plan reads only the instances of the hosts that it empties, those that matter to their moves, and
some that could make room: so it costs as much as these hosts hold, and not as much as the cloud.
The checker judges each plan against the whole cloud.
"""

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import relevant_cluster
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.backtest import allocations
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import room_makers
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.search import batch

#: Plans that may empty one batch, as a plan may leave instances for the next cycle.
ROUNDS = 8

#: Plans with their requests.
Plans = list[tuple[model.Plan, planner.PlanningInput]]
#: The cloud after a step, the hosts that became empty, and the plans of the step.
FoundStep = tuple['SupposedCloud', tuple[str, ...], Plans]


@dataclasses.dataclass(frozen=True, slots=True)
class RoundPlan:
    """A plan of one round with its request; ``proposed``: before the rule breaks-failover."""

    plan: model.Plan
    request: planner.PlanningInput
    proposed: model.Plan


@dataclasses.dataclass(frozen=True, slots=True)
class _PlannedRounds:
    """The rounds that empty hosts: the cloud after them, and their plans that have moves.

    ``last``: the last plan; None: no instance is there, or the scope is held. ``is_cut_off``: there
    may have been more rounds.
    """

    cloud: 'SupposedCloud'
    plans: Plans
    last: RoundPlan | None
    is_cut_off: bool = False


def empty_hosts(cloud: 'SupposedCloud', hosts: Sequence[str],
                closed: Collection[str], is_over: Callable[[], bool] = lambda: False,
                helpers: Collection[str] | None = None) -> FoundStep | None:
    """Empty hosts in a supposed cloud: the cloud after it, and the hosts that became empty.

    :param closed: hosts onto which nothing moves.
    :param is_over: true cuts plans off.
    :param helpers: instances of other hosts that may move, to make room; None: all.
    :returns: None where no host became empty.
    """
    rounds = _plan_rounds(cloud, hosts, closed, is_over, helpers)
    empty = tuple(host for host in hosts if rounds.cloud.is_empty(host))
    if not empty:
        return None
    return (cloud.copy_cloud() if rounds.cloud is cloud else rounds.cloud), empty, rounds.plans


def _plan_rounds(cloud: 'SupposedCloud', hosts: Sequence[str], closed: Collection[str],
                 is_over: Callable[[], bool],
                 helpers: Collection[str] | None) -> _PlannedRounds:
    """Plan round after round, until no instance that is left has a destination.

    Parameters as of :func:`empty_hosts`; the cloud stays as it is.
    """
    before, plans, last = cloud, Plans(), None
    for _round in range(ROUNDS):
        last = cloud.plan_round(hosts, closed, is_over, helpers)
        if last is None or not last.plan.moves:
            break
        if cloud is before:
            cloud = before.copy_cloud()
        cloud.complete_moves(last.plan.moves)
        plans.append((last.plan, last.request))
        left = cloud.count_instances(hosts)
        if not left or sum(cloud.count_stranded(hosts, closed).values()) == left:
            break
    else:
        return _PlannedRounds(cloud, plans, last, is_cut_off=True)
    return _PlannedRounds(cloud, plans, last)


class SupposedCloud:
    """The cloud after some steps. Mutable.

    :param certificate: the failover certificate of today, from which those of plans follow sooner.
    """

    def __init__(self, request: planner.PlanningInput,
                 certificate: failover.FailoverCertificate | None = None) -> None:
        self._request = request
        self.certificate = certificate
        self._holdings = allocations.ProviderHoldings(request.cluster)
        residents = defaultdict[str, list[str]](list)
        for uuid, instance in request.cluster.instances.items():
            residents[instance.host].append(uuid)
            if instance.host in request.cluster.hosts:
                self._holdings.place_instance(uuid, instance.host)
        self._residents = {host: frozenset(uuids) for host, uuids in residents.items()}
        self._claims = room_makers.ClaimTable(request.cluster, request.options)
        #: Plans depend on the order of instances: it must not be that of a set.
        self._positions = {uuid: n for n, uuid in enumerate(request.cluster.instances)}
        self._counted = contracts.map_counted_seconds(request.cluster)

    def copy_cloud(self) -> 'SupposedCloud':
        """Return a copy that changes on its own."""
        copied = copy.copy(self)
        copied._holdings = self._holdings.copy_holdings()
        copied._residents = dict(self._residents)
        copied._claims = self._claims.copy_table()
        return copied

    def count_instances(self, hosts: Collection[str]) -> int:
        return sum(len(self._residents.get(host, ())) for host in hosts)

    def is_empty(self, host: str) -> bool:
        """Return whether no instance is on the host or on its way to it."""
        return not self._residents.get(host) and not drains.list_incoming_instances(
            self._request.cluster, host)

    def plan_round(self, hosts: Sequence[str], closed: Collection[str],
                   is_over: Callable[[], bool],
                   helpers: Collection[str] | None) -> RoundPlan | None:
        """Plan moves off the hosts; None: no instance is there, or the scope is held.

        Parameters as of :func:`empty_hosts`.

        :raises PlanRefused: the checker found a rule broken.
        """
        if not self.count_instances(hosts):
            return None
        request = self.build_request(hosts, closed)
        if planner.scope_hold(planner.prepare_planning_input(request)) is not None:
            return None
        plan = proposed = planner.plan(request if helpers is None else self._reduce_request(
            request, hosts, helpers), is_over)
        if plan.moves:
            planning_pipeline.check_plan(plan, request)
        if plan.moves and request.options.failover == model.FailoverMode.ENFORCE:
            # Hosts that keep an instance are no step, and the search for other moves takes long.
            plan, self.certificate = planning_pipeline.keep_failover(
                request, plan, self.certificate, expired=is_over, whole=True)
        return RoundPlan(plan, request, proposed)

    def count_stranded(self, hosts: Collection[str], closed: Collection[str]) -> dict[str, int]:
        """Count the instances on each of the hosts that no other host can take now."""
        return {host: len(uuids) for host, uuids in self.list_stranded(hosts, closed).items()}

    def list_stranded(self, hosts: Collection[str],
                      closed: Collection[str]) -> dict[str, list[str]]:
        """List the instances on each of the hosts that no other host can take now.

        :param closed: hosts onto which nothing moves.
        """
        request = self._reduce_request(self.build_request((), closed), hosts)
        simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                    request.history, request.options)
        every, stranded = np.arange(len(simulation.hosts)), {}
        for host in hosts:
            here = simulation.list_on_host(host)
            placeable = batch.may_take(simulation, here, every).any(axis=1)
            stranded[host] = [simulation.uuids[n] for n in here[~placeable]]
        return stranded

    def count_fitting_hosts(self, hosts: Sequence[str], closed: Collection[str]) -> int:
        """Return how many of the first hosts fit elsewhere, by the sum of their claims alone."""
        return self._claims.count_fitting_hosts(hosts, closed)

    def list_room_makers(self, uuids: Collection[str],
                         closed: Collection[str]) -> dict[str, list[str]]:
        """Return instances that could make room; see :class:`room_makers.ClaimTable`."""
        return self._claims.list_room_makers(uuids, closed)

    def _reduce_request(self, request: planner.PlanningInput, hosts: Collection[str],
                        helpers: Collection[str] = ()) -> planner.PlanningInput:
        """Return the request with the instances that matter to moves off the hosts.

        Without helpers its steps are enough to place each instance alone, and all together
        without a retreat.
        """
        count, options = self.count_instances(hosts), request.options
        if not helpers:
            options = dataclasses.replace(options, max_steps=min(options.max_steps, 4 * count * (
                2 + count * len(request.cluster.hosts) // (2 * batch.PER_STEP))))
        movers = {uuid for host in hosts for uuid in self._residents.get(host, ())}.union(helpers)
        cluster = relevant_cluster.reduce_cluster(request.cluster, [
            model.Move(uuid, '', '', model.Phase.EVACUATE) for uuid in movers], request.history)
        return dataclasses.replace(request, options=options, cluster=dataclasses.replace(
            cluster, instances=dict(sorted(cluster.instances.items(),
                                           key=lambda item: self._positions[item[0]]))))

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
        # Alternates cost a third of the time and change no move.
        options = dataclasses.replace(self._request.options, max_alternates=0,
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
            self._residents[move.from_host] -= {uuid}
            self._residents[move.to_host] = self._residents.get(move.to_host, frozenset()) | {uuid}
            self._claims.move_instance(uuid, move.to_host)
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

    def explain_host(self, host: str,
                     is_over: Callable[[], bool] = lambda: False,
                     ) -> tuple[blocked_instances.BlockedInstance, ...]:
        """Return the instances that stay on the host or are on their way to it, with reasons.

        They are those of the last try of :func:`campaign_forecasts.find_step`.

        :param is_over: true cuts plans off; the reasons are not judged to the end then.
        """
        cluster = self._request.cluster
        arriving = tuple(
            blocked_instances.BlockedInstance(uuid, 'it is on its way to the host', later=True)
            for uuid in sorted(drains.list_incoming_instances(cluster, host)))
        if not cluster.services[host].up:
            return self._block_residents(host, f'nova-compute of {host} is down') + arriving
        rounds = _plan_rounds(self, [host], (), is_over, None)
        if rounds.last is None:
            hold = planner.scope_hold(planner.prepare_planning_input(
                self.build_request([host], ())))
            return (() if hold is None else self._block_residents(host, hold)) + arriving
        return rounds.cloud.explain_rest(
            host, rounds.last, f'planning was cut off after {ROUNDS} cycles'
            if rounds.is_cut_off else None) + arriving

    def explain_rest(self, host: str, last: RoundPlan,
                     cut_off: str | None) -> tuple[blocked_instances.BlockedInstance, ...]:
        """Return the instances that stay on the host after the last round, with reasons.

        :param cut_off: how the rounds were cut off; None: they were not.
        """
        kept = {m.instance_uuid for m in last.plan.moves}
        left_out = tuple(m for m in last.proposed.moves if m.instance_uuid not in kept)
        blocked, _missing = blocked_instances.list_blocked_instances(
            self.build_request([host], ()), host,
            dataclasses.replace(last.proposed, moves=left_out), cut_off)
        return tuple(blocked_instances.BlockedInstance(m.instance_uuid, last.plan.warnings[-1])
                     for m in left_out if m.from_host == host) + blocked

    def _block_residents(self, host: str,
                         why: str) -> tuple[blocked_instances.BlockedInstance, ...]:
        return tuple(blocked_instances.BlockedInstance(uuid, why)
                     for uuid, i in self._request.cluster.instances.items() if i.host == host)


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
