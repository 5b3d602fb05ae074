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


"""Making room for a drain."""

import dataclasses
import pathlib

import pytest

from kronos_nova import model
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer.planning import planner
from tests.scenarios import loader
from tests.unit.rebalancer.test_plan_properties import ceilings

SCENARIOS = pathlib.Path(loader.__file__).parent


def drain(*, guest_budget=5, **history):
    """Build a drain of d for which only an instance of e or f can make room."""
    scenario = loader.load(SCENARIOS / 'evacuate_makes_room.yaml')
    request = dataclasses.replace(scenario.request, budget=guest_budget,
                                  history=model.MoveHistory(**history))
    cluster = request.cluster
    names = {n: u for u, n in scenario.names.items()}
    instances = dict(cluster.instances)
    instances[names['first']] = dataclasses.replace(instances[names['first']], host='e')
    hosts = dict(cluster.hosts)
    for name in ('d', 'e'):
        used = {c: sum(i.claims[c] for i in instances.values() if i.host == name)
                for c in ('VCPU', 'MEMORY_MB')}
        hosts[name] = dataclasses.replace(hosts[name], provider=dataclasses.replace(
            hosts[name].provider, used=used))
    return dataclasses.replace(request, cluster=dataclasses.replace(
        cluster, instances=instances, hosts=hosts)), names


def accepted(request):
    plan = planner.plan(request)
    assert checker.check(plan, request.cluster, request.options, request.history,
                         request.scores, ceilings(request), request.budget) == ()
    return {m.instance_uuid: (m.to_host, str(m.phase)) for m in plan.moves}


def test_the_resident_with_the_least_memory_moves_on_where_that_makes_room():
    request, names = drain()
    assert accepted(request) == {names['rest']: ('e', 'spread'),
                                 names['wide']: ('f', 'evacuate')}


@pytest.mark.parametrize('changes', [
    {'guest_budget': 1},
    {'scope_cooling': 60.0, 'draining': frozenset({'d'})},
    {'completed': ((model.Move('x', 'e', 'f', model.Phase.SPREAD), loader.NOW - 1.0),)},
])
def test_residents_stay_where_imbalance_moves_must_wait_or_the_budget_ends(changes):
    request, _ = drain(**changes)
    assert accepted(request) == {}
