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

"""The stop of a drain: enable the host again, and end its moves that have not begun."""

from collections.abc import Sequence
import dataclasses
import shlex

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.operations import drain_starts
from kronos_nova.rebalancer.operations import nova_users
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.strategies import drain_requests

#: Tries to cancel tasks while executors begin others.
TRIES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class StoppedDrain:
    """A drain that is over.

    ``changed``: this call enabled the host; else it was enabled already. ``cancelled``: tasks of
    the drain that ended. ``running``: tasks that Nova was asked for; they go on to their end.
    """

    changed: bool
    cancelled: tuple[model.Task, ...]
    running: tuple[model.Task, ...]


def stop_drain(session: sessions.DatabaseSession, service: compute_service.ComputeService, *,
               reason: str = '', force: bool = False,
               options: model.PlanningOptions | None = None) -> StoppedDrain:
    """Enable the host, unless it is enabled, and cancel the moves of its drain.

    It reads no cloud: so a drain can be stopped while no engine runs.

    :param service: the host's nova-compute for the person who asks.
    :param reason: kept with the person's name.
    :param force: also when the host is disabled for a reason for which no engine drains it.
    :param options: those of the engine; None: the configuration has them.
    :raises KronosException: the host does not exist, it is disabled for another reason, the
        database cannot be written, or Nova refused.
    """
    store, host = session.existing_store, service.host
    options = options or engine_conf.build_options(session.conf)

    def record(command: str, text: str) -> None:
        store.audit.record_command(session.operator, command, f'host {host}', text)

    try:
        uuid, present = service.read_service()
        if not present.enabled:
            if not force:
                _refuse_without_force(host, present, options)
            record(audits.DRAIN_STOPPED, audits.append_flags(reason, force=force))
            try:
                service.enable(uuid)
            except api.ApiError as e:
                record('drain stop failed', str(e))
                raise
    except api.ApiError as e:
        raise nova_users.make_error(e, host, _format_manual_steps(host, changed=e.sent)) from None
    # Executors refuse moves of this drain from now on.
    cancelled = _cancel_moves(session, host, reason)
    store.drain_orders.end_orders([host])
    running = [row.task for row in store.tasks.list_tasks_in_states(rows.MAYBE_IN_NOVA)
               if row.task.from_host == host and row.task.phase is model.Phase.EVACUATE]
    return StoppedDrain(not present.enabled, tuple(cancelled), tuple(running))


def _refuse_without_force(host: str, service: model.Service,
                          options: model.PlanningOptions) -> None:
    """Raise unless engines empty the host, or would if its nova-compute were up.

    :raises ConflictError: they would not; force skips this check.
    """
    why = ('evacuate_disabled_hosts is not set' if not options.evacuate_disabled_hosts else
           drain_requests.find_drain_refusal(
               dataclasses.replace(service, state='up', forced_down=False), options))
    if why is not None:
        raise exception.ConflictError(
            path='request', field=host,
            problem=f'it is disabled {drain_starts.format_disabled_reason(service)}, and that is '
                    f'no drain: {why}',
            remedy='Nothing is changed. With force the host is enabled all the same')


def _cancel_moves(session: sessions.DatabaseSession, host: str, reason: str) -> list[model.Task]:
    """Cancel the tasks of the host's drain that Nova was not asked for; return all that ended."""
    store = session.existing_store
    why = f'the drain of host {host} was stopped{f": {reason}" if reason else ""}'
    ended: list[model.Task] = []
    for left in reversed(range(TRIES)):
        drained = {row.task.plan_id for row in store.tasks.list_tasks_in_states(rows.NOT_IN_NOVA)
                   if row.task.from_host == host and row.task.phase is model.Phase.EVACUATE}
        try:
            for plan_id in sorted(drained):
                # Without instances the whole plan would be cancelled.
                if instances := _list_cancellable(session, plan_id, host):
                    ended += operator_decisions.cancel_plan(session, plan_id, reason=why,
                                                            instances=instances)
        except (exception.ConflictError, exception.DecisionRefused):
            # An executor has begun one task meanwhile.
            if not left:
                raise
            continue
        break
    return ended


def _list_cancellable(session: sessions.DatabaseSession, plan_id: str,
                      host: str) -> Sequence[str]:
    """Return the instances whose moves belong to the host's drain and have not begun."""
    live = [row.task for row in session.existing_store.tasks.list_plan_tasks(plan_id)
            if not row.task.state.is_terminal]
    return [task.instance_uuid for task in drain_precedence.list_drain_tasks(live, host)
            if task.state in rows.NOT_IN_NOVA]


def _format_manual_steps(host: str, *, changed: bool) -> str:
    """Return the next step after Nova failed to enable the host.

    :param changed: Nova may have enabled it nevertheless.
    """
    command = f'openstack compute service set --enable {shlex.quote(host)} nova-compute'
    return ('See openstack compute service list whether it is enabled now; if not, enable it '
            f'yourself: {command}' if changed else
            f'Nothing is changed. Or enable it yourself: {command}')
