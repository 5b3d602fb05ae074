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

"""Operators' requests for moves: repeat or revert moves of a stored plan, swap two instances.

Today's rules judge every move. Executors carry the stored plan out like any other plan.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.operations import submit
from kronos_nova.rebalancer.operations import swap_requests
from kronos_nova.rebalancer.store import plan_approvals


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatRow:
    """An instance, its requested move and the verdict; ``task_id`` is '' without a stored task."""

    instance_uuid: str
    from_host: str
    to_host: str
    verdict: str
    task_id: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatVerdicts:
    """The verdicts on the requested moves; ``plan_id`` is '' without a stored plan."""

    rows: tuple[RepeatRow, ...]
    plan_id: str = ''


def retry_plan(session: sessions.Session, plan_id: str, *, reason: str,
               instances: Sequence[str] = (), partly: bool = False,
               dry_run: bool = False) -> RepeatVerdicts:
    """Try the moves of a plan again that failed or were cancelled.

    :param reason: stored with the new plan, as the operator's name is.
    :param instances: UUIDs; only their moves are tried again. Empty: all moves.
    :param partly: store the allowed moves even if the rules refuse others.
    :param dry_run: store nothing.
    :raises KronosException: an input cannot be read, or the plan has no such move.
    """
    return _request_moves(session, plan_id, build_retry_move, 'retried', reason, instances, partly,
                          dry_run)


def revert_plan(session: sessions.Session, plan_id: str, *, reason: str,
                instances: Sequence[str] = (), partly: bool = False,
                dry_run: bool = False) -> RepeatVerdicts:
    """Move back the instances that a plan has moved; the parameters are those of ``retry_plan``.

    :raises KronosException: an input cannot be read, or the plan has no such move.
    """
    return _request_moves(session, plan_id, build_revert_move, 'reverted', reason, instances,
                          partly, dry_run)


def build_revert_move(row: Any) -> requested_moves.RequestedMove | None:
    """Return a completed move's way back to its source host; None unless it is completed."""
    return (requested_moves.RequestedMove(row.task.instance_uuid, row.task.to_host,
                                          (row.task.from_host,))
            if row.task.state is TaskState.COMPLETED else None)


def build_retry_move(row: Any) -> requested_moves.RequestedMove | None:
    """Return a failed or cancelled move with its destinations, else None.

    Hosts that were tried already come last.
    """
    task = row.task
    if task.state not in (TaskState.FAILED, TaskState.CANCELLED):
        return None
    tried = [attempt.to_host for attempt in row.attempts]
    hosts = dict.fromkeys((task.to_host, *task.alternates, *tried))
    return requested_moves.RequestedMove(task.instance_uuid, task.from_host,
                                         tuple(sorted(hosts, key=lambda host: host in tried)))


def _request_moves(session: sessions.Session, plan_id: str,
                   build_move: Callable[[Any], requested_moves.RequestedMove | None], verb: str,
                   reason: str, instances: Sequence[str], partly: bool,
                   dry_run: bool) -> RepeatVerdicts:
    """Plan the requested moves and store them, unless this is a dry run or the rules refuse.

    :param build_move: returns the requested move for a task's row; None where the task has none.
    :param verb: the operator's action, which is stored with the plan.
    """
    if not dry_run:
        _check_moves_are_made(session, 'command line')
        session.forget_cloud()
    store = session.existing_store
    mark, stored, tasks = store.plans.read_live_work(), store.plans.find_plan(
        plan_id), store.tasks.list_plan_tasks(
            plan_id)
    cloud = session.cloud_for_requests
    if stored is None:
        raise _make_config_error(plan_id, 'no such plan',
                                 'kronos plan list shows the newest.')
    scope = stored.plan.scope
    wishes = _list_requested_moves(plan_id, instances, tasks, build_move)
    cluster = cloud.clusters().get(scope)
    if cluster is None:
        raise _make_config_error(plan_id, f'scope {scope} is not planned any more',
                                 'Only what [engine] aggregates and include_unassigned_hosts name '
                                 'is.')
    answer = requested_moves.plan(session.build_request(cluster, cloud), wishes)
    if answer.plan.reason is not None:
        raise _make_config_error(scope, answer.plan.reason, 'Ask again when that is over.')
    if dry_run or not answer.plan.moves or (answer.refused and not partly):
        return _build_result(answer, wishes, cluster, [])
    return _build_result(answer, wishes, cluster, submit.store_requested_plan(
        session.conf, session.policies, store, answer.plan, cluster, mark,
        plan_approvals.OperatorDecision(session.operator, f'plan {plan_id}: {reason}'), verb))


def _check_moves_are_made(session: sessions.Session, path: str) -> None:
    """Refuse a request that no executor would carry out.

    :raises ConfigError: the configuration is that of a dry run.
    """
    if session.conf.engine.dry_run:
        raise exception.ConfigError(
            path=path, field='[engine] dry_run', problem='it is set, and then nothing is moved',
            remedy='Ask with --dry-run, or unset it.')


def _list_requested_moves(plan_id: str, instances: Sequence[str], rows: Sequence[Any],
                          build_move: Callable[[Any], requested_moves.RequestedMove | None],
                          ) -> list[requested_moves.RequestedMove]:
    known = {row.task.instance_uuid: row for row in rows}
    for uuid in instances:
        if uuid not in known:
            raise _make_config_error(uuid, f'plan {plan_id} has no move of such an instance',
                                     'kronos plan show lists them.')
        if build_move(known[uuid]) is None:
            raise _make_config_error(uuid, f'its task is {known[uuid].task.state}',
                                     'Completed moves are reverted, failed and cancelled ones '
                                     'retried, and moves that have not begun are cancelled.')
    found = [w for row in rows if (w := build_move(row)) is not None
             and (not instances or w.instance_uuid in instances)]
    if not found:
        raise _make_config_error(plan_id, 'it has no move of which that could be asked',
                                 'Completed moves are reverted, failed and cancelled ones retried; '
                                 'kronos plan show has their states.')
    return found


def _build_result(answer: requested_moves.RequestedPlan,
                  wishes: Sequence[requested_moves.RequestedMove],
                  cluster: model.Cluster, tasks: Sequence[model.Task]) -> RepeatVerdicts:
    moves = {m.instance_uuid: m for m in answer.plan.moves}
    of = {t.instance_uuid: t for t in tasks}
    rows = []
    for w in wishes:
        uuid = w.instance_uuid
        instance, move, no = (cluster.instances.get(uuid), moves.get(uuid),
                              answer.refused.get(uuid))
        rows.append(RepeatRow(
            uuid, '' if instance is None else instance.host,
            ', '.join(w.hosts) if move is None else move.to_host,
            f'{no.rule}: {no.detail}' if no is not None else
            f'wave {move.wave}' if move is not None else '',
            of[uuid].task_id if uuid in of else ''))
    return RepeatVerdicts(tuple(rows), tasks[0].plan_id if tasks else '')


def swap_instances(session: sessions.Session, uuids: tuple[str, str], *, reason: str,
                   parking: str | None = None, dry_run: bool = False) -> RepeatVerdicts:
    """Have two instances exchange their hosts, both or none.

    :param reason: stored with the new plan, as the operator's name is.
    :param parking: the only host where one instance may wait; None: any host of the scope.
    :param dry_run: store nothing.
    :raises KronosException: an input cannot be read, or the instances cannot change places at all.
    """
    if len(set(uuids)) == 1:
        raise _make_config_error('INSTANCE', f'{uuids[0]} is named twice',
                                 'Give the UUIDs of two instances that are to change places.')
    if not dry_run:
        _check_moves_are_made(session, 'kronos.conf')
        session.forget_cloud()
    store = session.existing_store
    mark, cloud = store.plans.read_live_work(), session.cloud_for_requests
    instances = [cloud_state.find_instance(cloud, uuid, 'no such instance')
                 for uuid in uuids]
    cluster = cloud_state.find_instance_cluster(cloud, instances[0])
    answer = swap_requests.plan(session.build_request(cluster, cloud), uuids, parking)
    plan = answer.plan
    if plan.reason is not None:
        raise _make_config_error(cluster.scope, plan.reason, 'Ask again when that is over.')
    if not plan.moves:
        ends = [i.host for i in instances]
        return RepeatVerdicts(tuple(
            RepeatRow(uuid, ends[n], ends[1 - n],
                      f'{answer.refused[uuid].rule}: {answer.refused[uuid].detail}')
            for n, uuid in enumerate(uuids)))
    tasks = [] if dry_run else submit.store_requested_plan(
        session.conf, session.policies, store, plan, cluster, mark,
        plan_approvals.OperatorDecision(session.operator, reason), 'swapped')
    return RepeatVerdicts(_build_swap_rows(plan, tasks), tasks[0].plan_id if tasks else '')


def _build_swap_rows(plan: model.Plan, tasks: Sequence[model.Task]) -> tuple[RepeatRow, ...]:
    """Return the rows in the order of moves; the move from the parking host has no task yet."""
    swap, = plan.swaps
    of = {task.instance_uuid: task.task_id for task in tasks}
    rows = [RepeatRow(m.instance_uuid, m.from_host, m.to_host, f'wave {m.wave}',
                      of.get(m.instance_uuid, '')) for m in plan.moves]
    if swap.parking is not None:
        rows.append(RepeatRow(swap.first, swap.parking, plan.moves[1].from_host,
                              'when the other one has moved'))
    return tuple(rows)


def _make_config_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='command line', field=field, problem=problem, remedy=remedy)
