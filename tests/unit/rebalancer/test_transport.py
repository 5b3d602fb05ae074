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


"""What can be said of the transport without a broker."""

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer import transport
from tests.unit.rebalancer import test_messages


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    return conf


def test_without_configuration_there_is_no_broker(conf):
    assert transport.url(conf) is None and transport.get(conf) is None


def test_kronos_messaging_group_is_mapped_and_transport_url_wins(conf):
    conf.set_override('host', 'broker', 'messaging')
    assert transport.url(conf) == 'rabbit://broker:5672/'
    conf.set_override('transport_url', 'rabbit://a:b@c:1/,d:e@f:2/')
    assert transport.url(conf) == 'rabbit://a:b@c:1/,d:e@f:2/'


def test_a_private_configuration_is_refused(conf):
    """oslo.messaging 18 would acknowledge every cast and dispatch none."""
    conf.set_override('host', 'broker', 'messaging')
    with pytest.raises(exception.ConfigError, match='private configuration'):
        transport.get(conf)


@pytest.fixture
def process_conf():
    opts.register(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    yield cfg.CONF
    cfg.CONF.clear_override('transport_url')
    cfg.CONF.reset()


@pytest.mark.parametrize('url', ['nosuchdriver://u:s3cret@h/', 'rabbit://u:s3cret@h:port/'])
def test_an_unusable_url_is_explained_without_its_password(process_conf, url):
    transport.url(process_conf)
    process_conf.set_override('transport_url', url)
    with pytest.raises(exception.ConfigError, match='transport_url') as error:
        transport.get(process_conf)
    assert 's3cret' not in str(error.value)


def test_a_broker_that_failed_is_left_alone_for_a_while(monkeypatch):
    now, sent = [0.0], []

    class Client:
        def cast(self, *args, **kw):
            sent.append(now[0])
            raise OSError('gone')
    caster = transport.Caster(None, clock=lambda: now[0])
    monkeypatch.setattr(caster, '_client', lambda scope: Client())
    for now[0] in (0.0, 1.0, 29.0, 31.0):
        assert not caster(test_messages.TASK)
    assert sent == [0.0, 31.0]
