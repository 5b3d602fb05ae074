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

"""Revert or retry moves of a stored plan, judged by today's rules."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cli import _cloud
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.operations import submit
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import plan_approvals


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A request to revert or retry moves of a plan.

    ``moves``: the instances whose moves are requested; empty: all. Without ``carry_out`` nothing is
    stored; with ``partly`` the allowed moves are stored even if the rules refuse others.
    """

    plan_id: str
    moves: Sequence[str]
    said: plan_approvals.Said
    carry_out: bool
    partly: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An instance, its requested move and the verdict; ``task_id`` is '' without a stored task."""

    instance_uuid: str
    from_host: str
    to_host: str
    verdict: str
    task_id: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The verdicts on the requested moves; ``plan_id`` is '' without a stored plan."""

    rows: tuple[Row, ...]
    plan_id: str = ''


def build_revert_move(row: Any) -> requested_moves.Wish | None:
    """Return a completed move's way back to its source host; None unless it is completed."""
    return (requested_moves.Wish(row.task.instance_uuid, row.task.to_host, (row.task.from_host,))
            if row.task.state is TaskState.COMPLETED else None)


def once_more(row: Any) -> requested_moves.Wish | None:
    """Return a failed or cancelled move with its destinations, else None.

    Hosts that were tried already come last.
    """
    task = row.task
    if task.state not in (TaskState.FAILED, TaskState.CANCELLED):
        return None
    tried = [attempt.to_host for attempt in row.attempts]
    hosts = dict.fromkeys((task.to_host, *task.alternates, *tried))
    return requested_moves.Wish(task.instance_uuid, task.from_host,
                                tuple(sorted(hosts, key=lambda host: host in tried)))


def request_moves(prog: str, files: Sequence[str], asked: Asked,
                  wish: Callable[[Any], requested_moves.Wish | None], verb: str) -> Found:
    """Plan the requested moves and store them, unless this is a dry run or the rules refuse.

    :param wish: returns the requested move for a task's row; None where the task has none.
    :param verb: the operator's action, which is stored with the plan.
    :raises KronosException: an input cannot be read, or the plan has no such move.
    """
    conf, policy_set = _cloud.read_configuration(
        prog, files, 'Moves instances of a plan once more.', live=True)
    if asked.carry_out and conf.engine.dry_run:
        raise _make_config_error(prog, '[engine] dry_run', 'it is set, and then nothing is moved',
                                 'Ask with --dry-run, or unset it.')
    stored: dict[str, Any] = {}

    def read_plan_rows(store: api.Store) -> None:
        stored['mark'] = store.seen()
        stored['plan'] = store.plan(asked.plan_id)
        stored['tasks'] = store.tasks(asked.plan_id)

    seen = _cloud.read_live_cloud(conf, policy_set, undecided=False, writes=True,
                                  before=read_plan_rows)
    if stored['plan'] is None:
        raise _make_config_error(prog, asked.plan_id, 'no such plan',
                                 'kronos plan list shows the newest.')
    scope = stored['plan'].plan.scope
    wishes = _list_requested_moves(prog, asked, stored['tasks'], wish)
    cluster = seen.clusters().get(scope)
    if cluster is None:
        raise _make_config_error(prog, asked.plan_id, f'scope {scope} is not planned any more',
                                 'Only what [engine] aggregates and include_unassigned_hosts name '
                                 'is.')
    request = _cloud.request(conf, policy_set, seen, cluster)
    answer = requested_moves.plan(request, wishes)
    if answer.plan.reason is not None:
        raise _make_config_error(prog, scope, answer.plan.reason, 'Ask again when that is over.')
    stop = not asked.carry_out or not answer.plan.moves or (answer.refused and not asked.partly)
    said = dataclasses.replace(asked.said, reason=f'plan {asked.plan_id}: {asked.said.reason}')
    rows = [] if stop else store_wanted(conf, policy_set, answer.plan, cluster, stored['mark'],
                                        said, verb)
    return _build_result(answer, wishes, cluster, rows)


def _list_requested_moves(prog: str, asked: Asked, rows: Sequence[Any],
                          wish: Callable[[Any], requested_moves.Wish
                                         | None]) -> list[requested_moves.Wish]:
    known = {row.task.instance_uuid: row for row in rows}
    for uuid in asked.moves:
        if uuid not in known:
            raise _make_config_error(prog, uuid,
                                     f'plan {asked.plan_id} has no move of such an instance',
                                     'kronos plan show lists them.')
        if wish(known[uuid]) is None:
            raise _make_config_error(prog, uuid, f'its task is {known[uuid].task.state}',
                                     'Completed moves are reverted, failed and cancelled ones '
                                     'retried, and moves that have not begun are cancelled.')
    found = [w for row in rows if (w := wish(row)) is not None
             and (not asked.moves or w.instance_uuid in asked.moves)]
    if not found:
        raise _make_config_error(prog, asked.plan_id, 'it has no move of which that could be asked',
                                 'Completed moves are reverted, failed and cancelled ones retried; '
                                 'kronos plan show has their states.')
    return found


def store_wanted(conf: Any, policy_set: Any, plan: model.Plan, cluster: model.Cluster,
                 mark: Any, said: plan_approvals.Said, verb: str) -> list[model.Task]:
    """Store the plan and its tasks, so that executors begin them.

    :param mark: the database's state before the cloud was read; see :meth:`api.Store.seen`.
    :param said: the operator's decision.
    :param verb: the operator's action, which is stored with the plan.
    :raises StoreError: another plan was stored since; nothing was written.
    """
    store = api.Store(conf)
    try:
        return submit.store_requested_plan(conf, policy_set, store, plan, cluster, mark, said, verb)
    finally:
        store.close()


def _build_result(answer: requested_moves.Answer, wishes: Sequence[requested_moves.Wish],
                  cluster: model.Cluster,
                  tasks_: Sequence[model.Task]) -> Found:
    moves = {m.instance_uuid: m for m in answer.plan.moves}
    of = {t.instance_uuid: t for t in tasks_}
    rows = []
    for w in wishes:
        uuid = w.instance_uuid
        instance, move, no = (cluster.instances.get(uuid), moves.get(uuid),
                              answer.refused.get(uuid))
        rows.append(Row(
            uuid, '' if instance is None else instance.host,
            ', '.join(w.hosts) if move is None else move.to_host,
            f'{no.rule}: {no.detail}' if no is not None else
            f'wave {move.wave}' if move is not None else '',
            of[uuid].task_id if uuid in of else ''))
    return Found(tuple(rows), tasks_[0].plan_id if tasks_ else '')


def _make_config_error(prog: str, field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='command line', field=field, problem=problem, remedy=remedy)
