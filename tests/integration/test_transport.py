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


"""Casts and notifications over a private RabbitMQ."""

import collections
import dataclasses
import queue
import socket
import threading
import time

import kombu
from oslo_config import cfg
import oslo_messaging
import pytest

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.messaging import broker_faults
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import messages
from kronos_nova.rebalancer.messaging import plan_events
from kronos_nova.rebalancer.messaging import senders
from kronos_nova.rebalancer.messaging import transport
from kronos_nova.wiring import daemons
from tests.fixtures import stores
from tests.integration import servers
from tests.unit.rebalancer.messaging import test_messages
from tests.unit.rebalancer.store import cases

SCOPES = ['prod', 'Größe / 1', model.UNASSIGNED]
WAIT = 60


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    with servers.rabbitmq(tmp_path_factory.mktemp('rabbitmq')) as broker:
        yield broker


@pytest.fixture
def bus(broker):
    opts.register(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    transport.find_broker_url(cfg.CONF)
    cfg.CONF.set_override('transport_url', broker.url)
    bus = transport.get_transport(cfg.CONF)
    yield bus
    bus.cleanup()
    cfg.CONF.clear_override('transport_url')
    cfg.CONF.reset()


def task(scope, **kw):
    return dataclasses.replace(
        test_messages.TASK, aggregate=scope, deadline=time.time() + 600, **kw)


def listening(server):
    server.start()
    assert server.ready.wait(WAIT)
    return server


def until(holds, seconds=WAIT):
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_cast_wakes_only_executor_of_its_scope(bus):
    woken = {scope: threading.Event() for scope in SCOPES}
    each = [listening(listeners.WakeUps(bus, [scope], f'x{n}', woken[scope].set))
            for n, scope in enumerate(SCOPES)]
    try:
        caster = senders.TaskCaster(bus)
        for scope in SCOPES:
            assert caster(task(scope))
            assert woken[scope].wait(WAIT)
            assert [s for s in SCOPES if woken[s].is_set()] == [scope]
            woken[scope].clear()
    finally:
        for server in each:
            server.stop()


@pytest.mark.parametrize(('configured', 'most'), [(None, listeners.THREADS), (2, 2)])
def test_many_casts_begin_few_threads(bus, configured, most):
    heard = collections.Counter()

    def count():
        heard[threading.get_ident()] += 1

    server = listening(listeners.WakeUps(bus, ['many'], 'x', count))
    if configured is not None:
        server.stop()
        bus.conf.set_override('executor_thread_pool_size', configured)
        server = listening(listeners.WakeUps(bus, ['many'], 'x', count))
    try:
        caster = senders.TaskCaster(bus)
        for _ in range(12):
            assert caster(task('many'))
        until(lambda: heard.total() == 12)
    finally:
        server.stop()
        bus.conf.clear_override('executor_thread_pool_size')
    assert len(heard) <= most


def test_cast_without_listener_returns_quickly(bus):
    started = time.monotonic()
    assert not senders.TaskCaster(bus)(task('nobody listens'))
    assert time.monotonic() - started < 30


def test_forged_stale_and_poison_casts_wake_no_executor(bus):
    woken = threading.Event()
    server = listening(listeners.WakeUps(bus, ['prod'], 'x', woken.set))
    try:
        client = oslo_messaging.get_rpc_client(bus, oslo_messaging.Target(
            topic=messages.migrations_topic('prod'), version='1.0'), retry=1)
        good = messages.to_wire(task('prod'))
        for bad in ({}, None, 'text', {**good, 'instance_uuid': '../../etc'},
                    {**good, 'deadline': time.time() - 1}, {**good, 'version': '9.9'},
                    {**good, 'aggregate': 'other'}):
            client.cast({}, messages.METHOD, task=bad)
        client.cast({}, messages.METHOD, surprise=1)
        client.cast({}, 'no_such_method', task=good)
        assert not woken.wait(1.0)
        client.cast({}, messages.METHOD, task=good)
        assert woken.wait(WAIT), 'it no longer listens'
    finally:
        server.stop()


def test_defect_18_every_pool_receives_every_result(bus):
    heard = {pool: queue.Queue() for pool in ('engine-1', 'engine-2')}
    each = [listening(listeners.ResultServers(
        bus, SCOPES, lambda event, result, q=q: q.put((event, result)), pool))
        for pool, q in heard.items()]
    try:
        notifier = senders.ResultNotifier(bus)
        sent = []
        for scope in SCOPES:
            result = dataclasses.replace(test_messages.RESULT, aggregate=scope)
            assert notifier('migration.failed', result)
            sent.append(('migration.failed', result))
        assert notifier('migration.renamed', test_messages.RESULT)
        for q in heard.values():
            got = [q.get(timeout=WAIT) for _ in sent]
            assert sorted(got, key=str) == sorted(sent, key=str) and q.empty()
    finally:
        for server in each:
            server.stop()


def test_listener_receives_plans_and_drains_of_any_scope(bus):
    heard = queue.Queue()

    class Endpoint:
        def info(self, context, publisher, event, payload, metadata):
            heard.put((publisher, event, payload))

    plan = model.Plan('blau, grün', (model.Move('u', 'h1', 'h2', model.Phase.SPREAD),))
    payload = plan_events.plan_payload(plan, 'p', 1.0, model.TaskState.PENDING,
                                       {'u': model.MoveMethod.LIVE})
    listener = oslo_messaging.get_notification_listener(
        bus, [oslo_messaging.Target(topic=messages.plans_topic(plan.scope))], [Endpoint()],
        executor='threading', pool='somebody')
    listener.start()
    try:
        tell = senders.PlanNotifier(bus)
        assert tell(plan_events.PLANNED, plan.scope, payload)
        drain = plan_events.drain_payload(plan.scope, 'h1', 2.0, 0)
        assert tell(plan_events.DRAINED, plan.scope, drain)
        publisher = messages.planner_id(plan.scope)
        assert [heard.get(timeout=WAIT) for _ in range(2)] == [
            (publisher, 'plan.created', payload), (publisher, 'drain.completed', drain)]
    finally:
        listener.stop()
        listener.wait()


@pytest.mark.turns(3)
def test_each_engine_receives_every_result(bus, monkeypatch):
    """Each engine has its own pool, named after the engine or its host, as daemons wire it.

    An engine that was away receives the results that were sent meanwhile."""
    heard = {name: queue.Queue() for name in ('', 'Zweite / 2')}

    def engine(name):
        cfg.CONF.set_override('name', name, 'engine')
        return listening(daemons.make_results_listener(
            cfg.CONF, ['prod'], lambda event, result: heard[name].put(result.instance_uuid)))

    monkeypatch.setattr(transport, 'get_transport', lambda conf: bus)
    cfg.CONF.set_override('dry_run', False, 'engine')
    engines = [engine(name) for name in heard]
    try:
        notifier = senders.ResultNotifier(bus)
        told = [cases.new_id() for _ in range(5)]

        def tell(uuids):
            for uuid in uuids:
                assert notifier('migration.completed', dataclasses.replace(
                    test_messages.RESULT, aggregate='prod', instance_uuid=uuid))

        tell(told[:4])
        for each in heard.values():
            assert sorted(each.get(timeout=WAIT) for _ in range(4)) == sorted(told[:4])
        engines.pop().stop()
        tell(told[4:])
        assert heard[''].get(timeout=WAIT) == told[4] and heard['Zweite / 2'].empty()
        engines.append(engine('Zweite / 2'))
        assert heard['Zweite / 2'].get(timeout=WAIT) == told[4]
        assert heard[''].empty()
    finally:
        for server in engines:
            server.stop()
        cfg.CONF.clear_override('name', 'engine')
        cfg.CONF.clear_override('dry_run', 'engine')


@pytest.mark.turns(3)
def test_longest_scope_and_host_names_receive_casts(bus, monkeypatch):
    monkeypatch.setattr(socket, 'gethostname', lambda: 'h' * 63 + '.' + 'x' * 190)
    woken = threading.Event()
    scope = 'a' * 128
    server = listening(listeners.WakeUps(bus, [scope], transport.this_host(), woken.set))
    try:
        assert senders.TaskCaster(bus)(task(scope)) and woken.wait(WAIT)
    finally:
        server.stop()


def queues_of(broker):
    """What the broker says: (name, type, durable) of each queue."""
    return [tuple(line.split('\t')) for line in broker.control(
        'list_queues', 'name', 'type', 'durable', '--quiet', '--no-table-headers').splitlines()]


@pytest.mark.turns(3)
def test_restarted_listener_reuses_its_quorum_queues(broker, bus):
    for _ in range(2):
        server = listening(listeners.WakeUps(bus, ['kept'], transport.this_host(), lambda: None))
        server.stop()
    mine = {name: (kind, durable) for name, kind, durable in queues_of(broker)
            if name.startswith('kronos.migrations.kept') and '_fanout' not in name}
    assert mine == {
        'kronos.migrations.kept': ('quorum', 'true'),
        f'kronos.migrations.kept.{transport.this_host()}': ('quorum', 'true')}


def test_malformed_messages_stop_no_listener(broker, bus, caplog):
    woken = threading.Event()
    server = listening(listeners.WakeUps(bus, ['prod'], 'x', woken.set))
    topic = messages.migrations_topic('prod')
    try:
        with kombu.Connection(broker.url.replace('rabbit://', 'amqp://', 1)) as connection:
            producer = kombu.Producer(connection)
            for body, kind in (
                    (b'', 'application/json'), (b'{', 'application/json'),
                    (b'\xff\x00', 'application/octet-stream'), (b'[' * 100000, 'application/json'),
                    (b'{"oslo.version": "2.0", "oslo.message": "["}', 'application/json'),
                    (b'{"oslo.version": "9.0", "oslo.message": "{}"}', 'application/json'),
                    (b'{"method": 5, "args": []}', 'application/json')):
                producer.publish(body, routing_key=topic, exchange='openstack',
                                 content_type=kind, content_encoding='utf-8')
        assert not woken.wait(1.0)
        assert senders.TaskCaster(bus)(task('prod'))
        assert woken.wait(WAIT), 'it no longer listens'
        # The task came over another connection: it may have overtaken some of them.
        deadline = time.monotonic() + WAIT
        while caplog.text.count('Failed to process message') < 3:
            assert time.monotonic() < deadline, caplog.text
            time.sleep(0.1)
    finally:
        server.stop()


def test_cast_wakes_worker_and_engine_receives_result(bus, tmp_path):
    store = stores.in_file(tmp_path / 'k.sqlite')
    heard = queue.Queue()
    results = listening(listeners.ResultServers(bus, ['blue'], lambda e, r: heard.put((e, r)), 'p'))
    slow = retry.RetrySettings(poll_interval=600, look_interval=0)
    executor = worker.Worker(store, dry_run.DryRunExecutor(), slow, senders.ResultNotifier(bus))
    wakes = listening(listeners.WakeUps(bus, ['blue'], executor.name, executor.wake.set))
    thread = threading.Thread(target=executor.run)
    thread.start()
    try:
        until(lambda: not executor.wake.is_set())
        _, (stored,), _ = cases.save(store, [
            lambda p, s: cases.make_task(p, s, not_before=time.time() - 1)], now=time.time())
        assert senders.TaskCaster(bus)(stored)
        event, result = heard.get(timeout=WAIT)
        assert (event, result.task_id) == ('migration.completed', stored.task_id)
    finally:
        executor.stop()
        thread.join(WAIT)
        wakes.stop()
        results.stop()
    assert not thread.is_alive()


@pytest.mark.turns(3)
def test_casts_do_not_block_and_resume_after_broker_outage(broker, bus):
    now = [0.0]
    caster = senders.TaskCaster(bus, clock=lambda: now[0])
    woken = threading.Event()
    server = listening(listeners.WakeUps(bus, ['prod'], 'x', woken.set))
    heard = queue.Queue()

    def engine():
        return listening(listeners.ResultServers(
            bus, ['kept'], lambda event, result: heard.put(event), 'kronos.engine.kept'))

    engine().stop()
    try:
        assert caster(task('prod')) and woken.wait(WAIT)
        woken.clear()
        assert senders.ResultNotifier(bus)('migration.completed', dataclasses.replace(
            test_messages.RESULT, aggregate='kept'))
        broker.stop()
        started = time.monotonic()
        assert not caster(task('prod'))
        assert time.monotonic() - started < 60
        started = time.monotonic()
        assert not caster(task('prod'))
        assert time.monotonic() - started < 1, 'it was asked again at once'
        broker.start()

        def heard_again():
            now[0] += broker_faults.PAUSE_SECONDS + 1
            caster(task('prod'))
            return woken.wait(1)
        until(heard_again, 180)
        later = engine()
        assert heard.get(timeout=WAIT) == 'migration.completed', 'it was lost at the restart'
        later.stop()
    finally:
        server.stop()
