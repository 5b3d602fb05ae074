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

"""Engines on a real store: who plans, what is fenced, what is told."""

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer import engine
from kronos_nova.rebalancer.store import api
from tests.unit import clouds

INSTANCE = clouds.uuid_of('i1')
POLICIES = '''
policies:
  - {name: cpu, weight: 1.0, threshold: 0.15, imbalance_query: cpu, vm_profile_query: vm,
     max_migrations_per_cycle: 1}
'''


class World:
    """Two hosts, one instance, and a clock that collecting moves on."""

    def __init__(self, directory):
        self.now = clouds.NOW
        self.seconds = 1.0
        self.while_collecting = []
        self.url = f'sqlite:///{directory}/kronos.sqlite'
        policies = directory / 'policies.yaml'
        policies.write_text(POLICIES)
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([])
        for name, value in {'policies_file': str(policies), 'dry_run': False,
                            'evaluation_interval': 60}.items():
            self.conf.set_override(name, value, 'engine')
        self.store = self.open()
        self.store.upgrade()
        self.told = []

    def open(self):
        return api.Store.from_url(self.url, clock=lambda: self.now)

    def engine(self, owner, **kwargs):
        return engine.Engine(self.conf, collector=self, source=self, store=self.open(),
                             owner=owner, clock=lambda: self.now, **kwargs)

    def close(self):
        """The source's."""

    def fetch(self, policy, profile=True):
        healthy = model.Health.HEALTHY
        return model.PolicySamples(
            policy=policy.name, imbalance=model.QueryResult('q', healthy, {'a': 0.9, 'b': 0.1}),
            profile=model.QueryResult('q', healthy, {'instance-1': 0.3}), taken_at=self.now)

    def collect(self, now):
        self.now += self.seconds
        for step in self.while_collecting:
            step()
        provider = model.Provider(uuid='p', used={}, inventories={'VCPU': model.Inventory(64)})
        hosts = {name: model.Host(name=name, hypervisor_hostname=name,
                                  uuid=clouds.uuid_of(name), provider=provider)
                 for name in 'ab'}
        return model.Cluster(
            hosts=hosts, services={name: model.Service(host=name) for name in hosts},
            instances={INSTANCE: model.Instance(
                uuid=INSTANCE, host='a', internal_name='instance-1', vcpus=1, memory_mb=1024,
                claims={'VCPU': 1})},
            taken_at=now)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def moved(rows):
    return [m['instance_uuid'] for row in rows for m in row['moves']]


def test_a_cloud_that_takes_longer_to_read_than_a_lease_lasts_is_planned(world):
    world.seconds = 1000.0
    assert moved(world.engine('one').run_cycle()) == [INSTANCE]
    assert len(world.store.flights()) == 1


def test_whoever_took_the_scope_meanwhile_keeps_it(world):
    world.seconds = 1000.0
    world.while_collecting.append(
        lambda: world.store.acquire_lease(model.UNASSIGNED, 'two', 600, 'other'))
    [row] = world.engine('one').run_cycle()
    assert 'another' in row['reason'] and row['hosts'] is None
    assert world.store.flights() == ()


def test_the_scope_stays_leased_between_two_cycles(world):
    world.engine('one').run_cycle()
    world.now += world.conf.engine.evaluation_interval
    [row] = world.engine('two').run_cycle()
    assert 'Another engine plans scope' in row['reason']


def test_another_policy_file_is_refused_between_two_cycles(world, tmp_path):
    first, second = world.engine('one'), world.engine('two')
    first.run_cycle()
    world.now += world.conf.engine.evaluation_interval
    (tmp_path / 'policies.yaml').write_text(POLICIES.replace('0.15', '0.5'))
    [row] = second.run_cycle()
    assert 'uses another policies file' in row['reason']


def test_an_engine_that_leaves_gives_its_scopes_back(world):
    first = world.engine('one')
    first.run_cycle()
    first.close()
    [row] = world.engine('two').run_cycle()
    assert row['hosts'] == 2


def test_a_move_that_ends_while_nova_is_read_still_counts_as_under_way(world):
    """It was read at its source, and is in the task table no more."""
    world.conf.set_override('cooldown', 0, 'engine')
    world.conf.set_override('instance_cooldown', 0, 'engine')
    first = world.engine('one')
    first.run_cycle()
    [flight] = world.store.flights()

    def end():
        task = world.store.claim('w', None, world.now, per_scope=9, total=9,
                                 claim_seconds=60).task
        result = model.Result(
            task_id=task.task_id, plan_id=task.plan_id, aggregate=task.aggregate,
            instance_uuid=INSTANCE, from_host='a', to_host='b', success=True)
        assert world.store.finish(task, result, model.TaskState.COMPLETED, world.now - 1000,
                                  worker='w', instance_cooldown=0) == []

    world.while_collecting.append(end)
    [row] = first.run_cycle()
    assert moved([row]) == [] and world.store.flights() == ()
    assert row['policies'][0]['imbalance_before'] == pytest.approx(0.2)


def test_drains_of_every_scope_are_told_even_if_one_cannot_be_planned(world, monkeypatch):
    world.conf.set_override('aggregates', ['gone'], 'engine')
    told = []
    built = world.engine('one', publish=lambda *args: told.append(args[0]))
    monkeypatch.setattr(built._store, 'draining', lambda: frozenset({'x'}))
    rows = built.run_cycle()
    assert 'Nova has no aggregate gone' in rows[0]['reason']
    assert told == [frozenset({'x'})]


def test_dry_run_leaves_no_task_cooldown_or_drain(world):
    world.conf.set_override('dry_run', True, 'engine')
    told = []
    assert moved(world.engine('one', publish=told.append, cast=told.append).run_cycle())
    history = world.store.history(model.UNASSIGNED, world.now)
    assert (history, world.store.flights(), told) == (model.History(), (), [])


def test_nova_away_moves_nothing_and_the_next_cycle_comes(world):
    def away():
        raise exception.CollectError(what='servers', service='Nova', problem='HTTP 503')
    world.while_collecting.append(away)
    built = world.engine('one')
    [row] = built.run_cycle()
    assert 'HTTP 503' in row['reason'] and world.store.plans() == []
    world.while_collecting.clear()
    assert moved(built.run_cycle()) == [INSTANCE]
