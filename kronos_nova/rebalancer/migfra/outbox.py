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

"""The outbox: results and refusals on their way to the broker.

A result is published until the broker has acknowledged it.
"""

from collections.abc import Callable
from collections.abc import Sequence
import queue
import time
from typing import Protocol

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import host_topics
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_repository
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind

LOG = logging.getLogger(__name__)

#: Seconds that a result waits after the broker has refused it; and the results that may wait
#: or be on their way before no more are published.
REFUSED_SECONDS = 30.0
MOST_UNTOLD = 500


class MqttBroker(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def subscribe_topics(self, topics: Sequence[str]) -> None: ...

    def publish_message(self, topic: str, payload: str,
                        on_answer: Callable[[bool], None]) -> None: ...


class ResultOutbox:
    """Publisher of results and refusals.

    :param ticks: monotonic seconds, for waiting times.
    """

    def __init__(self, conf: cfg.ConfigOpts, repository: request_repository.MigfraRequestRepository,
                 topics: host_topics.HostTopics, broker: MqttBroker,
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._repository = repository
        self._topics = topics
        self._broker = broker
        self._ticks = ticks
        self._telling: set[str] = set()
        self._again: set[str] = set()
        self._publish_answers: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        #: Results that the broker has refused, with the time (ticks) of the next try.
        self._refused_until: dict[str, float] = {}

    def publish_refusal(self, message: mqtt.ReceivedMessage, host: str,
                        kind: MigfraRequestKind | None,
                        request_id: str | int | None, why: str, named: Sequence[str] = ()) -> None:
        """Publish that a message is no task, and acknowledge it after that."""
        LOG.warning('A message for %s is no task: %s', host, why)
        text = replies.format_refusal(kind, request_id, self._conf.migfra.scheduler, why, named)
        # If it cannot be published, the message comes again after the next connection.
        self._broker.publish_message(self._topics.format_topic(host, 'result'), text,
                                     lambda accepted: message.acknowledge() if accepted else None)

    def request_again(self, request_id: str) -> None:
        """Have a result published once more, also while it is on its way."""
        self._again.add(request_id)
        self._repository.record_reply_delivery(request_id, again=True)

    def publish_results(self, workers: Sequence[str]) -> None:
        """Publish the results of the workers' requests, and overdue results of other workers."""
        while not self._publish_answers.empty():
            request_id, accepted = self._publish_answers.get()
            # If this fails, the result is published once more, which does no harm.
            self._telling.discard(request_id)
            if accepted and request_id in self._again:
                # It was requested again while it was on its way.
                self._again.discard(request_id)
            elif accepted:
                self._repository.record_reply_delivery(request_id)
            else:
                # A client that may not publish there may not in a moment either.
                self._refused_until[request_id] = self._ticks() + REFUSED_SECONDS
        for request_id in [r for r, until in self._refused_until.items()
                           if until <= self._ticks()]:
            del self._refused_until[request_id]
        if len(self._telling) + len(self._refused_until) > MOST_UNTOLD:
            return
        for request in self._repository.list_undelivered_replies(
                workers, self._telling | self._refused_until.keys()):
            self._telling.add(request.request_id)
            self._again.discard(request.request_id)
            self._broker.publish_message(
                self._topics.format_topic(request.host, 'result'), request.reply or '',
                self._make_publish_callback(request.request_id))

    def _make_publish_callback(self, request_id: str) -> Callable[[bool], None]:
        return lambda accepted: self._publish_answers.put((request_id, accepted))

