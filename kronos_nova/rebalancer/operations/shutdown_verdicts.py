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

"""Verdicts on shutdowns: which instances a drain shuts down after a late live migration. Pure."""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer.planning import planner


@dataclasses.dataclass(frozen=True, slots=True)
class ShutdownVerdict:
    """Whether a drain may shut an instance down, move it cold and start it again.

    ``is_late``: its live migration was late, so the next move is that; else the verdict counts once
    one is late. ``obstacle``: why it may not, with the ``remedy``; both None: it may. ``waits``: the
    obstacle passes, and then it may.
    """

    instance_uuid: str
    is_late: bool
    obstacle: str | None = None
    remedy: str | None = None
    waits: bool = False


def judge_shutdown(view: views.CloudView, move: model.Move) -> ShutdownVerdict:
    """Judge the shutdown of an instance by a drain."""
    is_late = offline_drains.is_late(view, move)
    obstacle = offline_drains.find_obstacle(view, move, suppose_late=not is_late)
    return ShutdownVerdict(move.instance_uuid, is_late) if obstacle is None else ShutdownVerdict(
        move.instance_uuid, is_late, obstacle.detail, obstacle.remedy, obstacle.passes)


def judge_shutdowns(request: planner.PlanningInput, host: str,
                    risky: Collection[str]) -> tuple[ShutdownVerdict, ...]:
    """Judge the instances on a host whose live migration was late, and those that risk it.

    :param risky: instances that may not converge.
    """
    late = {uuid for uuid, source in request.history.late_drains.items() if source == host}
    concerned = [uuid for uuid in sorted(late.union(risky))
                 if (instance := request.cluster.instances.get(uuid)) is not None
                 and instance.host == host]
    view = cluster_view.ClusterView(request.cluster, request.options, request.history)
    return tuple(judge_shutdown(view, model.Move(uuid, host, '', model.Phase.EVACUATE))
                 for uuid in concerned)


def count_shutdowns(verdicts: Iterable[ShutdownVerdict]) -> tuple[int, int, int]:
    """Count the instances that are shut down, that are later, and that are if they are late."""
    possible = [verdict for verdict in verdicts if verdict.waits or verdict.obstacle is None]
    late = [verdict for verdict in possible if verdict.is_late]
    waiting = sum(verdict.waits for verdict in late)
    return len(late) - waiting, waiting, len(possible) - len(late)
