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
from kronos_nova import plurals
from kronos_nova.constraints import failure_domains
from kronos_nova.model import spread_requests


def build_spread_sets(cluster: model.Cluster,
                      domains: failure_domains.FailureDomains,
                      ) -> tuple[spread_requests.SpreadSet, ...]:
    """Return the sets for which instances ask, sorted by key.

    A request without a name is for the server groups of the instance, each a set; without a server
    group, for all instances of its project with the same request and without a server group.

    A request for a kind that no aggregate names asks for nothing. While the text of an aggregate
    cannot be read, any kind may stand there.
    """
    asking = [i for i in cluster.instances.values() if i.spread]
    kinds = {kind for kind in {request.kind for i in asking for request in i.spread}
             if domains.may_have(kind)}
    if not kinds:
        return ()
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


def describe_unclear(cluster: model.Cluster, domains: failure_domains.FailureDomains,
                     shown: int = 10) -> list[str]:
    """Return warnings about errors in the domains, and about requests that ask for nothing.

    :param shown: most errors that are named.
    """
    warnings = [f'{problem}. Until then no move for balance, packing or repair takes an instance '
                'that is spread over such domains to or from these hosts'
                for problem in domains.problems[:shown]]
    if len(domains.problems) > shown:
        warnings.append(f'{len(domains.problems) - shown} more errors in the failure domains of '
                        'aggregates')
    asking = [i for i in cluster.instances.values() if i.spread and i.host in cluster.scope_hosts]
    if asking:
        warnings += domains.similar[:shown]
    for kind in sorted({r.kind for i in asking for r in i.spread} & domains.kinds):
        known = domains.map_domains(kind)
        missing = [h for h in cluster.scope_hosts
                   if h not in known and not domains.is_unclear(kind, h)]
        if missing and len(missing) < len(cluster.scope_hosts):
            warnings.append(
                f'{plurals.count_noun(len(missing), "host")} of the scope '
                f'{plurals.choose_form(len(missing), "has", "have")} no domain of the kind {kind} '
                f'and {plurals.choose_form(len(missing), "counts", "count")} as one domain; the '
                f'first is {min(missing)}. Add such hosts to an aggregate with '
                f'{model.DOMAIN_KEY} = {kind}:NAME')
    void = [i.uuid for i in asking if any(not domains.may_have(r.kind) for r in i.spread)]
    if void:
        warnings.append(
            f'{plurals.count_noun(len(void), "instance")} '
            f'{plurals.choose_form(len(void), "asks", "ask")} for a spread (kronos:spread) that '
            'cannot be read, or over a kind that no aggregate names, which counts for nothing; the '
            f'first is {min(void)}')
    return warnings
