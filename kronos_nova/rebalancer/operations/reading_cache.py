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

"""The newest readings that engines have published, decoded for all threads of a process."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.operations import published_cloud
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.snapshots import readings
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import readings as stored_readings

LOG = logging.getLogger(__name__)
#: Seconds that a request waits for the first reading of its process.
FIRST_WAIT = 30.0
#: Seconds without a look at the database after which a request waits for the newest version: a
#: process that had no request for an hour would answer with the cloud of an hour ago.
IDLE_SECONDS = 30.0
#: Tries to read versions that engines replace meanwhile.
LOADS = 5


class ReadingCache:
    """The newest readings, decoded, for all threads of a process.

    A thread decodes a new version, while requests get the one before. Only the first requests of a
    process wait, the first ones for a scope, and those after :data:`IDLE_SECONDS` without any.

    :param clock: seconds since the epoch.
    :param first_wait: seconds that a request waits for the first reading.
    :param after_load: called after each decoding.
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float] = time.time,
                 first_wait: float = FIRST_WAIT,
                 after_load: Callable[[], None] = lambda: None) -> None:
        self._conf = conf
        self._clock = clock
        self._first_wait = first_wait
        self._after_load = after_load
        self._changed = threading.Condition()
        self._loading = False
        self._held: tuple[published_cloud.PublishedReading, ...] = ()
        self._held_key: object = None
        self._error: exception.KronosException | None = None
        self._error_key: object = None
        self._decoders: dict[str, readings.ReadingDecoder] = {}
        self._checked_at = -math.inf
        self._differing: frozenset[str] = frozenset()

    def list_readings(self, store: store_api.Store,
                      scope: str | None = None) -> Sequence[published_cloud.PublishedReading]:
        """Return the newest readings, the latest first.

        :param scope: wait until its first reading is decoded, where an engine has published one.
        :raises ReadingMissingError: no engine has published a reading, or the first one of this
            process is still being decoded.
        :raises SnapshotError: the newest version cannot be decoded.
        :raises StoreError: the database cannot be read.
        """
        if (time.monotonic() - self._checked_at < published_cloud.CHECK_SECONDS
                and self._serves(scope)):
            return self._held
        versions = store.readings.list_versions()
        if not versions:
            raise exception.ReadingMissingError(
                path='database', field='reading', problem='no engine has published a reading of '
                'the cloud', remedy='See that kronos-engine runs with [engine] publish_interval '
                'above 0, and that a cycle has succeeded')
        key = tuple(versions)
        with self._changed:
            if key == self._held_key:
                self._checked_at = time.monotonic()
                return self._held
            if key == self._error_key and isinstance(self._error, exception.SnapshotError):
                raise self._error
            lacking = scope if scope in {row.scope for row in versions} else None
            is_idle = time.monotonic() - self._checked_at > IDLE_SECONDS

            def is_served() -> bool:
                return key == self._held_key if is_idle else self._serves(lacking)

            if not self._wait_for_version(store, is_served) and not self._held:
                raise exception.ReadingMissingError(
                    path='database', field='reading', problem='the reading of the cloud is still '
                    'being decoded', remedy='Try again later')
            if self._error is not None and not self._held:
                raise self._error
            return self._held

    def _wait_for_version(self, store: store_api.Store, is_served: Callable[[], bool]) -> bool:
        """Wait until the versions that are held serve, or one that was read after the call.

        A version whose decoding is under way may be older than the call: one more follows it.

        :param is_served: returns whether the versions that are held are an answer.
        :returns: whether the decoding has ended in time, or the versions serve.
        """
        ends_at = time.monotonic() + self._first_wait

        def wait_for_end() -> bool:
            return self._changed.wait_for(lambda: not self._loading or is_served(),
                                          ends_at - time.monotonic())

        if self._loading:
            ended = wait_for_end()
            if not ended or is_served() or self._error is not None:
                return ended
        if not self._loading:
            self._loading, self._error = True, None
            threading.Thread(target=self._load, args=(store,), daemon=True,
                             name='kronos-readings').start()
        return wait_for_end()

    def _serves(self, scope: str | None) -> bool:
        return any(scope is None or scope in reading.scopes for reading in self._held)

    def _load(self, store: store_api.Store) -> None:
        """Decode the newest versions in a thread of its own."""
        held: tuple[published_cloud.PublishedReading, ...] | None = None
        error: exception.KronosException | None = None
        key: object = None
        checked_at = self._checked_at
        try:
            for _try in range(LOADS):
                checked_at, versions = time.monotonic(), store.readings.list_versions()
                key, held = tuple(versions), self._decode(store, versions)
                if held:
                    break
            else:
                raise exception.StoreError(
                    problem='has readings of the cloud that are deleted while they are read',
                    remedy='See which engines publish the same scopes, as in dry runs.')
        except exception.KronosException as e:
            LOG.error('The reading of the cloud cannot be used: %s', e)
            error = e
        except Exception:
            LOG.exception('The reading of the cloud cannot be decoded, because of a defect of ours')
            error = exception.SnapshotError(path='database', problem='an unexpected error',
                                            remedy='Report the traceback in the log')
        with self._changed:
            self._loading = False
            if held:
                self._held, self._held_key, self._checked_at = held, key, checked_at
            self._error, self._error_key = error, key
            self._changed.notify_all()
        self._after_load()

    def _decode(self, store: store_api.Store,
                versions: Sequence[stored_readings.ReadingVersion],
                ) -> tuple[published_cloud.PublishedReading, ...] | None:
        """Return the readings, the latest first; None: another version has replaced one."""
        scopes: dict[str, list[str]] = {}
        for row in versions:
            scopes.setdefault(row.reading_id, []).append(row.scope)
        self._decoders = {reading_id: self._decoders.get(reading_id) or readings.ReadingDecoder()
                          for reading_id in scopes}
        decoded = []
        for reading_id, names in scopes.items():
            decoder = self._decoders[reading_id]
            stored = store.readings.load_reading(reading_id, decoder.known)
            if stored is None:
                return None
            content = decoder.decode_reading(stored.format, stored.versions, stored.parts)
            self._compare_options(content.options)
            decoded.append(published_cloud.PublishedReading(self._conf, content, names))
        return tuple(sorted(decoded, key=lambda reading: -reading.taken_at))

    def _compare_options(self, options: model.PlanningOptions) -> None:
        """Log the options of the engine that differ from ours, once."""
        ours = dataclasses.asdict(engine_conf.build_options(self._conf))
        differing = frozenset(name for name, value in dataclasses.asdict(options).items()
                              if ours.get(name) != value)
        if differing and differing != self._differing:
            LOG.warning('[engine] of this kronos.conf differs from that of the engine in: %s. '
                        'Verdicts use the options of the engine, but give kronos-api the same '
                        'options.', ', '.join(sorted(differing)))
        self._differing = differing

    def read_recent_request(self, session: Any, reading: published_cloud.PublishedReading,
                            scope: str) -> planner.PlanningInput:
        """Return the request of a scope as :meth:`.PublishedReading.find_recent_request` does.

        :param session: a DatabaseSession.
        """
        return reading.find_recent_request(session.conf, session.store, scope, self._clock())

    def make_session(self, session: Any, reading: published_cloud.PublishedReading,
                     ) -> published_cloud.PublishedSession:
        """Return a session for a reading, with the database and the operator of another one.

        :param session: a DatabaseSession.
        """
        published = published_cloud.PublishedSession(
            reading, self._clock, operator=session.operator, person=session.person)
        published.signer = session.signer
        published.conf, published.store = session.conf, session.store
        published.policies = reading.content.policies
        return published

    def find_session(self, session: Any, scope: str) -> published_cloud.PublishedSession:
        """Return the session for the reading of a scope.

        :raises NotFoundError: no reading is that of the scope.
        :raises KronosException: see :meth:`list_readings`.
        """
        known = {name: reading for reading in self.list_readings(session.store, scope)
                 for name in reading.scopes}
        if scope not in known:
            raise exception.NotFoundError(
                path='database', field='scope', problem=f'no engine plans {scope!r}',
                remedy=f'Planned are: {", ".join(sorted(known))}')
        return self.make_session(session, known[scope])
