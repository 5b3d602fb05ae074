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

"""The rule ``breaks-failover``: what a plan may do to the failover certificate."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer import failover_checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import failover_guard
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.search import failure_places
from tests.unit import clouds
from tests.unit.rebalancer.planning import test_failover

ENFORCE, WARN = model.FailoverMode.ENFORCE, model.FailoverMode.WARN


def with_mode(request, mode):
    return dataclasses.replace(request, budget=10, options=dataclasses.replace(
        request.options, failover=mode))


def plan_of(*moves):
    return model.Plan('scope', tuple(
        model.Move(uuid, source, to, model.Phase.REQUESTED) for uuid, source, to in moves),
        policies=(model.PolicyReport('cpu', None, None, 0.1),))


def test_move_that_leaves_another_host_free_is_made():
    request = with_mode(test_failover.small(3, [('a', 'h0', 2), ('b', 'h1', 2)]), ENFORCE)
    guarded = failover_guard.guard_plan(request, plan_of(('a', 'h0', 'h2')), None)
    assert len(guarded.plan.moves) == 1


def test_move_that_fills_the_last_free_host_is_left_out():
    tight = with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), ENFORCE)
    guarded = failover_guard.guard_plan(tight, plan_of(('b', 'h1', 'h2')), None)
    assert guarded.plan.moves == () and guarded.plan.rejections == {'breaks-failover': 1}
    assert 'h0' in guarded.plan.warnings[-1]


def test_warning_names_the_host_and_keeps_the_move():
    tight = with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), WARN)
    guarded = failover_guard.guard_plan(tight, plan_of(('b', 'h1', 'h2')), None)
    assert len(guarded.plan.moves) == 1
    assert 'breaks-failover' in guarded.plan.warnings[-1] and 'h0' in guarded.plan.warnings[-1]


def test_host_that_is_unsafe_already_holds_no_move():
    request = with_mode(test_failover.small(3, [('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h2', 1)]),
                        ENFORCE)
    guarded = failover_guard.guard_plan(request, plan_of(('b', 'h1', 'h2')), None)
    assert len(guarded.plan.moves) == 1
    assert guarded.after.verdicts['h0',].state is failover.FailureState.SAFE


def test_pipeline_without_the_option_makes_no_certificate():
    request = test_failover.small(2, [('a', 'h0', 1)])
    assert planning_pipeline.keep_failover(request, plan_of(), None) == (plan_of(), None)


def test_pipeline_refuses_places_that_the_checker_refuses(monkeypatch):
    request = with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), ENFORCE)
    monkeypatch.setattr(failover_guard, 'list_broken', lambda today, after: [])
    with pytest.raises(exception.PlanRefused, match='no-place'):
        planning_pipeline.keep_failover(request, plan_of(('b', 'h1', 'h2')), None)


def disable(request, *hosts):
    return replace_cluster(request, services={**request.cluster.services, **{
        h: model.Service(h, status='disabled') for h in hosts}})


def replace_cluster(request, **fields):
    return dataclasses.replace(request, cluster=dataclasses.replace(request.cluster, **fields))


@pytest.mark.parametrize('hint, enabled, here', [
    ('different_host', 'DifferentHostFilter', 'h1'), ('same_host', 'SameHostFilter', 'h2')])
def test_move_of_an_instance_that_a_hint_names_ends_a_kept_place(hint, enabled, here):
    others = [('b', here, 1), ('x', 'h1', 3), ('y', 'h2', 1)]
    request = test_failover.small(3, [('a', 'h0', 1), *others],
                                  nova_enabled_filters=frozenset({enabled}))
    request = with_mode(test_failover.replace_instance(
        request, 'a', scheduler_hints={hint: ('b',)}), ENFORCE)
    target = 'h2' if here == 'h1' else 'h1'
    guarded = failover_guard.guard_plan(request, plan_of(('b', here, target)), None)
    assert guarded.today.verdicts['h0',].places == {'a': 'h2'}
    assert guarded.plan.moves == ()


def with_pools(instances):
    """Hosts h0 and h1 on one sharing provider, h2 and h3 on another with 8 left."""
    base = test_failover.small(4, [])
    pool_of = {'h0': 'pA', 'h1': 'pA', 'h2': 'pB', 'h3': 'pB'}
    records = {name: model.Instance(
        name, host, vcpus=1, claims={'VCPU': 1, 'CUSTOM_POOL': amount},
        allocations={f'rp-{host}': {'VCPU': 1}, pool_of[host]: {'CUSTOM_POOL': amount}})
        for name, host, amount in instances}
    sharing = {pool: model.Provider(
        pool, inventories={'CUSTOM_POOL': model.Inventory(size)},
        used={'CUSTOM_POOL': sum(i.allocations.get(pool, {}).get('CUSTOM_POOL', 0)
                                 for i in records.values())},
        traits=frozenset({'MISC_SHARES_VIA_AGGREGATE'}), aggregates=frozenset({f'of-{pool}'}))
        for pool, size in (('pA', 10), ('pB', 8))}
    hosts = {h: model.Host(h, provider=model.Provider(
        f'rp-{h}', inventories={'VCPU': model.Inventory(4)},
        used={'VCPU': sum(i.host == h for i in records.values())}), sharing=frozenset({pool}))
        for h, pool in pool_of.items()}
    return disable(replace_cluster(base, instances=records, hosts=hosts, sharing=sharing), 'h1')


@pytest.mark.parametrize('target', ['h2', 'h3'])
def test_move_that_fills_a_sharing_provider_ends_a_kept_place(target):
    request = with_mode(with_pools([('a', 'h0', 5), ('b', 'h1', 4)]), ENFORCE)
    guarded = failover_guard.guard_plan(request, plan_of(('b', 'h1', target)), None)
    assert guarded.today.verdicts['h0',].state is failover.FailureState.SAFE
    assert guarded.plan.moves == ()


def roomy(instances, flights=()):
    request = test_failover.small(4, instances)
    hosts = dict(request.cluster.hosts)
    hosts['h2'] = dataclasses.replace(hosts['h2'], provider=dataclasses.replace(
        hosts['h2'].provider, inventories={'VCPU': model.Inventory(7)}))
    return with_mode(disable(replace_cluster(request, hosts=hosts, flights=flights), 'h1'), ENFORCE)


def test_plan_leaves_a_place_for_an_instance_that_is_still_on_its_way():
    instances = [('b', 'h1', 3), ('e', 'h1', 1), ('p', 'h0', 1), ('q', 'h3', 2)]
    first = failover_guard.guard_plan(roomy(instances), plan_of(('b', 'h1', 'h2')), None)
    assert len(first.plan.moves) == 1
    flying = roomy(instances, (model.InFlightMove('b', 'h1', 'h2', source='task'),))
    second = failover_guard.guard_plan(flying, plan_of(('e', 'h1', 'h0')), first.today)
    assert second.today.verdicts['h2',].places == {'b': 'h0'}
    assert second.plan.moves == ()


def test_instance_that_no_host_may_take_leaves_its_neighbours_under_the_rule():
    group = model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'t1', 't2'}))
    request = with_mode(disable(test_failover.small(
        4, [('a', 'h0', 4), ('t1', 'h0', 1), ('t2', 'h0', 1), ('b', 'h1', 3), ('c', 'h1', 1),
            ('y', 'h3', 3)], [group], capacity=6), 'h1'), ENFORCE)
    guarded = failover_guard.guard_plan(request, plan_of(('b', 'h1', 'h2')), None)
    assert guarded.today.verdicts['h0',].places == {'a': 'h2'}
    assert guarded.plan.moves == ()


def test_affinity_group_that_comes_together_is_no_broken_place():
    group = model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'t1', 't2'}))
    request = with_mode(test_failover.small(3, [('t1', 'h0', 1), ('t2', 'h1', 1)], [group]),
                        ENFORCE)
    guarded = failover_guard.guard_plan(request, plan_of(('t2', 'h1', 'h0')), None)
    assert guarded.today.verdicts['h0',].places == {'t1': 'h1'}
    assert len(guarded.plan.moves) == 1
    planned, _ = planning_pipeline.keep_failover(request, plan_of(('t2', 'h1', 'h0')))
    assert len(planned.moves) == 1


def test_search_that_is_over_leaves_out_moves_whose_effect_is_not_known():
    tight = with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), ENFORCE)
    today = failover_guard.guard_plan(tight, plan_of(), None).today
    guarded = failover_guard.guard_plan(tight, plan_of(('b', 'h1', 'h2')), today, lambda: True)
    assert guarded.today.verdicts == today.verdicts and guarded.plan.moves == ()


def test_moves_that_break_nothing_stay_in_the_plan():
    request = with_mode(test_failover.small(5, [
        ('a', 'h0', 5), ('a2', 'h0', 1), ('b', 'h1', 2), ('z', 'h1', 3), ('c', 'h3', 1),
        ('y', 'h3', 3), ('w', 'h4', 2)], capacity=6), ENFORCE)
    guarded = failover_guard.guard_plan(
        request, plan_of(('b', 'h1', 'h2'), ('c', 'h3', 'h4')), None)
    assert [m.instance_uuid for m in guarded.plan.moves] == ['c']
    assert guarded.plan.rejections == {'breaks-failover': 1}
    assert len(guarded.plan.warnings) == 1


def test_plan_that_is_left_out_as_a_whole_is_certified_once():
    """The second move alone breaks nothing, and a search for it would certify again."""
    request = with_mode(test_failover.small(5, [
        ('a', 'h0', 5), ('a2', 'h0', 1), ('b', 'h1', 2), ('z', 'h1', 3), ('c', 'h3', 1),
        ('y', 'h3', 3), ('w', 'h4', 2)], capacity=6), ENFORCE)
    plan = plan_of(('b', 'h1', 'h2'), ('c', 'h3', 'h4'))
    guarded = failover_guard.guard_plan(request, plan, None, whole=True)
    assert guarded.plan.moves == () and guarded.plan.rejections == {'breaks-failover': 2}
    kept, _ = planning_pipeline.keep_failover(request, plan, whole=True)
    assert kept.moves == () and 'breaks-failover' in kept.warnings[-1]
    harmless = plan_of(('c', 'h3', 'h4'))
    assert planning_pipeline.keep_failover(request, harmless, whole=True)[0] == harmless


def test_drain_that_the_rule_stops_is_named_with_the_host_that_it_would_break():
    request = with_mode(disable(test_failover.small(
        3, [('a', 'h0', 2), ('b', 'h1', 2), ('c', 'h2', 2)]), 'h0'), ENFORCE)
    plan = dataclasses.replace(plan_of(), moves=(
        model.Move('a', 'h0', 'h1', model.Phase.EVACUATE),))
    guarded = failover_guard.guard_plan(request, plan, None)
    assert guarded.plan.moves == ()
    [undrained] = guarded.plan.undrained
    assert 'host h0' in undrained.detail and 'breaks-failover' in undrained.detail


def test_second_warning_takes_the_place_of_the_first():
    tight = with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), WARN)
    plan, certificate = planning_pipeline.keep_failover(tight, plan_of(('b', 'h1', 'h2')))
    again, _ = planning_pipeline.keep_failover(tight, plan, certificate)
    assert len(again.warnings) == 1


def test_checker_sets_a_wrong_verdict_of_today_aside():
    request = with_mode(test_failover.small(2, [('a', 'h0', 3), ('b', 'h1', 3)]), ENFORCE)
    wrong = failover.FailureVerdict(('h0',), failover.FailureState.SAFE, {'a': 'h1'})
    certificate = failover_guard.set_faulty_verdicts_aside(
        failover.FailoverCertificate({('h0',): wrong}, request), request)
    verdict = certificate.verdicts['h0',]
    assert verdict.state is failover.FailureState.UNKNOWN and 'no-room' in verdict.fault


@clouds.examples(100)
@hypothesis.given(st.one_of(clouds.knobs(), clouds.knobs(trees=True)))
def test_no_plan_turns_a_safe_host_unsafe(knobs):
    request = with_mode(test_failover.enforce(clouds.request(knobs)), ENFORCE)
    plan = planner.plan(request)
    guarded = failover_guard.guard_plan(request, plan, None)
    safe = {hosts for hosts, v in guarded.today.verdicts.items()
            if v.state is failover.FailureState.SAFE}
    places = {hosts: guarded.after.verdicts[hosts].places for hosts in safe}
    unplaced = {uuid: rejection.rule for hosts in safe
                for uuid, rejection in guarded.after.verdicts[hosts].unplaced.items()}
    without = {uuid for v in guarded.today.verdicts.values() for uuid in v.unplaced}
    assert all(uuid in without or rule in failure_places.EVERYWHERE
               for uuid, rule in unplaced.items())
    assert failover_checker.check_places(
        places, request.cluster, request.options, request.history, request.scores,
        sim.compute_ceilings(request.policies, request.options), guarded.plan.moves,
        unplaced) == {}
    planning_pipeline.check_plan(guarded.plan, request)
