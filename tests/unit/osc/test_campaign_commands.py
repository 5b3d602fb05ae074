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

"""Campaigns on the real routes: started, followed and directed by ``openstack rebalance``."""

import dataclasses
import json
import threading
import time

import pytest

from kronos_nova import model
from kronos_nova.osc import campaign_waits
from kronos_nova.rebalancer.operations import campaigns
from kronos_nova.rebalancer.store import tables
from tests.unit.api import test_campaigns
from tests.unit.api import test_drains
from tests.unit.osc import test_drain_commands
from tests.unit.osc.test_commands import read_json
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(3)

nova, openstack = test_campaigns.nova, test_drain_commands.openstack
publisher = test_drains.publisher
STATES, HOSTS = model.CampaignState, model.CampaignHostState
save = test_campaigns.save


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(campaign_waits, 'INTERVAL', 0.1)


def set_host(store, host, state, scope='blue', **values):
    campaign = store.campaigns.find_live_campaign(scope)
    (found,) = (h for h in campaign.hosts if h.host == host)
    assert store.campaigns.change_host(cases.lease_of(store, scope), campaign.campaign_id, found,
                                       state=state, **values)


def test_start_orders_the_campaign_and_shows_its_forecast(openstack, nova, store, publisher):
    shown = read_json(openstack, 'campaign', 'start', 'a', 'b', '--reason', 'new  firmware',
                      '--window', 'Sat 22:00-04:00', '--together', '1')
    campaign = store.campaigns.find_live_campaign('blue')
    assert shown['id'] == campaign.campaign_id and campaign.together == 1
    assert (shown['step_count'], shown['instance_count'], shown['state']) == (2, 3, 'running')
    assert {host['host'] for host in shown['hosts']} == {'a', 'b'}
    assert shown['windows'] == ['sat 22:00-04:00'] and shown['hosts_together_reason'] is None
    assert campaign.reason.startswith('new firmware [campaign ')


def test_start_shows_why_fewer_hosts_are_emptied_at_a_time(openstack, nova, store, publisher,
                                                           monkeypatch):
    plan = campaigns.plan_campaign
    monkeypatch.setattr(campaigns, 'plan_campaign', lambda *args, **more: dataclasses.replace(
        plan(*args, **more), together=1, together_reason='1 at a time and not 2'))
    shown = read_json(openstack, 'campaign', 'start', 'a', 'b', '--reason', 'x')
    assert (shown['hosts_together'], shown['hosts_together_reason']) == (
        1, '1 at a time and not 2')


@pytest.mark.parametrize(('arguments', 'said'), [
    (('start', 'e', 'a', '--reason', 'x'), 'host a belongs to scope blue, and e to no scope'),
    (('start', 'd', '--reason', 'x'), "d: it is disabled already, for the reason 'new disks'"),
    (('start', 'a', '--reason', 'x', '--window', 'Sun'), "windows: 'Sun'"),
    (('start', '--aggregate', 'bluee', '--reason', 'x'), 'Is blue meant?'),
    (('show',), '<campaign>: no campaign goes on; openstack rebalance campaign list'),
    (('pause', '--scope', 'blue', '--reason', 'x'), 'no campaign goes on in scope blue'),
    (('show', 'abc'), "<campaign>: 'abc' is no UUID"),
    (('show', 'abcd'), 'no campaign begins with abcd; see openstack rebalance campaign list'),
    (('done', 'a'), '<host>: no campaign that goes on has the host a')])
def test_errors_are_one_line(openstack, nova, store, publisher, arguments, said):
    assert said in openstack.fail('campaign', *arguments)


def test_refusal_of_nova_is_one_line(openstack, nova, store, publisher):
    nova.answers['probe'] = test_drains.FORBIDDEN
    line = openstack.fail('campaign', 'start', 'a', '--reason', 'x')
    assert 'os_compute_api:os-services:update' in line and 'kronos.nova.forbidden' in line


def test_campaign_is_named_by_uuid_prefix_scope_or_not_at_all(openstack, nova, store):
    blue = save(store, a='held')
    assert read_json(openstack, 'campaign', 'show')['id'] == blue
    green = save(store, 'green', a='held')
    assert read_json(openstack, 'campaign', 'show', blue)['id'] == blue
    assert read_json(openstack, 'campaign', 'show', green[:13])['id'] == green
    assert read_json(openstack, 'campaign', 'show', '--scope', 'green')['id'] == green
    assert 'go on; name one, or its --scope' in openstack.fail('campaign', 'show')


def test_campaign_pauses_resumes_and_ends(openstack, nova, store):
    save(store, a='emptying', b='to-come')
    paused = read_json(openstack, 'campaign', 'pause', '--reason', 'a\tstorm')
    assert (paused['state'], paused['held_because']) == ('paused', 'a storm')
    assert read_json(openstack, 'campaign', 'resume')['state'] == 'running'
    ended = read_json(openstack, 'campaign', 'abort', '--reason', 'a mistake')
    assert ended['state'] == 'aborting'
    assert [host['state'] for host in ended['hosts']] == ['withdrawn', 'skipped']


def test_orders_find_the_campaign_of_the_host(openstack, nova, store):
    save(store, 'green', a='held')
    blue = save(store, a='held', b='failed', c='to-come')
    assert read_json(openstack, 'campaign', 'done', 'blue-a', '--reason', 'x')['id'] == blue
    assert read_json(openstack, 'campaign', 'repeat', 'blue-b')['hosts'][1]['state'] == 'held'
    assert read_json(openstack, 'campaign', 'skip', 'blue-c', '--campaign', blue[:8])[
        'hosts'][2]['state'] == 'skipped'
    line = openstack.fail('campaign', 'repeat', 'blue-a')
    assert 'blue-a: it is returning' in line and 'kronos.conflict' in line


def test_orders_find_the_campaign_in_which_the_host_is_not_over(openstack, nova, store):
    hosts = [model.CampaignHost('moved', 0, HOSTS.HELD, since=store.now())]
    wanted = cases.new_id()
    store.campaigns.create_campaign(model.Campaign(
        wanted, 'old', f'x [campaign {wanted}]', 1, store.now() - 60, 'ann',
        hosts=tuple(hosts)), 'x')
    other = cases.new_id()
    store.campaigns.create_campaign(model.Campaign(
        other, 'new', f'x [campaign {other}]', 1, store.now(), 'ann', hosts=(
            model.CampaignHost('stays', 0, since=store.now()),)), 'x')
    with store.engine.begin() as connection:
        connection.execute(tables.campaign_host.insert().values(
            campaign_id=other, host='moved', position=1, state='skipped', since=0.0, detail=''))
    assert read_json(openstack, 'campaign', 'done', 'moved')['id'] == wanted


def test_list_shows_campaigns_by_state(openstack, nova, store):
    blue = save(store, a='done', b='held')
    green = save(store, 'green', STATES.PAUSED, a='held')
    assert {row['ID'] for row in read_json(openstack, 'campaign', 'list')} == {blue, green}
    (row,) = read_json(openstack, 'campaign', 'list', '--state', 'paused')
    assert (row['ID'], row['Held'], row['Over']) == (green, 'a storm', 0)
    output = openstack.read('campaign', 'list', '--scope', 'blue')
    assert '1/2' in output and 'running' in output


@pytest.mark.parametrize('option', ['--wait', '--watch'])
@pytest.mark.parametrize(('ending', 'expected'), [(STATES.DONE, 0), (STATES.ABORTED, 1)])
def test_wait_ends_with_the_campaign_and_says_why_it_pauses(openstack, nova, store, server, option,
                                                            ending, expected):
    campaign_id = save(store, a='held')

    def wait_for_look():
        before = len(server.requests)
        while len(server.requests) < before + 2:
            time.sleep(0.02)

    def conduct():
        wait_for_look()
        store.campaigns.pause_campaign(cases.lease_of(store), campaign_id, 'kronos-engine',
                                       'host blue-a is broken')
        wait_for_look()
        if ending is STATES.ABORTED:
            store.campaigns.order_state(campaign_id, [STATES.PAUSED], STATES.ABORTING,
                                        command='x', by='ann', reason='broken')
        set_host(store, 'blue-a', 'done')
        wait_for_look()
        assert store.campaigns.end_campaign(
            cases.lease_of(store), store.campaigns.find_live_campaign('blue'), store.now())

    thread = threading.Thread(target=conduct)
    thread.start()
    try:
        status, output, error = openstack.run('campaign', 'show', option, '-f', 'json')
    finally:
        thread.join(60)
    assert status == expected, error
    assert json.loads(output)['state'] == ending.value
    assert 'The campaign is paused by kronos-engine: host blue-a is broken' in error
    assert ('host blue-a: held to done' in error) is (option == '--watch')


def test_wait_gives_up_after_its_time(openstack, nova, store):
    save(store, a='held')
    status, output, error = openstack.run('campaign', 'show', '--wait', '--timeout', '0.3')
    assert status == 1 and 'has not ended after' in error and output == ''


def test_start_with_wait_names_the_campaign_first(openstack, nova, store, publisher):
    status, _output, error = openstack.run('campaign', 'start', 'a', '--reason', 'x', '--wait',
                                           '--timeout', '0.3')
    campaign = store.campaigns.find_live_campaign('blue')
    assert status == 1
    assert error.startswith(f'Campaign {campaign.campaign_id} has started.\n')


def spoil(store, scope, column='windows', value='never'):
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f'UPDATE campaign SET {column} = ? WHERE scope = ?',
                                   (value, scope))


@pytest.mark.parametrize('options', [(), ('--state', 'running'), ('--state', 'paused')])
def test_a_campaign_that_the_service_cannot_read_is_named_on_standard_error(openstack, store,
                                                                            options):
    good, bad = save(store, a='held'), save(store, 'green', b='held')
    column, value = ('state', 'on') if options else ('windows', 'never')
    spoil(store, 'green', column, value)
    status, output, error = openstack.run('campaign', 'list', *options, '-f', 'json')
    assert status == 0 and [row['ID'] for row in json.loads(output)] == [good] * (
        'paused' not in options)
    assert f"{bad} cannot be read: {column}: '{value}'" in error
    assert f'Correct {column}' in error


@pytest.mark.parametrize(('column', 'value'), [('windows', 'never'), ('state', 'on')])
def test_no_order_takes_the_readable_campaign_for_the_only_one(openstack, nova, store, column,
                                                               value):
    good, bad = save(store, a='held'), save(store, 'green', b='held')
    spoil(store, 'green', column, value)
    for words in (('abort', '--reason', 'x'), ('pause', '--reason', 'x'), ('resume',), ('show',)):
        line = openstack.fail('campaign', *words)
        assert f'{good} and {bad} go on; name one, or its --scope' in line
        assert f"{bad} cannot be read: {column}: '{value}'" in line
    assert store.campaigns.find_live_campaign('blue').state is STATES.RUNNING
    for words in (('--scope', 'green'), (bad,), (bad[:13],)):
        line = openstack.fail('campaign', 'abort', *words, '--reason', 'x')
        assert f"{column}: '{value}'" in line
    assert read_json(openstack, 'campaign', 'abort', '--scope', 'blue', '--reason', 'x')[
        'id'] == good


def test_an_order_for_a_host_names_the_campaign_that_may_have_it(openstack, nova, store):
    save(store, a='held')
    bad = save(store, 'green', b='held')
    spoil(store, 'green')
    line = openstack.fail('campaign', 'done', 'green-b')
    assert f"no campaign that goes on has the host green-b, but {bad} cannot be read" in line
    assert read_json(openstack, 'campaign', 'done', 'blue-a')['state'] == 'running'
