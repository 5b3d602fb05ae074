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
"""Encoding of a reading: the cloud and the scores of a cycle, in parts that change separately.

A snapshot on disk is for people and for other releases. A reading is for kronos-api of the same
release or a neighbour, in each cycle: its parts are the records of :mod:`kronos_nova.model` as
JSON, compressed, and the scores as arrays of doubles. Fields that a reader does not know are
ignored, and missing ones have their defaults. An encoder encodes a part again only if it has
changed; a decoder decodes it again only then.
"""

import array
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import sys
from typing import Any
import zlib

import pydantic

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies

#: Of the encoding. A reader refuses another one.
FORMAT = '1'
#: Hosts and their instances are divided into so many parts, by a digest of the host's name.
HOST_PARTS = 256
#: Bytes of a part after decompression, at most: a damaged row must not fill the memory.
MAX_BYTES = 256 * 1024 * 1024
#: Fields of model.PolicyScores with a number for each host or instance.
_NUMBERS = ('hosts', 'fill', 'capacity', 'usages', 'coverage', 'means', 'deviations',
            'dirty_rates')
_CLOUD, _HEADER = 'cloud', 'header'


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeReading:
    """A scope with the scores and the history from which its cycle planned.

    ``needed_approvals``: how many people must approve its plans, 0: its plans wait for no one;
    None: an engine of an earlier release has published it.
    """

    scores: model.ClusterScores
    history: model.MoveHistory
    needed_approvals: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CloudReading:
    """The cloud and the scores of a cycle.

    ``cluster`` is the whole cloud without a scope and without moves of our own tasks. ``named``:
    the planned aggregates, in order. ``policies`` and ``options`` are the engine's.
    """

    taken_at: float
    cluster: model.Cluster
    named: tuple[str, ...]
    policies: policies.PolicySet
    options: model.PlanningOptions
    scopes: Mapping[str, ScopeReading]


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedReading:
    """The names of all parts, and the bytes of each new or changed one."""

    names: frozenset[str]
    changed: Mapping[str, bytes]


# The documents of the parts.

@dataclasses.dataclass(frozen=True, slots=True)
class _HostPart:
    hosts: tuple[model.Host, ...]
    instances: tuple[model.Instance, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _CloudPart:
    services: Mapping[str, model.Service]
    groups: tuple[model.ServerGroup, ...]
    flights: tuple[model.InFlightMove, ...]
    aggregates: Mapping[str, tuple[str, ...]]
    aggregate_metadata: Mapping[str, Mapping[str, str]]
    sharing: Mapping[str, model.Provider]
    placement_known: bool
    planned_zone: str | None
    named: tuple[str, ...]
    policies: Mapping[str, Any]
    options: model.PlanningOptions


@dataclasses.dataclass(frozen=True, slots=True)
class _ScorePart:
    """Scores of a policy: ``numbers`` gives the parts of the keys and of the values by field."""

    scores: model.PolicyScores
    numbers: Mapping[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class _ScopePart:
    name: str
    taken_at: float
    history: model.MoveHistory
    policies: tuple[_ScorePart, ...]
    needed_approvals: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _HeaderPart:
    taken_at: float
    scopes: tuple[_ScopePart, ...]


@functools.cache
def _make_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def _dump(kind: Any, value: object) -> bytes:
    """Return the compressed JSON of a value.

    :raises ValueError: a text cannot be encoded.
    """
    return zlib.compress(_make_adapter(kind).dump_json(value), 1)


class ReadingEncoder:
    """An encoder that remembers the parts of the reading before."""

    def __init__(self) -> None:
        self._sources: dict[str, object] = {}

    def forget_parts(self) -> None:
        """Encode all parts the next time: the last ones were not stored, or are lost."""
        self._sources = {}

    def encode_reading(self, reading: CloudReading) -> EncodedReading:
        """Encode a reading.

        :raises ValueError: a text cannot be encoded; call :meth:`forget_parts`.
        """
        changed: dict[str, bytes] = {}
        sources: dict[str, object] = {}

        def add(name: str, kind: Any, source: object) -> None:
            sources[name] = source
            if name not in self._sources or self._sources[name] != source:
                changed[name] = _dump(kind, source)

        for name, part in _divide_hosts(reading.cluster).items():
            add(name, _HostPart, part)
        cluster = reading.cluster
        add(_CLOUD, _CloudPart, _CloudPart(
            cluster.services, cluster.groups, cluster.flights, cluster.aggregates,
            cluster.aggregate_metadata, cluster.sharing, cluster.placement_known,
            cluster.planned_zone, reading.named, reading.policies.model_dump(mode='json'),
            reading.options))
        arrays = _ArrayParts()
        header = _HeaderPart(reading.taken_at, tuple(
            _build_scope(name, scope, arrays) for name, scope in reading.scopes.items()))
        for number, keys in enumerate(arrays.keys):
            add(f'keys/{number}', tuple[str, ...], keys)
        changed.update({f'values/{number}': data for number, data in enumerate(arrays.values)})
        changed[_HEADER] = _dump(_HeaderPart, header)
        self._sources = sources
        return EncodedReading(frozenset(sources) | changed.keys(), changed)


def _divide_hosts(cluster: model.Cluster) -> dict[str, _HostPart]:
    """Divide hosts and instances into parts; an instance goes with its host."""
    by_host: dict[str, list[model.Instance]] = {}
    for instance in cluster.instances.values():
        by_host.setdefault(instance.host, []).append(instance)
    groups: dict[int, list[str]] = {}
    for host in {**cluster.hosts, **by_host}:
        groups.setdefault(zlib.crc32(host.encode('utf-8', 'replace')) % HOST_PARTS, []).append(host)
    return {f'hosts/{number}': _HostPart(
        tuple(cluster.hosts[host] for host in hosts if host in cluster.hosts),
        tuple(instance for host in hosts for instance in by_host.get(host, ())))
        for number, hosts in groups.items()}


class _ArrayParts:
    """Keys and values of mappings with numbers; equal keys are written once."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, ...]] = []
        self.values: list[bytes] = []
        self._written: dict[int, tuple[Mapping[str, float], tuple[str, str]]] = {}

    def add_mapping(self, mapping: Mapping[str, float]) -> tuple[str, str]:
        """Return the names of the parts with the keys and with the values."""
        if id(mapping) not in self._written:
            keys = tuple(mapping)
            if keys not in self.keys:
                self.keys.append(keys)
            self._written[id(mapping)] = mapping, (
                f'keys/{self.keys.index(keys)}', f'values/{len(self.values)}')
            self.values.append(_pack_values(mapping.values()))
        return self._written[id(mapping)][1]


def _replace_numbers(scores: model.PolicyScores, numbers: dict[str, Any]) -> model.PolicyScores:
    return dataclasses.replace(scores, **numbers)


def _pack_values(values: Iterable[float]) -> bytes:
    packed = array.array('d', values)
    if sys.byteorder == 'big':
        packed.byteswap()
    return packed.tobytes()


def _unpack_values(data: bytes) -> 'array.array[float]':
    values = array.array('d')
    values.frombytes(data)
    if sys.byteorder == 'big':
        values.byteswap()
    return values


def _build_scope(name: str, scope: ScopeReading, arrays: _ArrayParts) -> _ScopePart:
    parts = []
    for scores in scope.scores.policies.values():
        numbers = {field: arrays.add_mapping(getattr(scores, field)) for field in _NUMBERS
                   if getattr(scores, field)}
        parts.append(_ScorePart(_replace_numbers(scores, dict.fromkeys(_NUMBERS, {})), numbers))
    # The database has the rest, and instances tell by themselves when they were booted.
    history = dataclasses.replace(scope.history, fresh={}, completed=(), measured=(),
                                  move_times={}, notices={}, quiet_waits={})
    return _ScopePart(name, scope.scores.taken_at, history, tuple(parts), scope.needed_approvals)


class ReadingDecoder:
    """A decoder of the versions of one reading; it remembers the parts of the version before."""

    def __init__(self) -> None:
        self._hosts: dict[str, _HostPart] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._cloud: _CloudPart | None = None
        #: Of the parts that are decoded together; later ones have mappings of their own.
        self._shared: dict[frozenset[tuple[str, Any]], Mapping[str, Any]] = {}
        #: By name, the version of each part that need not be read again.
        self.known: dict[str, int] = {}

    def decode_reading(self, encoding: str, versions: Mapping[str, int],
                       parts: Mapping[str, bytes]) -> CloudReading:
        """Decode a version of the reading.

        :param encoding: its format.
        :param versions: by part, the version that changed it.
        :param parts: the bytes of the parts that are not in :attr:`known`.
        :raises SnapshotError: it has another format, or a part is damaged.
        """
        if encoding != FORMAT:
            raise _make_error(f'it has format {encoding[:16]!r}, and this release reads {FORMAT!r}')
        name = ''
        try:
            for name, data in parts.items():
                if self._decode_part(name, data):
                    self.known[name] = versions[name]
            self._shared = {}
            name = _HEADER
            for name in self.known.keys() - versions.keys():
                self._hosts.pop(name, None)
                self._keys.pop(name, None)
                del self.known[name]
            return self._build_reading(parts)
        except (ValueError, LookupError, zlib.error) as e:
            self._forget_parts()
            raise _make_error(f'part {name!r} cannot be decoded ({_describe(e)})') from None

    def _forget_parts(self) -> None:
        self._hosts, self._keys, self._cloud, self.known = {}, {}, None, {}
        self._shared = {}

    def _share_mappings(self, part: _HostPart) -> _HostPart:
        """Return the part with one object for equal mappings: many instances have one flavor."""
        def share(mapping: Any) -> Any:
            return mapping if mapping is None else self._shared.setdefault(
                frozenset(mapping.items()), mapping)

        return _HostPart(part.hosts, tuple(dataclasses.replace(
            instance, claims=share(instance.claims), extra_specs=share(instance.extra_specs),
            image_properties=share(instance.image_properties), allocations={
                provider: share(amounts) for provider, amounts in instance.allocations.items()},
            scheduler_hints=share(instance.scheduler_hints))
            for instance in part.instances))

    def _decode_part(self, name: str, data: bytes) -> bool:
        """Decode a part that is remembered; return False for any other."""
        kind = name.partition('/')[0]
        if kind == 'hosts':
            self._hosts[name] = self._share_mappings(_load(_HostPart, data))
        elif kind == 'keys':
            self._keys[name] = _load(tuple[str, ...], data)
        elif kind == _CLOUD:
            self._cloud = _load(_CloudPart, data)
        else:
            return False
        return True

    def _build_reading(self, parts: Mapping[str, bytes]) -> CloudReading:
        header: _HeaderPart = _load(_HeaderPart, parts[_HEADER])
        if self._cloud is None:
            raise LookupError('the part cloud is missing')
        cloud = self._cloud
        hosts, instances = {}, {}
        for part in self._hosts.values():
            hosts.update({host.name: host for host in part.hosts})
            instances.update({instance.uuid: instance for instance in part.instances})
        uuids = {uuid: uuid for uuid in instances}
        # The same texts are kept once.
        self._keys = {name: tuple([uuids.get(key, key) for key in part])
                      for name, part in self._keys.items()}
        mappings: dict[tuple[str, str], dict[str, float]] = {}

        def read_mapping(pair: tuple[str, str]) -> dict[str, float]:
            if pair not in mappings:
                mappings[pair] = dict(zip(
                    self._keys[pair[0]], _unpack_values(parts[pair[1]]), strict=True))
            return mappings[pair]

        scopes = {scope.name: ScopeReading(model.ClusterScores({
            part.scores.policy: _replace_numbers(part.scores, {
                field: read_mapping(pair) for field, pair in part.numbers.items()
                if field in _NUMBERS})
            for part in scope.policies}, scope.taken_at), scope.history, scope.needed_approvals)
            for scope in header.scopes}
        cluster = model.Cluster(
            hosts=hosts, instances=instances, services=cloud.services, groups=cloud.groups,
            flights=cloud.flights, aggregates=cloud.aggregates,
            placement_known=cloud.placement_known, taken_at=header.taken_at,
            sharing=cloud.sharing, aggregate_metadata=cloud.aggregate_metadata,
            planned_zone=cloud.planned_zone)
        return CloudReading(header.taken_at, cluster, cloud.named, _load_policies(cloud.policies),
                            cloud.options, scopes)


def _load_policies(document: Mapping[str, Any]) -> policies.PolicySet:
    """Return the policies without the fields of a later release, which a file may not have.

    :raises ValueError: a value is wrong.
    """
    return policies.PolicySet.model_validate({
        'aggregates': document['aggregates'], 'policies': [
            {name: value for name, value in policy.items() if name in policies.Policy.model_fields}
            for policy in document['policies']]})


def _load(kind: Any, data: bytes) -> Any:
    """Return the value of compressed JSON.

    :raises ValueError: it is no such value, or too large.
    :raises zlib.error: it is not compressed.
    """
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(data, MAX_BYTES)
    if not decompressor.eof:
        raise ValueError('it is cut off or too large')
    return _make_adapter(kind).validate_json(text)


def _describe(error: Exception) -> str:
    """Return the error in one line; that of pydantic names the field, and no value."""
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f'{".".join(map(str, first["loc"]))}: {first["msg"]}'[:200]
    return ' '.join(str(error).split())[:200]


def _make_error(problem: str) -> exception.SnapshotError:
    return exception.SnapshotError(
        path='reading of the cloud in the database', problem=problem,
        remedy='Run engines and kronos-api of one release; a restarted engine writes all parts')
