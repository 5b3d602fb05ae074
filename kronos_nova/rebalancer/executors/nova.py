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

"""Migration through Nova's API: live here, cold in :mod:`cold`."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import json
import time
from typing import Any, Self

from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import uuidutils

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import metrics
from kronos_nova.constraints import rules
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import allocation_cleanup
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import cold
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.executors import overcommitment
from kronos_nova.rebalancer.executors import preflight_reader
from kronos_nova.rebalancer.executors import reshapes
from kronos_nova.rebalancer.executors import stale_scheduler_view
from kronos_nova.rebalancer.store import attempt_phases

LOG = logging.getLogger(__name__)

#: Rules by which Placement rejects a move: another destination may have room.
NO_ROOM = constraints.select_codes(rules.RetryClass.NO_ROOM)

#: Text of Nova's InvalidSharedStorage: the request excludes disk copies, and the instance
#: has disks to copy.
NOT_SHARED = 'is not on shared storage'

POLICY = 'os_compute_api:os-migrate-server:migrate_live:host'
ABORT_POLICY = 'os_compute_api:servers:migrations:delete'
RESET_POLICY = 'os_compute_api:os-admin-actions:reset_state'
#: Nova's power state of a guest that runs.
RUNNING = 1

#: Nova aborts a live migration in these statuses. Source: nova.compute.api,
#: live_migrate_abort, since 2.65.
ABORTABLE = frozenset({'queued', 'preparing', 'running'})


class NovaExecutor(base.Executor):
    """Driver that migrates through Nova, one step per call.

    The marker is JSON: ``migration_id``, the id of the instance's newest migration before ours,
    and ``time``, when we read it (for people).

    :param connection: an openstacksdk connection.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(conf, connect())

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self._reader = preflight_reader.FreshReader(conf, connection)
        self._nova = self._reader.nova
        self._cold = cold.ColdMigration(self._nova, self._reader.placement)

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        now = time.time()
        try:
            found = self._reader.read(task, now)
        except api.ApiError as exc:
            if exc.status == 404 and exc.what == f'server {task.instance_uuid}':
                raise nova_responses.build_deleted_error(task) from None
            raise nova_responses.build_read_error(task, exc) from None
        instance = found.cluster.instances[task.instance_uuid]
        if not instance.host:
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid, rule='moved-away',
                problem=f'it is {instance.status} and on no host any more')
        try:
            cluster = found.cluster.scoped(task.aggregate,
                                           self._list_planned_aggregates(task, known))
        except KeyError:
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid, rule='out-of-scope',
                problem=f'aggregate {task.aggregate} no longer exists') from None
        reshapes.check(task, cluster)
        self._check_rules(task, cluster, known)
        _as_planned(task, instance)
        changed = {host: self._read_host_migrations(task, host, now)
                   for host in (task.from_host, task.to_host)}
        self._find_slots(task, known, changed, now)
        self._await_scheduler(task, cluster, changed[task.to_host], now)
        zones = [cluster.services[h].zone for h in (task.from_host, task.to_host)]
        if zones[0] != zones[1]:
            LOG.info('Instance %s: the move from %s to %s is one from zone %s to zone %s',
                     task.instance_uuid, task.from_host, task.to_host, *zones)
        return json.dumps({'migration_id': found.newest, 'time': now})

    def _list_planned_aggregates(self, task: model.Task, known: base.StoredFacts) -> list[str]:
        """Return the configured aggregates that an engine plans now, as the task's engine does.

        An aggregate without an engine owns no host. The list is empty when the task's own
        aggregate is not among them: then its engine's aggregates are unknown.
        """
        if task.aggregate not in known.scopes:
            return []
        named = [n for n in self._conf.engine.aggregates if n in known.scopes]
        return named if task.aggregate in named else []

    def _check_rules(self, task: model.Task, cluster: model.Cluster,
                     known: base.StoredFacts) -> None:
        move = model.Move(task.instance_uuid, task.from_host, task.to_host, task.phase)
        cluster = dataclasses.replace(cluster, flights=(*cluster.flights, *known.flights))
        rejection = constraints.check(
            cluster_view.ClusterView(cluster, engine_conf.build_options(self._conf), known.history,
                                     draining=known.draining), move, constraints.PRE_FLIGHT)
        if rejection is None:
            return
        kind = (exception.PlacementRejected if rejection.rule in NO_ROOM
                else exception.PreFlightError)
        raise kind(instance_uuid=task.instance_uuid, rule=rejection.rule,
                   problem=f'not moved to {task.to_host}, rule {rejection.rule}: '
                           f'{rejection.detail}')

    def _read_host_migrations(self, task: model.Task, host: str,
                              now: float) -> list[nova_api.Migration]:
        try:
            return self._nova.migrations_of_host(host, now)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def _find_slots(self, task: model.Task, known: base.StoredFacts,
                    changed: Mapping[str, list[nova_api.Migration]], now: float) -> None:
        """Raise PreFlightError unless both hosts have a free slot.

        Migrations that others requested from Nova take slots of a host as ours do; ours were
        counted when the task was claimed, at the source of the task: Nova may carry out ours from
        another host. A record that Nova does not change takes none.
        """
        conf = self._conf.executor
        for end, host, limit in (
                ('from', task.from_host, conf.max_concurrent_per_source),
                ('to', task.to_host, conf.max_concurrent_per_destination)):
            flying = [f for f in known.flights
                      if (f.from_host if end == 'from' else f.to_host) == host]
            ours = {f.instance_uuid for f in flying} | {task.instance_uuid}
            others = {
                m.instance_uuid for m in changed[host]
                if m.type == nova_api.LIVE_MIGRATION and not m.ended
                and not m.is_unchanged(now)
                and (m.from_host if end == 'from' else m.to_host) == host} - ours
            taken = sum(1 for f in flying if f.instance_uuid not in known.slotless)
            if others and taken + len(others) >= limit:
                raise exception.PreFlightError(
                    instance_uuid=task.instance_uuid, rule='no-slot',
                    problem=f'{plurals.count_noun(len(others), "migration")} {end} {host} that '
                            f'others asked for, and {taken} of ours, are under way; [executor] '
                            f'allows {limit}')

    def _await_scheduler(self, task: model.Task, cluster: model.Cluster,
                         changed: list[nova_api.Migration], now: float) -> None:
        """Raise PreFlightError if nova-scheduler may not know of recent live migrations yet.

        A migration that ended in error may have moved its instance, too.
        """
        seconds = self._conf.executor.scheduler_instance_sync_interval
        if not seconds:
            return
        lately = [m for m in changed if m.type == nova_api.LIVE_MIGRATION and m.ended
                  and m.updated_at > now - seconds - stale_scheduler_view.MARGIN]
        stale_scheduler_view.check(
            task, cluster, engine_conf.build_options(self._conf),
            left={m.instance_uuid for m in lately if m.from_host == task.to_host},
            came={m.instance_uuid for m in lately if m.to_host == task.to_host})

    def log_in(self, task: model.Task) -> None:
        try:
            self._nova.api.log_in('a token')
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        try:
            if task.method.cold:
                response = self._nova.cold_migrate(task.instance_uuid, task.to_host, may_send)
            else:
                response = self._nova.live_migrate(
                    task.instance_uuid, task.to_host, copy_disks=self._may_copy_disks(task),
                    may_send=may_send)
        except api.ApiError as exc:
            raise nova_responses.build_request_error(task, exc) from None
        if 200 <= response.status_code < 300:
            request_id = response.headers.get('x-openstack-request-id')
            return str(request_id) if request_id else None
        raise self._judge_refusal(task, response)

    def _may_copy_disks(self, task: model.Task) -> bool:
        """Return whether Nova may copy disks.

        If not, Nova refuses a move whose disks the rule ``copies-disk`` could not know.
        """
        return self._conf.engine.allow_disk_copy or task.phase not in metrics.IMBALANCE

    def _judge_refusal(self, task: model.Task, response: Any) -> exception.MigrationError:
        """Return the error that Nova's unsuccessful response means."""
        uuid, status = task.instance_uuid, response.status_code
        said = self._nova.api.refusal(
            response, cold.POLICY if task.method.cold else POLICY)
        if status >= 500:
            return exception.AmbiguousSubmit(instance_uuid=uuid, problem=said)
        verdict = nova_responses.build_refusal(task, said)
        match status:
            case 400:
                return nova_responses.find_cell_error(self._nova, task, said) or verdict
            case 401:
                return exception.ServiceUnavailable(
                    instance_uuid=uuid, service=self._nova.api.service,
                    problem=f'the {task.method} migration could not be asked for: {said}')
            case 404:
                return nova_responses.build_deleted_error(task)
            case 409:
                return self._judge_conflict(task, verdict)
        if isinstance(verdict, exception.InstanceRefused):
            return verdict
        return exception.NovaClientError(
            instance_uuid=uuid, problem=f'Nova refused the {task.method} migration: {said}')

    def _judge_conflict(self, task: model.Task,
                        verdict: exception.MigrationError) -> exception.MigrationError:
        """Return the error that HTTP 409 means.

        :param verdict: the error if the instance itself is well.
        """
        uuid = task.instance_uuid
        try:
            instance = self._nova.server(uuid).instance
        except api.ApiError as exc:
            return (nova_responses.build_deleted_error(task) if exc.status == 404
                    else nova_responses.after_refusal(task, exc))
        if instance.task_state == collector.MIGRATING or cold.under_way(instance):
            return exception.AmbiguousSubmit(
                instance_uuid=uuid, problem='it says that the instance is migrating already')
        if instance.locked:
            return exception.PreFlightError(
                instance_uuid=uuid, rule='locked', problem='it was locked in the last moment')
        if instance.task_state is not None or not statuses.is_movable(
                instance, task.phase, engine_conf.build_options(self._conf)):
            # No fault of the destination.
            return exception.PreFlightError(
                instance_uuid=uuid, rule='not-active',
                problem=f'it became {instance.task_state or instance.status} in the last moment')
        if not statuses.is_method_accepted(task.method, instance.status):
            return _build_method_error(task, instance)
        return verdict

    def look(self, task: model.Task, marker: str) -> base.MigrationProgress:
        after, known = nova_responses.newest_before(task,
                                                    marker), nova_responses.find_reference(marker)
        try:
            if task.method.cold:
                return self._cold.look(task, after, known)
            return self._read_live_progress(task, after, known)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def bind_marker(self, marker: str, reference: str | None) -> str:
        if not uuidutils.is_uuid_like(reference):
            return marker
        try:
            known = json.loads(marker)
        except ValueError:
            return marker
        return json.dumps({**known, 'migration_uuid': reference}) if isinstance(
            known, dict) else marker

    def _find_ours(self, migrations: list[nova_api.Migration], task: model.Task, after: int,
                   known: str | None) -> nova_api.Migration | None:
        """Find our live migration.

        Until a look has found it, the requesting user tells it from one that an operator began by
        hand between the same hosts: Nova names the user of the newest.
        """
        found = nova_responses.find_own_migration(migrations, task, after, reference=known)
        if found is None or known is not None or any(
                m.id > found.id and m.type == nova_api.LIVE_MIGRATION for m in migrations):
            return found
        try:
            other = nova_responses.asked_by_another(
                self._nova, task.instance_uuid, nova_api.LIVE_MIGRATION)
        except api.ApiError:
            if not found.ended:
                raise
            other = None  # An ended migration does not wait for its user's name.
        if other is None:
            return found
        return nova_responses.find_own_migration([m for m in migrations if m.id < found.id], task,
                                                 after)

    def _read_live_progress(self, task: model.Task, after: int,
                            known: str | None) -> base.MigrationProgress:
        migrations = self._nova.migrations(task.instance_uuid)
        migration = self._find_ours(migrations, task, after, known)
        server = nova_responses.find_instance(self._nova, task)
        if migration is None and (
                server is None or server.task_state != collector.MIGRATING):
            # The migration may have begun and ended between the two reads.
            migrations = self._nova.migrations(task.instance_uuid)
            migration = self._find_ours(migrations, task, after, known)
        if migration is None and known is None:
            migration = nova_responses.find_migration_from_elsewhere(
                self._nova, migrations, task, after, nova_api.LIVE_MIGRATION,
                nova_api.LIVE_MIGRATION)
        if migration is None:
            return self._find_foreign(migrations, task, server, after) or self._judge_absence(
                migrations, server, after)
        task, source = nova_responses.adopt_source(task, migration)
        return dataclasses.replace(self._judge_migration(task, migration, server, migrations),
                                   source=source)

    def _judge_migration(self, task: model.Task, migration: nova_api.Migration,
                         server: model.Instance | None,
                         migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        """Return the progress of our live migration.

        :param task: with the source of the migration.
        :raises ApiError: Nova or Placement could not be read.
        """
        reference = migration.uuid
        match migration.status:
            case 'completed' | 'failed' | 'error' if (
                    server is not None and server.host == task.to_host
                    and server.task_state == collector.MIGRATING):
                return endings.judge_record(task, migration, server)
            case 'completed':
                return base.MigrationProgress(base.MigrationStage.COMPLETED, reference=reference)
            case 'cancelled' if server is None or server.status != nova_responses.ERROR:
                found = base.MigrationProgress(
                    base.MigrationStage.CANCELLED, 'aborted, or the nova-compute of its source was '
                                          'stopped', reference)
                if server is None:
                    return found
                aborted, user = nova_responses.read_abort(self._nova, task.instance_uuid)
                return dataclasses.replace(found, patience=self._find_patience(task),
                                           aborted=aborted, aborted_by=user)
        if server is None:
            return base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted',
                                          reference)
        if migration.ended:
            return self._judge_failure(task, migration, server, migrations)
        if server.task_state != collector.MIGRATING:
            found = endings.judge_record(task, migration, server)
            if found.ending is not base.MigrationStage.FAILED:
                return found
            return dataclasses.replace(found, held=allocation_cleanup.find_held_allocation(
                self._nova, self._reader.placement, task, migration))
        stage = (base.MigrationStage.WAITING if migration.status in nova_responses.WAITING
                 else base.MigrationStage.RUNNING)
        return base.MigrationProgress(stage, api.format_printable(migration.status), reference,
                                      phase=attempt_phases.OF_STATUS.get(migration.status),
                                      version=nova_responses.find_version(migration))

    def _find_patience(self, task: model.Task) -> float:
        """Return the seconds for which Nova may still write ERROR after it wrote ``cancelled``."""
        told = nova_responses.read_action_errors(self._nova, task.instance_uuid,
                                                 nova_api.LIVE_MIGRATION)
        return endings.PATIENCE if told is None else endings.ERROR_PATIENCE

    @staticmethod
    def _find_foreign(migrations: list[nova_api.Migration], task: model.Task,
                      server: model.Instance | None, after: int) -> base.MigrationProgress | None:
        """Return the end of a task whose move an operator made by hand; None: no operator did."""
        found = nova_responses.find_own_migration(migrations, task, after)
        if (found is None or found.status != 'completed' or server is None
                or endings.judge_record(task, found,
                                        server).ending is not base.MigrationStage.COMPLETED):
            return None
        return base.MigrationProgress(
            base.MigrationStage.LEFT, f'an operator has moved it to {task.to_host} by migration '
                                      f'{found.uuid}, and Nova has no migration of ours',
            ending=base.MigrationStage.COMPLETED)

    @staticmethod
    def _judge_absence(migrations: list[nova_api.Migration], server: model.Instance | None,
                       after: int) -> base.MigrationProgress:
        if server is None:
            return base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted')
        if server.task_state != collector.MIGRATING:
            return base.MigrationProgress(base.MigrationStage.ABSENT,
                                          'Nova has no migration of ours')
        foreign = [m for m in migrations if m.id > after and not m.ended]
        if foreign:
            return base.MigrationProgress(base.MigrationStage.ABSENT,
                                          'Nova carries out another migration of this '
                                          f'instance, {foreign[-1].uuid}')
        return base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded',
                                      version='not recorded')

    def _judge_failure(self, task: model.Task, migration: nova_api.Migration,
                       server: model.Instance,
                       migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        """Judge a migration that ended in error, perhaps after the instance had moved.

        :raises ApiError: Nova or Placement could not be read.
        """
        if server.host == task.to_host:
            return base.MigrationProgress(
                base.MigrationStage.COMPLETED,
                f'the migration ended as {migration.status}, but the '
                f'instance is on {task.to_host}', migration.uuid)
        details = nova_responses.read_action_errors(self._nova, task.instance_uuid,
                                                    nova_api.LIVE_MIGRATION)
        shared = next((text for text in details or () if NOT_SHARED in text), None)
        if shared is not None and task.phase in metrics.IMBALANCE:
            return base.MigrationProgress(
                base.MigrationStage.FAILED,
                f'it has disks on {task.from_host} itself, which imbalance moves do not copy. '
                'Allow it with [engine] allow_disk_copy, or set instance_storage = local. '
                f'Nova: migration {migration.status}: {api.format_printable(shared)}',
                migration.uuid,
                'copies-disk')
        found = nova_responses.build_failure(task, migration, details)
        if server.status == nova_responses.ERROR:
            aborted, user = nova_responses.read_abort(self._nova, task.instance_uuid)
            return dataclasses.replace(found, broken=True, place=server.host, aborted=aborted,
                                       aborted_by=user)
        if allocation_cleanup.is_superseded(migration, migrations):
            return nova_responses.defer_unexplained(found, details)
        held = allocation_cleanup.find_held_allocation(self._nova, self._reader.placement, task,
                                                       migration)
        full = overcommitment.find_problem(self._reader.placement, task, details or ())
        if held is None and full is not None:
            return dataclasses.replace(found, detail=full, rule='source-overcommitted')
        if held is None and server.task_state == collector.MIGRATING:
            held = 'Nova still calls the instance migrating'
        if held is not None:
            return base.MigrationProgress(base.MigrationStage.SETTLING, held, migration.uuid)
        aborted, user = (False, None) if details is None else nova_responses.read_abort(
            self._nova, task.instance_uuid)
        if aborted:
            # Nova ends the record before it puts the instance into ERROR.
            return dataclasses.replace(found, place=server.host, aborted=True, aborted_by=user,
                                       patience=endings.ERROR_PATIENCE)
        return nova_responses.defer_unexplained(found, details)

    def measured(self, task: model.Task, reference: str) -> Mapping[str, float]:
        if task.method.cold:
            return {}
        try:
            return nova_responses.read_phase_seconds(self._nova, task, reference)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def trace_late_request(self, task: model.Task, marker: str,
                           known: Collection[str]) -> model.Task:
        after = nova_responses.newest_before(task, marker)
        kind = nova_api.MIGRATION if task.method.cold else nova_api.LIVE_MIGRATION
        try:
            migrations = self._nova.migrations(task.instance_uuid)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None
        newest = max((m for m in migrations if m.id > after and m.type == kind
                      and m.to_host in (None, task.to_host) and m.uuid not in known),
                     key=lambda m: (not m.ended, m.to_host is not None, m.id), default=None)
        if newest is None or newest.from_host is None:
            return task
        return dataclasses.replace(task, from_host=newest.from_host)

    def confirm(self, task: model.Task, marker: str) -> None:
        self._cold.confirm(task)

    def abort(self, task: model.Task, marker: str) -> bool:
        if task.method.cold:
            return False
        uuid = task.instance_uuid
        try:
            migration = nova_responses.find_own_migration(
                self._nova.migrations(uuid), task, nova_responses.newest_before(task, marker),
                reference=nova_responses.find_reference(marker))
            if migration is None or migration.status not in ABORTABLE:
                return False
            response = self._nova.abort_live_migration(uuid, migration.id)
        except api.ApiError as exc:
            raise exception.NovaClientError(
                instance_uuid=uuid,
                problem=f'its live migration could not be aborted: {exc.problem}') from None
        if 200 <= response.status_code < 300:
            return True
        if response.status_code in (400, 404, 409):
            return False  # it has just ended, or cannot be stopped any more
        raise exception.NovaClientError(
            instance_uuid=uuid, problem='Nova refused to abort its live migration: '
                                        + self._nova.api.refusal(response, ABORT_POLICY))

    def reset_state(self, task: model.Task) -> bool:
        uuid = task.instance_uuid
        try:
            server = self._nova.server(uuid).instance
            if (server.status, server.host, server.task_state, server.power_state) != (
                    nova_responses.ERROR, task.from_host, None, RUNNING):
                return False
            response = self._nova.reset_state(uuid)
        except api.ApiError as exc:
            raise exception.NovaClientError(
                instance_uuid=uuid,
                problem=f'its state could not be reset: {exc.problem}') from None
        if 200 <= response.status_code < 300:
            return True
        raise exception.NovaClientError(
            instance_uuid=uuid, problem='Nova did not reset its state: '
                                        + self._nova.api.refusal(response, RESET_POLICY))

    def post_flight(self, task: model.Task) -> None:
        if task.method.cold:
            return self._cold.post_flight(task)
        server = nova_responses.read_moved_instance(self._nova, task)
        if server.task_state == collector.MIGRATING:
            raise exception.NovaClientError(
                instance_uuid=task.instance_uuid,
                problem='Nova has not finished its migration yet')
        if server.status not in (statuses.ACTIVE, statuses.PAUSED):
            raise exception.MigrationFailed(
                instance_uuid=task.instance_uuid,
                problem=f'it is on {task.to_host} but {server.status}')
        return None


def _as_planned(task: model.Task, instance: model.Instance) -> None:
    """Raise unless the planned method still fits the status of the instance.

    :raises PreFlightError: the instance was started or stopped since.
    """
    if not statuses.is_method_accepted(task.method, instance.status):
        raise _build_method_error(task, instance)


def _build_method_error(task: model.Task, instance: model.Instance) -> exception.PreFlightError:
    return exception.PreFlightError(
        instance_uuid=task.instance_uuid, rule='method-changed',
        problem=f'it is {instance.status} and a {task.method} migration was planned; the next '
                'plan knows')
