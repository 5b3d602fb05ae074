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

"""Plan and store the moves of ``kronos swap``."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cli import _again
from kronos_nova.cli import _cloud
from kronos_nova.rebalancer.operations import swap_requests
from kronos_nova.rebalancer.store import plan_approvals

#: The operator's action, which is stored with the plan.
VERB = 'swapped'


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A request to swap two instances. Without ``carry_out`` nothing is stored."""

    uuids: tuple[str, str]
    parking: str | None
    said: plan_approvals.Said
    carry_out: bool


def request_swap(prog: str, files: Sequence[str], asked: Asked) -> _again.Found:
    """Plan the swap and store it, unless this is a dry run or the rules refuse.

    :raises KronosException: an input cannot be read, or the instances cannot change places at all.
    """
    if len(set(asked.uuids)) == 1:
        raise exception.ConfigError(
            path='command line', field='INSTANCE', problem=f'{asked.uuids[0]} is named twice',
            remedy='Give the UUIDs of two instances that are to change places.')
    conf, policy_set = _cloud.read_configuration(
        prog, files, 'Has two instances change places.', live=True)
    if asked.carry_out and conf.engine.dry_run:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] dry_run',
            problem='it is set, and then nothing is moved',
            remedy='Ask with --dry-run, or unset it.')
    marks: list[Any] = []
    seen = _cloud.read_live_cloud(conf, policy_set, undecided=False, writes=True,
                                  before=lambda store: marks.append(store.seen()))
    instances = [_require_instance(seen, uuid) for uuid in asked.uuids]
    cluster = _cloud.of_instance(seen, instances[0])
    answer = swap_requests.plan(_cloud.request(conf, policy_set, seen, cluster), asked.uuids,
                                asked.parking)
    plan = answer.plan
    if plan.reason is not None:
        raise exception.ConfigError(
            path='command line', field=cluster.scope, problem=plan.reason,
            remedy='Ask again when that is over.')
    if not plan.moves:
        ends = [i.host for i in instances]
        return _again.Found(tuple(
            _again.Row(uuid, ends[n], ends[1 - n],
                f'{answer.refused[uuid].rule}: {answer.refused[uuid].detail}')
            for n, uuid in enumerate(asked.uuids)))
    tasks = _again.store_wanted(conf, policy_set, plan, cluster, marks[0], asked.said,
                                VERB) if asked.carry_out else []
    return _again.Found(_build_rows(plan, tasks), tasks[0].plan_id if tasks else '')


def _require_instance(seen: Any, uuid: str) -> model.Instance:
    found: model.Instance | None = seen.cluster.instances.get(uuid)
    if found is None:
        raise _cloud.make_not_found_error('INSTANCE', uuid, seen.cluster.instances,
                                          'no such instance')
    return found


def _build_rows(plan: model.Plan, tasks: Sequence[model.Task]) -> tuple[_again.Row, ...]:
    """Return the rows in the order of moves; the move from the parking host has no task yet."""
    swap, = plan.swaps
    of = {task.instance_uuid: task.task_id for task in tasks}
    rows = [_again.Row(m.instance_uuid, m.from_host, m.to_host, f'wave {m.wave}',
                of.get(m.instance_uuid, '')) for m in plan.moves]
    if swap.parking is not None:
        rows.append(_again.Row(swap.first, swap.parking, plan.moves[1].from_host,
                        'when the other one has moved'))
    return tuple(rows)
