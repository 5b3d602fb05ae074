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



"""Exchanges and queues that RabbitMQ already has, compared with those that we declare.

Another program may have declared them with other properties. Then RabbitMQ refuses ours, and
oslo.messaging hides that, or declares something else. A comparison creates nothing.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import re
from typing import Any
import uuid

from kombu import entity
from oslo_messaging._drivers import common
from oslo_messaging._drivers import impl_rabbit

from kronos_nova import exception

#: Milliseconds until RabbitMQ removes the queue of a trial that could not remove it.
_TRIAL_MILLISECONDS = 60000
#: Priority of our notifications: oslo.messaging makes it a part of the queue's name.
_PRIORITY = 'info'
#: AMQP's codes: it does not exist; another program owns it alone, it has other properties.
_NOT_FOUND = 404
_CONFLICTS = {405, 406}


@dataclasses.dataclass(frozen=True, slots=True)
class QueueBinding:
    """A queue of the control exchange; without a name, the exchange alone.

    With ``fanout``, the exchange is the topic's own, which each RPC server declares.
    """

    topic: str
    queue: str = ''
    fanout: bool = False


def bind_casts(topic: str, server: str) -> list[QueueBinding]:
    """Return queues and exchanges of an RPC server named ``server`` on ``topic``."""
    return [*(QueueBinding(name, name) for name in (topic, f'{topic}.{server}')),
            QueueBinding(topic, fanout=True)]


def bind_notifications(topics: Sequence[str], pool: str | None = None) -> list[QueueBinding]:
    """Return queues of a notification listener, or of a notifier (which has no pool)."""
    names = [f'{topic}.{_PRIORITY}' for topic in topics]
    return [QueueBinding(name, pool or name) for name in names]


def compare_topology(transport: Any, bindings: Sequence[QueueBinding]) -> None:
    """Compare the existing entities with those that oslo.messaging would declare for ``bindings``.

    Other drivers than RabbitMQ's declare nothing.

    :raises BrokerConflict: an exchange or a queue has other properties.
    """
    if not uses_rabbitmq(transport):
        return
    exchange = transport.conf.control_exchange
    # Each retry takes the next of the brokers.
    with _open_connection(transport, max(1, len(transport._driver._url.hosts) - 1)) as connection:
        for binding in bindings:
            declared = (_describe_fanout(connection, binding.topic) if binding.fanout else
                        _describe_consumer(connection, exchange, binding.topic, binding.queue))
            _compare_entity(connection, 'exchange', declared.exchange)
            if binding.queue:
                _compare_entity(connection, 'queue', _build_queue(declared))


def try_round_trip(transport: Any, retry: int) -> None:
    """Declare a queue like ours, send a message through it, and remove it again.

    :raises Exception: the objection of RabbitMQ or its client.
    """
    with _open_connection(transport, retry) as connection:
        name = f'kronos.test_config.{uuid.uuid4().hex}'
        declared = _describe_consumer(connection, name, name, name)
        channel = connection.connection.channel()
        # RabbitMQ removes the exchange with the queue when the trial could not.
        build: Callable[..., Any] = entity.Exchange
        exchange = build(name, 'topic', durable=declared.durable, auto_delete=True)(channel)
        queue = _build_queue(declared, {'x-expires': _TRIAL_MILLISECONDS})(channel)
        try:
            exchange.declare()
            queue.queue_declare()
            queue.queue_bind()
            exchange.publish(exchange.Message('ping'), routing_key=name)
        finally:
            _remove(connection, _build_queue(declared), declared.exchange)


def _remove(connection: Any, queue: Any, exchange: Any) -> None:
    """Delete both on a new channel: an error has closed the other one."""
    with contextlib.suppress(*connection.connection.channel_errors):
        channel = connection.connection.channel()
        queue(channel).delete()
        exchange(channel).delete()
        channel.close()


def uses_rabbitmq(transport: Any) -> bool:
    """Return whether the driver is the one for RabbitMQ, which declares exchanges and queues."""
    return isinstance(getattr(transport, '_driver', None), impl_rabbit.RabbitDriver)


@contextlib.contextmanager
def _open_connection(transport: Any, retry: int) -> Iterator[Any]:
    """Borrow one of the driver's own connections, with its hosts, login and TLS.

    Its lock keeps the thread away that sends heartbeats.
    """
    with transport._driver._get_connection(common.PURPOSE_SEND, retry) as borrowed:
        connection = borrowed.connection
        with connection._connection_lock:
            yield connection


class _ConsumerRecorder:
    """Stand-in for the driver's connection that keeps the consumer which it would declare."""

    #: Its next name belongs to the server's own queue.
    _q_manager = None

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.consumer: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def declare_consumer(self, consumer: Any) -> None:
        self.consumer = consumer


def _describe_consumer(connection: Any, exchange: str, topic: str, queue: str) -> Any:
    """Return oslo.messaging's own description of a topic queue; its options set properties."""
    recorder = _ConsumerRecorder(connection)
    declare: Callable[..., None] = impl_rabbit.Connection.declare_topic_consumer
    declare(recorder, exchange, topic, None, queue or topic)
    return recorder.consumer


def _describe_fanout(connection: Any, topic: str) -> Any:
    """Return oslo.messaging's own description of a topic's fanout exchange and of one queue."""
    recorder = _ConsumerRecorder(connection)
    declare: Callable[..., None] = impl_rabbit.Connection.declare_fanout_consumer
    declare(recorder, topic, None)
    return recorder.consumer


def _build_queue(declared: Any, more: dict[str, Any] | None = None) -> Any:
    build: Callable[..., Any] = entity.Queue
    return build(
        name=declared.queue_name, exchange=declared.exchange, durable=declared.durable,
        auto_delete=declared.queue_auto_delete, routing_key=declared.routing_key,
        queue_arguments={**(declared.queue_arguments or {}), **(more or {})})


def _compare_entity(connection: Any, kind: str, entity: Any) -> None:
    """Declare an exchange or a queue that exists, and nothing that does not.

    :raises BrokerConflict: RabbitMQ refuses our properties.
    """
    errors = connection.connection.channel_errors

    def declare_entity(*, passive: bool) -> None:
        # Each on a channel of its own: an error closes it.
        channel = connection.connection.channel()
        bound = entity(channel)
        if kind == 'queue':
            bound.queue_declare(passive=passive)
        else:
            bound.declare(passive=passive)
        channel.close()

    try:
        declare_entity(passive=True)
    except errors as e:
        if e.code != _NOT_FOUND:
            raise
        return
    try:
        declare_entity(passive=False)
    except errors as e:
        if e.code not in _CONFLICTS:
            raise
        raise exception.BrokerConflict(kind=kind, name=entity.name,
                                       problem=_format_reply(e)) from None


def _format_reply(error: Exception) -> str:
    """Return RabbitMQ's text without the frame around it."""
    text = ' '.join(str(getattr(error, 'reply_text', '') or error).split())
    return re.sub(r'[\x00-\x1f\x7f]', ' ', text)[:300]
