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

"""Rows that are written by hand: a worker with keys asks Nova for nothing."""

import dataclasses
import json
import os
import shutil

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.executors import authorized_executor
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases

NOW = cases.NOW
#: Steps of a driver that change something in the cloud.
CHANGING = ('submit', 'confirm', 'abort', 'reset_state', 'force_completion')


@pytest.fixture
def keys(tmp_path):
    key_repository.create_keys(str(tmp_path / 'keys'))
    return key_repository.KeyRepository(str(tmp_path / 'keys'))


@pytest.fixture
def signer(keys):
    return task_authorization.TaskSigner(keys)


@pytest.fixture
def driver():
    return benches.Driver()


@pytest.fixture
def bench(driver, keys):
    """A worker that verifies; ``driver`` notes the steps that come through."""
    bench = benches.Bench()
    bench.driver = authorized_executor.AuthorizedExecutor(
        driver, task_authorization.TaskVerifier(keys), lambda: bench.now)
    bench.worker = bench.new_worker('w2')
    return bench


def sign(signer, **fields):
    def make_task(plan_id, scope):
        (task,) = signer.grant_tasks([cases.make_task(plan_id, scope, **fields)], (),
                                     'kronos-engine', NOW, begin_within=rows.BEGIN_WITHIN)
        return task
    return make_task


def change_row(bench, task, **columns):
    with bench.store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).where(
            tables.task.c.task_id == task.task_id).values(**columns))


def list_steps(driver):
    return [step for step, _host in driver.calls]


def test_a_signed_task_is_carried_out(bench, driver, signer):
    _plan_id, (task,), _ = cases.save(bench.store, [sign(signer)])
    bench.passes()
    bench.passes()
    assert bench.store.tasks.find_task(task.task_id).task.state is TaskState.COMPLETED
    assert 'submit' in list_steps(driver)


def test_a_row_without_a_signature_fails_before_any_step(bench, driver):
    _plan_id, (task,), _ = cases.save(bench.store, 1)
    bench.passes()
    row = bench.store.tasks.find_task(task.task_id)
    assert (row.task.state, row.error_type) == (TaskState.FAILED, 'PreFlightError')
    assert 'the task is not authorized: it has no signature' in row.error
    assert driver.calls == []
    assert not bench.store.history.read_history('blue', NOW).quarantined


@pytest.mark.parametrize('columns', [
    {'to_host': 'h9', 'destinations': '["h9"]'}, {'from_host': 'h9'},
    {'instance_uuid': cases.new_id()}, {'method': 'cold'}, {'phase': 'requested'},
    {'hooks': '[["webhook", {"url": "https://evil"}]]'}])
def test_a_row_that_was_changed_fails_before_any_step(bench, driver, signer, columns):
    _plan_id, (task,), _ = cases.save(bench.store, [sign(signer)])
    change_row(bench, task, **columns)
    bench.passes()
    row = bench.store.tasks.find_task(task.task_id)
    assert row.task.state is TaskState.FAILED and 'differs from its grant' in row.error
    assert driver.calls == []


def test_a_pending_row_that_was_queued_by_hand_fails(bench, driver, signer):
    def make_task(plan_id, scope):
        (task,) = signer.grant_tasks(
            [cases.make_task(plan_id, scope, state=TaskState.PENDING, deadline=NOW + 3600)], (),
            'kronos-engine', NOW, needed=1, begin_within=1)
        return task

    _plan_id, (task,), _ = cases.save(bench.store, [make_task])
    change_row(bench, task, state='queued')
    bench.passes()
    row = bench.store.tasks.find_task(task.task_id)
    assert row.task.state is TaskState.FAILED and '0 of 1 people' in row.error
    assert driver.calls == []


@pytest.mark.parametrize('stage', [base.MigrationStage.UNCONFIRMED, base.MigrationStage.RUNNING,
                                   base.MigrationStage.ABSENT])
def test_a_row_that_seems_to_be_under_way_changes_nothing(bench, driver, stage):
    """A row in flight that was written by hand: no confirmation, no abort, no second request."""
    driver.answers['read_progress'] = [stage]
    _plan_id, (task,), _ = cases.save(bench.store, 1)
    change_row(bench, task, state='submitted', worker=bench.worker.name, heartbeat_at=NOW,
               marker='marker', submitted_at=NOW, deadline=NOW + 1)
    for _ in range(5):
        bench.passes(seconds=600)
    assert not set(CHANGING) & set(list_steps(driver))


def test_every_step_that_changes_something_is_verified(driver, keys, signer):
    executor = authorized_executor.AuthorizedExecutor(
        driver, task_authorization.TaskVerifier(keys), lambda: NOW)
    task = sign(signer)(cases.new_id(), 'blue')
    assert executor.abort(task, 'marker') is True
    executor.confirm(task, 'marker')
    executor.submit(task)
    assert list_steps(driver) == ['abort', 'confirm', 'submit']
    forged = dataclasses.replace(task, to_host='h9')
    for step in (lambda: executor.abort(forged, 'marker'),
                 lambda: executor.confirm(forged, 'marker'),
                 lambda: executor.force_completion(forged, 'marker', lambda: True),
                 lambda: executor.find_shutdown_obstacle(forged, NOW),
                 lambda: executor.reset_state(forged)):
        with pytest.raises(exception.NovaClientError, match='differs from its grant'):
            step()
    with pytest.raises(exception.TaskNotAuthorized):
        executor.submit(forged)
    assert len(driver.calls) == 3
    # Every method of a driver is one of these or moves nothing; a new one must be sorted here.
    assert {name for name in vars(base.Executor) if not name.startswith('_')} - set(CHANGING) == {
        'hooked', 'create', 'pre_flight', 'log_in', 'read_progress', 'bind_marker',
        'trace_late_request', 'read_phase_seconds', 'read_copy', 'read_forced_seconds',
        'find_shutdown_obstacle', 'post_flight'}


def test_a_task_waits_while_the_keys_cannot_be_read(bench, driver, signer, keys):
    _plan_id, (task,), _ = cases.save(bench.store, [sign(signer)])
    os.rename(keys.directory, f'{keys.directory}.away')
    bench.passes()
    row = bench.store.tasks.find_task(task.task_id)
    assert row.task.state is TaskState.QUEUED and keys.directory in row.error
    assert driver.calls == []
    os.rename(f'{keys.directory}.away', keys.directory)
    bench.passes(3, seconds=60)
    assert bench.store.tasks.find_task(task.task_id).task.state is TaskState.COMPLETED


def test_a_task_is_not_begun_after_its_authorization_has_ended(bench, driver, signer):
    _plan_id, (task,), _ = cases.save(bench.store, [sign(signer)])
    later = NOW + rows.BEGIN_WITHIN + 3600 + 301
    change_row(bench, task, expires_at=later + 3600)
    bench.now = later
    bench.passes()
    row = bench.store.tasks.find_task(task.task_id)
    assert row.task.state is TaskState.FAILED and 'has ended 301 s ago' in row.error
    assert driver.calls == []


def test_a_task_waits_for_the_public_key_of_a_controller_that_has_rotated(bench, driver, signer,
                                                                          keys, tmp_path):
    shutil.copytree(keys.directory, tmp_path / 'old')
    key_repository.rotate_keys(keys.directory, 3)
    key_repository.rotate_keys(keys.directory, 3)
    _plan_id, (task,), _ = cases.save(bench.store, [sign(signer)])
    os.rename(keys.directory, tmp_path / 'new')
    os.rename(tmp_path / 'old', keys.directory)
    bench.passes()
    row = bench.store.tasks.find_task(task.task_id)
    assert row.task.state is TaskState.QUEUED and 'Copy the directory again' in row.error
    os.rename(keys.directory, tmp_path / 'old')
    os.rename(tmp_path / 'new', keys.directory)
    bench.passes(3, seconds=60)
    assert bench.store.tasks.find_task(task.task_id).task.state is TaskState.COMPLETED


def test_a_migration_that_nova_began_from_another_source_is_confirmed(bench, driver, signer):
    driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.UNCONFIRMED, source='h7'),
        base.MigrationProgress(base.MigrationStage.COMPLETED, source='h7')]
    cases.save(bench.store, [sign(signer)])
    bench.passes(4, seconds=20)
    assert 'confirm' in list_steps(driver)


def test_a_swap_goes_back_with_the_signature_of_its_plan(bench, driver, signer):
    """The executor itself writes the task that undoes a swap; it has no key."""
    plan_id = cases.new_id()
    a, b = signer.grant_tasks(
        [cases.make_task(plan_id, from_host='h1', to_host='h2', alternates=(), max_retries=0),
         cases.make_task(plan_id, from_host='h2', to_host='h1', alternates=(), max_retries=0)],
        [], 'kronos-engine', NOW, begin_within=rows.BEGIN_WITHIN)
    swap = model.Swap(a.instance_uuid, b.instance_uuid)
    a, b = signer.grant_tasks([a, dataclasses.replace(b, requires=(a.instance_uuid,), wave=1)],
                              [swap], 'kronos-engine', NOW, begin_within=rows.BEGIN_WITHIN)
    plan = model.Plan('blue', tuple(
        model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase, requires=t.requires)
        for t in (a, b)), swaps=(swap,))
    bench.store.plans.save_plan(cases.lease_of(bench.store), plan, [a, b], plan_id=plan_id, now=NOW,
                                dry_run=False, cooldown=1, instance_cooldown=1)
    driver.answers['submit'] = ['req-1', exception.InstanceRefused(
        instance_uuid=b.instance_uuid, problem='no'), 'req-2']
    for _ in range(12):
        bench.passes(seconds=30)
    (stored,) = bench.store.tasks.list_swaps(plan_id)
    assert stored.state == 'undone'
    assert [host for step, host in driver.calls if step == 'submit'] == ['h2', 'h1', 'h1']
    undo = stored.tasks[-1].task
    assert json.loads(undo.authorization) == json.loads(a.authorization)
