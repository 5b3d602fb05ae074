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

"""The destination has room for the instance's allocation."""

from kronos_nova import model
from kronos_nova.constraints import view as views

DISK = 'DISK_GB'


def claims(view: views.View, move: model.Move) -> model.Rejection | None:
    """What Placement itself would refuse to allocate.

    Source: placement.objects.allocation, check_capacity_exceeded: capacity is
    (total - reserved) * allocation_ratio; amount within min_unit, max_unit
    and a multiple of step_size. DISK_GB counts only with
    ``enforce_placement_disk``.
    """
    instance = view.instance(move.instance_uuid)
    host = view.host(move.to_host)
    if not view.options.enforce_placement_claims or not view.claims_known() or instance is None:
        return None
    if host is None or host.provider is None:
        return model.Rejection('no-provider', f'host {move.to_host} has no resource provider in '
                                              'Placement')
    for resource_class, amount in instance.claims.items():
        if not amount or resource_class == DISK and not view.options.enforce_placement_disk:
            continue
        inventory = host.provider.inventories.get(resource_class)
        if inventory is None:
            return model.Rejection('no-inventory', f'host {move.to_host} has no {resource_class}')
        if (amount < inventory.min_unit or amount > inventory.max_unit
                or amount % inventory.step_size):
            return model.Rejection('claim-unit', f'{amount} {resource_class} cannot be allocated '
                                                 f'on {move.to_host} in one piece')
        used = view.used(move.to_host, resource_class)
        if used + amount > inventory.capacity:
            return model.Rejection(
                'no-room', f'host {move.to_host} has {inventory.capacity - used:.0f} '
                           f'{resource_class} left, instance {instance.uuid} needs {amount}')
    return None
