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


"""Hooks around attempts, on a real store and with a driver that returns scripted answers."""

import dataclasses
import itertools

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.hooks import base as hooks
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases


class Step(hooks.HookStep):

    def __init__(self, hook, when, answers):
        self.hook, self.when, self.answers = hook, when, answers

    def poll(self, now):
        self.hook.polls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self.hook.closed.append(self.when)


class Hook(hooks.Hook):
    """Notes its calls; each poll gives the next of its answers, the last one stays."""

    def __init__(self, bench, name='one', before=(True,), after=(True,)):
        self.bench, self.name = bench, name
        self.answers = {'before': list(before), 'after': list(after)}
        self.calls, self.closed, self.polls = [], [], 0

    def marker(self, call):
        assert call.marker == ''
        return f'marker of {call.key}'

    def _call(self, when, call):
        assert call.marker == f'marker of {call.key}'
        owed = [one.owed_id for one in self.bench.store.hooks.list_task_hooks(call.task.task_id)]
        assert call.key in owed, 'committed first'
        row = self.bench.store.tasks.find_task(call.task.task_id)
        assert (row.task.state is TaskState.CLAIMED) is (when == 'before')
        self.calls.append((when, call))
        self.bench.order.append(f'{when} {self.name}')
        return Step(self, when, self.answers[when])

    def before(self, call):
        return self._call('before', call)

    def after(self, call):
        return self._call('after', call)

    def remedy(self, call):
        return f'Look after {call.task.instance_uuid}.'

    def close(self):
        self.closed.append('hook')


class Bench(benches.Bench):

    def __init__(self):
        self.order, self.hooks = [], {}
        self.settings = hook_runner.HookSettings(enabled=('one',), deadline=30.0, after_tries=3)
        super().__init__()

    def new_worker(self, name, settings=benches.SETTINGS):
        return worker.Worker(
            self.store, self.driver, settings,
            lambda event, result: self.told.append((event, result)), clock=lambda: self.now,
            name=name, tally=self.tally,
            hooks=(hook_catalogue.build_catalogue(self.hooks), self.settings))

    def use(self, *found, **kw):
        """Hooks, all enabled; and options."""
        self.hooks.update({hook.name: hook for hook in found})
        self.settings = dataclasses.replace(
            self.settings, **{'enabled': tuple(hook.name for hook in found), **kw})
        self.worker = self.new_worker('w1')
        for step in ('submit', 'post_flight'):
            answer = self.driver.answers[step][0]
            self.driver.answers[step] = [
                lambda task, step=step, answer=answer: self.order.append(step) or answer]

    def owed(self):
        return [one for task in self.tasks
                for one in self.store.hooks.list_task_hooks(task.task_id)]


@pytest.fixture
def bench():
    return Bench()


def failed(problem='said no'):
    return hooks.StepFailed(problem=problem)


def test_hooks_run_before_the_request_and_in_reverse_after_the_migration(bench):
    bench.use(Hook(bench), Hook(bench, 'two'))
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(1)
    assert bench.order == ['before one', 'before two', 'submit']
    assert len(bench.owed()) == 2
    bench.passes(6)
    assert bench.order == ['before one', 'before two', 'submit', 'post_flight', 'after two',
                           'after one']
    assert bench.owed() == [] and bench.state is TaskState.COMPLETED
    assert bench.hooks['one'].closed == ['before', 'after']


def test_before_and_after_have_one_key_and_after_knows_how_it_ended(bench):
    bench.use(Hook(bench))
    bench.plan()
    bench.passes(4)
    (_before, first), (_after, second) = bench.hooks['one'].calls
    assert first.key == second.key and first.ended is None
    assert second.ended.error_type is None and second.ended.to_host == 'h2'
    assert second.task.instance_uuid == bench.tasks[0].instance_uuid


def test_each_attempt_runs_its_own_hooks_before_the_next_attempt(bench):
    bench.use(Hook(bench))
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(12)
    assert bench.order == ['before one', 'submit', 'after one', 'before one', 'submit',
                           'post_flight', 'after one']
    calls = [call for _when, call in bench.hooks['one'].calls]
    assert [call.task.to_host for call in calls] == ['h2', 'h2', 'h3', 'h3']
    assert calls[0].key == calls[1].key != calls[2].key
    assert calls[1].ended.error_type == 'MigrationFailed'


def test_slow_hooks_are_polled_and_pre_flight_runs_again_after_them(bench):
    bench.use(Hook(bench, before=[False, False, True]))
    bench.plan()
    bench.passes(1)
    assert bench.steps('submit') == [] and bench.state is TaskState.CLAIMED
    assert bench.worker._compute_pause() <= hook_runner.POLL
    bench.passes(1, seconds=5)
    assert len(bench.steps('pre_flight')) == 1
    bench.passes(1)
    assert len(bench.steps('submit')) == 1 and len(bench.steps('pre_flight')) == 2
    bench.passes(3)
    attempt, = bench.row().attempts
    assert attempt.phases['hooks'] == 15


def test_the_claim_is_renewed_while_hooks_are_waited_for(bench):
    bench.use(Hook(bench, before=[False]), deadline=500.0)
    bench.plan()
    bench.passes(20)
    assert bench.state is TaskState.CLAIMED and bench.row().heartbeat_at >= bench.now - 10
    bench.passes(1, seconds=0, by=bench.new_worker('w2'))
    assert bench.row().worker == 'w1'


def test_a_pre_flight_refusal_after_the_hooks_sends_no_request(bench):
    bench.use(Hook(bench))
    bench.driver.answers['pre_flight'] = [
        'marker', benches.error(exception.PreFlightError)]
    bench.plan()
    bench.passes(3)
    assert bench.order == ['before one', 'after one']
    assert bench.state is TaskState.FAILED and bench.owed() == []


@pytest.mark.parametrize('before', [
    [failed()], [False], [RuntimeError('a bug')]])
def test_a_failed_or_late_hook_requeues_the_task_without_quarantine(bench, before):
    bench.use(Hook(bench, 'first'), Hook(bench, before=before), deadline=5.0)
    bench.plan()
    bench.passes(7, seconds=3)
    row = bench.row()
    assert bench.steps('submit') == [] and row.task.state is TaskState.QUEUED
    assert row.error_type == 'HookFailed' and row.task.retry_count == 1
    assert row.task.to_host == 'h2', 'the destination is not dropped'
    assert bench.order == ['before first', 'before one', 'after one', 'after first']
    assert bench.quarantined() == {} and bench.owed() == []
    assert row.attempts[0].phases.keys() == {'queue', 'pre_flight', 'hooks'}
    assert bench.hooks['one'].closed[0] == 'before'


def test_a_hook_that_always_fails_ends_the_task_after_its_retries(bench):
    bench.use(Hook(bench, before=[failed('is not answered')]))
    bench.plan()
    bench.passes(40, seconds=60)
    row = bench.row()
    assert (row.task.state, row.error_type) == (TaskState.FAILED, 'HookFailed')
    assert row.error == f'Instance {row.task.instance_uuid}: hook one is not answered.'
    assert bench.quarantined() == {}
    assert bench.counted('failed_attempts') == {('HookFailed',): 4}


def test_a_hook_that_fails_is_logged_and_passed_over_where_that_is_wanted(bench, caplog):
    bench.use(Hook(bench, before=[failed()]), Hook(bench, 'two'), abort=False)
    bench.plan()
    bench.passes(5)
    assert bench.order == ['before one', 'before two', 'submit', 'post_flight', 'after two',
                           'after one']
    assert bench.state is TaskState.COMPLETED and 'hook one said no. It goes on' in caplog.text


def test_a_hook_that_is_not_installed_fails_as_any_other(bench):
    bench.use(Hook(bench), enabled=('nobody',))
    bench.plan()
    bench.passes(1)
    assert 'No plugin named' in bench.row().error and bench.owed() == []
    assert bench.row().error.startswith(str(exception.HookFailed(
        instance_uuid=bench.tasks[0].instance_uuid, hook='nobody', problem=''))[:-2])


def test_the_afters_of_a_task_come_one_after_the_other(bench):
    """Post-migration hooks run in reverse: each undoes its work before the one that preceded it."""
    bench.use(Hook(bench), Hook(bench, 'two', after=[False, False, True]))
    bench.plan()
    bench.passes(3)
    assert bench.order[-1] == 'after two'
    bench.passes(1)
    assert bench.order[-1] == 'after two', 'the first one waits for it'
    bench.passes(3)
    assert bench.order[-2:] == ['after two', 'after one'] and bench.owed() == []


def test_hooks_of_a_silent_executor_are_left_to_those_who_serve_its_scope(bench):
    bench.use(Hook(bench, before=[False]))
    bench.plan()
    bench.passes(1)
    bench.store.tasks.cancel_task(
        bench.tasks[0].task_id, bench.now, cancelled_by='me', reason='why',
                                  instance_cooldown=900)
    bench.now += 100
    for scope, order in (('green', ['before one']), ('blue', ['before one', 'after one'])):
        bench.passes(2, by=bench.new_worker(
            f'of {scope}', dataclasses.replace(benches.SETTINGS, scopes=frozenset({scope}))))
        assert bench.order == order


def hold_up(bench, seconds):
    """Each commit that a hook is owed takes so long; returns how it was."""
    real = bench.store.hooks.record_hook

    def slow(*args):
        found = real(*args)
        bench.now += seconds
        return found
    bench.store.hooks.record_hook = slow
    return real


def test_a_delay_of_less_than_half_a_claim_still_runs_hooks(bench):
    hook = Hook(bench)
    bench.use(hook)
    hold_up(bench, 29)
    bench.plan()
    bench.passes(1)
    assert [when for when, _call in hook.calls] == ['before']


def test_error_asks_the_operator_to_act_when_an_after_hook_cannot_start(bench, caplog):
    hook = Hook(bench)
    call = hook._call

    def broken(when, what):
        if when == 'after':
            raise failed('cannot')
        return call(when, what)

    hook._call = broken
    bench.use(hook, after_tries=1)
    bench.plan()
    bench.passes(5)
    text, = said(caplog, 'ERROR')
    assert text.endswith(f'It is given up. Look after {bench.tasks[0].instance_uuid}.')


def test_a_failing_after_hook_is_retried_then_given_up_with_an_error(bench, caplog):
    bench.use(Hook(bench, after=[failed('is away')]))
    bench.plan()
    bench.passes(30)
    after = [call.key for when, call in bench.hooks['one'].calls if when == 'after']
    assert len(after) == 3 and len(set(after)) == 1
    assert bench.owed() == [] and bench.state is TaskState.COMPLETED
    uuid = bench.tasks[0].instance_uuid
    given_up = [r for r in caplog.records if r.levelname == 'ERROR']
    assert len(given_up) == 1 and f'Look after {uuid}.' in given_up[0].getMessage()
    assert f'(instance {uuid}): hook one' in given_up[0].getMessage()


def test_a_hook_that_never_gives_up_retries_until_success_with_an_error(bench, caplog):
    hook = Hook(bench, after=[failed('is away')] * 9 + [True])
    hook.gives_up = False
    bench.use(hook)
    bench.plan()
    bench.passes(80, seconds=60)
    assert bench.owed() == [] and bench.state is TaskState.COMPLETED
    assert [when for when, _call in hook.calls].count('after') == 10
    told = [r for r in caplog.records if r.levelname == 'ERROR']
    assert len(told) == 1 and f'Look after {bench.tasks[0].instance_uuid}.' in told[0].getMessage()


def test_after_is_called_again_after_ever_longer_waits(bench):
    times, hook = [], Hook(bench, after=[failed('is away')] * 9 + [True])
    hook.gives_up = False
    call = hook._call
    hook._call = lambda when, what: (when == 'after' and times.append(bench.now)) or call(
        when, what)
    bench.use(hook)
    bench.plan()
    bench.passes(1800, seconds=1.0)
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert waits == [min(hook_runner.MAX_BACKOFF, hook_runner.BACKOFF * 2 ** n) for n in range(9)]
    assert waits[-1] == hook_runner.MAX_BACKOFF > waits[3]


def said(caplog, level):
    return [r.getMessage() for r in caplog.records if r.levelname == level]


def test_warning_about_a_failed_after_hook_names_task_hook_and_cause(bench, caplog):
    bench.use(Hook(bench, after=[failed('is away')]))
    bench.plan()
    bench.passes(1)
    task = bench.row().task
    of_task = f'{model.format_task(task)}: hook one'
    while not (kept := bench.store.hooks.list_task_hooks(task.task_id)) or kept[0].tries < 2:
        bench.passes(1, seconds=1.0)
    assert kept[0].error == 'is away' and kept[0].not_before > bench.now
    bench.passes(30)
    assert said(caplog, 'WARNING') == [
        f'{of_task} after the migration is away; it is called again in {wait:.0f} s ({tries} of 3)'
        for wait, tries in ((hook_runner.BACKOFF, 1), (2 * hook_runner.BACKOFF, 2))]
    assert said(caplog, 'ERROR') == [
        f'{of_task} was called 3 times after the migration, and failed: it is away. It is given '
        f'up. Look after {task.instance_uuid}.']


@pytest.mark.mutant
def test_error_about_a_hook_that_never_gives_up_names_it_and_the_cause(bench, caplog):
    hook = Hook(bench, after=[failed('is away')] * 3 + [True])
    hook.gives_up = False
    bench.use(hook)
    bench.plan()
    bench.passes(60)
    task, = bench.tasks
    assert said(caplog, 'ERROR') == [
        f'{model.format_task(task)}: hook one is not given up, but has failed 3 times: it is away. '
        f'Look after {task.instance_uuid}.']
    assert len(said(caplog, 'WARNING')) == 3


def test_warning_about_a_hook_defect_names_its_class_without_secrets(bench, caplog):
    bench.use(Hook(bench, before=[KeyError('Bearer c4n4ry')]), abort=False)
    bench.plan()
    bench.passes(5)
    task = bench.row().task
    line, = [text for text in said(caplog, 'WARNING') if 'It goes on' in text]
    assert line.startswith(f'{model.format_task(task)}: Instance {task.instance_uuid}: hook '
                           'one failed unexpectedly (KeyError: ')
    assert line.endswith(' It goes on ([hooks] on_failure).') and 'c4n4ry' not in line


def test_an_uninstalled_hook_is_given_up_with_an_error(bench, caplog):
    bench.use(Hook(bench))
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(2)
    del bench.hooks['one']
    bench.now += 100  # its executor died
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(30, by=bench.new_worker('w2'))
    assert bench.owed() == []
    line, = said(caplog, 'ERROR')
    assert 'No plugin named' in line and line.endswith(
        'It is given up. Undo its work by hand.')


def test_cancelling_an_expired_task_ends_its_hooks_in_the_same_pass(bench):
    bench.use(Hook(bench, before=[False]))
    bench.plan(lambda p, s: cases.make_task(p, s, deadline=bench.now + 50))
    bench.passes(1)
    bench.now += 100  # its executor died
    bench.passes(1, by=bench.new_worker('w2'))
    assert bench.state is TaskState.CANCELLED
    assert bench.order == ['before one', 'after one'] and bench.owed() == []


def test_pending_hooks_end_while_another_task_is_watched(bench):
    bench.use(Hook(bench, after=[failed('is away'), True]))
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED,
                                             base.MigrationStage.RUNNING]
    bench.plan(cases.make_task, benches.elsewhere)
    bench.passes(10)
    assert len(bench.store.tasks.list_tasks_in_states([TaskState.SUBMITTED])) == 1
    assert bench.order.count('after one') == 2
    assert [owed.task.task_id for owed in bench.owed()] == [
        row.task.task_id for row in bench.store.tasks.list_tasks_in_states([TaskState.SUBMITTED])]


def test_an_after_step_is_closed_when_another_executor_ended_the_hook(bench):
    hook = Hook(bench, after=[False, True])
    bench.use(hook)
    bench.plan()
    bench.passes(2)
    while hook.closed.count('after') == 0 and bench.order[-1:] != ['after one']:
        bench.passes(1)
    assert bench.worker._hooks.next_poll_time is not None, 'it is under way'
    bench.now += 100  # the executor stands still
    bench.passes(2, by=bench.new_worker('w2'))
    assert bench.owed() == [] and bench.order.count('after one') == 2
    closed, polls = hook.closed.count('after'), hook.polls
    bench.passes(1)
    assert hook.polls == polls, 'it asks no more'
    assert hook.closed.count('after') == closed + 1 and bench.worker._hooks.next_poll_time is None


def test_error_about_a_late_before_hook_names_its_limit(bench):
    bench.use(Hook(bench, before=[False]), deadline=5.0)
    bench.plan()
    bench.passes(4, seconds=3)
    assert bench.row().error == (f'Instance {bench.tasks[0].instance_uuid}: hook one took longer '
                                 'than 5 s.')


def test_steps_are_polled_with_the_time_up_to_their_deadline(bench):
    hook, polled = Hook(bench, before=[False, False, True], after=[False, False, True]), []
    poll = Step.poll

    class Timed(Step):
        def poll(self, now):
            polled.append((self.when, now - began, bench.now - now))
            return poll(self, now)

    hook._call = lambda when, call: Timed(hook, when, hook.answers[when])
    bench.use(hook, deadline=20.5)
    bench.plan()
    began = bench.now
    bench.passes(12)
    assert bench.owed() == [] and {late for *_, late in polled} == {0.0}
    assert [round(at) for when, at, _ in polled if when == 'before'] == [0, 10, 20]


def test_hooks_are_numbered_as_they_are_called(bench):
    bench.use(Hook(bench, 'a'), Hook(bench, 'b'), Hook(bench, 'c', before=[False]))
    bench.plan()
    bench.passes(1)
    assert [(owed.hook.name, owed.number) for owed in bench.owed()] == [
        ('a', 0), ('b', 1), ('c', 2)]
    assert bench.row().heartbeat_at == bench.now - 10 == bench.owed()[0].begun_at


def test_a_task_that_was_lost_calls_no_hook_and_asks_nova_nothing(bench):
    hook = Hook(bench)
    bench.use(hook)
    bench.store.hooks.record_hook = lambda *args: False
    bench.plan()
    bench.passes(1)
    assert hook.calls == [] and bench.steps('submit') == []
    assert bench.state is TaskState.CLAIMED, 'it is not ours to end'


def test_an_after_that_cannot_even_be_called_is_called_again(bench, caplog):
    hook = Hook(bench)
    call, fail = hook._call, [KeyError('boo')]

    def once(when, what):
        if when == 'after' and fail:
            raise fail.pop()
        return call(when, what)

    hook._call = once
    bench.use(hook)
    bench.plan()
    bench.passes(10)
    assert bench.order == ['before one', 'submit', 'post_flight', 'after one']
    assert bench.owed() == []
    text, = said(caplog, 'WARNING')
    assert "hook one after the migration failed unexpectedly (KeyError: 'boo')" in text


def test_a_step_that_cannot_be_closed_is_logged_and_the_task_completes(bench, caplog):
    hook = Hook(bench)
    call = hook._call

    def stuck(when, what):
        step = call(when, what)
        step.close = lambda: 1 / 0
        return step

    hook._call = stuck
    bench.use(hook)
    bench.plan()
    bench.passes(5)
    assert bench.state is TaskState.COMPLETED and bench.owed() == []
    assert said(caplog, 'WARNING') == [
        'A step of a hook could not be closed: failed unexpectedly (ZeroDivisionError: division '
        'by zero)'] * 2


def test_the_time_of_hooks_is_a_phase_between_two_looks_before_the_flight(bench):
    bench.use(Hook(bench, before=[False, False, True]))
    bench.plan()
    bench.passes(3)
    marks = bench.row().marks
    assert [name for name, _ in marks][:4] == ['queue', 'pre_flight', 'hooks', 'pre_flight']
    assert marks[3][1] - marks[2][1] == 20


def test_two_afters_are_gone_on_with_in_one_pass(bench):
    bench.use(Hook(bench), Hook(bench, 'two'))
    bench.plan()
    bench.passes(2)
    assert bench.state is TaskState.COMPLETED
    bench.passes(1)
    assert bench.order[-2:] == ['after two', 'after one'] and bench.owed() == []


def test_a_failed_hook_of_the_task_itself_always_fails_it(bench):
    bench.use(Hook(bench), Hook(bench, 'pause', before=[failed()]), enabled=('one',), abort=False)
    bench.plan(lambda p, s: cases.make_task(p, s, hooks=(model.TaskHook('pause'),)))
    bench.passes(2)
    assert 'submit' not in bench.order and bench.row().error_type == 'HookFailed'


def test_a_hook_that_is_not_allowed_ends_its_task_at_once(bench):
    bench.use(Hook(bench), enabled=())
    make = bench.hooks.__getitem__
    bench.plan(lambda p, s: cases.make_task(p, s, hooks=(model.TaskHook('one'),)))
    bench.worker._hooks._catalogue = hook_catalogue.HookCatalogue(make, frozenset())
    bench.passes(1)
    row = bench.row()
    assert (str(row.task.state), row.error_type, row.task.retry_count) == (
        'failed', 'HookFailed', 0)
    assert 'is in neither [hooks] enabled nor on_request' in row.error


def test_a_hook_that_is_no_longer_allowed_can_still_end(bench):
    bench.use(Hook(bench))
    catalogue = hook_catalogue.HookCatalogue(bench.hooks.__getitem__, frozenset({'two'}))
    with pytest.raises(hooks.StepFailed) as error:
        catalogue['one']
    assert str(error.value) == str(failed('is in neither [hooks] enabled nor on_request'))
    assert catalogue.find_installed_hook('one') is bench.hooks['one']


def test_one_that_is_put_off_holds_up_no_other(bench):
    bench.use(Hook(bench), Hook(bench, 'two', after=[failed(), True]))
    bench.plan()
    bench.passes(12)
    assert bench.order[-3:] == ['after two', 'after one', 'after two'] and bench.owed() == []


def test_an_after_that_is_late_is_let_go_and_called_again(bench, caplog):
    bench.use(Hook(bench, after=[False, False, False, False, False, True]))
    bench.plan()
    bench.passes(30)
    assert [when for when, _call in bench.hooks['one'].calls] == ['before', 'after', 'after']
    assert bench.hooks['one'].closed.count('after') == 2 and bench.owed() == []
    assert ['took longer than 30 s' in text for text in said(caplog, 'WARNING')] == [True]


def test_a_successor_ends_the_hooks_that_its_predecessor_began(bench):
    bench.use(Hook(bench))
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(2)
    bench.now += 100
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(4, by=bench.new_worker('w2'))
    assert [when for when, _call in bench.hooks['one'].calls] == ['before', 'after']
    assert bench.owed() == []


def test_hooks_of_an_executor_that_died_before_the_request_run_again(bench):
    bench.use(Hook(bench, before=[False, True]))
    bench.plan()
    bench.passes(1)
    bench.now += 100
    second = bench.new_worker('w2')
    bench.passes(8, by=second)
    assert bench.order == ['before one', 'after one', 'before one', 'submit', 'post_flight',
                           'after one']
    keys = [call.key for _when, call in bench.hooks['one'].calls]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_a_returning_executor_closes_steps_of_tasks_that_it_lost(bench):
    bench.use(Hook(bench, before=[False]))
    bench.plan()
    bench.passes(1)
    bench.now += 100
    bench.passes(1, by=bench.new_worker('w2'))
    bench.passes(1)
    assert bench.hooks['one'].closed == ['before', 'after'] and bench.steps('submit') == []


def test_a_task_that_is_cancelled_meanwhile_gets_its_after(bench):
    bench.use(Hook(bench, before=[False]))
    bench.plan()
    bench.passes(1)
    bench.store.tasks.cancel_task(
        bench.tasks[0].task_id, bench.now, cancelled_by='me', reason='why',
                                  instance_cooldown=900)
    bench.passes(2)
    assert bench.order == ['before one', 'after one'] and bench.owed() == []
    (_when, _call), (_after, call) = bench.hooks['one'].calls
    assert call.ended is None, 'it never came to an end of its own'


def test_an_executor_that_was_held_up_after_its_commit_calls_nothing(bench, caplog):
    hook = Hook(bench)
    bench.use(hook)
    real = hold_up(bench, 31)
    bench.plan()
    bench.passes(1)
    assert hook.calls == [] and len(bench.owed()) == 1
    task = bench.row().task
    assert said(caplog, 'WARNING')[:1] == [
        f'{model.format_task(task)}: this executor was held up before it could call hook one; it '
        'starts again']
    bench.store.hooks.record_hook = real
    bench.passes(8)
    assert bench.order == ['after one', 'before one', 'submit', 'post_flight', 'after one']


def test_a_database_that_fails_at_the_commit_leaves_nothing_undone(bench):
    hook = Hook(bench)
    bench.use(hook)
    real = bench.store.hooks.record_hook

    def lost(*args):
        real(*args)
        raise exception.StoreError(problem='is away', remedy='Wait.')
    bench.store.hooks.record_hook = lost
    bench.plan()
    with pytest.raises(exception.StoreError):
        bench.passes(1)
    bench.store.hooks.record_hook = real
    bench.passes(8)
    assert bench.order == ['after one', 'before one', 'submit', 'post_flight', 'after one']


def test_a_task_brings_hooks_and_parameters_of_its_own(bench):
    bench.use(Hook(bench), Hook(bench, 'pscom'), Hook(bench, 'pause'), enabled=('one', 'pscom'))
    own = (model.TaskHook('pause'), model.TaskHook('pscom', {'processes': 4}))
    bench.plan(lambda p, s: cases.make_task(p, s, hooks=own))
    bench.passes(4)
    assert bench.order[:3] == ['before one', 'before pscom', 'before pause']
    assert [call.parameters for _when, call in bench.hooks['pscom'].calls] == [
        {'processes': 4}] * 2
    assert bench.hooks['one'].calls[0][1].parameters == {}


def test_nothing_is_called_where_nothing_is_migrated(bench):
    bench.use(Hook(bench))
    bench.driver = dry_run.DryRunExecutor()
    bench.worker = bench.new_worker('w1')
    bench.plan()
    bench.passes(3)
    assert bench.order == [] and bench.state is TaskState.COMPLETED


def test_a_stopping_executor_closes_its_steps_and_keeps_hooks_pending(bench):
    bench.use(Hook(bench, before=[False]))
    bench.plan()
    bench.passes(1)
    bench.worker.stop()
    bench.worker.run()
    assert bench.hooks['one'].closed == ['before', 'hook'] and len(bench.owed()) == 1
    first, = bench.owed()
    bench.worker = bench.new_worker('w2')
    bench.passes(3)
    assert first.owed_id not in {owed.owed_id for owed in bench.owed()}, 'a successor ended it'


def test_hooks_of_a_cancelled_attempt_get_no_earlier_result(bench):
    bench.use(Hook(bench, before=[True, False]))
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED]
    bench.plan()
    bench.passes(4)
    assert bench.order[-1] == 'before one' and len(bench.row().attempts) == 1
    bench.store.tasks.cancel_task(
        bench.tasks[0].task_id, bench.now, cancelled_by='me', reason='why',
                                  instance_cooldown=900)
    bench.passes(2)
    assert [call.ended and call.ended.error_type for _when, call in bench.hooks['one'].calls] == [
        None, 'MigrationFailed', None, None]


@pytest.mark.parametrize('when', ['before', 'after'])
def test_a_delayed_executor_polls_no_hooks_under_an_expired_claim(bench, when):
    polled = []

    class Counted(Step):
        def poll(self, now):
            polled.append(now)
            return super().poll(now)
    hook = Hook(bench, **{when: [False]})
    hook._call = lambda name, call: Counted(hook, name, hook.answers[name])
    bench.use(hook, deadline=500.0)
    bench.plan()
    bench.passes(1 if when == 'before' else 4)
    before = len(polled)
    bench.worker._hooks.record_ownership(bench.now)
    bench.now += 31
    if when == 'before':
        bench.worker._hooks.poll_hooks(bench.row())
    else:
        after, = bench.worker._hooks._after.values()
        assert bench.worker._hooks._poll_after_hook(after) is False
    assert len(polled) == before > 0


@pytest.mark.mutant
def test_warning_says_that_abandoned_hooks_end_before_a_requeue(bench, caplog):
    bench.use(Hook(bench, before=[False, True]))
    bench.plan()
    bench.passes(1)
    bench.now += 100
    bench.passes(1, by=bench.new_worker('w2'))
    task, = bench.tasks
    assert said(caplog, 'WARNING') == [
        f'{model.format_task(task)}: it goes back to the queue: the executor that ran its '
        'pre-migration hooks did not request the migration; running the post-migration hooks '
        'first']
