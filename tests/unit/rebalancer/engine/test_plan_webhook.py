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


"""Events of plans reach a real HTTP server, and no cycle waits for it."""

import hashlib
import hmac
import json
import threading
import time

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.engine import plan_webhook
from kronos_nova.rebalancer.messaging import plan_events
from kronos_nova.wiring import daemons
from tests.unit.rebalancer.hooks import servers

SECRET = b'correct horse battery staple'
PAYLOAD = plan_events.decision_payload('blue', 'p1', 1000.0, 3, 'ann', 'looks good')


@pytest.fixture
def server():
    with servers.Server() as found:
        yield found


@pytest.fixture
def conf(server, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_webhook, 'WAITS', (0.01, 0.01))
    (tmp_path / 'secret').write_bytes(SECRET + b'\n')
    found = servers.conf()
    found.set_override('dry_run', False, 'engine')
    for name, value in {'url': server.url + '/x', 'secret_file': str(tmp_path / 'secret'),
                        'timeout': 5.0}.items():
        found.set_override(name, value, 'plan_webhook')
    return found


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_event_is_posted_and_signed(conf, server):
    webhook = daemons.plan_webhook(conf)
    assert webhook('plan.approved', 'blue', PAYLOAD)
    webhook.close()
    (method, path, headers, body), = server.requests
    assert (method, path) == ('POST', '/x')
    expected = hmac.new(SECRET, f'{headers["Kronos-Timestamp"]}.'.encode() + body,
                        hashlib.sha256).hexdigest()
    assert headers['Kronos-Signature'] == f'v1={expected}'
    assert json.loads(body) == {**PAYLOAD, 'event': 'plan.approved'}


def test_events_are_posted_in_their_order_and_tried_again(conf, server):
    answers = iter([500, 302, 204, 404, 404, 404, 204])
    server.answer = lambda *args: (next(answers), {'Location': f'{server.url}/else'}, b'')
    webhook = daemons.plan_webhook(conf)
    for event in ('plan.created', 'plan.approved', 'plan.lapsed'):
        assert webhook(event, 'blue', PAYLOAD)
    wait_for(lambda: len(server.requests) == 7)
    webhook.close()
    assert [json.loads(body)['event'] for _, _, _, body in server.requests] == [
        *['plan.created'] * 3, *['plan.approved'] * 3, 'plan.lapsed']
    assert {path for _, path, _, _ in server.requests} == {'/x'}
    keys = [headers['Idempotency-Key'] for _, _, headers, _ in server.requests]
    assert [keys.count(key) for key in dict.fromkeys(keys)] == [3, 3, 1]


def test_a_receiver_that_does_not_answer_delays_no_engine(conf, server, caplog):
    go = threading.Event()

    def hang(*args):
        go.wait(60)
        return 204, {}, b''

    server.answer = hang
    webhook = daemons.plan_webhook(conf)
    # Notices leave room for events that are not repeated.
    noticed = [webhook(plan_events.ANNOUNCED, 'blue', PAYLOAD) for _ in range(70)]
    assert noticed.count(False) == 20
    told = [webhook('plan.created', 'blue', PAYLOAD) for _ in range(plan_webhook.MAX_WAITING - 45)]
    # The request hangs still, and the caller has gone on.
    assert not go.is_set() and told.count(False) == 5
    assert 'plan.created of scope blue is dropped' in caplog.text
    go.set()
    webhook.close()


def test_log_of_an_unreachable_receiver_omits_its_password(conf, server, caplog):
    conf.set_override('url', 'http://user:hunter22@127.0.0.1:1/x', 'plan_webhook')
    webhook = daemons.plan_webhook(conf)
    webhook('plan.created', 'blue', PAYLOAD)
    wait_for(lambda: 'is not posted' in caplog.text)
    webhook.close()
    assert 'plan.created of scope blue' in caplog.text and 'hunter22' not in caplog.text


def test_the_environment_names_no_proxy_and_no_password(conf, server, monkeypatch, tmp_path):
    monkeypatch.setenv('HTTP_PROXY', 'http://127.0.0.1:1')
    monkeypatch.setenv('http_proxy', 'http://127.0.0.1:1')
    (tmp_path / 'netrc').write_text('default login user password hunter22\n')
    monkeypatch.setenv('NETRC', str(tmp_path / 'netrc'))
    webhook = daemons.plan_webhook(conf)
    webhook('plan.created', 'blue', PAYLOAD)
    webhook.close()
    (_, _, headers, _), = server.requests
    assert 'Authorization' not in headers


@pytest.mark.parametrize('secret', [None, b'short', b''])
def test_a_secret_that_cannot_be_used_stops_the_start(conf, tmp_path, secret):
    if secret is None:
        (tmp_path / 'secret').unlink()
    else:
        (tmp_path / 'secret').write_bytes(secret)
    with pytest.raises(exception.ConfigError, match=r'\[plan_webhook\] secret_file'):
        daemons.plan_webhook(conf)
    conf.set_override('secret_file', None, 'plan_webhook')
    with pytest.raises(exception.ConfigError, match='it is not set'):
        daemons.plan_webhook(conf)


def test_without_an_address_and_in_a_dry_run_nothing_is_posted(conf):
    conf.set_override('dry_run', True, 'engine')
    assert daemons.plan_webhook(conf) is None
    conf.set_override('dry_run', False, 'engine')
    conf.set_override('url', None, 'plan_webhook')
    assert daemons.plan_webhook(conf) is None


@pytest.mark.parametrize(('status', 'problem'), [
    (204, None), (405, None), (503, 'the program answered HTTP 503'),
    (302, 'the program answered HTTP 302')])
def test_the_check_posts_nothing(conf, server, status, problem):
    server.answer = lambda *args: (status, {}, b'')
    assert plan_webhook.PlanWebhook(conf).find_problem() == problem
    assert [method for method, _, _, _ in server.requests] == ['OPTIONS']
