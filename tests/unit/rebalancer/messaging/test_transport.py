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

import dataclasses
import threading

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.checks import broker
from kronos_nova.conf import opts
from kronos_nova.rebalancer.messaging import broker_faults
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import messages
from kronos_nova.rebalancer.messaging import senders
from kronos_nova.rebalancer.messaging import transport
from tests.fixtures import stores
from tests.unit.rebalancer.messaging import test_messages
from tests.unit.rebalancer.store import cases


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    return conf


def test_an_empty_configuration_gives_no_broker(conf):
    assert transport.find_broker_url(conf) is None and transport.get_transport(conf) is None


def test_kronos_messaging_group_is_mapped_and_transport_url_wins(conf):
    conf.set_override('host', 'broker', 'messaging')
    assert transport.find_broker_url(conf) == 'rabbit://broker:5672/'
    conf.set_override('transport_url', 'rabbit://a:b@c:1/,d:e@f:2/')
    assert transport.find_broker_url(conf) == 'rabbit://a:b@c:1/,d:e@f:2/'


@pytest.mark.parametrize(('lines', 'url'), [
    ('virtual_host = /kronos', 'rabbit://localhost:5672/%2Fkronos'),
    ('virtual_host = kronos', 'rabbit://localhost:5672/kronos'),
    ('virtual_host = /', 'rabbit://localhost:5672/'),
    ('host = localhost', 'rabbit://localhost:5672/'), ('port = 5672', 'rabbit://localhost:5672/'),
    ('', None), ('plan_notifications = true', None)])
def test_old_broker_options_mean_what_the_ancestor_meant(tmp_path, lines, url):
    """A slash is a part of the name; an option with its default names a broker."""
    (tmp_path / 'kronos.conf').write_text(f'[messaging]\n{lines}\n')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[str(tmp_path / 'kronos.conf')])
    assert transport.find_broker_url(conf) == url


def test_a_private_configuration_is_refused(conf):
    """oslo.messaging 18 would acknowledge every cast and dispatch none."""
    conf.set_override('host', 'broker', 'messaging')
    with pytest.raises(exception.ConfigError, match='private configuration'):
        transport.get_transport(conf)


@pytest.fixture
def process_conf():
    opts.register(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    yield cfg.CONF
    cfg.CONF.clear_override('transport_url')
    cfg.CONF.reset()


@pytest.mark.parametrize('url', ['nosuchdriver://u:s3cret@h/', 'rabbit://u:s3cret@h:port/'])
def test_an_unusable_url_is_explained_without_its_password(process_conf, url):
    transport.find_broker_url(process_conf)
    process_conf.set_override('transport_url', url)
    with pytest.raises(exception.ConfigError, match='transport_url') as error:
        transport.get_transport(process_conf)
    assert 's3cret' not in str(error.value)


def test_a_broker_that_failed_is_left_alone_for_a_while(monkeypatch):
    now, sent = [0.0], []

    class Client:
        def cast(self, *args, **kw):
            sent.append(now[0])
            raise OSError('gone')
    caster = senders.TaskCaster(None, clock=lambda: now[0], now=lambda: 0.0)
    monkeypatch.setattr(caster, '_get_client', lambda scope, seconds: Client())
    for now[0] in (0.0, 1.0, 29.0, 31.0):
        assert not caster(test_messages.TASK)
    assert sent == [0.0, 31.0]


@pytest.mark.parametrize(('options', 'kind'), [
    ({}, 'quorum'), ({'amqp_durable_queues': True}, 'durable'),
    ({'rabbit_quorum_queue': False}, None), ({'rabbit_ha_queues': True}, None),
    ({'rabbit_quorum_queue': True, 'amqp_durable_queues': True}, 'quorum')])
def test_queues_outlive_the_broker_unless_the_configuration_says_otherwise(
        tmp_path, options, kind):
    path = tmp_path / 'kronos.conf'
    path.write_text('[oslo_messaging_rabbit]\n' + ''.join(
        f'{name} = {str(value).lower()}\n' for name, value in options.items()))
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    assert transport.choose_queue_type(conf) == kind
    assert conf.oslo_messaging_rabbit.rabbit_quorum_queue == (kind == 'quorum')


@pytest.mark.parametrize(('line', 'status', 'words'), [
    ('', 'ok', 'at here, quorum queues'), ('amqp_durable_queues = true', 'ok', 'durable queues'),
    ('rabbit_quorum_queue = false', 'warning', 'loses their messages when it restarts')])
def test_queues_that_a_restart_of_the_broker_empties_are_warned_of(tmp_path, line, status, words):
    path = tmp_path / 'kronos.conf'
    path.write_text(f'[oslo_messaging_rabbit]\n{line}\n')
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    item = broker._check_queues(conf, 'at here', 'rabbit')
    assert item.status == status and words in item.text
    assert broker._check_queues(conf, 'at here', 'kafka').text == 'at here'


def test_queue_names_fit_amqp_for_any_aggregate_and_host(monkeypatch):
    monkeypatch.setattr('socket.gethostname', lambda: 'h' * 63 + '.' + 'x' * 180)
    for scope in ('a' * 128, 'ß' * 255, '#' * 255, 'a' * 255):
        name = f'{messages.migrations_topic(scope)}.{transport.this_host()}'
        assert len(name.encode()) <= 255
    assert transport.this_host() == transport.this_host()


class Flaky:
    """A server whose broker refuses it at first."""

    def __init__(self, refusals):
        self.refusals = refusals
        self.running = False

    def start(self):
        if self.refusals:
            self.refusals -= 1
            raise OSError('not yet')
        self.running = True

    def stop(self):
        self.running = False

    def wait(self):
        assert not self.running


def test_a_listener_that_could_not_be_started_is_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(broker_faults, 'PAUSE_SECONDS', 0.01)
    servers = [Flaky(3), Flaky(0)]
    background = listeners._BackgroundServers([lambda s=s: s for s in servers])
    background.start()
    assert background.ready.wait(60)
    assert all(server.running for server in servers)
    assert len([r for r in caplog.records if r.levelname == 'ERROR']) == 1
    background.stop()
    assert not any(server.running for server in servers)


def test_stopping_ends_the_waiting_for_a_broker():
    background = listeners._BackgroundServers([lambda: Flaky(10**9)])
    background.start()
    thread, = [t for t in threading.enumerate() if t.name == 'kronos-broker']
    background.stop()
    thread.join(60)
    assert not thread.is_alive() and not background.ready.is_set()


@pytest.fixture
def store(tmp_path):
    store = stores.in_file(tmp_path / 'k.sqlite')
    yield store
    store.close()


def test_a_message_is_held_against_the_task_table(store):
    """Known hosts, instance, plan, scope; nothing that has ended."""
    _, (task,), _ = cases.save(store)
    assert store.tasks.validate_cast(task) is None
    assert store.tasks.validate_cast(
        dataclasses.replace(task, to_host='h3')) is None, 'an alternate'
    for field, value in (('task_id', cases.new_id()), ('plan_id', cases.new_id()),
                         ('aggregate', 'red'), ('instance_uuid', cases.new_id()),
                         ('from_host', 'h9'), ('to_host', 'h9')):
        found = store.tasks.validate_cast(dataclasses.replace(task, **{field: value}))
        assert found and (field in found or field == 'task_id'), field
    cases.end(store, cases.claim(store))
    assert 'has ended (completed)' in store.tasks.validate_cast(task)


def test_a_task_unknown_to_the_database_wakes_no_executor(caplog):
    woken = []
    endpoint = listeners._WakeUp('rack 1', lambda: woken.append(1), lambda task: 'is unknown')
    wire = messages.to_wire(dataclasses.replace(test_messages.TASK, deadline=None))
    endpoint.execute_migration({}, wire)
    assert not woken and 'is unknown' in caplog.text
    listeners._WakeUp('rack 1', lambda: woken.append(1),
                      lambda task: None).execute_migration({}, wire)
    assert woken
