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


"""What an instance claims, and when that cannot be judged."""

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import allocations

HOST = model.Host(
    'host1', uuid='root', provider=model.Provider('root'), sharing=frozenset({'nfs'}),
    nested=(model.Provider('gpu0', parent_uuid='root'),
            model.Provider('gpu1', parent_uuid='root')))
BARE = model.Host('host1', uuid='root')
VM = model.Instance('vm', 'host1')


def test_claims_are_sums_over_the_tree_and_its_sharing_providers() -> None:
    own = {'root': {'VCPU': 2}, 'gpu1': {'VGPU': 1}, 'gpu0': {'VGPU': 1}, 'nfs': {'DISK_GB': 9}}
    found = allocations.attach_claims(VM, own, HOST)
    assert found.allocations == own
    assert found.claims == {'VCPU': 2, 'VGPU': 2, 'DISK_GB': 9}
    assert found.pinned is None


@pytest.mark.parametrize(('own', 'host', 'reason'), [
    ({'root': {'VCPU': 1}, 'other': {'VF': 1}}, HOST, 'other-allocations'),
    ({'other': {'VCPU': 1}}, HOST, 'other-allocations'),
    ({'nfs': {'DISK_GB': 1}}, HOST, 'no-allocations'), ({}, HOST, 'no-allocations'),
    ({'gpu0': {'VCPU': 1}, 'nfs': {'DISK_GB': 1}}, HOST, 'no-allocations'),
    ({}, BARE, 'no-provider'), ({'root': {'VCPU': 1}}, BARE, 'no-provider')])
def test_allocations_that_cannot_be_judged_pin_the_instance(own: dict[str, dict[str, int]],
                                                            host: model.Host, reason: str) -> None:
    found = allocations.attach_claims(VM, own, host)
    assert str(found.pinned).startswith(f'{reason}: ')
    assert found.allocations.keys() <= {'root', 'gpu0', 'nfs'}, 'what is elsewhere is no claim here'


@pytest.mark.parametrize(('own', 'migration'), [
    pytest.param({'far': {'VCPU': 2}}, {'root': {'VCPU': 2}, 'gpu0': {'VGPU': 1}},
                 id='it is on its way: the migration holds the source'),
    pytest.param({'root': {'VCPU': 2}, 'gpu0': {'VGPU': 1}}, {'far': {'VCPU': 2}},
                 id='it has arrived, the record is open'),
    pytest.param({'root': {'VCPU': 2}, 'gpu0': {'VGPU': 1}, 'far': {'VCPU': 2}}, {},
                 id='an evacuation: the instance holds both'),
    pytest.param({}, {'root': {'VCPU': 2}, 'gpu0': {'VGPU': 1}}, id='not scheduled yet')])
def test_an_instance_in_flight_claims_its_source_allocations_once(
        own: dict[str, dict[str, int]], migration: dict[str, dict[str, int]]) -> None:
    found = allocations.find_flight_claims(VM, own, [migration], HOST)
    assert found.allocations == {'root': {'VCPU': 2}, 'gpu0': {'VGPU': 1}}
    assert (found.claims, found.pinned) == ({'VCPU': 2, 'VGPU': 1}, None)


def test_an_instance_in_flight_without_source_claims_its_other_allocations() -> None:
    found = allocations.find_flight_claims(VM, {'far': {'VCPU': 2}}, [{}], HOST)
    assert found.claims == {'VCPU': 2}
    assert allocations.find_flight_claims(VM, {}, [], HOST).claims == {}


def test_instances_are_displaced_whose_allocations_are_elsewhere_or_nowhere() -> None:
    """Host2 is not planned; host3 has no provider."""
    hosts = {'host1': model.Host('host1', uuid='u1', provider=model.Provider('u1')),
             'host4': model.Host('host4', uuid='u4', provider=model.Provider('u4'),
                                 nested=(model.Provider('n4', parent_uuid='u4'),)),
             'host3': model.Host('host3', uuid='u3')}
    vcpu = {'VCPU': 1}
    places = {
        'there': ('host1', {'u1': vcpu}), 'nested': ('host4', {'n4': vcpu}),
        'sharing': ('host1', {'u1': vcpu, 'nfs': vcpu}), 'unplanned': ('host2', {}),
        'unknown': ('host3', {}), 'none': ('host1', {}), 'moved': ('host1', {'u4': vcpu}),
        'evacuated': ('host1', {'u1': vcpu, 'u4': vcpu}), 'came': ('host2', {'u4': vcpu}),
        'booted': ('', {'u1': vcpu}), 'vm': ('host1', {'u4': vcpu})}
    instances = {uuid: model.Instance(uuid, host) for uuid, (host, _own) in places.items()}
    assert set(allocations.list_displaced(
        instances, hosts, {uuid: own for uuid, (_host, own) in places.items()},
        {'vm'})) == {'none', 'moved', 'evacuated', 'came', 'booted'}, 'vm is under way'
