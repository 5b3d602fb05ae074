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

"""Tasks whose migration Nova never finishes: they end, or lose their slots."""

import dataclasses

from oslo_utils import uuidutils
import pytest

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases

MIGRATION = uuidutils.generate_uuid()
#: The promise: within 15 minutes of the last change.
PROMISE = 900.0


@pytest.fixture
def bench():
    return benches.Bench()


def left(ending, **fields):
    return base.MigrationProgress(base.MigrationStage.LEFT, 'Nova left it', MIGRATION,
                                  ending=ending,
                                  patience=300.0, **fields)


@pytest.mark.parametrize(('found', 'state', 'error_type', 'quarantined'), [
    (left(base.MigrationStage.COMPLETED), TaskState.COMPLETED, None, None),
    (left(base.MigrationStage.CANCELLED), TaskState.CANCELLED, 'MigrationCancelled', None),
    (left(base.MigrationStage.FAILED), TaskState.FAILED, exception.MigrationAbandoned.wire_type,
     None),
    (left(base.MigrationStage.FAILED, held='m holds it'), TaskState.FAILED,
     exception.AllocationsLeft.wire_type, 'for a while'),
    (left(base.MigrationStage.FAILED, broken=True), TaskState.FAILED,
     exception.InstanceInError.wire_type, 'for ever')])
def test_task_whose_record_was_left_ends_in_time(bench, found, state, error_type, quarantined):
    bench.driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.RUNNING, 'running', MIGRATION, phase='running'),
        found]
    bench.plan()
    learnt = bench.store.history.read_history('blue', bench.now).measured
    bench.passes(2)
    begun = bench.now
    bench.passes(1)
    assert bench.row().doubt == migration_uncertainty.encode_doubt(base.MigrationStage.LEFT, begun)
    assert 'its record says otherwise' in migration_uncertainty.describe_doubt(bench.row())
    while bench.row().task.state not in (TaskState.COMPLETED, TaskState.FAILED,
                                         TaskState.CANCELLED):
        bench.passes(1)
        assert bench.now - begun < PROMISE
    row = bench.row()
    assert (row.task.state, row.error_type) == (state, error_type)
    assert bench.now - begun > found.patience
    assert [(a.migration_uuid, a.phases) for a in row.attempts] == [(MIGRATION, {})]
    history = bench.store.history.read_history('blue', bench.now)
    assert history.measured == learnt, 'learned costs do not count it'
    held = bench.store.quarantine.list_quarantines(bench.now)
    assert [q.name for q in held] == [row.task.instance_uuid] * bool(quarantined)
    assert [q.until is None for q in held] == [quarantined == 'for ever'] * len(held)
    assert bench.store.tasks.list_in_flight_moves() == ()


def test_record_that_goes_on_after_all_ends_nothing(bench):
    bench.driver.answers['read_progress'] = [left(base.MigrationStage.FAILED),
                                             base.MigrationStage.RUNNING,
                                             left(base.MigrationStage.FAILED)]
    bench.plan()
    bench.passes(2)
    assert bench.row().doubt is not None
    bench.passes(1)
    assert bench.row().doubt is None
    bench.passes(20)
    assert bench.row().task.state is TaskState.SUBMITTED, 'the time counts anew'


def under_way(version):
    return base.MigrationProgress(base.MigrationStage.RUNNING, 'running', MIGRATION,
                                  version=version)


def test_no_slot_is_held_for_ever_by_a_record_that_does_not_change(bench):
    bench.driver.answers['read_progress'] = [under_way('1'), under_way('2')]
    bench.plan(cases.make_task)
    bench.passes(2)
    begun = bench.now
    other = cases.save(bench.store, now=bench.now)[1][0]
    while bench.store.tasks.find_task(other.task_id).worker is None:
        bench.passes(1, seconds=60.0)
        assert bench.now - begun < 3600.0, 'its slot is not free within an hour'
    assert bench.now - begun > rows.SLOT_SECONDS
    row = bench.row()
    assert migration_uncertainty.describe_doubt(row) == migration_uncertainty.UNCHANGED
    assert not row.task.state.is_terminal
    assert bench.driver.known.slotless == {row.task.instance_uuid}
    assert {f.instance_uuid: f.slotless for f in bench.store.tasks.list_in_flight_moves()} == {
        row.task.instance_uuid: True, other.instance_uuid: False}, 'it uses up no budget'
    assert [f.instance_uuid for f in bench.driver.known.flights] == [row.task.instance_uuid], (
        'both hosts are still charged')
    said = plan_decisions.OperatorDecision('me@here', 'lost')
    assert bench.store.tasks.resolve_task(row.task.task_id, TaskState.FAILED, bench.now, said,
                                          9.0) == []
    bench.passes(2)
    assert bench.row().task.state is TaskState.FAILED


def test_record_that_changes_keeps_its_slot(bench):
    bench.driver.answers['read_progress'] = [lambda task: under_way(str(bench.now))]
    bench.plan()
    bench.passes(1)
    other = cases.save(bench.store, now=bench.now)[1][0]
    bench.passes(70, seconds=60.0)
    assert bench.row().task.state is TaskState.UNKNOWN and bench.row().doubt is None
    assert bench.store.tasks.find_task(other.task_id).worker is None


def test_successor_counts_the_time_of_its_predecessor(bench):
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.plan()
    bench.passes(20)
    since = bench.row().doubt_since
    assert since is not None
    bench.now += 120.0
    successor = bench.new_worker('w2')
    bench.passes(20, by=successor)
    assert (bench.row().worker, bench.row().doubt_since) == ('w2', since)
    bench.driver.answers['read_progress'] = [under_way('2')]
    bench.passes(2, by=successor)
    assert bench.row().doubt is None


@pytest.mark.parametrize('service', ['Nova', 'Placement'])
def test_task_that_cannot_be_looked_at_keeps_its_slot(bench, service):
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.plan()
    bench.passes(20)
    since = bench.row().doubt_since
    bench.driver.answers['read_progress'] = [exception.ServiceUnavailable(
        instance_uuid=bench.row().task.instance_uuid, problem='no answer in time',
        service=service)]
    bench.passes(70, seconds=60.0)
    row = bench.row()
    assert bench.now - since > rows.SLOT_SECONDS and row.doubt_since == since
    assert not rows.has_lost_slots(row.doubt, row.doubt_since), 'Nova may have changed the record'
    other = cases.save(bench.store, now=bench.now)[1][0]
    assert cases.claim(bench.store, now=bench.now, per_source=1) is None
    assert not any(f.slotless for f in bench.store.tasks.list_in_flight_moves())
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.passes(10)
    assert rows.has_lost_slots(bench.row().doubt, since), 'the record is still the same'
    assert bench.store.tasks.find_task(other.task_id).worker is not None


def test_successor_counts_no_time_of_a_record_that_changed_since(bench):
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.plan()
    bench.passes(20)
    since = bench.row().doubt_since
    bench.now += 2 * rows.SLOT_SECONDS
    bench.driver.answers['read_progress'] = [under_way('2')]
    successor = bench.new_worker('w2')
    bench.passes(20, by=successor)
    row = bench.row()
    assert row.worker == 'w2' and row.doubt_since > since + rows.SLOT_SECONDS
    assert not rows.has_lost_slots(row.doubt, row.doubt_since)


@pytest.mark.parametrize('jump', [-2 * rows.SLOT_SECONDS, 2 * rows.SLOT_SECONDS])
def test_jump_of_the_databases_clock_changes_no_age_of_a_record(bench, jump):
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.plan()
    clocks = benches.Clocks(bench)
    clocks.passes(2)
    begun = bench.now
    clocks.passes(10)
    clocks.database = jump
    while bench.row().doubt is None or not rows.has_lost_slots(
            bench.row().doubt, bench.row().doubt_since):
        clocks.passes(1, seconds=30.0)
        assert bench.now - begun < 3600.0, 'its slot is not free within an hour'
    assert bench.now - begun >= rows.SLOT_SECONDS, 'its slot is free too early'


@pytest.mark.parametrize('jump', [
    -3 * rows.SLOT_SECONDS, -2 * rows.SLOT_SECONDS, 0.0, 2 * rows.SLOT_SECONDS])
def test_successor_goes_on_with_the_age_that_its_predecessor_has_seen(bench, jump):
    """By the database's clock, two hours pass between them, or by a jump none or many."""
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.plan()
    clocks = benches.Clocks(bench)
    clocks.passes(2)
    begun = bench.now
    clocks.passes(100)
    clocks.worker.close()
    seen = bench.now - begun
    bench.now += 7200.0
    clocks = benches.Clocks(bench)
    clocks.database = jump
    began = bench.now
    while not rows.has_lost_slots(bench.row().doubt, bench.row().doubt_since):
        clocks.passes(1, seconds=30.0)
        assert bench.now - began < rows.SLOT_SECONDS, 'the time of the predecessor counts'
    between = min(max(0.0, 7200.0 + jump), rows.HANDOVER_SECONDS)
    assert 0 <= bench.now - began + seen + between - rows.SLOT_SECONDS <= 90.0


def test_slot_is_free_within_an_hour_although_executors_take_the_task_from_each_other(bench):
    bench.driver.answers['read_progress'] = [under_way('1')]
    bench.plan()
    bench.passes(2)
    begun = bench.now
    for number in range(40):
        bench.passes(9, by=bench.new_worker(f'w{number}'))
        bench.now += benches.SETTINGS.claim_seconds + 10
        row = bench.row()
        if row.doubt is not None and rows.has_lost_slots(row.doubt, row.doubt_since):
            break
    assert rows.SLOT_SECONDS <= bench.now - begun <= 3600.0


def test_time_of_a_look_itself_is_no_age_of_the_record(bench):
    """Nova may have changed the record after it answered the look."""
    def stand_still(_task):
        bench.now += 2 * rows.SLOT_SECONDS
        return under_way('1')
    bench.driver.answers['read_progress'] = [under_way('1')] * 11 + [stand_still, under_way('1')]
    bench.plan()
    bench.passes(12)
    assert not rows.has_lost_slots(bench.row().doubt, bench.row().doubt_since)
    before = bench.now
    bench.passes(1)
    assert bench.now > before + rows.SLOT_SECONDS
    assert not rows.has_lost_slots(bench.row().doubt, bench.row().doubt_since)
    bench.passes(1)
    assert rows.has_lost_slots(bench.row().doubt, bench.row().doubt_since), 'seen again'


def test_next_attempt_does_not_count_the_time_of_the_one_before(bench):
    """Nova has recorded neither: both look the same."""
    bench.driver.answers['read_progress'] = [under_way('not recorded')]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3',)))
    bench.passes(40)
    assert bench.row().doubt is not None
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED, under_way('not recorded')]
    bench.passes(3)
    assert bench.steps('submit') == ['h2', 'h3'] and bench.row().doubt is None
    bench.passes(10)
    row = bench.row()
    assert rows.count_unchanged_seconds(
        row.doubt, row.doubt_since, 'not recorded', row.doubt_since + 60.0) == 60.0


def test_migration_is_bound_to_the_one_that_was_found(bench):
    asked = []

    class Driver(benches.Driver):
        def bind_marker(self, marker, reference):
            asked.append((marker, reference))
            return marker
    bench.driver = Driver()
    bench.worker = bench.new_worker('w1')
    bench.driver.answers['read_progress'] = [under_way('1'), under_way('2')]
    bench.plan()
    bench.passes(4)
    assert asked[0] == ('marker', 'req-1') and asked[-1] == ('marker', MIGRATION)


def test_row_says_since_when_nova_has_changed_nothing(bench):
    bench.plan()
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.passes(2)
    for seconds in (-0.5, 0.5):
        row = dataclasses.replace(bench.row(), doubt_since=1000.4, doubt=rows.note_unchanged(
            1000.4, '1', rows.SLOT_SECONDS + seconds))
        assert migration_uncertainty.describe_doubt(row) == migration_uncertainty.UNCHANGED
        assert rows.has_lost_slots(row.doubt, row.doubt_since) is (seconds > 0)
        assert len(row.doubt) <= tables.task.c.doubt.type.length
    assert not rows.has_lost_slots('slotless@7', 1000.4), 'an older executor wrote the time'


# Our own abort at the deadline.

CANCELED = 'Nova: migration error: operation aborted: migration out job: canceled by client'


def aborting(bench, **settings):
    bench.worker = bench.new_worker('w1', dataclasses.replace(
        benches.SETTINGS, abort_at_deadline=True, **settings))
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(2)
    bench.now += 1e5
    bench.passes(1)
    assert ('abort', 'h2') in bench.driver.calls
    assert bench.row().error == migration_deadlines.ABORTING


@pytest.mark.parametrize('restarts', [False, True])
def test_clock_step_does_not_end_an_abort_before_its_migration_ends(bench, restarts):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    settings = dataclasses.replace(benches.SETTINGS, abort_at_deadline=True)
    clocks = benches.Clocks(bench, settings)
    clocks.passes(63)
    assert (bench.row().error, bench.steps('abort')) == (migration_deadlines.ABORTING, ['h2'])
    if restarts:
        clocks.worker.close()
        clocks = benches.Clocks(bench, settings)
    clocks.database = -3600.0
    clocks.passes(40)
    assert clocks.worker._clock() < bench.row().task.deadline, 'the jump is believed'
    assert (bench.state, bench.row().error) == (TaskState.UNKNOWN, migration_deadlines.ABORTING)
    assert bench.steps('abort') == ['h2'], 'by this clock the migration is not late'
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    clocks.passes(1)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationTimeout')


def broken(place, detail='Nova: migration error'):
    return base.MigrationProgress(base.MigrationStage.FAILED, detail, MIGRATION, broken=True,
                                  place=place)


@pytest.mark.parametrize('waits', [False, True])
@pytest.mark.parametrize(('reset', 'said'), [
    (False, 'openstack server set --state active'), (True, 'its state was reset to active')])
def test_own_abort_that_ends_in_error_is_no_everlasting_quarantine(bench, waits, reset, said):
    aborting(bench, reset_state_after_abort=reset)
    bench.driver.reset_state = lambda task: True
    bench.driver.answers['read_progress'] = [
        *[base.MigrationProgress(base.MigrationStage.CANCELLED, 'aborted', MIGRATION,
                                 patience=30.0)] * waits,
        broken('h1')]
    bench.passes(1)
    assert bench.row().task.state.is_terminal is not waits, 'Nova writes ERROR after cancelled'
    bench.passes(1)
    row = bench.row()
    assert (row.task.state, row.error_type) == (TaskState.FAILED, 'MigrationTimeout')
    assert said in row.error and 'runs on h1' in row.error
    [held] = bench.store.quarantine.list_quarantines(bench.now)
    assert held.until is not None


def test_own_abort_of_a_migration_from_another_host_is_known(bench):
    aborting(bench)
    bench.driver.answers['read_progress'] = [dataclasses.replace(broken('h7'), source='h7')]
    bench.passes(1)
    assert bench.row().error_type == 'MigrationTimeout' and 'runs on h7' in bench.row().error


def test_own_abort_ends_when_nova_writes_no_error(bench):
    aborting(bench)
    bench.driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.CANCELLED, 'aborted', MIGRATION, patience=30.0)]
    begun = bench.now
    while not bench.row().task.state.is_terminal:
        bench.passes(1)
        assert bench.now - begun < PROMISE
    assert bench.now - begun > 30.0
    assert bench.row().error_type == 'MigrationTimeout' and '--state' not in bench.row().error


@pytest.mark.parametrize(('place', 'detail', 'known'), [
    ('h2', CANCELED, True), ('h1', 'Nova: migration error', False)])
def test_error_that_is_not_of_our_abort_is_left_to_people(bench, place, detail, known):
    aborting(bench)
    if not known:
        bench.worker = bench.new_worker('w1', bench.worker._settings)
        bench.driver.answers['abort'] = [False]
    bench.driver.answers['read_progress'] = [broken(place, detail)]
    bench.passes(2)
    assert bench.row().error_type == exception.InstanceInError.wire_type
    assert [q.until for q in bench.store.quarantine.list_quarantines(bench.now)] == [None]


def test_successor_knows_an_abort_by_what_libvirt_says(bench):
    aborting(bench)
    bench.worker = bench.new_worker('w1', bench.worker._settings)
    bench.driver.answers['read_progress'] = [broken('h1', CANCELED)]
    bench.passes(1)
    assert bench.row().error_type == 'MigrationTimeout'


@pytest.mark.parametrize('accepted', [False, True])
def test_abort_that_nova_has_recorded_is_known_without_its_text(bench, accepted):
    aborting(bench)
    if not accepted:
        bench.worker = bench.new_worker('w1', bench.worker._settings)
    bench.driver.answers['read_progress'] = [dataclasses.replace(broken('h1'), aborted=True)]
    bench.passes(1)
    assert bench.row().error_type == 'MigrationTimeout' and 'our own abort' in bench.row().error


@pytest.mark.parametrize('place', ['h1', 'h2'])
@pytest.mark.parametrize('successor', [False, True])
def test_abort_that_we_may_not_read_is_quarantined_by_the_usual_rule(bench, place, successor):
    bench.driver.reset_state = lambda task: pytest.fail('that Nova accepted our abort is not known')
    unknown = dataclasses.replace(broken(place), aborted=None)
    if successor:
        aborting(bench, reset_state_after_abort=True)
        bench.worker = bench.new_worker('w1', bench.worker._settings)
    else:
        bench.plan()
    bench.driver.answers['read_progress'] = [unknown]
    bench.passes(2)
    row, (held,) = bench.row(), bench.store.quarantine.list_quarantines(bench.now)
    assert (row.task.state, held.kind, held.name) == (
        TaskState.FAILED, 'instance', row.task.instance_uuid)
    if place == 'h2':
        assert held.until is None and 'quarantined for ever' in row.error, 'no abort does that'
        return
    assert held.until == row.completed_at + benches.SETTINGS.instance_quarantine_seconds
    assert 'openstack server set --state active' in row.error
    assert row.error_type == ('MigrationTimeout' if successor else 'MigrationFailed')


@pytest.mark.parametrize('place', ['h1', 'h2'])
def test_abort_by_an_operator_quarantines_nothing_where_the_guest_runs_on(bench, place):
    bench.driver.answers['read_progress'] = [dataclasses.replace(broken(place), aborted=True)]
    bench.plan()
    bench.passes(2)
    row = bench.row()
    if place == 'h2':
        assert row.error_type == exception.InstanceInError.wire_type
        return
    assert (row.task.state, row.error_type) == (TaskState.CANCELLED, 'MigrationCancelled')
    assert 'openstack server set --state active' in row.error and 'runs on h1' in row.error
    assert bench.store.quarantine.list_quarantines(bench.now) == []
    assert [event for event, _ in bench.told] == ['migration.failed']


@pytest.mark.parametrize('stage', [base.MigrationStage.FAILED, base.MigrationStage.CANCELLED])
@pytest.mark.parametrize('successor', [False, True])
def test_abort_by_an_operator_is_not_taken_for_one_that_nova_refused_us(bench, stage, successor):
    """Nova refused our abort, and an operator aborted the migration later."""
    bench.driver.answers |= {'read_progress': [base.MigrationStage.RUNNING], 'abort': [False]}
    bench.plan()
    bench.worker = bench.new_worker('w1', dataclasses.replace(
        benches.SETTINGS, abort_at_deadline=True))
    bench.passes(63)
    assert 'abort' in [name for name, _ in bench.driver.calls]
    assert bench.row().error == migration_deadlines.ABORTING
    if successor:
        bench.worker = bench.new_worker('w1')
    bench.driver.answers['read_progress'] = [base.MigrationProgress(
        stage, 'aborted', MIGRATION, broken=stage is base.MigrationStage.FAILED, place='h1',
        aborted=True, aborted_by='operator')]
    bench.passes(1)
    row = bench.row()
    assert (row.task.state, row.error_type) == (TaskState.CANCELLED, 'MigrationCancelled')


def aborted_without_error_yet():
    """A record that Nova has ended, before Nova puts the instance into ERROR."""
    return base.MigrationProgress(base.MigrationStage.FAILED, 'Nova: migration error', MIGRATION,
                                  place='h1',
                                  aborted=True, patience=30.0)


@pytest.mark.parametrize('ours', [False, True])
def test_abort_waits_for_the_error_that_follows_its_record(bench, ours):
    if ours:
        aborting(bench)
    else:
        bench.plan()
    bench.driver.answers['read_progress'] = [aborted_without_error_yet(),
                                             dataclasses.replace(broken('h1'), aborted=True)]
    bench.passes(1 if ours else 2)
    assert not bench.row().task.state.is_terminal
    bench.passes(1)
    row = bench.row()
    assert row.error_type == ('MigrationTimeout' if ours else 'MigrationCancelled')
    assert 'openstack server set --state active' in row.error


@pytest.mark.parametrize('ours', [False, True])
def test_abort_without_an_error_ends_when_nova_had_its_time(bench, ours):
    if ours:
        aborting(bench)
    else:
        bench.plan()
    bench.driver.answers['read_progress'] = [aborted_without_error_yet()]
    begun = bench.now
    while not bench.row().task.state.is_terminal:
        bench.passes(1)
        assert bench.now - begun < PROMISE
    row = bench.row()
    assert bench.now - begun > 30.0 and '--state' not in row.error and 'was aborted' in row.error
    assert row.error_type == ('MigrationTimeout' if ours else 'MigrationCancelled')
