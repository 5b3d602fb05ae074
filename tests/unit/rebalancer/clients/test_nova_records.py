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

from typing import Any

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_records
from tests.unit.rebalancer.clients import answers

group = answers.server_group


def test_a_server_becomes_an_instance() -> None:
    found = nova_records.parse_instance(answers.server('vm') | {
        'OS-EXT-STS:task_state': 'rebooting', 'pinned_availability_zone': 'az1', 'locked': True})
    assert found == model.Instance(
        uuid='vm', host='host1', name='a', internal_name='instance-1', vcpus=2, memory_mb=1024,
        disk_gb=17, local_disk_gb=17, task_state='rebooting', locked=True, pinned_zone='az1',
        project_id='p')


@pytest.mark.parametrize(('change', 'disk', 'gb'), [
    ({'image': ''}, 10, 7), ({'image': ''}, 0, 7), ({}, 0, 8), ({'config_drive': 'True'}, 10, 18),
    ({'image': '', 'config_drive': 'True'}, 10, 8)])
def test_disks_are_local_unless_they_are_volumes(
        change: dict[str, Any], disk: int, gb: int) -> None:
    flavor = answers.server('vm')['flavor'] | {'disk': disk}
    assert nova_records.parse_instance(
        answers.server('vm') | change | {'flavor': flavor}).local_disk_gb == gb


def test_a_server_on_no_host_has_an_empty_one() -> None:
    assert nova_records.parse_instance(answers.server('vm', host=None)).host == ''


@pytest.mark.parametrize(('change', 'problem'), [
    ({'status': 'UNKNOWN'}, 'its cell does not answer Nova'),
    ({'locked': None}, "field 'locked' is not true or false"),
    ({'flavor': {'vcpus': '2'}}, "flavor.*field 'swap' is missing"),
    ({'flavor': []}, "field 'flavor' is not an object"),
    ({'status': 7}, "field 'status' is not a text"),
    ({'OS-EXT-STS:task_state': []}, "field 'OS-EXT-STS:task_state' is not a text"),
])
def test_an_odd_server_is_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(api.ApiError, match=f'Nova: server vm.*: {problem}'.replace(
            'flavor.*', '')):
        nova_records.parse_instance(answers.server('vm', **change))


def test_a_server_without_its_host_names_the_policy() -> None:
    data = answers.server('vm')
    del data['OS-EXT-SRV-ATTR:host']
    with pytest.raises(api.ApiError, match='os-extended-server-attributes'):
        nova_records.parse_instance(data)


def test_a_hypervisor_keeps_service_host_and_hostname_apart() -> None:
    assert nova_records.parse_hypervisor({
        'id': 'u', 'hypervisor_hostname': 'host1.example.org', 'hypervisor_type': 'QEMU',
        'service': {'host': 'host1', 'id': 's'},
    }) == nova_records.Hypervisor('u', 'host1.example.org', 'host1', 'QEMU')


def test_a_group_of_an_unknown_policy_is_not_ignored() -> None:
    with pytest.raises(api.ApiError, match="server group g1: its policy 'rack-affinity'"):
        nova_records.parse_server_group(group('g1', policy='rack-affinity'))


def test_a_group_keeps_its_rule() -> None:
    found = nova_records.parse_server_group(
        group('g1', rules={'max_server_per_host': 3}, members=['vm']))
    assert found is not None
    assert (found.max_server_per_host, found.members) == (3, frozenset({'vm'}))


@pytest.mark.parametrize(('status', 'ended'), [
    ('completed', True), ('error', True), ('failed', True), ('cancelled', True), ('done', True),
    ('accepted', False), ('running (post-copy)', False), ('finished', False),
    ('a status of tomorrow', False)])
def test_an_unknown_migration_status_is_not_the_end(status: str, ended: bool) -> None:
    assert nova_records.parse_migration(answers.migration(1, status=status)).has_ended is ended


def test_migration_hosts_hidden_by_policy_are_an_error_while_it_matters() -> None:
    hidden = answers.migration(1, source_compute=None, dest_compute=None)
    with pytest.raises(api.ApiError, match='os-migrations:index:host'):
        nova_records.parse_migration(hidden)
    assert nova_records.parse_migration(hidden | {'status': 'error'}).from_host is None


@pytest.mark.parametrize(('updated_at', 'reported_at'), [
    ('1970-01-01T00:01:40.000000', 100.0), (None, None)])
def test_a_service_has_the_time_of_its_last_report(
        updated_at: str | None, reported_at: float | None) -> None:
    record = {'host': 'a', 'binary': 'nova-compute', 'status': 'enabled', 'state': 'up',
              'forced_down': False, 'disabled_reason': None, 'zone': 'nova',
              'updated_at': updated_at}
    service = nova_records.parse_service(record)
    assert service.reported_at == reported_at
    assert service == model.Service('a', zone='nova'), 'each report would change the cloud'


@pytest.mark.parametrize('text', ['yesterday', '0000-00-00T00:00:00', '9999-12-31T23:59:59+99:00'])
def test_an_invalid_time_is_an_error(text: str) -> None:
    with pytest.raises(api.ApiError, match='updated_at'):
        nova_records.parse_migration(answers.migration(1, updated_at=text))
