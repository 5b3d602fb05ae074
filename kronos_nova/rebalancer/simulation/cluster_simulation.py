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

"""The one mutable planning object: scores as arrays, moves applied and undone.

The arrays and all that changes them stay in one module: a move must change each of them.

Shapes: P policies, H hosts of the scope in order of name, N instances of the scope in order of
UUID; :func:`host_order.order_hosts` has the order of ``objective = kronos``. ``score`` and
``capacity`` are P x H, ``usage`` is P x N in the unit of ``capacity``; a move takes
``usage / capacity[source]`` from its source's score and adds ``usage / capacity[destination]``.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import itertools

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import disks
from kronos_nova.constraints import metrics
from kronos_nova.constraints import rules
from kronos_nova.rebalancer.simulation import arrays
from kronos_nova.rebalancer.simulation import capacity
from kronos_nova.rebalancer.simulation import ceilings
from kronos_nova.rebalancer.simulation import compatibility
from kronos_nova.rebalancer.simulation import domain_membership
from kronos_nova.rebalancer.simulation import effects
from kronos_nova.rebalancer.simulation import extremes
from kronos_nova.rebalancer.simulation import flavor_compatibility
from kronos_nova.rebalancer.simulation import group_membership
from kronos_nova.rebalancer.simulation import host_order
from kronos_nova.rebalancer.simulation import instance_permissions
from kronos_nova.rebalancer.simulation import loads
from kronos_nova.rebalancer.simulation import migration_costs
from kronos_nova.rebalancer.simulation import refusals
from kronos_nova.rebalancer.simulation import residents
from kronos_nova.rebalancer.simulation import score_history

Floats = arrays.Floats
Ints = arrays.Ints
Bools = arrays.Bools
Effect = effects.MoveEffects


class Simulation:
    """A Cluster and its Scores under moves.

    :param expired: true when the time of planning is used up; read between steps.
    :param stopping: true when the engine is being stopped; read between steps.
    :param seed: for a strategy that leaves something to chance.
    :param now: seconds since the epoch.
    :param judges: the rules that judge each move; the masks must permit no less.
    """

    def __init__(self, cluster: model.Cluster, scores: model.ClusterScores,
                 policy_set: policies.PolicySet,
                 history: model.MoveHistory, options: model.PlanningOptions,
                 expired: Callable[[], bool] = lambda: False, seed: int = 0,
                 now: float = 0.0, stopping: Callable[[], bool] = lambda: False,
                 judges: Sequence[rules.Rule] = constraints.RULES) -> None:
        self.cluster = cluster
        self.judges = judges
        self.seed = seed
        self.now = now
        self.options = options
        self.history = history
        self.mode = policy_set.mode
        self.expired = expired
        self.stopping = stopping
        self.scores = scores
        self.trusted = not scores.untrusted
        #: Imbalance moves must wait; the planner says so.
        self.held = not self.trusted
        self.rejections: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.steps = 0
        self.truncated = False
        #: Planning was cut off because the engine is being stopped.
        self.stopped = False
        self.policies = policy_set.enabled_policies
        self.ceilings = ceilings.compute_ceilings(policy_set, options)
        self.view = cluster_view.ClusterView(cluster, options, history, scores, self.ceilings,
                                             draining=history.draining)
        #: The lower number wins a tie, of hosts and of instances.
        self.hosts = host_order.order_hosts(cluster, scores, self.policies, self.mode, options)
        self.host_index = {name: i for i, name in enumerate(self.hosts)}
        here = self.host_index
        # Instances are read in the order in which they were made, which is
        # several times faster than by UUID, and the arrays sorted afterwards.
        scoped = {u: i for u, i in cluster.instances.items() if i.host in here}
        uuids, instances = list(scoped), list(scoped.values())
        listed = host_order.breaks_ties_by_lists(self.mode, options)
        order = arrays.make_int_array(range(len(uuids)) if listed
                                      else sorted(range(len(uuids)), key=uuids.__getitem__))
        self.uuids = tuple(map(uuids.__getitem__, order.tolist()))
        number = np.empty(len(uuids), dtype=np.intp)
        number[order] = np.arange(len(uuids))
        #: In the order of the cluster, not of ``uuids``.
        self.index = dict(zip(uuids, number.tolist(), strict=True))
        self.place: Ints = arrays.make_int_array(here[i.host] for i in instances)[order]
        self._residents = residents.HostResidents(self.place, len(self.hosts))
        #: MiB that a live migration copies; disks only where they are local.
        self.size: Floats = arrays.make_float_array(i.memory_mb for i in instances)[order]
        if disks.has_local_storage(options):
            self.size += arrays.make_float_array(
                disks.sum_local_gb(i, cluster.sharing) * 1024 for i in instances)[order]
        #: MiB that a live migration is expected to send until it has arrived.
        self.cost: Floats = self.size
        if history.measured:
            rates = migration_costs.dirty_rates(scores)
            self.cost = migration_costs.MigrationCosts(history.measured,
                                                       disks.has_local_storage(
                                                           options)).compute_expected_mib(
                    self.index, self.size,
                    arrays.make_float_array(rates.get(u, 0.0) for u in self.uuids))
        self.weights: Floats = np.array([p.weight for p in self.policies])
        self.thresholds: Floats = np.array([p.threshold for p in self.policies])
        self.room = capacity.CapacityRoom(self.view, self.hosts, instances, order)
        self.classes, self.claims = self.room.classes, self.room.claims
        self.host_fit = compatibility.MoveCompatibility(cluster, options, self.hosts, instances,
                                                        order, history.other_cells)
        self.flavor_fit = flavor_compatibility.FlavorCompatibility(self.view, self.hosts, instances,
                                                                   order)
        self.refusals = refusals.MoveRefusals(history.refused, self.index, here)
        known = loads.read_loads(self.view, scores, self.policies, self.hosts, uuids, order)
        self.score, self.capacity, self.fill = known.score, known.capacity, known.fill
        self.usage, self.profiled, self.frozen = known.usage, known.profiled, known.frozen
        self.divisor = known.divisor
        self.score_history = score_history.ScoreHistory(self.score, self.usage, self.capacity)
        marks = group_membership.mark_grouped_instances(self.view, self.index)
        self.domains = domain_membership.DomainMembership(self.view, self.hosts, self.index)
        #: Instances in a server group or a spread set, and in a hard server group.
        self.grouped, self.hard_grouped = marks.grouped | self.domains.spread, marks.hard
        #: Instances of whose groups another member is in flight.
        self.awaiting = marks.awaiting
        self._mark_hosts(cluster)
        self.extremes = extremes.ImbalanceExtremes(self.score, self.givers, self.takers)
        self._permissions = instance_permissions.InstancePermissions(
            self.view, self.mode, instances, self.index, self.classes)
        #: By instance, why it is not moved.
        self.held_back = self._permissions.held_back
        #: Instances that a move for balance or packing may take.
        self.movable: Bools = self._permissions.movable
        #: Instances that a repair of a server group may take.
        self.repairable: Bools = self._permissions.repairable
        #: Instances that a drain may take, also ones that do not run (:mod:`statuses`).
        self.drainable: Bools = self._permissions.drainable
        #: Instances that imbalance moves leave where they are (rule ``copies-disk``).
        #: No search may begin with them: they can be all instances.
        self.copying: Bools = instance_permissions.mark_disk_copying(self.view, instances)[order]
        #: Instances that imbalance moves leave for the rule ``just-booted``.
        self.resting: Bools = np.zeros(len(self.uuids), dtype=np.bool_)
        self.resting[[self.index[u] for u in history.fresh if u in self.index]] = True
        self.profiled &= ~self.copying & ~self.resting
        #: P x H: no instance that was on the host at first uses more.
        self.peaks = self._residents.compute_peaks(self.usage)

    def _mark_hosts(self, cluster: model.Cluster) -> None:
        """Mark the hosts that may give and take: max - min is over these only."""
        def is_available(host: str) -> bool:
            service = cluster.services.get(host)
            return service is not None and service.available

        up = np.array([is_available(h) for h in self.hosts], dtype=np.bool_)
        closed = np.array([self.view.judge_closed_host(h) is not None for h in self.hosts],
                          dtype=np.bool_)
        self.available: Bools = up
        #: Hosts that may receive at all, by service and history.
        self.open: Bools = up & ~closed
        self.givers: Bools = up & ~self.frozen
        self.takers: Bools = self.open & ~self.frozen

    # Measures.

    def compute_imbalances(self) -> Floats:
        """Return per policy the max score of the givers - the min score of the takers, >= 0."""
        return np.array(self.extremes.compute_imbalances())

    def compute_combined(self) -> float:
        """Return the sum of weight x imbalance, added in the policies' order."""
        return self._sum_weighted_imbalances(self.extremes.compute_imbalances())

    def _sum_weighted_imbalances(self, imbalances: Sequence[float]) -> float:
        total = 0.0
        for weight, imbalance in zip(self.weights.tolist(), imbalances, strict=True):
            total += weight * imbalance
        return total

    def measure_imbalances(self) -> tuple[list[float], float]:
        """Return each policy's imbalance and the combined one of the scores as measured.

        Moves in flight, moves that wait for approval and moves that samples do not show yet
        count as not done.
        """
        raw = np.empty_like(self.score)
        for p, policy in enumerate(self.policies):
            raw[p] = arrays.make_float_array(map(self.scores.policies[policy.name].hosts.get,
                                                 self.hosts, itertools.repeat(0.0)))
        imbalances = extremes.ImbalanceExtremes(raw, self.givers, self.takers,
                                                depth=1).compute_imbalances()
        return imbalances, self._sum_weighted_imbalances(imbalances)

    def has_comparable_hosts(self) -> bool:
        """Return whether a host may give and a host may take, so that an imbalance exists."""
        return bool(self.givers.any() and self.takers.any())

    def compute_excess(self) -> float:
        """Return the sum of weight x the part of each imbalance above its threshold."""
        return float(self.weights @ np.maximum(self.compute_imbalances() - self.thresholds, 0.0))

    def over_threshold(self) -> bool:
        return bool((self.compute_imbalances() > self.thresholds + metrics.ROUNDING).any())

    def compute_effects(self, instances: Ints, hosts: Ints) -> Effect:
        """Compute the effect of moving each instance to each host: shape (n, h)."""
        return effects.compute_effects(self, instances, hosts)

    def mark_overfilling(self, instances: Ints, hosts: Ints) -> Bools:
        """Mark where an instance would lift a host's fill above a ceiling: shape (n, h)."""
        return ceilings.mark_overfills(self, instances, hosts)

    def compute_headroom(self, hosts: Ints) -> Floats:
        """Return the load that may still come to each host: P x H, in the unit of ``usage``."""
        return ceilings.compute_headroom(self, hosts)

    # Moves.

    def build_move(self, n: int, h: int, phase: model.Phase,
                   improvement: float = 0.0) -> model.Move:
        """Build the move of instance number n to host number h."""
        return model.Move(self.uuids[n], self.hosts[self.place[n]], self.hosts[h], phase,
                          improvement=improvement)

    def judge_move(self, move: model.Move) -> model.Rejection | None:
        """Judge the move by the rules, and count a refusal."""
        self.steps += 1
        if self.cluster.instances[move.instance_uuid].host != move.from_host:
            rejection: model.Rejection | None = model.Rejection(
                'moved-already', f'instance {move.instance_uuid} is moved by this plan already')
        else:
            rejection = constraints.judge_move(self.view, move, self.judges)
        if rejection is not None:
            self.rejections[rejection.rule] += 1
        return rejection

    def apply_move(self, move: model.Move) -> None:
        """Make the move: scores, claims and groups follow.

        This plan does not move the instance again.
        """
        self.view.land_move(move)
        n = self.index[move.instance_uuid]
        self._permissions.revoke_moves(n)
        self.score_history.record_change(n, self.host_index[move.from_host], -1)
        self.score_history.record_change(n, self.host_index[move.to_host], 1)
        self._shift_instance(n, move.from_host, move.to_host)

    def undo_move(self, move: model.Move) -> None:
        """Take back the last ``apply_move`` of this move.

        Scores are then the same, to the last bit, as without the move, for rounding decides between
        ties.
        """
        self.view.undo_landing(move)
        n = self.index[move.instance_uuid]
        self._permissions.restore_moves(n)
        self.score_history.change_back(n, self.host_index[move.from_host])
        self.score_history.change_back(n, self.host_index[move.to_host])
        self._shift_instance(n, move.to_host, move.from_host)

    def reorder_moves(self, moves: Sequence[model.Move]) -> None:
        """Let the scores be sums in the order of ``moves``, for rounding decides between ties.

        :param moves: applied, in any order.
        """
        position = {self.index[m.instance_uuid]: i for i, m in enumerate(moves)}
        for host in dict.fromkeys(h for m in moves for h in (m.from_host, m.to_host)):
            self.score_history.reorder_changes(self.host_index[host], position)
        self.extremes.drop_extremes()

    def _shift_instance(self, n: int, source: str, destination: str) -> None:
        s, d = self.host_index[source], self.host_index[destination]
        usage = self.usage[:, n]
        self.fill[:, s] -= usage / self.divisor[:, s]
        self.fill[:, d] += usage / self.divisor[:, d]
        self.place[n] = d
        self._residents.shift_instance(n, s, d)
        self.room.shift_allocation(n, s, d)
        self.extremes.drop_extremes()

    def begin_drain(self, host: str) -> None:
        """Begin to empty the host: it is no destination and no minimum any more."""
        self.view.draining.add(host)
        index = self.host_index[host]
        self.open[index] = self.takers[index] = False
        self.extremes.drop_extremes()

    def undo_drain(self, host: str) -> None:
        """Take back ``begin_drain``."""
        self.view.draining.discard(host)
        index = self.host_index[host]
        self.open[index] = self.available[index] and self.view.judge_closed_host(host) is None
        self.takers[index] = self.open[index] and not self.frozen[index]
        self.extremes.drop_extremes()

    def list_on_host(self, host: str) -> Ints:
        """Return the numbers of the instances that are on the host now, ascending.

        The array must not be written to.
        """
        return self._residents.list_on_host(self.host_index[host])

    def group_change(self, move: model.Move) -> tuple[int, int]:
        """Count the hard and the soft group rules that a move breaks, less those that it mends."""
        sums = {True: 0, False: 0}
        for group in self.view.list_groups_of(move.instance_uuid):
            here = len(self.view.list_members_on(group, move.from_host)) - 1
            there = len(self.view.list_members_on(group, move.to_host))
            sums[group.policy.is_hard] += group_membership.count_added_violations(group, here,
                                                                                  there)
        return sums[True], sums[False]

    def group_changes(self, n: int, hosts: Ints) -> tuple[Ints, Ints]:
        """Return :meth:`group_change` of instance number n to each host."""
        hard, soft = group_membership.sum_added_violations(self.view, self.host_index,
                                                           self.uuids[n],
                                                           self.hosts[self.place[n]])
        return hard[hosts], soft[hosts]

    def count_broken_preferences(self, n: int, hosts: Ints) -> Ints:
        """Count the soft group rules and spreads that instance n breaks, less those it mends.

        A spread counts once, however many members it has.
        """
        spread = self.domains.compute_changes(self.uuids[n])[0]
        return self.group_changes(n, hosts)[1] + spread[hosts]

    def soft_cost(self, move: model.Move) -> float:
        """Return the soft group rules broken less those mended, times ``soft_affinity_weight``."""
        return self.group_change(move)[1] * self.options.soft_affinity_weight

    def compute_group_repair(self, move: model.Move) -> int:
        """Return -1: the move mends the groups to be repaired, 1: it breaks them, 0: neither.

        Hard groups count before soft ones. Repairs go down only and no other move goes up, so
        repairs never chase each other or an imbalance.
        """
        hard, soft = self.group_change(move)
        change = (hard * self.options.enforce_hard_affinity,
                  soft * self.options.enforce_soft_affinity)
        return (change > (0, 0)) - (change < (0, 0))

    def mark_repairing(self, hard: Ints, soft: Ints) -> Bools:
        """Mark where :meth:`compute_group_repair` of such changes is -1."""
        first = hard * self.options.enforce_hard_affinity
        second = soft * self.options.enforce_soft_affinity
        return np.asarray((first < 0) | ((first == 0) & (second < 0)))

    def undoes_repair(self, move: model.Move) -> bool:
        """Return whether the next repair would take the move back; count it as a refusal then.

        Without this rule the two would never end.
        """
        if self.compute_group_repair(move) <= 0:
            return False
        self.rejections['would-undo-repair'] += 1
        return True

    def is_cut_off(self) -> bool:
        """Return whether the plan is cut off here.

        The counted work or the time is used up, or the engine is being stopped.
        """
        if self.truncated:
            return True
        if self.steps >= self.options.max_steps or self.expired():
            self.truncated = True
        elif self.stopping():
            self.truncated = self.stopped = True
        return self.truncated


def first_legal(simulation: Simulation, order: Iterable[tuple[int, int]], phase: model.Phase,
                improvement: Callable[[int, int], float]) -> model.Move | None:
    """Return the move of the first (instance, host) pair that breaks no rule, None: all do."""
    for n, h in order:
        if simulation.is_cut_off():
            return None
        move = simulation.build_move(n, h, phase, improvement(n, h))
        if simulation.judge_move(move) is None:
            return move
    return None
