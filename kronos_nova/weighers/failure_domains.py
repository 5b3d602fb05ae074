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
"""A weigher that prefers the failure domains with the fewest members of the instance's set."""

from collections import Counter
from typing import Any

from kronos_nova.constraints import failure_domains
from kronos_nova.model import spread_requests
from kronos_nova.scheduler import runtime
from kronos_nova.weighers import optional
from kronos_nova.weighers import project_cache

#: Extra spec of a flavor: a RequestSpec has neither metadata nor tags of the instance.
SPREAD = f'kronos:{spread_requests.SPREAD}'
_NO_DOMAIN: frozenset[str] = frozenset()


class KronosDomainWeigher(optional.OptionalWeigher):
    """Charges a host for members of the instance's set in the host's failure domain.

    The flavor asks for the spread (kronos:spread), aggregates name the domains
    (kronos:domain). The emptiest domains of a request cost 0, a domain with n more members
    n / (n + 1): 1/2, 2/3 and so on; of several kinds the mean counts. Members of the
    instance's server group count if the request has no name, else the instances of its project.
    A host whose domain is unclear costs as much as the mean of the other hosts.
    """

    OPTION = 'kronos_domain_weight_multiplier'

    def costs(self, hosts: list[Any], spec: Any) -> list[float]:
        requests = _read_requests(spec)
        domains = runtime.get_runtime().get_shared_state(DomainCache).find_domains(
            hosts) if requests else None
        requests = [r for r in requests if domains is not None and r.kind in domains.kinds]
        if not requests or domains is None:
            return [0.0] * len(hosts)
        columns = []
        counts: dict[bool, dict[str, int]] = {}
        for request in requests:
            grouped = not request.name and spec.instance_group is not None
            if grouped not in counts:
                counts[grouped] = _count_members(hosts, spec, grouped)
            columns.append(_compute_costs(hosts, domains, request.kind, counts[grouped]))
        if len(columns) == 1:
            return columns[0]
        return [sum(column) / len(columns) for column in zip(*columns, strict=True)]


class DomainCache:
    """The failure domains of the newest aggregates that a request showed.

    Nova replaces an Aggregate object when it changes, and shows all hosts of each.
    """

    def __init__(self, conf: Any, faults: Any) -> None:
        self._known: tuple[dict[int, Any], failure_domains.FailureDomains] | None = None

    def find_domains(self, hosts: list[Any]) -> failure_domains.FailureDomains:
        """Return the domains of the aggregates of the HostState objects."""
        shown = {id(a): a for host in hosts for a in host.aggregates}
        aggregates = {i: a for i, a in shown.items() if failure_domains.KEY in a.metadata}
        known = self._known
        if known is not None and known[0].keys() == aggregates.keys():
            return known[1]
        found = failure_domains.FailureDomains(
            {a.name: frozenset(a.hosts) for a in aggregates.values()},
            {a.name: a.metadata for a in aggregates.values()})
        # The objects stay alive as long as their IDs are compared.
        self._known = aggregates, found
        return found

    def stop(self) -> None:
        self._known = None


def _read_requests(spec: Any) -> list[spread_requests.SpreadRequest]:
    text = (spec.flavor.extra_specs or {}).get(SPREAD)
    if text is None or spec.project_id is None:
        return []
    try:
        return list(spread_requests.parse_spread(text))
    except ValueError:
        return []


def _count_members(hosts: list[Any], spec: Any, grouped: bool) -> dict[str, int]:
    """Return the members by host; 0 is left out.

    Nova tells of hosts that its filters have dropped only whether members of a server group are
    there: those count as one.
    """
    if grouped:
        members = frozenset(spec.instance_group.members or ()) - {spec.instance_uuid}
    else:
        book = runtime.get_runtime().get_shared_state(project_cache.ProjectBook)
        book.record_project(spec.instance_uuid, spec.project_id)
        members = frozenset(book.list_project_instances(
            hosts, spec.project_id)) - {spec.instance_uuid}
    known_hosts = _list_group_hosts(spec) if grouped else frozenset()
    counts = dict.fromkeys(known_hosts, 1)
    several = spec.num_instances > 1
    for host in hosts:
        if known_hosts and not several and host.host not in known_hosts:
            continue  # Nova has read from its database where members are
        instances = host.instances
        number = (sum(map(instances.__contains__, members)) if len(members) < len(instances)
                  else len(members.intersection(instances)))
        if several:
            number += optional.count_request_siblings(host)
        if number:
            counts[host.host] = number
        elif grouped:
            counts.pop(host.host, None)
    return counts


def _list_group_hosts(spec: Any) -> frozenset[str]:
    group = spec.instance_group
    return frozenset((group.hosts or ()) if 'hosts' in group else ())


def _compute_costs(hosts: list[Any], domains: failure_domains.FailureDomains, kind: str,
                   counts: dict[str, int]) -> list[float]:
    """Return the cost of each host under one request."""
    members: Counter[frozenset[str] | None] = Counter()
    shown = {host.host for host in hosts}
    for host, number in counts.items():
        names = domains.list_domains(kind, host)
        if names or host in shown:  # the aggregates of other hosts may not be known
            members[names] += number
    names_of, unclear = domains.map_domains(kind), domains.list_unclear(kind)
    found_names: list[frozenset[str] | None] = [
        names_of.get(host.host, _NO_DOMAIN) for host in hosts]
    if unclear:
        found_names = [None if host.host in unclear else found
                       for host, found in zip(hosts, found_names, strict=True)]
    here = set(found_names) - {None}
    least = min((members[found] for found in here), default=0)
    cost: dict[frozenset[str] | None, float] = {
        found: 1.0 - 1.0 / (members[found] - least + 1) for found in here}
    if unclear:
        clear = [cost[found] for found in found_names if found is not None]
        cost[None] = sum(clear) / len(clear) if clear else 0.0
    return [cost[found] for found in found_names]
