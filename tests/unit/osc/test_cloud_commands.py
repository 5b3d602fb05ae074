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

"""Commands about the cloud, drains, orders of moves and events, on the real routes."""

import dataclasses
import json
import re
import threading
import time

import pytest
import wcwidth

from kronos_nova import model
from kronos_nova.api import application
from kronos_nova.model import TaskState
from kronos_nova.osc import drain
from kronos_nova.osc import event_feed
from kronos_nova.osc import why
from kronos_nova.rebalancer.operations import calculation_turns
from kronos_nova.rebalancer.operations import reading_cache
from tests.scenarios import loader
from tests.unit.api import published
from tests.unit.api import test_requests
from tests.unit.api import test_verdicts
from tests.unit.osc import conftest
from tests.unit.osc import test_tables
from tests.unit.osc.test_commands import read_json
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(3)

publisher = test_verdicts.publisher
A1, LONG = test_verdicts.A1, test_tables.LONG


@pytest.fixture
def crowded(store, tmp_path, conf):
    """A cloud whose names are as long as they may be, with a paused scope; return the names."""
    long = LONG['host'][:250]
    names = {'a': long, 'b': LONG['wide'], 'c': 'c', 'd': f'{long}.d', 'e': 'e'}
    cluster = published.make_cluster(LONG['scope'])
    publisher = published.Publisher(store, tmp_path, dataclasses.replace(
        cluster, hosts={names[name]: dataclasses.replace(host, name=names[name])
                        for name, host in cluster.hosts.items()},
        services={names[name]: dataclasses.replace(
            service, **({'disabled_reason': 'new ' * 50} if name == 'd' else {}))
            for name, service in cluster.services.items()},
        instances={uuid: dataclasses.replace(
            instance, name=LONG['evil'], host=names['d' if uuid == A1 else instance.host])
            for uuid, instance in cluster.instances.items()},
        aggregates={name: tuple(names[host] for host in hosts)
                    for name, hosts in cluster.aggregates.items()}),
        scope=LONG['scope'])
    publisher.source._hosts = {names[name]: load for name, load in publisher.source._hosts.items()}
    publisher.run_cycle()
    store.pauses.pause_scope(LONG['scope'], store.now(), seconds=3600, paused_by='o' * 255,
                             reason='because ' * 30)
    conf.set_override('dry_run', False, group='engine')
    return names


def list_questions(names):
    yield from (('host', 'list'), ('host', 'show', names['a']), ('instance', 'list'),
                ('instance', 'show', A1), ('policy', 'list'), ('drain', 'list'),
                ('drain', 'check', names['a']), ('why', 'not', A1, names['b']),
                ('what', 'if', LONG['scope'], '--remove', names['a']),
                ('event', 'list', '--changes-since=-1d'))


def test_tables_fit_a_hundred_columns_and_are_printable(openstack, crowded):
    for arguments in list_questions(crowded):
        status, output, error = openstack.run(*arguments)
        lines = output.splitlines()
        widths = {wcwidth.wcswidth(line) for line in lines}
        assert status == (arguments[:2] == ('drain', 'check')) and len(lines) > 3, error
        assert len(widths) == 1 and max(widths) <= test_tables.WIDTH, (arguments, widths)
        for form in ('table', 'json', 'yaml'):
            output = openstack.run(*arguments, '-f', form)[1]
            assert all(c.isprintable() or c == '\n' for c in output)


def test_formats_for_programs_have_all_fields_and_whole_names(openstack, crowded, server):
    hosts = read_json(openstack, 'host', 'list')
    assert {row['Name'] for row in hosts} == {crowded[name] for name in 'abcd'}
    assert read_json(openstack, 'host', 'list', '--long') == hosts
    (disabled,) = [row for row in hosts if not row['Enabled']]
    assert disabled['Up'] is True and disabled['State'] == ['disabled']
    assert disabled['Instances'] == 1 and isinstance(disabled['Loads'][0]['score'], float)
    assert disabled['Resources'][0]['used'] == 8192
    for row in read_json(openstack, 'instance', 'list'):
        assert row['Memory MiB'] == 4096 and row['Locked'] is False
        assert row['Project ID'] == 'c1' * 16 and row['Name'].startswith('web?]0;x')
    for name in ('Memory MiB', 'Project ID'):
        assert name not in openstack.read('instance', 'list')
        assert name in openstack.read('instance', 'list', '--long')


def test_host_is_shown_by_its_name(openstack, publisher, server):
    shown = read_json(openstack, 'host', 'show', 'd')
    assert shown['name'] == 'd' and shown['disabled_reason'] == 'new disks'
    assert shown['is_enabled'] is False and shown['is_up'] is True
    output = openstack.read('host', 'show', 'a')
    assert re.search(r'\| loads +\| cpu: 0\.8000', output) and 'base 0.2000' in output
    assert re.search(r'MEMORY_MB: 8192 of 65536', output)
    assert openstack.fail('host', 'show', 'aa') == (
        '<host>: no scope that engines plan has a host aa; see openstack rebalance host list')
    assert openstack.fail('host', 'list', '--scope', 'bleu').startswith('scope: ')


def test_lists_of_the_cloud_take_all_pages_and_filters(openstack, publisher, conf, server):
    conf.set_override('max_limit', 2, group='kronos_api')
    assert [row['Name'] for row in read_json(openstack, 'host', 'list')] == list(published.HOSTS)
    assert len(read_json(openstack, 'instance', 'list')) == 5
    assert openstack.run('instance', 'list', '--limit', '3')[2] == (
        'Only 3 instances are shown; --limit shows more.\n')
    for arguments, uuids in ((('--host', 'c'), [published.PINNED]),
                             (('--name', published.NAME), sorted(published.TWINS)),
                             (('--project', 'other'), []),
                             (('--host', 'e', '--scope', 'blue'), [])):
        assert [row['ID'] for row in read_json(openstack, 'instance', 'list', *arguments)] == uuids


def test_instance_has_a_uuid_or_a_name_of_its_own(openstack, publisher):
    assert read_json(openstack, 'instance', 'show', 'a1')['id'] == A1
    pinned = read_json(openstack, 'instance', 'show', published.PINNED.upper())
    assert pinned['rejections'][0]['rule'] == 'pinned' and pinned['held_for_seconds'] is None
    output = openstack.read('instance', 'show', published.TWINS[0])
    assert '0.3000 of the host' in output and 'anti-affinity' in output
    contracts = openstack.read('instance', 'show', loader.uuid_of('e0'))
    assert 'disruption drain-only, max_moves 2/7d (flavor)' in contracts
    assert 'hours * 1-4 * * *, notify 1d, released_until 2026-11-01T00:00:00Z' in contracts
    assert 'disruption unreadable' in ' '.join(contracts.replace('|', ' ').split())
    line = openstack.fail('instance', 'show', published.NAME)
    assert line.startswith(f'<instance>: {published.NAME} is the name of ')
    assert all(uuid in line for uuid in published.TWINS) and line.endswith('; write a UUID')
    assert openstack.fail('instance', 'show', 'nothing').startswith(
        '<instance>: no instance is called nothing; see openstack rebalance instance list')
    assert 'HTTP 404' in openstack.fail('instance', 'show', loader.uuid_of('gone'))


def test_policies_name_scopes_that_do_not_trust_them(openstack, publisher):
    (policy,) = read_json(openstack, 'policy', 'list')
    assert policy['Name'] == 'cpu' and policy['Threshold'] == 0.15 and policy['Trusted'] is True
    assert policy['Imbalance Query'] == 'cpu' and policy['Scopes'] == ['blue']
    publisher.source._hosts = {}
    publisher.run_cycle()
    end = time.monotonic() + 20
    while (policy := read_json(openstack, 'policy', 'list')[0])['Trusted']:
        assert time.monotonic() < end
    assert policy['Untrusted'][0]['scope'] == 'blue'
    assert 'blue: ' in openstack.read('policy', 'list', '--long')


def test_drain_list_shows_the_hold_and_its_remedy(openstack, store, publisher):
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(cluster, instances={
        uuid: dataclasses.replace(instance, host='d' if uuid == A1 else instance.host)
        for uuid, instance in cluster.instances.items()})
    publisher.run_cycle()
    end = time.monotonic() + 20
    while (row := read_json(openstack, 'drain', 'list')[0])['Instances'] != 1:
        assert time.monotonic() < end
    assert row['Held'] is None and row['Remedy'] is None and row['Disabled Reason'] == 'new disks'
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='me', reason='storm')
    (row,) = read_json(openstack, 'drain', 'list')
    assert 'storm' in row['Held'] and row['Remedy'] == 'Delete the pause'
    assert 'Delete the pause' in openstack.read('drain', 'list')
    openstack.read('pause', 'delete', '--scope', 'blue')
    publisher.conf.set_override('drain_reason_regex', '^drain', group='engine')
    publisher.run_cycle()
    while (row := read_json(openstack, 'drain', 'list')[0])['Held'] is None:
        assert time.monotonic() < end
    assert 'new disks' in row['Held'] and 'drain_reason_regex' in row['Remedy']


def test_drain_check_fails_where_an_instance_stays(openstack, store, publisher):
    check = read_json(openstack, 'drain', 'check', 'a')
    assert check['can_be_emptied'] is True and check['instance_count'] == 2
    assert {move['instance_id'] for move in check['moves']} == {published.TWINS[0], A1}
    status, output, _error = openstack.run('drain', 'check', 'c', '--mode', 'compact',
                                           '--overbooking')
    assert status == 1 and f'{published.PINNED} stays: ' in ' '.join(output.split())
    status, output, _error = openstack.run('drain', 'check', 'c', '-f', 'json')
    assert status == 1 and json.loads(output)['blocked'][0]['leaves_later'] is False
    assert openstack.fail('drain', 'check', 'nowhere').startswith('host: ')


def test_check_and_why_not_name_the_shutdown_of_a_late_instance(openstack, store, publisher):
    publisher.conf.set_override('drain_offline', 'allow', 'engine')
    publisher.run_cycle()
    test_verdicts.make_late(store)
    words = ' '.join(openstack.run('drain', 'check', 'a')[1].replace('|', ' ').split())
    assert f'{A1}: shut down, moved cold and started again: its live migration was late' in words
    assert 'offline (shut down, moved cold and started again)' in words
    words = ' '.join(openstack.read('why', 'not', A1, 'b', '--phase', 'evacuate').replace(
        '|', ' ').split())
    assert ('shutdown shut down, moved cold and started again, but later: its live migration was '
            'late; this move is refused by cooling') in words


def test_why_not_shows_refusals_first_with_their_remedies(openstack, publisher):
    answer = read_json(openstack, 'why', 'not', 'a1', 'b')
    assert answer['allowed'] is True and answer['effects'][0]['policy'] == 'cpu'
    output = openstack.read('why', 'not', A1, 'd', '--phase', 'evacuate')
    assert re.search(r'\| verdicts +\| service-disabled: refused: ', output)
    assert 'remedy: ' in output and re.search(r'\| allowed +\| False ', output)
    twin = read_json(openstack, 'why', 'not', published.TWINS[0], 'b')
    assert [verdict['rule'] for verdict in twin['verdicts'] if not verdict['passed']] == [
        'anti-affinity']
    assert "no compute host 'bb'" in openstack.fail('why', 'not', A1, 'bb')


def test_why_nothing_shows_the_conclusion_with_its_causes(openstack, store, publisher):
    answer = read_json(openstack, 'why', 'nothing', 'blue')
    assert answer['plan']['host_count'] == 4 and answer['rejections'] is not None
    output = openstack.read('why', 'nothing', 'blue')
    # The lease of the engine that has published may have ended.
    assert re.search(r'\| conclusion +\| nothing: (no live engine, )?no live executor; a cycle '
                     r'would plan \d', output)
    assert re.search(r'\| (causes)? +\| no live executor: none that serves scope blue ', output)
    assert re.search(r'\| plan +\| 4 hosts, 4 instances, \d moves? ', output)
    store.pauses.pause_scope('blue', store.now(), seconds=60, paused_by='eve\x1b', reason='storm')
    output = openstack.read('why', 'nothing', 'blue')
    assert re.search(r'\| holds +\| .*eve\?', output) and '\x1b' not in output
    assert "'green'" in openstack.fail('why', 'nothing', 'green')


def test_what_if_shows_the_plan_of_today_beside_another(openstack, publisher):
    arguments = ('what', 'if', 'blue', '--add', '2:c', '--remove', 'b', '--load-factor', '1.1')
    comparison = read_json(openstack, *arguments)
    assert (comparison['today']['host_count'], comparison['supposed']['host_count']) == (4, 6)
    left = [move['instance_id'] for move in comparison['supposed']['moves']
            if move['from_host'] == 'b']
    assert left == [published.TWINS[1]]
    output = openstack.read(*arguments)
    assert re.search(r'\| today +\| 4 hosts, 4 instances, \d moves? ', output)
    assert re.search(r'\| supposed +\| 6 hosts, 4 instances, \d moves? ', output)
    drained = read_json(openstack, 'what', 'if', 'blue', '--drain', 'b', '--reason', 'new disks')
    assert [move['to_host'] for move in drained['supposed']['moves']
            if move['from_host'] == 'b'] != ['d']
    assert "scope 'blue' has no host 'e'" in openstack.fail('what', 'if', 'blue', '--drain', 'e')


@pytest.mark.parametrize(('arguments', 'words'), [
    (('what', 'if', 'blue', '--add', 'c'), "--add: 'c': write a number from 1 to 200 and a host"),
    (('what', 'if', 'blue', '--add', '0:c'), "--add: '0:c': write a number"),
    (('what', 'if', 'blue', '--load-factor', 'nan'), "--load-factor: 'nan' is no factor"),
    (('why', 'not', 'x', 'b', '--phase', 'fast'), '--phase: invalid choice: '),
    (('drain', 'check', 'a', '--mode', 'fast'), '--mode: invalid choice: '),
    (('host', 'show', ' '), '<host>: it is empty'),
    (('plan', 'retry', '--latest'), 'required: --reason'),
    (('event', 'list', '--limit', '0'), "--limit: '0' is no number of rows")])
def test_wrong_argument_is_named(openstack, server, arguments, words):
    status, output, error = openstack.run(*arguments)
    assert (status, output) == (2, '') and words in error.splitlines()[-1]
    assert server.requests == []


def test_choices_are_those_of_the_model():
    assert set(why.PHASES) == {phase.value for phase in model.Phase}
    assert set(drain.MODES) == {mode.value for mode in model.DrainMode}


def test_retry_orders_moves_and_says_when_it_orders_none(openstack, store, publisher):
    plan_id = published.end_move(store, A1, 'a', 'b', TaskState.FAILED)
    arguments = ('plan', 'retry', plan_id[:12], '--reason', 'fixed')
    (row,) = read_json(openstack, *arguments, '--dry-run')
    assert row['Verdict'] == 'wave 0' and row['Task'] is None and row['Plan'] is None
    status, output, error = openstack.run('plan', 'retry', '--latest', '--instance', A1[:8],
                                          '--reason', 'fixed', '-f', 'json')
    (row,) = json.loads(output)
    assert status == 0 and error == f'Plan {row["Plan"]} is stored.\n'
    assert store.tasks.find_task(row['Task']).task.plan_id == row['Plan']
    status, output, error = openstack.run(*arguments)
    assert status == 1 and 'in-flight: ' in output
    assert error.startswith('Nothing is ordered: the rules refuse moves')
    assert openstack.fail(*arguments, '--dry-run', '--wait').startswith('--dry-run: ')


def test_revert_has_the_warnings_of_its_plan_on_standard_error(openstack, conf, store, publisher):
    for of in (conf, publisher.conf):
        of.set_override('failover', 'warn', group='engine')
        of.set_override('enforce_placement_claims', False, group='engine')
    publisher.run_cycle()
    plan_id = published.end_move(store, A1, 'c', 'a', TaskState.COMPLETED)
    status, _output, error = openstack.run('plan', 'revert', plan_id, '--reason', 'worse')
    *_, warning, stored = error.splitlines()
    assert status == 0 and warning.startswith('warning: no failover certificate: ')
    assert stored.endswith(' is stored.')


def test_revert_says_who_must_approve_the_plan(openstack, conf, store, publisher):
    for of in (conf, publisher.conf):
        of.set_override('mode', 'approve', group='engine')
        of.set_override('min_approvals', 2, group='engine')
    publisher.run_cycle()
    plan_id = published.end_move(store, A1, 'c', 'a', TaskState.COMPLETED)
    status, _output, error = openstack.run('plan', 'revert', plan_id, '--reason', 'worse')
    assert status == 0
    assert error.endswith('is stored, and waits for the approval of 1 other person.\n')


def test_revert_waits_for_the_moves_that_it_orders(openstack, store, publisher):
    plan_id = published.end_move(store, A1, 'c', 'a', TaskState.COMPLETED)
    ended = threading.Event()

    def end_moves():
        limit = time.monotonic() + 60
        while time.monotonic() < limit and not ended.is_set():
            claimed = cases.claim(store, now=store.now())
            if claimed is not None:
                cases.end(store, claimed, now=store.now())
                ended.set()
            time.sleep(0.05)

    thread = threading.Thread(target=end_moves)
    thread.start()
    status, output, error = openstack.run('plan', 'revert', plan_id, '--reason', 'worse', '--watch')
    thread.join(60)
    assert status == 0 and ended.is_set() and re.search(r'\| a +\| c ', output)
    assert 'completed' in error.splitlines()[-1]


def test_old_reading_is_one_line_with_the_remedy(openstack, server, conf, store, publisher,
                                                 monkeypatch):
    plan_id = published.end_move(store, A1, 'a', 'b', TaskState.FAILED)
    conf.set_override('max_reading_age', 60, group='kronos_api')
    maker = application.CallMaker(conf)
    maker._cloud = reading_cache.ReadingCache(conf, clock=lambda: time.time() + 61)
    monkeypatch.setattr(application, 'CallMaker', lambda conf: maker)
    late = conftest.Server(application.make_routes(conf))
    openstack.url = late.url
    # The log of the service stands before it.
    status, output, error = openstack.run('plan', 'retry', plan_id, '--reason', 'x')
    line = error.splitlines()[-1]
    assert (status, output) == (1, '') and line.startswith('blue: ')
    assert 'kronos.reading_too_old, HTTP 409' in line and 'See that kronos-engine runs' in line
    late.stop()


def test_missing_reading_and_busy_service_are_one_line(openstack, conf, store, tmp_path,
                                                       monkeypatch):
    for arguments in (('host', 'list'), ('instance', 'show', A1), ('policy', 'list'),
                      ('drain', 'list')):
        line = openstack.fail(*arguments)
        assert 'kronos.reading_missing, HTTP 503' in line and 'publish_interval' in line
    published.Publisher(store, tmp_path).run_cycle()
    maker = application.CallMaker(conf)
    maker._calculations = calculation_turns.CalculationTurns(wait=0.05)
    monkeypatch.setattr(application, 'CallMaker', lambda conf: maker)
    busy = conftest.Server(application.make_routes(conf))
    openstack.url = busy.url
    with maker._calculations.take_turn():
        status, output, error = openstack.run('drain', 'check', 'a')
        line = error.splitlines()[-1]
        assert (status, output) == (1, '')
        assert 'kronos.api.busy, HTTP 503' in line and 'Try again later' in line
    busy.stop()


def test_events_since_a_time_are_listed_with_all_fields(openstack, store, server):
    plan_id, tasks = test_requests.save_waiting_plan(store)
    openstack.read('plan', 'approve', plan_id, '--instance', tasks[0].instance_uuid,
                   '--reason', 'night shift')
    rows = read_json(openstack, 'event', 'list')
    assert sorted(row['Kind'] for row in rows) == ['command', 'plan', 'task', 'task']
    (plan,) = [row for row in rows if row['Kind'] == 'plan']
    assert plan['Of'] == plan_id and plan['Plan']['move_count'] == 2 and plan['Task'] is None
    assert {row['Of'] for row in rows if row['Kind'] == 'task'} == {
        task.task_id for task in tasks}
    output = openstack.read('event', 'list')
    assert 'approved by' in output and 'night' in output and 'scope blue, 2 moves' in output
    status, output, error = openstack.run('event', 'list', '--limit', '2')
    assert error == 'Only 2 events are shown; --limit shows more.\n'
    assert read_json(openstack, 'event', 'list', '--changes-since', '2100-01-01T00:00:00Z') == []


def test_watched_events_are_lines_until_the_limit_or_the_time(openstack, store, server):
    server.requests.clear()
    timer = threading.Timer(1.0, lambda: test_requests.save_waiting_plan(store, 1))
    timer.start()
    status, output, error = openstack.run('event', 'list', '--watch', '--limit', '2', '--timeout',
                                          '60', '-f', 'json')
    timer.join(60)
    rows = json.loads(output)
    assert status == 0 and {row['Kind'] for row in rows} == {'plan', 'task'}
    assert [line.split()[1] for line in error.splitlines()] == [row['Kind'] for row in rows]
    assert all(re.match(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ', line) for line in error.splitlines())
    # One request for the marker; later ones wait for the events.
    assert len(server.requests) <= 3 and 'wait_seconds=' in server.requests[1][2]
    began = time.monotonic()
    assert openstack.read('event', 'list', '--watch', '--timeout', '1') == '\n'
    assert 1 <= time.monotonic() - began < 30


def test_stopped_watch_lists_the_events_so_far(openstack, store, monkeypatch):
    read = event_feed.EventFeed.read
    pages = []

    def stop_later(feed, seconds, limit):
        if pages and pages[-1]:
            raise KeyboardInterrupt
        pages.append(read(feed, seconds, limit))
        return pages[-1]

    test_requests.save_waiting_plan(store, 1)
    monkeypatch.setattr(event_feed.EventFeed, 'read', stop_later)
    rows = read_json(openstack, 'event', 'list', '--watch', '--changes-since=-1h')
    assert len(rows) == 2


def test_feed_outlives_a_restart_of_the_service(openstack, store, server, monkeypatch):
    monkeypatch.setattr(event_feed, 'PAUSE', 0.05)
    failures = iter(range(3))

    def fail(environ, start_response):
        if next(failures, None) is None:
            server.answer = None
            test_requests.save_waiting_plan(store, 1)
        start_response('503 Service Unavailable', [])
        return [b'']

    timer = threading.Timer(1.0, lambda: setattr(server, 'answer', fail))
    timer.start()
    assert len(read_json(openstack, 'event', 'list', '--watch', '--limit', '2', '--timeout',
                         '60', '--changes-since=-1s')) == 2
    timer.join(60)
