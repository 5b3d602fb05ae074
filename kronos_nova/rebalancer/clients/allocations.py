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


"""The allocations of an instance, and whether a move can be judged by them."""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.clients import placement_api

#: A consumer's resources, by provider.
Allocations = Mapping[str, placement_api.Resources]


def attach_claims(instance: model.Instance, own: Allocations, host: model.Host) -> model.Instance:
    """Return the instance with its allocations on its host, pinned unless they are complete.

    :param own: all of the instance's, on any provider.
    :param host: the instance's host.
    """
    at_home = {p.uuid for p in host.tree}
    known = at_home | host.sharing
    away = sorted(own.keys() - known)
    pinned = instance.pinned
    if pinned is None and not at_home:
        pinned = 'no-provider: its host has no resource provider in Placement'
    elif pinned is None and away:
        pinned = (f'other-allocations: it has allocations on resource provider {away[0]}, which '
                  'is neither its host\'s nor shared with it')
    elif pinned is None and at_home.isdisjoint(own):
        pinned = 'no-allocations: Placement knows no allocation for it on its host'
    elif pinned is None and host.uuid not in own:
        # Source: nova.conductor.tasks.migrate, replace_allocation_with_migration.
        pinned = ('no-allocations: it has no allocation on the root resource provider of its host, '
                  'and Nova would leave its allocations on other providers there when it moves')
    return dataclasses.replace(_attach_allocations(instance, own, known), pinned=pinned)


def find_flight_claims(instance: model.Instance, own: Allocations,
                       migrations: Collection[Allocations], host: model.Host) -> model.Instance:
    """Return an instance under way with its claims, each counted once.

    These are the allocations on the host that Nova names; where there are none (a request that is
    just being scheduled), those elsewhere.

    Until it has moved, the migration holds the source and the instance the destination; in an
    evacuation the instance holds both. Source: nova.conductor.tasks.migrate,
    replace_allocation_with_migration.

    :param migrations: the allocations of its migrations.
    """
    at_home = {p.uuid for p in host.tree}
    holders = [holder for holder in (own, *migrations) if holder]
    for holder in holders:
        if not at_home.isdisjoint(holder):
            return _attach_allocations(instance, holder, at_home | host.sharing)
    return _attach_allocations(instance, holders[0], holders[0]) if holders else instance


def list_displaced(instances: Mapping[str, model.Instance], hosts: Mapping[str, model.Host],
                   by_consumer: Mapping[str, Allocations], moving: Collection[str]) -> list[str]:
    """Return UUIDs of instances whose allocations are not those of the host that Nova names.

    They have none in its provider tree, or some in another host's, as after an evacuation. Trees
    that are not known do not count.

    :param instances: by UUID.
    :param hosts: by name.
    :param by_consumer: all allocations.
    :param moving: UUIDs of instances under way, to leave out.
    """
    owners = {provider.uuid: name for name, host in hosts.items() for provider in host.tree}
    known = set(owners.values())
    displaced = []
    for uuid, instance in instances.items():
        places = {owners[provider] for provider in by_consumer.get(uuid, ()) if provider in owners}
        if uuid not in moving and places != {instance.host} & known:
            displaced.append(uuid)
    return displaced


def _attach_allocations(instance: model.Instance, held_resources: Allocations,
                        providers: Collection[str]) -> model.Instance:
    """Return the instance with the allocations that are on the providers."""
    allocations = {uuid: dict(held_resources[uuid]) for uuid in sorted(held_resources)
                   if uuid in providers}
    claims: dict[str, int] = {}
    for resources in allocations.values():
        for name, amount in resources.items():
            claims[name] = claims.get(name, 0) + amount
    return dataclasses.replace(instance, claims=claims, allocations=allocations)
