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


"""The best of several plans, within counted work."""

from collections.abc import Sequence
import math

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.search import replay
from kronos_nova.rebalancer.search import ruin_recreate

#: Additions of one search, and how many candidates and moves earn one.
ADDITIONS = 7000
CANDIDATES = 8
#: The least number of additions: the greedy starts alone use up some.
FEWEST = 300
#: In a cluster of more instances, a plan that reaches every threshold is good enough.
LARGE = 4000
#: Above so many instances, a search does less in inverse proportion.
SEARCHED = 1200
#: The same where one addition judges more than so many candidates, times policies.
JUDGED = 14_000
#: Candidates that count as one step of ``PlanningOptions.max_steps``.
STEP = 1024
#: Where room is scarce an addition takes longer.
SCARCE = 0.75
#: A search uses at most this part of the steps that are left.
SHARE = 0.25
#: Smaller progress towards the thresholds does not count.
LEAST = 1e-6


def plan_large_cluster(simulation: sim.Simulation, start: measure.StateMeasure,
                       budget: int) -> list[model.Move]:
    """Apply one greedy plan on the smooth measure in a large cluster, if it brings progress.

    This looks at the hottest and coldest hosts only, so it takes milliseconds where an
    exact greedy step looks at every instance.

    :returns: the applied moves; none in a smaller cluster.
    """
    if len(simulation.uuids) <= LARGE:
        return []
    above = start.compute_excess(simulation.score)
    moves = replay.apply_in_order(simulation,
                                  _search_plan(simulation, budget, 2 * budget,
                                               ruin_recreate.STARTS[-2:-1]))
    if start.compute_excess(simulation.score) < above - LEAST and not start.mark_refused(
            simulation.score):
        return moves
    _undo(simulation, moves)
    return []


def improve_plan(simulation: sim.Simulation, start: measure.StateMeasure,
                 moves: Sequence[model.Move],
                 budget: int) -> list[model.Move]:
    """Apply the greedy ``moves`` or a better plan to the simulation; return the applied plan.

    A plan is better if it reaches every threshold with fewer moves, or gets nearer to it
    for its cost. The excess above the thresholds must fall, so that no cycle of plans leads
    back to a state in which one began.

    :param start: taken before ``moves``.
    :param moves: applied to the simulation, in order.
    """
    reached = not start.compute_excess(simulation.score)
    additions = _compute_additions(simulation, budget)
    if not additions or reached and (len(moves) <= 1 or len(simulation.uuids) > LARGE):
        return list(moves)
    _undo(simulation, moves)
    planned_pairs = _search_plan(simulation, len(moves) - 1 if reached else budget, additions)
    if not planned_pairs:
        _apply(simulation, moves)
        return list(moves)
    greedy = _apply_and_rank(simulation, start, moves)
    _undo(simulation, moves)
    above = start.compute_excess(simulation.score)
    tried = replay.apply_in_order(simulation, planned_pairs)
    _undo(simulation, tried)
    other = _apply_and_rank(simulation, start, tried)
    if other < greedy and start.compute_excess(simulation.score) < above - LEAST:
        return tried
    _undo(simulation, tried)
    _apply(simulation, moves)
    return list(moves)


def cut_refused_moves(simulation: sim.Simulation, start: measure.StateMeasure,
                      moves: list[model.Move]) -> None:
    """Take back the last moves, until the whole is no worse than the start."""
    while moves and start.mark_refused(simulation.score):
        simulation.undo_move(moves.pop())


def _compute_additions(simulation: sim.Simulation, budget: int) -> int:
    """Return the number of additions of one search.

    It is higher for more candidates and moves, lower for a large cluster, and never more
    than the search's share of the steps.
    """
    count = int(simulation.movable.sum())
    candidates = count * int(simulation.takers.sum())
    if not candidates:
        return 0
    wanted = min(ADDITIONS, FEWEST + candidates * budget // CANDIDATES)
    judged = min(candidates, ruin_recreate.WINDOW) * len(simulation.policies)
    wanted = int(wanted * min(1.0, SEARCHED / count) * min(1.0, JUDGED / judged))
    steps = SHARE * (simulation.options.max_steps - simulation.steps)
    return max(0, min(wanted, int(steps / _compute_addition_steps(candidates))))


def _compute_addition_steps(candidates: int) -> int:
    return 1 + min(candidates, ruin_recreate.WINDOW) // STEP


def _search_plan(simulation: sim.Simulation, budget: int, additions: int,
                 starts: tuple[float, ...] = ()) -> list[tuple[int, int]]:
    """Return the (instance, host) pairs of the best plan that local search finds.

    :param starts: if given, only the best of the greedy starts at these scales.
    """
    rows, columns = choice.choose_candidates(simulation, budget)
    if not rows.size or not columns.size:
        return []
    board = boards.SearchBoard(simulation, rows, columns, budget)
    if board.scarce:
        additions = int(SCARCE * additions)
    search = ruin_recreate.RuinRecreateSearch(board, budget, simulation.seed, additions,
                                              simulation.is_cut_off)
    plan = search.find_greedy_start(starts) if starts else search.run()
    simulation.steps += math.ceil(search.used_steps
                                  * _compute_addition_steps(rows.size * columns.size))
    board.replace_plan(plan)
    order = board.order_rows() or list(plan)
    return [(int(rows[r]), int(columns[plan[r]])) for r in order]


def _apply_and_rank(simulation: sim.Simulation, start: measure.StateMeasure,
                    moves: Sequence[model.Move]) -> tuple[bool, bool, int, float]:
    """Apply the moves; return the value of the plan, lower is better."""
    cost = 0.0
    for move in moves:
        n = simulation.index[move.instance_uuid]
        cost += float(measure.compute_price(simulation.options, simulation.cost[n]))
        if simulation.grouped[n]:
            cost += max(0.0, simulation.soft_cost(move))
        simulation.apply_move(move)
    score = simulation.score
    above = bool(start.compute_excess(score))
    return start.mark_refused(score), above, 0 if above else len(moves), start.compute_value(
        score) + cost


def _apply(simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
    for move in moves:
        simulation.apply_move(move)


def _undo(simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
    for move in reversed(moves):
        simulation.undo_move(move)
