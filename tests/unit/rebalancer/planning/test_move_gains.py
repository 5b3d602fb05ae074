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

"""Gains without an undone move are those of a simulation that undoes it."""

import hypothesis
import numpy as np
import pytest

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import move_gains
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import base
from tests.unit import clouds


def planned(knobs):
    """The moves of a plan, and a simulation in which all have been made."""
    r = planner.prepare_planning_input(clouds.request(knobs))
    moves = planner.plan(r).moves
    simulation = sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)
    for move in moves:
        simulation.apply_move(move)
    hypothesis.assume(moves and simulation.trusted)
    return simulation, moves


def gains_when_undone(simulation, move):
    """The gain of the move, and by number of host that of the host in its place."""
    n, whole = simulation.index[move.instance_uuid], simulation.compute_combined()
    every = np.arange(len(simulation.hosts))
    simulation.undo_move(move)
    rest, effect = simulation.compute_combined(), simulation.compute_effects(np.array([n]), every)
    refused = np.zeros(len(every), dtype=bool)
    if move.phase is model.Phase.SPREAD:
        refused = (effect.refused[0] | (effect.combined[0] >= rest - base.EPSILON)
                   | (simulation.group_changes(n, every)[1] > 0))
    simulation.apply_move(move)
    return rest - whole, [None if no else rest - combined for combined, no in zip(
        effect.combined[0].tolist(), refused, strict=True)]


@pytest.mark.turns(2)
@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(clouds.knobs(mode='spread'))
def test_every_host_gains_as_much_as_when_the_move_is_undone(knobs):
    simulation, moves = planned(knobs)
    for move in moves:
        gain, by_host = gains_when_undone(simulation, move)
        gains = move_gains.MoveGains(simulation, moves)
        assert gains.compute_gain(move.instance_uuid) == pytest.approx(gain, abs=1e-9)
        for host, expected in zip(simulation.hosts, by_host, strict=True):
            if host != move.from_host:  # the effect of a move to the own host has no meaning
                found = gains.compute_gain_at(move.instance_uuid, host)
                assert (found is None) == (expected is None)
                assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.turns(2)
@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(clouds.knobs(mode='spread'))
def test_scores_are_to_the_last_bit_sums_in_the_order_of_the_moves(knobs):
    simulation, moves = planned(knobs)
    before = simulation.score.copy()
    simulation.reorder_moves(moves[::-1])
    for move in moves[::-1]:
        simulation.undo_move(move)
    for move in moves[::-1]:
        simulation.apply_move(move)
    backwards = simulation.score.copy()
    simulation.reorder_moves(moves)
    assert (simulation.score == before).all()
    simulation.reorder_moves(moves[::-1])
    assert (simulation.score == backwards).all()
