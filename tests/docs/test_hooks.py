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


"""The example on the page on hooks verifies the signature of a sent webhook."""

import importlib.util
from pathlib import Path
import time

import pytest

from kronos_nova.rebalancer.hooks import webhook
from tests.unit.rebalancer.hooks import servers

EXAMPLE = Path(__file__).resolve().parents[2] / 'doc/examples/hooks/verify.py'
PAGE = EXAMPLE.parents[2] / 'source/admin/hooks.rst'
SECRET = b'correct horse battery staple'


@pytest.fixture(scope='module')
def verify():
    spec = importlib.util.spec_from_file_location('verify', EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='module')
def sent(tmp_path_factory):
    """Headers and body as they come to a server."""
    path = tmp_path_factory.mktemp('webhook') / 'secret'
    path.write_bytes(SECRET + b'\n')
    with servers.Server() as server:
        hook = webhook.WebhookHook.create(servers.conf(
            webhook_url=server.url, webhook_secret_file=str(path)), None)
        servers.ended(hook.before(servers.call()))
        hook.close()
    _method, _path, headers, body = server.requests[0]
    return headers, body


def test_example_accepts_sent_webhook(verify, sent):
    assert verify.is_ours(SECRET, *sent)


def test_example_refuses_forged_webhook(verify, sent):
    headers, body = sent
    assert not verify.is_ours(b'another secret of its length', headers, body)
    assert not verify.is_ours(SECRET, headers, body + b' ')
    assert not verify.is_ours(SECRET, {}, body)
    old = str(int(time.time()) - 301)
    signature = webhook.sign_body(SECRET, old, body)
    assert not verify.is_ours(
        SECRET, {'Kronos-Timestamp': old, 'Kronos-Signature': signature}, body)


def test_page_names_every_body_field_and_header(sent):
    page = PAGE.read_text()
    document = webhook.build_document(servers.call(), webhook.BEFORE)
    assert all(f'``{name}``' in page for name in document)
    for name in ('Kronos-Timestamp', 'Kronos-Signature', 'Idempotency-Key'):
        assert name in sent[0] and f'``{name}``' in page
