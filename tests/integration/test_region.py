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

"""The generated region of benchmarks/region.py: exporter and databases name the same instances."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.integration import servers
from tools.cloud import load
from tools.cloud import mariadb
from tools.cloud import run as runs
from tools.cloud.region import exporter
from tools.cloud.region import rows
from tools.cloud.region import shape

REGION = shape.Shape(hosts=7, instances=200, children=2)

#: The columns that the statements name, and one that is only copied.
COLUMNS = {
    'nova.services': 'host, `binary`, uuid, version',
    'nova.compute_nodes': 'host, hypervisor_hostname, service_id, uuid, vcpus',
    'nova_api.host_mappings': 'host, cell_id',
    'placement.resource_providers': 'uuid, name, root_provider_id, parent_provider_id, '
                                    'generation, created_at, updated_at',
    'placement.inventories': 'resource_provider_id, resource_class_id, total, reserved, '
                             'min_unit, max_unit, step_size, allocation_ratio, created_at, '
                             'updated_at',
    'placement.resource_provider_traits': 'trait_id, resource_provider_id',
    'placement.traits': 'name',
    'placement.resource_classes': 'name',
    'placement.consumers': 'uuid, generation',
    'placement.allocations': 'resource_provider_id, consumer_id, resource_class_id, used, '
                             'created_at, updated_at',
    'nova.instances': 'uuid, hostname, display_name, host, node, launched_on, compute_id, '
                      'created_at, updated_at, launched_at, user_id, project_id, vcpus',
    'nova.instance_extra': 'instance_uuid, flavor',
    'nova.instance_info_caches': 'instance_uuid, network_info',
    'nova.instance_system_metadata': 'instance_uuid, `key`, value',
    'nova_api.instance_mappings': 'instance_uuid, cell_id',
    'nova_api.request_specs': 'instance_uuid, spec',
    'nova.block_device_mapping': 'instance_uuid, uuid',
    'nova_api.instance_groups': 'created_at, user_id, project_id, uuid, name',
    'nova_api.instance_group_policy': 'policy, group_id, rules',
    'nova_api.instance_group_member': 'instance_uuid, group_id',
    'nova.migrations': 'created_at, updated_at, source_compute, dest_compute, source_node, '
                       'dest_node, dest_host, status, instance_uuid, migration_type, uuid, '
                       'hidden, deleted, cross_cell_move, user_id, project_id',
}


TOP = pathlib.Path(__file__).resolve().parents[2]


def list_all_guests() -> list[load.Guest]:
    return [guest for host in range(2, REGION.hosts + 1) for guest in REGION.list_guests(host)]


def test_every_instance_is_on_exactly_one_host():
    guests = list_all_guests()
    assert len(guests) == REGION.instances
    assert {guest.uuid for guest in guests} == {
        shape.make_uuid('instance', n) for n in range(REGION.instances)}
    assert {guest.flavor for guest in guests} == {name for name, *_ in shape.FLAVORS}


def test_exporter_serves_the_instances_of_one_host():
    served = exporter.RegionExporter(REGION, vcpus=16, memory_mb=65536)
    text = served.scrape('/compute-0003/libvirt')
    assert text is not None
    for guest in REGION.list_guests(3):
        assert guest.uuid.encode() in text
    assert next(iter(REGION.list_guests(4))).uuid.encode() not in text
    assert served.scrape('/compute-0008/libvirt') is None


@pytest.fixture(scope='module')
def filled(tmp_path_factory):
    """A MariaDB whose tables have the columns that the statements use, and their rows."""
    servers.program('mariadbd')
    columns = {table: [name.strip(' `') for name in f'id, {names}'.split(',')]
               for table, names in COLUMNS.items()}
    with runs.private(tmp_path_factory.mktemp('m'), ['mariadb']) as run:
        mariadb.start(run)
        for database in ('nova', 'nova_api', 'placement'):
            mariadb.execute(run, [f'CREATE DATABASE {database}'])
        for table, names in columns.items():
            kinds = ', '.join(f'`{name}` VARCHAR(255)' for name in names[1:])
            mariadb.execute(run, [f'CREATE TABLE {table} '
                                  f'(id INT AUTO_INCREMENT PRIMARY KEY, {kinds})'])
        templates = {flavor: f'template-{flavor}' for flavor, *_ in shape.FLAVORS}
        inserts = [
            "INSERT INTO nova.services (host, `binary`) VALUES ('compute-01', 'nova-compute')",
            "INSERT INTO nova.compute_nodes (host) VALUES ('compute-01')",
            "INSERT INTO nova_api.host_mappings (host) VALUES ('compute-01')",
            "INSERT INTO placement.resource_providers (name, root_provider_id) "
            "VALUES ('compute-01', 1)",
            "INSERT INTO placement.resource_classes (name) VALUES ('VCPU'), ('VGPU')",
            "INSERT INTO placement.traits (name) VALUES ('HW_CPU_X86_AVX'), ('OTHER')",
            'INSERT INTO placement.inventories (resource_provider_id) VALUES (1)']
        for uuid in templates.values():
            inserts += [
                "INSERT INTO nova.instances (uuid, host, created_at, user_id, project_id) "
                f"VALUES ('{uuid}', 'compute-01', '2026-01-01 00:00:00', 'u', 'p')",
                f"INSERT INTO placement.consumers (uuid) VALUES ('{uuid}')",
                'INSERT INTO placement.allocations (resource_provider_id, consumer_id) '
                f"VALUES (1, '{uuid}')"]
            inserts += [f"INSERT INTO {table} (instance_uuid) VALUES ('{uuid}')"
                        for table, names in COLUMNS.items() if names.startswith('instance_uuid')
                        and table != 'nova_api.instance_group_member']
        mariadb.execute(run, inserts)
        rows.fill_databases(run, REGION, templates)
        yield run


def test_databases_have_the_instances_that_the_exporter_serves(filled):
    expected = {guest.uuid: guest.host for guest in list_all_guests()}
    stored = mariadb.execute(filled, ['SELECT uuid, host FROM nova.instances WHERE uuid NOT LIKE '
                                      "'template-%'"])
    assert dict(stored) == expected


def test_every_instance_is_allocated_on_the_provider_of_its_host(filled):
    stored = mariadb.execute(filled, [
        'SELECT consumer_id, name FROM placement.allocations a '
        'JOIN placement.resource_providers p ON p.id = a.resource_provider_id '
        "WHERE parent_provider_id IS NULL AND consumer_id NOT LIKE 'template-%'"])
    assert dict(stored) == {guest.uuid: guest.host for guest in list_all_guests()}


def test_every_ninth_instance_of_a_host_has_a_vgpu_of_its_own_host(filled):
    stored = mariadb.execute(filled, [
        'SELECT root.name FROM placement.allocations a '
        'JOIN placement.resource_providers child ON child.id = a.resource_provider_id '
        'JOIN placement.resource_providers root ON root.id = child.parent_provider_id '
        'JOIN nova.instances i ON i.uuid = a.consumer_id AND i.host = root.name'])
    per_host = -(-(REGION.instances // (REGION.hosts - 1)) // 9)
    assert sorted(name for name, in stored) == sorted(
        name for name in REGION.list_hosts()[1:] for _ in range(per_host))


def test_members_of_a_server_group_are_on_different_hosts(filled):
    stored = mariadb.execute(filled, [
        'SELECT COUNT(*), COUNT(DISTINCT host) FROM nova_api.instance_group_member m '
        'JOIN nova.instances i ON i.uuid = m.instance_uuid GROUP BY group_id'])
    assert len(stored) == REGION.hosts // 2
    assert all(counts == (rows.GROUP_MEMBERS, rows.GROUP_MEMBERS) for counts in stored)


def test_changed_hosts_are_each_second_generated_one(filled):
    mariadb.execute(filled, ['UPDATE placement.resource_providers SET generation = 5'])
    rows.change_hosts(filled, REGION, every=2)
    stored = mariadb.execute(filled, [
        'SELECT name FROM placement.resource_providers WHERE generation = 6 ORDER BY name'])
    assert [name for name, in stored] == ['compute-0002', 'compute-0004', 'compute-0006']
    stored = mariadb.execute(filled, [
        'SELECT DISTINCT host FROM nova.instances '
        'WHERE updated_at > UTC_TIMESTAMP() - INTERVAL 1 MINUTE ORDER BY host'])
    assert [name for name, in stored] == ['compute-0002', 'compute-0004', 'compute-0006']


@pytest.mark.long
@pytest.mark.timeout(10 * 60)
def test_benchmark_plans_a_small_region_behind_real_services(tmp_path):
    done = subprocess.run(
        [sys.executable, 'benchmarks/region.py', '--hosts', '12', '--instances', '300',
         '--scrape-seconds', '2', '--cycles', '1', '--dir', str(tmp_path / 's'), '--json'],
        cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    for name in ('cold', 'nothing has changed', 'a hundredth has changed'):
        [cycle] = measured[name]
        [scope] = cycle['scopes']
        # Three instances more: those whose rows were copied.
        assert (scope['hosts'], scope['instances']) == (12, 303)
        assert cycle['phases'].keys() == {'collect', 'score', 'plan', 'publish'}
    requests = {name: {path: number for path, (number, _) in measured[name][0]['requests'].items()}
                for name in measured if isinstance(measured[name], list)}
    inventories = 'Placement /resource_providers/*/inventories'
    # One root for each host, two children for each generated one.
    assert requests['cold'][inventories] == 12 + 2 * 11
    usages = 'Placement /resource_providers/*/usages'
    assert not {inventories, usages} & requests['nothing has changed'].keys()
    assert requests['a hundredth has changed'][inventories] == 1
