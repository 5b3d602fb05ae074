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


"""Checks that Nova has released everything that a failed migration had claimed.

Until then Placement charges the instance twice, so the next destination could be refused for want
of room that is free, and Nova may still work on the instance.
"""

from kronos_nova import model
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import placement_api


def find_held_allocation(nova: nova_api.NovaApi, placement: placement_api.PlacementApi,
                         task: model.Task,
                         migration: nova_api.Migration) -> str | None:
    """Return a clause that names an allocation which Placement still holds; None: it holds none.

    While a migration is under way, its own UUID holds the allocation on the source, and the
    instance holds one on the destination.

    :raises ApiError: Nova or Placement could not be read.
    """
    if placement.allocations_of(migration.uuid):
        return f'migration {migration.uuid} still has its allocation in Placement'
    own = placement.allocations_of(task.instance_uuid)
    for node in nova.hypervisors_of(task.to_host):
        held_providers = sorted(own.keys() & placement.read_providers(in_tree=node.uuid).keys())
        if held_providers:
            return (f'instance {task.instance_uuid} still has an allocation on resource provider '
                    f'{held_providers[0]}, of {task.to_host}')
    return None


def is_superseded(migration: nova_api.Migration, others: list[nova_api.Migration]) -> bool:
    """Return whether a newer migration is under way, to which the allocations then belong."""
    return any(m.id > migration.id and not m.has_ended for m in others)
