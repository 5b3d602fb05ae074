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

"""Failover certificates: whether the instances of failed hosts would find places. Pure.

A verdict *safe* is a place for each instance of the hosts that fail together, which the rules for
an evacuation by Nova allow (``constraints.EVACUATION``) beside all other instances. So it is never
wrong about the cloud as it was read. *Unsafe* says that no such places were found; ``proven``, that
there are none. *Unknown*: an instance cannot be judged, or the search was not made. An instance
that is migrating needs a place when its own host fails, and when one fails where it may arrive.

Later certificates keep the places of a verdict where nothing has changed that a rule reads, and the
room and the load still suffice. They search again only for the others.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import itertools
import math

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import evacuation
from kronos_nova.constraints import hints
from kronos_nova.constraints import metrics
from kronos_nova.constraints import placement_overlay
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import failover_changes
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.search import failure_places

#: Hosts that fail together, sorted.
FailedHosts = tuple[str, ...]
#: Largest number of sets of hosts that one certificate tries.
SETS = 5_000
#: Number of searches for all instances together in one certificate: each may take seconds.
DEEP_SEARCHES = 20
#: Number of verdicts that are not safe and of unchanged hosts that one certificate searches again,
#: in turn: room elsewhere may have made them safe.
RETRIED = 50
#: Rules whose rejections say that an instance cannot be judged now.
UNJUDGED = frozenset({'evacuation-unknown', 'affinity-in-flight'})


class FailureState(enum.StrEnum):
    """Whether the instances of failed hosts would find places."""

    SAFE = 'safe'
    UNSAFE = 'unsafe'
    UNKNOWN = 'unknown'


@dataclasses.dataclass(frozen=True, slots=True)
class FailureVerdict:
    """The verdict on hosts that fail together.

    ``places``: destinations by instance UUID; with ``state`` safe, of all instances of the hosts.
    ``unplaced``: why the others have none, by instance UUID. ``proven``: no places of all exist.
    ``repair``: moves today, in order, after which all have places; empty: none were found, or
    none were sought. ``fault``: why the checker refused the places; the state is unknown then.
    """

    hosts: FailedHosts
    state: FailureState
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unplaced: Mapping[str, model.Rejection] = dataclasses.field(default_factory=dict)
    proven: bool = False
    repair: tuple[model.Move, ...] = ()
    fault: str | None = None

    @property
    def is_searched(self) -> bool:
        """False where the search was not made, or the checker refused its places."""
        return self.state is not FailureState.UNKNOWN or bool(self.places or self.unplaced)

    def list_lacking(self) -> list[str]:
        """List the instances without a place that a host could take under other circumstances."""
        return [uuid for uuid, rejection in self.unplaced.items()
                if rejection.rule not in failure_places.EVERYWHERE]


@dataclasses.dataclass(frozen=True, slots=True)
class FailoverCertificate:
    """The verdicts on a scope, by the hosts that fail together.

    ``hold``: why no verdict is possible; ``verdicts`` is empty then. ``by_claims_alone``: the
    metrics are not trusted, so that the ceilings of the policies do not count. ``kept``: verdicts
    of the certificate before that still hold. ``turn``: how many certificates came before.
    ``request`` and ``stopped``: the input, and its instances as failed hosts leave them.
    ``after_plan``: the certificate once the moves of the plan have landed; None: there are none.
    """

    verdicts: Mapping[FailedHosts, FailureVerdict]
    request: planner.PlanningInput
    hold: str | None = None
    by_claims_alone: bool = False
    kept: int = 0
    turn: int = 0
    stopped: Mapping[str, model.Instance] = dataclasses.field(default_factory=dict)
    after_plan: 'FailoverCertificate | None' = None

    def list_verdicts(self, state: FailureState) -> list[FailureVerdict]:
        return [v for v in self.verdicts.values() if v.state is state]


def list_failures(cluster: model.Cluster, count: int) -> Iterator[FailedHosts]:
    """Yield every set of ``count`` hosts of the scope, in order."""
    return itertools.combinations(sorted(cluster.scope_hosts), count)


def count_failures(cluster: model.Cluster, count: int) -> int:
    """Return the number of sets of ``count`` hosts of the scope."""
    return math.comb(len(cluster.scope_hosts), count)


def certify_failures(request: planner.PlanningInput, failures: Iterable[FailedHosts],
                     previous: FailoverCertificate | None = None, *,
                     moves: Sequence[model.Move] = (), deep_searches: int = DEEP_SEARCHES,
                     repairs: int = 0, expired: Callable[[], bool] = lambda: False,
                     report_progress: Callable[[int], None] = lambda done: None,
                     ) -> FailoverCertificate:
    """Certify sets of hosts that fail together.

    :param request: for the scope; its strategies and budget are ignored.
    :param failures: at most :data:`SETS` sets of hosts.
    :param previous: the last certificate of the scope.
    :param moves: count as landed.
    :param deep_searches: largest number of searches for all instances together.
    :param repairs: number of unsafe verdicts for which moves are sought that make them safe.
    :param expired: true ends the searches: the other verdicts are as they were or unknown.
    :param report_progress: called with the number of sets that are done.
    """
    hold = _find_hold(request)
    if hold is not None:
        return FailoverCertificate({}, request, hold)
    stopped = _stop_instances(request.cluster.instances, previous)
    simulation = _build_simulation(request, stopped)
    for move in moves:
        simulation.apply_move(move)
    old = _select_comparable(previous, request)
    wanted = list(dict.fromkeys(failures))
    arrivals = _map_arrivals(simulation)
    unchanged = _list_unchanged(simulation, request, wanted, old, moves, arrivals)
    earlier = {} if old is None else dict(old.verdicts)
    intact = _select_intact(simulation, [earlier[hosts] for hosts in unchanged])
    doubtful = [earlier[hosts] for hosts in unchanged
                if hosts in intact and earlier[hosts].state is not FailureState.SAFE]
    turn = 0 if old is None else old.turn + 1
    step = 1 + len(doubtful) // RETRIED
    retried = {v.hosts for v in doubtful[turn % step::step]}
    if old is not None:
        retried |= _select_relieved(simulation, doubtful, failover_changes.list_relieved_hosts(
            old.request, request).union(m.from_host for m in moves))
    certifier = _Certifier(simulation, request, arrivals, deep_searches, repairs)
    verdicts, kept = {}, 0
    for number, hosts in enumerate(wanted, 1):
        as_before = earlier.get(hosts)
        if as_before is not None and hosts in intact and (hosts not in retried or expired()):
            verdicts[hosts] = as_before
            kept += 1
        elif expired():
            verdicts[hosts] = FailureVerdict(hosts, FailureState.UNKNOWN)
        else:
            verdicts[hosts] = certifier.certify_hosts(hosts, as_before)
        report_progress(number)
    return FailoverCertificate(verdicts, request, by_claims_alone=not simulation.trusted,
                               kept=kept, turn=turn, stopped=stopped)


class _Certifier:
    """Searches of one certificate, which share their limits."""

    def __init__(self, simulation: sim.Simulation, request: planner.PlanningInput,
                 arrivals: Mapping[str, frozenset[str]], deep_searches: int,
                 repairs: int) -> None:
        self._simulation = simulation
        self._request = request
        self._arrivals = arrivals
        self._deep_searches = deep_searches
        self._repairs = repairs

    def certify_hosts(self, hosts: FailedHosts, earlier: FailureVerdict | None) -> FailureVerdict:
        """Search places for all instances of the hosts.

        :param earlier: the verdict whose places are tried first.
        """
        simulation = self._simulation
        arriving = _list_arriving(simulation, hosts, self._arrivals)
        foreign = [uuid for uuid in arriving if uuid not in simulation.index]
        coming = np.array([simulation.index[uuid] for uuid in arriving
                           if uuid in simulation.index], dtype=np.intp)
        with failure_places.fail_hosts(simulation, hosts):
            found = failure_places.place_instances(
                simulation, hosts, {} if earlier is None else earlier.places, coming,
                together=self._deep_searches > 0)
            self._deep_searches -= bool(found.unplaced) and not found.proven
            places = {m.instance_uuid: m.to_host for m in found.moves}
            applied, verdict = list(found.moves), FailureVerdict(hosts, FailureState.SAFE, places)
            if found.unplaced or foreign:
                unplaced = {simulation.uuids[n]: failure_places.count_refusals(simulation, n)
                            for n in found.unplaced}
                unplaced.update((uuid, model.Rejection(
                    'evacuation-unknown', f'instance {uuid} is migrating to the host from outside '
                                          'the scope')) for uuid in foreign)
                judged = {rejection.rule for rejection in unplaced.values()} - UNJUDGED
                verdict = FailureVerdict(
                    hosts, FailureState.UNSAFE if judged else FailureState.UNKNOWN, places,
                    unplaced, bool(found.proven and judged))
                if self._repairs > 0 and judged and not arriving:
                    self._repairs -= 1
                    repair = self._find_repair(found.unplaced)
                    applied += repair[1]
                    verdict = dataclasses.replace(verdict, repair=tuple(repair[0]))
            for move in reversed(applied):
                simulation.undo_move(move)
        return verdict

    def _find_repair(self, unplaced: Sequence[int]) -> tuple[list[model.Move], list[model.Move]]:
        """Return the moves that repair a verdict, and all that were applied."""
        request = self._request
        view = cluster_view.ClusterView(
            request.cluster, request.options, request.history, request.scores,
            self._simulation.ceilings, draining=request.history.draining)
        found = failure_places.find_repair(self._simulation, view, unplaced)
        if found is None:
            return [], []
        return found[0], [move for pair in zip(*found, strict=True) for move in pair]


def _find_hold(request: planner.PlanningInput) -> str | None:
    cluster = request.cluster
    if cluster.unreadable_hosts:
        return planning_holds.silent_cell(cluster.unreadable_hosts)
    if not cluster.placement_known or not request.options.enforce_placement_claims:
        return 'claims are not known or not enforced, so that no place can be certain'
    return None


def _stop_instances(instances: Mapping[str, model.Instance],
                    previous: FailoverCertificate | None) -> dict[str, model.Instance]:
    """Return the instances as failed hosts leave them; records that are the same are reused."""
    if previous is None:
        return {u: evacuation.stop_instance(i) for u, i in instances.items()}
    before, known = previous.request.cluster.instances, previous.stopped
    return {u: known[u] if u in known and before[u] is i else evacuation.stop_instance(i)
            for u, i in instances.items()}


def _build_simulation(request: planner.PlanningInput,
                      stopped: Mapping[str, model.Instance]) -> sim.Simulation:
    """Build the simulation in which hosts fail: nothing but places counts in it."""
    simulation = sim.Simulation(
        dataclasses.replace(request.cluster, instances=stopped), request.scores,
        request.policies, dataclasses.replace(
            request.history, cooling={}, fresh={}, quarantined={}, measured=(),
            campaign_hosts=frozenset()),
        dataclasses.replace(request.options, max_steps=2**62, require_cpu_compatibility=False),
        now=request.now, judges=constraints.EVACUATION)
    simulation.awaiting[:] = False  # the rule about affinity groups in flight judges them
    return simulation


def _map_arrivals(simulation: sim.Simulation) -> dict[str, frozenset[str]]:
    """Return the instances that may still arrive, by the hosts where they may."""
    arrivals: dict[str, set[str]] = {}
    for departure in placement_overlay.list_departures(simulation.view.placement.cluster):
        for host in (departure.to_host, *departure.alternates):
            if host is not None:
                arrivals.setdefault(host, set()).add(departure.uuid)
    return {host: frozenset(uuids) for host, uuids in arrivals.items()}


def _list_arriving(simulation: sim.Simulation, hosts: FailedHosts,
                   arrivals: Mapping[str, frozenset[str]]) -> list[str]:
    """List the instances of other hosts that may arrive at the failed ones."""
    coming = frozenset[str]().union(*(arrivals.get(host, ()) for host in hosts))
    return sorted(uuid for uuid in coming if simulation.view.find_host_of(uuid) not in hosts)


def _select_comparable(previous: FailoverCertificate | None,
                       request: planner.PlanningInput) -> FailoverCertificate | None:
    """Return the last certificate if it is of the same scope and had verdicts."""
    if (previous is None or previous.hold is not None
            or previous.request.cluster.scope != request.cluster.scope):
        return None
    return previous


def _list_unchanged(simulation: sim.Simulation, request: planner.PlanningInput,
                    wanted: Sequence[FailedHosts], old: FailoverCertificate | None,
                    moves: Sequence[model.Move],
                    arrivals: Mapping[str, frozenset[str]]) -> list[FailedHosts]:
    """List the sets with an earlier verdict about which rules judge as before, room and load apart.

    Their hosts have the same instances as then, and the same are coming.
    """
    if old is None:
        return []
    changes = failover_changes.compare_requests(old.request, request)
    if changes.everything:
        return []
    cluster, moved = request.cluster, {m.instance_uuid for m in moves}
    ties = hints.build_hint_ties(cluster.instances,
                                 request.options.nova_enabled_filters) if moved else {}
    touched = changes.instances.union(moved, *(ties.get(uuid, ()) for uuid in moved), *(
        g.members for g in cluster.groups if not moved.isdisjoint(g.members)))
    changed = changes.hosts | failover_changes.list_connected_hosts(
        cluster, {h for m in moves for h in (m.from_host, m.to_host)})
    unchanged = []
    for hosts in wanted:
        verdict = old.verdicts.get(hosts)
        if (verdict is not None and changed.isdisjoint(hosts)
                and touched.isdisjoint(verdict.places) and touched.isdisjoint(verdict.unplaced)
                and changed.isdisjoint(verdict.places.values())
                and verdict.places.keys() | verdict.unplaced.keys() == {
                    *_list_arriving(simulation, hosts, arrivals),
                    *(simulation.uuids[n] for h in hosts for n in simulation.list_on_host(h))}):
            unchanged.append(hosts)
    return unchanged


def _select_relieved(simulation: sim.Simulation, verdicts: Sequence[FailureVerdict],
                     hosts: Collection[str]) -> set[FailedHosts]:
    """Return the sets of which an instance without a place may now come to one of the hosts."""
    columns = np.array(sorted(simulation.host_index[h] for h in hosts
                              if h in simulation.host_index), dtype=np.intp)
    lacking = [(v.hosts, simulation.index[uuid]) for v in verdicts
               for uuid in v.list_lacking() if uuid in simulation.index]
    if not columns.size or not lacking:
        return set()
    allowed = batch.may_take(simulation, np.array([n for _, n in lacking], dtype=np.intp), columns)
    return {lacking[row][0] for row in np.flatnonzero(allowed.any(axis=1)).tolist()}


def _select_intact(simulation: sim.Simulation,
                   verdicts: Sequence[FailureVerdict]) -> set[FailedHosts]:
    """Return the sets whose places have room still, below the ceilings.

    All instances of a set that go to one host are compared with it together, by the expressions of
    the rules ``claims`` and ``ceiling``.
    """
    width = len(simulation.hosts)
    pairs = [(s * width + simulation.host_index[to], simulation.index[uuid])
             for s, verdict in enumerate(verdicts) for uuid, to in verdict.places.items()]
    if not pairs:
        return {v.hosts for v in verdicts}
    table = np.array(pairs, dtype=np.intp)
    keys, which = np.unique(table[:, 0], return_inverse=True)
    numbers, columns = table[:, 1], keys % width
    good = simulation.open[columns].copy()
    if simulation.trusted:
        good &= ~simulation.frozen[columns]
    room = simulation.room
    for r in room.counted:
        need = np.bincount(which, simulation.claims[r, numbers])
        good &= (room.used[r, columns] + need <= room.limit[r, columns]) | (need == 0.0)
    for p, policy in enumerate(simulation.policies):
        load = np.bincount(which, simulation.usage[p, numbers])
        fill = simulation.fill[p, columns] + load / simulation.divisor[p, columns]
        # The rule adds one load after the other: the rest of its tolerance is for this.
        good &= ~(fill > simulation.ceilings[policy.name] + metrics.ROUNDING / 2)
    broken = {int(s) for s in keys[~good] // width}
    return {v.hosts for s, v in enumerate(verdicts) if s not in broken}
