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

"""The engine keeps the failover certificate from cycle to cycle."""

import dataclasses
import json
import time
from unittest import mock

import pytest

from kronos_nova import model
from kronos_nova.feed import feed_channel
from kronos_nova.feed import periodic
from kronos_nova.feed import raw_cache
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.monitoring import stats
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.scheduler import runtime
from kronos_nova.wiring import daemons
from tests.unit.rebalancer.engine import test_engine
from tests.unit.rebalancer.planning import test_failover


def test_hold_leaves_the_last_certificate_for_the_cycle_after_it(tmp_path):
    world = test_engine.World(tmp_path)
    world.conf.set_override('failover', 'warn', 'engine')
    engine = world.engine()
    first, = engine.run_cycle()
    kept = engine._scopes._certificates[model.UNASSIGNED]
    assert kept.hold is None and first['failover']['safe'] + first['failover']['unsafe'] == 2
    whole = world.collector.cluster
    world.collector.cluster = dataclasses.replace(whole, placement_known=False)
    held, = engine.run_cycle()
    assert held['failover'] == {}
    assert engine._scopes._certificates[model.UNASSIGNED] is kept
    world.collector.cluster = whole
    engine.run_cycle()
    assert engine._scopes._certificates[model.UNASSIGNED].turn == kept.turn + 1


def test_instances_that_no_host_may_take_make_no_host_unsafe_in_the_report():
    group = model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'t1', 't2'}))
    request = test_failover.small(
        3, [('t1', 'h0', 1), ('t2', 'h0', 1), ('a', 'h1', 4), ('b', 'h2', 1)], [group])
    certificate = test_failover.certify(request)
    assert len(certificate.list_verdicts(failover.FailureState.UNSAFE)) == 2
    assert cycle_report._count_failover_states(certificate) == {
        'safe': 1, 'unsafe': 1, 'unknown': 0, 'unplaceable': 2}


def run_published(world):
    """Run a cycle; return the published limits by scope, and the scopes that are named."""
    limits, named = {}, []
    world.engine(publish_limits=lambda scope, found, now: limits.update({scope: found}),
                 publish=lambda *args: named.append(args[-1])).run_cycle()
    return limits, named


@pytest.mark.parametrize('mode', ['off', 'warn', 'enforce'])
def test_limits_are_published_where_plans_keep_the_certificate(tmp_path, mode):
    world = test_engine.World(tmp_path)
    world.conf.set_override('failover', mode, 'engine')
    limits, named = run_published(world)
    assert limits.keys() == {model.UNASSIGNED} and named == [frozenset(limits)]
    # The instance of each host has its place on the other; else an empty record ends the limits.
    assert bool(limits[model.UNASSIGNED]) == (mode == 'enforce')


def test_limits_leave_room_for_the_moves_of_the_plan():
    request = test_failover.small(3, [('a', 'h0', 1), ('b', 'h1', 1)],
                                  failover=model.FailoverMode.ENFORCE)
    certificate = test_failover.certify(request)
    place = certificate.verdicts['h0',].places['a']
    published = []
    publisher = notifications.SchedulerPublisher(
        None, None, None, lambda _scope, limits, _now: published.append(limits), lambda: 1.0)
    for moves in ((), (model.Move('b', 'h1', place, model.Phase.SPREAD),)):
        publisher.publish_limits([planning_pipeline.PassOutcome(
            request.cluster, request.scores, model.Plan(scope='scope', moves=moves), {}, request,
            certificate=certificate)])
    assert [limits[place].vcpus for limits in published] == [3.0, 2.0]


def test_dry_run_limits_no_boot(tmp_path):
    world = test_engine.World(tmp_path)
    world.conf.set_override('failover', 'enforce', 'engine')
    world.conf.set_override('dry_run', True, 'engine')
    assert run_published(world) == ({}, [])


def test_limits_of_other_engines_are_named_with_our_own(tmp_path):
    world = test_engine.World(tmp_path)
    world.conf.set_override('failover', 'enforce', 'engine')
    world.store.leases.acquire_lease('blue', 'two', 600, 'hash')
    limits, named = run_published(world)
    assert limits.keys() == {model.UNASSIGNED} and named == [frozenset({'blue', model.UNASSIGNED})]


def test_cycle_without_a_certificate_leaves_the_limits_before(tmp_path):
    world = test_engine.World(tmp_path)
    world.conf.set_override('failover', 'enforce', 'engine')
    world.collector.cluster = dataclasses.replace(world.collector.cluster, placement_known=False)
    limits, named = run_published(world)
    assert limits == {} and named == [frozenset({model.UNASSIGNED})]


@pytest.mark.parametrize('mode', ['off', 'warn', 'enforce'])
def test_cycle_that_should_have_a_certificate_begins_its_time(tmp_path, mode):
    world, tally = test_engine.World(tmp_path), stats.DaemonTally()
    world.conf.set_override('failover', mode, 'engine')
    world.collector.cluster = dataclasses.replace(world.collector.cluster, placement_known=False)
    world.engine(tally=tally).run_cycle()
    assert tally.copy_tally().certified_at.keys() == (
        set() if mode == 'off' else {model.UNASSIGNED})


def test_published_limits_reach_a_scheduler_through_the_channel(tmp_path, caplog):
    world = test_engine.World(tmp_path)
    raw_cache.register(world.conf)
    assert daemons.limit_publisher(world.conf) is None
    world.conf.set_override('directory', str(tmp_path), 'kronos_channel')
    publish, now = daemons.limit_publisher(world.conf), time.time()
    publish('blue', {'a': model.BootLimit(8.0)}, now)
    channel = feed_channel.FeedChannel(world.conf)
    seconds = daemons.PUBLISHED_CYCLES * world.conf.engine.evaluation_interval
    assert channel.read_boot_limits('blue') == ({'a': model.BootLimit(8.0)}, now + seconds)
    assert channel.read_boot_limits('blue', now + seconds) is None
    daemons.make_publisher(world.conf)(frozenset(), model.MoveHistory(), world.collector.cluster,
                                       now, frozenset({'blue'}))
    assert channel.read().scopes == {'blue'}
    publish('blue', {'a': model.BootLimit('no number')}, now)
    assert 'the hosts of scope blue' in caplog.text and 'limits before hold' in caplog.text


def test_engines_of_other_scopes_switch_no_limits_off(tmp_path):
    """Another engine keeps none, or is of the release before; then our own option is off."""
    world = test_engine.World(tmp_path)
    world.clock.now = time.time()
    raw_cache.register(world.conf)
    world.conf.set_override('directory', str(tmp_path), 'kronos_channel')
    channel = feed_channel.FeedChannel(world.conf)
    board = runtime.NoticeBoard(world.conf, periodic.FaultCounters(), mock.Mock(usage_keys=()))

    def run(mode):
        world.conf.set_override('failover', mode, 'engine')
        world.engine(publish=daemons.make_publisher(world.conf),
                     publish_limits=daemons.limit_publisher(world.conf)).run_cycle()
        return read()

    def read():
        board.refresh_publication()
        return board.read_boot_limits()

    limits = run('enforce')
    assert limits
    daemons.limit_publisher(world.conf)('red', {}, time.time())
    assert read() == limits
    document = json.loads(channel.cache.get(feed_channel.KEY))
    assert document.pop('scopes') == [model.UNASSIGNED]
    channel.cache.set(feed_channel.KEY, json.dumps(document))
    assert read() == limits
    assert run('warn') == {}
