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


import dataclasses
import types

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import events
from tests.unit.rebalancer.store import cases

#: Later than the time of the database, which puts no such notice off.
NOW = 4_000_000_000.0


def notice(uuid='u1', **more):
    return model.MoveNotice(**{
        'instance_uuid': uuid, 'project_id': 'p', 'host': 'h1',
        'reason': model.NoticeReason.DRAIN, 'noticed_at': NOW, 'movable_from': NOW + 60,
        'valid_until': NOW + 120, **more})


def test_a_notice_is_read_until_it_lapses(store):
    given = [notice(), notice('u2', valid_until=NOW + 300, reason=model.NoticeReason.BALANCE,
                             may_shut_down=True)]
    store.notices.record_notices(cases.lease_of(store), given)
    assert store.notices.read_notices(NOW + 119) == {'u1': given[0], 'u2': given[1]}
    assert store.notices.read_notices(NOW, ['u2', 'u3']) == {'u2': given[1]}
    assert store.notices.read_notices(NOW + 120) == {'u2': given[1]}


def test_a_new_notice_takes_the_place_of_the_one_before(store):
    lease = cases.lease_of(store)
    store.notices.record_notices(lease, [notice()])
    newer = notice(noticed_at=NOW + 500, valid_until=NOW + 900, host='h2')
    store.notices.record_notices(lease, [newer])
    assert store.notices.read_notices(NOW) == {'u1': newer}


def test_only_the_notice_that_was_extended_lasts_longer(store):
    lease = cases.lease_of(store)
    store.notices.record_notices(lease, [notice(), notice('u2')])
    store.notices.record_notices(lease, [], [
        notice(valid_until=NOW + 900), notice('u2', noticed_at=NOW - 1, valid_until=NOW + 900)])
    read = store.notices.read_notices(NOW)
    assert (read['u1'].valid_until, read['u2'].valid_until) == (NOW + 900, NOW + 120)


def test_an_engine_that_lost_the_scope_gives_no_notice(store):
    lease = cases.lease_of(store)
    with pytest.raises(exception.LeaseLost):
        store.notices.record_notices(dataclasses.replace(lease, epoch=lease.epoch - 1), [notice()])
    assert store.notices.read_notices(NOW) == {}


@pytest.mark.parametrize(('state', 'used'), [
    (model.TaskState.COMPLETED, True), (model.TaskState.FAILED, False)])
def test_a_completed_move_uses_up_the_notice(store, state, used):
    (task,) = cases.save(store, 1)[1]
    store.notices.record_notices(cases.lease_of(store), [notice(task.instance_uuid), notice('u2')])
    cases.end(store, cases.claim(store), state, error_type=None if used else 'PreFlightError')
    assert store.notices.read_notices(NOW).keys() == {'u2'} | (
        set() if used else {task.instance_uuid})
    # An engine that extends it in its cycle has read it before.
    store.notices.record_notices(cases.lease_of(store), [], [
        notice(task.instance_uuid, valid_until=NOW + 999)])
    assert (task.instance_uuid in store.notices.read_notices(NOW)) is not used


def test_a_notice_is_an_event(store):
    store.notices.record_notices(cases.lease_of(store), [
        notice(), notice('u2', noticed_at=NOW + 9)])
    assert store.events.list_changes(NOW + 1, 9).notices == [('blue', notice(
        'u2', noticed_at=NOW + 9))]
    assert [given.instance_uuid for _scope, given in store.events.list_changes(NOW, 1).notices] == [
        'u1']


def test_notices_that_lapsed_long_ago_are_purged(store):
    long_ago = cases.NOW
    lease = cases.lease_of(store)
    store.notices.record_notices(lease, [notice(), notice('u2')])
    store.notices.record_notices(lease, [], [
        notice(valid_until=long_ago), notice('u2', valid_until=long_ago + 10)])
    store.history.purge_records(long_ago + 5)
    assert list(store.notices.read_notices(0)) == ['u2']


def test_records_of_contracts_are_those_of_the_scope(store):
    lease = cases.lease_of(store)
    store.notices.record_notices(lease, [notice(), notice('u2'), notice('u3')])
    stated = (model.Contract(model.ContractSource.FLAVOR, notify=model.NoticePeriod(60)),)
    cluster = model.Cluster({}, {
        'u1': model.Instance('u1', 'h1', contracts=stated), 'u2': model.Instance('u2', 'h1'),
        'u3': model.Instance('u3', 'h9', contracts=stated)}, {}, scope_hosts=frozenset({'h1'}))
    assert store.history.read_contract_records(cluster, NOW).notices.keys() == {'u1'}
    whole = dataclasses.replace(cluster, scope_hosts=frozenset())
    assert store.history.read_contract_records(whole, NOW).notices.keys() == {'u1', 'u3'}


def test_a_notice_counts_from_the_time_of_the_database(store):
    """The cloud was read, and planned, a while before."""
    before = store.now()
    stored = store.notices.record_notices(cases.lease_of(store), [notice(
        noticed_at=before - 90, movable_from=before - 30, valid_until=before + 60)])
    assert list(store.notices.read_notices(before).values()) == list(stored)
    assert before <= stored[0].noticed_at <= store.now()
    assert (stored[0].movable_from - stored[0].noticed_at,
            stored[0].valid_until - stored[0].noticed_at) == pytest.approx((60, 150), abs=0.01)


def test_no_event_of_a_notice_is_lost_when_its_cloud_was_read_long_before(store):
    session = types.SimpleNamespace(store=store)
    marker = events.list_events(session, None, 100).marker
    lease, now = cases.lease_of(store), store.now()

    def give_notice(uuid, at):
        store.notices.record_notices(lease, [notice(
            uuid, noticed_at=at, movable_from=at, valid_until=at + 9e5)])

    give_notice('u1', now)
    page = events.list_events(session, marker, 100)
    give_notice('u2', now - 90)
    later = events.list_events(session, page.marker, 100)
    assert [event.notice.notice.instance_uuid for event in (*page.events, *later.events)] == [
        'u1', 'u2']


def test_a_notice_is_announced_until_listeners_have_it(store):
    lease = cases.lease_of(store)
    given = store.notices.record_notices(lease, [notice(), notice('u2'), notice('u3')])
    other = cases.lease_of(store, 'red')
    store.notices.record_notices(other, [notice('u4')])
    assert store.notices.list_unannounced_notices('blue', NOW) == list(given)
    store.notices.record_announcements(lease, given[:2])
    assert store.notices.list_unannounced_notices('blue', NOW) == [given[2]]
    assert store.notices.list_unannounced_notices('blue', NOW + 120) == []
    # A new notice of the same instance is another one.
    store.notices.record_notices(lease, [notice(noticed_at=NOW + 1)])
    assert [n.instance_uuid for n in store.notices.list_unannounced_notices('blue', NOW)] == [
        'u3', 'u1']


def test_a_notice_for_balance_becomes_one_of_a_drain(store):
    lease = cases.lease_of(store)
    (given,) = store.notices.record_notices(lease, [notice(reason=model.NoticeReason.BALANCE)])
    drained = dataclasses.replace(given, reason=model.NoticeReason.DRAIN, valid_until=NOW + 900)
    assert store.notices.record_notices(lease, [], [drained]) == ()
    assert store.notices.read_notices(NOW) == {'u1': drained}


def test_the_notices_of_many_instances_are_read_in_batches(store):
    store.notices.record_notices(cases.lease_of(store), [notice(), notice('u999')])
    assert store.notices.read_notices(NOW, [f'u{n}' for n in range(1200)]).keys() == {'u1', 'u999'}
