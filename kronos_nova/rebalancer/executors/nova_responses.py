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

"""Interpretation of Nova's responses, for live and for cold migrations alike."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import records
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova_error_classes
from kronos_nova.rebalancer.store import attempt_phases

ERROR = 'ERROR'
WAITING = frozenset({'accepted', 'queued', 'preparing', 'pre-migrating'})


def find_own_migration(migrations: list[nova_api.Migration], task: model.Task, after: int,
                       kind: str = nova_api.LIVE_MIGRATION,
                       reference: str | None = None) -> nova_api.Migration | None:
    """Return our migration among those of the instance; None: it is not there.

    It is newer than the marker, of our kind, from our source, and to no other host than our
    destination. Its destination stays empty until Nova schedules it, and in a migration that Nova
    never scheduled. Of several the newest counts, since only the last can be under way.

    :param reference: the UUID of our migration, once an earlier look has found it: then another
        migration between the same hosts is not ours, and ours may have another source.
    """
    newer = [m for m in migrations if m.id > after and m.type == kind]
    if reference is not None:
        return next((m for m in newer if m.uuid == reference), None)
    return max((m for m in newer if m.from_host == task.from_host
                and m.to_host in (None, task.to_host)), key=lambda m: m.id, default=None)


def find_migration_from_elsewhere(nova: nova_api.NovaApi, migrations: list[nova_api.Migration],
                                  task: model.Task, after: int, kind: str,
                                  action: str) -> nova_api.Migration | None:
    """Return our migration under way from another host than our source; None: it is not there.

    A request names no source. If an operator evacuates the instance before a request reaches Nova,
    Nova carries the request out from the new host. Only the newest migration counts, and only if
    Nova names our user for it: an operator may make the same move by hand.

    :raises ApiError: Nova could not be read.
    """
    newest = max((m for m in migrations if m.id > after and m.type == kind),
                 key=lambda m: m.id, default=None)
    if (newest is None or newest.has_ended or newest.from_host in (None, task.from_host)
            or newest.to_host not in (None, task.to_host)):
        return None
    own = nova.user_id()
    return newest if own and _find_requester(nova, task.instance_uuid, action) == own else None


def adopt_source_host(task: model.Task,
                      migration: nova_api.Migration) -> tuple[model.Task, str | None]:
    """Return the task with the host that our migration leaves, and this host.

    The host is None where it is the task's source.
    """
    if migration.from_host in (None, task.from_host):
        return task, None
    return dataclasses.replace(task, from_host=migration.from_host), migration.from_host


def asked_by_another(nova: nova_api.NovaApi, uuid: str, action: str) -> str | None:
    """Return the user who asked for the newest action of this name; None: we asked.

    None also where Nova does not let us read actions, or has no such action.

    :raises ApiError: Nova could not be read.
    """
    own = nova.user_id()
    user = _find_requester(nova, uuid, action)
    return api.format_printable(user) if own and user and user != own else None


def _find_requester(nova: nova_api.NovaApi, uuid: str, action: str) -> Any:
    """Return the user who asked for the newest action of this name; None: Nova does not tell."""
    try:
        actions = nova.list_actions(uuid)
    except api.ApiError as exc:
        if exc.status in (401, 403, 404):
            return None
        raise
    return next((record.get('user_id') for record in actions if record.get('action') == action),
                None)


def read_abort(nova: nova_api.NovaApi, uuid: str) -> tuple[bool | None, str | None]:
    """Return whether the newest live migration of the instance was aborted, and who aborted it.

    The user is None where we aborted it, or where Nova does not tell. (None, None) where Nova does
    not let us read actions. Nova ends a running migration that was aborted like one that
    failed: ``error``, the instance in ERROR, and no event that says why. Nova records no abort that
    it refuses.
    Source: nova.compute.api, live_migrate_abort; nova.compute.manager, _do_live_migration.

    :raises ApiError: Nova could not be read.
    """
    try:
        actions = nova.list_actions(uuid)
    except api.ApiError as exc:
        if exc.status is not None and 400 <= exc.status < 500 and exc.status not in (408, 429):
            return None, None
        raise
    newest = next((action for action in actions
                   if action.get('action') in (nova_api.ABORT, nova_api.LIVE_MIGRATION)), {})
    if newest.get('action') != nova_api.ABORT:
        return False, None
    own, user = nova.user_id(), newest.get('user_id')
    return True, api.format_printable(user) if own and user and user != own else None


def find_instance(nova: nova_api.NovaApi, task: model.Task) -> model.Instance | None:
    """Read the instance; None: it is gone.

    :raises ApiError: Nova could not be read.
    """
    try:
        return nova.read_server(task.instance_uuid).instance
    except api.ApiError as exc:
        if exc.status == 404:
            return None
        raise


def read_moved_instance(nova: nova_api.NovaApi, task: model.Task) -> model.Instance:
    """Read the instance, which has come to its destination and is not in ERROR.

    Its user or an operator may have moved it on since: then it is on another host.

    :raises PreFlightError: it is gone.
    :raises InstanceInError: it is in ERROR, on any host.
    :raises MigrationFailed: it is on another host, and has not been on its destination.
    :raises NovaClientError: Nova could not be read.
    """
    uuid = task.instance_uuid
    try:
        instance = find_instance(nova, task)
        is_elsewhere = (instance is not None and instance.status != ERROR
                        and instance.host != task.to_host
                        and not _has_left_destination(nova.list_migrations(uuid), task))
    except api.ApiError as exc:
        raise build_read_error(task, exc) from None
    if instance is None:
        raise build_deleted_error(task)
    if instance.status == ERROR:
        raise exception.InstanceInError(
            instance_uuid=uuid, problem=f'since its migration to {task.to_host}, on '
                                        f'{instance.host or "no host"}')
    if is_elsewhere:
        raise exception.MigrationFailed(
            instance_uuid=uuid, problem=f'it is on {instance.host or "no host"} and not on '
                                        f'{task.to_host}')
    return instance


def _has_left_destination(migrations: Iterable[nova_api.Migration], task: model.Task) -> bool:
    """Return whether a migration from the destination began after the newest one to it."""
    arrivals = [m.id for m in migrations if m.to_host == task.to_host]
    return bool(arrivals) and any(
        m.from_host == task.to_host and m.id > max(arrivals) for m in migrations)


def read_action_errors(nova: nova_api.NovaApi, uuid: str, action: str) -> list[str] | None:
    """Read Nova's error texts about our newest action of this name, one per event.

    An action that another user asked for since is not ours. The list may be empty. None: Nova has
    not recorded them yet, or they cannot be read now.

    nova-conductor saves that a migration failed before its event says why, and an event whose
    service died never says why: a caller that asks again has to stop some time.
    Source: nova.conductor.manager, _live_migrate; nova.compute.utils, EventReporter.
    """
    try:
        own = nova.user_id()
        for record in nova.list_actions(uuid):
            if record.get('action') != action or (own and record.get('user_id') not in (None, own)):
                continue
            events = nova.action_events(uuid, str(record.get('request_id')))
            details = [text for e in events if (text := _find_event_error(e))]
            if not details and not all(_has_event_ended(e) for e in events):
                return None
            return details or [str(record['message'])] * bool(record.get('message'))
    except api.ApiError as exc:
        refused = exc.status is not None and 400 <= exc.status < 500
        # A refusal is final, except 408 and 429: they mean "not yet".
        return [] if refused and exc.status not in (408, 429) else None
    return []


def read_phase_seconds(
        nova: nova_api.NovaApi, task: model.Task, reference: str) -> dict[str, float]:
    """Read the seconds of the phases of our live migration, by Nova's own clock.

    Nova counts whole seconds, from the start of the action to its last update of the migration.
    Empty where Nova does not have all times, or has them in another order.

    Source: nova.compute.manager, _do_live_migration: ``preparing`` lasts while the destination
    prepares (pre_live_migration), ``running`` comes after it; the events have the names of the
    methods.

    :raises ApiError: Nova could not be read.
    """
    migrations = nova.list_migrations(task.instance_uuid)
    migration = next((m for m in migrations if m.uuid == reference and m.has_ended), None)
    if migration is not None and any(m.id > migration.id for m in migrations):
        return {}  # the newest action may belong to another migration
    action = next((records.JsonRecord('Nova', 'action', record, identity='request_id')
                   for record in nova.list_actions(task.instance_uuid)
                   if record.get('action') == nova_api.LIVE_MIGRATION), None)
    if migration is None or action is None:
        return {}
    events = {str(event.get('event')): records.JsonRecord('Nova', 'event', event, identity='event')
              for event in nova.action_events(task.instance_uuid, action.read_text('request_id'))}

    def find_event_time(event: str, field: str) -> float | None:
        event_record = events.get(event)
        return (None if event_record is None or not event_record.has_key(field)
                else event_record.optional_time(field))

    requested_at = action.optional_time('start_time') if action.has_key('start_time') else None
    if requested_at is None:
        return {}
    before = 'compute_pre_live_migration'
    return attempt_phases.compute_intervals((
        (attempt_phases.PRE_CHECK, requested_at),
        (attempt_phases.PREPARING, find_event_time(before, 'start_time')),
        (attempt_phases.RUNNING, find_event_time(before, 'finish_time')),
        (attempt_phases.POST_MIGRATING,
         find_event_time('compute_post_live_migration_at_destination', 'start_time')),
        (attempt_phases.POST_FLIGHT, migration.updated_at)))


def find_version(migration: nova_api.Migration) -> str:
    """Return a text that differs when Nova has changed the record."""
    return f'{migration.uuid} {migration.status} {migration.updated_at}'


def build_failure(task: model.Task, migration: nova_api.Migration,
                  details: list[str] | None) -> base.MigrationProgress:
    """Build the progress of a migration that is over and has not moved the instance.

    :param details: Nova's error texts; None: not recorded yet.
    """
    fault, text = nova_error_classes.judge_fault(details or [], task.from_host)
    quoted = f': {api.format_printable(text)}' if text else ''
    return base.MigrationProgress(base.MigrationStage.FAILED,
                                  f'Nova: migration {migration.status}{quoted}',
                                  migration.uuid, fault=fault)


def defer_unexplained(progress: base.MigrationProgress,
                      details: list[str] | None) -> base.MigrationProgress:
    """Return the failure; mark it as unexplained while Nova has not recorded the reason.

    :param details: Nova's error texts; None: not recorded yet.
    """
    if details is not None:
        return progress
    return dataclasses.replace(progress, stage=base.MigrationStage.UNTOLD)


def _find_event_error(event: Mapping[str, Any]) -> str:
    """Return the error text of an action's event; empty when it did not fail.

    The text is the event's details, below 2.84 the last line of its traceback.
    """
    if event.get('details'):
        return str(event['details'])
    lines = str(event.get('traceback') or '').strip().splitlines()
    return lines[-1] if lines else ''


def _has_event_ended(event: Mapping[str, Any]) -> bool:
    return event.get('finish_time') is not None or event.get('result') is not None


def newest_before(task: model.Task, marker: str) -> int:
    """Return the id of the instance's newest migration before ours.

    :raises NovaClientError: the marker does not have it.
    """
    try:
        value = json.loads(marker)['migration_id']
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    except (ValueError, KeyError, TypeError):
        pass
    raise exception.NovaClientError(
        instance_uuid=task.instance_uuid,
        problem=f'the marker of task {task.task_id} is unreadable; look at the migrations of the '
                'instance and resolve the task by hand')


def find_reference(marker: str) -> str | None:
    """Return the UUID of our migration, where the marker has it."""
    try:
        value = json.loads(marker).get('migration_uuid')
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None


def build_request_error(task: model.Task, error: api.ApiError) -> exception.MigrationError:
    """Build the error of a migration request that Nova did not answer."""
    if isinstance(error, api.TooLate):
        return exception.HeldUp(
            instance_uuid=task.instance_uuid,
            problem=f'the {task.method} migration was not asked for: {error.problem}')
    if error.sent:
        return exception.AmbiguousSubmit(
            instance_uuid=task.instance_uuid, problem=error.problem)
    return _build_client_error(task, error,
                               f'the {task.method} migration could not be asked for: '
                               f'{error.problem}')


def build_refusal(task: model.Task, text: str) -> exception.MigrationError:
    """Build the error of a request that Nova declined, for this destination or for every one."""
    if nova_error_classes.judge_fault([text],
                                      task.from_host)[0] is nova_error_classes.FaultyPart.INSTANCE:
        return exception.InstanceRefused(instance_uuid=task.instance_uuid, problem=text)
    return exception.MigrationFailed(
        instance_uuid=task.instance_uuid,
        problem=f'Nova refused the {task.method} migration to {task.to_host}: {text}')


def find_cell_error(nova: nova_api.NovaApi, task: model.Task,
                    text: str) -> exception.MigrationError | None:
    """Return the error when Nova does not find the destination in the instance's cell.

    None: Nova declined for another reason, or the destination does not work in any cell.

    Nova looks for the host in the database of the instance's cell alone, and lists services and
    hypervisors of all cells.
    Source: nova.compute.api, live_migrate and _validate_host_for_cold_migrate.
    """
    if f'Compute host {task.to_host} could not be found' not in text:
        return None
    try:
        service = nova.read_services(task.to_host).get(task.to_host)
        if service is None or not service.up or not nova.hypervisors_of(task.to_host):
            return None
    except api.ApiError as exc:
        return after_refusal(task, exc)
    return exception.OtherCell(
        instance_uuid=task.instance_uuid, rule='cell-differs', from_host=task.from_host,
        to_host=task.to_host, problem=text)


def build_deleted_error(task: model.Task) -> exception.PreFlightError:
    return exception.PreFlightError(
        instance_uuid=task.instance_uuid, rule='no-such-instance',
        problem='it was deleted; there is nothing left to move')


def build_read_error(task: model.Task, error: api.ApiError) -> exception.NovaClientError:
    """Build the error of a failed read; it tells whether a service does not work."""
    return _build_client_error(task, error, _format_read_error(error))


def after_refusal(task: model.Task, error: api.ApiError) -> exception.NovaClientError:
    """Build the error of a failed read after Nova has refused the migration: it uses up a retry."""
    return exception.NovaClientError(instance_uuid=task.instance_uuid,
                                     problem=_format_read_error(error))


def _format_read_error(error: api.ApiError) -> str:
    return f'could not read {error.what} from {error.service}: {error.problem}'


def _build_client_error(task: model.Task, error: api.ApiError,
                        problem: str) -> exception.NovaClientError:
    if error.outage is None:
        return exception.NovaClientError(instance_uuid=task.instance_uuid, problem=problem)
    return exception.ServiceUnavailable(instance_uuid=task.instance_uuid, service=error.outage,
                                        problem=problem)
