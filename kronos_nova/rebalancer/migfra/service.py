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

"""kronos-migfra: takes tasks from the broker, continues them, and publishes their results.

A task is kept in the database before its message is acknowledged, and its result is published until
the broker has acknowledged it. Servers and moves have a thread each: a look at a large cloud takes
long, and starting a server should not.
"""

from collections.abc import Callable
from collections.abc import Sequence
import threading
import time

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import host_topics
from kronos_nova.rebalancer.migfra import inbox
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import outbox
from kronos_nova.rebalancer.migfra import request_repository
from kronos_nova.rebalancer.migfra import request_worker
from kronos_nova.rebalancer.monitoring import health as healths

LOG = logging.getLogger(__name__)


class MigfraService:
    """The service: connection to the broker, and the lanes.

    :param connect: makes the connection to the broker, given the function that takes messages.
    :param lanes: continue the requests.
    """

    def __init__(self, conf: cfg.ConfigOpts, repository: request_repository.MigfraRequestRepository,
                 hosts: names.ScopesByHost,
                 lanes: Sequence[request_worker.MigfraRequestWorker],
                 connect: Callable[[Callable[[mqtt.ReceivedMessage], None]], outbox.MqttBroker],
                 health: healths.DaemonHealth | None = None,
                 clock: Callable[[], float] = time.time,
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._topics = host_topics.HostTopics(conf, hosts)
        self._lanes = lanes
        self._ticks = ticks
        self._stopping = threading.Event()
        self._refresh_at = self._beat_at = float('-inf')
        self._health = health or healths.DaemonHealth()
        for part in ('messages', *(lane.name for lane in lanes)):
            self._health.expect_part(part)
        self._pulses = {name: self._health.add_pulse(name, request_worker.HUNG_SECONDS)
                        for name in ('messages', *(lane.name for lane in lanes))}
        waiting = inbox.MessageQueue(self._stopping)
        self._broker = connect(waiting.queue_message)
        self._outbox = outbox.ResultOutbox(conf, repository, self._topics, self._broker, ticks)
        self._inbox = inbox.TaskInbox(conf, repository, self._topics, waiting, self._outbox,
                                      self._wake_lanes, clock)

    def run(self) -> None:
        """Work until :meth:`stop`."""
        threads = [threading.Thread(target=self._run_loop, name=f'kronos-migfra-{lane.name}',
                                    args=(lane.name, lane.run_once, lane.wake))
                   for lane in self._lanes]
        for thread in threads:
            thread.start()
        self._broker.start()
        try:
            self._run_loop('messages', self.run_once, None)
        finally:
            self.stop()
            self._broker.stop()
            for thread in threads:
                thread.join()
            for lane in self._lanes:
                lane.close()

    def stop(self) -> None:
        """End soon; the next process continues the open requests."""
        self._stopping.set()
        self._wake_lanes()

    def _wake_lanes(self) -> None:
        for lane in self._lanes:
            lane.wake.set()

    def _run_loop(self, name: str, step: Callable[[], object],
                  wake: threading.Event | None) -> None:
        while not self._stopping.is_set():
            self._pulses[name].record_beat()
            problem = ''
            try:
                step()
            except exception.StoreError as e:
                problem = str(e)
                LOG.error('%s: %s It is tried again.', name, e)
            except Exception as e:
                problem = f'{type(e).__name__}, a defect of ours; see the log'
                LOG.exception('%s: a pass failed for a reason that is a defect of ours; the next '
                              'one tries again.', name)
            self._health.record_part(name, {'': problem} if problem else {})
            if wake is not None:
                wake.wait(self._conf.migfra.poll_interval)
                wake.clear()
            elif problem:
                self._stopping.wait(1.0)

    def run_once(self, wait: float = 0.2) -> None:
        """Refresh the hosts, store new messages, publish results.

        :raises StoreError: the database is away; no message is lost.
        """
        now = self._ticks()
        if now >= self._refresh_at:
            self._topics.refresh_topics(self._broker.subscribe_topics)
            self._refresh_at = now + self._conf.migfra.hosts_interval
        if now >= self._beat_at:
            self._beat_at = now + self._conf.migfra.claim_seconds / 4
            for lane in self._lanes:
                lane.renew_request_claims()
        self._inbox.store_messages(wait)
        self._outbox.publish_results([lane.worker for lane in self._lanes])
