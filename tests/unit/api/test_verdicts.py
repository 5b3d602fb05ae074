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
"""Verdicts, supposed plans, drains and orders of moves, on a cloud that an engine has published."""

import time

import pytest

from kronos_nova import model
from kronos_nova.api import application
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import calculation_turns
from kronos_nova.rebalancer.operations import reading_cache
from tests.scenarios import loader
from tests.unit.api import conftest
from tests.unit.api import published
from tests.unit.rebalancer.store import cases

A1 = loader.uuid_of('a1')


@pytest.fixture
def publisher(store, tmp_path, conf):
    conf.set_override('dry_run', False, group='engine')
    publisher = published.Publisher(store, tmp_path)
    publisher.run_cycle()
    return publisher


def test_policies_are_those_of_the_engine(client, publisher):
    (policy_set,) = client.send('GET', '/v1/policies')[1]['policy_sets']
    assert policy_set['scopes'] == ['blue'] and policy_set['mode'] == 'spread'
    (policy,) = policy_set['policies']
    assert policy['name'] == 'cpu' and policy['weight'] == 1.0 and policy['threshold'] == 0.15
    assert policy['imbalance_query'] == 'cpu' and policy_set['untrusted'] == []


def test_untrusted_scores_are_named(client, publisher):
    publisher.source._hosts = {}
    publisher.run_cycle()
    (untrusted,) = client.send('GET', '/v1/policies')[1]['policy_sets'][0]['untrusted']
    assert untrusted['policy'] == 'cpu' and untrusted['scope'] == 'blue' and untrusted['reason']
    load = client.send('GET', '/v1/hosts')[1]['hosts'][0]['loads'][0]
    assert load['score'] is None


def test_move_is_judged_by_each_rule(client, publisher):
    path = f'/v1/instances/{A1}/why-not'
    status, verdict = client.send('GET', f'{path}?host=b')
    assert status == 200 and verdict['allowed'] and verdict['phase'] == 'spread'
    assert (verdict['from_host'], verdict['to_host']) == ('a', 'b')
    (effect,) = verdict['effects']
    assert effect['imbalance_after'] < effect['imbalance_before'] == pytest.approx(
        verdict['imbalance_before'])
    assert 'lower the imbalance' in verdict['conclusion']
    assert all(rule['passed'] for rule in verdict['verdicts'])


def test_refused_move_has_the_rule_and_its_remedy(client, publisher):
    status, verdict = client.send('GET', f'/v1/instances/{published.TWINS[0]}/why-not?host=b')
    refusals = {rule['rule']: rule for rule in verdict['verdicts'] if not rule['passed']}
    assert status == 200 and not verdict['allowed']
    assert list(refusals) == ['anti-affinity'] and refusals['anti-affinity']['detail']
    disabled = client.send('GET', f'/v1/instances/{A1}/why-not?host=d&phase=evacuate')[1]
    assert [rule['rule'] for rule in disabled['verdicts'] if not rule['passed']] == [
        'service-disabled']


@pytest.mark.parametrize(('path', 'status', 'words'), [
    (f'/v1/instances/{A1}/why-not', 400, 'query host: '),
    (f'/v1/instances/{A1}/why-not?host=b&phase=fast', 400, 'query phase: '),
    (f'/v1/instances/{A1}/why-not?host=bb', 404, "host: no compute host 'bb'"),
    (f'/v1/instances/{loader.uuid_of("gone")}/why-not?host=b', 404, 'instance: '),
    (f'/v1/instances/{loader.uuid_of("e0")}/why-not?host=b', 404, 'instance: '),
    ('/v1/instances/a1/why-not?host=b', 404, 'instance_id: it is not a UUID'),
    ('/v1/drains/check?host=nowhere', 404, 'host: '),
    ('/v1/drains/check', 400, 'query host: '), ('/v1/why-nothing', 400, 'query scope: '),
    ('/v1/why-nothing?scope=green', 404, 'green')])
def test_question_names_the_wrong_field(client, publisher, path, status, words):
    answer = client.fail('GET', path)
    assert answer[0] == status and words in answer[1]


def test_next_plan_has_all_that_holds_it(client, store, publisher):
    path = '/v1/why-nothing?scope=blue'
    status, answer = client.send('GET', path)
    assert status == 200, answer
    count = len(answer['plan']['moves'])
    moves = f'{count} move' if count == 1 else f'{count} moves'
    assert count and answer['holds'] == []
    causes = ['no live engine', 'no live executor']
    assert [cause.partition(':')[0] for cause in answer['causes']] == causes
    assert answer['conclusion'] == f'nothing: {", ".join(causes)}; a cycle would plan {moves}'
    store.leases.acquire_lease('blue', 'engine', 3600, 'hash')
    store.executors.record_heartbeat('executor', None)
    answer = client.send('GET', path)[1]
    assert (answer['causes'], answer['conclusion']) == (
        [], f'the next cycle would make {moves}')
    store.pauses.pause_scope('blue', store.now(), seconds=60, paused_by='eve', reason='storm')
    answer = client.send('GET', path)[1]
    assert any('storm' in hold for hold in answer['holds'])
    assert answer['plan']['moves'] == [] and answer['conclusion'].startswith('nothing: ')
    assert 'storm' in answer['conclusion']
    assert client.send('POST', '/v1/what-if', json={'scope': 'blue'})[1]['today']['moves']


def test_rules_that_refuse_moves_are_counted(client, publisher):
    publisher.conf.set_override('pinned_instances', [A1], group='engine')
    publisher.run_cycle()
    answer = client.send('GET', '/v1/why-nothing?scope=blue')[1]
    assert answer['rejections'] and list(answer['rejections']) == sorted(answer['rejections'])
    assert all(number > 0 for number in answer['rejections'].values())


def test_supposed_load_and_hosts_change_the_plan_beside_that_of_today(client, publisher):
    status, comparison = client.send('POST', '/v1/what-if', json={
        'scope': 'blue', 'added': [{'count': 2, 'like': 'c'}], 'removed': ['b'],
        'load_factor': 1.1})
    assert status == 200, comparison
    today, supposed = comparison['today'], comparison['supposed']
    assert (today['host_count'], supposed['host_count']) == (4, 6)
    assert today['moves'] and today['imbalance_predicted'] < today['imbalance_measured']
    left = {move['instance_id'] for move in supposed['moves'] if move['from_host'] == 'b'}
    assert left == {published.TWINS[1]}
    assert client.send('GET', '/v1/plans')[1]['plans'][0]['dry_run'], 'nothing is stored'


@pytest.mark.parametrize(('body', 'status', 'words'), [
    ({}, 400, 'body scope: '), ({'scope': 'bleu'}, 404, 'scope: '),
    ({'scope': 'blue', 'drained': ['e']}, 404, "host: scope 'blue' has no host 'e'"),
    ({'scope': 'blue', 'added': [{'count': 0, 'like': 'a'}]}, 400, 'body added.0.count: '),
    ({'scope': 'blue', 'load_factor': 0}, 400, 'body load_factor: '),
    ({'scope': 'blue', 'removed': ['a\n']}, 400, 'body removed.0: ')])
def test_supposition_names_the_wrong_field(client, publisher, body, status, words):
    answer = client.fail('POST', '/v1/what-if', json=body)
    assert answer[0] == status and words in answer[1]


def test_drains_are_listed_with_the_reason_why_instances_stay(client, store, publisher):
    publisher.collector.cluster = published.make_cluster()
    (drain,) = client.send('GET', '/v1/drains')[1]['drains']
    assert (drain['host'], drain['scope'], drain['disabled_reason']) == ('d', 'blue', 'new disks')
    assert drain['instance_count'] == 0 and drain['held'] is None and not drain['packed']


def test_drain_check_has_moves_and_blocked_instances(client, store, publisher):
    status, check = client.send('GET', '/v1/drains/check?host=a')
    assert status == 200 and check['instance_count'] == 2 and check['expected_seconds'] is None
    assert {move['instance_id'] for move in check['moves']} == {published.TWINS[0], A1}
    assert check['can_be_emptied'] and check['blocked'] == [] and check['scope'] == 'blue'
    blocked = client.send('GET', '/v1/drains/check?host=c&mode=compact')[1]
    assert blocked['blocked'][0]['instance_id'] == published.PINNED
    assert not blocked['can_be_emptied']
    client.send('POST', '/v1/pauses', json={'scope': 'blue', 'reason': 'storm'})
    assert 'storm' in client.send('GET', '/v1/drains/check?host=a')[1]['obstacles'][0]


def make_late(store, host='a'):
    """Store a live migration of a drain that was late, as an executor does."""
    published.end_move(store, A1, host, 'b', TaskState.FAILED, phase=model.Phase.EVACUATE,
                       error_type='MigrationTimeout', quarantine_seconds=3600.0)


@pytest.mark.parametrize('option', model.OfflineDrains)
def test_check_and_verdict_name_the_shutdown_of_a_late_instance(client, store, publisher, option):
    publisher.conf.set_override('drain_offline', str(option), 'engine')
    publisher.run_cycle()
    make_late(store)
    check = client.send('GET', '/v1/drains/check?host=a')[1]
    verdicts = {verdict['instance_id']: verdict for verdict in check['shutdowns']}
    assert verdicts.keys() == {A1, published.TWINS[0]} - (
        {published.TWINS[0]} if option is model.OfflineDrains.NEVER else set())
    allowed = option is model.OfflineDrains.ALLOW
    verdict = verdicts[A1]
    assert (verdict['late'], verdict['allowed'], verdict['waits']) == (True, allowed, False)
    assert (verdict['obstacle'] is None) == (verdict['remedy'] is None) == allowed
    assert ('shut down, moved cold and started again' in verdict['text']) == allowed
    summary = check['shutdown_summary'] or ''
    assert ('1 instance is shut down, moved' in summary) == allowed
    methods = {move['instance_id']: move['method'] for move in check['moves']}
    assert methods == {published.TWINS[0]: 'live', **({A1: 'offline'} if allowed else {})}
    path = f'/v1/instances/{A1}/why-not?host=b'
    answer = client.send('GET', f'{path}&phase=evacuate')[1]['shutdown']
    if allowed:  # It cools down for a while.
        assert answer == {**verdict, 'allowed': False, 'waits': True, 'text': answer['text'],
                          'obstacle': 'this move is refused by cooling'}
        assert 'but later' in answer['text']
    else:
        assert answer == verdict
    assert client.send('GET', path)[1]['shutdown'] is None


def test_supposed_drain_names_the_shutdown(client, store, publisher):
    publisher.conf.set_override('drain_offline', 'allow', 'engine')
    publisher.run_cycle()
    make_late(store)
    comparison = client.send('POST', '/v1/what-if', json={'scope': 'blue', 'removed': ['a']})[1]
    methods = {move['instance_id']: move['method'] for move in comparison['supposed']['moves']}
    assert methods[A1] == 'offline' and methods[published.TWINS[0]] == 'live'


def test_failed_move_is_retried_by_an_identity(client, store, publisher):
    plan_id = published.end_move(store, A1, 'a', 'b', TaskState.FAILED)
    path = f'/v1/plans/{plan_id}/retry'
    status, answer = client.send('POST', path, json={'reason': 'fixed', 'dry_run': True})
    assert status == 200 and answer['plan_id'] is None and answer['moves'][0]['task_id'] is None
    status, answer = client.send('POST', path, roles='manager', json={'reason': 'fixed'})
    assert status == 200, answer
    (move,) = answer['moves']
    assert (move['from_host'], move['to_host']) == ('a', 'b') and move['verdict'] == 'wave 0'
    task = store.tasks.find_task(move['task_id']).task
    assert task.state is TaskState.QUEUED and task.instance_uuid == A1
    plan = client.send('GET', f'/v1/plans/{answer["plan_id"]}')[1]
    assert plan['requested_by'].startswith('keystone:')
    assert plan['decisions'][0]['reason'] == f'plan {plan_id}: fixed'
    status, answer = client.send('POST', path, json={'reason': 'once more'})
    assert status == 200 and answer['plan_id'] is None
    assert answer['moves'][0]['verdict'].startswith('in-flight: ')


def test_completed_move_is_reverted(client, store, publisher):
    plan_id = published.end_move(store, A1, 'c', 'a', TaskState.COMPLETED)
    status, answer = client.send('POST', f'/v1/plans/{plan_id}/revert', json={'reason': 'worse'})
    assert status == 200 and answer['moves'][0]['to_host'] == 'c'
    assert store.tasks.find_task(answer['moves'][0]['task_id']).task.from_host == 'a'
    assert answer['approvals_missing'] == 0


def test_ordered_moves_have_the_warnings_of_their_plan(client, conf, store, publisher):
    for of in (conf, publisher.conf):
        of.set_override('failover', 'warn', group='engine')
        of.set_override('enforce_placement_claims', False, group='engine')
    publisher.run_cycle()
    plan_id = published.end_move(store, A1, 'c', 'a', TaskState.COMPLETED)
    for dry_run in (True, False):
        status, answer = client.send('POST', f'/v1/plans/{plan_id}/revert',
                                     json={'reason': 'worse', 'dry_run': dry_run})
        (warning,) = answer['warnings']
        assert status == 200 and warning.startswith('no failover certificate: ')
    assert client.send('GET', f'/v1/plans/{answer["plan_id"]}')[1]['warnings'] == [warning]


def test_ordered_plan_waits_for_the_other_people_who_must_approve(client, conf, store, publisher):
    for of in (conf, publisher.conf):
        of.set_override('mode', 'approve', group='engine')
        of.set_override('min_approvals', 3, group='engine')
    publisher.run_cycle()
    plan_id = published.end_move(store, A1, 'c', 'a', TaskState.COMPLETED)
    status, answer = client.send('POST', f'/v1/plans/{plan_id}/revert', json={'reason': 'worse'})
    assert status == 200 and answer['approvals_missing'] == 2
    task = store.tasks.find_task(answer['moves'][0]['task_id']).task
    assert task.state is TaskState.PENDING
    path = f'/v1/plans/{answer["plan_id"]}/approve'
    assert client.fail('POST', path, json={})[0] == 409, 'the author has approved it'
    status, answer = client.send('POST', path, json={}, headers={'X-User-Id': 'b' * 32})
    assert status == 200 and answer['approvals_missing'] == 1


def test_move_that_ended_after_the_reading_counts_at_both_ends(client, store, publisher):
    """Nova had not moved the instance yet when the cloud was read."""
    now = store.now()
    _plan_id, (task,), _plan = cases.save(store, [lambda plan_id, scope: cases.make_task(
        plan_id, scope, instance_uuid=A1, from_host='a', to_host='b', not_before=now)], now=now)
    row = cases.claim(store, now=now)
    path = f'/v1/instances/{A1}/why-not?host=c'
    before = client.send('GET', path)[1]
    cases.end(store, row, now=store.now())
    after = client.send('GET', path)[1]
    for verdict in (before, after):
        assert 'in-flight' in {rule['rule'] for rule in verdict['verdicts'] if not rule['passed']}


@pytest.mark.parametrize(('state', 'verb', 'status', 'words'), [
    (TaskState.COMPLETED, 'retry', 409, 'no move of which that could be asked'),
    (TaskState.FAILED, 'revert', 409, 'no move of which that could be asked')])
def test_order_that_does_not_fit_the_tasks_is_refused(client, store, publisher, state, verb,
                                                      status, words):
    plan_id = published.end_move(store, A1, 'a', 'b', state)
    path = f'/v1/plans/{plan_id}/{verb}'
    answer = client.fail('POST', path, json={'reason': 'x'})
    assert answer[0] == status and words in answer[1] and 'kronos ' not in answer[1]
    answer = client.fail('POST', path, json={'reason': 'x', 'instances': [published.PINNED]})
    assert answer[0] == 404 and published.PINNED in answer[1]
    answer = client.fail('POST', path, json={'reason': 'x', 'instances': [A1]})
    assert answer[0] == 409 and A1 in answer[1]


def test_order_by_an_old_reading_is_refused_and_a_question_is_answered(
        client, conf, store, publisher, monkeypatch):
    plan_id = published.end_move(store, A1, 'a', 'b', TaskState.FAILED)
    conf.set_override('max_reading_age', 60, group='kronos_api')
    maker = application.CallMaker(conf)
    maker._cloud = reading_cache.ReadingCache(conf, clock=lambda: time.time() + 61)
    monkeypatch.setattr(application, 'CallMaker', lambda conf: maker)
    late = conftest.Client(application.make_routes(conf))
    status, document = late.send('POST', f'/v1/plans/{plan_id}/retry', json={'reason': 'x'})
    (error,) = document['errors']
    assert status == 409 and error['code'] == 'kronos.reading_too_old'
    assert error['detail'].startswith('blue: ') and 'last 60 s' in error['detail']
    assert store.tasks.list_tasks_in_states((TaskState.QUEUED,)) == []
    assert late.send('GET', f'/v1/instances/{A1}/why-not?host=b')[0] == 200


def test_order_in_a_dry_run_is_refused(client, conf, store, publisher):
    conf.set_override('dry_run', True, group='engine')
    plan_id = published.end_move(store, A1, 'a', 'b', TaskState.FAILED)
    status, detail = client.fail('POST', f'/v1/plans/{plan_id}/retry', json={'reason': 'x'})
    assert status == 409 and detail.startswith('[engine] dry_run: ')


def test_second_calculation_waits_for_the_first_and_is_refused(conf, store, publisher, monkeypatch):
    maker = application.CallMaker(conf)
    maker._calculations = calculation_turns.CalculationTurns(wait=0.05)
    monkeypatch.setattr(application, 'CallMaker', lambda conf: maker)
    client = conftest.Client(application.make_routes(conf))
    with maker._calculations.take_turn():
        status, document = client.send('POST', '/v1/what-if', json={'scope': 'blue'})
        assert status == 503 and document['errors'][0]['code'] == 'kronos.api.busy'
        assert client.send('GET', '/v1/hosts')[0] == 200
    assert client.send('POST', '/v1/what-if', json={'scope': 'blue'})[0] == 200


def test_options_of_the_engine_decide_and_a_difference_is_logged(client, publisher, caplog):
    publisher.conf.set_override('pinned_instances', [A1], group='engine')
    publisher.run_cycle()
    verdict = client.send('GET', f'/v1/instances/{A1}/why-not?host=b')[1]
    assert [rule['rule'] for rule in verdict['verdicts'] if not rule['passed']] == ['opted-out']
    assert 'pinned_instances' in caplog.text
    assert model.Phase(verdict['phase']) is model.Phase.SPREAD
