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

"""Campaigns are listed, started and directed for a user; Nova may refuse that."""

import dataclasses
import datetime
import functools
import types

import pytest

from kronos_nova import model
from kronos_nova.api.handlers import campaigns as handler
from kronos_nova.rebalancer.authorization import campaign_authorization
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import campaigns
from tests.unit.api import conftest
from tests.unit.api import test_drains
from tests.unit.rebalancer.clients import served
from tests.unit.rebalancer.store import cases

person, publisher = test_drains.person, test_drains.publisher
HOSTS, STATES = model.CampaignHostState, model.CampaignState
UNKNOWN = '00000000-0000-4000-8000-000000000009'
ORDERS = ('resume', 'abort', 'done', 'repeat', 'skip')


class Answers(dict):
    """Nova's answers: no service has the UUID of the question whether the user may change one."""

    def __missing__(self, key):
        assert key.startswith('PUT /os-services/')
        status, document = self['probe']
        if status == 404 and 'itemNotFound' in document:
            document = {'itemNotFound': {
                'message': f'Service {key.rsplit("/", 1)[-1]} could not be found.'}}
        return [(status, document)]


def list_services(**reasons):
    return {'services': [served.service(host, *(('disabled', reasons[host]) if host in reasons
                                                else ())) for host in 'abcde']}


@pytest.fixture
def nova():
    """Nova as the user sees it: d is disabled, and the user may update services."""
    answers = Answers(probe=(404, {'itemNotFound': {}}))
    answers['GET /os-services'] = [list_services(d='new disks')]
    with served.serving(answers) as nova:
        nova.connection.close = lambda: None
        yield nova


def start(person, hosts=('a', 'b'), **body):
    return person.send('POST', '/v1/campaigns', json={
        'hosts': list(hosts), 'reason': 'new  firmware', **body})


def save(store, scope='blue', state=STATES.RUNNING, **states):
    """Write a campaign with hosts in these states; return its UUID."""
    campaign_id = cases.new_id()
    store.campaigns.create_campaign(model.Campaign(
        campaign_id, scope, f'firmware [campaign {campaign_id}]', 1, store.now(), 'ann',
        migrations=5, seconds=50.0, hosts=tuple(
            model.CampaignHost(f'{scope}-{host}', n, HOSTS(state), since=store.now())
            for n, (host, state) in enumerate(states.items()))), 'firmware')
    if state is not STATES.RUNNING:
        assert store.campaigns.order_state(campaign_id, [STATES.RUNNING], state, command='x',
                                           by='ann', reason='a storm')
    return campaign_id


def test_campaign_starts_for_the_user_with_its_forecast(person, nova, store, publisher):
    status, started = start(person, windows=['Sat 22:00-04:00'], together=1)
    assert status == 200, started
    campaign = started['campaign']
    assert (started['step_count'], started['migration_count'], started['instance_count']) == (
        2, campaign['migrations_left'], 3)
    assert started['staying'] == [] and started['obstacles'] == []
    assert started['hosts_together_reason'] is None
    assert (campaign['scope'], campaign['state'], campaign['windows']) == (
        'blue', 'running', ['sat 22:00-04:00'])
    assert {host['host'] for host in campaign['hosts']} == {'a', 'b'}
    assert campaign['reason'] == f'new firmware [campaign {campaign["id"]}]'
    assert campaign['created_by'].startswith(
        f'keystone:{"a" * 32} project {conftest.OPERATORS} roles admin')
    (row,) = store.audit.list_newest_entries(9)
    assert (row.command, row.target, row.reason) == (
        'campaign started', f'campaign {campaign["id"]}', 'new firmware')
    assert row.by == campaign['created_by']
    ((_put, _path, _query, body, _version),) = [a for a in nova.asked if a[0] == 'PUT']
    assert body == {'status': 'enabled'}
    assert person.send('GET', f'/v1/campaigns/{campaign["id"]}') == (200, campaign)


def test_a_start_is_refused_for_hosts_that_were_not_forecast_in_time(
        person, nova, store, publisher, monkeypatch):
    monkeypatch.setattr(campaign_orders, 'CampaignRequest', functools.partial(
        campaign_orders.CampaignRequest, max_seconds=0.0))
    status, document = start(person, together=1)
    (error,) = document['errors']
    assert (status, error['code']) == (409, 'kronos.conflict')
    assert '2 hosts were not forecast in time, the first b' in error['detail']
    assert store.campaigns.list_live_campaigns() == [] == store.audit.list_newest_entries(9)
    status, started = start(person, together=1, force=True)
    assert status == 200 and started['expected_seconds'] is None, started
    assert started['campaign']['host_count'] == 2 and started['campaign']['hosts_together'] == 1


def test_a_start_is_refused_for_hosts_that_were_not_forecast_to_the_end(
        person, nova, store, publisher, monkeypatch):
    unknown = blocked_instances.BlockedInstance('u', 'planning was cut off', is_cut_off=True)
    forecast_steps = campaign_forecasts._forecast_steps
    monkeypatch.setattr(campaign_forecasts, '_forecast_steps', lambda *args: dataclasses.replace(
        forecast_steps(*args), staying={'b': (unknown,)}))
    status, document = start(person, together=1)
    (error,) = document['errors']
    assert (status, error['code']) == (409, 'kronos.conflict')
    assert '1 host was not forecast to the end, the first b: u: planning was' in error['detail']
    assert store.campaigns.list_live_campaigns() == [] == store.audit.list_newest_entries(9)
    status, started = start(person, together=1, force=True)
    assert status == 200 and started['staying'] == [{
        'host': 'b', 'instance_id': 'u', 'reason': 'planning was cut off', 'leaves_later': False}]


def test_the_campaign_has_the_batches_of_its_forecast(person, nova, store, publisher, monkeypatch):
    plan = campaigns.plan_campaign
    monkeypatch.setattr(campaigns, 'plan_campaign', lambda *args, **more: dataclasses.replace(
        plan(*args, **more), together=1))
    assert start(person, force=True)[1]['campaign']['hosts_together'] == 1


def test_aggregate_names_the_hosts(person, nova, store, publisher):
    nova.answers['GET /os-services'] = [list_services()]
    status, started = start(person, (), aggregate='blue', force=True, together=1)
    assert status == 200, started
    assert {host['host'] for host in started['campaign']['hosts']} == set('abcd')


def test_a_404_that_is_not_nova_s_is_no_permission(person, nova, store, publisher):
    nova.answers['probe'] = (404, {'error': {'message': 'The resource could not be found.'}})
    campaign_id = save(store, a='held')
    for path, body in (('', {'hosts': ['a'], 'reason': 'x'}),
                       (f'/{campaign_id}/skip', {'host': 'blue-a'})):
        status, document = person.send('POST', f'/v1/campaigns{path}', json=body)
        assert (status, document['errors'][0]['code']) == (503, 'kronos.nova.unavailable')
    assert [row.state for row in store.campaigns.find_campaign(campaign_id).hosts] == ['held']
    assert len(store.campaigns.list_live_campaigns()) == 1


@pytest.mark.parametrize('order', ORDERS)
def test_refusal_of_nova_is_403_and_changes_nothing(person, nova, store, publisher, order):
    nova.answers['probe'] = test_drains.FORBIDDEN
    status, document = start(person)
    assert (status, document['errors'][0]['code']) == (403, 'kronos.nova.forbidden')
    assert 'os_compute_api:os-services:update' in document['errors'][0]['detail']
    assert store.campaigns.list_live_campaigns() == []
    campaign_id = save(store, state=STATES.PAUSED, a='held')
    before = test_drains.list_commands(store)
    body = {'host': 'blue-a'} if order in ('done', 'repeat', 'skip') else {'reason': 'x'}
    status, document = person.send('POST', f'/v1/campaigns/{campaign_id}/{order}', json=body)
    assert (status, document['errors'][0]['code']) == (403, 'kronos.nova.forbidden')
    assert test_drains.list_commands(store) == before


def test_request_without_a_token_for_nova_starts_nothing(client, store, publisher):
    status, detail = client.fail('POST', '/v1/campaigns', json={'hosts': ['a'], 'reason': 'x'})
    assert status == 403 and 'the request has no token for Nova' in detail


@pytest.mark.parametrize(('body', 'status', 'said'), [
    ({'hosts': []}, 400, 'host: no compute host is named'),
    ({'hosts': ['aa']}, 400, 'host: aa: no such compute host'),
    ({'aggregate': 'bluee'}, 400, 'aggregate: bluee: no such aggregate. Is blue meant?'),
    ({'hosts': ['a', 'e']}, 400, 'host a belongs to scope blue, and e to no scope'),
    ({'hosts': ['d']}, 409, "d: it is disabled already, for the reason 'new disks'"),
    ({'hosts': ['c']}, 409, 'campaign: 1 host would keep instances, the first c'),
    ({'together': 9}, 400, 'together: engines drain 1 to'),
    ({'windows': ['Sat']}, 400, "windows: 'Sat': "),
    ({'reason': 'x' * 201}, 400, 'reason'), ({'reason': ' '}, 400, 'reason'),
    ({'hosts': ['a'] * 10001}, 400, 'hosts'), ({'what': 1}, 400, 'what')])
def test_bad_order_names_its_field_and_changes_nothing(person, nova, store, publisher, body,
                                                       status, said):
    answered, document = person.send('POST', '/v1/campaigns', json={
        'hosts': ['a'] if 'aggregate' not in body else [], 'reason': 'firmware', **body})
    (error,) = document['errors']
    assert answered == status and said in error['detail'], error
    assert 'kronos campaign' not in error['detail']
    assert store.campaigns.list_live_campaigns() == [] == store.audit.list_newest_entries(9)


def test_forecast_for_which_no_client_waits_starts_nothing(person, nova, store, publisher,
                                                           monkeypatch):
    monkeypatch.setattr(handler, 'FORECAST_SECONDS', -1.0)
    status, document = start(person)
    assert status == 409 and 'hosts: the forecast takes longer than' in (
        document['errors'][0]['detail'])
    assert store.campaigns.list_live_campaigns() == [] == store.audit.list_newest_entries(9)


@pytest.mark.parametrize('passed', ['FORECAST_SECONDS', 'REPEAT_SECONDS'])
def test_a_forecast_with_smaller_batches_that_takes_long_refuses_no_start(
        person, nova, store, publisher, monkeypatch, passed):
    """Its first forecast has ended in time, and has an instance that leaves later."""
    forecast_steps, seconds, calls = campaign_forecasts._forecast_steps, [0.0], []
    monkeypatch.setattr(handler, 'time', types.SimpleNamespace(monotonic=lambda: seconds[0]))
    monkeypatch.setattr(campaign_forecasts, '_may_leave_fewer', lambda *_args: True)

    def forecast(*args):
        calls.append(args)
        if len(calls) == 1:
            found = forecast_steps(*args)
            return dataclasses.replace(found, staying={
                'b': (blocked_instances.BlockedInstance('u', 'its hours come later', later=True),)})
        (search,) = (arg for arg in args if isinstance(arg, campaign_forecasts._Search))
        assert not search.is_over()
        seconds[0] = getattr(handler, passed) + 1.0
        return forecast_steps(*args)

    monkeypatch.setattr(campaign_forecasts, '_forecast_steps', forecast)
    status, started = start(person, together=2)
    assert (status, len(calls)) == (200, 2), started
    assert started['campaign']['hosts_together'] == 2
    assert started['hosts_together_reason'] == (
        'the time was over before the forecast with 1 at a time ended, which may leave fewer hosts '
        'with instances')
    assert len(store.campaigns.list_live_campaigns()) == 1


def test_a_smaller_number_of_hosts_at_a_time_comes_with_its_reason(
        person, nova, store, publisher, monkeypatch):
    forecast_steps = campaign_forecasts._forecast_steps
    monkeypatch.setattr(campaign_forecasts, '_may_leave_fewer',
                        lambda _cloud, forecast: bool(forecast.staying))
    # With two at a time one host more stays.
    monkeypatch.setattr(campaign_forecasts, '_forecast_steps', lambda cloud, *args: (
        lambda found: dataclasses.replace(found, staying={'b': ()}) if found.together == 2
        else found)(forecast_steps(cloud, *args)))
    status, started = start(person, together=2)
    assert status == 200 and started['campaign']['hosts_together'] == 1, started
    assert started['hosts_together_reason'] == (
        '1 at a time and not 2, because 1 more host would keep instances with 2')


def test_second_campaign_of_a_scope_is_refused(person, nova, store, publisher):
    save(store, a='to-come')
    status, document = start(person)
    assert status == 409
    assert 'scope blue has the campaign' in document['errors'][0]['detail']


def test_host_that_is_disabled_since_the_reading_is_refused(person, nova, store, publisher):
    nova.answers['GET /os-services'] = [list_services(b='a storm')]
    status, document = start(person)
    assert status == 409 and "for the reason 'a storm'" in document['errors'][0]['detail']


def test_campaign_is_paused_resumed_and_aborted_by_the_user(person, nova, store, publisher):
    path = f'/v1/campaigns/{save(store, a="held", b="to-come")}'
    status, campaign = person.send('POST', f'{path}/pause', json={'reason': 'a storm'})
    assert (status, campaign['state'], campaign['held_because']) == (200, 'paused', 'a storm')
    assert campaign['held_by'].startswith('keystone:')
    status, document = person.send('POST', f'{path}/pause', json={'reason': 'a storm'})
    assert status == 409 and 'it is paused, and not running' in document['errors'][0]['detail']
    status, campaign = person.send('POST', f'{path}/resume', json={})
    assert (status, campaign['state'], campaign['held_because']) == (200, 'running', None)
    status, campaign = person.send('POST', f'{path}/abort', json={'reason': 'a mistake'})
    assert (status, campaign['state']) == (200, 'aborting')
    assert [(host['host'], host['state']) for host in campaign['hosts']] == [
        ('blue-a', 'held'), ('blue-b', 'skipped')]
    assert [row[0] for row in test_drains.list_commands(store)] == [
        'campaign started', 'campaign paused', 'campaign resumed', 'campaign aborted']
    assert all(row.by.startswith('keystone:') for row in store.audit.list_newest_entries(3))


def test_orders_for_a_host_need_its_state(person, nova, store, publisher):
    path = f'/v1/campaigns/{save(store, a="held", b="failed", c="to-come", d="done")}'

    def order(verb, host):
        status, document = person.send('POST', f'{path}/{verb}', json={
            'host': f'blue-{host}', 'reason': 'I saw it'})
        if status != 200:
            return status, document['errors'][0]['detail']
        return status, {h['host'][-1]: h['state'] for h in document['hosts']}

    assert order('done', 'a') == (200, {'a': 'returning', 'b': 'failed', 'c': 'to-come',
                                        'd': 'done'})
    assert order('repeat', 'b')[1]['b'] == 'held' and order('skip', 'c')[1]['c'] == 'skipped'
    status, detail = order('repeat', 'a')
    assert status == 409 and 'blue-a: it is returning' in detail
    assert order('done', 'd')[0] == order('done', 'z')[0] == 400
    assert [row[0] for row in test_drains.list_commands(store)[1:]] == [
        'campaign done', 'campaign repeat', 'campaign skip']


@pytest.mark.parametrize('verb', ['pause', *ORDERS])
def test_unknown_or_ended_campaign_takes_no_order(person, nova, store, publisher, verb):
    body = {'host': 'blue-a'} if verb in ('done', 'repeat', 'skip') else {'reason': 'x'}
    assert person.send('POST', f'/v1/campaigns/{UNKNOWN}/{verb}', json=body)[0] == 404
    campaign_id = save(store, a='skipped')
    end(store, 'blue')
    status, document = person.send('POST', f'/v1/campaigns/{campaign_id}/{verb}', json=body)
    assert status == 409 and 'it is done' in document['errors'][0]['detail']


def end(store, scope):
    lease = cases.lease_of(store, scope)
    assert store.campaigns.end_campaign(lease, store.campaigns.find_live_campaign(scope),
                                        store.now())
    store.leases.release_lease(lease)


def test_list_comes_in_pages_newest_first(client, store):
    ids = []
    for _number in range(3):
        ids.insert(0, save(store, a='done'))
        end(store, 'blue')
    status, page = client.send('GET', '/v1/campaigns?limit=2')
    assert status == 200 and [row['id'] for row in page['campaigns']] == ids[:2]
    path = page['next'].partition('localhost')[2]
    status, page = client.send('GET', path)
    assert [row['id'] for row in page['campaigns']] == ids[2:] and page['next'] is None
    assert client.send('GET', f'/v1/campaigns?marker={UNKNOWN}')[0] == 404
    assert 'hosts' not in page['campaigns'][0]


def test_a_row_that_was_written_by_hand_hides_no_other_campaign(client, store):
    bad, good = save(store, a='held'), save(store, 'green', a='held')
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE campaign SET windows = 'never' WHERE scope = 'blue'")
    status, page = client.send('GET', '/v1/campaigns')
    assert status == 200 and [row['id'] for row in page['campaigns']] == [good]
    (row,) = page['unreadable']
    assert (row['id'], row['scope'], row['field']) == (bad, 'blue', 'windows')
    assert row['problem'] == "'never' cannot be read"
    assert row['remedy'].startswith(f'Correct windows of campaign {bad} in the database')
    status, page = client.send('GET', '/v1/campaigns?limit=1')
    assert len(page['campaigns'] + page['unreadable']) == 1 and page['next'] is not None
    status, document = client.send('GET', f'/v1/campaigns/{bad}')
    (error,) = document['errors']
    assert (status, error['code']) == (409, 'kronos.unreadable_row')
    assert "windows: 'never' cannot be read" in error['detail']


def test_filters_choose_campaigns(client, store):
    blue, green = save(store, a='held', b='to-come'), save(store, 'green', STATES.PAUSED, a='held')

    def list_ids(query):
        status, page = client.send('GET', f'/v1/campaigns?{query}')
        assert status == 200, page
        return {row['id'] for row in page['campaigns']}

    assert list_ids('') == {blue, green}
    assert list_ids('scope=green') == list_ids('state=paused') == {green}
    assert list_ids('state=paused&state=running') == {blue, green}
    assert list_ids(f'id_prefix={blue[:13]}') == {blue}
    (row,) = client.send('GET', '/v1/campaigns?scope=green')[1]['campaigns']
    assert (row['held_by'], row['held_because'], row['next_host']) == ('ann', 'a storm', None)
    (row,) = client.send('GET', '/v1/campaigns?scope=blue')[1]['campaigns']
    assert (row['host_count'], row['host_over_count'], row['next_host']) == (2, 0, 'blue-b')
    assert [(count['state'], count['count']) for count in row['hosts_by_state']] == [
        ('to-come', 1), ('held', 1)]
    assert (row['migrations_left'], row['expected_seconds_left']) == (5, 50.0)


@pytest.mark.parametrize('change', ['pause', 'skip', 'engine', 'waits', 'step', 'work', 'end'])
def test_changes_since_shows_each_change(client, store, monkeypatch, change):
    campaign_id = save(store, a={'end': 'done', 'step': 'to-come'}.get(change, 'held'))
    campaign = store.campaigns.find_campaign(campaign_id)
    since = store.now() + 50
    text = datetime.datetime.fromtimestamp(since, datetime.UTC).isoformat()

    def list_ids():
        return [row['id'] for row in client.send(
            'GET', '/v1/campaigns', query_string={'changes-since': text})[1]['campaigns']]

    assert list_ids() == []
    monkeypatch.setattr(store, '_clock', lambda: since + 1)
    if change == 'pause':
        store.campaigns.order_state(campaign_id, [STATES.RUNNING], STATES.PAUSED, command='x',
                                    by='ann', reason='x')
    elif change == 'skip':
        store.campaigns.order_host(campaign_id, 'blue-a', campaign_orders.SKIP, by='ann')
    else:
        lease = cases.lease_of(store)
        if change == 'engine':
            store.campaigns.change_host(lease, campaign_id, campaign.hosts[0], detail='x')
        elif change == 'waits':
            store.campaigns.record_waits(lease, campaign_id, 'x')
        # An engine may have read the time long before it writes.
        elif change == 'step':
            assert store.campaigns.begin_step(lease, campaign_id, ['blue-a'], opened=False,
                                              now=since - 40)
        elif change == 'work':
            assert store.campaigns.begin_work(lease, campaign_id, 'blue-a', 'engine', since - 40)
        else:
            assert store.campaigns.end_campaign(lease, campaign, since - 40)
    assert list_ids() == [campaign_id]


def test_start_and_resume_are_signed_for_the_user(person, conf, nova, store, publisher, tmp_path):
    directory = str(tmp_path / 'keys')
    key_repository.create_keys(directory)
    conf.set_override('key_repository', directory, 'signing')
    status, started = start(person)
    assert status == 200, started
    path = f'/v1/campaigns/{started["campaign"]["id"]}'
    verifier = campaign_authorization.make_authorization(conf)
    campaign = store.campaigns.find_live_campaign('blue')
    assert verifier.find_problem(campaign, store.now()) is None
    assert 'authorization' not in started['campaign']
    assert person.send('POST', f'{path}/pause', json={'reason': 'x'})[0] == 200
    assert person.send('POST', f'{path}/resume', json={})[0] == 200
    campaign = store.campaigns.find_live_campaign('blue')
    assert verifier.find_problem(campaign, store.now()) is None


def test_resume_of_a_campaign_that_no_key_has_signed_is_refused(person, conf, nova, store,
                                                                publisher, tmp_path):
    directory = str(tmp_path / 'keys')
    key_repository.create_keys(directory)
    conf.set_override('key_repository', directory, 'signing')
    campaign_id = save(store, state=STATES.PAUSED, a='to-come')
    status, document = person.send('POST', f'/v1/campaigns/{campaign_id}/resume', json={})
    assert status == 409 and 'it has no signature' in document['errors'][0]['detail']
    assert store.campaigns.find_live_campaign('blue').state is STATES.PAUSED
    assert person.send('POST', f'/v1/campaigns/{campaign_id}/abort',
                       json={'reason': 'forged'})[0] == 200
