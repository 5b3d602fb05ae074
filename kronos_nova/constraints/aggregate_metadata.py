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


"""Aggregate metadata of a host, as Nova's filters read it."""

from collections import defaultdict
from collections.abc import Collection
from collections.abc import Mapping

TENANT = 'filter_tenant_id'


class HostAggregates:
    """Metadata of the aggregates, by host.

    :param hosts: host names by aggregate.
    :param metadata: metadata by aggregate; an aggregate without any may be missing.
    """

    def __init__(self, hosts: Mapping[str, Collection[str]],
                 metadata: Mapping[str, Mapping[str, str]]) -> None:
        self.metadata = metadata
        self._of: dict[str, list[str]] = defaultdict(list)
        for name in metadata:
            for host in hosts.get(name, ()):
                self._of[host].append(name)
        self._values: dict[str, Mapping[str, frozenset[str]]] = {}

    def list_with_metadata(self, host: str) -> Collection[str]:
        """Return the aggregates that have metadata and contain the host."""
        return self._of.get(host, ())

    def map_metadata_values(self, host: str) -> Mapping[str, frozenset[str]]:
        """Return the values of the host's aggregates by key; commas in a value separate several.

        Source: nova.scheduler.filters.utils, aggregate_metadata_get_by_host.
        """
        if host not in self._values:
            values_by_key: dict[str, set[str]] = defaultdict(set)
            for name in self.list_with_metadata(host):
                for key, value in self.metadata[name].items():
                    values_by_key[key].update(part.strip() for part in value.split(','))
            self._values[host] = {key: frozenset(values) for key, values in values_by_key.items()}
        return self._values[host]

    def list_tenants(self, host: str) -> frozenset[str]:
        """Return the projects that the host is reserved for; empty: every project may use it.

        Source: nova.scheduler.filters.aggregate_multitenancy_isolation.
        """
        return frozenset(project for key, values in self.map_metadata_values(host).items()
                         if key.startswith(TENANT) for project in values)

    def list_for_tenant(self, project_id: str) -> frozenset[str]:
        """Return the aggregates that Nova asks Placement for when this project boots an instance.

        Source: nova.scheduler.request_filter, require_tenant_aggregate: a value is one project
        here.
        """
        return frozenset(name for name, metadata in self.metadata.items()
                         if project_id in metadata.values()
                         and any(key.startswith(TENANT) for key in metadata))

    def list_isolating_traits(self, host: str) -> frozenset[str]:
        """Return the traits that an instance must require to enter the host's aggregates.

        Source: nova.scheduler.request_filter, isolate_aggregates.
        """
        return frozenset(key.removeprefix('trait:') for name in self.list_with_metadata(host)
                         for key, value in self.metadata[name].items()
                         if key.startswith('trait:') and value == 'required')
