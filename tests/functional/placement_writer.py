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


"""What nova-compute and operators do to Placement: we never write there."""

from collections.abc import Mapping
from typing import Any

from openstack import connection
from oslo_utils import uuidutils

from tests.functional import api

VERSION = '1.37'
Resources = Mapping[str, int]


class Writer:
    """Writes through Placement's API; generations are read just before."""

    def __init__(self, sdk_connection: connection.Connection) -> None:
        self._placement = sdk_connection.placement

    def call(self, method: str, path: str, body: Any = None, version: str = VERSION) -> Any:
        """Send a request and return the response of any status."""
        return self._placement.request(
            path, method, microversion=version, raise_exc=False,
            headers={api.NOT_OURS: 'true'}, **({} if body is None else {'json': body}))

    def done(self, method: str, path: str, body: Any = None, version: str = VERSION) -> Any:
        answer = self.call(method, path, body, version)
        assert answer.status_code < 300, f'{method} {path}: {answer.status_code} {answer.text}'
        return answer.json() if answer.content else None

    def create(self, name: str, parent: str | None = None, **totals: int) -> str:
        """A provider with these inventories; returns its UUID."""
        uuid = uuidutils.generate_uuid()
        body = {'name': name, 'uuid': uuid}
        if parent is not None:
            body['parent_provider_uuid'] = parent
        self.done('POST', '/resource_providers', body)
        if totals:
            self.stock(uuid, **totals)
        return uuid

    def generation(self, uuid: str) -> int:
        return int(self.done('GET', f'/resource_providers/{uuid}')['generation'])

    def stock(self, uuid: str, **totals: int) -> None:
        """Replace the inventories."""
        self.done('PUT', f'/resource_providers/{uuid}/inventories', {
            'resource_provider_generation': self.generation(uuid),
            'inventories': {name: {'total': total} for name, total in totals.items()}})

    def tell(self, uuid: str, *traits: str) -> None:
        """Replace the traits; custom ones are created."""
        for trait in traits:
            if trait.startswith('CUSTOM_'):
                self.done('PUT', f'/traits/{trait}')
        self.done('PUT', f'/resource_providers/{uuid}/traits', {
            'resource_provider_generation': self.generation(uuid), 'traits': list(traits)})

    def join(self, uuid: str, *aggregates: str) -> None:
        """Replace the aggregates."""
        self.done('PUT', f'/resource_providers/{uuid}/aggregates', {
            'resource_provider_generation': self.generation(uuid),
            'aggregates': list(aggregates)})

    def consumer(self, uuid: str) -> dict[str, Any]:
        """A consumer's part of a request that replaces its allocations."""
        now = self.done('GET', f'/allocations/{uuid}')
        return {'allocations': {provider: {'resources': allocation['resources']}
                                for provider, allocation in now['allocations'].items()},
                'consumer_generation': now.get('consumer_generation'),
                'project_id': now.get('project_id', 'p'), 'user_id': now.get('user_id', 'u')}

    def allocate(self, uuid: str, allocations: Mapping[str, Resources]) -> None:
        """Replace what a consumer has, by provider."""
        self.done('PUT', f'/allocations/{uuid}', {**self.consumer(uuid), 'allocations': {
            provider: {'resources': dict(resources)}
            for provider, resources in allocations.items()}})

    def reshaping(self, totals: Mapping[str, Resources],
                  allocations: Mapping[str, Mapping[str, Resources]]) -> dict[str, Any]:
        """Return a body of POST /reshaper.

        :param totals: new inventories by provider; other providers keep theirs.
        :param allocations: by consumer and provider.
        """
        inventories = {}
        for uuid, wanted in totals.items():
            now = self.done('GET', f'/resource_providers/{uuid}/inventories')
            inventories[uuid] = {
                'resource_provider_generation': now['resource_provider_generation'],
                'inventories': {name: now['inventories'].get(name) or {'total': total}
                                for name, total in wanted.items()}}
        return {'inventories': inventories, 'allocations': {
            consumer: {**self.consumer(consumer), 'allocations': {
                provider: {'resources': dict(resources)} for provider, resources in placed.items()}}
            for consumer, placed in allocations.items()}}

    def reshape(self, totals: Mapping[str, Resources],
                allocations: Mapping[str, Mapping[str, Resources]]) -> None:
        self.done('POST', '/reshaper', self.reshaping(totals, allocations))
