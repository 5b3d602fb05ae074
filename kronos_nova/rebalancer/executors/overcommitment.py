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

"""A source that uses more than its capacity, and a Placement that keeps its instances there.

Before a migration Nova hands the source's allocation from the instance to the migration.
Placement before 14.0 checks this write like a new claim and refuses it where the provider
uses more than its capacity. No destination and no wait changes that.

Source: nova.conductor.tasks.migrate, replace_allocation_with_migration;
placement.objects.allocation, _check_capacity_exceeded.
"""

from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api

#: Nova's error text when Placement has refused the write.
NOT_REPLACED = 'Unable to replace instance claim on source'


def find_problem(placement: placement_api.PlacementApi, task: model.Task,
                 details: Sequence[str]) -> str | None:
    """Return which source provider is over its capacity; None: Nova failed for another reason.

    :param details: Nova's error texts about the failed migration.
    :raises ApiError: Placement could not be read.
    """
    if not any(NOT_REPLACED in text for text in details):
        return None
    for uuid, allocation in sorted(placement.allocations_of(task.instance_uuid).items()):
        try:
            used, _ = placement.read_usages(uuid)
            inventories, _ = placement.read_inventories(uuid)
        except api.ApiError as exc:
            if exc.status == 404:
                continue
            raise
        for name in sorted(allocation.keys() & inventories.keys()):
            capacity = inventories[name].capacity
            if used.get(name, 0) > capacity:
                return (
                    f'resource provider {uuid} of {task.from_host} uses {used[name]} {name} of '
                    f'{capacity:.0f}, and Placement before 14.0 lets no instance leave such a '
                    f'provider. Raise its allocation ratio, or upgrade Placement. Nova: '
                    f'{NOT_REPLACED}')
    return None
