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

"""Driver that migrates through Nova's API: its requests, and the meaning of Nova's refusals.

:mod:`preflight_check` judges a move before its request; :mod:`live` and :mod:`cold` find the
progress of its migration.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import json
from typing import Any, Self

from oslo_config import cfg
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import metrics
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import cold
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import forced_completion
from kronos_nova.rebalancer.executors import live
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.executors import preflight_check
from kronos_nova.rebalancer.executors import preflight_reader
from kronos_nova.rebalancer.executors import submitted_migration

POLICY = 'os_compute_api:os-migrate-server:migrate_live:host'
RESET_POLICY = 'os_compute_api:os-admin-actions:reset_state'
#: Nova's power state of a guest that runs.
RUNNING = 1


class NovaExecutor(base.Executor):
    """Driver that migrates through Nova, one step per call.

    :param connection: an openstacksdk connection.
    """

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        return cls(conf, connect())

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        reader = preflight_reader.FreshReader(conf, connection)
        self._nova = reader.nova
        self._pre_flight = preflight_check.PreFlightCheck(conf, reader)
        self._live = live.LiveMigration(self._nova, reader.placement)
        self._cold = cold.ColdMigration(self._nova, reader.placement)
        self._forced = forced_completion.ForcedCompletion(
            self._nova, engine_conf.build_options(conf))

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        return self._pre_flight.check_move(task, known)

    def log_in(self, task: model.Task) -> None:
        try:
            self._nova.api.log_in('a token')
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        try:
            if task.method.is_cold:
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
        refusal_text = self._nova.api.describe_refusal(
            response, cold.POLICY if task.method.is_cold else POLICY)
        if status >= 500:
            return exception.AmbiguousSubmit(instance_uuid=uuid, problem=refusal_text)
        refusal = nova_responses.build_refusal(task, refusal_text)
        match status:
            case 400:
                return nova_responses.find_cell_error(self._nova, task, refusal_text) or refusal
            case 401:
                return exception.ServiceUnavailable(
                    instance_uuid=uuid, service=self._nova.api.service,
                    problem=f'the {task.method} migration could not be asked for: {refusal_text}')
            case 404:
                return nova_responses.build_deleted_error(task)
            case 409:
                return self._judge_conflict(task, refusal)
        if isinstance(refusal, exception.InstanceRefused):
            return refusal
        return exception.NovaClientError(
            instance_uuid=uuid, problem=f'Nova refused the {task.method} migration: {refusal_text}')

    def _judge_conflict(self, task: model.Task,
                        refusal: exception.MigrationError) -> exception.MigrationError:
        """Return the error that HTTP 409 means.

        :param refusal: the error if the instance itself is well.
        """
        uuid = task.instance_uuid
        try:
            instance = self._nova.read_server(uuid).instance
        except api.ApiError as exc:
            return (nova_responses.build_deleted_error(task) if exc.status == 404
                    else nova_responses.after_refusal(task, exc))
        if instance.task_state == collector.MIGRATING or cold.is_under_way(instance):
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
            return preflight_check.build_method_error(task, instance)
        return refusal

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        after = nova_responses.newest_before(task, marker)
        known = nova_responses.find_reference(marker)
        try:
            return self._choose_kind(task).read_progress(task, after, known)
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

    def read_phase_seconds(self, task: model.Task, reference: str) -> Mapping[str, float]:
        if task.method.is_cold:
            return {}
        try:
            return nova_responses.read_phase_seconds(self._nova, task, reference)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def trace_late_request(self, task: model.Task, marker: str,
                           known: Collection[str]) -> model.Task:
        after = nova_responses.newest_before(task, marker)
        record_type = self._choose_kind(task).RECORD_TYPE
        try:
            migrations = self._nova.list_migrations(task.instance_uuid)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None
        newest = max((m for m in migrations if m.id > after and m.type == record_type
                      and m.to_host in (None, task.to_host) and m.uuid not in known),
                     key=lambda m: (not m.has_ended, m.to_host is not None, m.id), default=None)
        if newest is None or newest.from_host is None:
            return task
        return dataclasses.replace(task, from_host=newest.from_host)

    def confirm(self, task: model.Task, marker: str) -> None:
        self._cold.confirm_migration(task)

    def abort(self, task: model.Task, marker: str) -> bool:
        return not task.method.is_cold and self._live.abort(task, marker)

    def read_copy(self, task: model.Task, marker: str) -> escalation.CopySample | None:
        try:
            return self._forced.read_copy(task, marker)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def force_completion(self, task: model.Task, marker: str,
                         may_send: Callable[[], bool]) -> str | None:
        return self._forced.force_completion(task, marker, may_send)

    def find_shutdown_obstacle(self, task: model.Task, now: float) -> str | None:
        try:
            return self._forced.find_obstacle(task, now)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def read_forced_seconds(self, task: model.Task) -> float | None:
        try:
            return self._forced.read_seconds(task)
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None

    def reset_state(self, task: model.Task) -> bool:
        uuid = task.instance_uuid
        try:
            server = self._nova.read_server(uuid).instance
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
                                        + self._nova.api.describe_refusal(response, RESET_POLICY))

    def post_flight(self, task: model.Task) -> None:
        self._choose_kind(task).post_flight(task)

    def _choose_kind(self, task: model.Task) -> submitted_migration.SubmittedMigration:
        return self._cold if task.method.is_cold else self._live
