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


"""A weigher that prefers hosts without the requester's instances."""

from typing import Any

from kronos_nova.scheduler import runtime
from kronos_nova.weighers import optional
from kronos_nova.weighers import project_cache


class KronosProjectWeigher(optional.OptionalWeigher):
    """Charges a host for the instances of the requester's project on it.

    The cost of n instances is n / (n + 1): 0, 1/2, 2/3 and so on. The first instance costs
    most, because the failure of one machine should take as few instances of a project as
    possible. The instances that the same request placed earlier count. An instance whose
    project is not known yet counts as another project's.
    """

    OPTION = 'kronos_project_weight_multiplier'

    def costs(self, hosts: list[Any], spec: Any) -> list[float]:
        project = spec.project_id
        if project is None:
            return [0.0] * len(hosts)
        book = runtime.get_runtime().get_shared_state(project_cache.ProjectBook)
        book.record_project(spec.instance_uuid, project)
        theirs = frozenset(book.list_project_instances(hosts, project)) - {spec.instance_uuid}
        host_costs = []
        for host in hosts:
            count = len(theirs.intersection(host.instances)) + optional.count_request_siblings(host)
            host_costs.append(count / (count + 1))
        return host_costs
