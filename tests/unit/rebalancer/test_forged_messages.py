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


"""Poison, duplicate, late and forged messages change nothing.

A store with tasks in every state, an executor and an engine that listen; no message
over oslo.messaging changes the database.
"""

import dataclasses
import random
import threading
import time
import types

import hypothesis
from hypothesis import strategies as st
from oslo_config import cfg
import oslo_messaging
import pytest

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import messages
from kronos_nova.rebalancer.messaging import transport
from kronos_nova.rebalancer.store import api
from tests.fixtures import stores
from tests.unit import clouds
from tests.unit.rebalancer.messaging import test_messages
from tests.unit.rebalancer.store import cases

WAIT = 60
STATES = (TaskState.QUEUED, TaskState.CLAIMED, TaskState.SUBMITTING, TaskState.SUBMITTED,
          TaskState.UNKNOWN, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)


@pytest.fixture(scope='module')
def bus():
    opts.register(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    transport.find_broker_url(cfg.CONF)
    cfg.CONF.set_override('transport_url', 'fake://')
    bus = transport.get_transport(cfg.CONF)
    yield bus
    bus.cleanup()
    cfg.CONF.clear_override('transport_url')
    cfg.CONF.reset()


class World:
    def __init__(self, store, bus):
        self.store, self.now = store, time.time()
        self.tasks = {state: self._task(state) for state in STATES}
        self.executor = worker.Worker(
            store, dry_run.DryRunExecutor(), retry.RetrySettings(), clock=lambda: self.now)
        self.woken = threading.Event()
        self.heard = threading.Event()
        self._servers = [
            listeners.WakeUps(bus, ['blue'], 'x', self.woken.set, store.tasks.validate_cast),
            listeners.ResultServers(bus, ['blue'], self._hear, 'pool')]
        for server in self._servers:
            server.start()
            assert server.ready.wait(WAIT)
        self.client = oslo_messaging.get_rpc_client(bus, oslo_messaging.Target(
            topic=messages.migrations_topic('blue'), version='1.0'))
        self.notifier = oslo_messaging.Notifier(
            bus, 'x', driver='messagingv2', topics=[messages.results_topic('blue')])

    def _task(self, state):
        """Store a task in that state that no daemon has to process now."""
        _, (task,), _ = cases.save(self.store, [lambda p, s: cases.make_task(
            p, s, not_before=self.now - 5)], now=self.now)
        if state is TaskState.QUEUED:
            with self.store.engine.begin() as connection:
                connection.execute(api.tables.task.update()
                                   .where(api.tables.task.c.task_id == task.task_id)
                                   .values(not_before=self.now + 9999))
            return task
        row = cases.claim(self.store, 'another', now=self.now, per_scope=99, total=99)
        if state.is_terminal:
            cases.end(self.store, row, state, self.now, worker='another')
        elif state is not TaskState.CLAIMED:
            self.store.tasks.update_state(task.task_id, 'another', [TaskState.CLAIMED], state,
                                          self.now)
        return task

    def _hear(self, event, result):
        engine.Engine.log_result(types.SimpleNamespace(_max_retries=lambda result: 3), event,
                                 result)
        self.heard.set()

    def close(self):
        for server in self._servers:
            server.stop()


@pytest.fixture(scope='module')
def world(bus, tmp_path_factory):
    store = stores.in_file(tmp_path_factory.mktemp('bus') / 'k.sqlite')
    world = World(store, bus)
    yield world
    world.close()
    store.close()


def mutated(rng, wire, junk):
    """Return a message of ours with random damage or with forged fields."""
    wire = dict(wire)
    for _ in range(rng.randrange(4)):
        field = rng.choice(sorted(wire) or ['task_id'])
        what = rng.randrange(6)
        if what == 0:
            wire.pop(field, None)
        elif what == 1:
            wire[field] = junk
        elif what == 2:
            wire[field] = cases.new_id()
        elif what == 3:
            wire['deadline'] = 1.0
        elif what == 4:
            wire[rng.choice(['to_host', 'from_host'])] = rng.choice(['h1', 'h2', 'h3', 'evil'])
        else:
            wire[str(junk)[:20]] = junk
    return wire


@clouds.examples(60)
@hypothesis.given(st.sampled_from(STATES), st.integers(0, 2**32), test_messages.junk,
                  st.integers(1, 3), st.booleans())
def test_no_message_changes_the_database(world, state, seed, junk, times, bare):
    rng = random.Random(seed)
    task = dataclasses.replace(world.tasks[state], deadline=time.time() + 999)
    result = model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                              task.from_host, task.to_host, rng.random() < 0.5)
    before = cases.dump(world.store)
    cast = junk if bare else mutated(rng, messages.to_wire(task), junk)
    told = junk if bare else mutated(rng, messages.to_payload(result), junk)
    for _ in range(times):
        world.client.cast({}, messages.METHOD, task=cast)
        world.notifier.info({}, rng.choice(['migration.completed', 'migration.failed', 'x']),
                            told)
    # What comes behind them is still heard.
    queued = dataclasses.replace(world.tasks[TaskState.QUEUED], deadline=None)
    world.woken.clear()
    world.heard.clear()
    world.client.cast({}, messages.METHOD, task=messages.to_wire(queued))
    world.notifier.info({}, 'migration.failed', messages.to_payload(result))
    assert world.woken.wait(WAIT) and world.heard.wait(WAIT)
    assert not world.executor.run_once(world.now)
    after = cases.dump(world.store)
    after['gate'] = before['gate']
    assert after == before


@pytest.mark.parametrize('state', STATES)
def test_only_a_task_that_lives_wakes(world, state):
    task = dataclasses.replace(world.tasks[state], deadline=None)
    assert (world.store.tasks.validate_cast(task) is None) != state.is_terminal
