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


"""Imbalance moves copy no disks, unless the operator allows it.

Where the storage is not known here, Nova enforces this: the executor asks Nova to refuse (see
:meth:`kronos_nova.rebalancer.executors.nova.NovaExecutor.submit`).
"""

from collections.abc import Container

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.constraints import occupancy
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def has_local_storage(options: model.PlanningOptions) -> bool:
    """Return True when the disks are known to lie on the hosts themselves."""
    return options.instance_storage == 'local' or (
        options.instance_storage == 'auto' and options.enforce_placement_disk is True)


def sum_local_gb(instance: model.Instance, sharing: Container[str]) -> int:
    """Return the GiB of disks on the instance's own host; where unknown, an upper bound.

    :param sharing: UUIDs of sharing providers. Where one holds the instance's DISK_GB, its disks
        are on shared storage.
    """
    if any(resources.get(occupancy.DISK) and provider in sharing
           for provider, resources in instance.allocations.items()):
        return 0
    return instance.disk_gb if instance.local_disk_gb is None else instance.local_disk_gb


def copies_disk(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse to spread or pack an instance if Nova would copy its disks.

    Drains and repairs copy where they must. An instance with unknown disks counts as having some.
    """
    options = view.options
    instance = view.find_instance(move.instance_uuid)
    if (move.phase not in metrics.IMBALANCE or options.allow_disk_copy
            or options.instance_storage == 'shared'
            or instance is None or instance.local_disk_gb == 0):
        return None
    if options.instance_storage != 'local' and not view.has_local_disks(move.from_host):
        return None
    return model.Rejection(
        'copies-disk', f'instance {instance.uuid} has disks on {move.from_host} itself, which '
                       'imbalance moves copy only with allow_disk_copy')


COPIES_DISK_RULE = rules.Rule(
    copies_disk,
    codes={
        'copies-disk': rules.RejectionCode(
            meaning='Its disks would be copied.',
            remedy='[engine] allow_disk_copy, or instance_storage = shared where it is',
            retry=rules.RetryClass.FINAL)})
