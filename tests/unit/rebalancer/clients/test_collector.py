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

"""What the collector makes of records; reading them is tested on a real Nova."""

import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_contents
from kronos_nova.rebalancer.clients import provider_trees
from tests.unit.rebalancer.clients import answers

NOW = 1_000_000.0


def test_live_migration_that_nova_left_behind_is_no_flight() -> None:
    old = nova_records.parse_migration(answers.migration(6, status='queued'))
    assert flight_of([old], NOW) == []
    assert flight_of([old], NOW, **{'OS-EXT-STS:task_state': 'migrating'})
    assert flight_of([dataclasses.replace(old, updated_at=NOW - 60)], NOW)
    assert flight_of([dataclasses.replace(old, updated_at=0.0)], NOW), 'Nova does not say when'


def flight_of(migrations: list[nova_api.Migration], now: float = 0.0,
              **fields: Any) -> list[model.InFlightMove]:
    instance = nova_records.parse_instance(answers.server('vm', **fields))
    return list(collector.list_flights(migrations, {'vm': instance}, now))


def migration(number: int = 1, **fields: Any) -> nova_api.Migration:
    return nova_records.parse_migration(answers.migration(number, **fields))


def test_every_kind_of_migration_is_a_flight() -> None:
    for kind in ('live-migration', 'migration', 'resize', 'evacuation'):
        assert flight_of([migration(migration_type=kind)]) == [
            model.InFlightMove('vm', 'host1', 'host2')]


def test_a_migration_not_yet_scheduled_has_no_destination() -> None:
    assert flight_of([migration(dest_compute=None)])[0].to_host is None


def test_a_migration_that_is_not_recorded_yet_shows_in_the_task_state() -> None:
    assert flight_of([], **{'OS-EXT-STS:task_state': 'migrating'}) == [
        model.InFlightMove('vm', 'host1', None)]
    assert flight_of([], **{'OS-EXT-STS:task_state': 'rebooting'}) == []


def test_of_several_migrations_the_newest_counts_and_once() -> None:
    found = flight_of([migration(2, dest_compute='host3'), migration(1)],
                      **{'OS-EXT-STS:task_state': 'migrating'})
    assert found == [model.InFlightMove('vm', 'host1', 'host3')]


def test_migrations_of_instances_that_are_gone_mean_nothing() -> None:
    assert flight_of([migration(instance_uuid='gone')]) == []


def hypervisor(host: str, kind: str = 'QEMU', uuid: str = 'u') -> nova_api.Hypervisor:
    return nova_api.Hypervisor(uuid, f'{host}.example.org', host, kind)


def test_hosts_that_cannot_be_planned_are_left_out_with_a_reason() -> None:
    services = {h: model.Service(h) for h in ('good', 'many', 'bare', 'new')}
    nodes, notes = collector.choose_hypervisors(
        [hypervisor('good'), hypervisor('many', uuid='a'), hypervisor('many', uuid='b'),
         hypervisor('bare', 'ironic'), hypervisor('left')], ['QEMU', 'KVM'], services)
    assert list(nodes) == ['good']
    assert [note.split()[1] for note in notes] == ['left', 'many', 'new']


def test_a_host_is_given_its_tree_by_the_uuid_of_its_node() -> None:
    listed = {u: placement_api.ListedProvider(u, 'good', root, parent, 1) for u, root, parent in (
        ('u', 'u', None), ('z', 'u', 'u'), ('b', 'u', 'z'), ('a', 'u', 'z'), ('s', 's', None),
        ('other', 'other', None))}
    sharing = provider_trees.ProviderSharing({'s': frozenset({'agg'})},
                                             {'agg': frozenset({'s', 'b'})})
    empty = provider_contents.ProviderContent(1, {}, {}, frozenset({'CUSTOM_T'}), {})
    forest = provider_trees.ProviderForest(listed, dict.fromkeys(listed, empty), sharing)
    services = {h: model.Service(h) for h in ('good', 'bare')}
    hosts = collector.build_hosts(
        {'good': hypervisor('good'), 'bare': hypervisor('bare', uuid='none')}, services, forest,
        {'good': 'cell1'})
    assert [(p.uuid, p.parent_uuid) for p in hosts['good'].tree] == [
        ('u', None), ('z', 'u'), ('a', 'z'), ('b', 'z')], 'parents first, then by UUID'
    assert (hosts['good'].cell, hosts['bare'].cell) == ('cell1', None)
    assert hosts['good'].sharing == {'s'} and hosts['good'].traits == {'CUSTOM_T'}
    assert (hosts['bare'].tree, hosts['bare'].sharing) == ((), frozenset())
    assert collector.list_sharing_providers(hosts, forest).keys() == {'s'}
    assert collector.list_sharing_providers(hosts, forest)['s'].aggregates == {'agg'}


def test_an_instance_in_flight_has_what_its_migration_holds_for_it() -> None:
    instances = {'vm': model.Instance('vm', 'host1'), 'away': model.Instance('away', 'host9')}
    hosts = {'host1': model.Host('host1', uuid='u1', provider=model.Provider('u1'))}
    found = collector.with_claims(
        instances, hosts, {'vm': {'u2': {'VCPU': 2}}, 'm1': {'u1': {'VCPU': 2}}}, {'vm'},
        [migration(1)])
    assert found['vm'].allocations == {'u1': {'VCPU': 2}}
    assert (found['vm'].claims, found['vm'].pinned) == ({'VCPU': 2}, None)
    assert str(found['away'].pinned).startswith('host-not-planned: ')


def test_hosts_of_a_silent_cell_belong_to_their_scopes_and_are_not_planned() -> None:
    services = {h: model.Service(h, zone='az1') for h in 'ab'} | {
        h: model.Service(h, status=model.UNKNOWN, state=model.UNKNOWN) for h in 'cde'}
    cluster = model.Cluster(
        hosts={h: model.Host(h) for h in 'ab'}, instances={}, services=services,
        aggregates={'near': ('a',), 'far': ('c', 'd'), 'both': ('a', 'c')},
        aggregate_metadata={'far': {'availability_zone': 'az2'}})

    def unreadable(scope: str, *named: str) -> set[str]:
        return set(cluster.replace_scope(scope, named).unreadable_hosts)
    assert unreadable('near') == set() and unreadable('far') == {'c', 'd'}
    assert unreadable('both') == {'c'} and unreadable('both', 'far', 'both') == set()
    assert unreadable(model.UNASSIGNED) == {'e'}
    cluster = dataclasses.replace(cluster, planned_zone='az1')
    assert unreadable('far') == set() and unreadable(model.UNASSIGNED) == {'e'}
    nodes, notes = collector.choose_hypervisors([hypervisor(h) for h in 'abc'], ['QEMU'], services)
    assert list(nodes) == ['a', 'b'] and notes == []
