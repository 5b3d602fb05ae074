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

Seed 000's greedy, made exact. A single move lowers max - min of a policy only if its source
is that policy's one maximum or its destination the one minimum: any other host that holds
the extreme keeps it. So improving moves have their source among the policies' maxima or
their destination among the minima.
"""

import itertools

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.search import portfolio
from kronos_nova.rebalancer.search import swaps
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import greedy

#: Number of hosts at either end to try when the extremes are tied.
BAND = 8
#: Error of a measured score: rates over minutes of samples every
#: half minute scatter by about half a percent of a host.
NOISE = 0.005
#: A fall of the convex measure that two scores with that error can simulate.
CONVEX_GAIN = (2 * NOISE) ** 2
#: While a levelling move exists, a fall of combined imbalance counts as progress only
#: above NOISE, and above this part of the excess over the thresholds. The least gain of
#: any move is ``minimum_gain`` for its memory.
PROGRESS = 0.05
#: The masks leave hardly any illegal candidate; after so many, none is legal.
TRIED = 10_000
#: Largest number of good but refused moves that the report names.
REPORTED = 8


class Spread(base.Strategy):
    imbalance = True

    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        return policy_set.mode == 'spread'

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        if not _is_over_threshold(simulation):
            simulation.notes.append('every policy is at or below its threshold')
            return []
        moves = (_plan_greedily if simulation.options.objective == 'kronos' else _plan_balanced)(
            simulation, budget)
        if len(moves) < budget and _is_over_threshold(simulation) and not simulation.truncated:
            _explain_obstacles(simulation)
        return moves


def _plan_balanced(simulation: sim.Simulation, budget: int) -> list[model.Move]:
    """Apply a greedy plan or a better one, and then each move and swap that still helps."""
    start = measure.StateMeasure(simulation)
    moves = portfolio.plan_large_cluster(simulation, start, budget)
    moves += _plan_greedily(simulation, budget - len(moves))
    moves = portfolio.improve_plan(simulation, start, moves, budget)
    moves += _plan_greedily(simulation, budget - len(moves))
    while len(moves) + 1 < budget and _is_over_threshold(
            simulation) and not simulation.is_cut_off():
        more = swaps.best_swap(simulation)
        if more is None:
            break
        moves += more
        moves += _plan_greedily(simulation, budget - len(moves))
    portfolio.cut_refused_moves(simulation, start, moves)
    return moves


def _plan_greedily(simulation: sim.Simulation, budget: int) -> list[model.Move]:
    moves: list[model.Move] = []
    while len(moves) < budget and _is_over_threshold(simulation) and not simulation.is_cut_off():
        move = _choose_move(simulation)
        if move is None:
            break
        simulation.apply_move(move)
        moves.append(move)
    return moves


def _explain_obstacles(simulation: sim.Simulation) -> None:
    """Note why a policy stays above its threshold although the budget is not used up."""
    simulation.notes.append('no legal move lowers the imbalance')
    copying = int(simulation.copying.sum())
    if copying:
        simulation.rejections['copies-disk'] += copying
    if resting := int(simulation.resting.sum()):
        simulation.rejections['just-booted'] += resting
    lacking = int((~simulation.profiled & ~simulation.copying & ~simulation.resting).sum())
    if lacking:
        simulation.notes.append(f'{lacking} of {len(simulation.uuids)} instances '
                                'have no usage in some policy and stay')


def _is_over_threshold(simulation: sim.Simulation) -> bool:
    """Return whether a policy is above its threshold; seed 000 allows no rounding margin."""
    if simulation.options.objective == 'kronos':
        return bool((simulation.compute_imbalances() > simulation.thresholds).any())
    return simulation.over_threshold()


def _choose_move(simulation: sim.Simulation) -> model.Move | None:
    """Choose a move: progress first, then a move that dissolves a tie, then the small steps."""
    if simulation.options.objective == 'kronos':
        return greedy.best_move(simulation)
    progress = max(NOISE, PROGRESS * simulation.compute_excess())
    if len(simulation.uuids) > portfolio.LARGE:
        move = greedy.best_move(simulation)
        if move is None:
            return _find_levelling_move(simulation)
        if _earns_its_price(simulation, move):
            return move if move.improvement > progress else _find_levelling_move(simulation) or move
    return (_find_improving_move(simulation, progress) or _find_levelling_move(simulation)
            or _find_improving_move(simulation, base.EPSILON))


def _earns_its_price(simulation: sim.Simulation, move: model.Move) -> bool:
    """Return whether :func:`_find_best_move` could choose this move of the exact greedy."""
    n, h = simulation.index[move.instance_uuid], simulation.host_index[move.to_host]
    effect = simulation.compute_effects(np.array([n]), np.array([h]))
    falls = (effect.excess[0, 0] < simulation.compute_excess() - base.EPSILON
             or -effect.convex[0, 0] > CONVEX_GAIN)
    price = float(measure.compute_price(simulation.options, simulation.cost[n]))
    return bool(falls) and move.improvement > price and not simulation.soft_cost(move)


def _split_candidates(simulation: sim.Simulation, sources: sim.Ints, destinations: sim.Ints,
                      ends: bool) -> list[tuple[sim.Ints, sim.Ints]]:
    """Return the candidates as (instances, hosts) blocks that do not overlap.

    Candidates have their source in ``sources`` or their destination in ``destinations``
    (``ends``: both).
    """
    may_move = choice.may_move(simulation)
    hosts = np.flatnonzero(simulation.takers)
    hot = np.isin(simulation.place, sources) & may_move
    if ends:
        return [(np.flatnonzero(hot), np.intersect1d(hosts, destinations))]
    return [(np.flatnonzero(hot), hosts),
            (np.flatnonzero(may_move & ~hot), np.intersect1d(hosts, destinations))]


def _find_best_move(simulation: sim.Simulation, sources: sim.Ints, destinations: sim.Ints,
                    least: float | None) -> model.Move | None:
    """Return the legal candidate with the largest gain, above ``least`` and its price.

    Without ``least``, return the one that levels most. Memory decides ties, then UUID.

    Taking u off the hottest host for one at a distance d > threshold lowers the imbalance
    by up to 2u and the convex measure by 2u(d - u); with u at most d / 2 that is half the
    threshold times the fall of the imbalance: a move that levels must bring so much of its
    price.

    The excess above a threshold falls, or else the convex measure does: one of the two goes
    down with every move and neither plateau nor gain undoes the other, so no instance goes
    to and fro.
    """
    before, excess = simulation.compute_combined(), simulation.compute_excess()
    ends = least is None and len(simulation.uuids) > portfolio.LARGE
    candidate_arrays: list[sim.Floats] = []
    for rows, columns in _split_candidates(simulation, sources, destinations, ends):
        if not rows.size or not columns.size:
            continue
        simulation.steps += rows.size * columns.size // 64
        effect = simulation.compute_effects(rows, columns)
        gain = before - effect.combined
        price = measure.compute_price(simulation.options, simulation.cost[rows])[:, None]
        if least is None:
            value = down = -effect.convex - price * simulation.thresholds.min() / 2
            good = effect.excess <= excess + base.EPSILON
        else:
            value, good = gain, gain - price > least
            down = np.where(effect.excess < excess - base.EPSILON, np.inf, -effect.convex)
        good &= down > CONVEX_GAIN
        candidates = masks.mark_permitted(simulation, rows, columns)
        simulation.rejections['would-worsen'] += int((candidates & effect.refused).sum())
        good &= ~effect.refused
        masked = np.argwhere(good & ~candidates)[:REPORTED]
        base.count_masked(simulation, rows[masked[:, 0]], columns[masked[:, 1]],
                          model.Phase.SPREAD)
        r, c = np.nonzero(good & candidates)
        value = np.minimum(value, down)[r, c] - _group_costs(simulation, rows[r], columns[c])
        candidate_arrays.append(np.stack([value, gain[r, c], rows[r], columns[c]]))
    if not candidate_arrays:
        return None
    value, gain, n, h = np.concatenate(candidate_arrays, axis=1)
    keep = value > base.EPSILON
    value, gain, n, h = value[keep], gain[keep], n[keep].astype(int), h[keep].astype(int)
    keys = -np.round(value, 12), simulation.cost[n], n, h
    for i in itertools.islice(base.sort_positions(keys), TRIED):
        if simulation.is_cut_off():
            return None
        move = simulation.build_move(int(n[i]), int(h[i]), model.Phase.SPREAD, float(gain[i]))
        if simulation.judge_move(move) is None:
            return move
    return None


def _group_costs(simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints) -> sim.Floats:
    """Return each candidate's addition to violated soft rules; most instances are in no group.

    It is infinite where the move would undo a repair.
    """
    costs = np.zeros(len(rows))
    for i in np.flatnonzero(simulation.grouped[rows]):
        move = simulation.build_move(int(rows[i]), int(columns[i]), model.Phase.SPREAD)
        if simulation.undoes_repair(move):
            costs[i] = np.inf
        else:
            costs[i] = simulation.soft_cost(move)
    return costs


def _find_improving_move(simulation: sim.Simulation, least: float) -> model.Move | None:
    high = np.where(simulation.givers, simulation.score, -np.inf).argmax(axis=1)
    low = np.where(simulation.takers, simulation.score, np.inf).argmin(axis=1)
    return _find_best_move(simulation, np.unique(high), np.unique(low), least)


def _find_levelling_move(simulation: sim.Simulation) -> model.Move | None:
    """Return the move that most lowers a strictly convex measure near the extremes.

    This is for states in which no move lowers max - min: extremes are tied, or a hot host
    cannot give. The move does not raise the excess above a threshold; the tie dissolves
    move by move.
    """
    over = simulation.compute_imbalances() > simulation.thresholds
    hot: set[int] = set()
    cold: set[int] = set()
    for p in np.flatnonzero(over):
        givers, takers = np.flatnonzero(simulation.givers), np.flatnonzero(simulation.takers)
        score = simulation.score[p]
        hot.update(int(h) for h in givers[np.argsort(-score[givers], kind='stable')][:BAND])
        cold.update(int(h) for h in takers[np.argsort(score[takers], kind='stable')][:BAND])
    return _find_best_move(simulation, np.array(sorted(hot), dtype=np.intp),
                           np.array(sorted(cold), dtype=np.intp), None)
