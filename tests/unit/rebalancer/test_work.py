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


"""How much work a plan is, counted: nothing here is timed.

Defect 25 of Kronos 0.2.0: every instance is tried on every host, rules and
all, 101 s for one move of the largest cluster below.
"""

import dataclasses

import pytest

from benchmarks import clusters
from benchmarks import planner as benchmark
from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner

MOVES = 10


@dataclasses.dataclass
class Work:
    """``judged``: moves shown to the rules; ``steps``: as max_steps counts."""

    plan: model.Plan
    judged: int
    steps: int


def work(monkeypatch, hosts, instances, objective):
    """Plan a cluster with 300 server groups under the default max_steps."""
    case = clusters.build(
        clusters.Spec('counted', hosts, instances, grouped=900 / instances), seed=0)
    assert len(case.cluster.groups) == 300
    request = dataclasses.replace(
        benchmark.request(case, MOVES),
        options=model.PlanningOptions(dry_run=False, objective=objective))
    judged, simulations = [], []

    class Counted(sim.Simulation):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            simulations.append(self)

    monkeypatch.setattr(sim, 'Simulation', Counted)
    monkeypatch.setattr(constraints, 'judge_move', lambda *a, check=constraints.judge_move: (
        judged.append(1), check(*a))[1])
    return Work(planner.plan(request), len(judged), max(s.steps for s in simulations))


@pytest.mark.parametrize('objective', ['kronos', 'balanced'])
def test_defect_25_few_moves_are_shown_to_the_rules(monkeypatch, objective):
    """Of the two million pairs of an instance and a host, for each move."""
    found = work(monkeypatch, 200, 10_000, objective)
    assert len(found.plan.moves) == MOVES and not found.plan.truncated
    assert found.judged <= 200 * MOVES


def test_defect_25_the_greedy_s_work_does_not_grow_with_the_cluster(monkeypatch):
    """The array work of ten times the instances on ten times the hosts is that
    of the ends only: not even twice as much."""
    few = work(monkeypatch, 20, 1_000, 'kronos')
    many = work(monkeypatch, 200, 10_000, 'kronos')
    assert len(few.plan.moves) == len(many.plan.moves) == MOVES
    assert many.judged <= 2 * few.judged
    assert many.steps <= 2 * few.steps
    assert many.steps <= 20 * MOVES
