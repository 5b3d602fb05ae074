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


"""What the engine tells the schedulers, through the cache both can reach.

The engine writes the whole cloud's state as its database has it; whoever
writes last wins, which is right because all write the same. Nova reads it in
the background. Nothing there, something old or something malformed is the
same as nothing: the schedulers then decide without it.
"""

import dataclasses
import json
import time
from typing import Any

from oslo_cache import core
from oslo_config import cfg

from kronos_nova import model

KEY = 'kronos_nova.published'
VERSION = 1
#: A clock that is this far ahead (seconds) does not make a message eternal.
MAX_AGE = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """State of the rebalancer that boots must respect.

    ``draining`` hosts are being emptied; ``quarantined`` hosts refused moves
    lately; ``flights`` are migrations under way of instances that belong to a
    server group. It is void after ``expires_at`` (epoch): an engine that died
    in the middle of a drain closes no host for ever.
    """

    draining: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    flights: tuple[model.Flight, ...] = ()
    written_at: float = 0.0
    expires_at: float = 0.0


def register(conf: cfg.ConfigOpts) -> None:
    """The options of [cache], oslo.cache's own."""
    core.configure(conf)


class Channel:
    """The place in the cache. One per process and thread that uses it.

    :param conf: with the group [cache]; its default backend keeps nothing.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        register(conf)
        self._region = core.configure_cache_region(conf, core.create_region())

    def write(self, published: Published) -> None:
        """Raises what the backend raises: the engine reports it."""
        self._region.set(KEY, json.dumps({
            'version': VERSION,
            'draining': sorted(published.draining),
            'quarantined': sorted(published.quarantined),
            'flights': [[f.instance_uuid, f.from_host, f.to_host] for f in published.flights],
            'written_at': published.written_at,
            'expires_at': published.expires_at,
        }))

    def read(self, now: float | None = None) -> Published | None:
        """What holds now, or None.

        :raises ValueError: what is there is not ours.
        """
        value = self._region.get(KEY)
        if value is core.NO_VALUE or value is None:
            return None
        published = _parse(value)
        now = time.time() if now is None else now
        if not now - MAX_AGE < published.written_at <= now + MAX_AGE:
            return None
        return published if now < published.expires_at <= now + MAX_AGE else None


def _parse(value: Any) -> Published:
    document = json.loads(value)
    if not isinstance(document, dict) or document.get('version') != VERSION:
        raise ValueError(f'{KEY} in the cache was not written by this version')
    flights = []
    for uuid, from_host, to_host in _list(document, 'flights'):
        if not (isinstance(uuid, str) and isinstance(from_host, str)
                and (to_host is None or isinstance(to_host, str))):
            raise ValueError(f'{KEY} in the cache: a flight is malformed')
        flights.append(model.Flight(uuid, from_host, to_host, source='kronos'))
    return Published(
        draining=frozenset(map(str, _list(document, 'draining'))),
        quarantined=frozenset(map(str, _list(document, 'quarantined'))),
        flights=tuple(flights), written_at=float(document['written_at']),
        expires_at=float(document['expires_at']))


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list):
        raise ValueError(f'{KEY} in the cache: {name} is not a list')
    return value
