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

"""Campaigns that a row in the database starts: without a signature no engine carries one out."""

import dataclasses

import jwt
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import campaign_authorization
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import signatures
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.engine import campaign_bench

STATES, HOSTS = model.CampaignState, model.CampaignHostState
DAY = 86400.0


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp('signing') / 'keys')
    key_repository.create_keys(directory)
    return directory


@pytest.fixture
def bench(directory):
    bench = campaign_bench.Bench({'a': [2048], 'b': [1024], 'c': [1024], 'spare': []},
                                 command='command')
    bench.conf.set_override('key_repository', directory, 'signing')
    bench.renew_engine()
    return bench


def sign(bench, **changes):
    """Sign the campaign as its start does, and change its row."""
    signer = campaign_authorization.make_authorization(bench.conf)
    write_row(bench, authorization=signer.sign_campaign(bench.campaign, 'ann', bench.now),
              **changes)


def write_row(bench, **columns):
    """Write columns as a thief of the database's password does."""
    with bench.store.engine.begin() as connection:
        connection.execute(tables.campaign.update().values(columns))


def test_a_campaign_that_is_signed_goes_on_to_its_end(bench):
    bench.start('ab')
    sign(bench)
    bench.run_cycles(40)
    assert bench.campaign.state is STATES.DONE and bench.reboots == {'a': 1, 'b': 1}


def test_a_row_without_a_signature_disables_no_host_and_runs_no_command(bench):
    bench.start('ab')
    bench.run_cycles(20)
    assert bench.reboots == {} and all(s.enabled for s in bench.services.values())
    assert bench.campaign.state is STATES.PAUSED
    assert bench.campaign.held_because == 'it is not authorized: it has no signature'
    assert ('campaign.paused', None) in bench.events


@pytest.mark.parametrize('columns', [
    {'together': 3}, {'windows': '["sat 22:00-4:00"]'}, {'reason': 'other [campaign x]'}])
def test_a_row_that_differs_from_the_signed_campaign_is_not_carried_out(bench, columns):
    bench.start('ab')
    sign(bench, **columns)
    bench.run_cycles(20)
    assert bench.reboots == {} and bench.campaign.state is STATES.PAUSED
    assert all(service.enabled for service in bench.services.values())


def test_no_host_is_added_to_a_signed_campaign(bench):
    bench.start('a')
    sign(bench)
    campaign_id = bench.campaign.campaign_id
    with bench.store.engine.begin() as connection:
        connection.execute(tables.campaign_host.insert().values(
            campaign_id=campaign_id, host='c', position=9, state='to-come',
            since=0.0, detail=''))
    bench.run_cycles(20)
    assert bench.reboots == {} and bench.services['c'].enabled
    assert 'its row differs from the campaign that was signed' in bench.campaign.held_because


def test_the_signature_of_another_campaign_does_not_count(bench):
    bench.start('a')
    sign(bench)
    stolen = bench.campaign.authorization
    bench.set_state([STATES.RUNNING], STATES.ABORTING)
    bench.run_cycles(5)
    bench.start('b')
    write_row(bench, authorization=stolen)
    bench.run_cycles(10)
    assert bench.reboots == {} and bench.campaign.state is STATES.PAUSED


def test_a_forged_abort_neither_disables_a_host_nor_runs_a_command(bench):
    bench.start('abc')
    write_row(bench, state='aborting')
    for host, state in (('a', 'emptying'), ('b', 'held'), ('c', 'to-come')):
        lease = bench.store.leases.acquire_lease(model.UNASSIGNED, bench.owner, 60.0, '')
        (found,) = (h for h in bench.campaign.hosts if h.host == host)
        assert bench.store.campaigns.change_host(lease, bench.campaign.campaign_id, found,
                                                 state=state)
    for _cycle in range(20):
        bench.run_cycle()
        assert all(service.enabled for service in bench.services.values())
    assert bench.reboots == {}


def test_a_campaign_does_not_enable_a_host_with_a_foreign_disabled_reason(bench):
    """A row with the reason of an operator must not enable the host that this one disabled."""
    bench.start('ab')
    bench.set_service('a', status='disabled', disabled_reason='broken board')
    sign(bench, reason='broken board', state='aborting')
    lease = bench.store.leases.acquire_lease(model.UNASSIGNED, bench.owner, 60.0, '')
    bench.store.campaigns.change_host(lease, bench.campaign.campaign_id, bench.campaign.hosts[0],
                                      state='withdrawn')
    bench.run_cycles(10)
    assert not bench.services['a'].enabled


def test_an_engine_renews_the_signature_while_the_campaign_goes_on(bench):
    bench.start('ab')
    sign(bench)
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    first = bench.campaign.authorization
    bench.run_cycle()
    assert bench.campaign.authorization == first
    for _day in range(5):
        bench.run_cycle(DAY)
    claims = jwt.decode(bench.campaign.authorization, options={'verify_signature': False})
    assert claims['sub'] == 'ann' and claims['exp'] == bench.now + 2 * DAY
    assert bench.campaign.held_because == 'a storm'


def test_a_campaign_that_no_engine_carried_on_for_days_needs_a_person(bench):
    bench.start('ab')
    sign(bench)
    bench.run_cycle(2 * DAY + signatures.CLOCK_SECONDS + 3600)
    assert bench.campaign.state is STATES.PAUSED
    assert bench.campaign.held_because.startswith('it is not authorized: its signature has ended')
    signer = campaign_authorization.make_authorization(bench.conf)
    assert bench.store.campaigns.order_state(
        bench.campaign.campaign_id, [STATES.PAUSED], STATES.RUNNING, command='campaign resumed',
        by='ben', reason='', authorization=signer.sign_again(bench.campaign, 'ben', bench.now))
    bench.run_cycles(40)
    assert bench.campaign.state is STATES.DONE and bench.reboots == {'a': 1, 'b': 1}


def test_a_campaign_that_no_key_has_signed_is_not_signed_by_a_resume(bench):
    bench.start('ab')
    signer = campaign_authorization.make_authorization(bench.conf)
    with pytest.raises(exception.ConflictError, match='it has no signature. Abort it'):
        signer.sign_again(bench.campaign, 'ben', bench.now)


def test_keys_that_cannot_be_read_hold_the_campaign_and_pause_nothing(bench, directory,
                                                                      tmp_path):
    bench.start('ab')
    sign(bench)
    bench.conf.set_override('key_repository', str(tmp_path / 'none'), 'signing')
    bench.renew_engine()
    bench.run_cycles(5)
    assert bench.campaign.state is STATES.RUNNING and bench.reboots == {}
    assert all(service.enabled for service in bench.services.values())
    assert bench.campaign.waits.startswith('its signature cannot be verified now: ')
    bench.conf.set_override('key_repository', directory, 'signing')
    bench.renew_engine()
    bench.run_cycle()
    assert bench.campaign.waits == '' and not bench.services['a'].enabled
    bench.run_cycles(40)
    assert bench.campaign.state is STATES.DONE


def test_keys_that_lack_while_a_host_is_emptied_are_no_reason_any_more(bench, directory, tmp_path):
    bench.held_moves = True
    bench.start('a')
    sign(bench)
    bench.run_cycles(2)
    for path in (str(tmp_path / 'none'), directory):
        bench.conf.set_override('key_repository', path, 'signing')
        bench.renew_engine()
        bench.run_cycle()
        assert bool(bench.campaign.waits) is (path != directory)
    assert bench.states() == {'a': 'emptying'}


def test_without_keys_nothing_is_signed_and_each_campaign_passes():
    plain = campaign_authorization.CampaignAuthorization(None)
    campaign = dataclasses.replace(model.Campaign(
        'id', 'blue', 'x [campaign id]', 1, 0.0, 'ann'), hosts=(model.CampaignHost('a', 0),))
    assert plain.sign_campaign(campaign, 'ann', 0.0) == ''
    assert plain.find_problem(campaign, 9e9) is None
    assert plain.sign_again(campaign, 'ann', 0.0) is None
    assert plain.renew_signature(campaign, 9e9) is None


def write_host(bench, host, **columns):
    """Write columns of a host as a thief of the database's password does."""
    table = tables.campaign_host
    with bench.store.engine.begin() as connection:
        connection.execute(table.update().where(table.c.host == host).values(columns))


@pytest.mark.parametrize('state', ['running', 'paused', 'aborting'])
def test_a_row_lets_the_check_run_for_no_host_that_nova_shows_enabled(bench, state):
    bench.conf.set_override('check_command', 'check', 'campaign')
    bench.start('ab')
    write_row(bench, state=state)
    write_host(bench, 'a', state='returning')
    bench.run_cycles(5)
    assert not any(key.startswith('check') for key in bench.running)


def test_the_check_runs_once_for_a_host_that_comes_back(bench):
    bench.conf.set_override('check_command', 'check', 'campaign')
    bench.start('a')
    sign(bench)
    bench.run_cycles(20)
    assert bench.campaign.state is STATES.DONE and bench.reboots == {'a': 1}
    assert [key for key in bench.running if key.startswith('check')] == [
        f'check {bench.campaign.campaign_id} a']


@pytest.mark.parametrize('state', ['withdrawn', 'returning'])
def test_hosts_on_their_way_back_are_enabled_without_a_signature(bench, state):
    bench.start('ab')
    reason = bench.campaign.reason
    write_host(bench, 'a', state=state, since=bench.now)
    bench.set_service('a', status='disabled', disabled_reason=reason)
    bench.run_cycles(10)
    assert bench.campaign.state is STATES.PAUSED and bench.services['a'].enabled
    assert bench.states() == {'a': {'withdrawn': 'skipped', 'returning': 'done'}[state],
                              'b': 'to-come'}
    assert bench.services['b'].enabled and bench.reboots == {}


def test_a_campaign_of_another_scope_is_not_carried_out(bench):
    bench.start('a')
    sign(bench)
    signer = campaign_authorization.make_authorization(bench.conf)
    moved = dataclasses.replace(bench.campaign, scope='other')
    write_row(bench, scope='other', authorization=signer.sign_campaign(moved, 'ann', bench.now))
    bench.run_cycles(10)
    assert bench.reboots == {} and bench.services['a'].enabled
    assert bench.campaign.held_because == 'it is not authorized: it is one of scope other'


def test_an_engine_does_not_renew_the_signature_of_a_campaign_that_is_over(bench):
    bench.start('ab')
    sign(bench, state='done')
    first = bench.campaign.authorization
    bench.run_cycle(7200.0)
    assert bench.campaign.authorization == first


@pytest.mark.parametrize('aborted', [True, False])
def test_a_campaign_that_is_over_or_aborted_has_no_signature_left(bench, aborted):
    bench.start('a')
    sign(bench)
    if aborted:
        bench.set_state([STATES.RUNNING], STATES.ABORTING)
        assert bench.campaign.authorization == ''
    bench.run_cycles(20)
    assert bench.campaign.state.is_terminal and bench.campaign.authorization == ''
    write_row(bench, state='running', live_scope=model.UNASSIGNED)
    write_host(bench, 'a', state='to-come')
    bench.reboots.clear()
    bench.run_cycles(10)
    assert bench.reboots == {} and bench.campaign.state is STATES.PAUSED


def test_a_resume_where_no_keys_are_set_leaves_the_signature(bench):
    bench.start('a')
    sign(bench)
    bench.set_state([STATES.RUNNING], STATES.PAUSED)
    plain = campaign_authorization.CampaignAuthorization(None)
    assert bench.store.campaigns.order_state(
        bench.campaign.campaign_id, [STATES.PAUSED], STATES.RUNNING, command='campaign resumed',
        by='ben', reason='', authorization=plain.sign_again(bench.campaign, 'ben', bench.now))
    bench.run_cycles(20)
    assert bench.campaign.state is STATES.DONE and bench.reboots == {'a': 1}
