# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""The pure parts of the soak: timetable, takeovers, moves, statistics and verdict."""

import dataclasses
import json
from xml.etree import ElementTree

import pytest

from tools.cloud.soak import moves
from tools.cloud.soak import paces
from tools.cloud.soak import people
from tools.cloud.soak import picture
from tools.cloud.soak import statistics
from tools.cloud.soak import takeovers
from tools.cloud.soak import verdict

OURS, OTHERS, PEOPLE = ('engine dies', 'executor dies'), ('MariaDB dies',), ('boot', 'delete')


def test_hours_in_real_time_have_a_drain_each_hour_and_a_fault_every_ten_minutes():
    entries = paces.build_timetable(paces.build_real_pace(8.0), OURS, OTHERS, PEOPLE, seed=1)
    faults = [entry for entry in entries if entry.name in OURS + OTHERS]
    assert sum(entry.name == 'drain' for entry in entries) == 8
    assert [entry.at for entry in faults] == [600.0 * n for n in range(1, 49)]
    assert [entry.name in OURS for entry in faults] == [True, False] * 24
    assert entries == sorted(entries)


def test_each_name_comes_before_one_comes_again():
    entries = paces.build_timetable(paces.build_compressed_pace(20.0), OURS, OTHERS, PEOPLE, 7)
    people = [entry.name for entry in entries if entry.name in PEOPLE]
    assert all(set(people[n:n + 2]) == set(PEOPLE) for n in range(0, len(people) - 1, 2))


def test_seed_decides_the_timetable():
    pace = paces.build_compressed_pace(20.0)
    first, again, other = (paces.build_timetable(pace, OURS, OTHERS, PEOPLE, seed)
                           for seed in (1, 1, 2))
    assert first == again != other


def test_timetable_without_faults_has_people_and_drains():
    entries = paces.build_timetable(paces.build_compressed_pace(20.0), (), (), PEOPLE, 1)
    assert {entry.name for entry in entries} == {'drain', *PEOPLE}


def test_compressed_day_passes_one_day_of_the_trace():
    pace = paces.build_compressed_pace(20.0)
    assert pace.seconds * pace.trace_speed == paces.DAY_SECONDS


def test_takeover_ends_when_another_owner_holds_the_lease():
    record = takeovers.TakeoverRecord()
    record.begin([('lease', 'blue', 'one'), ('lease', 'red', 'two')], 'one', at=100.0)
    record.observe([('lease', 'blue', 'one')], at=110.0)
    record.observe([], at=120.0)
    record.observe([('lease', 'blue', 'two')], at=131.0)
    record.observe([('lease', 'blue', 'three')], at=140.0)
    [takeover] = record.all
    assert (takeover.item, takeover.seconds) == ('blue', 31.0)


def test_takeover_of_a_task_ends_with_the_task():
    record = takeovers.TakeoverRecord()
    record.begin([('task', 'a', 'one'), ('task', 'b', 'one')], 'one', at=100.0)
    record.observe([('task', 'b', 'two')], at=150.0)
    assert [takeover.seconds for takeover in record.all] == [50.0, 50.0]


def test_process_that_goes_on_keeps_its_task():
    record = takeovers.TakeoverRecord()
    record.begin([('task', 'a', 'one')], 'one', at=100.0)
    record.release('one', at=160.0)
    record.observe([('task', 'a', 'two')], at=200.0)
    assert [takeover.seconds for takeover in record.all] == [60.0]


def make_task(state='completed', migrations=('m1',), **fields):
    return moves.TaskRecord(**{
        'task_id': 't1', 'instance': 'i1', 'to_host': 'h2', 'state': state, 'worker': None,
        'error_type': None, 'migrations': migrations, **fields})


def make_migration(uuid='m1', status='completed'):
    return moves.MigrationRecord(uuid, 'i1', 'h2', status)


def test_task_with_its_own_migration_is_as_it_should_be():
    attempts = make_task(migrations=('m1', 'm2'))
    assert moves.judge_moves([attempts], [make_migration('m1', 'error'),
                                          make_migration('m2', 'confirmed')]) == []


@pytest.mark.parametrize(('task', 'migrations', 'words'), [
    (make_task('claimed', ()), [], 'never ended'),
    (make_task(), [make_migration(status='error')], '0 migrations that moved'),
    (make_task(migrations=('m1', 'm2')), [make_migration('m1'), make_migration('m2')],
     '2 migrations that moved'),
    (make_task('failed', error_type='MigrationTimeout'), [make_migration()],
     'failed (MigrationTimeout), but migration m1 has moved'),
    (make_task(migrations=('m1',)), [make_migration('m1'), make_migration('m9')],
     'm9 of instance i1 to h2 belongs to 0 tasks'),
])
def test_lost_and_doubled_moves_are_named(task, migrations, words):
    [found] = moves.judge_moves([task], migrations)
    assert words in found


@pytest.mark.parametrize(('task', 'deleted', 'right'), [
    (make_task('cancelled', ()), True, True), (make_task('cancelled', ('req-1',)), True, True),
    (make_task('cancelled', ()), False, False), (make_task('failed', ()), True, False),
    (make_task('cancelled', (), to_host='h3'), True, False),
    (make_task('cancelled', (), instance='i2'), True, False)])
def test_migration_of_deleted_instance_belongs_to_its_cancelled_task(task, deleted, right):
    migration = dataclasses.replace(make_migration(), deleted=deleted)
    found = moves.judge_moves([task], [migration])
    assert found == [] if right else 'belongs to 0 tasks' in found[0]
    twice = [migration, dataclasses.replace(migration, uuid='m2')]
    assert len(moves.judge_moves([task], twice)) == (1 if right else 2), 'a task has one migration'


@pytest.mark.parametrize(('state', 'deleted', 'right'), [
    ('cancelled', True, True), ('cancelled', False, False), ('failed', True, False)])
def test_user_may_delete_an_instance_after_its_migration(state, deleted, right):
    migration = dataclasses.replace(make_migration(), deleted=deleted)
    found = moves.judge_moves([make_task(state)], [migration])
    assert found == [] if right else 'migration m1 has moved instance i1' in found[0]


@pytest.mark.parametrize(('changed', 'hosts', 'words'), [
    ({}, {'h1'}, None),
    ({}, {'h1', 'h2'}, 'allocations on h1, h2'),
    ({}, set(), 'allocations on no host'),
    ({'status': 'ERROR', 'fault': {'message': 'no'}}, {'h1'}, 'in ERROR: no'),
    ({'OS-EXT-STS:task_state': 'migrating'}, {'h1'}, 'task state migrating'),
    ({'OS-EXT-STS:task_state': 'scheduling', 'OS-EXT-SRV-ATTR:host': None}, set(), None),
])
def test_instance_outside_its_one_place_is_named(changed, hosts, words):
    server = {'id': 'i1', 'status': 'ACTIVE', 'OS-EXT-STS:task_state': None,
              'OS-EXT-SRV-ATTR:host': 'h1', **changed}
    found = moves.judge_places([server], {'i1': frozenset(hosts)})
    assert (words in found[0]) if words else found == []


def test_instance_in_error_is_ours_if_we_sent_the_newest_request():
    class Nova:
        def call(self, method, service, path):
            users = {'i1': ['us', 'alice'], 'i2': ['alice', 'us']}[path.split('/')[3]]
            return {'instanceActions': [
                {'start_time': f'2026-11-26T10:0{n}:00', 'user_id': user}
                for n, user in enumerate(users)]}

    servers = [{'id': uuid, 'status': status, 'OS-EXT-STS:task_state': None,
                'OS-EXT-SRV-ATTR:host': 'h1'}
               for uuid, status in (('i0', 'ACTIVE'), ('i1', 'ERROR'), ('i2', 'ERROR'))]
    failed = moves.list_failed_for_users(Nova(), servers, 'us')
    assert failed == ['i1']
    places = {server['id']: frozenset({'h1'}) for server in servers}
    [found] = moves.judge_places(servers, places, failed)
    assert found.startswith('instance i2 is in ERROR')


def test_operator_repairs_instances_in_error_that_a_quarantine_names(monkeypatch):
    """The lift of i1 fails at first: the next repair makes up for it."""
    servers = [{'id': uuid, 'status': status, 'fault': {'message': 'Placement died'}}
               for uuid, status in (('i1', 'ERROR'), ('i2', 'ERROR'), ('i3', 'ACTIVE'))]
    quarantines = [{'Kind': 'instance', 'Name': 'i1'}, {'Kind': 'host', 'Name': 'i2'},
                   {'Kind': 'instance', 'Name': 'i3'}]
    lifts, requests = [], []

    def ask(run, action, *arguments):
        if arguments[0] == 'list':
            return 0, json.dumps(quarantines)
        lifts.append(arguments[1:])
        if len(lifts) > 1:
            quarantines.pop(0)
        return int(len(lifts) == 1), ''

    class Nova:
        def servers(self):
            return servers

        def call(self, method, service, path, body):
            requests.append((path, body))
            servers[0]['status'] = 'ACTIVE'

    actors = people.People.__new__(people.People)
    actors._run, actors.cloud, actors.repaired = None, Nova(), {}
    monkeypatch.setattr(people.rebalancer, 'ask', ask)
    for _ in range(3):
        assert list(actors.repair_instances()) == []
    assert requests == [('/v2.1/servers/i1/action', {'os-resetState': {'state': 'active'}})]
    assert lifts == [('instance', 'i1')] * 2
    assert actors.repaired == {'i1': 'Placement died'}


def make_samples(hours, growth, restarts=0, name='kronos-engine-1'):
    """A sample each minute of a daemon that grows, in MiB per hour, and is restarted."""
    count = int(hours * 60)
    return [{'at': 60.0 * n, 'steps': {}, 'tasks': {'completed': n}, 'database_bytes': n,
             'processes': {name: {
                 'pid': n * (restarts + 1) // count, 'threads': 9, 'descriptors': 20,
                 'rss_kib': 1024 * (100 + growth * (n % (count // (restarts + 1))) / 60
                                    + 0.2 * (n % 2))}}}
            for n in range(count)]


@pytest.mark.parametrize('restarts', [0, 3])
def test_slope_of_a_growing_daemon_is_found_across_restarts(restarts):
    [slope] = statistics.compute_slopes(make_samples(8.0, 2.5, restarts))
    assert slope.mib_per_hour == pytest.approx(2.5, abs=0.1)
    assert slope.margin < 0.2


def test_young_processes_have_no_slope():
    assert statistics.compute_slopes(make_samples(0.5, 2.5)) == []


def test_engine_that_begins_to_plan_late_does_not_grow():
    samples = make_samples(4.0, 0.0)
    for sample in samples:
        if sample['at'] >= 7200.0:
            sample['steps'] = {'kronos-engine-1': {'step="plan"': [1.0, 1.0]}}
            process = sample['processes']['kronos-engine-1']
            process['rss_kib'] += 1024 * min(20.0, (sample['at'] - 7200.0) / 30)
            if sample['at'] == 9000.0:
                sample['steps'] = {}  # its page did not answer
    [slope] = statistics.compute_slopes(samples)
    assert slope.mib_per_hour == pytest.approx(0.0, abs=0.1)
    assert slope.hours == pytest.approx(3.5, abs=0.1)


def test_steps_are_counted_across_restarts():
    samples = [{'steps': {'e': {'step="plan"': pair}}}
               for pair in ([1.0, 2.0], [3.0, 4.0], [2.0, 1.0])]
    assert statistics.compute_step_seconds(samples) == {'step="plan"': (1.0, 5)}


def make_takeovers(*seconds):
    return [takeovers.Takeover('lease', str(n), 'one', 0.0, value)
            for n, value in enumerate(seconds)]


@pytest.mark.parametrize(('samples', 'found', 'words'), [
    (make_samples(4.0, 0.5), make_takeovers(30.0, 40.0), ()),
    (make_samples(4.0, 2.0), make_takeovers(30.0), ('grows by 2.0',)),
    (make_samples(1.0, 2.0), make_takeovers(30.0), ()),
    (make_samples(4.0, 0.5), make_takeovers(30.0, None), ('never taken over',)),
    (make_samples(4.0, 0.5), make_takeovers(30.0, 61.0), ('p99 is 61.0 s',)),
])
def test_verdict_names_each_failure(samples, found, words):
    failures = verdict.judge(samples, found, [], [], []).failures
    assert len(failures) == len(words)
    assert all(word in failure for word, failure in zip(words, failures, strict=True))


def test_verdict_passes_wrong_moves_and_tracebacks_on():
    found = verdict.judge(make_samples(1.0, 0.0), [], [], ['a move is lost'], ['kronos-engine-1'])
    assert found.failures == ('a move is lost', 'the log of kronos-engine-1 has a traceback')


def test_picture_has_every_panel_and_escapes_names():
    text = picture.draw(make_samples(2.0, 1.0, name='a<b'), [(600.0, 'x & y')])
    root = ElementTree.fromstring(text)
    titles = [node.text for node in root.iter('{http://www.w3.org/2000/svg}text')]
    assert {'resident memory, MiB', 'threads', 'descriptors', 'tasks', 'a<b'} <= set(titles)
