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

"""Checks of a drain: planned moves are legal, and each instance that stays has a reason."""

from collections import Counter
import dataclasses

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.cli import drain as cli_drain
from kronos_nova.constraints import contracts
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate
from tests.unit import clouds
from tests.unit.rebalancer.planning import test_failover


def asked(knobs):
    request = clouds.request(knobs)
    return dataclasses.replace(request, strategies=[evacuate.Evacuate()], history=(
        dataclasses.replace(request.history, paused=None)))


def occupied(request):
    return sorted(host for host, n in Counter(
        i.host for i in request.cluster.instances.values()).items()
        if n and host in request.cluster.scope_hosts and request.cluster.services[host].up)


@clouds.examples(200)
@hypothesis.given(clouds.knobs(), st.sampled_from(model.DrainMode), st.booleans(),
                  st.randoms(use_true_random=False))
def test_everybody_on_the_host_leaves_or_has_a_reason_that_is_true(knobs, mode, overbooking, rng):
    """draining.empty checks its own plan, so that an illegal one raises."""
    request = asked(knobs)
    hosts = occupied(request)
    hypothesis.assume(hosts)
    host = rng.choice(hosts)
    check = drains.plan_drain(request, host, mode, overbooking=overbooking)
    hypothesis.assume(check.plan.reason is None or check.plan.moves or check.blocked)
    here = {i.uuid for i in request.cluster.instances.values() if i.host == host}
    leaving = {m.instance_uuid for m in check.plan.moves if m.from_host == host}
    staying = {b.instance_uuid: b for b in check.blocked}
    assert leaving.isdisjoint(staying) and leaving | staying.keys() == here
    ordered = drains._build_drain_request(request, host, mode, overbooking)
    simulation = sim.Simulation(ordered.cluster, ordered.scores, ordered.policies,
                                ordered.history, ordered.options)
    for move in sorted(check.plan.moves, key=lambda m: m.wave):
        simulation.apply_move(move)
    for uuid, blocked in staying.items():
        no = [[r for r in constraints.list_rejections(simulation.view, model.Move(
            uuid, host, there, model.Phase.EVACUATE)) if r.rule not in PASSING]
            for there in simulation.hosts]
        if blocked.later and not simulation.view.is_in_flight(uuid):
            there = next(h for h, found in zip(simulation.hosts, no, strict=True) if not found)
            simulation.apply_move(model.Move(uuid, host, there, model.Phase.EVACUATE))
        elif not blocked.later:
            assert all(no), 'a host would have it'


#: What ends by itself, whatever the code says of it.
PASSING = {'in-flight', 'group-in-flight', 'hint-in-flight', 'task-state'}


def cloud(*sizes, host_memory=8192):
    """A host with instances of so many MiB, and two with room for ``host_memory`` each."""
    def provider(name, used):
        return model.Provider(name, inventories={'MEMORY_MB': model.Inventory(host_memory)},
                              used={'MEMORY_MB': used})

    instances = {f'i{n}': model.Instance(f'i{n}', 'a', memory_mb=size,
                                         claims={'MEMORY_MB': size})
                 for n, size in enumerate(sizes)}
    hosts = {name: model.Host(name, uuid=name, provider=provider(
        name, sum(sizes) if name == 'a' else 0)) for name in 'abc'}
    request = clouds.request(clouds.Knobs(seed=1, hosts=2, instances=2, groups=0, policies=1,
                                          budget=2))
    cluster = model.Cluster(
        hosts, instances, {name: model.Service(name) for name in hosts},
        scope_hosts=frozenset(hosts))
    scores = model.ClusterScores({p.name: model.PolicyScores(
        p.name, dict.fromkeys(hosts, 0.5), dict.fromkeys(hosts, 0.5), dict.fromkeys(hosts, 8.0),
        dict.fromkeys(instances, 1.0)) for p in request.policies.enabled_policies})
    return dataclasses.replace(request, cluster=cluster, scores=scores,
                               options=model.PlanningOptions(),
                               history=model.MoveHistory(), strategies=[evacuate.Evacuate()])


def places(check):
    return sorted((m.instance_uuid, m.to_host) for m in check.plan.moves)


def test_compact_fills_one_host_after_the_other_and_scatter_both():
    request = cloud(2048, 2048)
    assert places(drains.plan_drain(request, 'a', model.DrainMode.COMPACT)) == [
        ('i0', 'b'), ('i1', 'b')]
    assert places(drains.plan_drain(request, 'a', model.DrainMode.SCATTER)) == [
        ('i0', 'b'), ('i1', 'c')]


@pytest.mark.parametrize('mode', model.DrainMode)
def test_a_drain_without_room_names_the_missing_resources(mode):
    check = drains.plan_drain(cloud(8192, 8192, 3000, 1000), 'a', mode)
    assert len(check.plan.moves) == 2
    assert check.missing == {'MEMORY_MB': 4000}, 'neither host has any left'
    assert all('no-room (2 hosts)' in b.reason for b in check.blocked)


def test_of_what_there_is_enough_nothing_is_missing():
    request = cloud(8000, 8000, 3000)
    check = drains.plan_drain(request, 'a')
    assert check.missing == {'MEMORY_MB': 3000 - 192}


def test_cooling_instances_of_a_drain_are_checked_for_room():
    request = cloud(8192, 8192, 3000)
    request = dataclasses.replace(request, history=model.MoveHistory(
        cooling=dict.fromkeys(request.cluster.instances, 600.0), scope_cooling=300.0))
    check = drains.plan_drain(request, 'a')
    assert len(check.plan.moves) == 2 and not check.blocked[0].later


def test_a_flight_of_its_group_hides_no_lack_of_room():
    request = cloud(9000, 100)
    group = model.ServerGroup('g', model.GroupPolicy.SOFT_ANTI_AFFINITY, frozenset({'i0', 'x'}))
    cluster = dataclasses.replace(
        request.cluster, groups=(group,), flights=(model.InFlightMove('x', 'b', 'c'),),
        instances={**request.cluster.instances, 'x': model.Instance('x', 'b')})
    check = drains.plan_drain(dataclasses.replace(request, cluster=cluster), 'a')
    blocked = {b.instance_uuid: b for b in check.blocked}
    assert not blocked['i0'].later and check.missing == {'MEMORY_MB': 9000 - 8192}
    small = cloud(900, 100)
    check = drains.plan_drain(dataclasses.replace(small, cluster=dataclasses.replace(
        small.cluster, groups=(group,), flights=(model.InFlightMove('x', 'b', 'c'),),
        instances={**small.cluster.instances, 'x': model.Instance('x', 'b')})), 'a')
    assert [b.later for b in check.blocked] == [True]


@pytest.mark.parametrize(('options', 'disabled', 'said'), [
    ({'evacuate_disabled_hosts': False}, (), 'evacuate_disabled_hosts is not set'),
    ({'evacuate_disabled_hosts': True}, ('b',), 'more than max_drain_fraction'),
    ({'evacuate_disabled_hosts': True}, (), None)])
def test_obstacles_name_options_that_keep_engines_from_the_drain(options, disabled, said):
    request = cloud(1024)
    request = dataclasses.replace(
        request, options=model.PlanningOptions(**options), cluster=dataclasses.replace(
            request.cluster, services={
                name: dataclasses.replace(found, status='disabled') if name in disabled else found
                for name, found in request.cluster.services.items()}))
    check = drains.plan_drain(request, 'a')
    assert check.plan.moves, 'it could be emptied'
    assert (said is None and not check.obstacles) or said in check.obstacles[0]


def test_hosts_that_are_drained_already_need_their_room_too():
    request = cloud(4000, 4000, host_memory=8192)
    instances = {**request.cluster.instances, 'o': model.Instance(
        'o', 'b', memory_mb=5000, claims={'MEMORY_MB': 5000})}
    hosts = {**request.cluster.hosts, 'b': dataclasses.replace(
        request.cluster.hosts['b'], provider=dataclasses.replace(
            request.cluster.hosts['b'].provider, used={'MEMORY_MB': 5000}))}
    request = dataclasses.replace(
        request, options=model.PlanningOptions(evacuate_disabled_hosts=True),
        cluster=dataclasses.replace(
            request.cluster, hosts=hosts, instances=instances, services={
                **request.cluster.services, 'b': model.Service(
                    'b', status='disabled', disabled_reason='a change')}))
    check = drains.plan_drain(request, 'a')
    assert ('o', 'c') in places(check) and len(check.blocked) == 2, 'it took the room'
    alone = dataclasses.replace(request, options=model.PlanningOptions())
    assert len(drains.plan_drain(alone, 'a').blocked) == 0, 'nobody else is drained then'


def test_ceilings_hold_unless_overbooking_is_requested():
    request = cloud(1024)
    full = dict.fromkeys('abc', 0.95)
    request = dataclasses.replace(request, scores=model.ClusterScores({
        name: dataclasses.replace(found, hosts=full, fill=full)
        for name, found in request.scores.policies.items()}))
    (blocked,) = drains.plan_drain(request, 'a').blocked
    assert 'ceiling (2 hosts)' in blocked.reason
    assert drains.plan_drain(request, 'a', overbooking=True).blocked == ()


def test_an_instance_that_may_not_move_says_so_itself():
    request = cloud(1024)
    locked = {'i0': dataclasses.replace(request.cluster.instances['i0'], locked=True)}
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=locked))
    (blocked,) = drains.plan_drain(request, 'a').blocked
    assert blocked.reason == 'locked: instance i0 is locked by its owner' and not blocked.later


def test_a_scope_that_is_paused_says_so_and_the_plan_is_there_all_the_same():
    request = dataclasses.replace(cloud(1024), history=model.MoveHistory(paused='a change'),
                                  options=model.PlanningOptions(evacuate_disabled_hosts=True))
    check = drains.plan_drain(request, 'a')
    assert check.obstacles == ('a change',) and check.plan.moves


@pytest.mark.parametrize(('status', 'reason', 'state', 'said'), [
    ('disabled', 'AUTO: libvirt', 'up', "its disabled_reason is 'AUTO: libvirt'"),
    ('disabled', 'disk broken', 'up', "'disk broken' does not match drain_reason_regex '^change'"),
    ('disabled', None, 'up', "'' does not match drain_reason_regex"),
    ('disabled', 'change 7', 'down', 'its nova-compute is down'),
    ('disabled', 'change 7', 'up', None),
    ('enabled', 'AUTO: of old', 'up', None)])
def test_obstacles_name_a_disabled_reason_that_engines_ignore(status, reason, state, said):
    request = cloud(1024)
    request = dataclasses.replace(
        request, options=model.PlanningOptions(evacuate_disabled_hosts=True,
                                               drain_reason_regex='^change'),
        cluster=dataclasses.replace(request.cluster, services={
            **request.cluster.services, 'a': model.Service(
                'a', status=status, disabled_reason=reason, state=state)}))
    check = drains.plan_drain(request, 'a')
    told = [text for text in check.obstacles if 'is disabled already and not drained' in text]
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


def test_a_host_that_is_empty_and_stays_so_is_not_held_by_a_pause():
    """Engines have nothing to do there."""
    request = dataclasses.replace(cloud(1024), history=model.MoveHistory(paused='a storm'),
                                  options=model.PlanningOptions(evacuate_disabled_hosts=True))
    assert drains.plan_drain(request, 'b').obstacles == ()
    assert drains.plan_drain(request, 'a').obstacles == ('a storm',)


@pytest.mark.parametrize(('flight', 'coming'), [
    (model.InFlightMove('i0', 'a', 'b'), {'i0'}),
    (model.InFlightMove('i0', 'a', 'c', 'task', ('b',)), {'i0'}),
    (model.InFlightMove('gone', 'z', 'b'), {'gone'}),
    (model.InFlightMove('i0', 'a', 'c'), set()),
    (model.InFlightMove('i0', 'a', None), set())])
def test_a_host_that_something_is_on_its_way_to_is_held_by_a_pause(flight, coming):
    request = cloud(1024)
    request = dataclasses.replace(
        request, history=model.MoveHistory(paused='a storm'),
        options=model.PlanningOptions(evacuate_disabled_hosts=True),
        cluster=dataclasses.replace(request.cluster, flights=(flight,)))
    assert drains.list_incoming_instances(request.cluster, 'b') == coming
    assert drains.plan_drain(request, 'b').obstacles == (('a storm',) if coming else ())


def test_an_arrived_instance_is_not_incoming():
    cluster = dataclasses.replace(cloud(1024).cluster,
                                  flights=(model.InFlightMove('i0', 'c', 'a'),))
    assert drains.list_incoming_instances(cluster, 'a') == set()
    assert not drains.is_fully_drained(cluster, 'a')


def test_a_contract_is_named_beside_another_reason():
    request = cloud(1)
    host, instance = next((i.host, i) for i in request.cluster.instances.values())
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={instance.uuid: dataclasses.replace(
            instance, locked=True, contracts=(model.Contract(
                model.ContractSource.FLAVOR, model.Disruption.NEVER),))}))
    (blocked,) = drains.plan_drain(request, host).blocked
    assert blocked.reason.startswith('locked: ') and blocked.reason.endswith(
        f'; contract-disruption: instance {instance.uuid} has the contract disruption never '
        '(flavor)')


@clouds.examples(100)
@hypothesis.given(clouds.knobs(clean=False), st.randoms(use_true_random=False))
def test_each_instance_that_its_contract_keeps_is_named_with_it(knobs, rng):
    request = asked(knobs)
    if not occupied(request):
        return
    host = rng.choice(occupied(request))
    view = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options).view
    for blocked in drains.plan_drain(request, host).blocked:
        probe = model.Move(blocked.instance_uuid, host, '', model.Phase.EVACUATE)
        rejection = contracts.contract(view, probe)
        assert rejection is None or f'{rejection.rule}: {rejection.detail}' in blocked.reason


@pytest.mark.parametrize(('stated', 'seconds', 'code'), [
    ({'notify': model.NoticePeriod(3600)}, 3600, 'contract-notice'),
    ({'max_moves': model.MoveQuota(1, 600)}, 500, 'contract-max-moves'),
    ({'notify': model.NoticePeriod(60), 'max_moves': model.MoveQuota(1, 600)}, 500,
     'contract-max-moves'),
    ({'notify': model.NoticePeriod(60), 'disruption': model.Disruption.NEVER}, None,
     'contract-notice')])
def test_an_instance_that_waits_for_its_contract_leaves_later_at_a_time(stated, seconds, code):
    request = cloud(1)
    host, instance = next((i.host, i) for i in request.cluster.instances.values())
    now = request.cluster.taken_at
    request = dataclasses.replace(
        request, history=dataclasses.replace(
            request.history, move_times={instance.uuid: (now - 100,)}),
        cluster=dataclasses.replace(request.cluster, instances={
            instance.uuid: dataclasses.replace(instance, contracts=(
                model.Contract(model.ContractSource.FLAVOR, **stated),))}))
    (blocked,) = drains.plan_drain(request, host).blocked
    assert f'{code}: ' in blocked.reason
    assert blocked.reason.count('contract-') == len(stated), 'all its contracts are named'
    if seconds is None:
        assert (blocked.later, blocked.movable_from) == (False, None)
    else:
        assert (blocked.later, blocked.movable_from) == (True, now + seconds)
        assert 'it may leave from ' in blocked.reason


@pytest.mark.parametrize(('seconds', 'obstacles'), [(7 * 86400, 0), (7 * 86400 + 60, 1)])
def test_a_wait_of_more_than_a_week_for_a_contract_is_an_obstacle(seconds, obstacles):
    request = cloud(1)
    host, instance = next((i.host, i) for i in request.cluster.instances.values())
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, evacuate_disabled_hosts=True), cluster=dataclasses.replace(
        request.cluster, instances={instance.uuid: dataclasses.replace(instance, contracts=(
            model.Contract(model.ContractSource.FLAVOR,
                           notify=model.NoticePeriod(seconds)),))}))
    check = drains.plan_drain(request, host)
    assert (check.contract_wait, len(check.obstacles)) == (seconds, obstacles)


def test_drain_that_takes_the_last_free_places_meets_the_rule_breaks_failover():
    request = test_failover.small(3, [('a', 'h0', 2), ('b', 'h1', 2), ('c', 'h2', 3)])
    for mode, named in ((model.FailoverMode.OFF, False), (model.FailoverMode.ENFORCE, True)):
        asked_for = dataclasses.replace(
            request, strategies=[evacuate.Evacuate()], options=dataclasses.replace(
                request.options, failover=mode, evacuate_disabled_hosts=True))
        plan = drains.plan_drain(asked_for, 'h0').plan
        assert len(plan.moves) == 1
        obstacle = drains.find_failover_obstacle(asked_for, 'h0', plan)
        assert (obstacle is not None and 'breaks-failover' in obstacle) == named


@pytest.mark.parametrize('late', [True, False])
def test_check_and_report_name_the_instances_that_are_shut_down(late, caplog):
    request = cloud(1000, 1000)
    request = dataclasses.replace(
        request, options=dataclasses.replace(request.options,
                                             drain_offline=model.OfflineDrains.ALLOW),
        history=model.MoveHistory(quarantined={'i0': 60.0} if late else {},
                                  late_drains={'i0': 'a'} if late else {}))
    check = drains.plan_drain(request, request.cluster.instances['i0'].host)
    assert {m.instance_uuid for m in check.plan.moves} == {'i0', 'i1'} and not check.blocked
    assert check.methods == {'i0': 'offline' if late else 'live', 'i1': 'live'}
    row = cycle_report.render_scope(planning_pipeline.PassOutcome(
        request.cluster, request.scores, check.plan, {}, request))
    assert {move['instance_uuid']: move['method'] for move in row['moves']} == {
        'i0': 'offline' if late else 'live', 'i1': 'live'}
    with caplog.at_level('INFO'):
        notifications.DecisionLog().log_decisions(row)
    assert ('(offline, wave 0' in caplog.text) == late
    texts = {row[0]: row[2] for row in cli_drain._render_rows(
        drain_checks.DrainAnswer(check, 2), 'a')}
    assert ('shut down, moved cold and started again' in texts['instance i0']) == late
    assert 'shut down' not in texts['instance i1']
