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


"""kronos-test-config and the MQTT broker mosquitto; its log and listeners show each action."""

import re
import socket
import threading
import time

import pytest

from kronos_nova.checks import base
from kronos_nova.checks import mqtt as check
from kronos_nova.conf import permits
from tests.integration import servers
from tests.integration import test_mqtt

ALLOW = 'start-vm:*:*'
RIGHTS = ['user kronos', 'topic read fast/migfra/+/task', 'topic write fast/migfra/+/status']
RESULTS = 'topic write fast/migfra/+/result'


def configured(port, allow=ALLOW, on_request=('pause',), **values):
    conf = test_mqtt.conf(port, **values)
    conf.set_override('allow', [permits.PermitType()(allow)] if allow else [], 'migfra')
    conf.set_override('on_request', list(on_request), 'hooks')
    return conf


def items(port, **values):
    found = [base.mask_item(item) for item in
             check.check(base.CheckContext(configured(port, **values)))]
    assert all(item.remedy for item in found if item.status is base.CheckStatus.FAILED)
    return {item.name: item for item in found}


def states(found):
    return {name: str(item.status) for name, item in found.items()}


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    """A broker that grants every client every right."""
    with servers.mosquitto(tmp_path_factory.mktemp('mosquitto')) as found:
        yield found


def users(directory, rights):
    return servers.mosquitto(directory, users={'kronos': 'c4n4ry-s3cret'},
                             rights=rights and [*RIGHTS, *rights])


def test_password_without_tls_gives_warning(tmp_path):
    authority = servers.Authority(tmp_path)
    with servers.mosquitto(tmp_path, users={'kronos': 'c4n4ry-s3cret'}) as broker:
        found = items(broker.port, username='kronos', password='c4n4ry-s3cret')
        assert states(found) == {'mqtt: password': 'warning', 'mqtt': 'ok', 'mqtt: rights': 'ok'}
        assert 'c4n4ry' not in str(found)
    with servers.mosquitto(tmp_path, tls=authority) as broker:
        found = items(broker.port, username='kronos', password='c4n4ry-s3cret', tls=True,
                      ca_file=str(authority.ca))
        assert 'mqtt: password' not in found


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_check_passes_when_broker_grants_all_rights(broker, protocol):
    found = items(broker.port, protocol=protocol)
    assert states(found) == {'mqtt': 'ok', 'mqtt: rights': 'ok'}
    assert found['mqtt'].text == f'MQTT {protocol} at 127.0.0.1:{broker.port}'
    assert ('MQTT 3.1.1 does not tell' in found['mqtt: rights'].text) == (protocol == '3.1.1')


def test_check_names_topic_with_denied_publish(tmp_path):
    with users(tmp_path, ['topic read fast/migfra/+/result']) as broker:
        login = {'username': 'kronos', 'password': 'c4n4ry-s3cret'}
        found = items(broker.port, protocol='5', **login)
        assert states(found) == {
            'mqtt: password': 'warning', 'mqtt': 'ok', 'mqtt: rights': 'failed'}
        assert re.search('does not let us publish on fast/migfra/kronos-test-[0-9a-f]+/result$',
                         found['mqtt: rights'].text)
        assert found['mqtt'].text.endswith(', as user kronos')
        assert 'access control' in found['mqtt: rights'].remedy
    with users(tmp_path, [RESULTS]) as broker:
        assert states(items(broker.port, protocol='5', **login)) == {
            'mqtt: password': 'warning', 'mqtt': 'ok', 'mqtt: rights': 'ok'}


def test_checked_topics_have_configured_prefix(tmp_path):
    with users(tmp_path, [RESULTS]) as broker:
        found = items(broker.port, protocol='5', prefix='slow', username='kronos',
                      password='c4n4ry-s3cret')
        assert 'slow/migfra/' in found['mqtt: rights'].text
        assert states(found)['mqtt: rights'] == 'failed'


def test_check_reports_impossible_topic_prefix(broker):
    found = items(broker.port, protocol='5', prefix='+')
    assert 'prefix' in found['mqtt: rights'].remedy


def test_pscom_topics_are_checked_when_hook_may_run(tmp_path):
    rights = [RESULTS, 'topic read fast/pscom/+/+/response']
    with users(tmp_path, rights) as broker:
        wanted = {'protocol': '5', 'username': 'kronos', 'password': 'c4n4ry-s3cret',
                  'on_request': ['pscom']}
        for allow in ('', ALLOW):
            found = items(broker.port, allow=allow, **wanted)['mqtt: rights']
            assert found.status is base.CheckStatus.FAILED
            assert re.search('publish on fast/pscom/kronos-test-[0-9a-f]+/any_proc/request$',
                             found.text), 'this alone'
    with users(tmp_path, [*rights, 'topic write fast/pscom/+/+/request']) as broker:
        assert states(items(broker.port, **wanted))['mqtt: rights'] == 'ok'


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
@pytest.mark.parametrize('password', ['wr0ng', ''])
def test_check_reports_refused_login_without_password(tmp_path, protocol, password):
    with users(tmp_path, None) as broker:
        found = items(broker.port, protocol=protocol, username='kronos', password=password)
    assert found.pop('mqtt: password', None) is None or password
    assert states(found) == {'mqtt': 'failed'}
    assert 'refuses us (' in found['mqtt'].text and 'username' in found['mqtt'].remedy
    assert 'wr0ng' not in found['mqtt'].text


def test_check_reports_missing_login(tmp_path):
    with users(tmp_path, None) as broker:
        assert 'refuses us' in items(broker.port)['mqtt'].text


@pytest.fixture(scope='module')
def authority(tmp_path_factory):
    return servers.Authority(tmp_path_factory.mktemp('authority'))


def test_tls_check_accepts_only_signing_authority(tmp_path, authority):
    with servers.mosquitto(tmp_path, tls=authority) as broker:
        found = items(broker.port, tls=True, ca_file=str(authority.ca))
        assert states(found)['mqtt'] == 'ok' and ', TLS' in found['mqtt'].text
        found = items(broker.port, tls=True)['mqtt']
        assert found.status is base.CheckStatus.FAILED
        assert 'certificate is not believed' in found.text and 'ca_file' in found.remedy
        found = items(broker.port, tls=True, ca_file=str(authority.ca), host='localhost')['mqtt']
        assert 'certificate is not believed' in found.text, 'it has another name'
        found = items(broker.port)['mqtt']
        assert found.status is base.CheckStatus.FAILED and 'tls' in found.remedy


def test_check_reports_tls_against_plain_listener(broker, authority):
    found = items(broker.port, tls=True, ca_file=str(authority.ca))['mqtt']
    assert found.status is base.CheckStatus.FAILED and 'tls' in found.remedy


def test_check_reports_unreadable_tls_file(broker, tmp_path):
    found = items(broker.port, tls=True, ca_file=str(tmp_path / 'none.pem'))['mqtt']
    assert 'ca_file, cert_file and key_file: they cannot be used' in found.text


@pytest.mark.turns(2)
def test_check_reports_dead_or_silent_broker_within_seconds():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        port = sock.getsockname()[1]
        assert 'cannot be reached' in items(port)['mqtt'].text
        sock.listen(8)
        for tls in (False, True):
            began = time.monotonic()
            found = items(port, tls=tls)['mqtt']
            assert found.status is base.CheckStatus.FAILED and f'127.0.0.1:{port}' in found.text
            assert time.monotonic() - began < 3 * check.SECONDS


def test_check_reports_missing_broker_only_with_allowed_requests():
    assert 'no broker is named' in items(1, host='')['mqtt'].text
    assert items(1, host='', allow='') == {}


@pytest.mark.turns(2)
@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_check_leaves_no_trace_and_disconnects_no_daemon(tmp_path, protocol):
    with (servers.mosquitto(tmp_path) as broker,
          test_mqtt.Client(broker.port, 'kronos-migfra-here', ['fast/migfra/h1/task'],
                           protocol=protocol, status='fast/migfra/kronos-migfra-here/status')
          as runs,
          test_mqtt.Client(broker.port, 'watches', ['#'], protocol='5') as watches):
        conf = configured(broker.port, protocol=protocol)
        conf.set_override('client_id', 'kronos-migfra-here', 'migfra')
        assert states({i.name: i for i in check.check(base.CheckContext(conf))}) == {
            'mqtt': 'ok', 'mqtt: rights': 'ok'}
        assert runs.connection.hearing.is_set()
        assert runs.heard.empty()
        assert watches.say('end', 'end')
        heard = []
        while (found := watches.next())[0] != 'end':
            heard.append(found)
        # The daemon may report this before or after the watching client subscribes.
        online = ('fast/migfra/kronos-migfra-here/status', 'online')
        assert online in [(topic, text) for topic, text, _ in heard]
        told = [(topic, text) for topic, text, _ in heard if (topic, text) != online]
        if protocol == '5':
            (result, text), (status, offline) = told
            assert re.fullmatch('fast/migfra/kronos-test-[0-9a-f]{10}/result', result)
            assert 'result: error' in text and 'no request was sent' in text
            assert status == result.replace('result', 'status') and offline == 'offline'
        else:
            assert told == []
        kept = {(topic, text) for topic, text, message in heard if message.retained}
        assert kept <= {online}, 'nothing of ours'
    log = (tmp_path / 'mosquitto.log').read_text()
    mine = re.findall(r'New client connected from \S+ as (kronos-test-\S+) \(p\d, (c\d),', log)
    assert [clean for _name, clean in mine] == ['c1']
    assert f'Client {mine[0][0]} disconnected.' in log, 'it has said that it leaves'
    assert 'already connected' not in log


@pytest.mark.turns(2)
def test_mqtt_5_session_ends_with_connection(tmp_path):
    with servers.mosquitto(tmp_path) as broker:
        items(broker.port, protocol='5')
        with test_mqtt.Client(broker.port, 'looks', ['$SYS/broker/clients/total'],
                              protocol='5') as looks:
            until = time.monotonic() + 60
            while looks.next(30)[1] != '1':
                assert time.monotonic() < until, 'another client is still known'


class Broker:
    """Answers CONNECT with this packet, and the next one with ``then`` after its number."""

    def __init__(self, packet, then=None):
        self._then = then
        self._socket = socket.create_server(('127.0.0.1', 0))
        self.port = self._socket.getsockname()[1]
        self._packet = packet
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        connection, _address = self._socket.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(self._packet)
            asked = connection.recv(4096)
            if self._then is not None:
                kind, rest = self._then
                connection.sendall(bytes([kind, 2 + len(rest)]) + asked[2:4] + bytes(rest))
            while connection.recv(4096):
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self._socket.close()
        self._thread.join(10)


def test_check_reports_missing_mqtt_5_capabilities(monkeypatch):
    monkeypatch.setattr(check, 'SECONDS', 1.0)
    # Reason 0; properties Maximum QoS 0 and Retain Available 0.
    with Broker(bytes([0x20, 7, 0, 0, 4, 0x24, 0, 0x25, 0])) as broker:
        found = items(broker.port, protocol='5')
    assert states(found) == {'mqtt': 'ok', 'mqtt: QoS': 'failed', 'mqtt: retain': 'failed',
                             'mqtt: rights': 'failed'}
    assert 'no answer within 1 s (subscribe)' in found['mqtt: rights'].text


@pytest.mark.parametrize(('protocol', 'granted', 'state'), [
    ('3.1.1', [0x80], 'failed'), ('3.1.1', [0], 'failed'), ('3.1.1', [1], 'ok')])
def test_check_reports_denied_or_qos_0_subscription(protocol, granted, state):
    with Broker(bytes([0x20, 2, 0, 0]), (0x90, granted)) as broker:
        found = items(broker.port, protocol=protocol)
    assert states(found) == {'mqtt': 'ok', 'mqtt: rights': state}
    assert ('does not let us hear fast/migfra/' in found['mqtt: rights'].text) == (
        state == 'failed')


def test_check_reports_broker_that_disconnects_on_denial():
    with Broker(bytes([0x20, 2, 0, 0]), (0xe0, [])) as broker:
        found = items(broker.port)
    assert states(found) == {'mqtt': 'ok', 'mqtt: rights': 'failed'}
    assert 'ends the connection instead of an answer (subscribe)' in found['mqtt: rights'].text


def test_rejected_client_id_gives_only_warning():
    with Broker(bytes([0x20, 3, 0, 0x85, 0])) as broker:
        found = items(broker.port, protocol='5')
    assert states(found) == {'mqtt': 'warning'}


@pytest.mark.parametrize(('protocol', 'packet'), [
    ('5', [0x20, 3, 0, 0x84, 0]), ('5', [0x20, 2, 0, 1])])
def test_check_reports_unsupported_protocol_version(protocol, packet):
    with Broker(bytes(packet)) as broker:
        found = items(broker.port, protocol=protocol)
    assert states(found) == {'mqtt': 'failed'}
