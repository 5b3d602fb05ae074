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
#: The field with the generation of an answer.
GENERATION = 'resource_provider_generation'

#: A class of which nearly every host has one unit left.
_SEARCHED_CLASS = 'MEMORY_MB'

#: Resource amounts by class.
Resources = dict[str, int]

#: The trait of a provider that shares its resources with the providers that have
#: an aggregate in common with it. Source: os_traits.
SHARES = 'MISC_SHARES_VIA_AGGREGATE'


@dataclasses.dataclass(frozen=True, slots=True)
class ListedProvider:
    """A provider in the list: its identity, its place in a tree, and its generation at that time.

    A root has no ``parent_uuid``.
    """

    uuid: str
    name: str
    root_uuid: str
    parent_uuid: str | None = None
    generation: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderSummary:
    """A provider as a search for allocation candidates shows it, without its generation.

    :ivar used: sums of allocations, also 0, by each resource class of its inventory.
    """

    used: Resources
    traits: frozenset[str]


class PlacementApi:
    """Reads of Placement. Every method raises ApiError.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, connection: Any) -> None:
        self._api = api.ServiceApi(connection, 'Placement', 'placement')

    def negotiate_microversions(self) -> None:
        """Check that Placement offers the microversion.

        :raises ApiError: Placement is older than 1.31.
        """
        offered = self._api.read_newest_microversion()
        if offered < tuple(int(part) for part in VERSION.split('.')):
            raise api.ApiError('Placement', 'supported API versions',
                               f'it offers {".".join(map(str, offered))}, {VERSION} (Train) or '
                               'newer is needed')

    def read_providers(self, in_tree: str | None = None, required: str | None = None,
                       member_of: str | None = None) -> dict[str, ListedProvider]:
        """Return every resource provider by UUID; Placement does not page.

        :param in_tree: only those of this provider's tree.
        :param required: only those with this trait.
        :param member_of: only those in this aggregate, by UUID.
        """
        what = 'resource providers'
        wanted = {'in_tree': in_tree, 'required': required, 'member_of': member_of}
        body = self._api.get('/resource_providers', what, _POLICY + 'list', VERSION,
                             {name: value for name, value in wanted.items() if value is not None})
        out = {}
        for data in self._api.read_records(body, 'resource_providers', what):
            record = records.JsonRecord('Placement', 'resource provider', data, identity='uuid')
            has_parent = record.has_value('parent_provider_uuid')
            listed = ListedProvider(
                uuid=record.read_identity('uuid'), name=record.read_text('name'),
                root_uuid=record.read_identity('root_provider_uuid'),
                parent_uuid=record.read_identity('parent_provider_uuid') if has_parent else None,
                generation=record.read_amount('generation'))
            out[listed.uuid] = listed
        return out

    def read_summaries(self) -> dict[str, ProviderSummary]:
        """Return the providers of all trees with free memory by UUID, by one request.

        Placement shows every provider of a tree that has a candidate (1.29), with all its resource
        classes (1.27); a cap on candidates in its configuration leaves some trees out.
        """
        what = 'allocation candidates'
        body = self._api.get('/allocation_candidates', what,
                             'placement:allocation_candidates:list', VERSION,
                             {'resources': f'{_SEARCHED_CLASS}:1'})
        answer = records.JsonRecord('Placement', what, body | {'uuid': 'search'}, identity='uuid')
        listed = answer.read_part('provider_summaries')
        summaries = {}
        for uuid in answer.read_identities('provider_summaries'):
            summary = listed.read_part(uuid)
            resources = summary.read_part('resources')
            summaries[uuid] = ProviderSummary(
                {name: resources.read_part(name).read_amount('used')
                 for name in summary.read_mapping('resources')},
                frozenset(summary.read_texts('traits')))
        return summaries

    # Parts of one provider, each with its generation; ApiError has status 404
    # when the provider does not exist.

    def read_inventories(self, uuid: str) -> tuple[dict[str, model.Inventory], int]:
        body = self._get(f'/resource_providers/{uuid}/inventories',
                         f'inventories of provider {uuid}', _POLICY + 'inventories:list')
        record = self._make_record(uuid, body)
        inventories = record.read_part('inventories')
        out = {name: parse_inventory(inventories.read_part(name))
               for name in record.read_mapping('inventories')}
        return out, record.read_amount(GENERATION)

    def read_usages(self, uuid: str) -> tuple[Resources, int]:
        """Return the sums of allocations, also 0, by resource class."""
        body = self._get(f'/resource_providers/{uuid}/usages', f'usages of provider {uuid}',
                         _POLICY + 'usages')
        record = self._make_record(uuid, body)
        return record.read_amounts('usages'), record.read_amount(GENERATION)

    def read_traits(self, uuid: str) -> tuple[frozenset[str], int]:
        body = self._get(f'/resource_providers/{uuid}/traits', f'traits of provider {uuid}',
                         _POLICY + 'traits:list')
        record = self._make_record(uuid, body)
        return frozenset(record.read_texts('traits')), record.read_amount(GENERATION)

    def allocations_on(self, uuid: str) -> tuple[dict[str, Resources], int]:
        """Return the resources of each consumer (instance or migration) on one provider."""
        body = self._get(f'/resource_providers/{uuid}/allocations',
                         f'allocations on provider {uuid}', _POLICY + 'allocations:list')
        record = self._make_record(uuid, body)
        allocations = record.read_part('allocations')
        return ({consumer: allocations.read_part(consumer).read_amounts('resources')
                 for consumer in record.read_identities('allocations')},
                record.read_amount(GENERATION))

    def read_aggregates(self, uuid: str) -> frozenset[str]:
        """Return UUIDs of the aggregates that a provider is in."""
        body = self._get(f'/resource_providers/{uuid}/aggregates',
                         f'aggregates of provider {uuid}', _POLICY + 'aggregates:list')
        return frozenset(self._make_record(uuid, body).identity_list('aggregates'))

    def allocations_of(self, consumer: str) -> dict[str, Resources]:
        """Return a consumer's resources by provider; empty when it has nothing."""
        what = f'allocations of instance {consumer}'
        body = self._get(f'/allocations/{consumer}', what, 'placement:allocations:list')
        record = records.JsonRecord('Placement', 'allocations of', body | {'uuid': consumer},
                                    identity='uuid')
        by_provider = record.read_part('allocations')
        return {provider: by_provider.read_part(provider).read_amounts('resources')
                for provider in record.read_identities('allocations')}

    @staticmethod
    def _make_record(uuid: str, body: Mapping[str, Any]) -> records.JsonRecord:
        return records.JsonRecord('Placement', 'resource provider', {**body, 'uuid': uuid},
                                  identity='uuid')

    def _get(self, path: str, what: str, policy: str) -> dict[str, Any]:
        return self._api.get(path, what, policy, VERSION)


def parse_inventory(record: records.JsonRecord) -> model.Inventory:
    return model.Inventory(
        total=record.read_amount('total'), reserved=record.read_amount('reserved'),
        allocation_ratio=record.read_ratio('allocation_ratio'),
        min_unit=record.read_amount('min_unit', 1), max_unit=record.read_amount('max_unit', 1),
        step_size=record.read_amount('step_size', 1))
