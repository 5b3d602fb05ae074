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

"""Statements about an instance: in its metadata, its tags and its flavor, and by project.

Nova shows no image properties but its own (``ImageMetaProps``), so contracts cannot stand there. A
value that cannot be read never stops the reading of the cloud: the rule takes it in its most
careful meaning; a release that cannot be read releases nothing.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.model import contracts
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.clients import records

_KEYS = {f'{contracts.PREFIX}{name}': name
         for name in (contracts.DISRUPTION, contracts.HOURS, contracts.MAX_MOVES,
                      contracts.NOTIFY)}
#: Only the owner of an instance releases it.
_OWNERS_KEYS = _KEYS | {f'{contracts.PREFIX}{contracts.RELEASE}': contracts.RELEASE}
_SPREAD = f'{contracts.PREFIX}{spread_requests.SPREAD}'


class StatementValues:
    """The values of a reading's texts: each text is parsed once, also one that cannot be read.

    Tenants write the texts, so each instance may have its own.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], contracts_conf.Value | None] = {}

    def read_value(self, name: str, text: str, remembered: int) -> contracts_conf.Value | None:
        """Return the value of a key; None: it cannot be read."""
        if len(text) > contracts.LONGEST:
            return None
        key = name, text, remembered
        if key not in self._known:
            try:
                self._known[key] = contracts_conf.parse_value(name, text, remembered)
            except ValueError:
                self._known[key] = None
        return self._known[key]

    def read_spread(self, text: str) -> contracts_conf.Spread:
        """Return the requests of a text."""
        value = self.read_value(spread_requests.SPREAD, text, 0)
        return value if isinstance(value, tuple) else (spread_requests.UNREADABLE,)


def read_contracts(record: records.JsonRecord, extra_specs: Mapping[str, str] | None,
                   project_id: str, projects: contracts_conf.ProjectContracts,
                   remembered: int, known: StatementValues,
                   others: Collection[str] = ()) -> tuple[model.Contract, ...]:
    """Return each source that states something about a server, with its statements.

    :param record: of /servers.
    :param extra_specs: of its flavor.
    :param remembered: seconds for which moves are kept.
    :param known: values of the reading.
    :param others: keys and tags that are no contracts although they begin as these do.
    """
    sources: list[tuple[model.ContractSource, list[tuple[str, str]]]] = [
        (model.ContractSource.METADATA, _list_items(
            record.texts_by_name('metadata') if record.has_key('metadata') else {}, others)),
        (model.ContractSource.TAG, list(_split_tags(
            record.read_texts('tags') if record.has_key('tags') else (), others))),
        (model.ContractSource.FLAVOR, _list_items(extra_specs or {}, others))]
    stated = [_parse_source(source, items, remembered, known) for source, items in sources if items]
    of_project = projects.find_contract(project_id)
    return (*stated, *(() if of_project is None else (of_project,)))


def read_spread(record: records.JsonRecord, extra_specs: Mapping[str, str] | None,
                project_id: str, projects: contracts_conf.ProjectContracts,
                known: StatementValues) -> contracts_conf.Spread:
    """Return the requests for a spread over failure domains of all sources, sorted.

    A value that cannot be read counts as ``spread_requests.UNREADABLE``, and so do the owner's
    requests beyond ``spread_requests.MOST``: the operator's never make room for them. The
    parameters are those of :func:`read_contracts`.
    """
    texts: list[str] = []
    if record.has_key('metadata'):
        texts += [text for key, text in record.texts_by_name('metadata').items() if key == _SPREAD]
    if record.has_key('tags'):
        texts += [tag.removeprefix(f'{_SPREAD}=') for tag in record.read_texts('tags')
                  if tag.startswith(f'{_SPREAD}=')]
    requests = set(projects.find_spread(project_id))
    if extra_specs and _SPREAD in extra_specs:
        requests |= set(known.read_spread(extra_specs[_SPREAD]))
    owners = sorted({request for text in texts for request in known.read_spread(text)} - requests)
    requests |= set(owners[:spread_requests.MOST])
    if len(owners) > spread_requests.MOST:
        requests.add(spread_requests.UNREADABLE)
    return tuple(sorted(requests))


def _list_items(texts: Mapping[str, str], others: Collection[str]) -> list[tuple[str, str]]:
    return [(key, text) for key, text in texts.items()
            if key.startswith(contracts.PREFIX) and key != _SPREAD and key not in others]


def _split_tags(tags: Iterable[str], others: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each tag ``KEY=VALUE`` of a contract."""
    for tag in tags:
        if tag.startswith(contracts.PREFIX) and tag not in others:
            key, _equals, value = tag.partition('=')
            if key != _SPREAD:
                yield key, value


def _parse_source(source: model.ContractSource, items: Iterable[tuple[str, str]],
                  remembered: int, known: StatementValues) -> model.Contract:
    """Return the statements of a source; two different tags of one key cannot be read."""
    keys = _OWNERS_KEYS if source.is_tenants else _KEYS
    values: dict[str, object] = {}
    unreadable: set[str] = set()
    ineffective = 0
    for key, text in items:
        name = keys.get(key)
        if name is None:
            ineffective += 1
            continue
        value = known.read_value(name, text, remembered)
        if value is None or values.setdefault(name, value) != value:
            unreadable.add(name)
    stated = {name: value for name, value in values.items() if name not in unreadable}
    ineffective += contracts.RELEASE in unreadable
    return model.Contract(
        source, unreadable=tuple(sorted(unreadable - {contracts.RELEASE})), ineffective=ineffective,
        **stated)  # type: ignore[arg-type]
