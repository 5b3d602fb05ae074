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

"""Drains are started, approved and stopped for a user; Nova may refuse that."""

import contextlib
import dataclasses
import datetime
import pathlib
import time
import types

from oslo_policy import policy
import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.clients import connection
from kronos_nova.rebalancer.operations import calculation_turns
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.rebalancer.store import history
from tests.scenarios import loader
from tests.unit.api import conftest
from tests.unit.api import published
from tests.unit.api import test_cloud
from tests.unit.api import test_verdicts
from tests.unit.rebalancer.clients import served
from tests.unit.rebalancer.engine import test_quiet_drains
from tests.unit.rebalancer.operations import test_write_rates
from tests.unit.rebalancer.planning import test_quiet_hours
from tests.unit.rebalancer.store import cases

A0, A1 = published.TWINS[0], test_verdicts.A1
LIST, PUT = 'GET /os-services', 'PUT /os-services/id-a'
FORBIDDEN = 403, {'forbidden': {'message': "Policy doesn't allow it."}}
ENABLED = {'services': [{**served.service('a'), 'id': 'id-a'}]}


def disabled(reason):
    return {'services': [{**served.service('a', 'disabled', reason), 'id': 'id-a'}]}


@pytest.fixture
def publisher(store, tmp_path, conf):
    """An engine that moves instances, with nothing to balance."""
    for name, value in {'dry_run': False, 'evacuate_disabled_hosts': True,
                        'max_drain_fraction': 0.9, 'max_down_fraction': 0.9}.items():
        conf.set_override(name, value, 'engine')
    publisher = published.Publisher(store, tmp_path, dry_run=False)
    publisher.loads, publisher.source._hosts = publisher.source._hosts, dict.fromkeys('abcd', 0.3)
    publisher.run_cycle()
    return publisher


@pytest.fixture
def nova():
    """Nova as the user sees it: host a is enabled, and may be disabled and enabled."""
    with served.serving({LIST: [ENABLED], PUT: [{'service': {}}]}) as nova:
        nova.connection.close = lambda: None
        yield nova


@pytest.fixture
def person(conf, client, nova, monkeypatch):
    """A client whose requests have a token for Nova."""
    token = types.SimpleNamespace(user='the access of the user')

    def connect(of, access):
        assert (of, access) == (conf, token.user)
        return nova.connection

    monkeypatch.setattr(connection, 'make_user_connection', connect)
    send = client.send
    client.send = lambda *args, **more: send(
        *args, environ_overrides={'keystone.token_auth': token}, **more)
    return client


def approving(conf, publisher, people=1):
    """Let plans wait for approval, and for one for balance; return it."""
    for of in (conf, publisher.conf):
        of.set_override('mode', 'approve', 'engine')
        of.set_override('min_approvals', people, 'engine')
    publisher.source._hosts = publisher.loads
    publisher.run_cycle()
    (plan,) = publisher.store.approvals.list_waiting_plans(publisher.store.now())
    return plan


def list_commands(store):
    return [(row.command, row.target, row.reason)
            for row in reversed(store.audit.list_newest_entries(20))]


def set_drained(publisher):
    """Disable host a for the engine, and let it plan the drain."""
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(cluster, services={
        **cluster.services, 'a': model.Service(
            'a', zone='nova', status='disabled', disabled_reason='new memory')})
    publisher.run_cycle()


def start(person, **body):
    return person.send('POST', '/v1/drains', json={'host': 'a', 'reason': 'new memory', **body})


def test_drain_disables_the_host_for_the_user(person, nova, store, publisher):
    status, drain = start(person)
    assert status == 200, drain
    assert drain == {
        'host': 'a', 'changed': True, 'instance_count': 2, 'arriving_count': 0,
        'expected_seconds': None, 'shutdowns': [], 'plan_ids': [], 'approvals_missing': 0,
        'approval_problem': None, 'deadline': None, 'deadline_change': None,
        'arrival_seconds': None, 'late_instances': []}
    (body,) = [asked[3] for asked in nova.asked if asked[0] == 'PUT']
    assert body == {'status': 'disabled', 'disabled_reason': 'new memory'}
    (row,) = store.audit.list_newest_entries(9)
    assert (row.command, row.target, row.reason) == ('drain started', 'host a', 'new memory')
    assert row.by.startswith(f'keystone:{"a" * 32} project {conftest.OPERATORS} roles admin')


def in_hours(store, hours):
    return datetime.datetime.fromtimestamp(int(store.now()) + 3600 * hours, datetime.UTC)


def test_deadline_is_kept_until_the_drain_is_stopped(person, nova, store, publisher):
    due = in_hours(store, 2)
    status, drain = start(person, deadline=due.replace(tzinfo=None).isoformat())
    assert (status, drain['deadline']) == (200, due.isoformat().replace('+00:00', 'Z'))
    assert cases.map_deadlines(store) == {'a': due.timestamp()}
    assert list_commands(store) == [
        ('drain started', 'host a', f'new memory (deadline {due.isoformat()})')]
    nova.answers[LIST] = [disabled('new memory')]
    later = in_hours(store, 3)
    again = start(person)[1]
    assert (again['deadline'], again['deadline_change']) == (
        None, f'The drain keeps its deadline {due.isoformat()}.')
    assert cases.map_deadlines(store) == {'a': due.timestamp()}, 'it keeps its own'
    again = start(person, deadline=later.isoformat())[1]
    assert (again['changed'], again['deadline_change']) == (
        False, f'It takes the place of the deadline {due.isoformat()}.')
    assert cases.map_deadlines(store) == {'a': later.timestamp()}
    assert list_commands(store)[1:] == [
        ('drain deadline set', 'host a', f'{later.isoformat()}, in place of {due.isoformat()}')]
    assert person.send('DELETE', '/v1/drains?host=a')[0] == 200
    assert cases.map_deadlines(store) == {}


def test_drain_without_a_deadline_does_not_get_that_of_an_earlier_one(
        person, nova, store, publisher):
    due = in_hours(store, 2)
    cases.order_drain(store, 'a', due.timestamp(), 'new memory', store.now())
    status, drain = start(person)
    assert (status, drain['deadline']) == (200, None)
    assert drain['deadline_change'] == (
        f'The deadline {due.isoformat()} of an earlier drain is removed.')
    assert list_commands(store) == [('drain started', 'host a', (
        f'new memory (removes the deadline {due.isoformat()} of an earlier drain)'))]
    assert cases.map_deadlines(store) == {}


@pytest.mark.parametrize(('present', 'is_given', 'kept'), [
    ('old', False, True), ('another', False, False), ('old', True, False)])
def test_another_reason_keeps_the_deadline_of_the_drain_that_goes_on(
        person, nova, store, publisher, present, is_given, kept):
    due = in_hours(store, 2)
    cases.order_drain(store, 'a', due.timestamp(), 'old', store.now())
    nova.answers[LIST] = [disabled(present)]
    new = due + datetime.timedelta(hours=1)
    later = {'deadline': new.isoformat()} if is_given else {}
    status, drain = start(person, force=True, **later)
    assert (status, drain['changed']) == (200, True)
    orders = store.drain_orders.map_deadlines(store.now())
    ((_command, _target, audited),) = list_commands(store)
    assert due.isoformat() in audited and due.isoformat() in drain['deadline_change']
    assert ('keep' in audited, 'removes' in audited, 'in place of' in audited) == (
        kept, not kept and not later, bool(later))
    assert orders == ({'a': model.DrainDeadline(due.timestamp(), 'new memory')} if kept else {
        'a': model.DrainDeadline(new.timestamp(), 'new memory')} if later else {})


@pytest.mark.parametrize(('answer', 'is_restored'), [(FORBIDDEN, True), (None, False)])
@pytest.mark.parametrize('earlier', [True, False])
@pytest.mark.parametrize('hours', [3, None])
def test_refused_start_restores_the_deadline_and_a_lost_answer_does_not(
        person, nova, store, publisher, answer, is_restored, earlier, hours):
    due = in_hours(store, 2)
    later = due + datetime.timedelta(hours=1)
    if earlier:
        cases.order_drain(store, 'a', due.timestamp(), 'old', store.now())
    before = store.drain_orders.map_deadlines(store.now())
    nova.answers[LIST], nova.answers[PUT] = [disabled('old')], [answer]
    assert start(person, force=True, **(
        {} if hours is None else {'deadline': later.isoformat()}))[0] >= 400
    after = store.drain_orders.map_deadlines(store.now())
    ordered = later if hours else due
    assert after == (before if is_restored or not (hours or earlier) else {
        'a': model.DrainDeadline(ordered.timestamp(), 'new memory')})


@pytest.mark.parametrize(('answer', 'stays'), [(None, True), (FORBIDDEN, False)])
def test_deadline_of_a_drain_that_may_have_begun_stays_although_no_audit_row_says_so(
        person, nova, store, publisher, monkeypatch, answer, stays):
    due, record = in_hours(store, 2), store.audit.record_command

    def refuse(by, command, target, reason):
        if command != audits.DRAIN_STARTED:
            raise exception.StoreError(problem='refuses', remedy='Wait.')
        return record(by, command, target, reason)

    monkeypatch.setattr(audits.AuditRepository, 'record_command',
                        lambda _self, *given: refuse(*given))
    nova.answers[PUT] = [answer]
    assert start(person, deadline=due.isoformat())[0] >= 500
    assert cases.map_deadlines(store) == ({'a': due.timestamp()} if stays else {})


def test_approved_moves_have_the_deadline_of_the_same_request(
        conf, person, nova, store, publisher):
    approving(conf, publisher)
    due = in_hours(store, 2)
    (plan_id,) = start(person, approve=True, deadline=due.isoformat())[1]['plan_ids']
    assert {row.task.arrive_by for row in store.tasks.list_plan_tasks(plan_id)} == {
        due.timestamp()}


def test_start_beside_another_leaves_no_deadline(person, nova, store, publisher):
    store.audit.record_command('bob', 'drain started', 'host b')
    assert start(person, deadline=in_hours(store, 2).isoformat())[0] == 409
    assert store.drain_orders.find_order('a') is None


@pytest.mark.parametrize('going_on', [True, False])
def test_start_that_cannot_write_the_deadline_changes_nothing(
        person, nova, store, publisher, monkeypatch, going_on):
    """As with a database role that has no rights for the table yet."""
    def refuse(*_args):
        raise exception.StoreError(problem='refuses: no INSERT', remedy='Give the grants.')

    for name in 'replace_order', 'restore_order':
        monkeypatch.setattr(drain_orders.DrainOrderRepository, name, refuse)
    if going_on:
        nova.answers[LIST] = [disabled('new memory')]
    assert start(person, deadline=in_hours(store, 2).isoformat())[0] >= 500
    assert not list_commands(store) and not [a for a in nova.asked if a[0] == 'PUT']
    assert start(person)[0] == 200, 'without a deadline nothing is written there'


def test_stop_cancels_the_moves_although_the_deadline_cannot_be_removed(
        conf, person, nova, store, publisher, monkeypatch):
    start(person, deadline=in_hours(store, 2).isoformat())
    set_drained(publisher)
    nova.answers[LIST] = [disabled('new memory')]
    queued = store.tasks.list_tasks_in_states((TaskState.QUEUED,))
    assert queued and all(row.task.arrive_by is not None for row in queued)

    def refuse(*_args):
        raise exception.StoreError(problem='refuses: no DELETE', remedy='Give the grants.')

    monkeypatch.setattr(drain_orders.DrainOrderRepository, 'end_orders', refuse)
    assert person.send('DELETE', '/v1/drains?host=a')[0] >= 500
    assert [asked for asked in nova.asked if asked[0] == 'PUT'][-1][3] == {'status': 'enabled'}
    assert not store.tasks.list_tasks_in_states((TaskState.QUEUED,))


@pytest.mark.parametrize(('host', 'reason', 'hours', 'is_late'), [
    ('d', 'new disks', 2, False), ('d', 'new disks', -2, True), ('a', 'new disks', -2, None),
    ('d', 'old disks', -2, None)])
def test_list_has_the_deadline_and_says_when_it_has_passed(
        client, store, publisher, host, reason, hours, is_late):
    due = in_hours(store, hours)
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(cluster, instances={
        uuid: dataclasses.replace(instance, host='d') for uuid, instance
        in cluster.instances.items()})
    publisher.run_cycle()
    cases.order_drain(store, host, due.timestamp(), reason)
    (drain,) = client.send('GET', '/v1/drains')[1]['drains']
    assert drain['host'] == 'd' and drain['instance_count']
    assert (drain['deadline'], drain['late']) == (
        (None, False) if is_late is None else (due.isoformat().replace('+00:00', 'Z'), is_late))


@pytest.mark.parametrize(('deadline', 'problem'), [
    ('2020-01-01T00:00:00Z', '2020-01-01T00:00:00+00:00 has passed'),
    ('9999-12-31T23:59:59Z', 'it is more than 30 days away'), ('tonight', 'deadline'),
    ('2h', 'deadline')])
def test_bad_deadline_is_400_and_changes_nothing(person, nova, store, publisher, deadline, problem):
    for answer in (person.fail('POST', '/v1/drains', json={
            'host': 'a', 'reason': 'x', 'deadline': deadline}),
            person.fail('GET', f'/v1/drains/check?host=a&deadline={deadline}')):
        assert answer[0] == 400 and 'deadline' in answer[1] and problem in answer[1]
    assert not list_commands(store) and not cases.map_deadlines(store)
    assert not [asked for asked in nova.asked if asked[0] == 'PUT']


def test_deadline_of_a_host_that_is_not_drained_is_refused(person, nova, store, publisher):
    (service,) = disabled('new memory')['services']
    nova.answers[LIST] = [{'services': [{**service, 'forced_down': True}]}]
    answer = person.fail('POST', '/v1/drains', json={
        'host': 'a', 'reason': 'new memory', 'deadline': in_hours(store, 2).isoformat()})
    assert answer[0] == 409 and 'deadline: host a is not drained: ' in answer[1]
    assert not list_commands(store) and not cases.map_deadlines(store)


def test_check_names_instances_that_leave_too_late(client, store, publisher):
    due = in_hours(store, 1)
    status, check = client.send('GET', f'/v1/drains/check?host=a&deadline={due:%Y-%m-%dT%H:%M:%S}')
    assert (status, check['deadline']) == (200, due.isoformat().replace('+00:00', 'Z'))
    assert check['late_instances'] == [], 'no migration was measured'
    assert check['arrival_seconds'] is None, 'the two instances have more than 600 s each'
    near = in_hours(store, 1 / 6)
    check = client.send('GET', f'/v1/drains/check?host=a&deadline={near:%Y-%m-%dT%H:%M:%S}')[1]
    assert 290 < check['arrival_seconds'] <= 300


def test_refusal_of_nova_is_403_with_its_rule(person, nova, store, publisher):
    nova.answers[PUT] = [FORBIDDEN]
    status, document = start(person)
    (error,) = document['errors']
    assert (status, error['code']) == (403, 'kronos.nova.forbidden')
    assert 'your user needs a role that policy os_compute_api:os-services:update' in error['detail']
    assert [row[0] for row in list_commands(store)] == ['drain started', 'drain failed']
    nova.answers[LIST] = [FORBIDDEN]
    assert start(person)[0] == 403
    assert 'os_compute_api:os-services:list' in start(person)[1]['errors'][0]['detail']


@pytest.mark.parametrize(('rows', 'status'), [
    ([('drain started', 'host b')], 409),
    # Nova has it in its list by now, or it has failed.
    ([('drain started', 'host b'), ('drain failed', 'host b')], 200),
    ([('drain started', 'host a')], 200), ([('drain started', 'host no-longer-there')], 200)])
def test_drain_does_not_start_beside_another_that_the_check_has_not_seen(
        person, nova, store, publisher, rows, status):
    for command, target in rows:
        store.audit.record_command('bob', command, target)
    asked = list_commands(store)
    answered, document = start(person)
    assert answered == status, document
    ours = [row[:2] for row in list_commands(store)[len(asked):]]
    puts = [a for a in nova.asked if a[0] == 'PUT']
    if status == 200:
        assert ours == [('drain started', 'host a')] and len(puts) == 1
    else:
        assert ours == [('drain started', 'host a'), ('drain failed', 'host a')] and not puts
        assert 'the drain of b starts at the same time' in document['errors'][0]['detail']
        assert start(person, force=True)[0] == 200


def test_drain_that_starts_between_check_and_row_is_seen(
        person, nova, store, publisher, monkeypatch):
    """Two starts each write their row before they look for the other's."""
    record, met = audits.AuditRepository.record_command, []

    def record_beside(repository, by, command, target, reason=''):
        if command == 'drain started' and not met:
            met.append(target)
            record(repository, 'bob', 'drain started', 'host b')
        record(repository, by, command, target, reason)

    monkeypatch.setattr(audits.AuditRepository, 'record_command', record_beside)
    assert start(person)[0] == 409
    assert not [a for a in nova.asked if a[0] == 'PUT']


@pytest.mark.parametrize('state', ['emptying', 'held', 'withdrawn'])
def test_drain_does_not_start_beside_a_step_that_the_check_has_not_seen(
        person, nova, store, publisher, state):
    """A check may take so long that the host is empty, or left out, at its end."""
    scope = 'blue'
    campaign_id = cases.new_id()
    store.campaigns.create_campaign(model.Campaign(
        campaign_id, scope, f'firmware [campaign {campaign_id}]', 1, store.now(), 'ann',
        hosts=(model.CampaignHost('b', 0),)), 'firmware')
    lease = cases.lease_of(store, scope)
    (begun,) = store.campaigns.begin_step(lease, campaign_id, ['b'], opened=False,
                                          now=store.now())
    if state != 'emptying':
        assert store.campaigns.change_host(lease, campaign_id, begun, state=state,
                                           disabled_at=store.now() + 70)
    status, document = start(person)
    (error,) = document['errors']
    assert (status, error['code']) == (409, 'kronos.conflict')
    assert f'campaign {campaign_id} begins with host b at the same time' in error['detail']
    assert ('the order campaign abort, with --scope blue, frees this drain two minutes later'
            in error['detail'])
    assert not [a for a in nova.asked if a[0] == 'PUT']
    assert list_commands(store)[-1][:2] == ('drain failed', 'host a')
    if state == 'emptying':
        store.campaigns.return_hosts(lease, campaign_id, ['b'], store.now())
        assert start(person)[0] == 200


@pytest.mark.parametrize(('answer', 'command'), [
    (None, 'drain unanswered'), ((409, {}), 'drain failed')])
def test_audit_tells_a_lost_answer_from_a_refusal(person, nova, store, publisher, answer, command):
    """Without an answer the host may be disabled, and other starts must count it."""
    nova.answers[PUT] = [answer]
    assert start(person)[0] >= 400
    assert [row[0] for row in list_commands(store)] == ['drain started', command]


@pytest.mark.parametrize('rows', [
    # Two people start the drain of b, and one fails.
    [('drain started', 'host b'), ('drain started', 'host b'), ('drain failed', 'host b')],
    # Nova did not answer: the host may be disabled.
    [('drain started', 'host b'), ('drain unanswered', 'host b')]])
def test_drain_that_may_have_started_is_seen(person, nova, store, publisher, rows):
    for command, target in rows:
        store.audit.record_command('bob', command, target)
    assert start(person)[0] == 409


def test_drain_starts_beside_one_that_the_check_has_seen(person, nova, store, publisher):
    store.audit.record_command('bob', 'drain started', 'host d')
    nova.answers[LIST] = [list_services(d='new disks')]
    status, document = start(person)
    assert status == 200, document


@pytest.fixture
def restrict(conf, tmp_path):
    """Return a function that lets no one pass a policy rule; ask for it before the client."""
    file = tmp_path / 'policy.yaml'
    file.write_text('{}')
    policy.Enforcer(conf)  # Registers the option.
    conf.set_override('policy_file', str(file), 'oslo_policy')
    return lambda rule: file.write_text(f'{rule}: "!"\n')


def test_approval_of_a_drain_needs_the_right_to_approve(
        conf, restrict, person, nova, store, publisher):
    restrict('kronos:plan:approve')
    balance = approving(conf, publisher)
    status, document = start(person, approve=True)
    (error,) = document['errors']
    assert (status, error['code']) == (403, 'kronos.api.forbidden')
    assert 'Policy rule kronos:plan:approve ' in error['detail']
    assert nova.asked == [] and list_commands(store) == []
    assert {row.task.state for row in store.tasks.list_plan_tasks(balance.plan_id)} == {
        TaskState.PENDING}
    status, document = start(person)
    assert status == 200, document


def test_stop_needs_the_right_to_cancel(conf, restrict, person, nova, store, publisher):
    approving(conf, publisher)
    (plan_id,) = start(person, approve=True)[1]['plan_ids']
    asked, commands = len(nova.asked), list_commands(store)
    restrict('kronos:plan:cancel')
    nova.answers[LIST] = [disabled('new memory')]
    status, document = person.send('DELETE', '/v1/drains?host=a')
    (error,) = document['errors']
    assert (status, error['code']) == (403, 'kronos.api.forbidden')
    assert 'Policy rule kronos:plan:cancel ' in error['detail']
    assert len(nova.asked) == asked and list_commands(store) == commands
    assert {row.task.state for row in store.tasks.list_plan_tasks(plan_id)} == {TaskState.QUEUED}


@pytest.mark.parametrize(('lists', 'put'), [
    ((503, b''), {}), (ENABLED, (500, {})), (ENABLED, None), (b'<html>', {})])
def test_failure_of_nova_is_503_and_names_it(person, nova, store, publisher, lists, put):
    nova.answers.update({LIST: [lists], PUT: [put]})
    status, document = start(person)
    (error,) = document['errors']
    assert (status, error['code']) == (503, 'kronos.nova.unavailable')
    assert error['detail'].startswith('a: Nova: '), error


def test_request_without_a_token_for_nova_is_refused(client, store, publisher):
    status, detail = client.fail('POST', '/v1/drains', json={'host': 'a', 'reason': 'x'})
    assert status == 403 and 'no token for Nova' in detail
    assert client.fail('DELETE', '/v1/drains?host=a')[0] == 403


@pytest.mark.parametrize(('body', 'status', 'words'), [
    ({'host': 'nowhere'}, 404, 'host: '), ({'reason': ' '}, 400, 'body reason: '),
    ({'reason': 'x' * 256}, 400, 'body reason: '), ({'host': 'a\n'}, 400, 'body host: '),
    ({'reason': 'AUTO: x'}, 400, 'reason: engines would not drain it: no operator'),
    ({'host': 'c'}, 409, '1 instance would stay, the first ')])
def test_drain_that_is_not_possible_names_the_field(person, nova, publisher, body, status, words):
    answer = person.fail('POST', '/v1/drains', json={'host': 'a', 'reason': 'x', **body})
    assert answer[0] == status and words in answer[1]
    assert 'kronos ' not in answer[1] and '--' not in answer[1]
    assert nova.number('PUT') == 0


@pytest.fixture(autouse=True)
def host_c(nova):
    nova.answers[LIST] = [{'services': [*ENABLED['services'], served.service('c')]}]


def test_host_disabled_for_another_reason_needs_force(person, nova, store, publisher):
    nova.answers[LIST] = [disabled('disk broken')]
    status, detail = person.fail('POST', '/v1/drains', json={'host': 'a', 'reason': 'x'})
    assert status == 409 and "for the reason 'disk broken'" in detail and 'With force' in detail
    assert nova.number('PUT') == 0 and list_commands(store) == []
    assert start(person, force=True)[1]['changed'] is True
    nova.answers[LIST] = [disabled('new memory')]
    assert start(person)[1]['changed'] is False
    assert nova.number('PUT') == 1


def test_reading_that_is_too_old_starts_no_drain(conf, person, nova, publisher):
    conf.set_override('max_reading_age', 1, 'kronos_api')
    time.sleep(1.5)
    status, detail = person.fail('POST', '/v1/drains', json={'host': 'a', 'reason': 'x'})
    assert status == 409 and 'needs a reading of the last 1 s' in detail
    assert nova.asked == []
    assert person.send('DELETE', '/v1/drains?host=a')[0] == 200, 'a stop needs no reading'


def list_services(**reasons):
    """Return an answer of Nova with hosts that are disabled for these reasons."""
    return {'services': [
        {**served.service(host, 'disabled' if host in reasons else 'enabled', reasons.get(host)),
         'id': f'id-{host}'} for host in published.HOSTS]}


def test_host_disabled_since_the_reading_counts_for_max_drain_fraction(person, nova, publisher):
    publisher.conf.set_override('max_drain_fraction', 0.5, 'engine')
    publisher.run_cycle()
    nova.answers[LIST] = [list_services(d='new disks')]
    status, document = start(person)
    assert status == 200, document
    nova.answers[LIST] = [list_services(d='new disks', a='new memory')]
    status, detail = person.fail('POST', '/v1/drains', json={'host': 'b', 'reason': 'x'})
    assert status == 409 and '3 of 4 hosts are disabled' in detail, detail
    assert nova.number('PUT') == 1


def test_destinations_of_a_drain_are_those_enabled_now(conf, person, nova, store, publisher):
    approving(conf, publisher)
    nova.answers[LIST] = [list_services(b='broken')]
    (plan_id,) = start(person, approve=True)[1]['plan_ids']
    tasks = [row.task for row in store.tasks.list_plan_tasks(plan_id)]
    assert {host for task in tasks for host in (task.to_host, *task.alternates)} == {'c', 'd'}


def test_drain_is_refused_where_its_destination_was_disabled_since_the_reading(
        person, nova, publisher):
    nova.answers[LIST] = [list_services(b='broken', d='new disks')]
    status, detail = person.fail('POST', '/v1/drains', json={'host': 'a', 'reason': 'x'})
    assert status == 409 and 'service-disabled (2 hosts)' in detail, detail
    assert nova.number('PUT') == 0


def test_drain_by_force_in_place_of_another_reason_is_approved(
        conf, person, nova, store, publisher):
    approving(conf, publisher)
    nova.answers[LIST] = [list_services(a='AUTO: libvirt', d='new disks')]
    drain = start(person, approve=True, force=True)[1]
    assert drain['changed'] and drain['approval_problem'] is None, drain
    assert len(drain['plan_ids']) == 1


def test_approved_drain_is_ordered_and_the_plan_for_balance_gives_way(
        conf, person, nova, store, publisher):
    balance = approving(conf, publisher)
    status, drain = start(person, approve=True)
    assert status == 200 and drain['approval_problem'] is None, drain
    (plan_id,) = drain['plan_ids']
    assert drain['approvals_missing'] == 0 and plan_id != balance.plan_id
    tasks = [row.task for row in store.tasks.list_plan_tasks(plan_id)]
    assert {task.instance_uuid for task in tasks} == {A0, A1}
    assert {(task.phase, task.state, task.from_host) for task in tasks} == {
        (model.Phase.EVACUATE, TaskState.QUEUED, 'a')}
    assert {row.task.state for row in store.tasks.list_plan_tasks(balance.plan_id)} == {
        TaskState.CANCELLED}
    assert [(d.verb, d.reason) for d in store.approvals.list_decisions(balance.plan_id)] == [
        ('superseded', 'the drain of host a goes first')]
    plan = person.send('GET', f'/v1/plans/{plan_id}')[1]
    assert plan['requested_by'].startswith('keystone:')
    assert plan['decisions'][0]['reason'] == 'drain of host a: new memory'
    assert plan['decisions'][0]['verb'] == 'drained'


def test_approved_drain_waits_for_the_other_people(conf, person, nova, store, publisher):
    approving(conf, publisher, people=2)
    drain = start(person, approve=True)[1]
    (plan_id,) = drain['plan_ids']
    assert drain['approvals_missing'] == 1
    assert {row.task.state for row in store.tasks.list_plan_tasks(plan_id)} == {TaskState.PENDING}
    path = f'/v1/plans/{plan_id}/approve'
    assert person.fail('POST', path, json={})[0] == 409, 'the same person counts once'
    status, answer = person.send('POST', path, json={}, headers={'X-User-Id': 'b' * 32})
    assert status == 200, answer
    assert {row.task.state for row in store.tasks.list_plan_tasks(plan_id)} == {TaskState.QUEUED}


@pytest.mark.parametrize(('ours', 'engines', 'missing'), [(0, 2, 1), (2, 1, 0)])
def test_the_engine_decides_how_many_people_must_approve(
        conf, person, nova, store, publisher, ours, engines, missing):
    approving(conf, publisher, people=engines)
    conf.set_override('mode', 'approve' if ours else 'auto', 'engine')
    conf.set_override('min_approvals', ours or 1, 'engine')
    drain = start(person, approve=True)[1]
    assert (len(drain['plan_ids']), drain['approvals_missing']) == (1, missing), drain


def test_plan_of_the_drain_that_waits_is_approved(conf, person, nova, store, publisher):
    approving(conf, publisher)
    set_drained(publisher)
    (waiting,) = store.approvals.list_waiting_plans(store.now())
    nova.answers[LIST] = [disabled('new memory')]
    drain = start(person, approve=True)[1]
    assert drain['changed'] is False and drain['approval_problem'] is None, drain
    assert drain['plan_ids'] == [waiting.plan_id]
    assert {row.task.state for row in store.tasks.list_plan_tasks(waiting.plan_id)} == {
        TaskState.QUEUED}


def test_without_need_of_approval_nothing_is_ordered(person, nova, store, publisher):
    drain = start(person, approve=True)[1]
    assert (drain['plan_ids'], drain['approval_problem']) == ([], None)


def test_held_scope_gets_no_order_and_says_so(conf, person, nova, store, publisher):
    approving(conf, publisher)
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='me', reason='storm')
    drain = start(person, approve=True, force=True)[1]
    assert drain['changed'] and drain['plan_ids'] == [] and 'storm' in drain['approval_problem']
    assert list_commands(store)[-1] == ('drain started', 'host a', 'new memory (force, approve)')


@pytest.mark.parametrize(('error', 'words'), [
    (exception.BusyError(path='kronos-api', field='request', problem='another calculation is '
                         'under way', remedy='Try again later'), 'another calculation'),
    (exception.StoreError(problem='mysql://secret does not answer', remedy='See it.'),
     'its log has the reason'),
    (exception.PlanRefused(scope='blue', problem='x'), 'its log has the reason')])
def test_failed_approval_of_a_started_drain_is_no_failed_start(
        conf, person, nova, store, publisher, monkeypatch, error, words):
    approving(conf, publisher)
    turns = iter([contextlib.nullcontext()])

    def take_turn(self):
        for turn in turns:
            return turn
        raise error

    monkeypatch.setattr(calculation_turns.CalculationTurns, 'take_turn', take_turn)
    status, drain = start(person, approve=True)
    assert status == 200 and drain['changed'] is True, drain
    assert drain['plan_ids'] == []
    assert words in drain['approval_problem'] and 'secret' not in drain['approval_problem']
    assert 'The host is disabled: order the approval' in drain['approval_problem']


def test_second_approval_by_one_person_is_no_problem(conf, person, nova, store, publisher):
    approving(conf, publisher, people=2)
    (plan_id,) = start(person, approve=True)[1]['plan_ids']
    nova.answers[LIST] = [disabled('new memory')]
    drain = start(person, approve=True)[1]
    assert drain['approval_problem'] is None, drain
    assert (drain['plan_ids'], drain['approvals_missing']) == ([plan_id], 1)


def add_instance(client, publisher, name):
    """Publish another instance on host a, and wait until it is shown; return its UUID."""
    cluster = publisher.collector.cluster
    before = cluster.instances[A1]
    uuid = loader.uuid_of(name)
    publisher.collector.cluster = dataclasses.replace(cluster, instances={
        **cluster.instances, uuid: dataclasses.replace(before, uuid=uuid, name=name)})
    publisher.run_cycle()
    test_cloud.wait_for(client, '/v1/instances?host=a', lambda _status, shown: uuid in {
        instance['id'] for instance in shown['instances']})
    return uuid


@pytest.mark.parametrize('refused', [False, True])
def test_moves_that_no_plan_has_yet_are_ordered_beside_those_that_wait(
        conf, person, nova, store, publisher, monkeypatch, refused):
    approving(conf, publisher, people=2)
    (first,) = start(person, approve=True)[1]['plan_ids']
    uuid = add_instance(person, publisher, 'a2')
    nova.answers[LIST] = [disabled('new memory')]
    if refused:
        def approve_plan(*_args, **_more):
            raise exception.DecisionRefused(problem='says no', remedy='Nothing was approved.')

        monkeypatch.setattr(operator_decisions, 'approve_plan', approve_plan)
    drain = start(person, approve=True)[1]
    second = drain['plan_ids'][-1]
    assert drain['plan_ids'] == ([second] if refused else [first, second])
    assert [row.task.instance_uuid for row in store.tasks.list_plan_tasks(second)] == [uuid]
    assert drain['approvals_missing'] == 1
    assert ('says no' in (drain['approval_problem'] or '')) is refused


def test_stop_enables_the_host_and_cancels_unbegun_moves(
        conf, person, nova, store, publisher):
    approving(conf, publisher)
    (plan_id,) = start(person, approve=True)[1]['plan_ids']
    running = cases.claim(store, now=store.now())
    assert store.tasks.update_state(running.task.task_id, running.worker, [TaskState.CLAIMED],
                                    TaskState.SUBMITTING, store.now())
    nova.answers[LIST] = [disabled('new memory')]
    status, stopped = person.send('DELETE', '/v1/drains?host=a&reason=too+late')
    assert status == 200, stopped
    assert stopped['changed'] and stopped['running_task_ids'] == [running.task.task_id]
    (row,) = [row for row in store.tasks.list_plan_tasks(plan_id)
              if row.task.task_id != running.task.task_id]
    assert stopped['cancelled_task_ids'] == [row.task.task_id]
    assert row.task.state is TaskState.CANCELLED
    assert row.error.endswith('the drain of host a was stopped: too late')
    assert nova.asked[-1][3] == {'status': 'enabled'}
    assert ('drain stopped', 'host a', 'too late') in list_commands(store)
    nova.answers[LIST] = [ENABLED]
    again = person.send('DELETE', '/v1/drains?host=a')[1]
    assert again == {'host': 'a', 'changed': False, 'cancelled_task_ids': [],
                     'running_task_ids': [running.task.task_id]}


@pytest.mark.parametrize('reason', ['AUTO: libvirt', 'not ours'])
def test_stop_leaves_a_host_alone_that_no_drain_has_disabled(
        conf, person, nova, store, publisher, reason):
    publisher.conf.set_override('drain_reason_regex', '^new', 'engine')
    publisher.run_cycle()
    nova.answers[LIST] = [disabled(reason)]
    status, detail = person.fail('DELETE', '/v1/drains?host=a')
    assert status == 409 and 'that is no drain: ' in detail and repr(reason) in detail
    assert nova.number('PUT') == 0 and list_commands(store) == []
    assert person.send('DELETE', '/v1/drains?host=a&force=true')[1]['changed'] is True
    assert list_commands(store) == [('drain stopped', 'host a', '(force)')]


def test_stop_that_nova_refuses_cancels_nothing(conf, person, nova, store, publisher):
    approving(conf, publisher)
    (plan_id,) = start(person, approve=True)[1]['plan_ids']
    nova.answers.update({LIST: [disabled('new memory')], PUT: [FORBIDDEN]})
    status, detail = person.fail('DELETE', '/v1/drains?host=a')
    assert status == 403 and 'os_compute_api:os-services:update' in detail
    assert {row.task.state for row in store.tasks.list_plan_tasks(plan_id)} == {TaskState.QUEUED}
    assert [row[0] for row in list_commands(store)][-1] == 'drain stop failed'
    nova.answers[LIST] = [{'services': []}]
    assert person.fail('DELETE', '/v1/drains?host=a')[0] == 404


def test_checks_of_a_running_drain_name_the_quieter_hour_of_an_instance(client, store, publisher,
                                                                        monkeypatch):
    """The engine publishes the rates: kronos-api asks no source of metrics."""
    publisher.conf.set_override('drain_quiet_wait', 12 * 3600, 'engine')
    path = pathlib.Path(publisher.conf.engine.policies_file)
    document = yaml.safe_load(path.read_text())
    document['policies'][0]['vm_dirty_rate_query'] = 'dirty'
    path.write_text(yaml.safe_dump(document))
    until = quiet_hours.begin_hour(store.now()) + 3 * 3600
    loud = test_quiet_drains.LoudSource(time.time, until, A1)
    fetch, read = publisher.source.fetch, history.HistoryRepository.read_history
    monkeypatch.setattr(publisher.source, 'fetch', lambda policy: dataclasses.replace(
        fetch(policy), dirty_rate=loud.fetch(policy).dirty_rate))
    test_write_rates.let_open(monkeypatch, lambda: loud)
    monkeypatch.setattr(history.HistoryRepository, 'read_history', lambda *args, **more:
                        dataclasses.replace(read(*args, **more),
                                            measured=test_quiet_hours.MEASURED))
    set_drained(publisher)
    publisher.engine._scopes.write_rates.wait_for_answers()
    publisher.run_cycle()
    status, check = client.send('GET', '/v1/drains/check?host=a')
    (blocked,) = [b for b in check['blocked'] if b['instance_id'] == A1]
    assert status == 200 and blocked['leaves_later'] and '150.0 MiB/s' in blocked['reason']
    at = datetime.datetime.fromisoformat(blocked['movable_from'])
    assert at.timestamp() == until
    (risk,) = check['risks']
    assert risk['wait_obstacle'] is None and risk['probability'] >= 0.2
    cases.order_drain(store, 'a', store.now() + 60, 'new memory', store.now())
    (risk,) = client.send('GET', '/v1/drains/check?host=a')[1]['risks']
    assert risk['instance_id'] == A1 and 'the deadline of the drain at' in risk['wait_obstacle']
