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


"""Hooks speak to the configured server, past the proxies and passwords of the environment."""

import pytest

from kronos_nova.rebalancer.hooks import alertmanager
from kronos_nova.rebalancer.hooks import webhook
from tests.unit.rebalancer.hooks import servers


def make_webhook(url, tmp_path):
    secret = tmp_path / 'secret'
    secret.write_bytes(b'correct horse battery staple')
    return webhook.WebhookHook.create(servers.conf(
        webhook_url=url, webhook_secret_file=str(secret)), None)


def make_alertmanager(url, tmp_path):
    return alertmanager.AlertmanagerHook.create(servers.conf(
        alertmanager_url=url + '/prefix'), None)


@pytest.mark.parametrize('make', [make_webhook, make_alertmanager])
def test_proxies_and_netrc_of_the_environment_are_not_used(make, tmp_path, monkeypatch):
    netrc = tmp_path / 'netrc'
    netrc.write_text('machine 127.0.0.1 login kronos password c4n4ry\n')
    with servers.Alertmanager() as server, servers.Server() as proxy:
        for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
            monkeypatch.setenv(name, proxy.url)
        for name in ('no_proxy', 'NO_PROXY'):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv('NETRC', str(netrc))
        if make is make_webhook:
            server.answer = lambda method, path, body: (204, {}, b'')
        hook = make(server.url, tmp_path)
        try:
            servers.ended(hook.before(servers.call()))
            servers.ended(hook.after(servers.call()))
        finally:
            hook.close()
    assert proxy.requests == []
    assert len(server.requests) >= 2
    assert all('Authorization' not in headers for _, _, headers, _ in server.requests)


def test_a_user_in_the_url_is_still_sent(tmp_path):
    with servers.Server() as server:
        hook = make_webhook(server.url.replace('//', '//user:word@'), tmp_path)
        try:
            servers.ended(hook.before(servers.call()))
        finally:
            hook.close()
    assert server.requests[0][2]['Authorization'] == 'Basic dXNlcjp3b3Jk'
