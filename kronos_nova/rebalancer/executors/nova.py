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

"""Live migration through Nova's API."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import json
import time
from typing import Any, Self

from oslo_config import cfg

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import metrics
from kronos_nova.constraints import view
from kronos_nova.rebalancer import collector
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import fresh

#: Rejections that are Placement's: another destination may have room.
NO_ROOM = frozenset({'no-provider', 'no-inventory', 'claim-unit', 'no-room'})

#: In Nova's InvalidSharedStorage: a migration without copied disks was asked
#: for, and there are some to copy.
NOT_SHARED = 'is not on shared storage'

POLICY = 'os_compute_api:os-migrate-server:migrate_live:host'

ERROR = 'ERROR'

_WAITING = frozenset({'accepted', 'queued', 'preparing', 'pre-migrating'})


class NovaExecutor(base.Executor):
    """One live migration, step by step.

    The marker is JSON: ``migration_id``, the newest migration of the instance
    before ours, and ``time``, when it was read (for people).

    :param connection: an openstacksdk connection.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(conf, connect())

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self._reader = fresh.FreshReader(conf, connection)
        self._nova = self._reader.nova

    def pre_flight(self, task: model.Task, known: base.Known) -> str:
        now = time.time()
        try:
            found = self._reader.read(task, now)
        except api.ApiError as exc:
            if exc.status == 404 and exc.what == f'server {task.instance_uuid}':
                raise _gone(task) from None
            raise _unread(task, exc) from None
        instance = found.cluster.instances[task.instance_uuid]
        if not instance.host:
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid, rule='moved-away',
                problem=f'it is {instance.status} and on no host any more')
        try:
            cluster = found.cluster.scoped(task.aggregate)
        except KeyError:
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid, rule='out-of-scope',
                problem=f'aggregate {task.aggregate} no longer exists') from None
        self._judge(task, cluster, known)
        self._find_slots(task, known, now)
        return json.dumps({'migration_id': found.newest, 'time': now})

    def _judge(self, task: model.Task, cluster: model.Cluster, known: base.Known) -> None:
        move = model.Move(task.instance_uuid, task.from_host, task.to_host, task.phase)
        cluster = dataclasses.replace(cluster, flights=(*cluster.flights, *known.flights))
        rejection = constraints.check(
            view.ClusterView(cluster, engine_conf.options(self._conf), known.history,
                             draining=known.draining), move, constraints.PRE_FLIGHT)
        if rejection is None:
            return
        kind = (exception.PlacementRejected if rejection.rule in NO_ROOM
                else exception.PreFlightError)
        raise kind(instance_uuid=task.instance_uuid, rule=rejection.rule,
                   problem=f'not moved to {task.to_host}, rule {rejection.rule}: '
                           f'{rejection.detail}')

    def _find_slots(self, task: model.Task, known: base.Known, now: float) -> None:
        """Migrations that others asked Nova for take slots of a host as ours
        do; ours were counted when the task was claimed."""
        ours = {f.instance_uuid for f in known.flights} | {task.instance_uuid}
        conf = self._conf.executor
        for end, host, limit in (
                ('from', task.from_host, conf.max_concurrent_per_source),
                ('to', task.to_host, conf.max_concurrent_per_destination)):
            try:
                found = self._nova.migrations_of_host(host, now)
            except api.ApiError as exc:
                raise _unread(task, exc) from None
            others = {m.instance_uuid for m in found if m.type == nova_api.LIVE_MIGRATION
                      and (m.from_host if end == 'from' else m.to_host) == host} - ours
            taken = sum(1 for f in known.flights
                        if (f.from_host if end == 'from' else f.to_host) == host)
            if others and taken + len(others) >= limit:
                raise exception.PreFlightError(
                    instance_uuid=task.instance_uuid, rule='no-slot',
                    problem=f'{len(others)} migrations {end} {host} that others asked for, and '
                            f'{taken} of ours, are under way; [executor] allows {limit}')

    def submit(self, task: model.Task) -> str | None:
        try:
            response = self._nova.live_migrate(
                task.instance_uuid, task.to_host, copy_disks=self._copies(task))
        except api.ApiError as exc:
            if exc.sent:
                raise exception.AmbiguousSubmit(
                    instance_uuid=task.instance_uuid, problem=exc.problem) from None
            raise exception.NovaClientError(
                instance_uuid=task.instance_uuid,
                problem=f'the live migration could not be asked for: {exc.problem}') from None
        if 200 <= response.status_code < 300:
            request_id = response.headers.get('x-openstack-request-id')
            return str(request_id) if request_id else None
        raise self._refused(task, response)

    def _copies(self, task: model.Task) -> bool:
        """Nova is to refuse what the rule ``copies-disk`` could not know."""
        return self._conf.engine.allow_disk_copy or task.phase not in metrics.IMBALANCE

    def _refused(self, task: model.Task, response: Any) -> exception.MigrationError:
        """What an answer that is no success means."""
        uuid, status = task.instance_uuid, response.status_code
        said = self._nova.api.refusal(response, POLICY)
        if status >= 500:
            return exception.AmbiguousSubmit(instance_uuid=uuid, problem=said)
        match status:
            case 400:
                return exception.MigrationFailed(
                    instance_uuid=uuid, problem=f'Nova refused host {task.to_host}: {said}')
            case 404:
                return _gone(task)
            case 409:
                return self._conflict(task, said)
        return exception.NovaClientError(
            instance_uuid=uuid, problem=f'Nova refused the live migration: {said}')

    def _conflict(self, task: model.Task, said: str) -> exception.MigrationError:
        uuid = task.instance_uuid
        try:
            instance = self._nova.server(uuid).instance
        except api.ApiError as exc:
            return _gone(task) if exc.status == 404 else _unread(task, exc)
        if instance.task_state == collector.MIGRATING:
            return exception.AmbiguousSubmit(
                instance_uuid=uuid, problem='it says that the instance is migrating already')
        if instance.locked:
            return exception.PreFlightError(
                instance_uuid=uuid, rule='locked', problem='it was locked in the last moment')
        if instance.status != 'ACTIVE' or instance.task_state is not None:
            # No fault of the destination.
            return exception.PreFlightError(
                instance_uuid=uuid, rule='not-active',
                problem=f'it became {instance.task_state or instance.status} in the last moment')
        return exception.MigrationFailed(
            instance_uuid=uuid, problem=f'Nova refused the live migration: {said}')

    def look(self, task: model.Task, marker: str) -> base.Progress:
        after = _newest_before(task, marker)
        try:
            return self._look(task, after)
        except api.ApiError as exc:
            raise _unread(task, exc) from None

    def _look(self, task: model.Task, after: int) -> base.Progress:
        migrations = self._nova.migrations(task.instance_uuid)
        migration = ours(migrations, task, after)
        server = self._server(task)
        if migration is None and (
                server is None or server.task_state != collector.MIGRATING):
            # It may have come and gone between the two readings.
            migrations = self._nova.migrations(task.instance_uuid)
            migration = ours(migrations, task, after)
        if migration is None:
            return self._absent(migrations, server, after)
        reference = migration.uuid
        match migration.status:
            case 'completed':
                return base.Progress(base.Stage.COMPLETED, reference=reference)
            case 'cancelled':
                return base.Progress(
                    base.Stage.CANCELLED, 'aborted, or the nova-compute of its source was '
                                          'stopped', reference)
        if server is None:
            return base.Progress(base.Stage.CANCELLED, 'the instance was deleted', reference)
        if migration.ended:
            return self._failed(task, migration, server)
        stage = base.Stage.WAITING if migration.status in _WAITING else base.Stage.RUNNING
        return base.Progress(stage, api.printable(migration.status), reference)

    @staticmethod
    def _absent(migrations: list[nova_api.Migration], server: model.Instance | None,
                after: int) -> base.Progress:
        if server is None:
            return base.Progress(base.Stage.ABSENT, 'the instance is gone')
        if server.task_state != collector.MIGRATING:
            return base.Progress(base.Stage.ABSENT, 'Nova has no migration of ours')
        foreign = [m for m in migrations if m.id > after and not m.ended]
        if foreign:
            return base.Progress(base.Stage.ABSENT, 'Nova carries out another migration of it, '
                                                    f'{foreign[-1].uuid}')
        return base.Progress(base.Stage.WAITING, 'accepted, not yet recorded')

    def _failed(self, task: model.Task, migration: nova_api.Migration,
                server: model.Instance) -> base.Progress:
        """An end in error, which may have come after the instance had moved."""
        if server.host == task.to_host:
            return base.Progress(
                base.Stage.COMPLETED, f'the migration ended as {migration.status}, but the '
                                      f'instance is on {task.to_host}', migration.uuid)
        why = self._why(task.instance_uuid)
        if NOT_SHARED in why and task.phase in metrics.IMBALANCE:
            return base.Progress(
                base.Stage.FAILED,
                f'it has disks on {task.from_host} itself, which imbalance moves do not copy. '
                'Allow it with [engine] allow_disk_copy, or set instance_storage = local. '
                f'Nova: migration {migration.status}: {why}', migration.uuid, 'copies-disk')
        return base.Progress(
            base.Stage.FAILED, f'Nova: migration {migration.status}' + (f': {why}' if why else ''),
            migration.uuid, broken=server.status == ERROR)

    def _why(self, uuid: str) -> str:
        """What Nova recorded about the newest live migration; may be empty."""
        try:
            for action in self._nova.actions(uuid):
                if action.get('action') != nova_api.LIVE_MIGRATION:
                    continue
                events = self._nova.action_events(uuid, str(action.get('request_id')))
                details = [said for e in events if (said := _said(e))]
                return api.printable(next(
                    (d for d in details if NOT_SHARED in d),
                    details[-1] if details else action.get('message') or ''))
        except api.ApiError:
            return ''
        return ''

    def _server(self, task: model.Task) -> model.Instance | None:
        """The instance, None when it is gone."""
        try:
            return self._nova.server(task.instance_uuid).instance
        except api.ApiError as exc:
            if exc.status == 404:
                return None
            raise

    def post_flight(self, task: model.Task) -> None:
        try:
            server = self._server(task)
        except api.ApiError as exc:
            raise _unread(task, exc) from None
        uuid = task.instance_uuid
        if server is None:
            raise exception.MigrationFailed(
                instance_uuid=uuid, problem='it was deleted after its migration')
        if server.status == ERROR:
            raise exception.InstanceInError(
                instance_uuid=uuid, problem=f'since its migration to {task.to_host}, on '
                                            f'{server.host or "no host"}')
        if server.host != task.to_host:
            raise exception.MigrationFailed(
                instance_uuid=uuid, problem=f'it is on {server.host or "no host"} and not on '
                                            f'{task.to_host}')
        if server.task_state == collector.MIGRATING:
            raise exception.NovaClientError(
                instance_uuid=uuid, problem='Nova has not finished its migration yet')
        if server.status != 'ACTIVE':
            raise exception.MigrationFailed(
                instance_uuid=uuid, problem=f'it is on {task.to_host} but {server.status}')


def ours(migrations: list[nova_api.Migration], task: model.Task,
         after: int) -> nova_api.Migration | None:
    """Our migration among those of the instance, None when there is none.

    Newer than the marker, a live migration from our source, and to nowhere
    else than our destination: that stays empty until it is scheduled, and in
    a migration that never was. Of several the newest counts, since only the
    last can be under way.
    """
    found = [m for m in migrations
             if m.id > after and m.type == nova_api.LIVE_MIGRATION
             and m.from_host == task.from_host and m.to_host in (None, task.to_host)]
    return max(found, key=lambda m: m.id, default=None)


def _said(event: Mapping[str, Any]) -> str:
    """Why an action's event failed: its details, below 2.84 the last line of
    its traceback; empty when it did not."""
    if event.get('details'):
        return str(event['details'])
    lines = str(event.get('traceback') or '').strip().splitlines()
    return lines[-1] if lines else ''


def _newest_before(task: model.Task, marker: str) -> int:
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


def _gone(task: model.Task) -> exception.PreFlightError:
    return exception.PreFlightError(
        instance_uuid=task.instance_uuid, rule='no-such-instance',
        problem='it was deleted; there is nothing left to move')


def _unread(task: model.Task, error: api.ApiError) -> exception.NovaClientError:
    return exception.NovaClientError(
        instance_uuid=task.instance_uuid,
        problem=f'could not read {error.what} from {error.service}: {error.problem}')
