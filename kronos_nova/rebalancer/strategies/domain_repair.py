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

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterator
import random

import numpy as np

from kronos_nova import model
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.strategies import base

#: Part of a cycle's moves and of its steps that repairs of spreads may take: tenants ask for them.
SHARE = 0.25
#: Number of members to judge at once.
TOGETHER = 64


class SpreadRepair:
    """Moves, each of which improves a set and worsens none.

    They break no group rule that a repair would mend again, so repairs never chase each other.

    :param budget: moves of the cycle; this repair gets a part. Of a budget too small to be parted
        it gets its part in some of the cycles, by chance.
    :param most: moves that are left.
    """

    def __init__(self, simulation: sim.Simulation, budget: int, most: int) -> None:
        self._simulation = simulation
        self._rng = random.Random(f'{simulation.seed} {simulation.now}')
        self._moves_left = min(most, int(budget * SHARE + self._rng.random()))
        self._last_step = simulation.steps + int(simulation.options.max_steps * SHARE)
        #: The part of the steps was too small.
        self._is_cut_off = False

    def level_sets(self) -> list[model.Move]:
        """Apply the moves, one of each project in turn; the first project is drawn."""
        moves: list[model.Move] = []
        searches = self._begin_searches()
        while searches and not self._is_over():
            for project in tuple(searches):
                if self._moves_left <= 0:
                    break
                move = next(searches[project], None)
                if move is None:
                    del searches[project]
                else:
                    moves.append(move)
                    self._moves_left -= 1
        if self._is_cut_off:
            self._simulation.warnings.append(
                'spreads over failure domains are repaired no further in this cycle: their part of '
                'the steps of work that a plan may count is used up')
        return moves

    def _begin_searches(self) -> dict[str, Iterator[model.Move]]:
        by_project: dict[str, list[spread_requests.SpreadSet]] = defaultdict(list)
        for spread_set in self._simulation.view.placement.spread_sets:
            if not self._simulation.index.keys().isdisjoint(spread_set.members):
                first = self._simulation.cluster.instances[min(spread_set.members)]
                by_project[first.project_id].append(spread_set)
        projects = sorted(by_project)
        self._rng.shuffle(projects)
        return {project: self._find_moves_of_sets(by_project[project]) for project in projects}

    def _find_moves_of_sets(self,
                            spread_sets: list[spread_requests.SpreadSet]) -> Iterator[model.Move]:
        """Yield applied moves, one of each set in turn; the first set is drawn."""
        self._rng.shuffle(spread_sets)
        searches = [self._find_moves(spread_set) for spread_set in spread_sets]
        while searches:
            for search in tuple(searches):
                move = next(search, None)
                if move is None:
                    searches.remove(search)
                else:
                    yield move

    def _find_moves(self, spread_set: spread_requests.SpreadSet) -> Iterator[model.Move]:
        """Yield the moves of one set, each from the fullest to the emptiest domain, applied."""
        simulation = self._simulation
        simulation.steps += len(spread_set.members) // base.PER_STEP
        by_source: dict[frozenset[str], list[int]] = defaultdict(list)
        for n in sorted(n for u in spread_set.members
                        if (n := simulation.index.get(u)) is not None and simulation.repairable[n]
                        and not simulation.domains.is_unclear_source(spread_set, u)):
            by_source[self._find_source(spread_set, n)].append(n)
        sources = {source: np.array(numbers, dtype=np.intp)
                   for source, numbers in by_source.items()}
        move, refused = self._find_move(spread_set, sources)
        while move is not None:
            simulation.apply_move(move)
            yield move
            move, refused = self._find_move(spread_set, sources)
        if refused and not self._is_over():
            simulation.warnings.append(
                f'{spread_set.title} stays unevenly spread over {spread_set.kind}: none of its '
                f'{len(spread_set.members)} members has a legal destination in an emptier domain; '
                f'one member is instance {min(spread_set.members)}')

    def _find_move(self, spread_set: spread_requests.SpreadSet,
                   sources: dict[frozenset[str], sim.Ints]) -> tuple[model.Move | None, bool]:
        """Return the move that improves the spread most, and whether a better spread is refused.

        :param sources: members by domain; some may have moved since.
        """
        simulation = self._simulation
        by_count: dict[int, list[frozenset[str]]] = defaultdict(list)
        members: dict[frozenset[str], sim.Ints] = {}
        for source, numbers in sources.items():
            left = numbers[simulation.repairable[numbers]]
            if left.size:
                members[source] = left
                by_count[simulation.view.count_certain_members(spread_set, source, '')].append(
                    source)
        refused = False
        for count in sorted(by_count, reverse=True):
            # The change is the same for all members in a domain.
            changes = {source: self._compute_changes(spread_set, int(members[source][0]))
                       for source in by_count[count]}
            numbers = np.sort(np.concatenate([members[source] for source in changes]))
            for change in sorted({c for of_source in changes.values()
                                  for c in np.unique(of_source).tolist() if c < 0}):
                refused = True
                hosts = np.flatnonzero(np.any([c == change for c in changes.values()], axis=0))
                permitted = self._make_test(spread_set, changes, change)
                for some in self._sort_by_claims(numbers):
                    if self._is_over():
                        return None, refused
                    move = base.best_place(simulation, some, model.Phase.AFFINITY, hosts,
                                           permitted=permitted)
                    if move is not None:
                        return move, refused
        return None, refused

    def _compute_changes(self, spread_set: spread_requests.SpreadSet, n: int) -> sim.Ints:
        """Return the change for each host; 0 for hosts with an unclear domain."""
        domains = self._simulation.domains
        changes = domains.compute_set_change(spread_set, self._simulation.uuids[n])
        changes[domains.mark_unclear(spread_set)] = 0
        return changes

    def _find_source(self, spread_set: spread_requests.SpreadSet, n: int) -> frozenset[str]:
        simulation = self._simulation
        return simulation.view.domains.list_domains(spread_set.kind,
                                                    simulation.hosts[simulation.place[n]])

    def _make_test(self, spread_set: spread_requests.SpreadSet,
                   changes: dict[frozenset[str], sim.Ints],
                   change: int) -> Callable[[int, sim.Ints], sim.Bools]:
        simulation = self._simulation

        def is_levelling(n: int, hosts: sim.Ints) -> sim.Bools:
            hard, soft = simulation.group_changes(n, hosts)
            levels = changes[self._find_source(spread_set, n)][hosts] == change
            return np.asarray(levels & ~simulation.mark_repairing(-hard, -soft))

        return is_levelling

    def _sort_by_claims(self, numbers: sim.Ints) -> Iterator[sim.Ints]:
        """Yield members by the share of a host that they claim: small ones leave room for more."""
        self._simulation.steps += len(numbers) // base.PER_STEP
        shares = np.round(batch.compute_claim_shares(self._simulation, numbers), 6)
        for share in np.unique(shares):
            alike = numbers[shares == share]
            for start in range(0, len(alike), TOGETHER):
                yield alike[start:start + TOGETHER]

    def _is_over(self) -> bool:
        if self._moves_left <= 0 or self._simulation.is_cut_off():
            return True
        self._is_cut_off |= self._simulation.steps >= self._last_step
        return self._is_cut_off
