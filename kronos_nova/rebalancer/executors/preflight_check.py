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

"""Pre-flight of a move through Nova: whether it is still legal and wanted, by fresh data.

It asks the rules, looks for a free slot on both hosts, and waits until nova-scheduler knows of the
migrations that have just ended.
"""

from collections.abc import Mapping
import dataclasses
import json

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import rules
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.executors import preflight_reader
from kronos_nova.rebalancer.executors import reshapes
from kronos_nova.rebalancer.executors import stale_scheduler_view

LOG = logging.getLogger(__name__)

#: Rules by which Placement rejects a move: another destination may have room.
NO_ROOM = constraints.select_codes(rules.RetryClass.NO_ROOM)


class PreFlightCheck:
    """Check of one move after another."""

    def __init__(self, conf: cfg.ConfigOpts, reader: preflight_reader.FreshReader) -> None:
        self._conf = conf
        self._reader = reader

    def check_move(self, task: model.Task, known: base.StoredFacts) -> str:
        """Return the marker of a move that is still legal and wanted: see :class:`base.Executor`.

        The marker is JSON: ``migration_id``, the id of the instance's newest migration before ours,
        and ``time``, when we read it (for people).
        """
        now = known.now
        try:
            reading = self._reader.read(task, now)
        except api.ApiError as exc:
            if exc.status == 404 and exc.what == f'server {task.instance_uuid}':
                raise nova_responses.build_deleted_error(task) from None
            raise nova_responses.build_read_error(task, exc) from None
        instance = reading.cluster.instances[task.instance_uuid]
        if not instance.host:
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid, rule='moved-away',
                problem=f'it is {instance.status} and on no host any more')
        try:
            cluster = reading.cluster.replace_scope(task.aggregate,
                                                    self._list_planned_aggregates(task, known))
        except KeyError:
            raise exception.PreFlightError(
                instance_uuid=task.instance_uuid, rule='out-of-scope',
                problem=f'aggregate {task.aggregate} no longer exists') from None
        reshapes.refuse_reshaped_trees(task, cluster)
        move = model.Move(task.instance_uuid, task.from_host, task.to_host, task.phase)
        view = cluster_view.ClusterView(
            dataclasses.replace(cluster, flights=(*cluster.flights, *known.flights)),
            self._build_options(), _select_history(task, known), draining=known.draining,
            returning=[task.instance_uuid] if known.returning else [])
        _check_rules(view, move)
        _check_method(view, move, task, instance)
        changed = {host: self._read_host_migrations(task, host, now)
                   for host in (task.from_host, task.to_host)}
        self._find_slots(task, known, changed, now)
        self._await_scheduler(task, cluster, changed[task.to_host], now)
        zones = [cluster.services[h].zone for h in (task.from_host, task.to_host)]
        if zones[0] != zones[1]:
            LOG.info('%s: the move from %s to %s is one from zone %s to zone %s',
                     model.format_task(task), task.from_host, task.to_host, *zones)
        return json.dumps({'migration_id': reading.newest, 'time': now})

    def _build_options(self) -> model.PlanningOptions:
        """Return the options of a move that begins now."""
        options = engine_conf.build_options(self._conf)
        return dataclasses.replace(options, contracts=dataclasses.replace(
            options.contracts, begin_within=0.0))

    def _list_planned_aggregates(self, task: model.Task, known: base.StoredFacts) -> list[str]:
        """Return the configured aggregates that an engine plans now, as the task's engine does.

        An aggregate without an engine owns no host. The list is empty when the task's own
        aggregate is not among them: then its engine's aggregates are unknown.
        """
        if task.aggregate not in known.scopes:
            return []
        named = [n for n in self._conf.engine.aggregates if n in known.scopes]
        return named if task.aggregate in named else []

    def _read_host_migrations(self, task: model.Task, host: str,
                              now: float) -> list[nova_api.Migration]:
        try:
            return self._reader.nova.migrations_of_host(host, now)
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
                if m.type == nova_api.LIVE_MIGRATION and not m.has_ended
                and not m.is_unchanged(now)
                and (m.from_host if end == 'from' else m.to_host) == host} - ours
            used_slots = sum(1 for f in flying if f.instance_uuid not in known.slotless)
            if others and used_slots + len(others) >= limit:
                raise exception.PreFlightError(
                    instance_uuid=task.instance_uuid, rule='no-slot',
                    problem=f'{plurals.count_noun(len(others), "migration")} {end} {host} that '
                            f'others asked for, and {used_slots} of ours, are under way; '
                            f'[executor] allows {limit}')

    def _await_scheduler(self, task: model.Task, cluster: model.Cluster,
                         changed: list[nova_api.Migration], now: float) -> None:
        """Raise PreFlightError if nova-scheduler may not know of recent live migrations yet.

        A migration that ended in error may have moved its instance, too.
        """
        seconds = self._conf.executor.scheduler_instance_sync_interval
        if not seconds:
            return
        lately = [m for m in changed if m.type == nova_api.LIVE_MIGRATION and m.has_ended
                  and m.updated_at > now - seconds - stale_scheduler_view.MARGIN]
        stale_scheduler_view.refuse_stale_view(
            task, cluster, engine_conf.build_options(self._conf),
            departed={m.instance_uuid for m in lately if m.from_host == task.to_host},
            arrived={m.instance_uuid for m in lately if m.to_host == task.to_host})


def _select_history(task: model.Task, known: base.StoredFacts) -> model.MoveHistory:
    """Return the history; late drains have a part in it only where the task shuts down."""
    if task.method is model.MoveMethod.OFFLINE:
        return known.history
    return dataclasses.replace(known.history, late_drains={})


def _check_rules(view: cluster_view.ClusterView, move: model.Move) -> None:
    rejection = constraints.judge_move(view, move, constraints.PRE_FLIGHT)
    if rejection is None:
        return
    kind = (exception.PlacementRejected if rejection.rule in NO_ROOM
            else exception.PreFlightError)
    raise kind(instance_uuid=move.instance_uuid, rule=rejection.rule,
               problem=f'not moved to {move.to_host}, rule {rejection.rule}: {rejection.detail}')


def _check_method(view: cluster_view.ClusterView, move: model.Move, task: model.Task,
                  instance: model.Instance) -> None:
    """Raise unless the planned method still fits the instance's status and contract.

    :raises PreFlightError: the instance was started or stopped since, or its contract forbids it.
    """
    if not statuses.is_method_accepted(task.method, instance.status):
        raise build_method_error(task, instance)
    if task.method is model.MoveMethod.OFFLINE and task.phase is model.Phase.EVACUATE:
        found = offline_drains.find_obstacle(view, move)
        obstacle = None if found is None else f'{task.method}: {found.detail}'
    else:
        obstacle = contracts.find_method_obstacle(view, move, task.method)
    if obstacle is not None:
        raise exception.PreFlightError(instance_uuid=task.instance_uuid, rule='contract-method',
                                       problem=f'it is not moved {obstacle}')


def build_method_error(task: model.Task, instance: model.Instance) -> exception.PreFlightError:
    return exception.PreFlightError(
        instance_uuid=task.instance_uuid, rule='method-changed',
        problem=f'it is {instance.status} and a {task.method} migration was planned; the next '
                'plan knows')
