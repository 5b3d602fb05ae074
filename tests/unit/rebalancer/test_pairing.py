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

"""Spread moves that are both or none: those whose first one alone would do harm."""

import dataclasses

import hypothesis

from kronos_nova import model
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import planner
from kronos_nova.rebalancer import simulation as sim
from tests.scenarios import loader
from tests.unit import clouds
from tests.unit.rebalancer import brute

SWAPS = 'spread_swaps_where_no_single_move_helps'


def simulate(request):
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options)


def alone(request, move):
    """The combined imbalance after this move alone, less what it is."""
    simulation = simulate(request)
    before = simulation.combined()
    simulation.apply(move)
    return simulation.combined() - before


@clouds.examples(400)
@hypothesis.given(clouds.knobs(mode='spread', drains=False))
def test_what_is_paired_is_legal_and_does_harm_by_half(knobs):
    request = clouds.request(knobs)
    plan = planner.plan(request)
    assert checker.check(plan, request.cluster, request.options, request.history, request.scores,
                         brute.ceilings_of(request), request.budget) == ()
    moves = {m.instance_uuid: m for m in plan.moves}
    for swap in plan.swaps:
        assert swap.parking is None and moves[swap.first].phase is model.Phase.SPREAD
        assert alone(request, moves[swap.first]) > 0


def test_a_swap_where_no_single_move_helps_is_both_or_none():
    request = loader.load(loader.HERE / f'{SWAPS}.yaml').request
    plan = planner.plan(request)
    swap, = plan.swaps
    one, other = plan.moves
    assert {one.instance_uuid, other.instance_uuid} == {swap.first, swap.second}
    assert other.requires == (one.instance_uuid,) and (one.wave, other.wave) == (0, 1)
    assert one.alternates == other.alternates == ()
    assert alone(request, one) > 0
    assert alone(request, one) <= alone(request, dataclasses.replace(other, requires=()))
    for dropped in (swap.first, swap.second):
        left = planner.without(request, plan, [dropped], 'why not')
        assert left.moves == () and left.swaps == ()


def test_opposite_moves_that_do_good_by_themselves_are_bound_to_nothing():
    found = 0
    for seed in range(400):
        request = clouds.request(clouds.Knobs(seed=seed, hosts=3, instances=20, policies=2,
                                              budget=6))
        plan = planner.plan(request)
        swapped = {u for s in plan.swaps for u in (s.first, s.second)}
        for one in plan.moves:
            for other in plan.moves:
                if ((one.from_host, one.to_host) == (other.to_host, other.from_host)
                        and not swapped & {one.instance_uuid, other.instance_uuid}):
                    found += 1
                    assert (min(alone(request, one), alone(request, other)) <= 1e-9
                            or one.requires or other.requires)
        if found > 3:
            return
    assert found
