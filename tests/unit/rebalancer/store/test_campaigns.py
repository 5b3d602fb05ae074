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

"""What every backend must do about campaigns; see :mod:`cases`."""

import dataclasses
import functools

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store.cases import at_once
from tests.unit.rebalancer.store.cases import claim
from tests.unit.rebalancer.store.cases import end
from tests.unit.rebalancer.store.cases import lease_of
from tests.unit.rebalancer.store.cases import make_task
from tests.unit.rebalancer.store.cases import new_id
from tests.unit.rebalancer.store.cases import NOW
from tests.unit.rebalancer.store.cases import save

STATES, HOSTS = model.CampaignState, model.CampaignHostState
LIVE = (STATES.RUNNING, STATES.PAUSED)


def make_campaign(scope='blue', hosts=('h1', 'h2', 'h3'), **kw):
    campaign_id = new_id()
    return model.Campaign(**{
        'campaign_id': campaign_id, 'scope': scope, 'reason': f'firmware [campaign {campaign_id}]',
        'together': 2, 'created_at': NOW, 'created_by': 'ann', 'migrations': 7, 'seconds': 90.5,
        'windows': (maintenance_windows.parse_window('sat 22:00-4:00'),),
        'hosts': tuple(model.CampaignHost(host, position, since=NOW)
                       for position, host in enumerate(hosts)), **kw})


def start(store, **kw):
    campaign = make_campaign(**kw)
    store.campaigns.create_campaign(campaign, 'firmware')
    return campaign


def begin(store, lease, campaign, *hosts, opened=False):
    assert store.campaigns.begin_step(
        lease, campaign.campaign_id, hosts, opened=opened, now=NOW + 1)


def set_host(store, lease, campaign, host, state):
    """Give a host a state that need not follow."""
    (before,) = (h for h in read(store).hosts if h.host == host)
    assert store.campaigns.change_host(lease, campaign.campaign_id, before, state=state.value)


def order(store, campaign, after, *before):
    return store.campaigns.order_state(
        campaign.campaign_id, before, after, command=f'campaign {after}', by='ben',
        reason='a storm')


def read(store, scope='blue'):
    return store.campaigns.find_live_campaign(scope)


def read_states(store):
    return {host.host: host.state for host in read(store).hosts}


def list_commands(store):
    return [(entry.by, entry.command, entry.target, entry.reason)
            for entry in store.audit.list_newest_entries(50)]


# Starts.

def test_a_campaign_is_read_as_it_was_created(store):
    campaign = start(store)
    assert read(store) == campaign
    assert store.campaigns.list_live_campaigns() == [campaign]
    assert store.campaigns.list_newest_campaigns(5) == [campaign]
    assert read(store, 'green') is None


def test_migrations_off_the_hosts_of_a_campaign_are_counted(store):
    campaign = start(store, hosts=('a', 'b'))
    other = start(store, scope='green', hosts=('c',))
    done, failed = model.TaskState.COMPLETED, model.TaskState.FAILED
    for host, phase, at, state in (
            ('a', model.Phase.EVACUATE, NOW + 5, done),
            ('b', model.Phase.EVACUATE, NOW + 6, done),
            ('a', model.Phase.EVACUATE, NOW - 5, done),
            ('a', model.Phase.EVACUATE, NOW + 7, failed),
            ('a', model.Phase.SPREAD, NOW + 8, done),
            ('d', model.Phase.EVACUATE, NOW + 9, done)):
        save(store, [functools.partial(make_task, from_host=host, to_host='z', phase=phase)])
        end(store, claim(store), state, at)
    ids = [campaign.campaign_id, other.campaign_id]
    assert store.campaigns.count_migrations(ids) == {campaign.campaign_id: 2}
    assert store.campaigns.count_migrations(ids[1:]) == store.campaigns.count_migrations([]) == {}


def test_campaigns_that_ended_since_a_time_come_last_end_first(store):
    lease = lease_of(store)
    ended = []
    for at in (NOW + 10, NOW + 20, NOW + 30):
        campaign = start(store)
        assert order(store, campaign, STATES.ABORTING, STATES.RUNNING)
        assert store.campaigns.end_campaign(lease, read(store), at)
        ended.append(campaign.campaign_id)
    start(store)
    found = [c.campaign_id for c in store.campaigns.list_ended_overviews(NOW + 20, 5)]
    assert found == [ended[2], ended[1]]
    assert [c.campaign_id for c in store.campaigns.list_ended_overviews(NOW, 1)] == [ended[2]]
    assert store.campaigns.list_ended_overviews(NOW, 5, 'green') == []


def test_a_live_campaign_keeps_its_scope_and_its_hosts(store):
    first = start(store)
    for rival, what in ((make_campaign(hosts=('h9',)), 'scope blue'),
                        (make_campaign(scope='green', hosts=('h0', 'h2')), 'host h2')):
        with pytest.raises(exception.ConflictError) as caught:
            store.campaigns.create_campaign(rival, 'firmware')
        assert what in str(caught.value) and first.campaign_id in str(caught.value)
    assert store.campaigns.list_live_campaigns() == [first]
    other = start(store, scope='green', hosts=('h9',))
    assert [c.scope for c in store.campaigns.list_live_campaigns()] == ['blue', 'green']
    assert read(store, 'green') == other


def test_hosts_that_are_over_may_have_another_campaign_of_another_scope(store):
    campaign, lease = start(store), lease_of(store)
    set_host(store, lease, campaign, 'h2', HOSTS.DONE)
    start(store, scope='green', hosts=('h2',))


def test_of_campaigns_that_start_at_once_for_a_scope_one_is_left(store):
    for _time in range(5):
        found = at_once(3, lambda n: start(store, hosts=(f'h{n}',)))
        left = store.campaigns.list_live_campaigns()
        assert len(left) == 1 and found.count(left[0]) == 1
        others = [each for each in found if each != left[0]]
        assert [type(each) for each in others] == [exception.ConflictError] * 2, others
        lease = lease_of(store)
        set_host(store, lease, left[0], left[0].hosts[0].host, HOSTS.SKIPPED)
        assert store.campaigns.end_campaign(lease, left[0], NOW + 2)


def test_of_campaigns_that_start_at_once_over_one_host_one_is_left(store):
    """They are of several scopes, so the host alone keeps them apart."""
    for _time in range(5):
        found = at_once(3, lambda n: start(store, scope=f'scope {n}', hosts=(f'h{n}', 'shared')))
        (left,) = store.campaigns.list_live_campaigns()
        others = [each for each in found if each != left]
        assert [type(each) for each in others] == [exception.ConflictError] * 2, others
        assert all('host shared has the campaign' in str(each) for each in others)
        lease = lease_of(store, left.scope)
        for host in left.hosts:
            assert store.campaigns.change_host(lease, left.campaign_id, host, state='skipped')
        assert store.campaigns.end_campaign(lease, left, NOW + 2)


def test_an_ended_campaign_frees_its_scope(store):
    first, lease = start(store, hosts=('h1',)), lease_of(store)
    assert not store.campaigns.end_campaign(lease, first, NOW + 2), 'h1 is not over'
    set_host(store, lease, first, 'h1', HOSTS.DONE)
    assert store.campaigns.end_campaign(lease, first, NOW + 2)
    assert not store.campaigns.end_campaign(lease, first, NOW + 3), 'it has ended'
    assert read(store) is None
    second = start(store, created_at=NOW + 5)
    ended = store.campaigns.list_newest_campaigns(1 + 1)[1]
    assert (ended.campaign_id, ended.state, ended.ended_at) == (
        first.campaign_id, STATES.DONE, NOW + 2)
    assert store.campaigns.list_newest_campaigns(1) == [second]


# Engines.

def test_without_the_lease_an_engine_writes_nothing(store):
    campaign, lease = start(store), lease_of(store)
    lost = dataclasses.replace(lease, epoch=lease.epoch + 1)
    host, repository = campaign.hosts[0], store.campaigns
    for write in (
            lambda: repository.begin_step(lost, campaign.campaign_id, ['h1'], opened=False,
                                          now=NOW),
            lambda: repository.begin_work(lost, campaign.campaign_id, 'h1', 'e', NOW),
            lambda: repository.change_host(lost, campaign.campaign_id, host, detail='x'),
            lambda: repository.pause_campaign(lost, campaign.campaign_id, 'e', 'x'),
            lambda: repository.record_waits(lost, campaign.campaign_id, 'x'),
            lambda: repository.end_campaign(lost, campaign, NOW)):
        with pytest.raises(exception.LeaseLost):
            write()
    assert read(store) == campaign


def test_a_step_begins_without_the_hosts_that_an_operator_has_left_out_meanwhile(store):
    campaign, lease = start(store), lease_of(store)
    assert store.campaigns.order_host(campaign.campaign_id, 'h1', campaign_orders.SKIP, by='ann')
    begun = store.campaigns.begin_step(
        lease, campaign.campaign_id, ['h1', 'h2'], opened=True, now=NOW)
    assert [(host.host, host.state, host.since) for host in begun] == [('h2', HOSTS.EMPTYING, NOW)]
    assert read_states(store) == {'h1': HOSTS.SKIPPED, 'h2': HOSTS.EMPTYING, 'h3': HOSTS.TO_COME}
    assert read(store).opened


def test_hosts_that_begin_and_are_not_seen_disabled_are_known_to_other_drains(store):
    campaign, lease = start(store), lease_of(store)
    start(store, scope='green', hosts=('g1',))

    def list_beginning(since):
        found = store.campaigns.map_beginning_hosts(since)
        assert set(found.values()) <= {(campaign.campaign_id, 'blue')}
        return set(found)

    assert list_beginning(NOW) == set()
    begin(store, lease, campaign, 'h1', 'h2')
    assert list_beginning(NOW) == list_beginning(NOW + 999) == {'h1', 'h2'}
    (first, second, _third) = read(store).hosts
    store.campaigns.change_host(lease, campaign.campaign_id, first, disabled_at=NOW + 9)
    assert list_beginning(NOW + 9) == {'h1', 'h2'} and list_beginning(NOW + 10) == {'h2'}
    store.campaigns.return_hosts(lease, campaign.campaign_id, ['h1', 'h2'], NOW + 11, 'refused')
    assert list_beginning(NOW + 10) == set()
    assert [(host.state, host.since, host.detail) for host in read(store).hosts[:2]] == [
        (HOSTS.EMPTYING, NOW + 1, ''), (HOSTS.TO_COME, NOW + 11, 'refused')]


@pytest.mark.parametrize('state', [state for state in HOSTS if state.is_begun])
def test_a_host_that_was_disabled_since_the_reading_counts_in_each_later_state(store, state):
    """A check of a drain may take minutes: meanwhile the host is held, or left out."""
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1')
    store.campaigns.change_host(lease, campaign.campaign_id, read(store).hosts[0],
                                state=state.value, disabled_at=NOW + 9)
    assert set(store.campaigns.map_beginning_hosts(NOW + 9)) == {'h1'}
    assert store.campaigns.map_beginning_hosts(NOW + 10) == {}


@pytest.mark.parametrize('state', [state for state in HOSTS if not state.is_begun])
def test_a_host_that_is_to_come_or_over_begins_no_drain(store, state):
    campaign, lease = start(store), lease_of(store)
    store.campaigns.change_host(lease, campaign.campaign_id, read(store).hosts[0],
                                state=state.value, disabled_at=NOW + 9)
    assert store.campaigns.map_beginning_hosts(NOW) == {}


def test_a_host_that_was_just_left_out_may_still_be_disabled(store):
    """An engine may have asked Nova for it a moment before."""
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1')
    assert store.campaigns.order_host(campaign.campaign_id, 'h1', campaign_orders.SKIP, by='ann')
    since = read(store).hosts[0].since
    assert set(store.campaigns.map_beginning_hosts(since)) == {'h1'}
    assert store.campaigns.map_beginning_hosts(since + 1) == {}


BAD = (
    ('windows', 'no list', "windows: 'no list' cannot be read"),
    ('windows', '["Sat"]', 'has a window that cannot be read: it is no window'),
    ('windows', '{"a": 1}', 'is no list of at most 16 texts in JSON'),
    ('windows', '[' * 5000, 'cannot be read'),
    ('state', 'on', "state: 'on' is no state of a campaign: running, paused, aborting"),
    ('together', 0, 'together: 0 is no number from 1 on'),
    ('migrations', -1, 'migrations: -1 is no number from 0 on'),
    ('created_at', 1e30, 'created_at: 1e+30 is no time'),
    ('seconds', -1.0, 'seconds: -1.0 is no time'),
    ('refusals', -1, 'refusals: -1 is no number from 0 on'))
BAD_HOST = (('state', 'gone',
             "campaign_host.state of host 'h2': 'gone' is no state of a host: to-come"),
            ('since', 1e30, "campaign_host.since of host 'h2': 1e+30 is no time"),
            ('since', -1.0, "campaign_host.since of host 'h2': -1.0 is no time"),
            ('disabled_at', -1.0, "campaign_host.disabled_at of host 'h2': -1.0 is no time"),
            ('announced_at', 1e30, "campaign_host.announced_at of host 'h2': 1e+30 is no time"),
            ('asked_at', 1e30, "campaign_host.asked_at of host 'h2': 1e+30 is no time"))
#: Only SQLite keeps them in such columns.
BAD_TEXT = (('since', 'soon', "campaign_host.since of host 'h2': 'soon' cannot be read"),
            ('position', 'last', "campaign_host.position of host 'h2': 'last' cannot be read"))


def spoil(store, table, campaign, column, value, *conditions):
    with store.engine.begin() as connection:
        connection.execute(sa.update(table).where(
            table.c.campaign_id == campaign.campaign_id, *conditions).values({column: value}))


@pytest.mark.parametrize(('column', 'value', 'said'), BAD)
def test_a_row_that_was_written_by_hand_hides_no_other_campaign(store, column, value, said):
    bad, good = start(store), start(store, scope='green', hosts=('g1',))
    spoil(store, tables.campaign, bad, column, value)
    check_unreadable(store, bad, good, said)


@pytest.mark.parametrize(('column', 'value', 'said'), BAD_HOST)
def test_a_row_of_a_host_that_was_written_by_hand_hides_no_other_campaign(store, column, value,
                                                                          said):
    bad, good = start(store), start(store, scope='green', hosts=('g1',))
    spoil(store, tables.campaign_host, bad, column, value, tables.campaign_host.c.host == 'h2')
    check_unreadable(store, bad, good, said)


@pytest.mark.parametrize(('column', 'value', 'said'), BAD_TEXT)
def test_a_text_in_place_of_a_number_hides_no_other_campaign(store, column, value, said):
    if store.engine.dialect.name != 'sqlite':
        pytest.skip('other databases refuse it')
    bad, good = start(store), start(store, scope='green', hosts=('g1',))
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE campaign_host SET {column} = ? WHERE host = 'h2'", (value,))
    check_unreadable(store, bad, good, said)


def check_unreadable(store, bad, good, said):
    found, other = store.campaigns.list_live_campaigns()
    assert other == good and read(store, 'green') == good
    assert (found.campaign_id, found.scope) == (bad.campaign_id, 'blue')
    assert said in f'{found.field}: {found.problem}' and len(found.problem) < 300
    for read_it in (read, lambda store: store.campaigns.find_campaign(bad.campaign_id)):
        with pytest.raises(exception.UnreadableRowError) as caught:
            read_it(store)
        assert said in str(caught.value) and bad.campaign_id in str(caught.value)
        assert f'Correct {found.field} of campaign {bad.campaign_id}' in str(caught.value)
    # Lists say the same of it, though they read no host that is not shown.
    page = store.campaigns.list_overview_page(pages.PageRequest(9), ())
    shown, readable = store.campaigns.list_live_overviews()
    assert shown == found and isinstance(readable, model.CampaignOverview)
    assert found in page and len(page) == 2
    # A state that no filter knows passes each of them.
    for state in STATES:
        kept = store.campaigns.list_overview_page(pages.PageRequest(9), [state])
        assert (found in kept) == (state is STATES.RUNNING or found.field == 'state'), state
    with pytest.raises(exception.ConflictError):
        start(store, hosts=('h9',))
    with pytest.raises(exception.ConflictError):
        start(store, scope='red', hosts=('h2',))


def test_an_overview_counts_hosts_without_reading_them(store):
    campaign, lease = start(store, hosts=tuple('dcba')), lease_of(store)
    begin(store, lease, campaign, 'd')
    set_host(store, lease, campaign, 'c', HOSTS.DONE)
    queries = []

    def note_query(connection, cursor, text, *more):
        queries.append(text)

    event.listen(store.engine, 'after_cursor_execute', note_query)
    (found,) = store.campaigns.list_overview_page(pages.PageRequest(9), ())
    event.remove(store.engine, 'after_cursor_execute', note_query)
    assert found == dataclasses.replace(
        model.summarise_campaign(read(store)), begun=(),
        campaign=dataclasses.replace(read(store), hosts=()))
    assert found.counts == {HOSTS.TO_COME: 2, HOSTS.EMPTYING: 1, HOSTS.DONE: 1}
    assert found.next_host == 'b' and found.total == 4
    # One query reads hosts: those that cannot be read. MariaDB quotes the name of a column.
    (bad,) = [text for text in queries if 'campaign_host.detail' in text]
    assert 'NOT (campaign_host.position BETWEEN' in bad.replace('`', '')
    (live,) = store.campaigns.list_live_overviews()
    assert [host.host for host in live.begun] == ['d']
    assert store.campaigns.list_live_overviews('green') == []


def test_neither_a_step_nor_work_begins_unless_the_campaign_runs(store):
    campaign, lease = start(store), lease_of(store)
    set_host(store, lease, campaign, 'h1', HOSTS.HELD)
    for state in (STATES.PAUSED, STATES.ABORTING):
        assert order(store, campaign, state, *LIVE)
        assert not store.campaigns.begin_step(
            lease, campaign.campaign_id, ['h2'], opened=False, now=NOW)
        assert not store.campaigns.begin_work(lease, campaign.campaign_id, 'h1', 'e', NOW)
        assert read_states(store)['h1'] is HOSTS.HELD


def test_work_begins_once_at_a_host_that_is_held(store):
    campaign, lease = start(store), lease_of(store)
    assert not store.campaigns.begin_work(lease, campaign.campaign_id, 'h1', 'e', NOW)
    set_host(store, lease, campaign, 'h1', HOSTS.HELD)
    found = at_once(3, lambda n: store.campaigns.begin_work(
        lease, campaign.campaign_id, 'h1', f'e{n}', NOW + 3))
    assert sorted(found) == [False, False, True]
    host = read(store).hosts[0]
    assert (host.state, host.worker, host.since) == (
        HOSTS.WORKING, f'e{found.index(True)}', NOW + 3)


def test_a_change_of_a_host_whose_state_has_changed_is_not_written(store):
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1')
    assert not store.campaigns.change_host(
        lease, campaign.campaign_id, campaign.hosts[0], detail='as it was to come')
    assert read(store).hosts[0].detail == ''


def test_an_engine_pauses_a_campaign_that_runs_only(store):
    campaign, lease = start(store), lease_of(store)
    assert store.campaigns.pause_campaign(lease, campaign.campaign_id, 'e', 'h1 is gone')
    assert not store.campaigns.pause_campaign(lease, campaign.campaign_id, 'e', 'h2 is gone')
    found = read(store)
    assert (found.state, found.held_by, found.held_because) == (STATES.PAUSED, 'e', 'h1 is gone')


def test_hosts_to_come_are_closed_while_others_have_begun_unless_a_step_is_opened(store):
    def read_closed(scope='blue'):
        return store.history.read_history(scope, NOW, 3600.0).campaign_hosts

    campaign, lease = start(store), lease_of(store)
    assert read_closed() == set(), 'the first window may be days ahead'
    begin(store, lease, campaign, 'h1')
    assert read_closed() == {'h1', 'h2', 'h3'}, 'h1 is not known to be disabled'
    assert store.campaigns.change_host(lease, campaign.campaign_id, read(store).hosts[0],
                                       disabled_at=NOW)
    assert read_closed() == {'h2', 'h3'} and read_closed('green') == set()
    set_host(store, lease, campaign, 'h1', HOSTS.DONE)
    assert read_closed() == set()
    set_host(store, lease, campaign, 'h1', HOSTS.RETURNING)
    assert order(store, campaign, STATES.PAUSED, STATES.RUNNING) and read_closed() == {'h2', 'h3'}
    assert order(store, campaign, STATES.RUNNING, STATES.PAUSED)
    begin(store, lease, campaign, 'h2', opened=True)
    assert read_closed() == {'h2'}
    begin(store, lease, campaign, 'h3')
    assert order(store, campaign, STATES.ABORTING, STATES.RUNNING) and read_closed() == set()


def test_hosts_that_a_late_request_has_disabled_are_found_by_the_reason_of_the_campaign(store):
    campaign, lease = start(store, hosts=('h1', 'h2', 'h3', 'h4')), lease_of(store)
    set_host(store, lease, campaign, 'h1', HOSTS.DONE)
    set_host(store, lease, campaign, 'h2', HOSTS.SKIPPED)
    set_host(store, lease, campaign, 'h4', HOSTS.EMPTYING)

    def find(scope='green', **reasons):
        found = store.campaigns.list_left_hosts(reasons, scope)
        assert {(left.campaign_id, left.reason) for left in found} <= {
            (campaign.campaign_id, campaign.reason)}
        return [(left.host, left.state) for left in found]

    all_hosts = dict.fromkeys(['h1', 'h2', 'h3', 'h4'], campaign.reason)
    over = [('h1', HOSTS.DONE), ('h2', HOSTS.SKIPPED)]
    assert find(**all_hosts) == over
    assert find('blue', **all_hosts) == [*over, ('h3', HOSTS.TO_COME)]
    assert find(h1=campaign.reason.upper(), h2='firmware') == [] == find()
    for host in ('h3', 'h4'):
        set_host(store, lease, campaign, host, HOSTS.DONE)
    assert store.campaigns.end_campaign(lease, read(store), NOW)
    assert [host for host, _state in find(**all_hosts)] == ['h1', 'h2', 'h3', 'h4']


def ask(store, lease, campaign, host, *states, disables=True):
    return store.campaigns.ask_host(lease, campaign.campaign_id, host, states, 120.0,
                                    disables=disables)


def read_asked(store, scope='blue'):
    return {host.host: host.asked_at for host in read(store, scope).hosts if host.asked_at}


def test_an_engine_asks_nova_only_for_hosts_in_the_state_that_it_has_read(store):
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1', 'h2')
    assert not ask(store, lease, campaign, 'h1', HOSTS.TO_COME, disables=False)
    assert read_asked(store) == {}
    before = store.now()
    assert ask(store, lease, campaign, 'h1', HOSTS.EMPTYING)
    assert before <= read_asked(store)['h1'] <= store.now()
    assert order(store, campaign, STATES.PAUSED, STATES.RUNNING)
    assert not ask(store, lease, campaign, 'h2', HOSTS.EMPTYING), 'a campaign that pauses'
    assert store.campaigns.order_host(campaign.campaign_id, 'h2', campaign_orders.SKIP, by='ann')
    assert not ask(store, lease, campaign, 'h2', HOSTS.EMPTYING)
    assert ask(store, lease, campaign, 'h2', HOSTS.WITHDRAWN, disables=False)
    assert set(read_asked(store)) == {'h1', 'h2'}


def test_an_engine_without_the_lease_asks_nova_for_no_host(store):
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1')
    with pytest.raises(exception.LeaseLost):
        ask(store, dataclasses.replace(lease, epoch=lease.epoch + 1), campaign, 'h1',
            HOSTS.EMPTYING)
    assert read_asked(store) == {}


@pytest.mark.parametrize('lacks', ['asked_at', 'announced_at', None])
def test_requests_of_two_campaigns_for_one_host_do_not_cross(store, lacks):
    """An engine of the release before writes no asked_at; the next one may write that alone."""
    first, lease = start(store), lease_of(store)
    for host in ('h1', 'h2', 'h3'):
        set_host(store, lease, first, host, HOSTS.DONE)
    second, other = start(store, scope='green', hosts=('h1', 'h2')), lease_of(store, 'green')
    assert ask(store, lease, first, 'h1', HOSTS.DONE, disables=False)
    begin(store, other, second, 'h1', 'h2')
    if lacks:
        spoil(store, tables.campaign_host, first, lacks, None)
    assert not ask(store, other, second, 'h1', HOSTS.EMPTYING), 'it may be enabled late'
    assert not ask(store, lease, first, 'h2', HOSTS.DONE, disables=False), 'it is emptied'
    assert ask(store, other, second, 'h2', HOSTS.EMPTYING)
    with store.engine.begin() as connection:
        connection.execute(tables.campaign_host.update().where(
            tables.campaign_host.c.campaign_id == first.campaign_id,
            tables.campaign_host.c.host == 'h1').values(
                announced_at=store.now() - 121.0, asked_at=store.now() - 121.0))
    assert ask(store, other, second, 'h1', HOSTS.EMPTYING)


def test_the_news_of_a_held_host_are_no_request(store):
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1')
    assert ask(store, lease, campaign, 'h1', HOSTS.EMPTYING)
    emptying = read(store).hosts[0]
    assert emptying.announced_at is None and emptying.asked_at is not None
    set_host(store, lease, campaign, 'h1', HOSTS.HELD)
    assert store.campaigns.change_host(lease, campaign.campaign_id, read(store).hosts[0],
                                       announced_at=NOW + 500.0)
    held = read(store).hosts[0]
    assert (held.announced_at, held.asked_at) == (NOW + 500.0, emptying.asked_at)


@pytest.mark.parametrize(('state', 'columns', 'times'), [
    (HOSTS.EMPTYING, {'announced_at': 9.0}, (None, 9.0)),
    (HOSTS.EMPTYING, {'announced_at': 9.0, 'asked_at': 8.0}, (None, 9.0)),
    (HOSTS.EMPTYING, {'announced_at': 8.0, 'asked_at': 9.0}, (None, 9.0)),
    (HOSTS.EMPTYING, {}, (None, None)), (HOSTS.HELD, {'announced_at': 9.0}, (9.0, None)),
    (HOSTS.RETURNING, {'asked_at': 9.0}, (None, 9.0))])
def test_a_request_of_an_engine_of_the_release_before_is_read(store, state, columns, times):
    """It writes announced_at alone, also after an engine of ours has written both."""
    campaign, lease = start(store), lease_of(store)
    set_host(store, lease, campaign, 'h1', state)
    for column, value in columns.items():
        spoil(store, tables.campaign_host, campaign, column, value,
              tables.campaign_host.c.host == 'h1')
    host = read(store).hosts[0]
    assert (host.announced_at, host.asked_at) == times


def test_refused_steps_are_counted_in_the_database(store):
    campaign, lease = start(store), lease_of(store)
    assert read(store).refusals == 0, 'NULL, as the release before writes it'
    store.campaigns.record_refusals(lease, campaign.campaign_id, 2)
    assert read(store).refusals == 2
    with pytest.raises(exception.LeaseLost):
        store.campaigns.record_refusals(dataclasses.replace(lease, epoch=lease.epoch + 1),
                                        campaign.campaign_id, 0)
    assert read(store).refusals == 2


def test_a_campaign_that_resumes_counts_refused_steps_again(store):
    """Also where the engine that paused it crashed before it could write so."""
    campaign, lease = start(store), lease_of(store)
    store.campaigns.record_refusals(lease, campaign.campaign_id, 2)
    assert store.campaigns.pause_campaign(lease, campaign.campaign_id, 'engine', 'refused')
    assert read(store).refusals == 2
    assert store.campaigns.order_state(
        campaign.campaign_id, [model.CampaignState.PAUSED], model.CampaignState.RUNNING,
        command='campaign resume', by='ann', reason='')
    assert read(store).refusals == 0


@pytest.mark.parametrize('state', [HOSTS.TO_COME, HOSTS.EMPTYING])
def test_a_skip_forgets_no_request_of_a_host(store, state):
    """Another campaign must not begin with it meanwhile."""
    campaign, lease = start(store), lease_of(store)
    begin(store, lease, campaign, 'h1')
    assert ask(store, lease, campaign, 'h1', HOSTS.EMPTYING)
    set_host(store, lease, campaign, 'h1', state)
    before = read(store).hosts[0].asked_at
    assert store.campaigns.order_host(campaign.campaign_id, 'h1', campaign_orders.SKIP, by='ann')
    host = read(store).hosts[0]
    assert host.asked_at == before if state is HOSTS.TO_COME else host.since >= before


# Operators.

def test_an_abort_leaves_out_hosts_where_no_work_can_have_begun(store):
    campaign, lease = start(store, hosts=tuple('abcdefgh')), lease_of(store)
    for host, state in zip('bcdefgh', (
            HOSTS.EMPTYING, HOSTS.HELD, HOSTS.WORKING, HOSTS.IN_DOUBT, HOSTS.FAILED,
            HOSTS.RETURNING, HOSTS.DONE), strict=True):
        set_host(store, lease, campaign, host, state)
    before = read_states(store)
    assert order(store, campaign, STATES.ABORTING, *LIVE)
    assert read_states(store) == {**before, 'a': HOSTS.SKIPPED, 'b': HOSTS.WITHDRAWN}
    assert not order(store, campaign, STATES.ABORTING, *LIVE)
    assert list_commands(store).count(
        ('ben', 'campaign aborting', f'campaign {campaign.campaign_id}', 'a storm')) == 1


def test_a_campaign_that_resumes_disables_again_and_gives_hosts_time(store):
    campaign, lease = start(store), lease_of(store)
    for host, state in (('h1', HOSTS.EMPTYING), ('h2', HOSTS.RETURNING)):
        set_host(store, lease, campaign, host, state)
        (known,) = (h for h in read(store).hosts if h.host == host)
        assert store.campaigns.change_host(lease, campaign.campaign_id, known, disabled_at=NOW)
    assert order(store, campaign, STATES.PAUSED, STATES.RUNNING)
    assert read(store).held_because == 'a storm' and read(store).held_by == 'ben'
    assert order(store, campaign, STATES.RUNNING, STATES.PAUSED)
    found = read(store)
    assert (found.state, found.held_by, found.held_because) == (STATES.RUNNING, '', '')
    emptying, returning, to_come = found.hosts
    assert emptying.disabled_at is None and emptying.since > NOW
    assert returning.disabled_at == NOW and returning.since > NOW
    assert to_come.since == NOW


ORDERS = (
    (campaign_orders.DONE, HOSTS.HELD, HOSTS.RETURNING),
    (campaign_orders.DONE, HOSTS.IN_DOUBT, HOSTS.RETURNING),
    (campaign_orders.DONE, HOSTS.WORKING, None), (campaign_orders.DONE, HOSTS.TO_COME, None),
    (campaign_orders.REPEAT, HOSTS.FAILED, HOSTS.HELD),
    (campaign_orders.REPEAT, HOSTS.HELD, None), (campaign_orders.REPEAT, HOSTS.WORKING, None),
    (campaign_orders.SKIP, HOSTS.TO_COME, HOSTS.SKIPPED),
    (campaign_orders.SKIP, HOSTS.EMPTYING, HOSTS.WITHDRAWN),
    (campaign_orders.SKIP, HOSTS.WORKING, None), (campaign_orders.SKIP, HOSTS.DONE, None))


def test_an_order_for_a_host_follows_its_state(store):
    campaign, lease, given = start(store), lease_of(store), []
    for wanted, state, after in ORDERS:
        set_host(store, lease, campaign, 'h2', state)
        before = read_states(store)
        said = store.campaigns.order_host(
            campaign.campaign_id, 'h2', wanted, by='ben', reason=state.value)
        assert said is (after is not None), (wanted, state)
        assert read_states(store) == {**before, 'h2': after or state}
        given += [('ben', wanted.command, 'host h2', state.value)] * said
    assert [row for row in list_commands(store) if row[2] == 'host h2'] == given[::-1]


def test_an_order_of_an_operator_and_the_work_of_an_engine_exclude_each_other(store):
    campaign, lease = start(store), lease_of(store)
    set_host(store, lease, campaign, 'h1', HOSTS.HELD)
    began, skipped = at_once(2, lambda n: (
        store.campaigns.begin_work(lease, campaign.campaign_id, 'h1', 'e', NOW) if n == 0 else
        store.campaigns.order_host(campaign.campaign_id, 'h1', campaign_orders.SKIP, by='ben')))
    assert {began, skipped} == {True, False}
    assert read_states(store)['h1'] is (HOSTS.WORKING if began else HOSTS.WITHDRAWN)


def test_old_campaigns_are_deleted_with_their_hosts_when_they_have_ended(store):
    first, lease = start(store, hosts=('h1',)), lease_of(store)
    set_host(store, lease, first, 'h1', HOSTS.DONE)
    assert store.campaigns.end_campaign(lease, first, NOW)
    second = start(store, created_at=NOW - 9)
    with store.engine.begin() as connection:
        assert not campaign_stats.purge_ended_campaigns(connection, NOW)
    assert len(store.campaigns.list_newest_campaigns(9)) == 2
    with store.engine.begin() as connection:
        assert not campaign_stats.purge_ended_campaigns(connection, NOW + 1)
    assert store.campaigns.list_newest_campaigns(9) == [second] == [read(store)]


@pytest.mark.parametrize('state', [*(state for state in STATES if not state.is_terminal), 'on'])
def test_a_campaign_that_has_not_ended_is_kept_with_any_time_of_its_end(store, state):
    """A person may have written the time of its end by hand."""
    campaign = start(store)
    spoil(store, tables.campaign, campaign, 'state', state)
    spoil(store, tables.campaign, campaign, 'ended_at', NOW - 9)
    with store.engine.begin() as connection:
        campaign_stats.purge_ended_campaigns(connection, NOW)
    (left,) = store.campaigns.list_newest_campaigns(9)
    assert left.campaign_id == campaign.campaign_id
    assert state == 'on' or len(left.hosts) == 3
