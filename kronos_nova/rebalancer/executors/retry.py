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


"""Pure rules: the consequences of a failure, and the time limit of a migration.

A pass tries the destinations of a task in order, one attempt each. ``max_attempts`` limits the
attempts of a pass, ``max_retries`` the further passes; for a task that counts alternates it limits
the further attempts. A failure that waiting cannot change is final.
"""

from collections.abc import Callable
import dataclasses

from oslo_config import cfg

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import rules
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.store import rows

#: Rules whose rejection at pre-flight is no fault of the instance: the executor tries another
#: destination and does not quarantine the instance.
NOT_THE_INSTANCE = constraints.select_codes(rules.RetryClass.ELSEWHERE) | {'tree-reshaped'}
#: Rules that are no fault of the instance, but no destination differs: the task ends.
FINAL = constraints.select_codes(rules.RetryClass.FINAL) | {
    'method-changed', 'contract-method', 'source-reshaped', 'source-overcommitted'}
#: The rule of an instance that was deleted: nothing is left to do.
(GONE,) = constraints.select_codes(rules.RetryClass.GONE)
#: Rules that pass with time: the executor tries the same destination again.
PASSING = constraints.select_codes(rules.RetryClass.PASSING)
#: Rules that are no failure at all: the task waits as for a slot of ours.
WAITING = frozenset({'no-slot', 'just-left', 'just-came'})
#: The longest wait between two passes, in seconds.
MAX_BACKOFF = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class RetrySettings:
    """Settings of a worker; times are in seconds.

    ``scopes`` None: all. ``instance_quarantine_seconds`` -1: for ever. A host that refused
    ``host_refusals`` times in a row takes nothing for ``host_quarantine_seconds``.
    ``abort_at_deadline``: a live migration that takes longer is aborted, and with
    ``reset_state_after_abort`` its instance is made active again when Nova puts it into ERROR.
    ``local_disk_seconds``, ``other_cell_seconds``: for so long we believe Nova's word that a
    host's disks are its own, and that two hosts are of different cells. ``escalation_limits``:
    limits of the steps against live migrations of drains that do not converge. Without ``begin``
    the worker requests no new migration, and watches those under way to their end. ``frozen``
    returns why no migration may begin at an epoch time, or None.
    """

    scopes: frozenset[str] | None = None
    per_scope: int = 2
    total: int = 8
    per_source: int = 1
    per_destination: int = 2
    migration_timeout: float = 600.0
    seconds_per_gib: float = 800.0
    look_interval: float = 10.0
    poll_interval: float = 10.0
    claim_seconds: float = 45.0
    retry_backoff: float = 30.0
    max_attempts: int = 3
    instance_cooldown: float = 900.0
    instance_quarantine_seconds: float = 3600.0
    host_refusals: int = 3
    host_quarantine_seconds: float = 3600.0
    local_disk_seconds: float = 86400.0
    other_cell_seconds: float = 86400.0
    begin: bool = True
    abort_at_deadline: bool = False
    reset_state_after_abort: bool = False
    escalation_limits: escalation.EscalationLimits = escalation.EscalationLimits()
    frozen: Callable[[float], str | None] = dataclasses.field(
        default=lambda now: None, compare=False)

    @property
    def absent_seconds(self) -> float:
        """Seconds without a visible migration until we conclude that none began."""
        return max(60.0, 2 * self.look_interval, self.claim_seconds)

    @property
    def settling_seconds(self) -> float:
        """Seconds that Nova may take to release the claims of a failed migration."""
        return max(300.0, self.absent_seconds)


def build_settings(conf: cfg.ConfigOpts) -> RetrySettings:
    """Build the settings from [executor] and [engine]."""
    executor, engine = conf.executor, conf.engine
    return RetrySettings(
        scopes=frozenset(executor.aggregates) or None,
        per_scope=executor.max_concurrent_migrations,
        total=executor.max_concurrent_migrations_total,
        per_source=executor.max_concurrent_per_source,
        per_destination=executor.max_concurrent_per_destination,
        migration_timeout=executor.migration_timeout, seconds_per_gib=executor.seconds_per_gib,
        look_interval=executor.migration_poll_interval, poll_interval=executor.poll_interval,
        claim_seconds=executor.claim_seconds, retry_backoff=executor.retry_backoff,
        max_attempts=1 + engine.max_alternates, instance_cooldown=engine.instance_cooldown,
        instance_quarantine_seconds=engine.instance_quarantine_seconds,
        begin=not engine.dry_run, abort_at_deadline=executor.abort_at_deadline,
        reset_state_after_abort=executor.reset_state_after_abort,
        escalation_limits=escalation.EscalationLimits(
            tuple(map(model.EscalationKind, executor.drain_escalation)),
            executor.drain_arrival_seconds, executor.drain_longest_pause),
        frozen=lambda now: engine_conf.find_freeze_reason(conf, now))


def compute_deadline(task: model.Task, submitted_at: float, chosen: RetrySettings) -> float:
    """Compute when a migration becomes unknown, in epoch seconds.

    Nova allows live_migration_completion_timeout per GiB of memory and copied disk, counted from
    when it runs; we add time to wait in its queue. A cold migration copies no memory, and Nova
    sets it no limit.

    Source: nova.virt.libvirt.driver, _live_migration_data_gb, which takes memory and each disk for
    2 GiB at least.
    """
    memory = task.memory_mb / 1024 if task.method is model.MoveMethod.LIVE else 0.0
    gib = sum(max(2.0, part) for part in (memory, task.disk_gb) if part)
    return submitted_at + chosen.migration_timeout + chosen.seconds_per_gib * gib


@dataclasses.dataclass(frozen=True, slots=True)
class RetryDecision:
    """Verdict on a failed attempt.

    ``again``: queue the task for ``attempt``; else it has failed for good. ``refused``: the
    attempt counts as a refusal by its destination.
    """

    again: bool
    quarantine: bool = False
    refused: bool = False
    attempt: int = 0
    retry_count: int = 0
    not_before: float = 0.0


def is_waiting_error(error: exception.MigrationError) -> bool:
    """Return whether the task has not failed: Nova was not asked, and waiting helps."""
    return (isinstance(error, exception.ServiceUnavailable | exception.HeldUp)
            or isinstance(error, exception.PreFlightError) and error.kwargs.get('rule') in WAITING)


def after_failure(row: rows.TaskRow, error: exception.MigrationError, now: float,
                  chosen: RetrySettings) -> RetryDecision:
    """Decide between the next attempt, the next pass and the end."""
    task = row.task
    refused = isinstance(error, exception.MigrationFailed)
    rule = error.kwargs.get('rule') if isinstance(error, exception.PreFlightError) else None
    if is_waiting_error(error):
        return RetryDecision(again=True, attempt=row.attempt, retry_count=task.retry_count,
                             not_before=now + chosen.retry_backoff)
    if rule in FINAL:
        return RetryDecision(again=False, retry_count=task.retry_count)
    passing = rule in PASSING
    changed = rule in NOT_THE_INSTANCE
    elsewhere = refused or changed or isinstance(
        error, (exception.PlacementRejected, exception.FailureUntold))
    final = RetryDecision(
        again=False, refused=refused, retry_count=task.retry_count,
        quarantine=not (changed or passing or isinstance(
            error, (exception.NovaClientError, exception.PlacementRejected,
                    exception.HookFailed, exception.MigrationAbandoned,
                    exception.TaskNotAuthorized))))
    if isinstance(error, exception.MigrationTimeout) or not (
            error.retriable or changed or passing):
        return final
    exhausted = task.retry_count >= task.max_retries
    if (elsewhere and task.alternates and row.attempt + 1 < chosen.max_attempts
            and not (task.counts_alternates and exhausted)):
        return RetryDecision(again=True, refused=refused, attempt=row.attempt + 1,
                             retry_count=task.retry_count + task.counts_alternates, not_before=now)
    if changed or exhausted:
        return final
    wait = min(chosen.retry_backoff * 2.0 ** min(task.retry_count, 30), MAX_BACKOFF)
    return RetryDecision(again=True, refused=refused, attempt=0 if elsewhere else row.attempt,
                         retry_count=task.retry_count + 1, not_before=now + wait)
