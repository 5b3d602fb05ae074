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

"""Instances that the moves of a phase may take, as arrays that follow each move."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import disks
from kronos_nova.constraints import live
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.simulation import arrays


class InstancePermissions:
    """N instances by phase: which ones no rule about the instance alone holds.

    ``held_back``: why an instance may not move for balance or packing. The plan moves each
    instance once.

    :param mode: that of the policies.
    :param index: number of each instance.
    :param classes: all resource classes that the instances claim.
    """

    def __init__(self, view: cluster_view.ClusterView, mode: str,
                 instances: Iterable[model.Instance], index: Mapping[str, int],
                 classes: Iterable[str]) -> None:
        self.held_back: dict[str, model.Rejection] = {}
        special = _list_special_instances(view, instances, index, classes)
        self.movable = _mark_permitted(
            view, special, model.Phase.PACK if mode == 'pack' else model.Phase.SPREAD, index,
            self.held_back)
        self.repairable = _mark_permitted(view, special, model.Phase.AFFINITY, index)
        self.drainable = _mark_permitted(view, special, model.Phase.EVACUATE, index)
        self._all = self.movable, self.repairable, self.drainable
        self._at_first = tuple(permitted.copy() for permitted in self._all)

    def revoke_moves(self, n: int) -> None:
        """Forbid every further move of instance number n."""
        for permitted in self._all:
            permitted[n] = False

    def restore_moves(self, n: int) -> None:
        """Take back ``revoke_moves``."""
        for permitted, first in zip(self._all, self._at_first, strict=True):
            permitted[n] = first[n]


def mark_disk_copying(view: cluster_view.ClusterView,
                      instances: Sequence[model.Instance]) -> arrays.Bools:
    """Mark the instances that the rule ``copies-disk`` holds, in their order."""
    storage = view.options.instance_storage
    if (view.options.allow_disk_copy or storage == 'shared'
            or (storage == 'auto' and not view.history.local_disk_hosts)):
        return np.zeros(len(instances), dtype=np.bool_)
    return np.fromiter(
        (disks.copies_disk(view, model.Move(
            i.uuid, i.host, '', model.Phase.SPREAD)) is not None for i in instances),
        dtype=np.bool_, count=len(instances))


def _list_special_instances(view: cluster_view.ClusterView, instances: Iterable[model.Instance],
                            index: Mapping[str, int],
                            classes: Iterable[str]) -> list[model.Instance]:
    """List the instances that a rule may hold on their own account; rules judge only these."""
    projects, history = view.options.opted_out_projects, view.history
    # Where no instance claims a device, the claims of each one need no look.
    may_have_device = (live.has_device_settings if live.PLAIN_CLAIMS.issuperset(classes)
                       else live.needs_device_check)
    odd = {i.uuid: i for i in instances
           if (i.status != statuses.ACTIVE or i.task_state is not None or i.locked
               or i.pinned is not None or i.opted_out is not None
               or (i.contracts and contracts.may_hold_moves(i))
               or i.project_id in projects or may_have_device(i))}
    for uuid in {*view.options.pinned_instances, *history.cooling,
                 *history.quarantined, *history.refused_everywhere, *history.quiet_waits,
                 *(f.instance_uuid for f in view.cluster.flights)}:
        if uuid in index:
            odd[uuid] = view.cluster.instances[uuid]
    return list(odd.values())


def _mark_permitted(view: cluster_view.ClusterView, special: Iterable[model.Instance],
                    phase: model.Phase, index: Mapping[str, int],
                    held_back: dict[str, model.Rejection] | None = None) -> arrays.Bools:
    """Mark the instances that no rule about the instance alone holds in this phase.

    :param held_back: takes up the rejections, by instance.
    """
    permitted = np.ones(len(index), dtype=np.bool_)
    for instance in special:
        rejection = constraints.check_alone(
            view, model.Move(instance.uuid, instance.host, '', phase))
        if rejection is not None:
            permitted[index[instance.uuid]] = False
            if held_back is not None:
                held_back[instance.uuid] = rejection
    return permitted
