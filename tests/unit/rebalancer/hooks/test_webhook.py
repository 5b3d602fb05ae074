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


"""The hook webhook against a real HTTP server."""

import hashlib
import hmac
import json
import ssl
import threading

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import webhook
from tests.integration import servers as programs
from tests.unit.rebalancer.hooks import servers

SECRET = b'correct horse battery staple'


@pytest.fixture
def server():
    with servers.Server() as found:
        yield found


@pytest.fixture
def hook(server, tmp_path):
    (tmp_path / 'secret').write_bytes(SECRET + b'\n')
    found = webhook.WebhookHook.create(servers.conf(
        webhook_url=server.url + '/x', webhook_secret_file=str(tmp_path / 'secret'),
        webhook_timeout=0.5), None)
    yield found
    found.close()


def test_before_and_after_are_posted_and_signed(hook, server):
    servers.ended(hook.before(servers.call()))
    failed = model.Attempt('h2', 1.0, 2.0, 'MigrationFailed', 'it says <b>no</b>')
    servers.ended(hook.after(servers.call(ended=failed)))
    for (method, path, headers, body), event, key in zip(
            server.requests, ('migration.before', 'migration.after'),
            ('k1:before', 'k1:after'), strict=True):
        assert (method, path) == ('POST', '/x')
        stamp, signature = headers['Kronos-Timestamp'], headers['Kronos-Signature']
        expected = hmac.new(SECRET, f'{stamp}.'.encode() + body, hashlib.sha256).hexdigest()
        assert signature == f'v1={expected}'
        assert headers['Idempotency-Key'] == key
        assert headers['Content-Type'] == 'application/json'
        found = json.loads(body)
        assert found['event'] == event and found['key'] == 'k1'
        assert found['instance_uuid'] == servers.TASK.instance_uuid
        assert b'tenant' not in body and b'<b>' not in body
    assert json.loads(server.requests[0][3])['success'] is None
    last = json.loads(server.requests[1][3])
    assert (last['success'], last['error_type']) == (False, 'MigrationFailed')


@pytest.mark.parametrize(('status', 'said'), [
    (500, 'was answered HTTP 500'), (404, 'was answered HTTP 404'),
    (302, r'was redirected \(HTTP 302\)'), (307, 'was redirected')])
def test_only_2xx_is_an_answer_and_no_redirect_is_followed(hook, server, status, said):
    server.answer = lambda *args: (status, {'Location': f'{server.url}/elsewhere'}, b'')
    with pytest.raises(base.StepFailed, match=said):
        servers.ended(hook.before(servers.call()))
    assert [path for _m, path, _h, _b in server.requests] == ['/x']


def test_a_silent_receiver_is_given_up_without_blocking_the_loop(hook, server):
    go = threading.Event()

    def slow(*args):
        go.wait(5)
        return 204, {}, b''
    server.answer = slow
    step = hook.before(servers.call())
    assert step.poll(0.0) is False
    with pytest.raises(base.StepFailed, match=r'did not reach its program \(ReadTimeout\)'):
        servers.ended(step)
    go.set()


def test_the_secret_is_read_for_each_call_and_never_shown(hook, server, tmp_path, caplog):
    (tmp_path / 'secret').write_bytes(b'another secret of its length')
    servers.ended(hook.before(servers.call()))
    _m, _p, headers, body = server.requests[0]
    assert headers['Kronos-Signature'] == webhook.sign_body(
        b'another secret of its length', headers['Kronos-Timestamp'], body)
    (tmp_path / 'secret').write_bytes(b'short')
    with pytest.raises(base.StepFailed) as caught:
        servers.ended(hook.before(servers.call()))
    (tmp_path / 'secret').unlink()
    with pytest.raises(base.StepFailed, match='cannot read its secret'):
        servers.ended(hook.before(servers.call()))
    assert 'short' not in str(caught.value) and 'another' not in caplog.text


@pytest.mark.parametrize(('values', 'field'), [
    ({}, r'\[hook_webhook\] url'), ({'webhook_url': 'http://x'}, 'secret_file'),
    ({'webhook_url': 'http://x', 'webhook_secret_file': '/nowhere'}, 'secret_file')])
def test_error_about_a_missing_option_names_it(values, field):
    with pytest.raises(exception.ConfigError, match=field):
        webhook.WebhookHook.create(servers.conf(**values), None)


def test_error_about_a_missing_server_omits_its_address(tmp_path):
    (tmp_path / 'secret').write_bytes(SECRET)
    hook = webhook.WebhookHook.create(servers.conf(
        webhook_url='http://user:hidden@127.0.0.1:1/', webhook_timeout=0.5,
        webhook_secret_file=str(tmp_path / 'secret')), None)
    with pytest.raises(base.StepFailed) as caught:
        servers.ended(hook.before(servers.call()))
    assert 'hidden' not in str(caught.value) and 'ConnectionError' in str(caught.value)


def test_an_untrusted_certificate_is_refused(server, hook, tmp_path):
    authority = programs.Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    with servers.Server(context) as tls:
        for ca, there in ((None, False), (str(authority.ca), True)):
            hook._conf = servers.conf(
                webhook_url=tls.url, webhook_secret_file=str(tmp_path / 'secret'),
                webhook_ca_cert=ca).hook_webhook
            if there:
                servers.ended(hook.before(servers.call()))
            else:
                with pytest.raises(base.StepFailed, match='SSLError'):
                    servers.ended(hook.before(servers.call()))
        assert len(tls.requests) == 1
