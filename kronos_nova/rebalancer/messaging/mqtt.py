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

"""A connection to an MQTT broker that stays up for as long as the process lives.

At least once in both directions: we acknowledge a message when its receiver says so, and a
publication is complete when the broker has acknowledged it. Source of the details: MQTT 3.1.1 and
5, chapters 3 and 4; paho-mqtt's threaded loop.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import ssl
import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from paho.mqtt import client as paho
from paho.mqtt import enums
from paho.mqtt import packettypes
from paho.mqtt import properties

from kronos_nova import exception

LOG = logging.getLogger(__name__)

#: Seconds for which a broker that speaks MQTT 5 keeps messages while we are away.
KEPT_SECONDS = 7 * 86400
#: Messages that may wait for our acknowledgement; MQTT 3.1.1 brokers have their own limit.
IN_FLIGHT = 64
_PER_SUBSCRIBE = 100
#: Not a packet's number: stands for subscriptions that we are about to send.
_NOT_YET = -1
_VERSIONS = {'3.1.1': enums.MQTTProtocolVersion.MQTTv311, '5': enums.MQTTProtocolVersion.MQTTv5}


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A received message.

    ``retained``: the broker kept it for new subscribers, and it may be old. ``acknowledge`` it
    when it can be forgotten; else it comes again.
    """

    topic: str
    payload: bytes
    retained: bool
    acknowledge: Callable[[], None]


class MqttConnection:
    """Connection to the broker of [mqtt].

    :param client_id: our name; another connection of the same name ends this one.
    :param heard: receives messages, on the connection's thread; it may block for a while.
    :param status: a topic that shows, retained, our state: ``online``: we receive all topics;
        ``partial``: the broker refuses some topics; or ``offline``.
    :param keeps_session: the broker keeps messages while we are away; then ``client_id`` must be
        ours alone, and the same after a restart.
    :raises ConfigError: the options cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts, client_id: str,
                 heard: Callable[[ReceivedMessage], None],
                 status: str | None = None, keeps_session: bool = True) -> None:
        self._conf = conf.mqtt
        self._heard = heard
        self._status = status
        self._keeps_session = keeps_session
        self._shown: str | None = None
        self._lock = threading.Lock()
        # paho calls us with locks of its own held, which its publish_message() takes: nothing is
        # published below _lock, and _showing is taken by no callback of a publication.
        self._showing = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._pending_subscriptions: dict[int, list[str]] = {}
        self._refused: set[str] = set()
        self._callbacks: dict[int, Callable[[bool], None]] = {}
        self._early: dict[int, bool] = {}
        self._session = 0
        self._trouble: str | None = None
        self.connected = threading.Event()
        #: Set while the broker has accepted the subscriptions to all our topics.
        self.hearing = threading.Event()
        self._client = self._make_client(client_id)

    def _make_client(self, client_id: str) -> paho.Client:
        client = make_client(
            self._conf, client_id, keeps_session=self._keeps_session, manual_ack=True)
        if self._status is not None:
            client.will_set(self._status, 'offline', 1, True)
        client.reconnect_delay_set(1, 30)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        return client

    def start(self) -> None:
        """Connect, now or when the broker is there."""
        conf = self._conf
        more: dict[str, Any] = {}
        if conf.protocol == '5':
            wishes: Any = properties.Properties(  # type: ignore[no-untyped-call]
                packettypes.PacketTypes.CONNECT)
            wishes.SessionExpiryInterval = KEPT_SECONDS if self._keeps_session else 0
            wishes.ReceiveMaximum = IN_FLIGHT
            more = {'clean_start': not self._keeps_session, 'properties': wishes}
        self._client.connect_async(conf.host, conf.port, conf.keepalive, **more)
        self._client.loop_start()

    def stop(self) -> None:
        """Publish that we leave, and disconnect; the broker sends unacknowledged messages again."""
        try:
            if self._status is not None and self.connected.is_set():
                self._client.publish(self._status, 'offline', 1, True).wait_for_publish(2.0)
        except (RuntimeError, ValueError) as e:
            # The connection has just broken: the last will says it for us.
            LOG.info('MQTT broker %s:%d: could not say that we leave (%s)', self._conf.host,
                     self._conf.port, e)
        finally:
            self._client.disconnect()
            self._client.loop_stop()

    def subscribe_topics(self, topics: Collection[str]) -> None:
        """Receive these topics from now on, and no others."""
        with self._lock:
            new, old = frozenset(topics) - self._topics, self._topics - frozenset(topics)
            self._topics = frozenset(topics)
            connected = self.connected.is_set()
        if connected:
            self._subscribe_topics(new)
            for some in _split_topics(old):
                self._client.unsubscribe(some)
            self._update_status()

    def publish_message(self, topic: str, payload: str, on_answer: Callable[[bool], None]) -> None:
        """Publish a message; it waits for a broker that is away.

        :param on_answer: called on the connection's thread, with whether the broker has taken the
            message.
        """
        self._publish_message(topic, payload, False, on_answer)

    def _publish_message(self, topic: str, payload: str, retain: bool,
                         on_answer: Callable[[bool], None]) -> None:
        info = self._client.publish(topic, payload.encode(), 1, retain)
        if info.rc not in (enums.MQTTErrorCode.MQTT_ERR_SUCCESS,
                           enums.MQTTErrorCode.MQTT_ERR_NO_CONN):
            on_answer(False)
            return
        with self._lock:
            accepted = self._early.pop(info.mid, None)
            if accepted is None:
                self._callbacks[info.mid] = on_answer
        if accepted is not None:
            on_answer(accepted)

    # On the connection's thread.

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any,
                    props: Any = None) -> None:
        if reason.is_failure:
            self._log_trouble(f'the broker refuses us ({reason}); see [mqtt] username and password')
            return
        self._session += 1
        self._trouble = None
        LOG.info('Connected to the MQTT broker at %s:%d', self._conf.host, self._conf.port)
        with self._lock:
            self._pending_subscriptions[_NOT_YET] = []
            self.connected.set()
            topics = self._topics
        self._subscribe_topics(topics)
        with self._lock:
            self._pending_subscriptions.pop(_NOT_YET, None)

    def _subscribe_topics(self, topics: Iterable[str]) -> None:
        for some in _split_topics(topics):
            # The answer comes on the connection's thread, and waits for the lock.
            with self._lock:
                _result, mid = self._client.subscribe([(topic, 1) for topic in some])
                if mid is not None:
                    self._pending_subscriptions[mid] = some

    def _on_connect_fail(self, client: Any, userdata: Any) -> None:
        self._log_trouble('it cannot be reached, or TLS fails')

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any,
                       props: Any = None) -> None:
        self.connected.clear()
        self.hearing.clear()
        with self._lock:
            self._pending_subscriptions.clear()
            self._refused.clear()
            self._shown = None
        if reason.is_failure:
            self._log_trouble(f'the connection broke ({reason})')

    def _log_trouble(self, trouble: str) -> None:
        """Log a trouble with the broker once, until it changes or is over."""
        if trouble != self._trouble:
            LOG.warning('MQTT broker %s:%d: %s. The connection is retried until it succeeds; '
                        'outgoing messages wait.', self._conf.host, self._conf.port, trouble)
        self._trouble = trouble

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        session, mid, qos = self._session, message.mid, message.qos

        def acknowledge_message() -> None:
            # A number of an earlier connection means another message now.
            if qos and session == self._session:
                self._client.ack(mid, qos)

        self._heard(ReceivedMessage(message.topic, bytes(message.payload), bool(message.retain),
                                    acknowledge_message))

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason: Any,
                    props: Any = None) -> None:
        accepted = not reason.is_failure
        with self._lock:
            on_answer = self._callbacks.pop(mid, None)
            if on_answer is None:
                self._early[mid] = accepted
                while len(self._early) > IN_FLIGHT:
                    self._early.pop(next(iter(self._early)))
        if not accepted:
            LOG.warning('MQTT broker %s:%d refuses a message of ours (%s); see its access '
                        'control', self._conf.host, self._conf.port, reason)
        if on_answer is not None:
            on_answer(accepted)

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reasons: Any,
                      props: Any = None) -> None:
        with self._lock:
            topics = self._pending_subscriptions.pop(mid, [])
            refused = [topic for topic, reason in zip(topics, reasons, strict=False)
                       if reason.is_failure]
            self._refused.update(refused)
        self._update_status()
        if refused:
            LOG.error('MQTT broker %s:%d does not let us hear %d topics, such as %s; see its '
                      'access control', self._conf.host, self._conf.port, len(refused),
                      refused[0])

    def _update_status(self) -> None:
        """Update ``hearing`` and the status topic, once all subscriptions are answered."""
        with self._showing:
            with self._lock:
                self._refused &= self._topics
                if self._pending_subscriptions or not self._topics or not self.connected.is_set():
                    return
                shown = 'partial' if self._refused else 'online'
                if shown == self._shown:
                    return
                self._shown = shown
                if self._refused:
                    self.hearing.clear()
                else:
                    self.hearing.set()
            if self._status is not None:
                self._publish_message(self._status, shown, True, lambda accepted: None)


def make_client(conf: Any, client_id: str, *, keeps_session: bool, **more: Any) -> paho.Client:
    """Make paho's client, which is not connected yet.

    :param conf: the group ``mqtt``.
    :param keeps_session: the broker keeps a session; with MQTT 5 the connection requests this.
    :param more: further arguments of the client.
    :raises ConfigError: the options cannot be used.
    """
    client = paho.Client(
        enums.CallbackAPIVersion.VERSION2, client_id=client_id,
        clean_session=None if conf.protocol == '5' else not keeps_session,
        protocol=_VERSIONS[conf.protocol], **more)
    if conf.username:
        client.username_pw_set(conf.username, conf.password or None)
    if conf.tls:
        try:
            client.tls_set(conf.ca_file or None, conf.cert_file or None, conf.key_file or None,
                           ssl.CERT_REQUIRED)
        except (OSError, ValueError) as e:
            raise exception.ConfigError(
                path='kronos.conf', field='[mqtt] ca_file, cert_file and key_file',
                problem=f'they cannot be used ({type(e).__name__}: {e})',
                remedy='Name PEM files that this process may read.') from None
    return client


def _split_topics(topics: Iterable[str]) -> list[list[str]]:
    """Split topics into packets.

    MQTT sets no limit to a packet's subscriptions, but brokers limit its size.
    """
    sorted_topics = sorted(topics)
    return [sorted_topics[at:at + _PER_SUBSCRIBE]
            for at in range(0, len(sorted_topics), _PER_SUBSCRIBE)]
