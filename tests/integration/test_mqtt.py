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


"""Our connection to an MQTT broker, against mosquitto: lost by neither side."""

import contextlib
import queue
import threading
import time

import fixtures
from oslo_config import cfg
from paho.mqtt import packettypes
from paho.mqtt import reasoncodes
import pytest

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.messaging import mqtt
from tests.integration import servers


def conf(port, **values):
    found = cfg.ConfigOpts()
    opts.register(found)
    found([], default_config_files=[])
    for name, value in {'host': '127.0.0.1', 'port': port, 'keepalive': 5, **values}.items():
        found.set_override(name, value, 'mqtt')
    return found


class Client:
    """A connection and the messages that it received."""

    def __init__(self, port, name, topics=(), wait=True, status=None, kept=True, **values):
        self.heard = queue.Queue()
        self.connection = mqtt.MqttConnection(
            conf(port, **values), name, self.heard.put, status, kept)
        self.connection.subscribe_topics(topics)
        self.connection.start()
        if wait:
            event = self.connection.hearing if topics else self.connection.connected
            assert event.wait(30)

    def next(self, seconds=30):
        found = self.heard.get(timeout=seconds)
        return found.topic, found.payload.decode(), found

    def say(self, topic, text):
        """Whether the broker has taken it."""
        answer, there = [], threading.Event()

        def said(taken):
            answer.append(taken)
            there.set()

        self.connection.publish_message(topic, text, said)
        assert there.wait(30)
        return answer[0]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.connection.stop()


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_unacknowledged_messages_return_after_restart(tmp_path, protocol):
    with servers.mosquitto(tmp_path) as broker, Client(broker.port, 'says') as says:
        with Client(broker.port, 'hears', ['a/b'], protocol=protocol) as hears:
            for text in ('one', 'two', 'three'):
                assert says.say('a/b', text)
            assert [hears.next()[:2] for _ in range(3)] == [
                ('a/b', 'one'), ('a/b', 'two'), ('a/b', 'three')]
        # It was not told that any of them can be forgotten.
        with Client(broker.port, 'hears', ['a/b'], protocol=protocol) as hears:
            for text in ('one', 'two', 'three'):
                _, found, message = hears.next()
                assert found == text
                if text != 'two':
                    message.acknowledge()
            assert says.say('a/b', 'four')
            assert hears.next()[1] == 'four'
        with Client(broker.port, 'hears', ['a/b'], protocol=protocol) as hears:
            assert {hears.next()[1], hears.next()[1]} == {'two', 'four'}


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_broker_restart_loses_no_message(tmp_path, protocol):
    with (servers.mosquitto(tmp_path) as broker,
          Client(broker.port, 'says', protocol=protocol) as says,
          Client(broker.port, 'hears', ['a/b'], protocol=protocol) as hears):
        assert says.say('a/b', 'one')
        hears.next()[2].acknowledge()
        # The broker reads in order: that it has taken this says that it knows of that.
        assert hears.say('c/d', 'acknowledged')
        broker.stop()
        taken = threading.Event()
        says.connection.publish_message('a/b', 'two', lambda said: said and taken.set())
        assert not taken.wait(1)
        broker.start()
        assert taken.wait(60)
        assert hears.next(60)[1] == 'two'


def test_connection_waits_for_broker_that_starts_later(tmp_path):
    broker = servers.Mosquitto(tmp_path)
    try:
        with Client(broker.port, 'hears', ['a/b'], wait=False) as hears:
            assert not hears.connection.connected.wait(1)
            broker.start()
            assert hears.connection.hearing.wait(60)
    finally:
        broker.close()


def test_late_acknowledgement_affects_no_other_message(tmp_path):
    with (servers.mosquitto(tmp_path) as broker, Client(broker.port, 'says') as says,
          Client(broker.port, 'hears', ['a/b']) as hears):
        assert says.say('a/b', 'one')
        old = hears.next()[2]
        broker.stop()
        broker.start()
        new = hears.next(60)
        assert new[1] == 'one'
        old.acknowledge()  # the number may be another message's now
        new[2].acknowledge()
        assert says.connection.connected.wait(60)
        assert says.say('a/b', 'two')
        assert hears.next()[1] == 'two'


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_subscriptions_follow_changed_topics(tmp_path, protocol):
    with (servers.mosquitto(tmp_path) as broker, Client(broker.port, 'says') as says,
          Client(broker.port, 'hears', ['a/b'], protocol=protocol) as hears):
        hears.connection.subscribe_topics([f'h{n}/task' for n in range(250)])
        # When the broker has read our packets is its own affair: until then the old topic
        # is heard, and the new ones are not. What is said in one breath comes in its order.
        for turn in range(300):
            for topic in ('h0/task', 'a/b', 'h249/task'):
                assert says.say(topic, str(turn))
            assert says.say('h0/task', f'end of {turn}')
            heard = set()
            with contextlib.suppress(queue.Empty):
                while (found := hears.next(0.2)[:2])[1] != f'end of {turn}':
                    if found[1] == str(turn):
                        heard.add(found[0])
            if heard == {'h0/task', 'h249/task'}:
                break
        assert heard == {'h0/task', 'h249/task'}


def test_status_topic_shows_offline_after_broken_connection(tmp_path):
    with (servers.mosquitto(tmp_path) as broker,
          Client(broker.port, 'looks', ['s']) as looks):
        dies = Client(broker.port, 'dies', ['a/b'], status='s')
        seen = [looks.next()[1]]
        # As a process that is killed: the connection breaks without a word.
        dies.connection._client._sock.close()
        while len(seen) < 3:
            # At least once: a message whose acknowledgement was lost is said again.
            seen += [text for text in (looks.next(60)[1],) if text != seen[-1]]
        dies.connection.stop()
        while len(seen) < 4:
            seen += [text for text in (looks.next()[1],) if text != seen[-1]]
        assert seen == ['online', 'offline', 'online', 'offline']


def test_mqtt_5_logs_denied_publish_and_subscription(tmp_path):
    rights = ['user one', 'topic readwrite a/#']
    log = fixtures.FakeLogger(level=0)
    with (log, servers.mosquitto(tmp_path, users={'one': 'secret'}, rights=rights) as broker,
          Client(broker.port, 'one', ['a/b'], username='one', password='secret',
                 protocol='5') as one):
        assert one.say('a/b', 'x') and one.next()[1] == 'x'
        assert not one.say('b', 'y')
        assert 'refuses a message of ours (Not authorized); see its access control' in log.output
        # mosquitto lets everybody subscribe, and then sends nothing; others say so.
        one.connection._pending_subscriptions[7] = ['a/b', 'b']
        one.connection._on_subscribe(one.connection._client, None, 7, [
            reasoncodes.ReasonCode(packettypes.PacketTypes.SUBACK, name)
            for name in ('Granted QoS 1', 'Not authorized')])
    assert 'does not let us hear 1 topics, such as b' in log.output
    assert 'secret' not in log.output


def test_wrong_password_is_logged_and_login_retried(tmp_path):
    log = fixtures.FakeLogger(level=0)
    with (log, servers.mosquitto(tmp_path, users={'one': 'secret'}) as broker,
          Client(broker.port, 'one', ['a'], wait=False, username='one', password='wr0ng') as one):
        for _ in range(300):
            if 'refuses us' in log.output:
                break
            threading.Event().wait(0.1)
        assert not one.connection.connected.is_set()
    assert '; see [mqtt] username and password. The connection is retried' in log.output
    assert 'wr0ng' not in log.output


def test_tls_trusts_broker_by_certificate_alone(tmp_path):
    authority = servers.Authority(tmp_path)
    with servers.mosquitto(tmp_path, tls=authority) as broker:
        with Client(broker.port, 'one', ['a'], tls=True, ca_file=str(authority.ca)) as one:
            assert one.say('a', 'x')
            assert one.next()[1] == 'x'
        with Client(broker.port, 'two', ['a'], tls=True, wait=False) as two:
            assert not two.connection.connected.wait(3), 'it is signed by nobody we know'


@pytest.mark.parametrize('values', [{'ca_file': '/nowhere'}, {'cert_file': '/nowhere'}])
def test_unusable_tls_files_are_named_in_config_error(values):
    with pytest.raises(exception.ConfigError, match=r'\[mqtt\] ca_file, cert_file and key_file'):
        mqtt.MqttConnection(conf(1, tls=True, **values), 'one', lambda message: None)


def test_status_is_partial_while_denied_topic_is_subscribed(tmp_path):
    with (servers.mosquitto(tmp_path) as broker,
          Client(broker.port, 'looks', ['s']) as looks,
          Client(broker.port, 'one', ['a/b', 'c/d'], status='s', protocol='5') as one):
        assert looks.next()[1] == 'online'
        # mosquitto lets everybody subscribe; others say no, now or after a reconnect.
        one.connection._pending_subscriptions[7] = ['a/b', 'c/d']
        one.connection._on_subscribe(one.connection._client, None, 7, [
            reasoncodes.ReasonCode(packettypes.PacketTypes.SUBACK, name)
            for name in ('Granted QoS 1', 'Not authorized')])
        assert looks.next()[1] == 'partial'
        assert not one.connection.hearing.is_set()
        assert one.say('a/b', 'x') and one.next()[1] == 'x', 'the rest is heard'
        one.connection.subscribe_topics(['a/b'])
        assert looks.next()[1] == 'online'
        assert one.connection.hearing.wait(30)


def test_clean_session_loses_messages_sent_while_disconnected(tmp_path):
    for protocol in ('3.1.1', '5'):
        (tmp_path / protocol).mkdir()
        with (servers.mosquitto(tmp_path / protocol) as broker,
              Client(broker.port, 'says') as says):
            for turn in ('first', 'second'):
                with Client(broker.port, '', ['a/b'], kept=False, protocol=protocol) as hears:
                    assert says.say('a/b', turn)
                    assert hears.next()[1] == turn
                assert says.say('a/b', 'nobody is there')


class Slow:
    """A client whose publications of a topic take a while to begin."""

    def __init__(self, client, topic):
        self._client, self._topic, self.begun = client, topic, threading.Event()

    def __getattr__(self, name):
        return getattr(self._client, name)

    def publish(self, topic, *rest):
        if topic == self._topic:
            self.begun.set()
            time.sleep(0.5)
        return self._client.publish(topic, *rest)


def test_status_publish_and_acknowledgement_do_not_deadlock(tmp_path):
    """paho holds a lock that its publish() takes while it tells of an acknowledgement."""
    with (servers.mosquitto(tmp_path) as broker,
          Client(broker.port, 'one', ['a/b', 'c/d'], status='s', protocol='5') as one):
        connection = one.connection
        connection._pending_subscriptions[7] = ['c/d']
        connection._on_subscribe(connection._client, None, 7, [
            reasoncodes.ReasonCode(packettypes.PacketTypes.SUBACK, 'Not authorized')])
        slow = connection._client = Slow(connection._client, 's')
        thread = threading.Thread(target=connection.subscribe_topics, args=(['a/b'],), daemon=True)
        thread.start()
        assert slow.begun.wait(10)
        assert one.say('a/b', 'x') and one.next()[1] == 'x'
        thread.join(10)
        assert not thread.is_alive()
        assert connection.hearing.wait(10)


def test_topic_added_while_connecting_is_subscribed(tmp_path):
    with servers.mosquitto(tmp_path) as broker, Client(broker.port, 'says') as says:
        other = Client.__new__(Client)
        other.heard = queue.Queue()
        other.connection = mqtt.MqttConnection(conf(broker.port), 'other', other.heard.put)
        other.connection.subscribe_topics(['a/b'])
        real = other.connection.connected.set
        threads = []

        def set_():
            threads.append(threading.Thread(
                target=other.connection.subscribe_topics, args=(['a/b', 'c/d'],)))
            threads[0].start()
            threads[0].join(0.5)
            real()

        other.connection.connected.set = set_
        with other:
            other.connection.start()
            assert other.connection.hearing.wait(30)
            threads[0].join(30)
            for _ in range(300):
                assert says.say('c/d', 'x')
                with contextlib.suppress(queue.Empty):
                    assert other.next(0.1)[:2] == ('c/d', 'x')
                    break
            else:
                raise AssertionError('it is not heard')


def test_stop_ends_connection_that_has_just_broken(tmp_path):
    with servers.mosquitto(tmp_path) as broker:
        one = Client(broker.port, 'one', ['a/b'], status='s')
        client = one.connection._client
        network = client._thread

        class Broken:
            def __getattr__(self, name):
                return getattr(client, name)

            def publish(self, *message):
                raise RuntimeError('it is not connected')

        one.connection._client = Broken()
        one.connection.stop()
        network.join(10)
        assert not network.is_alive()


def test_status_publications_leave_no_pending_message_ids(tmp_path):
    with (servers.mosquitto(tmp_path) as broker,
          Client(broker.port, 'looks', ['s']) as looks,
          Client(broker.port, 'one', ['a/b'], status='s') as one):
        assert looks.next()[1] == 'online'
        assert one.say('a/b', 'x')
        assert one.connection._early == {} == one.connection._callbacks
