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


import collections

import pytest

from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.model import movement_hours
from tests.simulation import contract_cycles


def run(seed):
    cycles = contract_cycles.ContractCycles(seed)
    cycles.run()
    return cycles


def test_no_move_breaks_a_contract():
    counts = collections.Counter()
    for cycles in map(run, range(25)):
        assert cycles.breaches == []
        counts.update(cycles.counts)
    for what in ('moves', 'notices', 'moves that need notice', 'moves released by owners',
                 'moves that pre-flight refuses'):
        assert counts[what] > 0, what


@pytest.mark.parametrize(('module', 'name', 'broken'), [
    (contracts, '_is_forbidden', lambda grade, phase: grade == 'never'),
    (contracts, '_cap_grade', lambda stated, grade, options: options.strongest_for_tenants),
    (contracts, '_find_live_notice', lambda view, uuid: view.find_notice(uuid)),
    (cluster_view.ClusterView, 'list_move_times', lambda view, uuid: ()),
    (movement_hours.MovementHours, 'is_open', lambda hours, now, zone, seconds=0.0: True)])
def test_the_judge_finds_a_rule_that_is_broken(monkeypatch, module, name, broken):
    monkeypatch.setattr(module, name, broken)
    assert any(run(seed).breaches for seed in range(25))
