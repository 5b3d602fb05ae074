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
"""The publication of what a cycle has read, for kronos-api, which reads the database alone."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import math

from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.snapshots import readings
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import readings as stored_readings

LOG = logging.getLogger(__name__)


class ReadingPublisher:
    """Publishes the reading of one engine, whose versions follow one another.

    :param engine: the name of the engine, which the database keeps with the reading.
    :param monotonic: seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store, engine: str,
                 monotonic: Callable[[], float]) -> None:
        self._conf = conf
        self._store = store
        self._engine = engine
        self._monotonic = monotonic
        self._encoder = readings.ReadingEncoder()
        self._reading_id = ''
        self._version = 0
        self._published_at = -math.inf
        self._scopes: dict[str, readings.ScopeReading] = {}
        self._failing = False

    def publish_cycle(self, cluster: model.Cluster, named: Sequence[str],
                      outcomes: Sequence[planning_pipeline.PassOutcome],
                      scopes: Collection[str], policy_set: policies.PolicySet) -> None:
        """Publish the reading of a cycle, unless one was published a short time ago.

        A reading that cannot be written is logged: the next cycle writes all its parts.

        :param cluster: the whole cloud, without moves of our own tasks.
        :param named: the planned aggregates, in order.
        :param outcomes: of the scopes that this cycle has planned.
        :param scopes: the scopes to publish. One without an outcome keeps its scores of the cycle
            before.
        """
        self._scopes = {scope: reading for scope, reading in {**self._scopes, **{
            outcome.cluster.scope: readings.ScopeReading(
                outcome.scores, outcome.request.history, engine_conf.count_needed_approvals(
                    self._conf, outcome.cluster.scope))
            for outcome in outcomes}}.items() if scope in scopes}
        interval, now = self._conf.engine.publish_interval, self._monotonic()
        # Cycles begin at about their interval: half of one is no reason to wait for another.
        early = min(interval, self._conf.engine.evaluation_interval) / 2
        if not interval or not self._scopes or now - self._published_at < interval - early:
            return
        try:
            self._write(readings.CloudReading(
                cluster.taken_at, dataclasses.replace(cluster, scope_hosts=frozenset()),
                tuple(named), policy_set, engine_conf.build_options(self._conf),
                dict(self._scopes)))
        except (exception.StoreError, ValueError) as e:
            self._encoder.forget_parts()
            self._version = 0
            log = LOG.debug if self._failing else LOG.warning
            log('The reading for kronos-api is not published: %s The next cycle tries again.',
                exception.format_sentence(e))
            self._failing = True
        else:
            self._published_at, self._failing = now, False

    def _write(self, reading: readings.CloudReading) -> None:
        encoded = self._encoder.encode_reading(reading)
        if self._version and self._publish(reading, encoded):
            return
        if self._version:  # another engine has deleted the version before
            self._encoder.forget_parts()
            encoded = self._encoder.encode_reading(reading)
        self._reading_id, self._version = uuidutils.generate_uuid(), 0
        self._publish(reading, encoded)

    def _publish(self, reading: readings.CloudReading, encoded: readings.EncodedReading) -> bool:
        version = self._version + 1
        written = self._store.readings.publish_reading(stored_readings.Publication(
            self._reading_id, self._engine, version, readings.FORMAT, reading.taken_at,
            encoded.names, encoded.changed, tuple(reading.scopes)))
        if written:
            self._version = version
            LOG.debug('Version %d of reading %s: %d of %d parts, %d bytes', version,
                      self._reading_id, len(encoded.changed), len(encoded.names),
                      sum(map(len, encoded.changed.values())))
        return written
