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

"""Messages through a real RabbitMQ: wake-ups, results, forgeries, a broker away."""

import queue
import threading
import time
import uuid

from oslo_config import cfg
import oslo_messaging
import pytest

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer import messages
from kronos_nova.rebalancer import transport
from tools.cloud import config
from tools.cloud import rabbitmq
from tools.cloud import run as runs

PATIENCE = 60


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    """The URL of a private broker."""
    with runs.private(tmp_path_factory.mktemp('rabbitmq')) as run:
        rabbitmq.start(run)
        rabbitmq.wait(run)
        yield config.transport_url(run.ports)


@pytest.fixture(scope='module')
def conf():
    """oslo.messaging needs the global configuration: its tracing and metrics
    options are registered nowhere else."""
    opts.register(cfg.CONF)
    cfg.CONF([], default_config_files=[], project='kronos')
    yield cfg.CONF
    cfg.CONF.reset()


def task(scope='_unassigned_', **values):
    return model.Task(**{
        'task_id': str(uuid.uuid4()), 'plan_id': str(uuid.uuid4()), 'aggregate': scope,
        'instance_uuid': str(uuid.uuid4()), 'from_host': 'a', 'to_host': 'b',
        'phase': model.Phase.SPREAD, 'created_at': time.time(), **values})


def result(done):
    return model.Result(
        task_id=done.task_id, plan_id=done.plan_id, aggregate=done.aggregate,
        instance_uuid=done.instance_uuid, from_host='a', to_host='b', success=True,
        duration_seconds=2.5, completed_at=1_700_000_000.25)


@pytest.mark.parametrize('scope', ['_unassigned_', 'gpu rack ä' + 'x' * 200])
def test_a_cast_wakes_the_executor_of_its_scope(broker, conf, scope):
    woken = threading.Event()
    listeners = transport.wakes(conf, broker, [scope], 'executor', woken.set)
    listeners.start()
    caster = transport.Caster(conf, broker)
    try:
        end = time.monotonic() + PATIENCE
        while not woken.wait(0.5) and time.monotonic() < end:
            caster(task(scope))
        assert woken.is_set()
    finally:
        caster.close()
        listeners.stop()


def test_a_forged_or_foreign_cast_wakes_nobody(broker, conf):
    scope = 'forged'
    woken = threading.Event()
    listeners = transport.wakes(conf, broker, [scope], 'executor', woken.set)
    listeners.start()
    caster = transport.Caster(conf, broker)
    rpc = oslo_messaging.get_rpc_transport(conf, url=broker)
    client = oslo_messaging.get_rpc_client(
        rpc, oslo_messaging.Target(topic=messages.migrations_topic(scope), version='1.0'))
    try:
        good = messages.task_to_wire(task(scope))
        for bad in (None, [], {**good, 'instance_uuid': '; rm -rf /'},
                    {**good, 'aggregate': 'other'}, {**good, 'priority': float('nan')}):
            client.cast({}, 'execute_migration', task=bad)
        assert not woken.wait(3)
        caster(task(scope))
        assert woken.wait(PATIENCE)
    finally:
        rpc.cleanup()
        caster.close()
        listeners.stop()


def test_results_reach_the_engine_and_rubbish_does_not(broker, conf):
    told = queue.Queue()
    listeners = transport.results(conf, broker, ['_unassigned_', 'gpu'],
                                  lambda event, found: told.put((event, found)))
    listeners.start()
    notifier = transport.Notifier(conf, broker)
    rubbish = oslo_messaging.Notifier(
        oslo_messaging.get_notification_transport(conf, url=broker), 'somebody',
        driver='messagingv2', topics=[messages.results_topic('gpu')], retry=1)
    try:
        rubbish.info({}, messages.COMPLETED, {'task_id': 'no uuid'})
        sent = result(task('gpu'))
        notifier(messages.COMPLETED, sent)
        assert told.get(timeout=PATIENCE) == (messages.COMPLETED, sent)
        assert told.empty()
    finally:
        rubbish.transport.cleanup()
        notifier.close()
        listeners.stop()


def test_a_cast_nobody_listens_for_is_no_error(broker, conf):
    caster = transport.Caster(conf, broker)
    caster(task('nobody-here'))
    caster.close()


def test_a_broker_that_is_away_costs_a_warning_and_bounded_time(conf, caplog):
    caster = transport.Caster(conf, 'rabbit://guest:guest@127.0.0.1:1/')
    finished = threading.Event()

    def cast():
        caster(task())
        finished.set()

    threading.Thread(target=cast, daemon=True).start()
    assert finished.wait(PATIENCE), 'a cast without a broker blocks the engine'
    assert any('polling' in r.getMessage() for r in caplog.records)
    caster.close()
