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

"""The inbox: messages from the broker on their way to the database.

A task is kept in the database before its message is acknowledged.
"""

from collections.abc import Callable
import hashlib
import queue
import threading
import time

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.messaging import mqtt
from kronos_nova.rebalancer.migfra import host_topics
from kronos_nova.rebalancer.migfra import outbox
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra import request_repository
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import requests

LOG = logging.getLogger(__name__)

#: Messages that may wait to be stored; with more, the broker waits.
WAITING = 256
#: Seconds within which two messages without an id and of the same content are one task.
ANONYMOUS_SECONDS = 60.0


class MessageQueue:
    """Messages that wait to be stored."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self.messages: queue.Queue[mqtt.ReceivedMessage] = queue.Queue(WAITING)

    def queue_message(self, message: mqtt.ReceivedMessage) -> None:
        """Queue a message, on the connection's thread; while the queue is full, the broker waits.
        """
        while not self._stopping.is_set():
            try:
                return self.messages.put(message, timeout=0.5)
            except queue.Full:
                continue
        return None


class TaskInbox:
    """Reader of the queued messages.

    :param wake: wakes the workers after a new request.
    """

    def __init__(self, conf: cfg.ConfigOpts, repository: request_repository.MigfraRequestRepository,
                 topics: host_topics.HostTopics, waiting: MessageQueue,
                 out: outbox.ResultOutbox, wake: Callable[[], None],
                 clock: Callable[[], float] = time.time) -> None:
        self._conf = conf
        self._repository = repository
        self._topics = topics
        self._messages = waiting.messages
        self._outbox = out
        self._wake = wake
        self._clock = clock
        self._held_message: mqtt.ReceivedMessage | None = None

    def store_messages(self, wait: float) -> None:
        """Store the waiting messages, at most WAITING.

        :param wait: seconds to wait for the first one.
        :raises StoreError: the database is away; no message is lost.
        """
        if self._held_message is not None:
            self._store_message(self._held_message)
            self._held_message = None
        try:
            # Claims and results are due even if messages come faster than they are stored.
            for _ in range(WAITING):
                self._held_message = self._messages.get(timeout=wait)
                wait = 0.0
                self._store_message(self._held_message)
                self._held_message = None
        except queue.Empty:
            pass

    def _store_message(self, message: mqtt.ReceivedMessage) -> None:
        """Store the task of a message, or publish its refusal; acknowledge it after that."""
        alias = self._topics.parse_alias(message.topic)
        host = self._topics.aliases.get(alias, alias)
        if message.retained:
            LOG.warning('A task for %s was published as retained: it may be of long ago and is '
                        'left alone. Publish tasks without that flag.', api.format_printable(host))
            return message.acknowledge()
        try:
            task = task_reader.parse_task(
                message.payload, alias, protocol.MessageDialect(self._conf.migfra.dialect),
                lambda text: LOG.info('A task for %s: %s', host, text))
        except task_reader.MessageRefused as e:
            return self._outbox.publish_refusal(
                message, host, e.kind, e.request_id, str(e), e.named)
        except Exception as e:
            # The message must not come again and again, and stop each reader.
            LOG.exception('A message for %s could not be read for a reason that is a defect of '
                          'ours.', api.format_printable(host))
            return self._outbox.publish_refusal(
                message, host, None, None,
                f'a defect of kronos-nova ({type(e).__name__}); see its log')
        document = request_handler.format_document(
            request_handler.resolve_hosts(task, self._topics.aliases))
        digest = hashlib.sha256(document.encode()).hexdigest()
        key, former = self._keys(task.id, host, digest)
        now = self._clock()
        request = requests.MigfraRequest(
            key, host, task.task.value, document, digest, now,
            authorization=self._repository.authorization.sign_request(
                key, host, task.task.value, document, now))
        known = self._repository.receive_request(request, former)
        if known is None:
            LOG.info('Request %s: %s on %s', key, task.task, host)
            self._wake()
        elif (known.digest, known.host) != (request.digest, host):
            return self._outbox.publish_refusal(
                message, host, MigfraRequestKind(task.task), task.id,
                'id: another task had it; each needs one of its own',
                request_handler.list_named_instances(request))
        elif known.ended_at is not None:
            LOG.info('Request %s came again after its end: sending its result again',
                     known.request_id)
            self._outbox.request_again(known.request_id)
        return message.acknowledge()

    def _keys(self, request_id: str | int | None, host: str,
              digest: str) -> tuple[str, list[str]]:
        """Return the key of a new request, and the keys under which it may be known.

        Each kronos-migfra receives every message; one without an id is the same as one of the same
        content within a minute.
        """
        if request_id is not None:
            # A release before had ids for all hosts together.
            return request_handler.make_key(host, request_id), [str(request_id)]
        minute = int(self._clock() // ANONYMOUS_SECONDS)
        keys = [request_handler.make_key(host, f'no-id-{digest[:32]}-{n}')
                for n in (minute, minute - 1)]
        return keys[0], keys[1:]
