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

"""Repair: make violated server groups follow their policies, and spread sets evenly again."""

from collections.abc import Mapping

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import domain_spread
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import domain_repair

Spread = Mapping[str, set[str]]


class Repair(base.Strategy):
    """Hard groups before soft ones, in order of UUID, then spreads over failure domains."""

    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        return (options.enforce_hard_affinity or options.enforce_soft_affinity
                or options.enforce_domain_spread)

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        options = simulation.options
        moves: list[model.Move] = []
        broken = 0
        for group in sorted(simulation.cluster.groups,
                            key=lambda g: (not g.policy.is_hard, g.uuid)):
            wanted = (options.enforce_hard_affinity if group.policy.is_hard
                      else options.enforce_soft_affinity)
            if not wanted or not is_violated(self._list_members_by_host(simulation, group), group):
                continue
            if simulation.index.keys().isdisjoint(group.members):
                continue
            broken += 1
            moves += self._mend_group(simulation, group, budget - len(moves))
        if not broken:
            simulation.notes.append('no violated server group')
        if options.enforce_domain_spread:
            moves += domain_repair.SpreadRepair(simulation, budget,
                                                budget - len(moves)).level_sets()
        return moves

    def _mend_group(self, simulation: sim.Simulation, group: model.ServerGroup,
                    budget: int) -> list[model.Move]:
        moves: list[model.Move] = []
        kept = _count_kept_spreads(simulation)
        while len(moves) < budget and not simulation.is_cut_off():
            spread = self._list_members_by_host(simulation, group)
            if not is_violated(spread, group):
                break
            move = (_find_gathering_move if _is_affinity_group(group)
                    else _find_parting_move)(simulation, group, spread)
            if simulation.truncated and move is None:
                break  # the search was cut short, so a member may have a destination
            if move is None:
                simulation.warnings.append(
                    f'server group {group.uuid} ({group.policy}) stays violated: no member has '
                    'a legal destination'
                    + (', for spreads over failure domains, which its members ask for, forbid some '
                       '(worsens-spread)' if _count_kept_spreads(simulation) > kept else ''))
                break
            simulation.apply_move(move)
            moves.append(move)
        return moves

    @staticmethod
    def _list_members_by_host(simulation: sim.Simulation,
                              group: model.ServerGroup) -> dict[str, set[str]]:
        return {h: set(m) for h, m in simulation.view.placement.map_members_by_host(group).items()}


def _count_kept_spreads(simulation: sim.Simulation) -> int:
    """Return the number of refusals so far by the rule of spreads."""
    return sum(simulation.rejections[code] for code in domain_spread.WORSENS_SPREAD_RULE.codes)


def _is_affinity_group(group: model.ServerGroup) -> bool:
    return group.policy in (model.GroupPolicy.AFFINITY, model.GroupPolicy.SOFT_AFFINITY)


def is_violated(spread: Spread, group: model.ServerGroup) -> bool:
    """Return whether the members by host break the group's policy."""
    if _is_affinity_group(group):
        return len(spread) > 1
    limit = group.max_server_per_host if group.policy.is_hard else 1
    return any(len(members) > limit for members in spread.values())


def _find_mending_move(simulation: sim.Simulation, members: set[str],
                       targets: sim.Ints) -> model.Move | None:
    """Return the best move of a member that mends more than it breaks, in all of its groups.

    Groups that contradict each other stay unchanged.
    """
    numbers = sorted(simulation.index[u] for u in members
                     if u in simulation.index and simulation.repairable[simulation.index[u]])
    return base.best_place(simulation, np.array(numbers, dtype=np.intp), model.Phase.AFFINITY,
                           targets, mends=True)


def _find_gathering_move(simulation: sim.Simulation, group: model.ServerGroup,
                         spread: Spread) -> model.Move | None:
    """Return a move towards the host that holds most members; the next one if it is full.

    The target must hold more members than the source, or as many and come first by name: so
    members never chase each other.
    """
    ranked = sorted(spread, key=lambda h: (-len(spread[h]), h))
    for position, target in enumerate(ranked):
        if target not in simulation.host_index:
            continue
        movers = {u for source in ranked[position + 1:] for u in spread[source]}
        move = _find_mending_move(simulation, movers, np.array([simulation.host_index[target]]))
        if move is not None:
            return move
    return None


def _find_parting_move(simulation: sim.Simulation, group: model.ServerGroup,
                       spread: Spread) -> model.Move | None:
    """Return a move off a host with too many members.

    The target must mend more than it breaks: it holds at least two members fewer (soft), or
    fewer than the limit (hard).
    """
    limit = group.max_server_per_host if group.policy.is_hard else 1
    for source in sorted(spread, key=lambda h: (-len(spread[h]), h)):
        count = len(spread[source])
        if count <= limit:
            break
        most = limit - 1 if group.policy.is_hard else count - 2
        full = [simulation.host_index[h] for h, members in spread.items()
                if h in simulation.host_index and len(members) > most]
        move = _find_mending_move(simulation, spread[source],
                                  np.delete(np.arange(len(simulation.hosts)), full))
        if move is not None:
            return move
    return None
