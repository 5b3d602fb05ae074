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

"""A cloud as it would be: more hosts, a drain, another load."""

import re

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import what_if


def supposed():
    inventory = {'VCPU': model.Inventory(16)}
    root = model.Provider('p', inventories=inventory, used={'VCPU': 8}, name='a')
    child = model.Provider('c', inventories={'VGPU': model.Inventory(2)}, used={'VGPU': 1},
                           name='gpu', parent_uuid='p')
    hosts = {'a': model.Host('a', uuid='h', provider=root, nested=(child,)),
             'b': model.Host('b', uuid='i'), 'z': model.Host('z', uuid='j')}
    cluster = model.Cluster(
        hosts, {'i1': model.Instance('i1', 'a'), 'i2': model.Instance('i2', 'a')},
        {name: model.Service(name, status='disabled', disabled_reason='x') for name in hosts},
        aggregates={'rack': ('a', 'b'), 'other': ('z',)}, scope='rack',
        scope_hosts=frozenset('ab'))
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', {'a': 0.6, 'b': 0.2}, {'a': 0.7, 'b': 0.2}, {'a': 10.0, 'b': 10.0},
        {'i1': 2.0, 'i2': 3.0}, means={'i1': 1.0}, deviations={'i1': 0.5})})
    return what_if.SupposedCluster(cluster, scores)


def test_a_host_more_is_empty_but_for_what_no_instance_explains():
    found = supposed().add_hosts('a', 2)
    assert found.cluster.scope_hosts == {'a', 'b', 'a+1', 'a+2'}
    assert found.cluster.aggregates == {'rack': ('a', 'b', 'a+1', 'a+2'), 'other': ('z',)}
    host = found.cluster.hosts['a+1']
    assert host.provider.used == {} and host.sum_inventories('VCPU') == 16
    assert host.nested[0].used == {} and host.nested[0].parent_uuid == host.provider.uuid
    uuids = [p.uuid for h in found.cluster.hosts.values() for p in h.tree]
    assert len(set(uuids)) == len(uuids) == 6
    assert found.cluster.services['a+1'].available
    cpu = found.scores.policies['cpu']
    assert cpu.hosts['a+1'] == pytest.approx(0.1) and cpu.fill['a+2'] == pytest.approx(0.2)
    assert cpu.capacity['a+1'] == 10.0 and cpu.hosts['a'] == 0.6


def test_a_name_that_is_taken_is_not_used_again():
    found = supposed().add_hosts('a', 1).add_hosts('a', 1)
    assert {'a+1', 'a+2'} <= found.cluster.hosts.keys()


def test_a_host_of_another_scope_adds_none_to_this_one():
    found = supposed().add_hosts('z', 1)
    assert found.cluster.scope_hosts == {'a', 'b'} and 'z+1' in found.cluster.hosts
    assert 'z+1' not in found.scores.policies['cpu'].hosts, 'its load is not known here'


def test_a_drained_host_is_disabled_and_no_other():
    base = supposed().add_hosts('a', 1)
    assert base.disable_host('a', 'why').cluster == base.cluster, 'it has its reason already'
    assert base.disable_host('a', what_if.REASON).cluster.services['a'].disabled_reason == (
        what_if.REASON)
    found = base.disable_host('a+1', 'why')
    service = found.cluster.services['a+1']
    assert (service.enabled, service.up, service.disabled_reason) == (False, True, 'why')
    assert base.cluster.services['a+1'].enabled, 'the cloud itself stays as it is'


def test_more_load_is_more_of_everything_but_room():
    cpu = supposed().multiply_load(2.0).scores.policies['cpu']
    assert cpu.hosts == {'a': 1.2, 'b': 0.4} and cpu.fill == {'a': 1.4, 'b': 0.4}
    assert cpu.usages == {'i1': 4.0, 'i2': 6.0} and cpu.means == {'i1': 2.0}
    assert cpu.deviations == {'i1': 1.0} and cpu.capacity == {'a': 10.0, 'b': 10.0}


@pytest.mark.parametrize('ask', [lambda s: s.add_hosts('nowhere', 1),
                                 lambda s: s.disable_host('nowhere', 'why')])
def test_a_host_that_is_not_there_is_named(ask):
    with pytest.raises(exception.ConfigError, match='nowhere: no such compute host'):
        ask(supposed())


@pytest.mark.parametrize(('options', 'reason', 'drained'), [
    ({}, 'a change', False), ({'evacuate_disabled_hosts': True}, 'a change', True),
    ({'evacuate_disabled_hosts': True, 'drain_reason_regex': '^maint'}, 'a change', False),
    ({'evacuate_disabled_hosts': True, 'drain_reason_regex': '^maint'}, 'maintenance', True),
    ({'evacuate_disabled_hosts': True, 'drain_reason_regex': '(?i)maint'}, 'what if', True)])
def test_what_if_drains_its_hosts_beside_those_of_the_reason_regex(options, reason, drained):
    pattern = what_if.build_reason_regex(model.PlanningOptions(**options))
    assert re.search(pattern, what_if.REASON)
    assert bool(re.search(pattern, reason)) is drained
