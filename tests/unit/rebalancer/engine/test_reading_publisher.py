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
"""Readings that an engine publishes: real cycles, on a database that others read."""

import contextlib
import dataclasses

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.snapshots import readings
from tests.unit.rebalancer.engine import test_engine


@pytest.fixture
def world(tmp_path):
    return test_engine.World(tmp_path)


class Times:
    """Monotonic seconds of an engine."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def read_versions(world):
    return {row.scope: (row.reading_id, row.version) for row in
            world.store.readings.list_versions()}


def decode(world, scope=model.UNASSIGNED):
    reading_id, _version = read_versions(world)[scope]
    stored = world.store.readings.load_reading(reading_id)
    return readings.ReadingDecoder().decode_reading(stored.format, stored.versions, stored.parts)


def test_cycle_publishes_the_cloud_and_its_scores(world):
    world.engine().run_cycle()
    reading = decode(world)
    cluster = world.collector.cluster
    assert reading.cluster.hosts == cluster.hosts and reading.taken_at == world.clock.now
    assert reading.cluster.instances == cluster.instances
    assert not reading.cluster.scope_hosts
    scores = reading.scopes[model.UNASSIGNED].scores.policies['cpu']
    assert scores.hosts == {'a': 0.9, 'b': 0.1} and scores.untrusted is None
    assert reading.policies.policies[0].name == 'cpu'
    assert reading.options == engine_conf.build_options(world.conf)
    assert not reading.cluster.flights, 'moves of tasks are in the database'


def test_each_cycle_publishes_a_version_of_the_same_reading(world):
    times = Times()
    engine = world.engine(monotonic=times)
    engine.run_cycle()
    (reading_id, version), = read_versions(world).values()
    times.now += 59.5
    world.clock.now += 59.5
    engine.run_cycle()
    assert version == 1 and read_versions(world)[model.UNASSIGNED] == (reading_id, 2)
    assert decode(world).taken_at == world.clock.now


def test_reading_is_published_once_in_its_interval(world):
    world.conf.set_override('publish_interval', 300, 'engine')
    times = Times()
    engine = world.engine(monotonic=times)
    for _cycle in range(6):
        engine.run_cycle()
        times.now += 60
    assert read_versions(world)[model.UNASSIGNED][1] == 2


def test_nothing_is_published_with_interval_zero(world):
    world.conf.set_override('publish_interval', 0, 'engine')
    world.engine().run_cycle()
    assert read_versions(world) == {}


def test_second_engine_takes_over_the_scope(world):
    first = world.engine('one')
    first.run_cycle()
    before = read_versions(world)
    first.close()
    world.clock.now += 60
    world.store = world.store.from_url(f'sqlite:///{world.database}', clock=world.clock)
    world.engine('two').run_cycle()
    after = read_versions(world)
    assert before[model.UNASSIGNED][0] != after[model.UNASSIGNED][0]
    assert world.store.readings.load_reading(before[model.UNASSIGNED][0]) is None


def test_engine_without_the_lease_publishes_nothing(world):
    world.engine('one').run_cycle()
    before = read_versions(world)
    world.engine('two').run_cycle()
    assert read_versions(world) == before


def test_dry_run_leaves_a_scope_to_the_engine_that_acts(world):
    world.conf.set_override('dry_run', True, 'engine')
    world.engine('dry').run_cycle()
    dry = read_versions(world)[model.UNASSIGNED][0]
    world.conf.set_override('dry_run', False, 'engine')
    world.engine('acts').run_cycle()
    acting = read_versions(world)[model.UNASSIGNED]
    assert acting[0] != dry
    world.conf.set_override('dry_run', True, 'engine')
    world.engine('dry').run_cycle()
    assert read_versions(world)[model.UNASSIGNED] == acting


def test_deleted_reading_is_published_whole_again(world):
    times = Times()
    engine = world.engine(monotonic=times)
    engine.run_cycle()
    (reading_id, _version), = read_versions(world).values()
    with world.store.engine.begin() as connection:
        for table in ('reading', 'reading_part', 'reading_scope'):
            connection.exec_driver_sql(f'DELETE FROM {table}')
    times.now += 60
    world.clock.now += 60
    engine.run_cycle()
    assert read_versions(world)[model.UNASSIGNED] != (reading_id, 1)
    assert decode(world).cluster.instances == world.collector.cluster.instances


def test_database_that_refuses_is_logged_and_the_next_cycle_publishes_all(world, caplog):
    times = Times()
    engine = world.engine(monotonic=times)
    engine.run_cycle()

    def refuse(publication):
        raise exception.StoreError(problem='is full', remedy='Make room')

    with contextlib.ExitStack() as stack:
        real = world.store.readings.publish_reading
        world.store.readings.publish_reading = refuse
        stack.callback(setattr, world.store.readings, 'publish_reading', real)
        for _cycle in range(2):
            times.now += 60
            assert engine.run_safe_cycle() == {}, 'planning goes on'
    warnings = [record.getMessage() for record in caplog.records if record.levelname == 'WARNING']
    assert len([text for text in warnings if 'for kronos-api is not published' in text]) == 1
    times.now += 60
    world.clock.now += 1
    engine.run_cycle()
    assert read_versions(world)[model.UNASSIGNED][1] == 1
    assert decode(world).cluster.instances == world.collector.cluster.instances


def test_text_that_is_no_unicode_is_logged(world, caplog):
    uuid = test_engine.B0  # no move of it is stored
    instance = world.collector.cluster.instances[uuid]
    world.collector.cluster = dataclasses.replace(world.collector.cluster, instances={
        **world.collector.cluster.instances,
        uuid: dataclasses.replace(instance, name='\ud800')})
    assert world.engine().run_safe_cycle() == {}
    assert 'is not published' in caplog.text and read_versions(world) == {}


def test_scope_whose_cycle_fails_keeps_its_scores(world):
    times = Times()
    engine = world.engine(monotonic=times)
    engine.run_cycle()
    plan = engine._scopes.plan_scope

    def fail(*args, **more):
        raise exception.PlanRefused(scope=model.UNASSIGNED, problem='x')

    engine._scopes.plan_scope = fail
    times.now += 60
    world.clock.now += 60
    engine.run_cycle()
    engine._scopes.plan_scope = plan
    reading = decode(world)
    assert reading.taken_at == world.clock.now
    assert reading.scopes[model.UNASSIGNED].scores.policies['cpu'].hosts == {'a': 0.9, 'b': 0.1}
