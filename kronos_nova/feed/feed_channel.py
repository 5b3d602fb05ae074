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


"""Records from the engine to the schedulers, through the cache that both can reach.

The engine writes the whole cloud's state as its database has it; the last writer wins, which is
right because all write the same. Nova reads the state in the background. A record that is missing,
old or malformed counts as absent: the schedulers then decide without it.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import hashlib
import json
import math
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import raw_cache

KEY = 'kronos_nova.published'
VERSION = 1
#: Usages have one key for each policy, so that engines with other policies do not
#: overwrite them, and a version of their own: schedulers that do not know it
#: lose nothing.
USAGE_KEY = 'kronos_nova.usage.'
USAGE_VERSION = 1
#: Limits of boots have one key for each scope: another engine may certify the next one.
LIMITS_KEY = 'kronos_nova.limits.'
LIMITS_VERSION = 1
#: Most scopes whose limits a scheduler reads.
MAX_SCOPES = 1000
#: Moves of the whole cloud; a cache may refuse more than a megabyte.
MAX_MOVES = 1000
#: Seconds for which a move that ended is published: Nova's scheduler_instance_sync_interval
#: (120 s by default) and a minute.
LANDED_SECONDS = 180.0
#: Bound (seconds) on a record's age and life: a clock that is ahead makes none eternal.
MAX_AGE = 3600.0
#: More than any host's vCPUs or MiB, and than any time since the epoch.
MAX_AMOUNT = 2.0 ** 40


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedState:
    """State of the rebalancer that boots must respect.

    ``draining`` hosts are being emptied; ``quarantined`` hosts refused moves
    lately; ``flights`` are migrations under way, of instances that belong to a
    server group first. It is void after ``expires_at`` (epoch): an engine that died
    in the middle of a drain closes no host for ever. ``scopes`` are those that any engine plans:
    each has a record of its own with the limits of boots.
    """

    draining: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    flights: tuple[model.InFlightMove, ...] = ()
    written_at: float = 0.0
    expires_at: float = 0.0
    scopes: frozenset[str] = frozenset()


class FeedChannel:
    """The engine's records in the cache. One instance per process and thread.

    :param conf: with the options of :func:`raw_cache.register`.
    :raises ConfigError: an option cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._cache = raw_cache.RawCache(conf)

    @property
    def cache(self) -> raw_cache.RawCache:
        """The cache, for other records of the same thread."""
        return self._cache

    def write(self, published: PublishedState) -> None:
        """Write the state; raise the backend's errors, which the engine reports."""
        self._cache.set(KEY, json.dumps({
            'version': VERSION,
            'draining': sorted(published.draining),
            'quarantined': sorted(published.quarantined),
            'flights': [[f.instance_uuid, f.from_host, f.to_host] for f in published.flights],
            'scopes': sorted(published.scopes),
            'written_at': published.written_at,
            'expires_at': published.expires_at,
        }))

    def write_usage(self, key: str, usage: flavor_usages.FlavorUsages, written_at: float,
                    expires_at: float) -> None:
        """Write the measured usage of one policy; see :func:`usage_key`."""
        shapes = list(usage.shapes.items())[:flavor_usages.MAX_SHAPES]
        self._cache.set(USAGE_KEY + key, json.dumps({
            'version': USAGE_VERSION,
            'shapes': [[shape.vcpus, shape.memory_mb, use] for shape, use in shapes],
            'moves': [[m.instance_uuid, m.to_host, m.shape.vcpus, m.shape.memory_mb, m.since,
                       m.use] for m in usage.moves[:MAX_MOVES]],
            'written_at': written_at,
            'expires_at': expires_at,
        }))

    def read_usage(self, key: str, now: float | None = None,
                   ) -> tuple[flavor_usages.FlavorUsages, float] | None:
        """Return the usage that holds now, and until when (epoch); None without one.

        :raises ValueError, RecordRefused: the record is not ours.
        """
        value = self._cache.get(USAGE_KEY + key)
        if value is None:
            return None
        usage, written_at, expires_at = _parse_usage(value)
        until = _find_expiry(written_at, expires_at, now)
        return None if until is None else (usage, until)

    def write_boot_limits(self, scope: str, limits: Mapping[str, model.BootLimit],
                          written_at: float, expires_at: float) -> None:
        """Write the limits of boots on the hosts of a scope; empty ones end those before."""
        self._cache.set(_make_limits_key(scope), json.dumps({
            'version': LIMITS_VERSION,
            'limits': [[host, *(amount if math.isfinite(amount) else None for amount in limit)]
                       for host, limit in sorted(limits.items())],
            'written_at': written_at,
            'expires_at': expires_at,
        }))

    def read_boot_limits(self, scope: str, now: float | None = None,
                         ) -> tuple[dict[str, model.BootLimit], float] | None:
        """Return the limits that hold now, and until when (epoch); None without a record.

        :raises ValueError, RecordRefused: the record is not ours.
        """
        value = self._cache.get(_make_limits_key(scope))
        if value is None:
            return None
        limits, written_at, expires_at = _parse_limits(value)
        until = _find_expiry(written_at, expires_at, now)
        return None if until is None else (limits, until)

    def read(self, now: float | None = None) -> PublishedState | None:
        """Return the state that holds now, or None.

        :raises ValueError, RecordRefused: the record is not ours.
        """
        value = self._cache.get(KEY)
        if value is None:
            return None
        published = _parse(value)
        until = _find_expiry(published.written_at, published.expires_at, now)
        return None if until is None else dataclasses.replace(published, expires_at=until)


def choose_flights(cluster: model.Cluster, completed: Iterable[tuple[model.Move, float]] = (),
                   now: float = 0.0) -> tuple[model.InFlightMove, ...]:
    """Return at most MAX_MOVES flights that boots may have to respect.

    Members of server groups come first, then instances that a scheduler hint of another one
    names; any other instance may be named by the hint of a boot to come. Nova's scheduler learns
    of a live migration some minutes late, so a move that has just ended is a flight from its
    destination to its destination.

    :param completed: moves with the time when they ended.
    """
    flying = {flight.instance_uuid for flight in cluster.flights}
    landed = {move.instance_uuid: model.InFlightMove(move.instance_uuid, move.to_host, move.to_host)
              for move, ended_at in completed if now - ended_at < LANDED_SECONDS
              and move.instance_uuid not in flying
              and move.instance_uuid in cluster.instances
              and cluster.instances[move.instance_uuid].host == move.to_host}
    grouped = {uuid for group in cluster.groups for uuid in group.members}
    hinted = {uuid for instance in cluster.instances.values()
              for uuids in instance.scheduler_hints.values() for uuid in uuids}
    return tuple(sorted((*cluster.flights, *landed.values()), key=lambda f: (
        f.instance_uuid not in grouped, f.instance_uuid not in hinted))[:MAX_MOVES])


def _find_expiry(written_at: float, expires_at: float, now: float | None) -> float | None:
    """Return until when a record holds (epoch), MAX_AGE at most; None if it is void now."""
    now = time.time() if now is None else now
    until = min(expires_at, written_at + MAX_AGE, now + MAX_AGE)
    return until if written_at <= now + MAX_AGE and now < until else None


def usage_key(policy: policies.Policy) -> str:
    """Return the key of a policy's usage.

    It is the same in every process whose file measures the same in the same unit.
    """
    what = policy.model_dump(mode='json', include={
        'imbalance_query', 'vm_profile_query', 'vm_profile_unit', 'host_capacity',
        'host_capacity_query'})
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def _make_limits_key(scope: str) -> str:
    return LIMITS_KEY + hashlib.sha256(scope.encode()).hexdigest()[:32]


def _parse(value: Any) -> PublishedState:
    document = raw_cache.parse_json(value)
    if not isinstance(document, dict) or document.get('version') != VERSION:
        raise ValueError(f'{KEY} in the cache was not written by this version')
    flights = []
    for flight in _list(document, 'flights'):
        uuid, from_host, to_host = _parse_row(flight, 3)
        if not (isinstance(uuid, str) and isinstance(from_host, str)
                and (to_host is None or isinstance(to_host, str))):
            raise ValueError(f'{KEY} in the cache: a flight is malformed')
        flights.append(model.InFlightMove(uuid, from_host, to_host, source='kronos'))
    return PublishedState(
        draining=_parse_names(document, 'draining'),
        quarantined=_parse_names(document, 'quarantined'),
        flights=tuple(flights),
        # An engine of the release before writes none.
        scopes=frozenset(sorted(_parse_names(document, 'scopes'))[:MAX_SCOPES])
        if 'scopes' in document else frozenset(),
        written_at=_parse_number(document.get('written_at')),
        expires_at=_parse_number(document.get('expires_at')))


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list):
        raise ValueError(f'{KEY} in the cache: {name} is not a list')
    return value


def _parse_names(document: dict[str, Any], name: str) -> frozenset[str]:
    names = _list(document, name)
    if not all(isinstance(host, str) for host in names):
        raise ValueError(f'{KEY} in the cache: {name} is no list of names')
    return frozenset(names)


def _parse_usage(value: Any) -> tuple[flavor_usages.FlavorUsages, float, float]:
    document = raw_cache.parse_json(value)
    if not isinstance(document, dict) or document.get('version') != USAGE_VERSION:
        raise ValueError(f'{USAGE_KEY} in the cache was not written by this version')
    shapes: dict[flavor_usages.FlavorShape, float] = {}
    for row in _list(document, 'shapes')[:flavor_usages.MAX_SHAPES]:
        vcpus, memory_mb, use = _parse_row(row, 3)
        shapes[_parse_shape(vcpus, memory_mb)] = _parse_number(use)
    moves = []
    for row in _list(document, 'moves')[:MAX_MOVES]:
        uuid, to_host, vcpus, memory_mb, since, use = _parse_row(row, 6)
        if not (isinstance(uuid, str) and isinstance(to_host, str)):
            raise ValueError(f'{USAGE_KEY} in the cache: a move is malformed')
        moves.append(flavor_usages.IncomingMove(uuid, to_host, _parse_shape(vcpus, memory_mb),
                                                _parse_number(since),
                                                None if use is None else _parse_number(use)))
    return (flavor_usages.FlavorUsages(shapes, tuple(moves)),
            _parse_number(document.get('written_at')),
            _parse_number(document.get('expires_at')))


def _parse_limits(value: Any) -> tuple[dict[str, model.BootLimit], float, float]:
    document = raw_cache.parse_json(value)
    if not isinstance(document, dict) or document.get('version') != LIMITS_VERSION:
        raise ValueError(f'{LIMITS_KEY} in the cache was not written by this version')
    limits = {}
    for row in _list(document, 'limits'):
        host, *amounts = _parse_row(row, 4)
        if not isinstance(host, str):
            raise ValueError(f'{LIMITS_KEY} in the cache: a host is malformed')
        limits[host] = model.BootLimit(*(
            math.inf if amount is None else _parse_number(amount) for amount in amounts))
    return (limits, _parse_number(document.get('written_at')),
            _parse_number(document.get('expires_at')))


def _parse_row(row: Any, length: int) -> list[Any]:
    if not isinstance(row, list) or len(row) != length:
        raise ValueError('a row of a record in the cache is malformed')
    return row


def _parse_shape(vcpus: Any, memory_mb: Any) -> flavor_usages.FlavorShape:
    for amount in (vcpus, memory_mb):
        if not isinstance(amount, int) or isinstance(amount, bool) or not 0 < amount < 2**31:
            raise ValueError(f'{USAGE_KEY} in the cache: a flavor is malformed')
    return flavor_usages.FlavorShape(vcpus, memory_mb)


def _parse_number(value: Any) -> float:
    if (not isinstance(value, int | float) or isinstance(value, bool)
            or not 0 <= value <= MAX_AMOUNT):
        raise ValueError('a record in the cache: a value is no amount')
    return float(value)
