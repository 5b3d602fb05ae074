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



"""A virtual host that Kronos 0.2.0 has used, and the way back to it.

``leave_topology`` declares what the program leaves in RabbitMQ. Tests with ``ancestor`` start
the program itself: KRONOS_ANCESTOR is the directory with its commands, of a virtual environment
with ``pip install kronos-openstack==0.2.0``.
"""

import dataclasses
import logging
import os
from pathlib import Path
import queue
import re
import subprocess
import time

import kombu
from oslo_config import cfg
import pytest

from kronos_nova.conf import opts
from kronos_nova.rebalancer.messaging import broker_faults
from kronos_nova.rebalancer.messaging import broker_topology
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import senders
from kronos_nova.rebalancer.messaging import transport
from tests.integration import servers
from tests.integration import test_broker_check
from tests.unit.rebalancer.messaging import test_messages

SCOPE = '_unassigned_'
#: Queues that 0.2.0 leaves: classic and not durable.
LEFT = [f'kronos.migrations.{SCOPE}', f'kronos.migrations.{SCOPE}.kronos-executor-{SCOPE}',
        f'kronos.results.{SCOPE}.info']
FANOUT = f'kronos.migrations.{SCOPE}_fanout'
CLASSIC = '[oslo_messaging_rabbit]\nrabbit_quorum_queue = false\n'
WAIT = 60


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    with servers.rabbitmq(tmp_path_factory.mktemp('rabbitmq')) as broker:
        yield broker


@pytest.fixture
def vhost(broker, request):
    """Name and URL of an empty virtual host."""
    name = ''.join(filter(str.isalnum, request.node.name))
    return name, add_virtual_host(broker, name)


def add_virtual_host(broker, name):
    """URL of a new and empty virtual host."""
    permit(broker, name, '.*', f'rabbit_vhost:add(<<"{name}">>, <<"test">>), ')
    return broker.url + name


def permit(broker, vhost, write, first=''):
    """In one call: each starts an Erlang machine."""
    broker.control('eval', f'{first}rabbit_auth_backend_internal:set_permissions(<<"guest">>, '
                           f'<<"{vhost}">>, <<".*">>, <<"{write}">>, <<".*">>, <<"test">>).')


@pytest.fixture
def connect(vhost):
    """Makes a transport for the virtual host, with options of [oslo_messaging_rabbit]."""
    made = []

    def make(**options):
        opts.register(cfg.CONF)
        cfg.CONF([], default_config_files=[])
        transport.find_broker_url(cfg.CONF)
        transport.choose_queue_type(cfg.CONF)
        cfg.CONF.set_override('transport_url', vhost[1])
        for name, value in options.items():
            cfg.CONF.set_override(name, value, 'oslo_messaging_rabbit')
        made.append(transport.get_transport(cfg.CONF))
        return made[-1]

    yield make
    for each in made:
        each.cleanup()
    if not made:
        return
    cfg.CONF.clear_override('transport_url')
    for name in ('rabbit_quorum_queue', 'amqp_durable_queues', 'rabbit_transient_quorum_queue'):
        cfg.CONF.clear_override(name, 'oslo_messaging_rabbit')
    cfg.CONF.reset()


def open_connection(url):
    return kombu.Connection(url.replace('rabbit://', 'amqp://', 1))


def leave_topology(url):
    """What an executor and an engine of 0.2.0 leave behind: nothing is durable."""
    with open_connection(url) as connection:
        exchange = kombu.Exchange('openstack', 'topic', durable=False)(connection)
        for name in LEFT:
            kombu.Queue(name, exchange, name, durable=False, auto_delete=False)(
                connection).declare()
        # Until this queue expires, half an hour after its executor.
        fanout = kombu.Exchange(FANOUT, 'fanout', durable=False, auto_delete=True)(connection)
        kombu.Queue(f'{FANOUT}_0', fanout, durable=False, expires=1800.0)(connection).declare()


def list_topology(broker, vhost):
    """Names of all queues and exchanges of the virtual host, but RabbitMQ's own."""
    found = broker.control('eval', f'[rabbit_misc:rs(element(2, E)) || E <- '
                                   f'rabbit_amqqueue:list(<<"{vhost}">>) ++ '
                                   f'rabbit_exchange:list(<<"{vhost}">>)].')
    return (sorted(re.findall(r"queue '([^']+)'", found)),
            sorted(name for name in re.findall(r"exchange '([^']+)'", found)
                   if not name.startswith('amq.')))


def until(holds, seconds=WAIT):
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def make_result(**more):
    return dataclasses.replace(test_messages.RESULT, aggregate=SCOPE, **more)


def make_task(**more):
    return dataclasses.replace(
        test_messages.TASK, aggregate=SCOPE, deadline=time.time() + 3600, **more)


@pytest.mark.turns(3)
def test_check_of_an_unused_virtual_host_leaves_nothing(broker, vhost, tmp_path):
    found = test_broker_check.item(tmp_path, vhost[1])
    assert found['status'] == 'ok', found
    assert list_topology(broker, vhost[0]) == ([], [])


@pytest.mark.parametrize('leftover', ['exchange', 'queue', 'results'])
@pytest.mark.turns(3)
def test_check_names_each_leftover_of_the_ancestor(broker, vhost, tmp_path, leftover):
    """A durable exchange hides nothing: queues alone may differ, too."""
    with open_connection(vhost[1]) as connection:
        exchange = kombu.Exchange('openstack', 'topic', durable=leftover != 'exchange')(connection)
        exchange.declare()
        name = {'queue': f'kronos.migrations.{SCOPE}',
                'results': f'kronos.results.{SCOPE}.info'}.get(leftover)
        if name:
            kombu.Queue(name, exchange, name, durable=False)(connection).declare()
    found = test_broker_check.item(tmp_path, vhost[1])
    assert found['status'] == 'failed' and 'PRECONDITION_FAILED' in found['text'], found
    assert (name or 'openstack') in found['text']
    assert 'rabbit_quorum_queue = false' in found['remedy']
    assert list_topology(broker, vhost[0]) == ([name] if name else [], ['openstack'])


@pytest.mark.turns(3)
def test_check_accepts_the_ancestors_queues_when_ours_are_classic(broker, vhost, tmp_path):
    leave_topology(vhost[1])
    found = test_broker_check.item(tmp_path, vhost[1], CLASSIC)
    assert found['status'] == 'warning' and 'loses their messages when it restarts' in found['text']
    assert list_topology(broker, vhost[0]) == (
        sorted([*LEFT, f'{FANOUT}_0']), sorted(['openstack', FANOUT]))


@pytest.mark.turns(3)
def test_check_and_listener_name_the_fanout_exchange(vhost, connect, tmp_path, caplog, monkeypatch):
    """kolla's options have durable ones: a listener would fail on it alone."""
    monkeypatch.setattr(broker_faults, 'CONFLICTS', broker_faults.ConflictLog())
    leave_topology(vhost[1])
    found = test_broker_check.item(
        tmp_path, vhost[1], f'{CLASSIC}rabbit_transient_quorum_queue = true\n')
    assert found['status'] == 'failed' and FANOUT in found['text'], found
    assert 'rabbit_transient_quorum_queue = false' in found['remedy']
    server = listeners.WakeUps(
        connect(rabbit_quorum_queue=False, rabbit_transient_quorum_queue=True), [SCOPE], 'x',
        lambda: None)
    server.start()
    try:
        until(lambda: FANOUT in caplog.text)
    finally:
        server.stop()
    assert 'Traceback' not in caplog.text and 'could not be declared' not in caplog.text


@pytest.mark.turns(3)
def test_check_looks_for_plan_notifications_where_they_are_sent(vhost, tmp_path):
    name = f'kronos.plans.{SCOPE}.info'
    with open_connection(vhost[1]) as connection:
        exchange = kombu.Exchange('openstack', 'topic', durable=True)(connection)
        kombu.Queue(name, exchange, name, durable=False)(connection).declare()
    assert test_broker_check.item(tmp_path, vhost[1])['status'] == 'ok'
    found = test_broker_check.item(tmp_path, vhost[1], '[messaging]\nplan_notifications = true\n')
    assert found['status'] == 'failed' and name in found['text'], found


def test_conflict_logs_one_error_without_traceback(vhost, connect, caplog, monkeypatch):
    """Both listeners, the notifier and the caster: each would have failed in its own way."""
    monkeypatch.setattr(broker_faults, 'CONFLICTS', broker_faults.ConflictLog())
    leave_topology(vhost[1])
    bus = connect()
    caplog.set_level(logging.INFO)
    servers = [listeners.WakeUps(bus, [SCOPE], 'x', lambda: None),
               listeners.ResultServers(bus, [SCOPE], lambda event, result: None, 'pool')]
    asked = []
    compare = broker_topology.compare_topology
    monkeypatch.setattr(broker_topology, 'compare_topology',
                        lambda *args: (asked.append(args), compare(*args)))
    for each in servers:
        each.start()
    notifier, caster = senders.ResultNotifier(bus), senders.TaskCaster(bus)
    try:
        for _ in range(3):
            assert not notifier('migration.completed', make_result())
            assert not caster(make_task())
        until(lambda: len(asked) >= 4)
        until(lambda: any(r.levelname == 'ERROR' for r in caplog.records))
    finally:
        for each in servers:
            each.stop()
    errors = [r for r in caplog.records if r.levelno >= logging.WARNING
              and 'RPC transport' not in r.getMessage()]
    assert len(errors) == 1, [r.getMessage() for r in errors]
    assert 'openstack' in errors[0].getMessage() and 'transport_url' in errors[0].getMessage()
    assert 'Traceback' not in caplog.text


def test_conflict_ends_when_the_leftovers_are_removed(vhost, connect, monkeypatch):
    monkeypatch.setattr(broker_faults, 'CONFLICTS', broker_faults.ConflictLog())
    monkeypatch.setattr(broker_faults, 'PAUSE_SECONDS', 0.2)
    leave_topology(vhost[1])
    bus = connect()
    heard = queue.Queue()
    results = listeners.ResultServers(bus, [SCOPE], lambda e, r: heard.put(e), 'pool')
    results.start()
    notifier = senders.ResultNotifier(bus)
    assert not notifier('migration.completed', make_result())
    with open_connection(vhost[1]) as connection:
        for name in LEFT:
            kombu.Queue(name)(connection).delete()
        kombu.Exchange('openstack')(connection).delete()
    assert results.ready.wait(WAIT)
    until(lambda: notifier('migration.completed', make_result()))
    assert heard.get(timeout=WAIT) == 'migration.completed'
    results.stop()


@pytest.mark.turns(3)
def test_durable_queues_never_become_transient_in_silence(broker, vhost, connect, monkeypatch):
    """oslo.messaging would take the exchange as it is and declare queues that are not durable."""
    monkeypatch.setattr(broker_faults, 'CONFLICTS', broker_faults.ConflictLog())
    with open_connection(vhost[1]) as connection:
        kombu.Exchange('openstack', 'topic', durable=False)(connection).declare()
    bus = connect(rabbit_quorum_queue=False, amqp_durable_queues=True)
    assert not senders.ResultNotifier(bus)('migration.completed', make_result())
    assert list_topology(broker, vhost[0]) == ([], ['openstack'])


def test_refused_notification_does_not_count_as_published(broker, vhost, connect, caplog):
    """Without a traceback: oslo.messaging's notifier swallows the error."""
    permit(broker, vhost[0], '^$')
    assert not senders.ResultNotifier(connect())('migration.completed', make_result())
    assert 'the broker did not take it' in caplog.text
    assert 'Traceback' not in caplog.text


def read_waiting(url, name):
    with open_connection(url) as connection:
        return kombu.Queue(name)(connection).get(no_ack=True)


def test_casts_in_the_ancestors_queues_expire(vhost, connect, monkeypatch):
    """Its executor would carry them out when it is started again."""
    leave_topology(vhost[1])
    bus = connect(rabbit_quorum_queue=False)
    name = f'kronos.migrations.{SCOPE}'
    assert senders.TaskCaster(bus)(make_task())
    waiting = read_waiting(vhost[1], name)
    assert int(waiting.properties['expiration']) == senders.CAST_SECONDS * 1000
    assert senders.TaskCaster(bus)(dataclasses.replace(make_task(), deadline=time.time() + 20.5))
    waiting = read_waiting(vhost[1], name)
    assert 1000 <= int(waiting.properties['expiration']) <= 20500
    assert not senders.TaskCaster(bus)(dataclasses.replace(make_task(), deadline=time.time()))
    monkeypatch.setattr(senders, 'CAST_SECONDS', 1.0)
    assert senders.TaskCaster(bus)(make_task())
    with open_connection(vhost[1]) as connection:
        until(lambda: kombu.Queue(name)(connection).queue_declare(
            passive=True).message_count == 0)


@pytest.fixture
def ancestor(vhost, broker, tmp_path):
    """Starts a command of Kronos 0.2.0 on the virtual host; its log is ``NAME.log``."""
    directory = os.environ.get('KRONOS_ANCESTOR')
    if not directory:
        pytest.skip('KRONOS_ANCESTOR is not set')
    (tmp_path / 'old.conf').write_text(f"""[messaging]
host = 127.0.0.1
port = {broker.port}
username = guest
password = guest
virtual_host = {vhost[0]}
[executor]
max_retries = 0
[nova]
auth_type = password
auth_url = http://127.0.0.1:1/
username = kronos
password = kronos
project_name = service
user_domain_name = Default
project_domain_name = Default
""")
    started = []

    def start(command, *arguments):
        log = tmp_path / f'{command}.log'
        with log.open('a') as out:
            started.append(subprocess.Popen(
                [Path(directory) / command, '--config-file', tmp_path / 'old.conf', *arguments],
                stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path,
                env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}))
        return started[-1], log

    yield start
    for process in started:
        process.kill()
        process.wait(WAIT)


def test_ancestor_starts_after_our_check_and_after_our_daemons(
        broker, vhost, connect, ancestor, tmp_path):
    """``Going back``: with classic queues, on its own virtual host."""
    assert test_broker_check.item(tmp_path, vhost[1])['status'] == 'ok'
    bus = connect(rabbit_quorum_queue=False)
    servers = [listeners.WakeUps(bus, [SCOPE], 'x', lambda: None),
               listeners.ResultServers(bus, [SCOPE], lambda event, result: None, 'kronos.engine.x')]
    for server in servers:
        server.start()
        assert server.ready.wait(WAIT)
    assert senders.ResultNotifier(bus)('migration.completed', make_result())
    for server in servers:
        server.stop()
    process, log = ancestor('kronos-executor', '--unassigned')
    until(lambda: 'Executor ready; servicing' in log.read_text() or process.poll() is not None)
    assert process.poll() is None, log.read_text()


def test_ancestor_starts_where_our_quorum_queues_were_deleted(broker, vhost, connect, ancestor):
    """``Going back`` on a virtual host that was ours: its third step."""
    bus = connect(rabbit_transient_quorum_queue=True)
    servers = [listeners.WakeUps(bus, [SCOPE], 'x', lambda: None),
               listeners.ResultServers(bus, [SCOPE], lambda event, result: None,
                                       'kronos.engine.x')]
    for each in servers:
        each.start()
        assert each.ready.wait(WAIT)
    assert senders.ResultNotifier(bus)('migration.completed', make_result())
    for each in servers:
        each.stop()
    process, log = ancestor('kronos-executor', '--unassigned')
    until(lambda: 'PRECONDITION_FAILED' in log.read_text() or process.poll() is not None)
    assert 'PRECONDITION_FAILED' in log.read_text()
    process.kill()
    process.wait(WAIT)
    queues, exchanges = list_topology(broker, vhost[0])
    assert all(name.startswith('kronos.') for name in queues)
    with open_connection(vhost[1]) as connection:
        for name in queues:
            kombu.Queue(name)(connection).delete()
        kombu.Exchange('openstack')(connection).delete()
    # The fanout exchange went with its last queue.
    assert list_topology(broker, vhost[0]) == ([], [])
    log.write_text('')
    process, log = ancestor('kronos-executor', '--unassigned')
    until(lambda: 'Executor ready; servicing' in log.read_text() or process.poll() is not None)
    assert process.poll() is None, log.read_text()


def test_ancestor_carries_out_no_expired_cast(broker, vhost, connect, ancestor, monkeypatch):
    process, log = ancestor('kronos-executor', '--unassigned')
    until(lambda: 'Executor ready; servicing' in log.read_text())
    process.terminate()
    process.wait(WAIT)
    assert set(LEFT[:2]) <= set(list_topology(broker, vhost[0])[0])
    bus = connect(rabbit_quorum_queue=False)
    monkeypatch.setattr(senders, 'CAST_SECONDS', 2.0)
    assert senders.TaskCaster(bus)(make_task(instance_name='stale'))
    with open_connection(vhost[1]) as connection:
        until(lambda: kombu.Queue(f'kronos.migrations.{SCOPE}')(connection).queue_declare(
            passive=True).message_count == 0)
    monkeypatch.setattr(senders, 'CAST_SECONDS', 600.0)
    process, log = ancestor('kronos-executor', '--unassigned')
    fresh = make_task(instance_name='fresh')
    assert senders.TaskCaster(bus)(fresh)
    # It tries each task again, which is another message.
    until(lambda: f'Received migration task {fresh.task_id[:8]}: fresh' in log.read_text())
    assert ': stale' not in log.read_text()


def test_check_fails_on_virtual_host_that_ancestor_used(vhost, ancestor, tmp_path):
    process, log = ancestor('kronos-executor', '--unassigned')
    until(lambda: 'Executor ready; servicing' in log.read_text())
    process.terminate()
    process.wait(WAIT)
    found = test_broker_check.item(tmp_path, vhost[1])
    assert found['status'] == 'failed' and 'PRECONDITION_FAILED' in found['text']


def test_virtual_host_name_keeps_leading_slash(broker, ancestor, tmp_path):
    """[messaging] virtual_host = /slash leads both programs to one virtual host."""
    permit(broker, '/slash', '.*', 'rabbit_vhost:add(<<"/slash">>, <<"test">>), ')
    path = tmp_path / 'old.conf'
    lines = path.read_text().splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith('virtual_host')]
    lines[at] = 'virtual_host = /slash'
    path.write_text('\n'.join(lines) + '\n')
    process, log = ancestor('kronos-executor', '--unassigned')
    until(lambda: 'Executor ready; servicing' in log.read_text())
    found = test_broker_check.item(tmp_path, '', '\n'.join(lines[:6]))
    assert found['status'] == 'failed' and "in vhost '/slash'" in found['text'], found
