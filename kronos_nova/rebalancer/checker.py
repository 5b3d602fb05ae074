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

"""The checker of plans: it replays them on the rules. It knows no planner, and trusts none.

Every move and each of its alternates is judged at a time when its requirements have completed, the
moves that wait for it have not begun, and each other move counts at its source, at its destination
and at every alternate. If every rule holds then, it holds in any order of completion, after any
failure, and wherever an executor falls back to. The checker also judges whether moves of this kind
may be made now at all.

For a swap, which is both moves or none, it replays the ways back as well, and the way on from a
parking host.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import re

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import domain_spread
from kronos_nova.constraints import hints
from kronos_nova.constraints import metric_lag
from kronos_nova.constraints import metrics
from kronos_nova.constraints import relevant_cluster
from kronos_nova.constraints import rules

#: The replay itself judges the left-out rules, on moves that really may be in flight.
_RULES = tuple(r for r in constraints.RULES if r.kind is not rules.RuleKind.IN_FLIGHT)

#: Rules that hold for a way back: the instance was there before, however full the host.
_BACK = tuple(r for r in _RULES if r in constraints.BACK)


def check(plan: model.Plan, cluster: model.Cluster, options: model.PlanningOptions,
          history: model.MoveHistory, scores: model.ClusterScores | None,
          ceilings: Mapping[str, float], budget: int) -> tuple[model.Rejection, ...]:
    """Return every fault of a plan; empty when it has none.

    :param cluster: with the plan's scope, as the planner got it.
    """
    broken = _check_plan_shape(plan, cluster, budget)
    if broken or not plan.moves:
        return tuple(broken)
    part = relevant_cluster.reduce_cluster(cluster, plan.moves, history)
    faults = _check_outage(part, options)
    for move in plan.moves:
        faults += _check_move_wanted(move, part, options, history)
    faults += _check_scores_settled(plan, part, options, history, scores)
    view = cluster_view.ClusterView(part, options, history, scores, ceilings,
                                    draining=plan.draining)
    return (*faults, *_ReplayView(view, plan.moves, plan.swaps).list_rejections())


def _check_plan_shape(plan: model.Plan, cluster: model.Cluster,
                      budget: int) -> list[model.Rejection]:
    """List the faults of the plan's form; rules can only judge a plan without any."""
    faults = []
    uuids = [m.instance_uuid for m in plan.moves]
    if len(uuids) > budget:
        faults.append(model.Rejection('over-budget',
                                      f'{plurals.count_noun(len(uuids), "move")}, '
                                      f'{budget} allowed'))
    for uuid in sorted({u for u in uuids if uuids.count(u) > 1}):
        faults.append(model.Rejection('moved-twice', f'instance {uuid} is moved twice'))
    for uuid in uuids:
        if uuid not in cluster.instances:
            faults.append(model.Rejection('no-such-instance', f'instance {uuid} is not in Nova'))
    if faults:
        return faults
    waves = {m.instance_uuid: m.wave for m in plan.moves}
    for move in plan.moves:
        uuid = move.instance_uuid
        if cluster.instances[uuid].host != move.from_host:
            faults.append(model.Rejection(
                'moved-away', f'instance {uuid} is not on {move.from_host}'))
        if len({move.to_host, *move.alternates}) <= len(move.alternates):
            faults.append(model.Rejection(
                'alternate-twice', f'instance {uuid} has one host twice among its destinations'))
        for other in move.requires:
            if other not in waves or waves[other] >= move.wave:
                faults.append(model.Rejection(
                    'wave-order', f'instance {uuid} requires {other}, which is in no earlier '
                                  'wave'))
    if not faults:
        faults += _swaps_shape(plan)
    return faults


def _swaps_shape(plan: model.Plan) -> Iterator[model.Rejection]:
    """Yield a fault for each swap of a wrong form.

    A swap is two moves without alternates, of spread or to each other's place, the second after the
    first; no other move counts on the place that the first one has left.
    """
    moves = {m.instance_uuid: m for m in plan.moves}
    movers = [uuid for swap in plan.swaps for uuid in (swap.first, swap.second)]
    for swap in plan.swaps:
        first_move, other = moves.get(swap.first), moves.get(swap.second)
        problem = None
        if first_move is None or other is None or len(set(movers)) < len(movers):
            problem = 'have no move each, and one swap'
        elif not _change_places(swap, first_move, other) and (
                swap.parking is not None
                or {first_move.phase, other.phase} != {model.Phase.SPREAD}):
            problem = 'do not change places'
        elif first_move.alternates or other.alternates:
            problem = 'have alternates'
        elif swap.first not in other.requires:
            problem = 'may move at once'
        elif swap.parking is not None and len(plan.moves) > 2:
            problem = 'use a parking host beside other moves'
        elif any(swap.first in m.requires and swap.second not in (m.instance_uuid, *m.requires)
                 for m in plan.moves):
            problem = 'leave room that others use before both have moved'
        if problem is not None:
            yield model.Rejection('no-swap', f'instances {swap.first} and {swap.second} {problem}')


def _change_places(swap: model.Swap, first_move: model.Move, other: model.Move) -> bool:
    return (first_move.from_host == other.to_host and first_move.from_host != other.from_host
            and first_move.to_host == (other.from_host if swap.parking is None else swap.parking)
            and swap.parking not in (first_move.from_host, other.from_host))


# Whether moves of this kind may be made now.


def _check_outage(cluster: model.Cluster, options: model.PlanningOptions) -> list[model.Rejection]:
    down = disabled = 0
    for host in cluster.scope_hosts:
        service = cluster.services.get(host)
        down += service is None or not service.up
        disabled += service is not None and service.drained
    count = len(cluster.scope_hosts)
    if down > options.max_down_fraction * count:
        verb = plurals.choose_form(down, 'is', 'are')
        return [model.Rejection('outage', f'{down} of {count} hosts {verb} down')]
    if disabled > max(1.0, options.max_drain_fraction * count):
        verb = plurals.choose_form(disabled, 'is', 'are')
        return [model.Rejection('outage', f'{disabled} of {count} hosts {verb} disabled')]
    return []


def _check_move_wanted(move: model.Move, cluster: model.Cluster, options: model.PlanningOptions,
                       history: model.MoveHistory) -> Iterator[model.Rejection]:
    """Yield why the operator does not want this kind of move, or wants it to wait."""
    source = move.from_host
    if history.paused is not None:
        yield model.Rejection('paused', history.paused)
    if history.scope_cooling > 0 and not (
            source in history.draining
            and move.phase in (model.Phase.EVACUATE, model.Phase.PACK)):
        yield model.Rejection('scope-cooling', f'the scope cools down for another '
                                               f'{history.scope_cooling:.0f} s')
    if move.phase is model.Phase.EVACUATE:
        service = cluster.services.get(source)
        reason = (service.disabled_reason if service else None) or ''
        if (not options.evacuate_disabled_hosts or service is None or service.enabled
                or reason.startswith('AUTO:')
                or not re.search(options.drain_reason_regex, reason)):
            yield model.Rejection('not-drained', f'host {source} is not to be drained')


def _check_scores_settled(plan: model.Plan, cluster: model.Cluster, options: model.PlanningOptions,
                          history: model.MoveHistory,
                          scores: model.ClusterScores | None) -> list[model.Rejection]:
    """Reject imbalance moves on scores that do not show the last move yet."""
    if scores is None or not any(m.phase in metrics.IMBALANCE for m in plan.moves):
        return []
    last = metric_lag.find_awaited_move(history, cluster.scope_hosts)
    if last is None:
        return []
    move, completed_at = last
    seconds = metric_lag.seconds_left(scores, completed_at, options.settle_seconds)
    if seconds <= 0:
        return []
    return [model.Rejection('unsettled', f'the scores show the move of instance '
                                         f'{move.instance_uuid} in {seconds:.0f} s')]


# Whether every rule holds in any order and after any failure.


class _ReplayView:
    """A view with every move in flight to all of its destinations.

    No state of the cloud holds more on any host. A move that is legal then is legal in every state;
    only the others are judged more closely.
    """

    def __init__(self, view: cluster_view.ClusterView, moves: Sequence[model.Move],
                 swaps: Sequence[model.Swap] = ()) -> None:
        self._view = view
        self._moves = moves
        self._swaps = swaps
        self._before = {m.from_host: view.map_known_fills(m.from_host) for m in moves}
        by_uuid = {m.instance_uuid: m for m in moves}
        #: By instance UUID: all moves that must have completed before it begins.
        self._needs: dict[str, set[str]] = {}
        for move in sorted(moves, key=lambda m: m.wave):  # waves make this finite
            self._needs[move.instance_uuid] = {
                need for u in move.requires for need in (u, *self._needs[u])}
        self._by_uuid = by_uuid
        self._mates = {u: {o for g in view.list_groups_of(u) for o in g.members
                           if o in by_uuid and o != u} for u in by_uuid}
        #: A moving instance that a hint ties to it is a mate as well.
        for u in by_uuid:
            self._mates[u] |= by_uuid.keys() & view.list_hinted_instances(u)
        #: Moving instances that share a spread set: they may be under way at once.
        self._spread_mates = {u: {o for s in view.list_spread_sets_of(u) for o in s.members
                                  if o in by_uuid and o != u} for u in by_uuid}
        self._flying = {f.instance_uuid for f in view.cluster.flights}

    def list_rejections(self) -> list[model.Rejection]:
        for move in self._moves:
            self._depart_move(move)
        faults = [fault for move in self._moves for fault in self._judge_move(move)]
        return faults + [fault for swap in self._swaps for fault in self._both_or_none(swap)]

    def _both_or_none(self, swap: model.Swap) -> list[model.Rejection]:
        """Judge the ways of a swap when its second move fails.

        The first instance has moved, the second one is where it was: the first one may go back.
        With a parking host: the second one has moved, the first one may go on, and the second one
        may go back if that fails.
        """
        first_move, other = self._by_uuid[swap.first], self._by_uuid[swap.second]
        onward = dataclasses.replace(first_move, from_host=first_move.to_host,
                                     to_host=other.from_host)
        self._recall_move(other)
        with self._simulate_start(other, first_move):
            faults = list(constraints.list_rejections(self._view, _reverse_move(first_move), _BACK))
            if swap.parking is not None:
                self._view.land_move(other)
                faults += self._check_rules(onward)
                faults += constraints.list_rejections(self._view, _reverse_move(other), _BACK)
                self._view.undo_landing(other)
        self._depart_move(other)
        return faults

    def _judge_move(self, move: model.Move) -> list[model.Rejection]:
        faults = []
        uuid = move.instance_uuid
        waiting = {u for u in self._mates[uuid] if uuid in self._needs[u]}
        self._recall_move(move)
        if uuid in self._flying:
            faults.append(model.Rejection('in-flight', f'instance {uuid} is migrating already'))
        for other in sorted(self._mates[uuid] - self._needs[uuid] - waiting):
            faults.append(model.Rejection(
                'group-in-flight', f'instances {uuid} and {other} of one server group, or tied by '
                                   'a hint, may be under way at once'))
        for group in self._view.list_groups_of(uuid):
            for other in sorted(self._flying & group.members - {uuid}):
                faults.append(model.Rejection(
                    'group-in-flight',
                    f'instance {other} of server group {group.uuid} is migrating'))
        if move.phase is model.Phase.AFFINITY and not self._may_repair(move):
            faults.append(model.Rejection(
                'no-repair', f'instance {uuid} is in no server group that is to be repaired, and '
                             'its move improves no spread'))
        instance = self._view.find_instance(uuid)
        for other in sorted(self._flying.intersection(self._view.list_hinted_instances(uuid))):
            if instance is None or not hints.must_wait_for(
                    instance, self._view.find_instance(other),
                    self._view.has_unknown_destination(other)):
                continue
            faults.append(model.Rejection('hint-in-flight', f'instance {other}, to which a hint '
                                                            f'ties {uuid}, is migrating'))
        for host in (move.to_host, *move.alternates):
            candidate = dataclasses.replace(move, to_host=host)
            if self._mates[uuid] or self._check_rules(candidate):
                with self._simulate_start(candidate):
                    faults += self._check_rules(candidate)
                faults += self._left_alone(candidate)
        self._depart_move(move)
        return faults

    def _may_repair(self, move: model.Move) -> bool:
        options, uuid = self._view.options, move.instance_uuid
        return any(options.enforce_hard_affinity if g.policy.is_hard
                   else options.enforce_soft_affinity for g in self._view.list_groups_of(uuid)) or (
            options.enforce_domain_spread and domain_spread.may_improve(self._view, move))

    def _check_rules(self, move: model.Move) -> list[model.Rejection]:
        faults = list(constraints.list_rejections(self._view, move, _RULES))
        if move.phase is model.Phase.SPREAD:
            before = self._before[move.from_host]
            faults += [model.Rejection('ceiling', f'host {move.to_host} would reach {fill:.2f} of '
                                                  f'{name} on the way')
                       for name, (fill, limit) in self._view.map_projected_fills(move).items()
                       if fill > max(limit, before.get(name, limit)) + metrics.ROUNDING]
        return faults

    @contextlib.contextmanager
    def _simulate_start(self, move: model.Move,
                        earlier: model.Move | None = None) -> Iterator[None]:
        """Set the view to the time when the move begins.

        Its requirements have left their sources; the moves that wait for it are still at theirs.
        Only moves that share a host or a group with it, or that a hint ties to it, make a
        difference; and, for the second move of a swap, the first one, which was ``earlier``.
        """
        uuid, ends = move.instance_uuid, {move.from_host, move.to_host}
        mates = self._mates[uuid] | self._spread_mates[uuid]
        if earlier is not None:
            ends |= {earlier.from_host, earlier.to_host}
            mates |= (self._mates[earlier.instance_uuid]
                      | self._spread_mates[earlier.instance_uuid] | {earlier.instance_uuid})
        landed = [m for u in sorted(self._needs[uuid])
                  if (m := self._by_uuid[u]).from_host in ends or u in mates]
        absent = [m for m in self._moves if uuid in self._needs[m.instance_uuid]
                  and (not ends.isdisjoint((m.to_host, *m.alternates))
                       or m.instance_uuid in mates)]
        for other in absent:
            self._recall_move(other)
        for other in landed:
            self._recall_move(other)
            self._view.land_move(other)
            self._depart_to(other, other.alternates)
        try:
            yield
        finally:
            for other in landed:
                self._recall_from(other, other.alternates)
                self._view.undo_landing(other)
                self._depart_move(other)
            for other in absent:
                self._depart_move(other)

    def _left_alone(self, move: model.Move) -> list[model.Rejection]:
        """Reject the move if an affinity group may have no member on the destination.

        A member that may be there is not enough, one that certainly is there is.
        """
        uuid = move.instance_uuid
        faults = []
        for group in self._view.list_groups_of(uuid):
            if group.policy is not model.GroupPolicy.AFFINITY:
                continue
            if not any(self._surely_on(u, move) for u in group.members if u != uuid):
                faults.append(model.Rejection('affinity', f'server group {group.uuid} may have no '
                                                          f'member on {move.to_host} any more'))
        return faults

    def _surely_on(self, uuid: str, move: model.Move) -> bool:
        other = self._by_uuid.get(uuid)
        if other is None:
            return self._view.find_host_of(uuid) == move.to_host
        if uuid in self._needs[move.instance_uuid]:
            return not other.alternates and other.to_host == move.to_host
        return other.from_host == move.to_host  # it waits for this one, or both are refused

    def _depart_move(self, move: model.Move) -> None:
        self._depart_to(move, (move.to_host, *move.alternates))

    def _recall_move(self, move: model.Move) -> None:
        self._recall_from(move, (move.to_host, *move.alternates))

    def _depart_to(self, move: model.Move, hosts: Sequence[str]) -> None:
        for host in hosts:
            self._view.begin_departure(move, host)

    def _recall_from(self, move: model.Move, hosts: Sequence[str]) -> None:
        for host in hosts:
            self._view.revert_departure(move, host)


def _reverse_move(move: model.Move) -> model.Move:
    return dataclasses.replace(move, from_host=move.to_host, to_host=move.from_host)
