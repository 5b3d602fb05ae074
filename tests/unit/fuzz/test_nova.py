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


"""Nova's and Placement's JSON: sound values, or one ApiError."""

import json
import math
import re

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_contents
from kronos_nova.rebalancer.clients import server_constraints
from tests.unit.fuzz import junk
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.clients import test_api

VM, OTHER, NODE = (f'{n}b0e3ab5-6c1c-4b8e-9a0a-0d5b3b7f1c11' for n in '123')
SERVER = answers.server(VM, server_groups=[OTHER]) | {
    'OS-SRV-USG:launched_at': '2024-01-01T00:00:00.000000', 'metadata': {'stay': 'true'},
    'tags': ['stay'], 'OS-EXT-STS:power_state': 1,
    'scheduler_hints': {'different_host': [OTHER], 'same_host': OTHER, 'group': [OTHER]},
    'image': {'id': 'image-1', 'properties': {'os_distro': 'debian'}},
    'flavor': answers.server(VM)['flavor'] | {'extra_specs': {'hw:cpu_policy': 'shared'}}}
MIGRATION = answers.migration(7, uuid=OTHER, instance_uuid=VM)
GROUP = {'id': OTHER, 'name': 'g', 'policy': 'anti-affinity', 'members': [VM],
         'rules': {'max_server_per_host': 2}}
INVENTORY = {'total': 8, 'reserved': 1, 'allocation_ratio': 4.0, 'min_unit': 1, 'max_unit': 8,
             'step_size': 1}
NOVA = {
    '/os-services': {'services': [{
        'host': 'h1', 'binary': 'nova-compute', 'status': 'enabled', 'state': 'up', 'zone': 'nova',
        'disabled_reason': None, 'forced_down': False}]},
    '/os-hypervisors/detail': {'hypervisors': [{
        'id': NODE, 'hypervisor_hostname': 'h1', 'hypervisor_type': 'QEMU',
        'hypervisor_version': 8002000, 'service': {'host': 'h1'}}]},
    '/os-aggregates': {'aggregates': [{'name': 'a', 'hosts': ['h1'], 'metadata': {'ssd': 'true'}}]},
    '/servers/detail': {'servers': [SERVER], 'servers_links': [
        {'rel': 'next', 'href': 'http://x/servers/detail?marker=1'}]},
    f'/servers/{VM}': {'server': SERVER},
    '/os-server-groups': {'server_groups': [GROUP]},
    f'/os-server-groups/{OTHER}': {'server_group': GROUP},
    '/os-migrations': {'migrations': [MIGRATION]},
    f'/servers/{VM}/os-instance-actions': {'instanceActions': [
        {'action': 'live-migration', 'request_id': 'r', 'message': None}]},
    f'/servers/{VM}/os-instance-actions/r': {'instanceAction': {'events': [{'details': 'x'}]}}}
PLACEMENT = {
    '/resource_providers': {'resource_providers': [
        {'uuid': NODE, 'name': 'h1', 'root_provider_uuid': NODE, 'parent_provider_uuid': None,
         'generation': 3}]},
    f'/resource_providers/{NODE}/inventories': {
        'inventories': {'VCPU': INVENTORY}, 'resource_provider_generation': 3},
    f'/resource_providers/{NODE}/usages': {
        'usages': {'VCPU': 2}, 'resource_provider_generation': 3},
    f'/resource_providers/{NODE}/traits': {
        'traits': ['HW_CPU_X86_AVX'], 'resource_provider_generation': 3},
    f'/resource_providers/{NODE}/aggregates': {'aggregates': [OTHER]},
    f'/resource_providers/{NODE}/allocations': {
        'allocations': {VM: {'resources': {'VCPU': 2}}}, 'resource_provider_generation': 3},
    f'/allocations/{VM}': {'allocations': {NODE: {'resources': {'VCPU': 2}}}}}
NOVA_READS = [
    lambda n: n.read_services(), lambda n: n.read_hypervisors(), lambda n: n.hypervisors_of('h1'),
    lambda n: n.read_aggregates(), lambda n: n.list_servers(), lambda n: n.list_servers(9.0),
    lambda n: n.read_server(VM),
    lambda n: n.server_groups(), lambda n: n.server_group(OTHER), lambda n: n.list_migrations(VM),
    lambda n: n.migrations_under_way(1.7e9), lambda n: n.migrations_of_host('h1', 1.7e9),
    lambda n: n.list_actions(VM), lambda n: n.action_events(VM, 'r')]
PLACEMENT_READS = [
    lambda p: p.read_providers(), lambda p: provider_contents.read_provider(p, NODE),
    lambda p: provider_contents.read_provider(p, NODE, shares=True),
    lambda p: p.read_traits(NODE), lambda p: p.read_aggregates(NODE),
    lambda p: p.allocations_on(NODE), lambda p: p.allocations_of(VM)]


def connection(document, maximum='2.100'):
    """Answers each path; a list of groups ends at its second page."""
    found = answers.Answers(maximum)
    found.answers = {path: [body] for path, body in document.items()}
    found.answers.setdefault('/os-server-groups', []).append({'server_groups': [GROUP]})
    return found


def walk(value):
    """Every plain value of what a reader has made."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(key)
            yield from walk(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from walk(inner)
    elif hasattr(value, '__dataclass_fields__'):
        for name in value.__dataclass_fields__:
            yield from walk(getattr(value, name))
    else:
        yield value


def sound(value):
    """Numbers can be counted with; what stands in paths stays in its place."""
    for plain in walk(value):
        if isinstance(plain, int | float):
            assert math.isfinite(plain) and 0 <= plain < 2**63
    for name in ('uuid', 'instance_uuid', 'root_uuid'):
        if hasattr(value, name):
            assert re.fullmatch(r'[\w.:-]{1,255}', getattr(value, name))


def read(reads, made):
    for one in reads:
        try:
            found = one(made)
        except api.ApiError as e:
            assert len(str(e)) < 2000 and '\n' not in str(e)
            continue
        if one not in NOVA_READS[-2:]:  # these are raw, for a message
            for value in found.values() if isinstance(found, dict) else (
                    found if isinstance(found, list) else [found]):
                sound(value)


@pytest.mark.parametrize('server', [
    {'id': VM, 'status': ['ACTIVE']}, {'id': VM, 'status': {'a': 1}}, {'status': 'DELETED'},
    {'status': 'SOFT_DELETED', 'id': 7}])
def test_server_of_a_wrong_kind_in_the_list_is_an_error_of_nova(server):
    nova = nova_api.NovaApi(connection({**NOVA, '/servers/detail': {'servers': [server]}}),
                            server_constraints.DisruptionSettings('stay', 'stay'))
    with pytest.raises(api.ApiError):
        nova.list_servers()


@junk.examples(150)
@hypothesis.given(junk.spoiled(NOVA))
def test_nothing_that_nova_says_causes_another_error(document):
    for maximum in ('2.72', '2.100'):
        read(NOVA_READS, nova_api.NovaApi(
            connection({**NOVA, **_bodies(document)}, maximum),
            server_constraints.DisruptionSettings('stay', 'stay')))


@junk.examples(150)
@hypothesis.given(junk.spoiled(PLACEMENT))
def test_nothing_that_placement_says_causes_another_error(document):
    read(PLACEMENT_READS, placement_api.PlacementApi(
        connection({**PLACEMENT, **_bodies(document)})))


def _bodies(document):
    """Return the bodies that are objects or lists; :class:`api.ServiceApi` refuses all others."""
    return {path: body for path, body in document.items()
            if path.startswith('/') and isinstance(body, dict | list)}


def test_valid_answers_are_read():
    assert list(nova_api.NovaApi(connection(
        {**NOVA, '/servers/detail': {'servers': [SERVER]}})).list_servers().instances) == [VM]
    placement = placement_api.PlacementApi(connection(PLACEMENT))
    assert provider_contents.read_provider(placement, NODE).used == {'VCPU': 2}
    assert nova_api.NovaApi(connection(NOVA)).list_migrations(VM)[0].to_host == 'host2'


@pytest.mark.parametrize('field, value', [
    ('allocation_ratio', math.nan), ('allocation_ratio', math.inf),
    ('allocation_ratio', -1.0), ('allocation_ratio', 10**400), ('step_size', 0),
    ('min_unit', 0), ('max_unit', 2**63), ('total', -1), ('reserved', -1)])
def test_an_inventory_that_cannot_be_counted_with_is_refused(field, value):
    path = f'/resource_providers/{NODE}/inventories'
    body = {'inventories': {'VCPU': {**INVENTORY, field: value}},
            'resource_provider_generation': 3}
    with pytest.raises(api.ApiError, match=field):
        placement_api.PlacementApi(connection({**PLACEMENT, path: body})).read_inventories(NODE)


@pytest.mark.parametrize('key', ['../x', 'a' * 5000, '', 'a b'])
def test_an_allocation_without_a_uuid_is_refused_in_a_short_line(key):
    body = {'allocations': {key: {'resources': {'VCPU': 2}}}, 'resource_provider_generation': 3}
    made = placement_api.PlacementApi(connection({
        **PLACEMENT, f'/resource_providers/{NODE}/allocations': body,
        f'/allocations/{VM}': body}))
    for one in (lambda: made.allocations_on(NODE), lambda: made.allocations_of(VM)):
        with pytest.raises(api.ApiError, match='not a UUID'):
            one()


@pytest.mark.parametrize('uuid', ['../../x', 'a/b', 'a?b=c', '', 'a' * 256, 'ä', 'a\nb', '.'])
def test_a_server_that_leaves_its_place_in_a_path_is_refused(uuid):
    with pytest.raises(api.ApiError, match="'id'"):
        nova_records.parse_instance({**SERVER, 'id': uuid})


def test_a_page_of_records_without_identity_is_refused():
    body = {'servers': [{**SERVER, 'id': ['x']}]}
    with pytest.raises(api.ApiError, match='a record without id'):
        nova_api.NovaApi(connection({**NOVA, '/servers/detail': body})).list_servers()


@junk.examples(30)
@hypothesis.given(st.binary(max_size=40) | junk.values.map(lambda v: json.dumps(v).encode())
                  | junk.DEPTHS.map(lambda depth: junk.nested(depth).encode())
                  | junk.DEPTHS.map(lambda depth: b'{"a":' * depth + b'1' + b'}' * depth),
                  st.sampled_from(['200 OK', '404 Not Found', '409 Conflict', '500 No']))
def test_no_bytes_cause_another_error(body, status):
    head = (f'HTTP/1.0 {status}\r\nContent-Type: application/json\r\n'
            f'Content-Length: {len(body)}\r\n\r\n').encode()
    with test_api.listening(head + body) as (url, _seen):
        try:
            assert isinstance(test_api.client(url).get('/x', 'the thing', 'p', '2.72'), dict)
        except api.ApiError as e:
            assert len(str(e)) < 2000
