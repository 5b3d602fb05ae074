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

"""Spread: the move that lowers combined imbalance most, again and again.

Seed 000's greedy, made exact. A single move lowers max - min of a policy only
if its source is that policy's one maximum or its destination the one minimum:
any other host that holds the extreme keeps it. So improving moves have their
source among the policies' maxima or their destination among the minima.
"""

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import greedy

#: Hosts at either end that a plateau is broken from.
BAND = 8
#: A smaller fall of the convex measure is not worth a migration.
CONVEX_GAIN = 1e-4
#: A smaller fall of combined imbalance is noise of the metrics, not worth a migration.
LEAST_GAIN = 0.005
#: A fall of less than this part of what is above the thresholds is no progress
#: while a move that levels is there.
PROGRESS = 0.05
#: The masks leave hardly any illegal candidate; after so many, none is legal.
TRIED = 10_000
#: So many good moves that masks refuse are named in the report.
REPORTED = 64


class Spread(base.Strategy):
    imbalance = True

    def enabled(self, options: model.Options, policy_set: policies.PolicySet) -> bool:
        return policy_set.mode == 'spread'

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        if not _over(simulation):
            simulation.notes.append('every policy is at or below its threshold')
            return []
        moves: list[model.Move] = []
        while len(moves) < budget and _over(simulation) and not simulation.stop():
            move = _choose(simulation)
            if move is None:
                simulation.notes.append('no legal move lowers the imbalance')
                lacking = int((~simulation.profiled).sum())
                if lacking:
                    simulation.notes.append(f'{lacking} of {len(simulation.uuids)} instances '
                                            'have no usage in some policy and stay')
                break
            simulation.apply(move)
            moves.append(move)
        return moves


def _over(simulation: sim.Simulation) -> bool:
    """A policy is above its threshold; seed 000 knows no rounding."""
    if simulation.options.objective == 'kronos':
        return bool((simulation.imbalances() > simulation.thresholds).any())
    return simulation.over_threshold()


def _choose(simulation: sim.Simulation) -> model.Move | None:
    """Progress first, then what dissolves a tie, then the small steps."""
    if simulation.options.objective == 'kronos':
        return greedy.best_move(simulation)
    progress = max(LEAST_GAIN, PROGRESS * simulation.excess())
    return (_improving(simulation, progress) or _levelling(simulation)
            or _improving(simulation, LEAST_GAIN))


def _blocks(simulation: sim.Simulation, sources: sim.Ints,
            destinations: sim.Ints) -> list[tuple[sim.Ints, sim.Ints]]:
    """Candidates with their source in ``sources`` or destination in
    ``destinations``, as (instances, hosts) blocks that do not overlap."""
    may_move = simulation.movable & simulation.profiled & simulation.givers[simulation.place]
    hosts = np.flatnonzero(simulation.takers)
    hot = np.isin(simulation.place, sources) & may_move
    return [(np.flatnonzero(hot), hosts),
            (np.flatnonzero(may_move & ~hot), np.intersect1d(hosts, destinations))]


def _best(simulation: sim.Simulation, sources: sim.Ints, destinations: sim.Ints,
          least: float | None) -> model.Move | None:
    """The legal candidate with the largest gain, above ``least``; without that,
    the one that levels most. Ties by memory, then UUID.

    What is above a threshold falls, or else the convex measure does: one of
    the two goes down with every move and neither plateau nor gain undoes the
    other, so no instance goes to and fro.
    """
    before, excess = simulation.combined(), simulation.excess()
    found: list[sim.Floats] = []
    for rows, columns in _blocks(simulation, sources, destinations):
        if not rows.size or not columns.size:
            continue
        simulation.steps += rows.size * columns.size // 64
        effect = simulation.effects(rows, columns)
        gain = before - effect.combined
        if least is None:
            good, measure = effect.excess <= excess + base.EPSILON, -effect.convex
            down = measure
        else:
            good, measure = gain > least, gain
            down = np.where(effect.excess < excess - base.EPSILON, np.inf, -effect.convex)
        good &= down > CONVEX_GAIN
        candidates = masks.permitted(simulation, rows, columns)
        simulation.rejections['would-worsen'] += int((candidates & effect.refused).sum())
        good &= ~effect.refused
        masked = np.argwhere(good & ~candidates)[:REPORTED]
        base.count_masked(simulation, rows[masked[:, 0]], columns[masked[:, 1]],
                          model.Phase.SPREAD)
        r, c = np.nonzero(good & candidates)
        value = np.minimum(measure, down)[r, c] - _group_costs(simulation, rows[r], columns[c])
        found.append(np.stack([value, gain[r, c], rows[r], columns[c]]))
    if not found:
        return None
    value, gain, n, h = np.concatenate(found, axis=1)
    keep = value > base.EPSILON
    value, gain, n, h = value[keep], gain[keep], n[keep].astype(int), h[keep].astype(int)
    order = np.lexsort((h, n, simulation.cost[n], -np.round(value, 12)))
    gains = {(int(n[i]), int(h[i])): float(gain[i]) for i in order[:TRIED]}
    return sim.first_legal(simulation, list(gains), model.Phase.SPREAD,
                           lambda n, h: gains[n, h])


def _group_costs(simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints) -> sim.Floats:
    """What each candidate adds to violated soft rules, and infinity where it
    would undo a repair; most instances are in no group."""
    costs = np.zeros(len(rows))
    for i in np.flatnonzero(simulation.grouped[rows]):
        move = simulation.move(int(rows[i]), int(columns[i]), model.Phase.SPREAD)
        if simulation.undoes_repair(move):
            costs[i] = np.inf
        else:
            costs[i] = simulation.soft_cost(move)
    return costs


def _improving(simulation: sim.Simulation, least: float) -> model.Move | None:
    high = np.where(simulation.givers, simulation.score, -np.inf).argmax(axis=1)
    low = np.where(simulation.takers, simulation.score, np.inf).argmin(axis=1)
    return _best(simulation, np.unique(high), np.unique(low), least)


def _levelling(simulation: sim.Simulation) -> model.Move | None:
    """No move lowers max - min: extremes are tied, or a hot host cannot give.

    Lower a strictly convex measure near the extremes instead, without
    raising what is above a threshold; the tie dissolves move by move.
    """
    over = simulation.imbalances() > simulation.thresholds
    hot: set[int] = set()
    cold: set[int] = set()
    for p in np.flatnonzero(over):
        givers, takers = np.flatnonzero(simulation.givers), np.flatnonzero(simulation.takers)
        score = simulation.score[p]
        hot.update(int(h) for h in givers[np.argsort(-score[givers], kind='stable')][:BAND])
        cold.update(int(h) for h in takers[np.argsort(score[takers], kind='stable')][:BAND])
    return _best(simulation, np.array(sorted(hot), dtype=np.intp),
                 np.array(sorted(cold), dtype=np.intp), None)
