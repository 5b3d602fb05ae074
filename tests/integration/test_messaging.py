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

import contextlib
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
    assert transport.url(cfg.CONF) is None, 'nobody named a broker'
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


@pytest.fixture
def reached(broker, conf):
    """A transport to the private broker."""
    conf.set_override('transport_url', broker)
    found = transport.get(conf)
    yield found
    found.cleanup()
    conf.clear_override('transport_url')


@contextlib.contextmanager
def listening(servers):
    servers.start()
    assert servers.ready.wait(PATIENCE)
    try:
        yield
    finally:
        servers.stop()


@pytest.mark.parametrize('scope', ['_unassigned_', 'gpu rack ä' + 'x' * 200])
def test_a_cast_wakes_the_executor_of_its_scope(reached, scope):
    woken = threading.Event()
    with listening(transport.WakeUps(reached, [scope], 'executor', woken.set)):
        assert transport.Caster(reached)(task(scope))
        assert woken.wait(PATIENCE)


def test_a_forged_cast_wakes_nobody(reached):
    scope = 'forged'
    woken = threading.Event()
    client = oslo_messaging.get_rpc_client(
        reached, oslo_messaging.Target(topic=messages.migrations_topic(scope), version='1.0'))
    with listening(transport.WakeUps(reached, [scope], 'executor', woken.set)):
        good = messages.to_wire(task(scope))
        for bad in (None, [], {**good, 'instance_uuid': '; rm -rf /'},
                    {**good, 'priority': float('nan')}):
            client.cast({}, 'execute_migration', task=bad)
        assert not woken.wait(3)
        assert transport.Caster(reached)(task(scope))
        assert woken.wait(PATIENCE)


def test_results_reach_the_engine_and_rubbish_does_not(reached):
    told = queue.Queue()
    rubbish = oslo_messaging.Notifier(reached, 'somebody', driver='messagingv2',
                                      topics=[messages.results_topic('gpu')], retry=1)
    with listening(transport.Results(reached, ['_unassigned_', 'gpu'],
                                     lambda event, found: told.put((event, found)))):
        rubbish.info({}, messages.COMPLETED, {'task_id': 'no uuid'})
        sent = result(task('gpu'))
        assert transport.Notifier(reached)(messages.COMPLETED, sent)
        assert told.get(timeout=PATIENCE) == (messages.COMPLETED, sent)
        assert told.empty()


def test_a_cast_nobody_listens_for_is_no_error(reached):
    assert not transport.Caster(reached)(task('nobody-here'))


def test_a_broker_that_is_away_costs_one_warning_and_bounded_time(conf, caplog):
    conf.set_override('transport_url', 'rabbit://guest:guest@127.0.0.1:1/')
    caster = transport.Caster(transport.get(conf))
    finished = threading.Event()

    def cast():
        for _ in range(20):
            caster(task())
        finished.set()

    threading.Thread(target=cast, daemon=True).start()
    assert finished.wait(PATIENCE), 'a cast without a broker blocks the engine'
    assert sum('transport_url' in r.getMessage() for r in caplog.records) == 1
    conf.clear_override('transport_url')
