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

"""Failure domains of hosts, as administrators write them into aggregates.

The metadata ``kronos:domain = rack:r12`` puts the hosts of an aggregate into the domain ``r12`` of
the kind ``rack``. A host gets several kinds by several aggregates, or by a list:
``rack:r12,pdu:a``. A host in two racks keeps its other kinds.
"""

from collections import defaultdict
from collections.abc import Collection
from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.model import spread_requests

#: Key of the metadata of an aggregate.
KEY = model.DOMAIN_KEY
#: Most characters of a wrong value, and most hosts, in an error.
_SHOWN, _HOSTS_SHOWN = 64, 3
_NOTHING: frozenset[str] = frozenset()


class FailureDomains:
    """The domains of each kind, by host. Immutable.

    ``kinds``: those that some aggregate names. ``problems``: a sentence with its remedy for each
    aggregate that cannot be read, and for the hosts with two domains of one kind.

    :param hosts: host names by aggregate.
    :param metadata: metadata by aggregate; an aggregate without any may be missing.
    """

    def __init__(self, hosts: Mapping[str, Collection[str]],
                 metadata: Mapping[str, Mapping[str, str]]) -> None:
        problems: list[str] = []
        #: Aggregates that name a domain, by kind and domain.
        naming: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        unreadable: set[str] = set()
        for aggregate in sorted(metadata):
            text = metadata[aggregate].get(KEY)
            if text is None:
                continue
            try:
                pairs = parse_domains(text)
            except ValueError as e:
                problems.append(
                    f'aggregate {aggregate}: {KEY} = {text[:_SHOWN]!r} cannot be read, {e}. Write '
                    f'KIND:NAME, such as rack:r12, or several with commas between them')
                unreadable.update(hosts.get(aggregate, ()))
                continue
            for kind, name in pairs:
                naming[kind][name].append(aggregate)
        self.kinds = frozenset(naming)
        self._unreadable = frozenset(unreadable)
        self._by_host: dict[str, dict[str, frozenset[str]]] = {}
        self._by_domain: dict[str, dict[str, frozenset[str]]] = {}
        self._unclear: dict[str, frozenset[str]] = {}
        for kind, domains in naming.items():
            self._by_domain[kind] = {
                name: frozenset(host for a in aggregates for host in hosts.get(a, ()))
                for name, aggregates in domains.items()}
            self._by_host[kind] = _map_names(self._by_domain[kind])
            self._unclear[kind] = self._unreadable | {
                host for host, found in self._by_host[kind].items() if len(found) > 1}
            problems += _describe_twofold(kind, self._by_host[kind], domains, hosts)
        self.problems = tuple(problems)
        #: A sentence for each pair of names of one kind that differ only in case.
        self.similar = tuple(sentence for kind in sorted(naming)
                             for sentence in _describe_similar(kind, naming[kind]))

    def may_have(self, kind: str) -> bool:
        """Return whether an aggregate names the kind, or may name it in a text with an error."""
        return kind in self.kinds or (bool(kind) and bool(self._unreadable))

    def list_domains(self, kind: str, host: str) -> frozenset[str]:
        """Return the names of the host's domains; more than one: the host is unclear."""
        return self._by_host.get(kind, {}).get(host, _NOTHING)

    def is_unclear(self, kind: str, host: str) -> bool:
        """Return whether an error in the metadata hides the host's domain of the kind."""
        return host in self.list_unclear(kind)

    def describe_error(self, kind: str, host: str) -> str:
        """Describe what hides the host's domain of the kind."""
        found = sorted(self.list_domains(kind, host))
        if len(found) > 1:
            return (f'host {host} has {len(found)} domains of the kind {kind}: '
                    f'{", ".join(found[:_HOSTS_SHOWN])}')
        return f'{KEY} of an aggregate of host {host} cannot be read'

    def list_unclear(self, kind: str) -> frozenset[str]:
        """Return the hosts whose domain of the kind an error in the metadata hides."""
        return self._unclear.get(kind, self._unreadable)

    def map_domains(self, kind: str) -> Mapping[str, frozenset[str]]:
        """Return :meth:`list_domains` by host; hosts without a domain are left out."""
        return self._by_host.get(kind, {})

    def map_hosts(self, kind: str) -> Mapping[str, frozenset[str]]:
        """Return the hosts by domain of a kind; an unclear host is in each of its domains."""
        return self._by_domain.get(kind, {})


def map_hosts_by_domain(hosts: Mapping[str, Collection[str]],
                        metadata: Mapping[str, Mapping[str, str]],
                        ) -> dict[str, Mapping[str, frozenset[str]]]:
    """Return the hosts by domain, by kind; a host in two domains of one kind is in both.

    :param hosts: host names by aggregate, as ``Cluster.aggregates``.
    :param metadata: by aggregate, as ``Cluster.aggregate_metadata``.
    """
    domains = FailureDomains(hosts, metadata)
    return {kind: domains.map_hosts(kind) for kind in sorted(domains.kinds)}


def parse_domains(text: str) -> tuple[tuple[str, str], ...]:
    """Read a value of ``kronos:domain`` into pairs of kind and name.

    :raises ValueError: a part of the text is no domain; the message does not repeat it.
    """
    pairs = []
    for part in text.split(','):
        kind, _colon, name = (word.strip() for word in part.partition(':'))
        kind = kind.lower()
        if not spread_requests.KIND.fullmatch(kind):
            raise ValueError('a kind has up to 32 of a-z, 0-9, _ and -, a letter first')
        if not spread_requests.NAME.fullmatch(name):
            raise ValueError('a name has up to 64 letters, digits, dots, _ and -')
        pairs.append((kind, name))
    return tuple(pairs)


def _map_names(domains: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """Return the names of the domains by host."""
    names: dict[str, set[str]] = defaultdict(set)
    for name, hosts in domains.items():
        for host in hosts:
            names[host].add(name)
    return {host: frozenset(found) for host, found in names.items()}


def _describe_similar(kind: str, names: Collection[str]) -> list[str]:
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        spellings[name.lower()].append(name)
    return [f'{kind}:{alike[0]} and {kind}:{alike[1]} are two domains, for capitals count in '
            f'names. If they are one, write {KEY} of their aggregates alike'
            for alike in spellings.values() if len(alike) > 1]


def _describe_twofold(kind: str, names: Mapping[str, frozenset[str]],
                      aggregates: Mapping[str, Collection[str]],
                      hosts: Mapping[str, Collection[str]]) -> list[str]:
    """Return a sentence for each combination of domains that hosts have at once."""
    twofold: dict[frozenset[str], list[str]] = defaultdict(list)
    for host, found in names.items():
        if len(found) > 1:
            twofold[found].append(host)
    sentences = []
    for found, these in sorted(twofold.items(), key=lambda item: sorted(item[0])):
        first, *more = sorted(these)
        by = '; '.join(
            f'{name} by aggregate ' + ', '.join(
                a for a in sorted(aggregates[name]) if first in hosts.get(a, ()))
            for name in sorted(found))
        shown = ', '.join((first, *more[:_HOSTS_SHOWN - 1]))
        rest = f' and {len(these) - _HOSTS_SHOWN} more' if len(these) > _HOSTS_SHOWN else ''
        sentences.append(
            f'host {shown}{rest}: two domains of the kind {kind} ({by}). Take the host out of one '
            f'aggregate, or correct {KEY} of an aggregate')
    return sentences
