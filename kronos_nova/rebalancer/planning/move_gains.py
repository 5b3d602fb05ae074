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
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.simulation import extremes
from kronos_nova.rebalancer.strategies import base


class _PolicyRest(NamedTuple):
    """A policy's scores in the plan without one of its moves.

    ``at_source``: the source's score when the instance has left all the same. ``highest`` giver
    then; ``lowest``: two takers other than the ends, and their hosts. Those of the ends are
    infinite where they do not count.
    """

    usage: float
    at_destination: float
    highest: float
    lowest: tuple[tuple[float, int], tuple[float, int]]
    lowest_source: float
    lowest_destination: float
    imbalance: float


class _PlanRest(NamedTuple):
    """The plan without one of its moves, ``destination`` by number."""

    move: model.Move
    destination: int
    grouped: bool
    policies: list[_PolicyRest]
    combined: float


class MoveGains:
    """Gains of the moves of a plan, and of other destinations in their place.

    A gain is the combined imbalance of the plan without the move less that of the plan with it. A
    move changes the scores of its two ends alone, so that the highest and lowest other hosts give
    each gain without a change of the simulation.

    :param simulation: with all moves applied; watched until it changes.
    """

    def __init__(self, simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
        self._simulation = simulation
        self._moves = {m.instance_uuid: m for m in moves}
        # Both ends of the move and an alternate are left out at once.
        self._extremes = extremes.ImbalanceExtremes(simulation.score, simulation.givers,
                                                    simulation.takers, depth=4)
        self._weights = simulation.weights.tolist()
        self._thresholds = simulation.thresholds.tolist()
        self._rests: dict[str, _PlanRest] = {}
        self._gains: dict[tuple[str, str], float | None] = {}

    def compute_gain(self, uuid: str) -> float:
        """Compute the gain of the move of an instance."""
        return self._find_rest(uuid).combined - self._simulation.compute_combined()

    def compute_gain_at(self, uuid: str, host: str) -> float | None:
        """Compute the gain of a host in place of the destination of an instance's move.

        :returns: None: spread may not choose the host, because a policy would rise and end above
            its threshold, soft groups would suffer, or not moving would be as good.
        """
        key = uuid, host
        if key not in self._gains:
            self._gains[key] = self._judge_alternate(self._find_rest(uuid), host)
        return self._gains[key]

    def is_suitable_alternate(self, move: model.Move, host: str) -> bool:
        """Return whether a move of the plan may have the host as an alternate."""
        return (move.phase is not model.Phase.SPREAD or not self._simulation.trusted
                or self.compute_gain_at(move.instance_uuid, host) is not None)

    def _judge_alternate(self, rest: _PlanRest, host: str) -> float | None:
        simulation, h = self._simulation, self._simulation.host_index[host]
        gives, takes = simulation.givers.item(h), simulation.takers.item(h)
        combined, refused = 0.0, False
        for p, known in enumerate(rest.policies):
            (first, lowest_host), (second, _) = known.lowest
            low = min(second if lowest_host == h else first, known.lowest_source)
            if h == rest.destination:
                after = known.at_destination
            else:
                after = simulation.score.item(p, h)
                low = min(low, known.lowest_destination)
            after += known.usage / simulation.capacity.item(p, h)
            high = max(known.highest, after) if gives else known.highest
            imbalance = max(high - (min(low, after) if takes else low), 0.0)
            combined += self._weights[p] * imbalance
            refused |= (imbalance > known.imbalance + metrics.ROUNDING
                        and imbalance > self._thresholds[p] + metrics.ROUNDING)
        if rest.move.phase is model.Phase.SPREAD and (
                refused or combined >= rest.combined - base.EPSILON
                or (rest.grouped and self._harms_soft_groups(rest.move, host))):
            return None
        return rest.combined - combined

    def _harms_soft_groups(self, move: model.Move, host: str) -> bool:
        self._simulation.view.undo_landing(move)
        _, soft = self._simulation.group_change(dataclasses.replace(move, to_host=host))
        self._simulation.view.land_move(move)
        return soft > 0

    def _find_rest(self, uuid: str) -> _PlanRest:
        if uuid not in self._rests:
            self._rests[uuid] = self._measure_rest(self._moves[uuid])
        return self._rests[uuid]

    def _measure_rest(self, move: model.Move) -> _PlanRest:
        simulation = self._simulation
        n = simulation.index[move.instance_uuid]
        s, d = (simulation.host_index[host] for host in (move.from_host, move.to_host))
        sources, destinations = (simulation.score_history.find_scores_without(n, h).tolist()
                                 for h in (s, d))
        policies, combined = [], 0.0
        for p, weight in enumerate(self._weights):
            usage = simulation.usage.item(p, n)
            at_source = sources[p] - usage / simulation.capacity.item(p, s)
            high = self._extremes.find_highest_without(p, s, d)
            lowest = [entry for entry in zip(*self._extremes.list_lowest(p), strict=True)
                      if entry[1] != s and entry[1] != d]
            low = lowest[0][0]
            source_low = destination_low = math.inf
            if simulation.givers.item(d):
                high = max(high, destinations[p])
            without = max(high, sources[p]) if simulation.givers.item(s) else high
            if simulation.givers.item(s):
                high = max(high, at_source)
            if simulation.takers.item(d):
                low = min(low, destinations[p])
                destination_low = destinations[p]
            if simulation.takers.item(s):
                low = min(low, sources[p])
                source_low = at_source
            imbalance = max(without - low, 0.0)
            policies.append(_PolicyRest(usage, destinations[p], high, (lowest[0], lowest[1]),
                                        source_low, destination_low, imbalance))
            combined += weight * imbalance
        return _PlanRest(move, d, simulation.grouped.item(n), policies, combined)


def rank_alternates(simulation: sim.Simulation, moves: Sequence[model.Move],
                    gains: MoveGains | None = None) -> tuple[model.Move, ...]:
    """Return the moves with their alternates best first, and the improvement of each.

    That is the combined imbalance of the plan without the move less that of the plan
    with the alternate in its place. Spread keeps only alternates that it may choose.

    :param gains: of the same moves; None: they are not measured yet.
    """
    if not simulation.trusted:
        return tuple(moves)
    gains, ranked = gains or MoveGains(simulation, moves), []
    for move in _measure_moves(simulation, gains, moves):
        # The last bits may not decide between ties.
        scores = {host: round(gain, 12) for host in move.alternates
                  if (gain := gains.compute_gain_at(move.instance_uuid, host)) is not None}
        best = sorted(scores, key=lambda host: -scores[host])  # ties: the emptiest first
        ranked.append(dataclasses.replace(
            move, alternates=tuple(best),
            alternate_improvements=tuple(scores[host] for host in best)))
    return tuple(ranked)


def measure_gains(simulation: sim.Simulation,
                  moves: Sequence[model.Move]) -> tuple[model.Move, ...]:
    """Return the moves with the gain of each, and with the scores of its hosts.

    :param moves: in the plan's order; applied to ``simulation``.
    """
    if not simulation.trusted:
        return tuple(moves)
    return tuple(_measure_moves(simulation, MoveGains(simulation, moves), moves))


def _measure_moves(simulation: sim.Simulation, gains: MoveGains,
                   moves: Sequence[model.Move]) -> Iterator[model.Move]:
    simulation.reorder_moves(moves)
    for move in moves:
        # The last bits are rounding errors, and so is the sign of -0.0.
        gain = round(gains.compute_gain(move.instance_uuid), 12) + 0.0
        yield dataclasses.replace(move, gain=gain, changes=_trace_changes(simulation, move))


def _trace_changes(simulation: sim.Simulation, move: model.Move) -> tuple[model.ScoreChange, ...]:
    """Return the scores of source and destination, before and after an applied move, by policy."""
    n = simulation.index[move.instance_uuid]
    ends = [(host, *(scores.tolist() for scores in simulation.score_history.find_last_change(
        n, simulation.host_index[host]))) for host in (move.from_host, move.to_host)]
    changes = []
    for number, policy in enumerate(simulation.policies):
        values: list[float | None] = []
        for host, before, after in ends:
            known = simulation.view.load.compute_level(policy.name, host) is not None
            values += [before[number], after[number]] if known else [None, None]
        changes.append(model.ScoreChange(policy.name, *values))
    return tuple(changes)


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
