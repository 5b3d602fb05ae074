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


"""The broker of the MQTT tests behaves as those tests assume."""

import contextlib
import queue
import threading

from paho.mqtt import client as mqtt
from paho.mqtt import enums
import pytest

from tests.integration import servers

ANY = [enums.MQTTProtocolVersion.MQTTv311, enums.MQTTProtocolVersion.MQTTv5]


@contextlib.contextmanager
def connected(port, protocol=enums.MQTTProtocolVersion.MQTTv5, user=None, ca=None):
    """Yield a client, the answer to its CONNECT, and the messages that it receives."""
    answer, messages, there = [], queue.Queue(), threading.Event()

    def on_connect(client, userdata, flags, reason, properties):
        answer.append(reason)
        there.set()

    client = mqtt.Client(enums.CallbackAPIVersion.VERSION2, protocol=protocol)
    client.subscribed = threading.Event()
    client.on_subscribe = lambda *answer: client.subscribed.set()
    client.on_connect = on_connect
    client.on_message = lambda c, u, message: messages.put((message.topic, message.payload))
    if user:
        client.username_pw_set(*user)
    if ca:
        client.tls_set(str(ca))
    client.connect('127.0.0.1', port)
    client.loop_start()
    try:
        assert there.wait(30)
        yield client, answer[0], messages
    finally:
        client.disconnect()
        client.loop_stop()


def subscribe(client, topics):
    """And wait for the broker's answer: until then others' messages do not come."""
    client.subscribed.clear()
    client.subscribe(topics, qos=1)
    assert client.subscribed.wait(30)


@pytest.mark.parametrize('protocol', ANY)
def test_subscriber_receives_published_message(tmp_path, protocol):
    with (servers.mosquitto(tmp_path) as broker,
          connected(broker.port, protocol) as (client, reason, messages)):
        assert not reason.is_failure
        subscribe(client, 'a/+')
        client.publish('a/b', b'x', qos=1).wait_for_publish(30)
        assert messages.get(timeout=30) == ('a/b', b'x')


def test_broker_refuses_wrong_password_and_anonymous_client(tmp_path):
    with servers.mosquitto(tmp_path, users={'kronos': 'secret'}) as broker:
        for user, failure in ((('kronos', 'secret'), False), (('kronos', 'x'), True),
                              (None, True)):
            with connected(broker.port, user=user) as (_client, reason, _messages):
                assert reason.is_failure is failure, user


def test_each_user_has_own_access_rights(tmp_path):
    rights = ['user one', 'topic readwrite a/#', 'user other', 'topic write a/#']
    users = {'one': '1', 'other': '2'}
    with (servers.mosquitto(tmp_path, users=users, rights=rights) as broker,
          connected(broker.port, user=('one', '1')) as (one, _r1, read),
          connected(broker.port, user=('other', '2')) as (other, _r2, unread)):
        subscribe(one, 'a/#')
        subscribe(other, 'a/#')
        other.publish('a/x', b'x', qos=1).wait_for_publish(30)
        assert read.get(timeout=30) == ('a/x', b'x')
        assert unread.empty()


def test_tls_broker_keeps_retained_messages_over_restart(tmp_path):
    authority = servers.Authority(tmp_path)
    with servers.mosquitto(tmp_path, tls=authority) as broker:
        with connected(broker.port, ca=authority.ca) as (client, reason, _messages):
            assert not reason.is_failure
            client.publish('a', b'kept', qos=1, retain=True).wait_for_publish(30)
        broker.stop()
        broker.start()
        with connected(broker.port, ca=authority.ca) as (client, _reason, messages):
            subscribe(client, 'a')
            assert messages.get(timeout=30) == ('a', b'kept')
