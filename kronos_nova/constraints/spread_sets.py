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
"""The sets of instances that are spread over the domains of a kind.

A set never has instances of two projects: what one tenant writes changes nothing for another one.
"""

from collections import defaultdict
from collections.abc import Collection
from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.model import spread_requests


def build_spread_sets(cluster: model.Cluster,
                      kinds: Collection[str]) -> tuple[spread_requests.SpreadSet, ...]:
    """Return the sets for which instances ask, sorted by key.

    A request without a name is for the server groups of the instance, each a set; without a server
    group, for all instances of its project with the same request and without a server group.

    :param kinds: that aggregates name; a request for another kind asks for nothing.
    """
    if not kinds:
        return ()
    asking = [i for i in cluster.instances.values() if i.spread]
    nameless = {i.uuid for i in asking if any(not request.name for request in i.spread)}
    groups = _map_groups(cluster.groups, nameless)
    titles: dict[tuple[str, str, str, str], str] = {}
    members: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for instance in asking:
        project = instance.project_id
        for request in instance.spread:
            if request.kind not in kinds:
                continue
            if request.name:
                names = [('name', request.name, f'a named set of project {project}')]
            else:
                names = [('group', uuid, f'server group {uuid}')
                         for uuid in groups.get(instance.uuid, ())] or [
                             ('project', '', f'the set of project {project}')]
            for sort, name, title in names:
                key = request.kind, project, sort, name
                titles[key] = title
                members[key].add(instance.uuid)
    return tuple(spread_requests.SpreadSet('/'.join(key), key[0], titles[key],
                                           frozenset(members[key])) for key in sorted(members))


def _map_groups(groups: Collection[model.ServerGroup],
                wanted: Collection[str]) -> Mapping[str, list[str]]:
    """Return the UUIDs of the server groups by wanted member."""
    by_member: dict[str, list[str]] = defaultdict(list)
    if wanted:
        for group in groups:
            for uuid in group.members:
                if uuid in wanted:
                    by_member[uuid].append(group.uuid)
    return by_member


def describe_unclear(cluster: model.Cluster, problems: Collection[str],
                     kinds: Collection[str], shown: int = 10) -> list[str]:
    """Return a warning for each error in the domains, and one about requests that ask for nothing.

    :param problems: of the aggregates' metadata.
    :param kinds: that aggregates name.
    :param shown: most errors that are named.
    """
    warnings = [f'{problem}. Until then no move for balance, packing or repair takes an instance '
                'that is spread over such domains to or from these hosts'
                for problem in list(problems)[:shown]]
    if len(problems) > shown:
        warnings.append(f'{len(problems) - shown} more errors in the failure domains of aggregates')
    void = [i.uuid for i in cluster.instances.values() if i.spread and i.host in cluster.scope_hosts
            and any(request.kind not in kinds for request in i.spread)]
    if void:
        warnings.append(
            f'{len(void)} instances ask for a spread (kronos:spread) that cannot be read, or over '
            f'a kind that no aggregate names, which counts for nothing; the first is {min(void)}')
    return warnings
