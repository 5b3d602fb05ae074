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


"""What every backend keeps of requests from outside; as in :mod:`cases`."""

import dataclasses
import threading

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

KINDS = ('migrate vm', 'stop vm')


def _request(request_id='r1', kind='stop vm', at=NOW):
    return requests.MigfraRequest(request_id, 'Größe 1', kind, '{"a": "ü"}', 'd' * 64, at)


def _receive(store, *found):
    return [store.run_transaction(lambda c, r=r: requests.record_request(c, r)) for r in found]


def _claim(store, worker='one', now=NOW, kinds=KINDS, limit=10):
    return store.run_transaction(lambda c: requests.claim_requests(c, worker, kinds, now, 60.0,
                                                                   limit))


def test_a_request_is_kept_once_and_comes_back_as_it_was(store):
    first = _request()
    assert _receive(store, first) == [None]
    assert _receive(store, _request(kind='migrate vm')) == [first]
    assert store.statistics.read_census().requests['stop vm'][0] == 1
    mine, = _claim(store)
    assert mine == dataclasses.replace(first, worker='one')
    # Names are told apart byte by byte.
    assert _receive(store, _request('R1')) == [None]


def test_one_of_many_keeps_a_request(store):
    found, barrier = [], threading.Barrier(4)

    def receive():
        barrier.wait()
        found.extend(_receive(store, _request()))

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r is None for r in found) == [False, False, False, True]


def test_the_first_process_owns_requests_until_it_falls_silent(store):
    _receive(store, _request('r1', at=NOW - 1), _request('r2'), _request('r3', 'migrate vm'))
    assert [r.request_id for r in _claim(store, kinds=['stop vm'], limit=1)] == ['r1']
    assert [r.request_id for r in _claim(store, 'two')] == ['r2', 'r3']
    # Each time he looks he is heard of.
    assert [r.request_id for r in _claim(store, now=NOW + 50, kinds=['stop vm'])] == ['r1']
    assert [r.request_id for r in _claim(store, 'two', NOW + 55)] == ['r2', 'r3']
    assert [r.request_id for r in _claim(store, 'three', NOW + 111)] == ['r1']
    store.run_transaction(lambda c: requests.renew_heartbeats(c, 'two', NOW + 111))
    assert [r.request_id for r in _claim(store, 'three', NOW + 120)] == ['r1']
    assert [r.request_id for r in _claim(store, 'three', NOW + 200)] == ['r1', 'r2', 'r3']


def test_claims_take_the_oldest_open_requests_of_the_given_kinds(store):
    """Beside those that have ended, of other kinds, of others, and its own of another kind."""
    def stored():
        return {r.request_id: r
                for r in store.run_transaction(lambda c: requests.list_newest_requests(c, 99))}

    _receive(store, _request('ended', at=NOW - 9), _request('lost', at=NOW - 8),
             _request('theirs', at=NOW - 7))
    _claim(store, now=NOW - 100)
    store.run_transaction(
        lambda c: requests.record_reply(c, 'ended', 'one', NOW - 90, 'reply', False))
    _claim(store, 'two', now=NOW - 30)
    _receive(store, _request('a', at=NOW + 3), _request('c', at=NOW + 2), _request('b', at=NOW + 1),
             _request('e', at=NOW + 4), _request('d', at=NOW + 4),
             _request('other', 'migrate vm', at=NOW))
    before = stored()
    assert [r.request_id for r in _claim(store, 'three', kinds=['stop vm'], limit=2)] == [
        'b', 'c']
    after = stored()
    assert {name for name in after if after[name] != before[name]} == {'b', 'c'}
    assert [r.request_id for r in _claim(store, 'three', kinds=['migrate vm'])] == ['other']
    assert [r.request_id for r in _claim(store, 'three', kinds=['stop vm'])] == list('bcade')
    store.run_transaction(lambda c: requests.renew_heartbeats(c, 'one', NOW + 9))
    with store.engine.connect() as connection:
        heard = {row.request_id: row.heartbeat_at
                 for row in connection.execute(sa.select(tables.request))}
    assert (heard['ended'], heard['theirs'], heard['a']) == (NOW - 100, NOW - 30, NOW)


def test_released_requests_can_be_claimed_at_once(store):
    _receive(store, _request('r1'), _request('r2'))
    _claim(store)
    store.run_transaction(lambda c: requests.record_reply(c, 'r2', 'one', NOW, 'reply', False))
    store.run_transaction(lambda c: requests.release_requests(c, 'two'))
    assert _claim(store, 'two') == []
    store.run_transaction(lambda c: requests.release_requests(c, 'one'))
    assert [r.request_id for r in _claim(store, 'two')] == ['r1']
    assert [r.request_id for r in store.run_transaction(
        lambda c: requests.list_undelivered_replies(c, ['one'], NOW,
                                                    10))] == ['r2'], 'its own to tell'


def test_a_process_that_lost_a_request_cannot_write_it(store):
    _receive(store, _request())
    _claim(store)
    _claim(store, 'two', NOW + 61)
    before = cases.dump(store)
    for write in (lambda c: requests.record_progress(c, 'r1', 'one', NOW, {'a': 1}),
                  lambda c: requests.record_reply(c, 'r1', 'one', NOW, 'reply', False)):
        with pytest.raises(exception.StoreError, match='another process has taken over'):
            store.run_transaction(write)
    assert cases.dump(store) == before
    store.run_transaction(lambda c: requests.record_progress(c, 'r1', 'two', NOW, {'a': ['ü']}))
    mine, = _claim(store, 'two', NOW + 62)
    assert mine.progress == {'a': ['ü']}


def test_a_reply_is_undelivered_until_its_delivery_is_stored(store):
    _receive(store, _request('r1'), _request('r2'))
    _claim(store)
    for request_id in ('r1', 'r2'):
        store.run_transaction(lambda c,
                              r=request_id: requests.record_reply(c, r, 'one', NOW, 'reply', True))

    def untold(*workers, before=NOW):
        return [r.request_id for r in store.run_transaction(
            lambda c: requests.list_undelivered_replies(c, workers, before, 10))]

    assert store.statistics.read_census().requests == {}, 'none is open'
    assert untold('one') == ['r1', 'r2'] and untold('two') == []
    assert untold('two', before=NOW + 1) == ['r1', 'r2'], 'nobody else has for a while'
    store.run_transaction(lambda c: requests.record_reply_delivery(c, 'r1', NOW))
    assert untold('one') == ['r2'] and _claim(store) == []
    store.run_transaction(lambda c: requests.record_reply_delivery(c, 'r1', None))
    assert untold('one') == ['r1', 'r2'], 'it is wanted once more'
    known, = _receive(store, _request('r1'))
    assert (known.reply, known.failed, known.ended_at) == ('reply', True, NOW)
    assert [r.request_id
            for r in store.run_transaction(lambda c: requests.list_newest_requests(c, 1))] == ['r1']


def test_undelivered_replies_are_listed_the_oldest_first_up_to_a_limit(store):
    _receive(store, *(_request(name) for name in 'abcd'))
    _claim(store)
    for name, at in (('d', NOW), ('b', NOW + 5), ('a', NOW + 5), ('c', NOW + 1)):
        store.run_transaction(lambda c, n=name,
                              t=at: requests.record_reply(c, n, 'one', t, 'reply', False))

    def untold(limit=10, but=()):
        return ''.join(r.request_id for r in store.run_transaction(
            lambda c: requests.list_undelivered_replies(c, ['one'], NOW, limit, but)))

    assert untold() == 'dcab' and untold(3) == 'dca' and untold(but=['c', 'a']) == 'db'
    _receive(store, _request('e'))
    _claim(store)
    assert untold() == 'dcab', 'one that has not ended is not told'


def test_requests_are_listed_the_newest_first(store):
    _receive(store, *(_request(name, at=NOW + at) for name, at in (
        ('a', 1), ('d', 5), ('c', 5), ('b', 9))))
    assert [r.request_id
            for r in store.run_transaction(lambda c: requests.list_newest_requests(c, 9))] == [
        'b', 'c', 'd', 'a']


def test_an_ended_request_is_not_written_again(store):
    _receive(store, _request())
    _claim(store)
    store.run_transaction(lambda c: requests.record_reply(c, 'r1', 'one', NOW, 'reply', False))
    with pytest.raises(exception.StoreError) as error:
        store.run_transaction(lambda c: requests.record_progress(c, 'r1', 'one', NOW, {'a': 1}))
    assert error.value.kwargs == {
        'problem': 'says that another process has taken over request r1',
        'remedy': 'This one leaves it alone.'}


def test_an_open_request_cannot_be_delivered(store):
    _receive(store, _request())
    store.run_transaction(lambda c: requests.record_reply_delivery(c, 'r1', NOW))
    assert store.run_transaction(lambda c: requests.read_request(c, 'r1')).told_at is None


def test_purge_removes_delivered_requests_alone(store):
    now = store.now()
    _receive(store, *(_request(f'r{n}', at=now - 9e6) for n in range(3)))
    _claim(store, now=now)
    for request_id in ('r1', 'r2'):
        store.run_transaction(lambda c, r=request_id: requests.record_reply(
            c, r, 'one', now - 8e6, 'reply', False))
    store.run_transaction(lambda c: requests.record_reply_delivery(c, 'r2', now - 8e6))
    store.history.purge_records(now - 9e6)
    assert len(store.run_transaction(lambda c: requests.list_newest_requests(c, 9))) == 3
    store.history.purge_records(now - 7e6)
    assert {r.request_id
            for r in store.run_transaction(lambda c: requests.list_newest_requests(c, 9))} == {
        'r0', 'r1'}


def test_a_plan_and_the_note_that_it_is_a_request_s_are_one(store):
    """The last statement fails: neither is there."""
    _receive(store, _request(kind='migrate vm'))
    mine, = _claim(store)
    plan_id, mark = cases.new_id(), store.plans.read_live_work()
    task = cases.make_task(plan_id)
    plan = model.Plan('blue', (model.Move(task.instance_uuid, 'h1', 'h2', task.phase),))

    def save(worker):
        store.plans.save_requested_plan(
            mark, plan, [task], plan_id=plan_id, now=NOW, instance_cooldown=9,
            decision=plan_decisions.OperatorDecision('migfra', 'r1'), verb='asked',
            also=lambda c: requests.record_progress(c, 'r1', worker, NOW, {'named': {}}, plan_id))

    with pytest.raises(exception.StoreError, match='another process has taken over'):
        save('two')
    assert store.plans.list_plans() == [] and store.tasks.list_in_flight_moves() == ()
    save('one')
    mine, = _claim(store)
    assert (mine.plan_id, mine.progress) == (plan_id, {'named': {}})
    assert [row.task.task_id for row in store.tasks.list_plan_tasks(plan_id)] == [task.task_id]
