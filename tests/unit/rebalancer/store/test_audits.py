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


"""Every command that changes something leaves an audit row, which outlives its plan.

Each function takes a store with an upgraded, empty database, as in :mod:`cases`.
"""

import threading
from unittest import mock

from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import quarantine
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import test_moves_by_operators
from tests.unit.rebalancer.store.cases import NOW


def written(store):
    """The audit without times, oldest first."""
    return [(entry.by, entry.command, entry.target, entry.reason)
            for entry in reversed(store.audit.list_newest_entries(99))]


def test_a_breaker_s_pause_that_an_operator_ends_is_audited(store):
    store.outcomes.open_breaker(cases.lease_of(store), NOW, seconds=None, paused_by='breaker',
                                reason='3 bad plans')
    assert written(store) == [], 'no operator has opened it'
    assert store.pauses.resume_scope('blue', NOW + 1, 'ann@ctl1')
    assert written(store) == [
        ('ann@ctl1', 'resumed', 'scope blue', 'paused by breaker: 3 bad plans')]
    assert not store.pauses.resume_scope('blue', NOW + 2, 'bob@ctl1') and len(written(store)) == 1
    store.pauses.pause_scope(None, NOW + 2, seconds=None, paused_by='bob@ctl1', reason='works')
    store.pauses.resume_scope(None, NOW + 3, 'ann@ctl1')
    assert written(store)[1:] == [
        ('bob@ctl1', 'paused', 'everything', 'works'),
        ('ann@ctl1', 'resumed', 'everything', 'paused by bob@ctl1: works')]


def test_a_quarantine_that_is_lifted_is_audited(store):
    store.quarantine.record_local_disks('h2', NOW, 60, 'local disks')
    store.quarantine.record_other_cells('h3', 'h1', NOW, 60, 'not found')
    lifted_at = NOW + 59
    assert store.quarantine.lift_quarantine('disks', 'h2', lifted_at, 'ann@ctl1')
    assert store.quarantine.lift_quarantine('cells', 'h3 h1', lifted_at, 'ann@ctl1')
    assert not store.quarantine.lift_quarantine('disks', 'h2', lifted_at, 'ann@ctl1')
    assert written(store) == [('ann@ctl1', 'lifted', 'disks h2', 'local disks'),
                              ('ann@ctl1', 'lifted', 'cells h3 h1', 'not found')]


def _run_twice_after_one_read(module, name, action):
    """Run ``action`` in two threads; neither goes on before both have read by this function.

    A writer of SQLite keeps the other from reading: there the first goes on after half a second.
    """
    read, both = getattr(module, name), threading.Barrier(2)

    def read_and_wait(*args):
        found = read(*args)
        try:
            both.wait(0.5)
        except threading.BrokenBarrierError:
            pass
        return found

    with mock.patch.object(module, name, read_and_wait):
        return cases.at_once(2, action)


def test_two_lifts_at_once_of_a_quarantine_write_one_audit_row(store):
    store.quarantine.record_local_disks('h2', NOW, 60, 'local disks')
    results = _run_twice_after_one_read(
        quarantine, 'find_reason', lambda n: store.quarantine.lift_quarantine(
            'disks', 'h2', NOW + 1, f'admin{n}@ctl1'))
    assert sorted(results) == [False, True]
    assert written(store) == [
        (f'admin{results.index(True)}@ctl1', 'lifted', 'disks h2', 'local disks')]


def test_two_ends_at_once_of_a_pause_write_one_audit_row(store):
    store.outcomes.open_breaker(
        cases.lease_of(store), NOW, seconds=None, paused_by='breaker', reason='3 bad plans')
    results = _run_twice_after_one_read(
        pauses, 'list_pauses', lambda n: store.pauses.resume_scope(
            'blue', NOW + 1, f'admin{n}@ctl1'))
    assert sorted(results) == [False, True]
    assert written(store) == [(f'admin{results.index(True)}@ctl1', 'resumed', 'scope blue',
                               'paused by breaker: 3 bad plans')]


def test_a_quarantine_that_has_lapsed_is_not_lifted(store):
    store.quarantine.record_local_disks('h2', NOW, 60, 'local disks')
    store.quarantine.count_refusal('h3', NOW, limit=2, seconds=60, reason='it refused once')
    assert not store.quarantine.lift_quarantine('disks', 'h2', NOW + 60, 'ann@ctl1')
    assert not store.quarantine.lift_quarantine('host', 'h3', NOW + 1,
                                                'ann@ctl1'), 'it was never in quarantine'
    assert written(store) == []
    assert store.quarantine.count_refusal('h3', NOW + 2, limit=2, seconds=60,
                                          reason='again'), 'still counted'


def test_ending_a_task_or_a_plan_is_audited_once(store):
    plan_id, (task,), _ = cases.save(store)
    store.tasks.cancel_task(task.task_id, NOW, cancelled_by='ann@ctl1', reason='no',
                            instance_cooldown=1)
    assert store.tasks.cancel_task(task.task_id, NOW, cancelled_by='ann@ctl1', reason='no',
                                   instance_cooldown=1) is None
    other, _, _ = cases.save(store)
    said = plan_decisions.OperatorDecision('bob@ctl1', 'wrong')
    store.approvals.cancel_plan(other, NOW, said, 1)
    store.approvals.cancel_plan(other, NOW, said, 1)
    assert written(store) == [('ann@ctl1', 'cancelled', f'task {task.task_id}', 'no'),
                              ('bob@ctl1', 'cancelled', f'plan {other}', 'wrong')]


def test_a_plan_that_an_operator_asks_for_is_audited(store):
    plan_id, _ = test_moves_by_operators.ask(store, store.plans.read_live_work())
    assert written(store) == [('me@here', 'reverted', f'plan {plan_id}', 'plan x: why not')]


def test_the_audit_outlives_the_plan_and_ends_by_its_own_age(store):
    plan_id, _, _ = cases.save(store)
    store.approvals.cancel_plan(plan_id, NOW, plan_decisions.OperatorDecision('bob@ctl1', 'wrong'),
                                1)
    assert store.history.purge_records(0.0 + 2**31) == 1
    assert store.plans.find_plan(plan_id) is None and len(written(store)) == 1
    store.history.purge_records(0.0 + 2**31, audited_before=NOW)
    assert len(written(store)) == 1
    store.history.purge_records(0.0 + 2**31, audited_before=NOW + 1)
    assert written(store) == []


def test_an_audit_entry_has_the_time_of_the_database(store):
    before = store.now()
    store.audit.record_command('ann@' + 'x' * 300, 'db purge', '3 plans', 'older than 30d')
    entry, = store.audit.list_newest_entries(1)
    assert before - 5 < entry.at < store.now() + 5 and len(entry.by) == 255
    assert (entry.command, entry.target, entry.reason) == ('db purge', '3 plans', 'older than 30d')


def test_drains_that_started_since_a_time_are_those_with_a_start_that_did_not_end(store):
    began = store.now()
    for command, host in (('drain started', 'a'), ('drain started', 'b'), ('drain failed', 'b'),
                          ('drain started', 'c'), ('drain started', 'c'), ('drain failed', 'c'),
                          ('drain started', 'd'), ('drain stopped', 'd'), ('paused', 'e')):
        store.audit.record_command('bob', command, f'host {host}')
    assert store.audit.list_started_drains(began - 60) == {'a', 'c'}
    assert store.audit.list_started_drains(store.now() + 60) == set()
