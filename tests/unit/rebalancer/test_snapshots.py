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


"""A reader gets the written snapshot, and refuses a broken one by the name of its file."""

import dataclasses
import json
import os
import shutil
import stat

import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.sources import snapshot
from kronos_nova.sources import snapshot_files
from tests.scenarios import loader

NOW = 1_793_491_200.25
HOSTILE = '../../etc/passwd\x1b[31m%s{0}<b>\u202e\n"\'; DROP TABLE'


def policies():
    return policy.parse_policies({'policies': [
        {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'vm_profile_query': 'vcpu',
         'vm_profile_unit': 'absolute', 'host_capacity_query': 'cores', 'age_query': 'age',
         'vm_mean_query': 'mean', 'vm_deviation_query': 'deviation',
         'vm_dirty_rate_query': 'dirty'}]})


def cluster():
    provider = model.Provider(
        'p1', 7, {'VCPU': model.Inventory(32, 2, 4.0, 1, 32, 1)}, {'VCPU': 4}, 'a.example.org')
    nested = tuple(model.Provider(
        f'p1-{n}', n, {'VGPU': model.Inventory(4)}, {'VGPU': n}, HOSTILE, 'p1',
        frozenset({'CUSTOM_BLUE', 'COMPUTE_NODE'})) for n in (2, 1))
    pool = model.Provider(
        'pool', 3, {'CUSTOM_IP': model.Inventory(9)}, {'CUSTOM_IP': 1}, 'addresses',
        traits=frozenset({'MISC_SHARES_VIA_AGGREGATE'}), aggregates=frozenset({'agg2', 'agg1'}))
    return model.Cluster(
        hosts={'a': model.Host('a', 'a.example.org', 'p1', 'QEMU', 'az1', 'cell1', provider,
                               frozenset({'HW_CPU_X86_VMX'}), nested, frozenset({'pool'}),
                               hypervisor_version=8002000),
               'b': model.Host('b'), 'c': model.Host('c')},
        sharing={'pool': pool},
        instances={
            'u1': model.Instance('u1', 'a', HOSTILE, 'instance-1', 4, 8192, 40, 'ACTIVE',
                                 'migrating', True, {'VCPU': 4, 'VGPU': 1, 'CUSTOM_IP': 1},
                                 'why', 'az1', 'project', 20, allocations={
                                     'p1': {'VCPU': 4}, 'p1-2': {'VGPU': 1},
                                     'pool': {'CUSTOM_IP': 1}},
                                 extra_specs={HOSTILE: HOSTILE}, image_properties={},
                                 scheduler_hints={'same_host': ('u2',)}, power_state=4,
                                 opted_out='tag stay', contracts=(
                                     model.Contract(model.ContractSource.TAG,
                                                    model.Disruption.NEVER,
                                                    movement_hours.parse_hours('* 1-4 * * sun'),
                                                    model.MoveQuota(2, 604800)),
                                     model.Contract(model.ContractSource.FLAVOR,
                                                    unreadable=('hours', 'notify'),
                                                    ineffective=2),
                                     model.Contract(model.ContractSource.PROJECT,
                                                    notify=model.NoticePeriod(5400),
                                                    release=NOW + 5.0))),
            'u2': model.Instance('u2', 'gone')},
        services={'a': model.Service('a', 'disabled', 'down', True, 'AUTO: x', 'az1'),
                  'b': model.Service('b')},
        groups=(model.ServerGroup('g1', model.GroupPolicy.ANTI_AFFINITY, frozenset({'u1', 'u9'}),
                                  3, HOSTILE),
                model.ServerGroup('g2', model.GroupPolicy.SOFT_AFFINITY)),
        flights=(model.InFlightMove('u1', 'a', None),
                 model.InFlightMove('u2', 'gone', 'b', 'task', (), 'ssd')),
        aggregates={'ssd': ('a',), 'empty': ()}, taken_at=NOW,
        aggregate_metadata={'ssd': {HOSTILE: HOSTILE}, 'empty': {}})


def samples():
    def answer(query, **series):
        return model.QueryResult(query, model.SourceHealth.PARTIAL, series, warnings=('w',),
                                 missing_labels=('m',), duplicates=('d',))
    return {'cpu': model.PolicySamples(
        'cpu', answer('cpu', a=0.5, b=0.25), answer('vcpu', **{'instance-1': 2.5}), None,
        answer('cores', a=32.0, b=32.0), 12.5, NOW - 3.0,
        mean=answer('mean', **{'instance-1': 2.25}),
        deviation=answer('deviation', **{'instance-1': 0.5}),
        dirty_rate=answer('dirty', **{'instance-1': 1048576.0}))}


def histories():
    common = model.MoveHistory(
        cooling={'u1': 5.5}, quarantined={'u2': -1.0, 'u3': 60.0}, late_drains={'u3': 'a'},
        quarantined_hosts=frozenset({'b'}), local_disk_hosts=frozenset({'a'}),
        other_cells=frozenset({('a', 'b')}),
        completed=((model.Move('u4', 'a', 'b', model.Phase.PACK), NOW - 60.0),),
        measured=(model.MeasuredAttempt('u5', 2048, 7, 30.0, 2.5, False, True),
                  model.MeasuredAttempt('u4', 1024, 0, 9.5)),
        move_times={'u1': (NOW - 90.0, NOW - 60.0)}, drain_begins={'a': NOW - 60.0},
        window_ends={'a': NOW + 60.0},
        drain_deadlines={'a': model.DrainDeadline(NOW + 600.0, 'AUTO: x')},
        hourly_write_rates={'u1': ((NOW - 7200.0, 1.5), (NOW - 3600.0, 0.0))},
        freezes=((NOW + 3600.0, NOW + 7200.0),), awaited_write_rates={'u2': NOW + 300.0},
        notices={name: model.MoveNotice(name, 'p', 'a', model.NoticeReason.DRAIN, NOW - 9.0,
                                        NOW + 9.0, NOW + 99.0, may_shut_down=named)
                 for name, named in (('u1', False), ('u2', True))})
    return {'ssd': dataclasses.replace(common, scope_cooling=90.0, draining=frozenset({'a'})),
            model.UNASSIGNED: common}


def recording(**changes):
    values = {'now': NOW, 'scopes': ('ssd', model.UNASSIGNED), 'policies': policies(),
              'samples': samples(), 'cluster': cluster(), 'histories': histories()}
    return writer.SnapshotContent(**{**values, **changes})


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    return writer.write_snapshot(str(tmp_path_factory.mktemp('template')), recording())


@pytest.fixture
def written(template, tmp_path):
    """A snapshot that the test may break."""
    return shutil.copytree(template, tmp_path / 'parent' / os.path.basename(template)).as_posix()


def put(written, path, text):
    """Replace a file of a snapshot by a text, or by an object as JSON."""
    with open(os.path.join(written, path), 'w') as f:
        f.write(text if isinstance(text, str) else json.dumps(text))


def get(written, path):
    with open(os.path.join(written, path)) as f:
        return json.load(f)


def refused(written, *texts):
    with pytest.raises(exception.SnapshotError) as caught:
        reader.read_snapshot(written)
        snapshot.SnapshotSource(None, written)
    message = str(caught.value)
    assert '\n' not in message and '\x1b' not in message
    for text in texts:
        assert text in message
    return message


# Round trip.

def test_a_written_snapshot_is_read_unchanged(written):
    found = reader.read_snapshot(written)
    assert found.cluster == cluster()
    assert found.recorded_at == NOW
    assert found.scopes == ('ssd', model.UNASSIGNED)
    assert found.policy_names == ('cpu',)
    assert found.traits_known and found.warnings == ()
    source = snapshot.SnapshotSource(None, written)
    assert source.fetch(policies().find_policy('cpu')) == samples()['cpu']
    for scope, history in histories().items():
        assert found.build_history(scope, cooldown=1e9, instance_cooldown=1e9) == history


def test_writing_a_read_snapshot_gives_the_same_files(written, tmp_path):
    found = reader.read_snapshot(written)
    again = recording(cluster=found.cluster, now=found.recorded_at, histories={
        s: found.build_history(s, cooldown=1e9, instance_cooldown=1e9) for s in found.scopes})
    other = writer.write_snapshot(str(tmp_path / 'again'), again)
    for folder, _folders, names in os.walk(written):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), written)
            assert get(other, path) == get(written, path)


def test_cooldowns_and_not_quarantines_are_clamped_to_the_options(written):
    found = reader.read_snapshot(written).build_history('ssd', cooldown=10, instance_cooldown=2)
    assert found.scope_cooling == 10
    assert found.cooling == {'u1': 2}
    assert found.quarantined == {'u2': -1.0, 'u3': 60.0}


@pytest.mark.parametrize('path', loader.files(), ids=lambda p: p.stem)
@pytest.mark.turns(4)
def test_every_scenario_is_planned_alike_from_a_snapshot(path, tmp_path):
    scenario = loader.load(path)
    data = yaml.safe_load(path.read_text())
    request = scenario.request
    scope = request.cluster.scope
    recorded = writer.write_snapshot(str(tmp_path), writer.SnapshotContent(
        now=loader.NOW, scopes=(scope,), policies=request.policies, cluster=request.cluster,
        samples={p.name: loader._samples(p, data) for p in request.policies.enabled_policies},
        histories={scope: request.history}))
    found = reader.read_snapshot(recorded)
    source = snapshot.SnapshotSource(None, recorded)
    read = found.cluster.replace_scope(scope)
    scores = {p.name: loader.scoring.score_policy(
        p, source.fetch(p), read, now=found.recorded_at, staleness=300.0,
        max_missing_hosts=request.options.max_missing_hosts)
              for p in request.policies.enabled_policies}
    history = found.build_history(scope, cooldown=1e9, instance_cooldown=1e9)
    again = dataclasses.replace(
        request, cluster=read, scores=model.ClusterScores(scores, loader.NOW),
        history=dataclasses.replace(
            history, quiet_waits=quiet_hours.find_quiet_waits(
                read, model.ClusterScores(scores), history, request.options, found.recorded_at,
                budget=5),
            fresh=planning_pipeline.just_booted(read, found.recorded_at, loader.INSTANCE_COOLDOWN)))
    assert again.history.quiet_waits == request.history.quiet_waits
    assert planner.plan(again).moves == planner.plan(request).moves
    assert planner.plan(again).reason == planner.plan(request).reason


# Writing.

def test_only_the_owner_may_look_into_a_snapshot(tmp_path):
    before = os.umask(0)
    try:
        written = writer.write_snapshot(str(tmp_path / 'parent'), recording())
    finally:
        os.umask(before)
    for folder, _folders, names in os.walk(written):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for name in names:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600


def test_the_directory_carries_the_time_in_utc(written):
    assert os.path.basename(written) == 'kronos-engine-snapshot-20261101T000000Z'


def test_two_snapshots_of_one_second_are_two_directories(tmp_path):
    first = writer.write_snapshot(str(tmp_path), recording())
    second = writer.write_snapshot(str(tmp_path), recording())
    assert os.path.basename(first) == 'kronos-engine-snapshot-20261101T000000Z'
    assert second == first + '-2'
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(p) for p in (first, second)]


def test_a_directory_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(exception.SnapshotError, match='no snapshot can be written'):
        writer.write_snapshot(str(tmp_path / 'file'), recording())


def test_a_snapshot_that_fails_half_way_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(exception.SnapshotError, match='No space left'):
        writer.write_snapshot(str(tmp_path), recording())
    assert os.listdir(tmp_path) == []


def test_tenants_names_are_no_paths(tmp_path):
    written = writer.write_snapshot(str(tmp_path / 'parent'), recording())
    assert sorted(os.listdir(tmp_path)) == ['parent']
    assert len(os.listdir(tmp_path / 'parent')) == 1
    listed = get(written, 'meta.json')['files']
    assert all(HOSTILE not in name and '..' not in name for name in listed)


# Unknown is not empty.

class Blind:
    """A cloud of which nothing can be read."""

    def collect_cluster(self, now):
        raise exception.CollectError(what='servers', service='Nova', problem='HTTP 503')

    @property
    def history(self):
        return self

    tasks = history

    def read_history(self, scope, now, remembered):
        raise exception.StoreError(problem='cannot be reached', remedy='Start it.')

    def list_in_flight_moves(self):
        raise exception.StoreError(problem='cannot be reached', remedy='Start it.')


class Mute:
    """A Prometheus that is down."""

    def fetch(self, one, *, profile=True):
        def down(query):
            return model.QueryResult(query, model.SourceHealth.UNREACHABLE, error='no answer')
        return model.PolicySamples(one.name, down(one.imbalance_query),
                                   down(one.vm_profile_query),
                                   host_capacity=down(one.host_capacity_query), taken_at=NOW)


def test_unreadable_parts_are_recorded_as_unknown(tmp_path):
    seen = recorder.read_recording(Blind(), Mute(), Blind(), policies(), ('ssd',), lambda: NOW)
    assert len(recorder.list_unknown_parts(seen)) == 5
    written = writer.write_snapshot(str(tmp_path), seen)
    for path in (schema.INSTANCES, schema.GROUPS, schema.SERVICES, schema.PROVIDERS,
                 schema.MIGRATIONS, schema.COOLDOWNS, 'prometheus/imbalance_cpu.json'):
        assert get(written, path)['unknown'] is True, path
    refused(written, 'nova/', 'recorded as unknown', 'HTTP 503', 'Record the snapshot again')
    for result in (lambda s: s.imbalance, lambda s: s.profile, lambda s: s.host_capacity):
        found = result(snapshot.SnapshotSource(None, written).fetch(policies().find_policy('cpu')))
        assert found.error == 'no answer' and found.series == {}


def test_unknown_cooldowns_give_a_warning(tmp_path):
    written = writer.write_snapshot(str(tmp_path), recording(histories='the database is away'))
    found = reader.read_snapshot(written)
    assert found.build_history('ssd', cooldown=1, instance_cooldown=1) == model.MoveHistory()
    (warning,) = found.warnings
    assert 'cooldowns' in warning and 'the database is away' in warning


def test_a_cloud_without_placement_data_says_so(tmp_path):
    blind = dataclasses.replace(cluster(), placement_known=False)
    found = reader.read_snapshot(writer.write_snapshot(str(tmp_path), recording(cluster=blind)))
    assert found.cluster.placement_known is False
    assert not found.traits_known


def test_a_lost_file_is_missed(written):
    os.remove(os.path.join(written, schema.MIGRATIONS))
    refused(written, 'meta.json', 'nova/migrations.json', 'Copy the whole directory')


def test_flights_of_our_own_tasks_are_recorded_with_novas(tmp_path):
    class Cloud:
        def collect_cluster(self, now):
            return dataclasses.replace(cluster(), flights=(), taken_at=now)

        @property
        def history(self):
            return self

        tasks = history

        def read_history(self, scope, now, remembered):
            return model.MoveHistory()

        def read_contract_records(self, cluster, now):
            return model.ContractRecords({}, {})

        def list_in_flight_moves(self):
            return (model.InFlightMove('u1', 'a', 'b', 'task'),)

    seen = recorder.read_recording(Cloud(), Mute(), Cloud(), policies(), ('ssd',), lambda: NOW)
    found = reader.read_snapshot(writer.write_snapshot(str(tmp_path), seen))
    assert found.cluster.flights == (model.InFlightMove('u1', 'a', 'b', 'task'),)


def test_a_task_that_ends_while_nova_is_read_is_recorded_as_under_way(tmp_path):
    """Its instance may have been seen at either end."""
    ending = model.InFlightMove('u1', 'a', 'b', 'task')

    class Cloud:
        live = [(ending,), ()]

        def collect_cluster(self, now):
            assert len(self.live) == 1, 'tasks are read before Nova'
            return dataclasses.replace(cluster(), flights=(), taken_at=now)

        @property
        def history(self):
            return self

        tasks = history

        def read_history(self, scope, now, remembered):
            return model.MoveHistory()

        def read_contract_records(self, cluster, now):
            return model.ContractRecords({}, {})

        def list_in_flight_moves(self):
            return self.live.pop(0)

    cloud = Cloud()
    seen = recorder.read_recording(cloud, Mute(), cloud, policies(), ('ssd',), lambda: NOW)
    assert seen.cluster.flights == (ending,)


# Kronos 0.2.0's layout.

def old(directory):
    """A snapshot as Kronos 0.2.0 writes one: no hosts, no Placement."""
    for folder in ('nova', 'prometheus'):
        (directory / folder).mkdir(parents=True)
    for path, data in {
            'meta.json': {'recorded_at': '2026-11-01T00:00:00.250000+00:00',
                          'policy_names': ['cpu'], 'aggregates': ['ssd', '_unassigned_']},
            'cooldowns.json': {'instance_quarantines': {'u1': -1}},
            schema.AGGREGATES: {'ssd': ['a'], '_unassigned_': ['b', 'c']},
            schema.INSTANCES: {
                'a': [{'uuid': 'u1', 'name': 'web', 'internal_name': 'instance-1', 'host': 'a',
                       'flavor_vcpus': 4, 'flavor_ram_mb': 8192, 'status': 'ACTIVE',
                       'flavor_disk_gb': 40, 'server_groups': []}], 'b': [], 'c': []},
            schema.GROUPS: [{'id': 'g1', 'name': 'x', 'policies': ['anti-affinity'],
                             'members': ['u1'], 'rules': {}},
                            {'id': 'g2', 'policy': 'affinity', 'members': []}],
            schema.SERVICES: [
                {'host': h, 'binary': 'nova-compute', 'state': 'up', 'status': 'enabled',
                 'zone': 'az1', 'disabled_reason': '', 'forced_down': False}
                for h in ('a', 'b', 'c', 'elsewhere')] + [
                {'host': 'a', 'binary': 'nova-scheduler', 'state': 'up', 'status': 'enabled'}],
            'prometheus/imbalance_cpu.json': {
                'query': 'cpu', 'health': 'healthy', 'series': {'a': 0.5, 'b': 1},
                'missing_labels': [], 'warnings': []}}.items():
        (directory / path).write_text(json.dumps(data))
    return str(directory)


def test_the_ancestors_snapshot_is_read(tmp_path):
    found = reader.read_snapshot(old(tmp_path))
    assert found.recorded_at == NOW
    assert found.cluster.list_hosts_of('ssd') == ('a',)
    assert found.cluster.list_hosts_of(model.UNASSIGNED) == ('b', 'c')
    assert found.cluster.hosts['a'].zone == 'az1'
    assert set(found.cluster.services) == {'a', 'b', 'c', 'elsewhere'}
    assert found.cluster.placement_known is False
    assert found.cluster.instances['u1'].memory_mb == 8192
    assert [g.policy for g in found.cluster.groups] == ['anti-affinity', 'affinity']
    assert found.build_history('ssd', cooldown=1, instance_cooldown=1).quarantined == {'u1': -1}


def test_a_group_with_a_policy_unknown_to_nova_is_ignored(tmp_path):
    directory = old(tmp_path)
    put(directory, schema.GROUPS, [
        {'id': 'g1', 'policy': None}, {'id': 'g2', 'policies': []},
        {'id': 'g3', 'policy': 'legacy'}, {'id': 'g4', 'policy': 'affinity'}])
    assert [g.uuid for g in reader.read_snapshot(directory).cluster.groups] == ['g4']


def test_claims_are_the_flavors_where_no_allocations_were_recorded(tmp_path):
    directory = old(tmp_path)
    os.mkdir(os.path.join(directory, 'placement'))
    put(directory, schema.PROVIDERS, {'a': {'uuid': 'p', 'inventories': {'VCPU': {'total': 8}}}})
    found = reader.read_snapshot(directory)
    assert found.cluster.placement_known
    assert found.cluster.instances['u1'].claims == {'VCPU': 4, 'MEMORY_MB': 8192, 'DISK_GB': 40}


def test_hosts_of_an_aggregate_that_was_not_recorded_are_not_in_the_pool(tmp_path):
    directory = old(tmp_path)
    put(directory, schema.AGGREGATES, {'ssd': ['a']})
    found = reader.read_snapshot(directory)
    put(directory, schema.INSTANCES, {'a': [], 'd': []})
    assert found.cluster.list_hosts_of(model.UNASSIGNED) == ()


def test_deadlines_of_earlier_drains_are_not_recorded(tmp_path):
    """Anonymised reasons are all alike: such a deadline would count for the present drain."""
    earlier = {name: dataclasses.replace(history, drain_deadlines={
        'a': model.DrainDeadline(NOW, 'earlier'), 'b': model.DrainDeadline(NOW, 'x')})
        for name, history in histories().items()}
    found = reader.read_snapshot(writer.write_snapshot(
        str(tmp_path), recording(histories=earlier)))
    assert found.build_history('ssd', cooldown=900, instance_cooldown=900).drain_deadlines == {}


def test_times_of_services_reports_are_not_recorded(tmp_path):
    reported = {host: dataclasses.replace(service, reported_at=NOW)
                for host, service in cluster().services.items()}
    written = writer.write_snapshot(str(tmp_path), recording(
        cluster=dataclasses.replace(cluster(), services=reported)))
    assert {name for row in get(written, schema.SERVICES) for name in row} == set(
        schema.ServiceRecord.model_fields)


@pytest.mark.parametrize('path', ['nova/instances.json', 'nova/server_groups.json',
                                  'nova/aggregates.json', 'meta.json'])
def test_without_a_file_that_every_layout_has_nothing_is_planned(path, tmp_path):
    directory = old(tmp_path)
    os.remove(os.path.join(directory, path))
    refused(directory, path, 'cannot be read')


def test_without_services_every_host_is_up_and_a_warning_says_so(tmp_path):
    directory = old(tmp_path)
    os.remove(os.path.join(directory, schema.SERVICES))
    found = reader.read_snapshot(directory)
    assert found.cluster.services == {h: model.Service(h) for h in 'abc'}
    assert found.cluster.services['a'].available
    assert any('services.json is missing' in text for text in found.warnings)
    zoned = dataclasses.replace(found.cluster, planned_zone='nova')
    assert zoned.list_hosts_of(model.UNASSIGNED) == ('b', 'c')


def test_services_that_were_recorded_and_lost_are_an_error(written):
    os.remove(os.path.join(written, schema.SERVICES))
    refused(written, 'meta.json', 'was recorded and is missing')


# Scores.

def test_a_query_is_found_by_its_exact_text_under_any_policys_name(written):
    renamed = policies().find_policy('cpu').model_copy(update={'name': 'load'})
    found = snapshot.SnapshotSource(None, written).fetch(renamed)
    assert found.imbalance.series == {'a': 0.5, 'b': 0.25}
    assert found.age == 12.5


@pytest.mark.parametrize(('field', 'attribute'), [
    ('imbalance_query', 'imbalance'), ('vm_profile_query', 'profile'),
    ('capacity_query', 'capacity'), ('host_capacity_query', 'host_capacity')])
def test_a_query_that_was_not_recorded_is_an_error_that_names_it(field, attribute, written):
    other = policies().find_policy('cpu').model_copy(update={field: 'cpu '})
    found = getattr(snapshot.SnapshotSource(None, written).fetch(other), attribute)
    assert found.series == {}
    assert field in found.error and 'policy cpu' in found.error


def test_an_unrecorded_age_gives_a_warning(tmp_path):
    found = snapshot.SnapshotSource(None, old(tmp_path)).fetch(policies().find_policy('cpu'))
    assert found.age is None and found.taken_at == NOW
    assert any('age not verified' in w for w in found.imbalance.warnings)
    assert found.imbalance.series == {'a': 0.5, 'b': 1.0}


def test_another_label_than_the_recorded_one_is_an_error(written):
    other = policies().find_policy('cpu').model_copy(update={'host_label': 'nodename'})
    found = snapshot.SnapshotSource(None, written).fetch(other)
    assert 'another label' in found.imbalance.error


@pytest.mark.parametrize('text', ['NaN', 'Infinity', '-Infinity', '1e999', '1' + '0' * 400])
def test_a_recorded_value_that_is_no_number_is_left_out(text, tmp_path):
    directory = old(tmp_path)
    put(directory, 'prometheus/imbalance_cpu.json',
        '{"query": "cpu", "health": "healthy", "series": {"b": 0.5, "a": ' + text + '}}')
    found = snapshot.SnapshotSource(None, directory).fetch(policies().find_policy('cpu')).imbalance
    assert found.series == {'b': 0.5}
    assert any('left out' in w for w in found.warnings)


@pytest.mark.parametrize('health', ['unreachable', 'stale', 'nonsense'])
def test_an_answer_recorded_as_bad_is_an_error(health, tmp_path):
    directory = old(tmp_path)
    put(directory, 'prometheus/imbalance_cpu.json',
        {'query': 'cpu', 'health': health, 'series': {'a': 0.5}})
    found = snapshot.SnapshotSource(None, directory).fetch(policies().find_policy('cpu')).imbalance
    assert found.error and found.series == {}


def test_a_snapshot_is_no_source_for_a_daemon():
    with pytest.raises(exception.ConfigError, match='no live source'):
        snapshot.SnapshotSource(None)


# Broken and hostile files.

@pytest.mark.parametrize('path', [
    'meta.json', 'cooldowns.json', 'prometheus/imbalance_cpu.json', *(
        getattr(schema, n) for n in ('NODES', 'AGGREGATES', 'INSTANCES', 'GROUPS', 'SERVICES',
                                     'MIGRATIONS', 'PROVIDERS', 'ALLOCATIONS', 'TRAITS',
                                     'SHARING', 'BY_PROVIDER'))])
@pytest.mark.parametrize(('content', 'problem'), [
    ('', 'not valid JSON'), ('{', 'not valid JSON'), ('\xff', ''), ('[' * 100_000, ''),
    ('{"a": 1, "a": 2}', "key 'a' is written twice"), ('3', ''), ('"x"', ''), ('null', ''),
    ('[[]]', ''), ('{"a": {"b": []}}', ''), ('[{"uuid": 1}]', ''),
    ('{"x": [{"uuid": "u", "flavor_vcpus": -1}]}', ''),
    ('9' * 5000, ''), ('{"recorded_at": "soon"}', '')])
@pytest.mark.turns(2)
def test_a_broken_file_is_one_error_that_names_it(path, content, problem, written):
    with open(os.path.join(written, path), 'w', encoding='latin-1') as f:
        f.write(content)
    refused(written, path, problem)


ROOT = {'uuid': 'r', 'nested': [{'uuid': 'n', 'parent_uuid': 'r'}]}


@pytest.mark.parametrize(('path', 'content', 'problem'), [
    (schema.PROVIDERS, {'a': {**ROOT, 'sharing': ['x']}}, 'sharing provider x is not in'),
    (schema.PROVIDERS, {'a': {**ROOT, 'parent_uuid': 'x'}}, 'are no tree'),
    (schema.PROVIDERS, {'a': {**ROOT, 'uuid': 'other'}}, 'are no tree'),
    (schema.PROVIDERS, {'a': {'uuid': 'r', 'nested': [{'uuid': 'n'}]}}, 'are no tree'),
    (schema.PROVIDERS, {'a': {'uuid': 'n', 'nested': [{'uuid': 'n', 'parent_uuid': 'n'}]}},
     'are no tree'),
    (schema.SHARING, [{'uuid': 'pool'}, {'uuid': 'pool'}], 'pool stands there twice'),
    (schema.BY_PROVIDER, {'u1': {'p1': {'VCPU': -4}}}, 'u1.p1.VCPU'),
    (schema.INSTANCES, {'a': [{'uuid': 'u'}], 'b': [{'uuid': 'u'}]}, 'u stands there twice'),
    (schema.INSTANCES, {'a': [{'uuid': 'u', 'host': 'b'}]}, 'on another host'),
    (schema.INSTANCES, {'a': [{'uuid': 'u\x1b[2J'}]}, '[0].uuid'),
    (schema.INSTANCES, {'a\x1b[2J': []}, 'a?[2J'),
    (schema.INSTANCES, {'a': [{'uuid': 'u', 'flavor_vcpus': 2**70}]}, 'flavor_vcpus'),
    (schema.INSTANCES, {'a': [{'uuid': 'u', 'flavor_vcpus': True}]}, 'flavor_vcpus'),
    (schema.INSTANCES, {'a': [{'uuid': 'u', 'locked': 'no'}]}, 'locked'),
    (schema.GROUPS, [{'id': 'g', 'policy': 'together'}], 'unknown to Nova'),
    (schema.GROUPS, [{'id': 'g'}], '0 policies'),
    (schema.GROUPS, [{'id': 'g', 'policy': 'affinity', 'policies': ['anti-affinity']}],
     '2 policies'),
    (schema.GROUPS, [{'id': 'g', 'policy': 'anti-affinity',
                      'rules': {'max_server_per_host': '1'}}], 'max_server_per_host'),
    (schema.SERVICES, [{'host': 'a', 'state': 'up'}], 'status'),
    (schema.PROVIDERS, {'a': {'uuid': 'p', 'inventories': {'VCPU': {
        'total': 1, 'allocation_ratio': -1}}}}, 'allocation_ratio'),
    (schema.PROVIDERS, {'a': {'uuid': 'p', 'inventories': {'VCPU': {
        'total': 1, 'step_size': 0}}}}, 'step_size'),
    (schema.ALLOCATIONS, {'u1': {'VCPU': -4}}, 'VCPU'),
    (schema.COOLDOWNS, {'instance_cooldowns': {'u': -1}}, 'instance_cooldowns'),
    (schema.COOLDOWNS, {'instance_quarantines': {'u': -2}}, 'instance_quarantines'),
    (schema.COOLDOWNS, {'aggregate_cooldowns': {'ssd': 'soon'}}, 'aggregate_cooldowns'),
    ('prometheus/imbalance_cpu.json', {'query': 'cpu', 'series': {'a': '0.5'}}, 'series.a'),
    ('prometheus/imbalance_cpu.json', {'query': 'cpu', 'series': {'a': True}}, 'series.a'),
    ('prometheus/imbalance_cpu.json', {'query': 'cpu', 'series': {'a': None}}, 'series.a')])
def test_a_wrong_field_is_named(path, content, problem, written):
    put(written, path, content)
    refused(written, path, problem)


@pytest.mark.parametrize('text', ['NaN', 'Infinity'])
def test_only_samples_may_be_no_numbers(text, written):
    put(written, schema.COOLDOWNS, '{"instance_cooldowns": {"u": ' + text + '}}')
    refused(written, 'cooldowns.json', text)


def test_a_file_that_is_too_large_is_not_read(written, monkeypatch):
    monkeypatch.setattr(snapshot_files, 'MAX_BYTES', 1000)
    put(written, schema.GROUPS, ' ' * 1001 + '[]')
    with pytest.raises(exception.SnapshotError, match='larger than'):
        snapshot_files.load_document(written, schema.GROUPS)


def test_a_pipe_in_a_files_place_does_not_hang(written):
    os.remove(os.path.join(written, schema.GROUPS))
    os.mkfifo(os.path.join(written, schema.GROUPS))
    refused(written, schema.GROUPS, 'not a regular file')


def test_a_directory_in_a_files_place_is_refused(written):
    os.remove(os.path.join(written, schema.GROUPS))
    os.mkdir(os.path.join(written, schema.GROUPS))
    refused(written, schema.GROUPS)


def test_a_directory_without_a_snapshot_is_refused(tmp_path):
    refused(str(tmp_path), 'meta.json', 'No such file')
    refused(str(tmp_path / 'nowhere'), 'meta.json', 'No such file')


def test_hosts_of_different_cells_may_be_written_in_any_order(written):
    found = get(written, 'cooldowns.json')
    assert found['other_cells'] == [['a', 'b']]
    put(written, 'cooldowns.json', {**found, 'other_cells': [['b', 'a']]})
    assert reader.read_snapshot(written).build_history('ssd', cooldown=0,
                                                       instance_cooldown=0).other_cells == {
                                                           ('a', 'b')}


def test_a_snapshot_without_other_cells_is_readable_by_older_releases(tmp_path):
    without = {s: dataclasses.replace(h, other_cells=frozenset()) for s, h in histories().items()}
    found = get(writer.write_snapshot(str(tmp_path), recording(histories=without)),
                'cooldowns.json')
    assert 'other_cells' not in found and 'completed' in found


def test_the_ancestors_name_of_the_pool_is_known(tmp_path):
    """0.2.0 writes <unassigned> into cooldowns.json, and _unassigned_ elsewhere."""
    directory = old(tmp_path)
    (tmp_path / 'cooldowns.json').write_text(json.dumps(
        {'aggregate_cooldowns': {'<unassigned>': 40, 'ssd': 7}}))
    found = reader.read_snapshot(directory)
    assert found.build_history(model.UNASSIGNED, cooldown=1e9,
                               instance_cooldown=1).scope_cooling == 40
    assert found.build_history('ssd', cooldown=1e9, instance_cooldown=1).scope_cooling == 7
