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



"""The check of the MQTT broker: it lets us connect, subscribe and publish.

The client has a random name and leaves no session behind: it neither disconnects a running daemon
nor receives its messages. Test messages go to topics of that name. Source of the details: MQTT
3.1.1 and 5, chapter 3.
"""

from collections.abc import Callable
from collections.abc import Iterator
import secrets
import ssl
import time
from typing import Any

from kronos_nova import exception
from kronos_nova.checks import base
from kronos_nova.rebalancer.hooks import pscom_client
from kronos_nova.rebalancer.migfra import replies

#: Seconds for each step: to connect, to log in, to get an answer.
SECONDS = 5.0
_LOGIN = 'Correct username, password or the certificate in [mqtt], or let the broker take us.'
_VERSION = 'Set [mqtt] protocol to one that the broker speaks.'
#: Remedy by reason code of a CONNACK; paho-mqtt maps the codes of MQTT 3.1.1 to these.
_REMEDIES = {0x84: _VERSION, 0x01: _VERSION, 0x86: _LOGIN, 0x87: _LOGIN, 0x8c: _LOGIN}
_NAME_REFUSED = 0x85
_RIGHTS = 'Let the user of [mqtt] do so in the access control of the broker.'


class BrokerFault(Exception):
    """A fault of the broker, and its remedy."""

    def __init__(self, text: str, remedy: str, *, ours: bool = False) -> None:
        super().__init__(text)
        self.remedy = remedy
        #: The fault concerns this check alone, not the daemons.
        self.ours = ours


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    conf = context.conf
    if not conf.mqtt.host:
        if conf.migfra.allow:
            yield base.report_failure('mqtt',
                                      '[mqtt] host: no broker is named, and [migfra] allow says '
                                      'what may be asked for over it',
                                      'Name the MQTT broker that tasks come from.')
        return
    try:
        # The extra "mqtt" may be missing.
        import paho.mqtt.client  # noqa: F401, PLC0415
    except ImportError:
        yield base.report_failure('mqtt', 'paho-mqtt is not installed',
                                  'Install it: pip install "kronos-nova[rebalancer,mqtt]".')
        return
    if conf.mqtt.password and not conf.mqtt.tls:
        yield base.report_warning('mqtt: password',
                                  '[mqtt] has a password and tls = false: anyone who '
                                             'can read the traffic reads the password',
                                  'Set tls = true and the port where the broker speaks TLS.')
    where = f'MQTT {conf.mqtt.protocol} at {conf.mqtt.host}:{conf.mqtt.port}'
    visit = BrokerConnection(conf.mqtt)
    title = 'mqtt'
    try:
        visit.connect()
        yield base.report_ok('mqtt', where + (', TLS' if conf.mqtt.tls else '')
                             + (f', as user {conf.mqtt.username}' if conf.mqtt.username else ''))
        title = 'mqtt: rights'
        yield from _check_limits(visit)
        yield from _check_rights(visit, where, conf)
    except BrokerFault as e:
        make = base.report_warning if e.ours else base.report_failure
        yield make(title, f'{where}: {e}', e.remedy)
    finally:
        visit.close()


def _check_limits(visit: 'BrokerConnection') -> Iterator[base.CheckItem]:
    """Check the limits that a broker announces by MQTT 5."""
    if getattr(visit.properties, 'MaximumQoS', 1) < 1:
        yield base.report_failure('mqtt: QoS',
                                  'the broker knows no QoS but 0: tasks and results are lost '
                                       'with a connection', 'Allow QoS 1 there.')
    if not getattr(visit.properties, 'RetainAvailable', 1):
        yield base.report_failure('mqtt: retain', 'the broker retains no messages, and refuses '
                                          'kronos-migfra, whose status is one',
                                  'Allow retained messages there.')


def _check_rights(visit: 'BrokerConnection', where: str, conf: Any) -> Iterator[base.CheckItem]:
    """Check the rights to each topic, with our client name in place of a host's name."""
    heard, payload_by_topic = _list_test_topics(conf, visit.name)
    refused = [f'hear {topic}' for topic in heard if not visit.may_subscribe(topic)]
    if conf.mqtt.protocol == '5':
        refused += [f'publish on {topic}' for topic, text in payload_by_topic.items()
                    if not visit.may_publish(topic, text)]
    if refused:
        yield base.report_failure('mqtt: rights', f'{where}: the broker does not let us '
                                          + ', nor '.join(refused), _RIGHTS)
    elif conf.mqtt.protocol == '5':
        yield base.report_ok('mqtt: rights', f'may hear {", ".join(heard)}; may publish on '
                                      + ', '.join(payload_by_topic))
    else:
        yield base.report_ok('mqtt: rights',
                             f'may hear {", ".join(heard)}; MQTT 3.1.1 does not tell '
                                      'whether something may be published, with protocol = 5 it '
                                      'is looked at')


def _list_test_topics(conf: Any, name: str) -> tuple[list[str], dict[str, str]]:
    """Return the topics to subscribe to, and the payload for each topic to publish on.

    The listeners of a topic can read its payload.
    """
    heard: list[str] = []
    payload_by_topic: dict[str, str] = {}
    pscom = 'pscom' in (*conf.hooks.enabled, *conf.hooks.on_request)
    if conf.migfra.allow or not pscom:
        ours = f'{conf.mqtt.prefix}/migfra/{name}'
        heard.append(f'{ours}/task')
        payload_by_topic[f'{ours}/result'] = replies.format_refusal(
            None, None, conf.migfra.scheduler, 'kronos-test-config looks whether results may be '
                                               'published; no request was sent')
        payload_by_topic[f'{ours}/status'] = 'offline'
    if pscom:
        request, response = (
            pscom_client.TopicTemplate(conf.mqtt.prefix, option, conf.hook_pscom[option])
            for option in ('request_topic', 'response_topic'))
        heard.append(response.topic_filter)
        # No instance has that name, and the message asks for nothing.
        topic = request.render_topic(dict.fromkeys(pscom_client.PLACEHOLDERS, name))
        if topic is not None:
            payload_by_topic[topic] = ''
    return heard, payload_by_topic


class BrokerConnection:
    """A short connection to the broker. Each call waits for its answer.

    :param conf: the group ``mqtt``.
    """

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        # Short enough for every broker.
        self.name = f'kronos-test-{secrets.token_hex(5)}'
        #: Properties of the CONNACK; None until the broker sends some.
        self.properties: Any = None
        self._answers: dict[tuple[str, int], list[Any]] = {}
        self._client: Any = None

    def connect(self) -> None:
        """Connect and log in.

        :raises BrokerFault: the broker refuses us, or the connection cannot be tried.
        """
        self._client = self._make_client()
        try:
            self._client.connect(self._conf.host, self._conf.port, keepalive=60)
        except ssl.SSLCertVerificationError as e:
            raise BrokerFault(f'its certificate is not believed ({e.verify_message})',
                              'Name the authority that has signed it in [mqtt] ca_file, and the '
                              'broker in host as its certificate does.') from None
        except ssl.SSLError as e:
            raise BrokerFault(f'TLS fails ({e.reason or e})',
                              'See that port is the one where it speaks TLS, or set tls = false in '
                              '[mqtt]; see whether it asks for a certificate (cert_file).'
                              ) from None
        except (OSError, ValueError) as e:
            raise BrokerFault(f'it cannot be reached ({type(e).__name__}: {e})',
                              'See that it runs, and correct host, port and tls in '
                              '[mqtt].') from None
        reason, = self._wait_for_answer('connect', 0)
        if reason.value == _NAME_REFUSED:
            raise BrokerFault(f'it takes no client of the name {self.name} ({reason}), under which '
                              'this check comes',
                              'See in the log of the daemons whether it takes them.', ours=True)
        if reason.is_failure:
            raise BrokerFault(f'it refuses us ({reason})',
                              _REMEDIES.get(reason.value, 'See the log of the broker.'))

    def may_subscribe(self, topic: str) -> bool:
        """Return whether the broker accepts a subscription with QoS 1.

        :raises BrokerFault: the broker does not answer.
        """
        reason, = self._send_and_wait('subscribe', lambda: self._client.subscribe(topic, 1)[1])
        return bool(reason.value == 1)

    def may_publish(self, topic: str, text: str) -> bool:
        """Return whether the broker accepts a message with QoS 1 and MQTT 5.

        The message expires after a second: later subscribers do not receive it.

        :raises BrokerFault: the broker does not answer.
        """
        # The extra "mqtt" may be missing.
        from paho.mqtt import packettypes  # noqa: PLC0415
        from paho.mqtt import properties  # noqa: PLC0415

        soon: Any = properties.Properties(  # type: ignore[no-untyped-call]
            packettypes.PacketTypes.PUBLISH)
        soon.MessageExpiryInterval = 1
        reason, = self._send_and_wait('publish', lambda: self._client.publish(
            topic, text.encode(), 1, properties=soon).mid)
        return not reason.is_failure

    def close(self) -> None:
        """Disconnect in order, so that the broker keeps nothing of this client."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop(0.1)

    def _make_client(self) -> Any:
        # It needs the extra "mqtt".
        from kronos_nova.rebalancer.messaging import mqtt  # noqa: PLC0415

        try:
            # MQTT 5 starts a clean session and keeps none unless the client asks for it.
            mqtt_client: Any = mqtt.make_client(self._conf, self.name, keeps_session=False,
                                                reconnect_on_failure=False)
        except exception.ConfigError as e:
            raise BrokerFault(f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                              e.kwargs['remedy']) from None
        mqtt_client.connect_timeout = SECONDS

        def record_answer(kind: str, mid: int, *answer: Any) -> None:
            self._answers[kind, mid] = list(answer)

        def record_connection(client: Any, data: Any, flags: Any, reason: Any,
                              connack_properties: Any) -> None:
            self.properties = connack_properties
            record_answer('connect', 0, reason)

        mqtt_client.on_connect = record_connection
        mqtt_client.on_subscribe = lambda client, data, mid, reasons, reply_properties: (
            record_answer('subscribe', mid, *reasons))
        mqtt_client.on_publish = lambda client, data, mid, reason, reply_properties: record_answer(
            'publish', mid, reason)
        return mqtt_client

    def _send_and_wait(self, kind: str, ask: Callable[[], int]) -> list[Any]:
        try:
            mid = ask()
        except ValueError as e:
            raise BrokerFault(f'a topic cannot be used ({e})',
                              'Correct [mqtt] prefix: it begins topics, and has no +, # or '
                              'control character.') from None
        return self._wait_for_answer(kind, mid)

    def _wait_for_answer(self, kind: str, mid: int) -> list[Any]:
        until = time.monotonic() + SECONDS
        while (kind, mid) not in self._answers:
            if self._client.loop(0.1) != 0 and (kind, mid) not in self._answers:
                raise BrokerFault(f'it ends the connection instead of an answer ({kind})',
                                  'See its log. Where it speaks TLS set tls = true in [mqtt].'
                                  if kind == 'connect' else
                                  'See its log: some end the connection of who may not do '
                                  'something.')
            if time.monotonic() >= until:
                raise BrokerFault(f'no answer within {SECONDS:.0f} s ({kind})',
                                  'See that it is an MQTT broker that is well, and whether it '
                                  'speaks TLS on that port (tls in [mqtt]).')
        return self._answers.pop((kind, mid))
