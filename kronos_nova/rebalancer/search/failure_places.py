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

"""Places for the instances of hosts that fail together.

An instance goes where most stays free, so that the places hold through later changes. If an
instance is left, all are placed where they fit closest, and then together (:mod:`batch`). The rules
of the simulation judge each place. Each arrival only takes room, and gives none back: so the
instances may arrive in any order.
"""

from collections import Counter
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import batch

#: Instances times hosts that all attempts of one search together may judge by masks.
WORK = 20_000_000
#: Rules whose rejection holds for every host.
EVERYWHERE = frozenset({'evacuation-unknown', 'evacuation-vtpm', 'affinity-unmovable',
                        'affinity-in-flight'})
#: Number of best destinations that the rules judge before the masks judge all again.
FIRST = 4
#: Largest number of residents that one search for a repair tries to move.
RESIDENTS = 64
#: Number of destinations to try for such a resident.
DESTINATIONS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class FailurePlaces:
    """The moves of the instances that have a place, and the numbers of instances without a place.

    ``proven``: no placement of all exists.
    """

    moves: tuple[model.Move, ...]
    unplaced: tuple[int, ...] = ()
    proven: bool = False


@contextlib.contextmanager
def fail_hosts(simulation: sim.Simulation, hosts: Collection[str]) -> Iterator[None]:
    """Let no failed host receive anything inside the context."""
    closed = [host for host in hosts if host not in simulation.view.draining]
    for host in closed:
        simulation.begin_drain(host)
    try:
        yield
    finally:
        for host in closed:
            simulation.undo_drain(host)


def place_instances(simulation: sim.Simulation, hosts: Sequence[str],
                    kept: Mapping[str, str], arriving: sim.Ints, *,
                    together: bool) -> FailurePlaces:
    """Place the instances of failed hosts; leave the simulation with the moves applied.

    :param simulation: in the context of :func:`fail_hosts`.
    :param kept: destinations to try first, by instance UUID.
    :param arriving: instances of other hosts that migrate to the failed ones. Each has left its
        host, or comes back to it: so none comes to a host that another such instance leaves.
    :param together: whether to search for all instances together where one is left.
    """
    numbers = np.concatenate([simulation.list_on_host(host) for host in hosts])
    found = _place_residents(simulation, numbers, kept, together=together)
    if not arriving.size:
        return found
    left = np.unique(simulation.place[arriving])
    moves = _apply_kept(simulation, arriving, kept, left)
    rest = np.array([n for n in arriving if simulation.uuids[n] not in moves], dtype=np.intp)
    more = [*moves.values(), *_place_singly(simulation, rest, 1.0, left)]
    placed = {move.instance_uuid for move in more}
    return FailurePlaces((*found.moves, *more), (*found.unplaced, *(
        int(n) for n in arriving if simulation.uuids[n] not in placed)), found.proven)


def _place_residents(simulation: sim.Simulation, numbers: sim.Ints, kept: Mapping[str, str], *,
                     together: bool) -> FailurePlaces:
    """Place the instances that are on the failed hosts."""
    if not numbers.size:
        return FailurePlaces(())
    first: list[model.Move] = []
    if kept:
        moves = _apply_kept(simulation, numbers, kept)
        rest = np.array([n for n in numbers if simulation.uuids[n] not in moves], dtype=np.intp)
        first = [*moves.values(), *_place_singly(simulation, rest, 1.0)]
        if len(first) == len(numbers):
            return FailurePlaces(tuple(first))
        _undo(simulation, first)
    proven = _find_impossible(simulation, numbers)
    best = _place_singly(simulation, numbers, 1.0)
    if len(best) < len(numbers):
        _undo(simulation, best)
        closely = _place_singly(simulation, numbers, -1.0)
        if len(closely) > len(best):
            best = closely
        else:
            _undo(simulation, closely)
            _apply(simulation, best)
    if len(best) < len(numbers) and together and not proven:
        best = _place_together(simulation, numbers, best)
    if first and len(first) >= len(best):
        # The same instances as before keep their places where no search places more.
        _undo(simulation, best)
        _apply(simulation, first)
        best = first
    placed = {move.instance_uuid for move in best}
    unplaced = tuple(int(n) for n in numbers if simulation.uuids[n] not in placed)
    return FailurePlaces(tuple(best), unplaced, bool(unplaced and proven))


def count_refusals(simulation: sim.Simulation, n: int) -> model.Rejection:
    """Return why no host may take the instance beside the moves applied: each rule with its hosts.

    A rejection by a rule that holds for every host comes alone.
    """
    counts: Counter[str] = Counter()
    for h, times in _choose_alike(simulation, n).items():
        move = simulation.build_move(n, h, model.Phase.EVACUATE)
        for rejection in constraints.list_rejections(simulation.view, move, simulation.judges):
            if rejection.rule in EVERYWHERE:
                return rejection
        first = _judge(simulation, move)
        counts['no-order' if first is None else first.rule] += times
    text = ', '.join(f'{rule} ({plurals.count_noun(count, "host")})'
                     for rule, count in sorted(counts.items()))
    return model.Rejection('no-destination', f'instance {simulation.uuids[n]}: no host may take '
                                             f'it: {text or "the scope has no other host"}')


def find_repair(simulation: sim.Simulation, view: cluster_view.ClusterView,
                unplaced: Sequence[int]) -> tuple[list[model.Move], list[model.Move]] | None:
    """Find moves of other instances that make room for the unplaced ones; None: none were found.

    One resident leaves a host for a third one, and an unplaced instance takes its room.

    :param simulation: with the other instances of the failed hosts in their places; it contains
        all moves that are returned.
    :param view: of the cloud today, in which the rules of live moves judge; the moves of the
        residents land in it.
    :returns: the moves of the residents, in order, and the moves of the unplaced instances.
    """
    before: list[model.Move] = []
    places: list[model.Move] = []
    for n in unplaced:
        chain = _find_chain(simulation, view, n)
        if chain is None:
            for move in reversed(before):
                view.undo_landing(move)
            _undo(simulation, [m for pair in zip(before, places, strict=True) for m in pair])
            return None
        before.append(chain[0])
        places.append(chain[1])
    return before, places


def _find_chain(simulation: sim.Simulation, view: cluster_view.ClusterView,
                n: int) -> tuple[model.Move, model.Move] | None:
    room, every = simulation.room, np.arange(len(simulation.hosts), dtype=np.intp)
    need = simulation.claims[:, n]
    chains: list[tuple[float, int, int]] = []
    for host in map(int, np.flatnonzero(simulation.open)):
        here = simulation.list_on_host(simulation.hosts[host])
        after = room.used[:, host, None] - simulation.claims[:, here]
        fits = (after + need[:, None] <= room.limit[:, host, None]) | (need[:, None] == 0.0)
        chains += [(float(simulation.size[o]), int(o), host)
                   for o in here[fits[room.counted].all(axis=0)]]
    for _, other, host in sorted(chains)[:RESIDENTS]:
        if view.find_host_of(simulation.uuids[other]) != simulation.hosts[host]:
            continue  # an instance of a failed host, in its place
        allowed = every[batch.may_take(simulation, np.array([other]), every)[0]]
        fullest = room.compute_fullest(other, allowed)
        for there in allowed[np.lexsort((allowed, fullest))][:DESTINATIONS]:
            first = simulation.build_move(other, int(there), model.Phase.REQUESTED)
            if (constraints.judge_move(view, first) is not None
                    or _judge(simulation, first) is not None):
                continue
            simulation.apply_move(first)
            second = simulation.build_move(n, host, model.Phase.EVACUATE)
            if _judge(simulation, second) is None:
                simulation.apply_move(second)
                view.land_move(first)
                return first, second
            simulation.undo_move(first)
            break
    return None


def _judge(simulation: sim.Simulation, move: model.Move) -> model.Rejection | None:
    """Judge a place, also that of an instance that a planned move has brought to the host."""
    return constraints.judge_move(simulation.view, move, simulation.judges)


def _apply_kept(simulation: sim.Simulation, numbers: sim.Ints,
                kept: Mapping[str, str],
                barred: Sequence[int] | sim.Ints = ()) -> dict[str, model.Move]:
    """Apply the kept places that the rules still allow; return the moves by instance.

    :param barred: numbers of hosts to which none comes.
    """
    moves = {}
    for n in map(int, numbers):
        host = simulation.host_index.get(kept.get(simulation.uuids[n], ''))
        if host is None or host in barred:
            continue
        move = simulation.build_move(n, host, model.Phase.EVACUATE)
        if _judge(simulation, move) is None:
            simulation.apply_move(move)
            moves[move.instance_uuid] = move
    return moves


def _place_singly(simulation: sim.Simulation, numbers: sim.Ints, sign: float,
                  barred: Sequence[int] | sim.Ints = ()) -> list[model.Move]:
    """Place each instance that finds a host, those that few hosts may take first.

    :param sign: 1: on the emptiest host, -1: on the fullest.
    :param barred: numbers of hosts to which none comes.
    """
    every = np.setdiff1d(np.arange(len(simulation.hosts), dtype=np.intp), barred)
    allowed = batch.may_take(simulation, numbers, every)
    shares = batch.compute_claim_shares(simulation, numbers)
    moves = []
    for row in np.lexsort((numbers, -shares, ~simulation.hard_grouped[numbers])):
        n = int(numbers[row])
        move = _place_best(simulation, n, every[allowed[row]], sign, FIRST)
        if move is None:  # earlier instances have filled the best hosts
            hosts = every[batch.may_take(simulation, np.array([n]), every)[0]]
            move = _place_best(simulation, n, hosts, sign, len(hosts))
        if move is not None:
            moves.append(move)
    return moves


def _place_best(simulation: sim.Simulation, n: int, hosts: sim.Ints, sign: float,
                most: int) -> model.Move | None:
    """Apply the first legal move to one of the ``most`` best hosts; return it."""
    if not hosts.size:
        return None
    key = sign * _compute_fullest(simulation, n, hosts)
    for _ in range(min(most, len(hosts))):
        best = int(np.argmin(key))
        move = simulation.build_move(n, int(hosts[best]), model.Phase.EVACUATE)
        if _judge(simulation, move) is None:
            simulation.apply_move(move)
            return move
        key[best] = np.inf
    return None


def _compute_fullest(simulation: sim.Simulation, n: int, hosts: sim.Ints) -> sim.Floats:
    """Compute the highest ratio of a class or a fill of each host with instance n on it.

    A fill counts in relation to its ceiling.
    """
    best = simulation.room.compute_fullest(n, hosts)
    for p, policy in enumerate(simulation.policies):
        ceiling = simulation.ceilings[policy.name]
        if 0.0 < ceiling < np.inf:
            fill = (simulation.fill[p, hosts]
                    + simulation.usage[p, n] / simulation.divisor[p, hosts]) / ceiling
            best = np.fmax(best, fill)
    return best


def _place_together(simulation: sim.Simulation, numbers: sim.Ints,
                    moves: list[model.Move]) -> list[model.Move]:
    """Place all placeable instances at once, if that places more; else apply ``moves`` again."""
    _undo(simulation, moves)
    possible = batch.list_placeable_instances(simulation, numbers)
    if len(possible) > len(moves):
        hosts, _ = batch.choose_hosts_to_try(simulation, possible)
        most = min(batch.TRIED, WORK // max(1, len(possible) * len(hosts)))
        placed, _ = batch.place_on(simulation, possible, hosts, model.Phase.EVACUATE, most)
        if placed is not None:
            return placed
    _apply(simulation, moves)
    return moves


def _find_impossible(simulation: sim.Simulation, numbers: sim.Ints) -> bool:
    """Return whether an instance has no host even alone, or all need more than all hosts have.

    Masks permit no less than the rules, so that a refusal by them is a proof.
    """
    every = np.arange(len(simulation.hosts), dtype=np.intp)
    allowed = batch.may_take(simulation, numbers, every)
    if not allowed.any(axis=1).all():
        return True
    room, useful = simulation.room, allowed.any(axis=0)
    free = np.maximum(room.limit - room.used, 0.0)[:, useful].sum(axis=1)
    need = simulation.claims[:, numbers].sum(axis=1)
    return bool((need > free)[room.counted].any())


def _choose_alike(simulation: sim.Simulation, n: int) -> dict[int, int]:
    """Return hosts that stand for all, each with the number of hosts that it stands for.

    Hosts are alike that the same masks refuse.
    """
    hosts = np.flatnonzero(np.arange(len(simulation.hosts)) != simulation.place[n])
    refused = np.zeros(len(hosts), dtype=np.intp)
    for bit, mask in enumerate(masks.FILLING):
        refused |= ~mask(simulation, np.array([n]), hosts)[0] * np.intp(1 << bit)
    _, first, count = np.unique(refused, return_index=True, return_counts=True)
    return dict(zip(map(int, hosts[first]), map(int, count), strict=True))


def _apply(simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
    for move in moves:
        simulation.apply_move(move)


def _undo(simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
    for move in reversed(moves):
        simulation.undo_move(move)
