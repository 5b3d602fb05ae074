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
"""Repair of spreads: members of a set leave the failure domains that hold most."""

from collections.abc import Callable

import numpy as np

from kronos_nova import model
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.strategies import base


def level_spread_sets(simulation: sim.Simulation, budget: int) -> list[model.Move]:
    """Apply at most ``budget`` moves, each of which improves a set and worsens none.

    They break no group rule that a repair would mend again, so repairs never chase each other.
    """
    moves: list[model.Move] = []
    for spread_set in simulation.view.placement.spread_sets:
        if simulation.index.keys().isdisjoint(spread_set.members):
            continue
        while len(moves) < budget and not simulation.is_cut_off():
            move = _find_levelling_move(simulation, spread_set)
            if move is None:
                break
            simulation.apply_move(move)
            moves.append(move)
    return moves


def _find_levelling_move(simulation: sim.Simulation,
                         spread_set: spread_requests.SpreadSet) -> model.Move | None:
    """Return the move that improves the spread most: from the fullest to the emptiest domain."""
    numbers = sorted(n for u in spread_set.members if (n := simulation.index.get(u)) is not None
                     and simulation.repairable[n])
    changes = {n: simulation.domains.compute_set_change(spread_set, simulation.uuids[n])
               for n in numbers}
    by_source: dict[int, list[int]] = {}
    for n in numbers:
        by_source.setdefault(_count_here(simulation, spread_set, n), []).append(n)
    refused = False
    for here in sorted(by_source, reverse=True):
        members = by_source[here]
        least = min(int(changes[n].min()) for n in members)
        for change in range(least, 0):
            for numbers_alike in _sort_by_claims(simulation, members):
                move = base.best_place(simulation, numbers_alike, model.Phase.AFFINITY,
                                       permitted=_make_test(simulation, changes, change))
                if move is not None or simulation.is_cut_off():
                    return move
            refused = True
    if refused:
        simulation.warnings.append(
            f'{spread_set.title} stays unevenly spread over {spread_set.kind}: no member has a '
            'legal destination in an emptier domain')
    return None


def _sort_by_claims(simulation: sim.Simulation, members: list[int]) -> list[sim.Ints]:
    """Return the members by the share of a host that they claim: small ones leave room for more."""
    numbers = np.array(members, dtype=np.intp)
    shares = np.round(batch.compute_claim_shares(simulation, numbers), 6)
    return [numbers[shares == share] for share in np.unique(shares)]


def _count_here(simulation: sim.Simulation, spread_set: spread_requests.SpreadSet, n: int) -> int:
    """Return how many other members certainly share the instance's domain."""
    view, uuid = simulation.view, simulation.uuids[n]
    return view.count_certain_members(
        spread_set, view.domains.list_domains(
            spread_set.kind, simulation.hosts[simulation.place[n]]), uuid)


def _make_test(simulation: sim.Simulation, changes: dict[int, sim.Ints],
               change: int) -> Callable[[int, sim.Ints], sim.Bools]:
    def is_levelling(n: int, hosts: sim.Ints) -> sim.Bools:
        hard, soft = simulation.group_changes(n, hosts)
        return np.asarray((changes[n][hosts] == change) & ~simulation.mark_repairing(-hard, -soft))

    return is_levelling
