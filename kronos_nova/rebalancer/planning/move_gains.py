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

"""Gains of planned moves and of their alternates, measured on a simulation of the plan."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.simulation import arrays
from kronos_nova.rebalancer.strategies import base


def rank_alternates(simulation: sim.Simulation,
                 moves: Sequence[model.Move]) -> tuple[model.Move, ...]:
    """Return the moves with their alternates best first, and the improvement of each.

    That is the combined imbalance of the plan without the move less that of the plan
    with the alternate in its place. Spread keeps only alternates that it may choose.
    """
    if not simulation.trusted:
        return tuple(moves)
    found = []
    for move in measure_gains(simulation, moves):
        scores: dict[str, float] = {}
        if move.alternates:
            gains = _compute_alternate_gains(simulation, move, move.alternates)
            # The last bits may not decide between ties.
            scores = {host: round(gain, 12) for host, gain
                      in zip(move.alternates, gains, strict=True)
                      if gain is not None}
        best = sorted(scores, key=lambda host: -scores[host])  # ties: the emptiest first
        found.append(dataclasses.replace(
            move, alternates=tuple(best),
            alternate_improvements=tuple(scores[host] for host in best)))
    return tuple(found)


def measure_gains(simulation: sim.Simulation,
                     moves: Sequence[model.Move]) -> tuple[model.Move, ...]:
    """Return the moves with the gain of each, and with the scores of its hosts.

    :param moves: in the plan's order; applied to ``simulation``, which is left as it was.
    """
    if not simulation.trusted:
        return tuple(moves)
    whole = simulation.compute_combined()
    gains = []
    for move in moves:
        simulation.undo_move(move)
        # The last bits are rounding errors.
        gains.append(round(simulation.compute_combined() - whole, 12))
        simulation.apply_move(move)
    # Each was applied again in the plan's order, and so are the changes of scores.
    return tuple(dataclasses.replace(move, gain=gain, changes=_trace_changes(simulation, move))
                 for move, gain in zip(moves, gains, strict=True))


def _trace_changes(simulation: sim.Simulation, move: model.Move) -> tuple[model.ScoreChange, ...]:
    """Return the scores of source and destination, before and after an applied move, by policy."""
    ends = [(host, *simulation.trace_scores(move, host)) for host in (move.from_host, move.to_host)]
    found = []
    for number, policy in enumerate(simulation.policies):
        values: list[float | None] = []
        for host, before, after in ends:
            known = simulation.view.load.compute_level(policy.name, host) is not None
            values += [float(before[number]), float(after[number])] if known else [None, None]
        found.append(model.ScoreChange(policy.name, *values))
    return tuple(found)


def _compute_alternate_gains(simulation: sim.Simulation, move: model.Move,
                     hosts: Sequence[str]) -> list[float | None]:
    """Compute the gain of each host in place of the move's destination, with all other moves.

    :param move: applied to ``simulation``, which is left as it was.
    :returns: the fall of combined imbalance against the plan without the move; None: spread may not
        choose the host, because a policy would rise and end above its threshold, soft groups would
        suffer, or not moving would be as good.
    """
    n = simulation.index[move.instance_uuid]
    columns = arrays.make_int_array(simulation.host_index[host] for host in hosts)
    simulation.undo_move(move)
    effect = simulation.compute_effects(arrays.make_int_array([n]), columns)
    gains: list[float | None] = list((simulation.compute_combined() - effect.combined[0]).tolist())
    if move.phase is model.Phase.SPREAD:
        refused = effect.refused[0] | (effect.combined[0]
                                       >= simulation.compute_combined() - base.EPSILON)
        if simulation.grouped[n]:
            refused |= simulation.group_changes(n, columns)[1] > 0
        gains = [None if no else gain for gain, no in zip(gains, refused, strict=True)]
    simulation.apply_move(move)
    return gains


def make_alternate_test(simulation: sim.Simulation,
                         moves: Sequence[model.Move]) -> Callable[[model.Move, str], bool]:
    """Return the test that a host must pass to become an alternate of a move.

    :param moves: applied to ``simulation``.
    """
    planned = {m.instance_uuid: m for m in moves}
    known: dict[str, frozenset[str]] = {}

    def is_suitable_host(move: model.Move, host: str) -> bool:
        if move.phase is not model.Phase.SPREAD or not simulation.trusted:
            return True
        uuid = move.instance_uuid
        if uuid not in known:
            gains = _compute_alternate_gains(simulation, planned[uuid], simulation.hosts)
            known[uuid] = frozenset(
                name for name, gain in zip(simulation.hosts, gains, strict=True)
                if gain is not None)
        return host in known[uuid]

    return is_suitable_host


def make_parking_test(simulation: sim.Simulation,
                       moves: Sequence[model.Move]) -> Callable[[model.Move], bool]:
    """Return the test whether another destination than the planned one is better than none.

    A whole-host pack never accepts one: an instance that is left over keeps its host.
    """
    planned = {m.instance_uuid: m for m in moves}

    def is_better_than_none(move: model.Move) -> bool:
        if move.phase in (model.Phase.EVACUATE, model.Phase.PACK):
            return move.phase is model.Phase.EVACUATE
        simulation.undo_move(planned[move.instance_uuid])
        if move.phase is model.Phase.AFFINITY:
            better = simulation.compute_group_repair(move) < 0
        else:
            before = simulation.compute_combined()
            simulation.apply_move(move)
            better = simulation.compute_combined() < before - base.EPSILON
            simulation.undo_move(move)
        simulation.apply_move(planned[move.instance_uuid])
        return better

    return is_better_than_none
