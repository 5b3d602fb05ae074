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

"""Rows of many hosts and instances, made inside MariaDB from rows that Nova and Placement wrote.

Nothing states the columns of a row: a generated row is a copy of a real one with other names and
identities. MariaDB's engine SEQUENCE gives the numbers.
"""

from collections.abc import Iterator
from collections.abc import Mapping

from tools.cloud import mariadb
from tools.cloud.region import shape
from tools.cloud.run import Run

#: Ids of generated hosts and of their nested providers start here.
FIRST_ID = 1000
FIRST_CHILD_ID = 100000
#: CPU traits that nova-compute reports on real hosts.
CPU_TRAITS = 50
GROUP_MEMBERS = 4
NOW = 'UTC_TIMESTAMP()'
#: Placement's id of the resource class.
VGPU = "(SELECT id FROM placement.resource_classes WHERE name = 'VGPU')"
#: Migrations that ended long ago, and within the last day.
MIGRATIONS, RECENT_MIGRATIONS = 20000, 500
BUFFER_POOL = 3 * 2**30


class RowCopier:
    """Writes the SQL that copies a real row once for each number.

    :param columns: by table, as ``DATABASE.TABLE``.
    """

    def __init__(self, columns: Mapping[str, list[str]]) -> None:
        self._columns = columns

    def copy_row(self, table: str, numbers: str, changed: Mapping[str, str], where: str) -> str:
        """Return the statement.

        :param numbers: a subquery; its columns may be used in ``changed``.
        :param changed: SQL of the columns that differ from the copied row ``t``. MariaDB chooses
            an ``id`` that is not among them.
        :param where: the condition that selects the rows to copy.
        """
        names = [c for c in self._columns[table] if c != 'id' or 'id' in changed]
        values = [changed.get(c, f't.`{c}`') for c in names]
        return (f'INSERT INTO {table} ({", ".join(f"`{c}`" for c in names)}) '
                f'SELECT {", ".join(values)} FROM {table} t, {numbers} WHERE {where}')


def list_statements(region: shape.Shape, template_uuids: Mapping[str, str],
                    copier: RowCopier) -> Iterator[str]:
    """Yield the SQL that fills the databases.

    :param template_uuids: the real server of each flavor.
    """
    hosts = f'(SELECT seq h FROM seq_2_to_{region.hosts}) numbers'
    host = _name_host('h')
    real = f"t.host = '{shape.TEMPLATE_HOST}'"
    yield f'SET GLOBAL innodb_buffer_pool_size = {BUFFER_POOL}'
    yield copier.copy_row('nova.services', hosts, {
        'id': f'{FIRST_ID} + h', 'host': host, 'uuid': _make_uuid('service', 'h')},
        f"{real} AND t.`binary` = 'nova-compute'")
    yield copier.copy_row('nova.compute_nodes', hosts, {
        'id': f'{FIRST_ID} + h', 'service_id': f'{FIRST_ID} + h', 'host': host,
        'hypervisor_hostname': host, 'uuid': _make_uuid('node', 'h')}, real)
    yield copier.copy_row('nova_api.host_mappings', hosts, {'host': host}, real)
    yield copier.copy_row('placement.resource_providers', hosts, {
        'id': f'{FIRST_ID} + h', 'root_provider_id': f'{FIRST_ID} + h', 'name': host,
        'uuid': _make_uuid('node', 'h')}, 't.id = 1')
    yield ('INSERT IGNORE INTO placement.resource_provider_traits '
           '(trait_id, resource_provider_id) SELECT id, 1 FROM placement.traits '
           f"WHERE name LIKE 'HW_CPU_X86_%' ORDER BY id LIMIT {CPU_TRAITS}")
    for table in ('inventories', 'resource_provider_traits'):
        yield copier.copy_row(f'placement.{table}', hosts, {
            'resource_provider_id': f'{FIRST_ID} + h'}, 't.resource_provider_id = 1')
    yield from _list_statements_of_children(region)
    for flavor, uuid in template_uuids.items():
        yield from _list_statements_of_instances(region, flavor, uuid, copier)
    yield from _list_statements_of_groups(region)
    yield from _list_statements_of_migrations(region)


def _name_host(number: str) -> str:
    """Return the SQL of :func:`shape.name_host`."""
    return f"CONCAT('compute-', LPAD({number}, 4, '0'))"


def _make_uuid(kind: str, number: str) -> str:
    """Return the SQL of :func:`shape.make_uuid`."""
    digest = f"MD5(CONCAT('{kind} ', {number}))"
    return (f"CONCAT(SUBSTR({digest}, 1, 8), '-', SUBSTR({digest}, 9, 4), '-4', "
            f"SUBSTR({digest}, 14, 3), '-8', SUBSTR({digest}, 18, 3), '-', "
            f'SUBSTR({digest}, 21))')


def _list_statements_of_children(region: shape.Shape) -> Iterator[str]:
    """Yield the SQL of nested providers with four VGPUs each."""
    if not region.children:
        return
    number = f'{region.children} * h + c'
    both = (f'(SELECT seq h FROM seq_2_to_{region.hosts}) hosts, '
            f'(SELECT seq c FROM seq_0_to_{region.children - 1}) children')
    yield ('INSERT INTO placement.resource_providers '
           '(created_at, updated_at, id, uuid, name, generation, root_provider_id, '
           'parent_provider_id) '
           f"SELECT {NOW}, {NOW}, {FIRST_CHILD_ID} + {number}, {_make_uuid('child', number)}, "
           f"CONCAT({_name_host('h')}, '_pci_', c), 3, {FIRST_ID} + h, {FIRST_ID} + h "
           f'FROM {both}')
    yield ('INSERT INTO placement.inventories (created_at, updated_at, resource_provider_id, '
           'resource_class_id, total, reserved, min_unit, max_unit, step_size, '
           'allocation_ratio) '
           f'SELECT {NOW}, {NOW}, {FIRST_CHILD_ID} + {number}, {VGPU}, '
           f'4, 0, 1, 4, 1, 1.0 FROM {both}')


def _list_statements_of_instances(region: shape.Shape, flavor: str, uuid: str,
                                  copier: RowCopier) -> Iterator[str]:
    """Yield the SQL of the instances of one flavor."""
    first = 0
    for name, _vcpus, _memory, share in shape.FLAVORS:
        if name == flavor:
            break
        first += share
    others = region.hosts - 1
    numbers = (f'(SELECT seq n, 2 + seq % {others} h FROM seq_0_to_{region.instances - 1} '
               f'WHERE seq DIV {others} % {shape.SLOTS} BETWEEN {first} AND {first + share - 1}'
               ') numbers')
    own = _make_uuid('instance', 'n')
    host = _name_host('h')
    yield copier.copy_row('nova.instances', numbers, {
        'uuid': own, 'hostname': "CONCAT('vm-', n)", 'display_name': "CONCAT('vm-', n)",
        'host': host, 'node': host, 'launched_on': host, 'compute_id': f'{FIRST_ID} + h',
        'created_at': 'TIMESTAMP(t.created_at) - INTERVAL n SECOND',
        'launched_at': 'TIMESTAMP(t.created_at) - INTERVAL n SECOND',
        'updated_at': 'TIMESTAMP(t.created_at) - INTERVAL 1 HOUR'}, f"t.uuid = '{uuid}'")
    for table in ('nova.instance_extra', 'nova.instance_info_caches',
                  'nova.instance_system_metadata', 'nova_api.instance_mappings',
                  'nova_api.request_specs'):
        yield copier.copy_row(table, numbers, {'instance_uuid': own}, f"t.instance_uuid = '{uuid}'")
    yield copier.copy_row('nova.block_device_mapping', numbers, {
        'instance_uuid': own, 'uuid': _make_uuid('disk', 'n')}, f"t.instance_uuid = '{uuid}'")
    yield copier.copy_row('placement.consumers', numbers, {'uuid': own}, f"t.uuid = '{uuid}'")
    yield copier.copy_row('placement.allocations', numbers, {
        'consumer_id': own, 'resource_provider_id': f'{FIRST_ID} + h'},
        f"t.consumer_id = '{uuid}'")
    if region.children:
        # Every ninth instance of a host has a VGPU, of each child in turn.
        yield ('INSERT INTO placement.allocations '
               '(created_at, updated_at, resource_provider_id, consumer_id, resource_class_id, '
               'used) '
               f'SELECT {NOW}, {NOW}, {FIRST_CHILD_ID} + {region.children} * h '
               f'+ (n DIV {others} DIV 9) % {region.children}, {own}, {VGPU}, 1 FROM {numbers} '
               f'WHERE n DIV {others} % 9 = 0')


def _list_statements_of_groups(region: shape.Shape) -> Iterator[str]:
    """Yield the SQL of server groups."""
    groups = region.hosts // 2
    owner = '(SELECT user_id, project_id FROM nova.instances LIMIT 1) owner'
    yield ('INSERT INTO nova_api.instance_groups (created_at, id, user_id, project_id, uuid, name) '
           f"SELECT {NOW}, seq, user_id, project_id, {_make_uuid('group', 'seq')}, "
           f"CONCAT('group-', seq) FROM seq_1_to_{groups}, {owner}")
    yield ('INSERT INTO nova_api.instance_group_policy (policy, group_id, rules) '
           f"SELECT 'anti-affinity', seq, '{{}}' FROM seq_1_to_{groups}")
    member = f'{GROUP_MEMBERS} * (g - 1) + m'
    yield ('INSERT INTO nova_api.instance_group_member (instance_uuid, group_id) '
           f"SELECT {_make_uuid('instance', member)}, g "
           f'FROM (SELECT seq g FROM seq_1_to_{groups}) named_groups, '
           f'(SELECT seq m FROM seq_0_to_{GROUP_MEMBERS - 1}) members')


def _list_statements_of_migrations(region: shape.Shape) -> Iterator[str]:
    """Yield the SQL of migrations, the last of which ended an hour ago."""
    ended = ('UTC_TIMESTAMP() - INTERVAL (CASE WHEN seq < '
             f'{RECENT_MIGRATIONS} THEN 3600 + seq * 150 ELSE 100000 + seq * 300 END) SECOND')
    source = _name_host(f'2 + seq * 7 % {region.hosts - 1}')
    destination = _name_host(f'2 + seq * 11 % {region.hosts - 1}')
    yield ('INSERT INTO nova.migrations (created_at, updated_at, source_compute, dest_compute, '
           'source_node, dest_node, dest_host, status, instance_uuid, migration_type, uuid, '
           'hidden, deleted, cross_cell_move, user_id, project_id) '
           f"SELECT {ended}, {ended}, {source}, {destination}, {source}, {destination}, "
           f"'127.0.0.1', 'completed', {_make_uuid('instance', f'seq % {region.instances}')}, "
           f"'live-migration', {_make_uuid('migration', 'seq')}, 0, 0, 0, user_id, project_id "
           f'FROM seq_0_to_{MIGRATIONS - 1}, '
           '(SELECT user_id, project_id FROM nova.instances LIMIT 1) owner')


TABLES = ('nova.services', 'nova.compute_nodes', 'nova_api.host_mappings',
          'placement.resource_providers', 'placement.inventories',
          'placement.resource_provider_traits', 'nova.instances', 'nova.instance_extra',
          'nova.instance_info_caches', 'nova.instance_system_metadata',
          'nova_api.instance_mappings', 'nova_api.request_specs', 'nova.block_device_mapping',
          'placement.consumers', 'placement.allocations')


def fill_databases(run: Run, region: shape.Shape, template_uuids: Mapping[str, str]) -> None:
    """Write the rows of the region into the databases of Nova, its API and Placement."""
    columns = {table: [str(name) for name, *_ in mariadb.execute(run, [f'DESCRIBE {table}'])]
               for table in TABLES}
    for statement in list_statements(region, template_uuids, RowCopier(columns)):
        mariadb.execute(run, ['USE nova', statement])
    mariadb.execute(run, [f'ANALYZE TABLE {table}' for table in TABLES])


def report_services(run: Run) -> None:
    """Report every nova-compute as up."""
    mariadb.execute(run, ['UPDATE nova.services SET last_seen_up = UTC_TIMESTAMP() '
                          "WHERE `binary` = 'nova-compute'"])


def change_hosts(run: Run, region: shape.Shape, every: int) -> None:
    """Change each N-th host as boots there do: its provider's generation and its instances.

    The first host is the one with number 2.
    """
    numbers = f'FROM nova.seq_2_to_{region.hosts} WHERE (seq - 2) % {every} = 0'
    mariadb.execute(run, [
        'UPDATE placement.resource_providers SET generation = generation + 1 '
        f'WHERE id IN (SELECT {FIRST_ID} + seq {numbers})',
        'UPDATE nova.instances SET updated_at = UTC_TIMESTAMP() '
        f'WHERE host IN (SELECT {_name_host("seq")} {numbers})'])
