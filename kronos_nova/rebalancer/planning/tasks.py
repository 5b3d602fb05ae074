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

"""Tasks for executors, made from a plan's moves."""

from collections import Counter
from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import disks
from kronos_nova.constraints import metrics
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.planning import provider_tree_digest

#: Lower is sooner: operators wait for a drain, not for a percent of balance.
PRIORITY = {model.Phase.EVACUATE: 1, model.Phase.AFFINITY: 3, model.Phase.SPREAD: 5,
            model.Phase.PACK: 5, model.Phase.REQUESTED: 2}

#: Phases that follow scores, and the seconds they may wait at least.
STALE = (model.Phase.SPREAD, model.Phase.PACK)
MIN_WAIT = 1200.0


def from_plan(plan: model.Plan, cluster: model.Cluster, policy_names: tuple[str, ...], *,
              plan_id: str, now: float, stagger_seconds: float, max_retries: int,
              new_id: Callable[[], str], cooldown: float = 600.0,
              options: model.PlanningOptions | None = None,
              history: model.MoveHistory | None = None,
              approval_seconds: float | None = None) -> list[model.Task]:
    """Make one task per move, staggered by ``stagger_seconds`` inside each wave.

    :param new_id: returns a new UUID.
    :param options: say which disks are copied; None: the flavor's disks are.
    :param history: says which drains shut instances down, and their deadlines; None: none does,
        and they have none.
    :param approval_seconds: for how long the tasks wait for approval; None: they need none.
    """
    in_wave: Counter[int] = Counter()
    tasks = []
    limits = begin_within(cooldown)
    following = {swap.second for swap in plan.swaps}
    methods = choose_methods(plan, cluster, options, history)
    for move in plan.moves:
        instance, method = cluster.instances[move.instance_uuid], methods[move.instance_uuid]
        is_offline = method is model.MoveMethod.OFFLINE
        within = approval_seconds
        if within is None and move.instance_uuid not in following:
            within = limits.get(move.phase)
        tasks.append(model.Task(
            task_id=new_id(), plan_id=plan_id, aggregate=plan.scope,
            instance_uuid=move.instance_uuid, instance_name=instance.name,
            from_host=move.from_host, to_host=move.to_host, phase=move.phase,
            policy_names=policy_names, improvement=move.improvement,
            priority=PRIORITY[move.phase], wave=move.wave, requires=move.requires,
            alternates=move.alternates, alternate_improvements=move.alternate_improvements,
            # A guest is shut down once: the attempts at all destinations count.
            max_retries=0 if is_offline else max_retries, counts_alternates=is_offline,
            not_before=now + in_wave[move.wave] * stagger_seconds, created_at=now,
            deadline=None if within is None else now + within,
            state=(model.TaskState.QUEUED if approval_seconds is None
                   else model.TaskState.PENDING),
            memory_mb=instance.memory_mb,
            method=method,
            disk_gb=(instance.disk_gb if options is None
                     else copied_gb(move, instance, options, cluster.sharing)),
            trees=list_tree_digests(move, cluster, options),
            arrive_by=_find_drain_deadline(move, cluster, history)))
        in_wave[move.wave] += 1
    return tasks


def _find_drain_deadline(move: model.Move, cluster: model.Cluster,
                         history: model.MoveHistory | None) -> float | None:
    """Return the deadline of the drain to which the move belongs; None: it has none."""
    if history is None or move.phase is not model.Phase.EVACUATE:
        return None
    return model.find_drain_deadline(history.drain_deadlines,
                                     cluster.services.get(move.from_host))


def choose_methods(plan: model.Plan, cluster: model.Cluster,
                   options: model.PlanningOptions | None = None,
                   history: model.MoveHistory | None = None) -> dict[str, model.MoveMethod]:
    """Return the method of each move of a plan, by instance.

    :param options: None, as for the history: no drain shuts an instance down.
    """
    methods = {move.instance_uuid: statuses.choose_method(
        cluster.instances[move.instance_uuid].status) for move in plan.moves}
    late = [] if options is None or history is None else [
        move for move in plan.moves if move.instance_uuid in history.late_drains]
    if late and options is not None:
        view = cluster_view.ClusterView(cluster, options, history)
        methods |= {move.instance_uuid: model.MoveMethod.OFFLINE for move in late
                    if offline_drains.is_admitted(view, move)}
    return methods


def begin_within(cooldown: float) -> Mapping[model.Phase, float]:
    """Return the seconds within which a task has to begin, by its phase.

    A spread or pack that has not begun within twice the scope's cooldown (at least 20 minutes) is
    dropped: its scores are old and the next plan has newer ones. Drains and repairs stay wanted:
    they have no limit here. Nor has the second half of a swap: when the first one has moved, one
    more migration is needed either way.
    """
    return dict.fromkeys(STALE, max(MIN_WAIT, 2 * cooldown))


def list_tree_digests(move: model.Move, cluster: model.Cluster,
                      options: model.PlanningOptions | None) -> tuple[model.TreeDigest, ...]:
    """Return the digests of the provider trees of all hosts that the move may touch.

    There are none where claims are not judged.
    """
    if options is not None and not options.enforce_placement_claims:
        return ()
    hosts = dict.fromkeys((move.from_host, move.to_host, *move.alternates))
    digests = (provider_tree_digest.compute_tree_digest(cluster.hosts[name]) for name in hosts
               if name in cluster.hosts)
    return tuple(mark for mark in digests if mark is not None)


def copied_gb(move: model.Move, instance: model.Instance, options: model.PlanningOptions,
              sharing: Container[str] = ()) -> int:
    """Return the most GiB of disks that the move copies, as far as is known.

    :param sharing: UUIDs of sharing providers.
    """
    shared = options.instance_storage == 'shared'
    if shared or (move.phase in metrics.IMBALANCE and not options.allow_disk_copy):
        return 0
    return disks.sum_local_gb(instance, sharing)
