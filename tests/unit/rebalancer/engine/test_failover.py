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

"""The engine keeps the failover certificate from cycle to cycle."""

import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.planning import failover
from tests.unit.rebalancer.engine import test_engine
from tests.unit.rebalancer.planning import test_failover


def test_hold_leaves_the_last_certificate_for_the_cycle_after_it(tmp_path):
    world = test_engine.World(tmp_path)
    world.conf.set_override('failover', 'warn', 'engine')
    engine = world.engine()
    first, = engine.run_cycle()
    kept = engine._scopes._certificates[model.UNASSIGNED]
    assert kept.hold is None and first['failover']['safe'] + first['failover']['unsafe'] == 2
    whole = world.collector.cluster
    world.collector.cluster = dataclasses.replace(whole, placement_known=False)
    held, = engine.run_cycle()
    assert held['failover'] == {}
    assert engine._scopes._certificates[model.UNASSIGNED] is kept
    world.collector.cluster = whole
    engine.run_cycle()
    assert engine._scopes._certificates[model.UNASSIGNED].turn == kept.turn + 1


def test_instances_that_no_host_may_take_make_no_host_unsafe_in_the_report():
    group = model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'t1', 't2'}))
    request = test_failover.small(
        3, [('t1', 'h0', 1), ('t2', 'h0', 1), ('a', 'h1', 4), ('b', 'h2', 1)], [group])
    certificate = test_failover.certify(request)
    assert len(certificate.list_verdicts(failover.FailureState.UNSAFE)) == 2
    assert cycle_report._count_failover_states(certificate) == {
        'safe': 1, 'unsafe': 1, 'unknown': 0, 'unplaceable': 2}
