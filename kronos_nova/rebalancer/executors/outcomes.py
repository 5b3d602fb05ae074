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


"""Outcomes of a worker's steps: the task's next state, attempt or end, and the notifications.

The row is committed first and is the truth; a notification only reports it.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses

from oslo_log import log as logging
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.clients import api as clients
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps

LOG = logging.getLogger(__name__)

COMPLETED = 'migration.completed'
FAILED = 'migration.failed'
CANCELLED_TYPE = rows.CANCELLED_TYPE

#: Receives each result: (event type, result).
Notify = Callable[[str, model.TaskResult], object]


class OutcomeWriter:
    """Writer of the rows of one worker's tasks.

    :param measure: returns seconds of phases of an attempt that ends, where they are known better
        than from its marks.
    """

    def __init__(self, store: api.Store, settings: retry.RetrySettings, notify: Notify | None,
                 worker: str, clock: Callable[[], float],
                 tally: tallies.DaemonTally | None = None,
                 measure: Callable[[rows.TaskRow], Mapping[str, float]] = lambda row: {}) -> None:
        self._measure = measure
        self._store = store
        self._settings = settings
        self._notify = notify
        self._worker = worker
        self._clock = clock
        self._tally = tally or tallies.DaemonTally()

    def update_task(self, row: rows.TaskRow, state: TaskState, states: list[TaskState],
                    **fields: str | float | None) -> bool:
        """Write the state and fields of a task in flight.

        :param states: those of which the task must still have one.
        :returns: False: the task was not ours any more, and nothing was written.
        """
        still_ours = self._store.tasks.update_state(
            row.task.task_id, self._worker, states, state, self._clock(), **fields)
        if not still_ours:
            self.record_loss(row.task)
        return still_ours

    def record_doubt(self, row: rows.TaskRow, stage: base.MigrationStage, now: float,
                     state: TaskState | None = None, **fields: str | None) -> None:
        """Write that a doubt about a task begins now: see :mod:`migration_uncertainty`.

        :param state: its new state; None: the state stays.
        """
        self.update_task(row, state or row.task.state, [row.task.state], doubt_since=now,
                         doubt=migration_uncertainty.encode_doubt(stage, now), **fields)

    def return_task(self, row: rows.TaskRow) -> None:
        """Return a task to the queue, unchanged."""
        task, now = row.task, self._clock()
        self._store.tasks.requeue_task(task.task_id, self._worker, now, not_before=task.not_before,
                                       retry_count=task.retry_count, attempt=row.attempt,
                                       marks=attempt_phases.begin_phase(row.marks,
                                                                        attempt_phases.QUEUE, now))

    def record_failure(self, row: rows.TaskRow, error: exception.MigrationError) -> None:
        """Go on with the next destination or a retry, or end the task (see :mod:`retry`)."""
        now = self._clock()
        task = row.task
        if error.kwargs.get('rule') == retry.GONE:
            self.end_task(row, TaskState.CANCELLED, CANCELLED_TYPE, str(error))
            return None
        verdict = retry.after_failure(row, error, now, self._settings)
        if verdict.again:
            still_ours = self._requeue_task(row, error, verdict, now)
        else:
            still_ours = self.end_task(row, TaskState.FAILED, error.wire_type, str(error),
                                       quarantine=verdict.quarantine,
                                       for_ever=isinstance(error, exception.InstanceInError))
        if not still_ours:
            return None
        # Before the request, the rule is our own judgement, perhaps by what Nova said earlier.
        if error.kwargs.get('rule') == 'copies-disk' and row.submitted_at is not None:
            self._store.quarantine.record_local_disks(task.from_host, now,
                                                      self._settings.local_disk_seconds,
                                                      str(error))
        if isinstance(error, exception.OtherCell):
            self._record_other_cells(task, error, now)
        if verdict.refused:
            self._record_refusal(task.to_host, error, now)
        return None

    def _requeue_task(self, row: rows.TaskRow, error: exception.MigrationError,
                      verdict: retry.RetryDecision, now: float) -> bool:
        """Return the task to the queue; False: it was not ours any more."""
        task = row.task
        tried, marks = row.attempts, attempt_phases.begin_phase(row.marks, attempt_phases.QUEUE,
                                                                now)
        if not retry.is_waiting_error(error):
            tried = (*tried,
                     _build_attempt(row, now, error.wire_type, str(error), self._measure(row)))
            marks = ()
        if not self._store.tasks.requeue_task(
                task.task_id, self._worker, now, not_before=verdict.not_before,
                retry_count=verdict.retry_count, attempt=verdict.attempt, error=str(error),
                error_type=error.wire_type, attempts=tried, marks=marks):
            self.record_loss(task)
            return False
        if tried is not row.attempts:
            self._tally.attempt_failed(error.wire_type)
            self._tally.record_attempt(task.method, tried[-1].phases)
        failure = f'{error.wire_type}: {error}'
        if (verdict.attempt, verdict.retry_count) == (row.attempt, task.retry_count):
            LOG.info('%s: %s: it waits for %.0f s', model.format_task(task), failure,
                     verdict.not_before - now)
        elif verdict.retry_count == task.retry_count:
            LOG.info('%s: %s: %s: destination %s is dropped, %s is next', model.format_task(task),
                     _format_attempt(row, tried[-1]), failure, task.to_host, task.alternates[0])
        else:
            LOG.info('%s: %s: %s: retry %d of %d in %.0f s', model.format_task(task),
                     _format_attempt(row, tried[-1]), failure, verdict.retry_count,
                     task.max_retries, verdict.not_before - now)
            self._announce_result(FAILED,
                                  self._build_result(row, now, error.wire_type, str(error), tried))
        return True

    def _record_refusal(self, host: str, error: exception.MigrationError, now: float) -> None:
        if self._store.quarantine.count_refusal(host, now, limit=self._settings.host_refusals,
                                                seconds=self._settings.host_quarantine_seconds,
                                                reason=str(error)):
            LOG.warning('Host %s refused %s in a row: no more are sent to it for '
                        '%.0f s. See its nova-compute log.', host,
                        plurals.count_noun(self._settings.host_refusals, 'migration'),
                        self._settings.host_quarantine_seconds)

    def _record_other_cells(self, task: model.Task, error: exception.OtherCell, now: float) -> None:
        seconds = self._settings.other_cell_seconds
        self._store.quarantine.record_other_cells(task.from_host, task.to_host, now, seconds,
                                                  str(error))
        LOG.warning('Hosts %s and %s are probably in different cells: for %.0f s nothing is moved '
                    'between them. Name the cells, or correct their names, in the metadata of '
                    'aggregates; see [engine] cell_metadata_key.',
                    task.from_host, task.to_host, seconds)

    def record_loss(self, task: model.Task) -> None:
        LOG.warning('%s: it was taken over by another executor, or cancelled',
                    model.format_task(task))

    def end_task(self, row: rows.TaskRow, state: TaskState, error_type: str | None = None,
                 error: str | None = None, *, quarantine: bool = False,
                 for_ever: bool = False) -> bool:
        """End a task: its state, cooldown, quarantine and dependents in one transaction.

        :returns: False: the task was not ours any more, and nothing was written.
        """
        seconds = -1.0 if for_ever else self._settings.instance_quarantine_seconds
        now = self._clock()
        task = row.task
        attempt = _build_attempt(row, now, error_type, error, self._measure(row))
        result = self._build_result(row, now, error_type, error, (*row.attempts, attempt))
        cancelled = self._store.tasks.finish_task(
            task, result, state, now, worker=self._worker,
            instance_cooldown=self._settings.instance_cooldown,
            quarantine_seconds=seconds if quarantine else None)
        if cancelled is None:
            self.record_loss(task)
            return False
        if state is TaskState.FAILED and error_type is not None:
            self._tally.attempt_failed(error_type)
        self._tally.record_attempt(task.method, attempt.phases)
        self._tally.count_ended_task(task, state,
                                     None if row.submitted_at is None else now - row.submitted_at)
        if state is TaskState.COMPLETED:
            LOG.info('%s: moved from %s to %s in %.0f s', model.format_task(task), task.from_host,
                     task.to_host, result.duration_seconds)
        else:
            LOG.log(logging.ERROR if for_ever else logging.WARNING,
                    '%s: %s: %s: %s: %s%s See: kronos task show %s', model.format_task(task),
                    state, _format_attempt(row, attempt), error_type,
                    exception.format_sentence(error), ' It is quarantined.' if quarantine else '',
                    task.task_id)
        self._announce_result(COMPLETED if result.success else FAILED,
                              _use_up_retries(result, task))
        for dependent in cancelled:
            self.report_cancelled_task(dependent, now)
        return True

    def report_cancelled_task(self, task: model.Task, now: float) -> None:
        """Report a task that ended in the table, without a request to Nova."""
        self._tally.count_ended_task(task, TaskState.CANCELLED, None)
        row = self._store.tasks.find_task(task.task_id)
        if row is not None:
            LOG.warning('%s: cancelled: %s: %s', model.format_task(task), row.error_type, row.error)
            self._announce_result(FAILED, _use_up_retries(
                self._build_result(row, now, row.error_type, row.error, row.attempts), row.task))

    @staticmethod
    def log_swap_undo(swap: swaps.StoredSwap) -> None:
        """Log that the undo of a swap has begun or is over.

        The first executor that sees it logs it, once.
        """
        uuids = ' and '.join(m.instance_uuid for m in swap.members)
        what = swap.noun.capitalize()
        if swap.state == swaps.STUCK:
            LOG.error('%s of instances %s (plan %s): it failed, and so did its undo. %s. Find '
                      'out why (kronos plan show %s), then move them with kronos plan retry, or '
                      'openstack server migrate --live-migration.', what, uuids, swap.plan_id,
                      '; '.join(
                          f'Instance {m.instance_uuid} is on {swap.where[m.instance_uuid]} and '
                          f'was on {m.home}' for m in swap.members_away), swap.plan_id)
        elif swap.state == swaps.UNDONE:
            LOG.warning('%s of instances %s (plan %s): undone, both are where they were', what,
                        uuids, swap.plan_id)
        else:
            LOG.warning('%s of instances %s (plan %s): it failed, and is undone by plan %s',
                        what, uuids, swap.plan_id, swap.undos[-1])

    @staticmethod
    def _build_result(row: rows.TaskRow, now: float, error_type: str | None, error: str | None,
                      attempts: tuple[model.Attempt, ...]) -> model.TaskResult:
        task = row.task
        since = now if row.submitted_at is None else row.submitted_at
        return model.TaskResult(
            task_id=task.task_id, plan_id=task.plan_id, aggregate=task.aggregate,
            instance_uuid=task.instance_uuid, from_host=task.from_host, to_host=task.to_host,
            success=error_type is None, error=error, error_type=error_type,
            duration_seconds=max(0.0, now - since), retry_count=task.retry_count,
            completed_at=now, attempts=attempts[-rows.KEPT_ATTEMPTS:])

    def _announce_result(self, event: str, result: model.TaskResult) -> None:
        if self._notify is None:
            return
        try:
            self._notify(event, result)
        except Exception as e:
            LOG.warning('%s: its %s notification was not sent (%s: %s)',
                        model.format_task(result), event, type(e).__name__, e)


def _build_attempt(row: rows.TaskRow, now: float, error_type: str | None, error: str | None,
                   measured: Mapping[str, float]) -> model.Attempt:
    """Build the attempt that ends now.

    It began with its request, or with its claim when no request was sent to Nova.
    """
    reference = row.reference or ''
    return model.Attempt(
        to_host=row.task.to_host, ended_at=now, error_type=error_type,
        started_at=row.updated_at if row.submitted_at is None else row.submitted_at,
        error=None if error is None else clients.format_printable(error),
        migration_uuid=reference if uuidutils.is_uuid_like(reference) else None,
        phases=attempt_phases.compute_phase_seconds(row.marks, now, measured))


def _format_attempt(row: rows.TaskRow, attempt: model.Attempt) -> str:
    """Format an attempt that has ended, with its hosts, Nova's migration and its number."""
    migration = ('no Nova migration known' if attempt.migration_uuid is None
                 else f'Nova migration {attempt.migration_uuid}')
    return (f'{row.task.method} migration from {row.task.from_host} to {attempt.to_host} '
            f'({migration}, attempt {len(row.attempts) + 1})')


def _use_up_retries(result: model.TaskResult, task: model.Task) -> model.TaskResult:
    """Return a failed result with no retry left.

    Kronos reads retry_count < max_retries as "a retry is pending".
    """
    if result.success:
        return result
    return dataclasses.replace(result, retry_count=max(result.retry_count, task.max_retries))
