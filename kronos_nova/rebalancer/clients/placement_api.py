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

"""Placement's API, as values of the model. Read only."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import records

#: Train; providers know their parents and roots since 1.14.
VERSION = '1.31'

_POLICY = 'placement:resource_providers:'

#: Resource amounts by class.
Resources = dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """A provider in the list: who it is and whose tree it is in."""

    uuid: str
    name: str
    root_uuid: str


class PlacementApi:
    """Reads of Placement. Every method raises ApiError.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, connection: Any) -> None:
        self._api = api.Api(connection, 'Placement', 'placement')

    def negotiate(self) -> None:
        """:raises ApiError: Placement is older than 1.31."""
        offered = self._api.maximum()
        if offered < tuple(int(part) for part in VERSION.split('.')):
            raise api.ApiError('Placement', 'supported API versions',
                               f'it offers {".".join(map(str, offered))}, {VERSION} (Train) or '
                               'newer is needed')

    def providers(self, in_tree: str | None = None) -> dict[str, Listed]:
        """Every resource provider by UUID; Placement does not page.

        :param in_tree: only those of this provider's tree.
        """
        what = 'resource providers'
        body = self._api.get('/resource_providers', what, _POLICY + 'list', VERSION,
                             {'in_tree': in_tree} if in_tree is not None else None)
        out = {}
        for data in self._api.records(body, 'resource_providers', what):
            record = records.Record('Placement', 'resource provider', data, identity='uuid')
            listed = Listed(uuid=record.identity('uuid'), name=record.text('name'),
                            root_uuid=record.identity('root_provider_uuid'))
            out[listed.uuid] = listed
        return out

    def provider(self, uuid: str) -> model.Provider:
        """Inventories and usages of one provider, of the same generation if
        that can be had in two readings; usages may be newer than inventories
        otherwise.

        :raises ApiError: with status 404 when there is no such provider.
        """
        inventories, generation = self._inventories(uuid)
        used, newer = self._usages(uuid)
        if newer != generation:
            inventories, _generation = self._inventories(uuid)
            used, newer = self._usages(uuid)
        return model.Provider(uuid=uuid, generation=newer, inventories=inventories, used=used)

    def traits(self, uuid: str) -> frozenset[str]:
        body = self._get(f'/resource_providers/{uuid}/traits', f'traits of provider {uuid}',
                         _POLICY + 'traits:list')
        return frozenset(self._record(uuid, body).texts('traits'))

    def allocations_on(self, uuid: str) -> dict[str, Resources]:
        """What each consumer (instance or migration) has on one provider."""
        body = self._get(f'/resource_providers/{uuid}/allocations',
                         f'allocations on provider {uuid}', _POLICY + 'allocations:list')
        allocations = self._record(uuid, body).part('allocations')
        return {consumer: allocations.part(consumer).amounts('resources')
                for consumer in self._record(uuid, body).identities('allocations')}

    def allocations_of(self, consumer: str) -> dict[str, Resources]:
        """What a consumer has, by provider; empty when it has nothing."""
        what = f'allocations of instance {consumer}'
        body = self._get(f'/allocations/{consumer}', what, 'placement:allocations:list')
        record = records.Record('Placement', 'allocations of', body | {'uuid': consumer},
                                identity='uuid')
        by_provider = record.part('allocations')
        return {provider: by_provider.part(provider).amounts('resources')
                for provider in record.identities('allocations')}

    def _inventories(self, uuid: str) -> tuple[dict[str, model.Inventory], int]:
        body = self._get(f'/resource_providers/{uuid}/inventories',
                         f'inventories of provider {uuid}', _POLICY + 'inventories:list')
        record = self._record(uuid, body)
        found = record.part('inventories')
        out = {name: inventory(found.part(name)) for name in record.mapping('inventories')}
        return out, record.amount('resource_provider_generation')

    def _usages(self, uuid: str) -> tuple[Resources, int]:
        body = self._get(f'/resource_providers/{uuid}/usages', f'usages of provider {uuid}',
                         _POLICY + 'usages')
        record = self._record(uuid, body)
        return record.amounts('usages'), record.amount('resource_provider_generation')

    @staticmethod
    def _record(uuid: str, body: Mapping[str, Any]) -> records.Record:
        return records.Record('Placement', 'resource provider', {**body, 'uuid': uuid},
                              identity='uuid')

    def _get(self, path: str, what: str, policy: str) -> dict[str, Any]:
        return self._api.get(path, what, policy, VERSION)


def inventory(record: records.Record) -> model.Inventory:
    return model.Inventory(
        total=record.amount('total'), reserved=record.amount('reserved'),
        allocation_ratio=record.ratio('allocation_ratio'),
        min_unit=record.amount('min_unit', 1), max_unit=record.amount('max_unit', 1),
        step_size=record.amount('step_size', 1))


def claims_of(instance: model.Instance, allocations: Mapping[str, Resources],
              provider_uuid: str | None, root_of: Mapping[str, str]) -> model.Instance:
    """The instance with its claims, or pinned where they are not simple.

    Simple is: all of its allocations are on its host's root provider. A move
    of anything else needs more than this code knows of Placement.

    :param allocations: the instance's own, by provider.
    :param provider_uuid: its host's root provider, None when there is none.
    :param root_of: root provider by provider, of those known.
    """
    at_home = allocations.get(provider_uuid, {}) if provider_uuid is not None else {}
    away = sorted(p for p in allocations if p != provider_uuid)
    pinned = instance.pinned
    if pinned is None and provider_uuid is None:
        pinned = 'no-provider: its host has no resource provider in Placement'
    elif pinned is None and away:
        nested = root_of.get(away[0]) == provider_uuid
        kind = 'nested-allocations' if nested else 'other-allocations'
        pinned = f'{kind}: it has allocations on resource provider {away[0]}'
    elif pinned is None and not at_home:
        pinned = 'no-allocations: Placement knows no allocation of it on its host'
    return dataclasses.replace(instance, claims=dict(at_home), pinned=pinned)
