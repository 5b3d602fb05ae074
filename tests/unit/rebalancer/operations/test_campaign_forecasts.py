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

"""Forecasts of campaigns: each host becomes empty, and instances move once where there is room."""

from collections import Counter
import dataclasses
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaigns
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate
from tests.unit import clouds

MEMORY = 8192


def make_request(sizes, **changes):
    """Hosts of 8 GiB each, with instances of so many MiB: {host: [MiB, ...]}."""
    instances = {f'{host}{n}': model.Instance(
        f'{host}{n}', host, memory_mb=size, claims={'MEMORY_MB': size},
        **changes.get(f'{host}{n}', {})) for host, mine in sizes.items()
        for n, size in enumerate(mine)}
    hosts = {name: model.Host(name, uuid=name, provider=model.Provider(
        name, inventories={'MEMORY_MB': model.Inventory(MEMORY)},
        used={'MEMORY_MB': sum(sizes[name])})) for name in sizes}
    request = clouds.request(clouds.Knobs(seed=1, hosts=2, instances=2, groups=0, policies=1,
                                          budget=2))
    cluster = model.Cluster(hosts, instances, {name: model.Service(name) for name in hosts},
                            scope_hosts=frozenset(hosts))
    scores = model.ClusterScores({p.name: model.PolicyScores(
        p.name, {h: 0.1 * len(sizes[h]) for h in hosts}, {h: 0.1 * len(sizes[h]) for h in hosts},
        dict.fromkeys(hosts, 10.0), dict.fromkeys(instances, 1.0))
        for p in request.policies.enabled_policies})
    return dataclasses.replace(request, cluster=cluster, scores=scores, now=1000.0,
                               options=model.PlanningOptions(), history=model.MoveHistory(),
                               strategies=[evacuate.Evacuate()])


def follow_steps(request, hosts, forecast):
    """Follow the moves on places and memory of our own; return how often each instance moves."""
    where = {uuid: i.host for uuid, i in request.cluster.instances.items()}
    size = {uuid: i.memory_mb for uuid, i in request.cluster.instances.items()}
    to_come, moved = set(hosts), Counter()
    for step in forecast.steps:
        assert set(step.hosts) <= to_come, 'no host is emptied twice'
        to_come -= set(step.hosts)
        again = 0
        for move in sorted(step.moves, key=lambda move: move.wave):
            assert where[move.instance_uuid] == move.from_host
            assert move.to_host not in step.hosts
            where[move.instance_uuid] = move.to_host
            moved[move.instance_uuid] += 1
            again += move.to_host in to_come
        assert again == step.again
        assert not set(where.values()) & set(step.hosts), 'a host is rebooted empty'
        for host in request.cluster.hosts:
            assert sum(size[u] for u, there in where.items() if there == host) <= MEMORY
    assert to_come == set(forecast.staying)
    assert forecast.migrations == moved.total()
    return moved


def test_instances_move_once_where_other_hosts_have_room():
    request = make_request({'a': [2048, 2048], 'b': [2048], 'c': [2048] * 3, 'spare': []})
    forecast = campaign_forecasts.forecast_campaign(request, 'abc', 1)
    assert set(follow_steps(request, 'abc', forecast).values()) == {1}
    assert [step.hosts for step in forecast.steps] == [('b',), ('a',), ('c',)]
    assert forecast.instances == forecast.migrations == 6 and not forecast.staying
    assert not any(step.again for step in forecast.steps)


def test_without_a_spare_host_the_emptiest_goes_first_and_its_instances_move_twice():
    request = make_request({'a': [4096, 2048], 'b': [2048], 'c': [4096, 2048], 'd': [4096, 2048]})
    forecast = campaign_forecasts.forecast_campaign(request, 'abcd', 2)
    moved = follow_steps(request, 'abcd', forecast)
    assert forecast.steps[0].hosts == ('b',) and forecast.steps[0].again == 1
    assert moved['b0'] == 2 and moved.total() == 8 and not forecast.staying


def test_largest_hosts_go_first_and_leave_room_for_smaller_ones():
    """The emptiest host is small here: empty, it would have room for no other one."""
    request = make_request({'a': [2048] * 2, 'b': [2048] * 3, 'small': [1024]})
    small = request.cluster.hosts['small']
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, hosts={**request.cluster.hosts, 'small': dataclasses.replace(
            small, provider=dataclasses.replace(small.provider, inventories={
                'MEMORY_MB': model.Inventory(3072)}))}))
    forecast = campaign_forecasts.forecast_campaign(request, ['a', 'b', 'small'], 1)
    assert [step.hosts for step in forecast.steps][0] == ('a',)
    follow_steps(request, ['a', 'b', 'small'], forecast)


def test_obstacles_of_the_largest_step_are_those_of_engines():
    request = make_request({'a': [2048], 'b': [2048], 'c': [], 'd': []})
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 2)
    assert [step.hosts for step in forecast.steps] == [('a', 'b')]
    options = dataclasses.replace(request.options, evacuate_disabled_hosts=True)

    def list_obstacles(waiting=None, paused=None, **changes):
        return campaigns.list_obstacles(dataclasses.replace(
            request, options=dataclasses.replace(options, **changes),
            history=dataclasses.replace(request.history, paused=paused)), forecast, waiting)

    assert list_obstacles(max_drain_fraction=0.5) == ()
    (outage,) = list_obstacles(max_drain_fraction=0.25)
    assert outage.startswith('with 2 hosts disabled, 2 of 4 hosts are disabled (a, b)')
    assert list_obstacles('a plan waits', 'a pause', max_drain_fraction=0.5) == (
        'a pause', 'a plan waits')


@pytest.mark.parametrize(('mode', 'steps'), [('off', [('a',)]), ('warn', [('a',)]),
                                             ('enforce', [])])
def test_no_step_takes_the_room_that_a_failure_needs_where_engines_enforce_it(mode, steps):
    """Without host a, the instances of a failed host b or c have no place any more."""
    request = make_request({'a': [4096], 'b': [4096], 'c': [4096]})
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, failover=model.FailoverMode(mode)))
    forecast = campaign_forecasts.forecast_campaign(request, 'a', 1)
    assert [step.hosts for step in forecast.steps] == steps
    assert list(forecast.staying) == ([] if steps else ['a'])
    for (blocked,) in forecast.staying.values():
        assert (blocked.instance_uuid, blocked.later, blocked.is_cut_off) == ('a0', False, False)
        assert blocked.reason.endswith('the instances of b, c would not all find places if the '
                                       'host failed (breaks-failover)')


def carry_out_step(request, step, to_come):
    """Drain a host as engines do, two moves a cycle; return whether it becomes empty."""
    (host,) = step.hosts
    cloud = supposed_clouds.SupposedCloud(request)
    while True:
        drain = dataclasses.replace(cloud.build_request([host], to_come), budget=2)
        plan, _certificate = planning_pipeline.keep_failover(drain, planner.plan(drain))
        if not plan.moves:
            return cloud.is_empty(host)
        cloud.complete_moves(plan.moves)


def test_engines_that_enforce_the_rule_carry_out_what_a_forecast_promises():
    rng, steps, kept = random.Random(26), 0, 0
    for _cloud in range(60):
        sizes = {host: [rng.choice([1024, 2048, 4096]) for _ in range(rng.randint(0, 3))]
                 for host in 'abcdef'}
        sizes = {host: mine if sum(mine) <= MEMORY else mine[:1] for host, mine in sizes.items()}
        request = make_request(sizes)
        request = dataclasses.replace(request, options=dataclasses.replace(
            request.options, failover=model.FailoverMode.ENFORCE))
        forecast = campaign_forecasts.forecast_campaign(request, 'abc', 1)
        kept += any('breaks-failover' in b.reason
                    for blocked in forecast.staying.values() for b in blocked)
        for step in forecast.steps[:1]:
            if step.moves and not step.again:
                steps += 1
                assert carry_out_step(request, step, set('abc') - set(step.hosts)), (sizes, step)
    assert steps > 10 and kept > 2


def test_reasons_name_the_rule_breaks_failover_beside_other_rules():
    """The lock of a1 stands; a0 has room on c alone, which is the only place of b0."""
    request = make_request({'a': [4096, 1024], 'b': [7168], 'c': []}, a1={'locked': True})
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, failover=model.FailoverMode.ENFORCE))
    forecast = campaign_forecasts.forecast_campaign(request, 'a', 1)
    reasons = {b.instance_uuid: b.reason for b in forecast.staying['a']}
    assert 'breaks-failover' in reasons['a0'] and reasons['a1'].startswith('locked: ')


def test_plan_that_the_count_of_steps_cuts_off_names_no_rule():
    """b1 moves to c, and a0 to its place; that takes five steps."""
    request = make_request({'a': [6144], 'b': [1024, 3072], 'c': [5120], 'full': [8192]})
    assert not campaign_forecasts.forecast_campaign(request, 'a', 1).staying
    forecast = campaign_forecasts.forecast_campaign(dataclasses.replace(
        request, options=dataclasses.replace(request.options, max_steps=3)), 'a', 1)
    (blocked,) = forecast.staying['a']
    assert blocked.reason == ('whether it can leave is not known: planning was cut off after 3 '
                              'steps')
    assert blocked.is_cut_off and forecast.unjudged == forecast.staying and not forecast.stuck


def plan_one_move(monkeypatch):
    """Let each cycle of a forecast have one move."""
    whole = planner.plan

    def plan(request, *limits):
        made = whole(request, *limits)
        return planner.drop_moves(request, made, {
            move.instance_uuid for move in made.moves[1:]}, 'one move a cycle')
    monkeypatch.setattr(planner, 'plan', plan)


def test_plans_that_the_count_of_cycles_cuts_off_name_no_rule(monkeypatch):
    """Each cycle empties a a little; a9 is locked, and the others could go on leaving."""
    plan_one_move(monkeypatch)
    request = make_request({'a': [512] * 10, 'b': []}, a9={'locked': True})
    forecast = campaign_forecasts.forecast_campaign(request, 'a', 1)
    assert len(forecast.staying['a']) == 2
    one, locked = sorted(forecast.staying['a'], key=lambda b: b.instance_uuid == 'a9')
    assert locked.reason.startswith('locked: ') and not locked.is_cut_off
    assert one.is_cut_off and one.reason == (
        'whether it can leave is not known: planning was cut off after 8 cycles')
    assert forecast.stuck == {'a': (locked,)} and forecast.unjudged == {'a': (one,)}
    fewer = make_request({'a': [512] * 8, 'b': []})
    assert not campaign_forecasts.forecast_campaign(fewer, 'a', 1).staying


@pytest.mark.parametrize(('is_cut_off', 'what'), [
    (False, 'would keep instances'),
    (True, 'would keep instances, or have no plan that was made to the end,')])
def test_number_at_a_time_is_explained_by_known_reasons(is_cut_off, what):
    staying = {'a': (blocked_instances.BlockedInstance('u', 'why', is_cut_off=is_cut_off),)}
    first = campaign_forecasts.CampaignForecast((), staying, 0, 2)
    assert campaign_forecasts._explain_together(
        first, dataclasses.replace(first, staying={}, together=1), 0) == (
        f'1 at a time and not 2, because 1 more host {what} with 2')


def test_empty_host_that_is_down_is_an_obstacle():
    request = make_request({'a': [], 'b': [2048], 'c': [], 'd': []})
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services={**request.cluster.services,
                                   'a': model.Service('a', state='down')}),
        options=dataclasses.replace(request.options, max_down_fraction=0.5))
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    assert forecast.obstacles == ('host a is empty, but its nova-compute is down',)


def test_hosts_are_emptied_together_as_far_as_there_is_room():
    sizes = {host: [4096] for host in 'abcdef'}
    request = make_request({**sizes, 'spare': []})
    forecast = campaign_forecasts.forecast_campaign(request, 'abcdef', 6)
    assert set(follow_steps(request, 'abcdef', forecast).values()) == {1}
    assert [step.hosts for step in forecast.steps] == [('a', 'b'), tuple('cdef')]
    # Three of four can go at once; the fourth is held.
    held = make_request({'a': [2048], 'b': [2048], 'c': [2048], 'd': [2048], 'spare': []},
                        b0={'locked': True})
    assert [step.hosts for step in campaign_forecasts.forecast_campaign(
        held, 'abcd', 4).steps] == [('a', 'c', 'd')]
    empty = make_request({**dict.fromkeys('abcdef', []), 'x': [2048]})
    assert [step.hosts for step in campaign_forecasts.forecast_campaign(
        empty, 'abcdef', 4).steps] == [tuple('abcd'), tuple('ef')]


def test_host_with_an_instance_that_stays_is_named_and_others_are_done():
    request = make_request({'a': [2048], 'b': [2048, 2048], 'c': [2048], 'spare': []},
                           b1={'locked': True})
    forecast = campaign_forecasts.forecast_campaign(request, 'abc', 1)
    follow_steps(request, 'abc', forecast)
    ((host, (blocked,)),) = forecast.staying.items()
    assert (host, blocked.instance_uuid) == ('b', 'b1') and 'lock' in blocked.reason
    assert {h for step in forecast.steps for h in step.hosts} == {'a', 'c'}


def test_moves_of_the_campaign_count_for_quotas_of_contracts():
    """Its only move of the week would bring it to a host that is still to come."""
    stated = model.Contract(model.ContractSource.FLAVOR,
                            max_moves=model.MoveQuota(1, 7 * 86400))
    request = make_request({'a': [2048], 'b': [4096, 2048], 'c': [4096, 2048]},
                           a0={'contracts': (stated,)})
    forecast = campaign_forecasts.forecast_campaign(request, 'abc', 1)
    assert follow_steps(request, 'abc', forecast)['a0'] == 1
    ((host, (blocked,)),) = forecast.staying.items()
    assert (host, blocked.instance_uuid) == ('b', 'a0') and 'max-moves' in blocked.reason


def test_hosts_with_held_instances_make_no_other_instance_move_twice():
    """A tenant may lock an own instance on each of many hosts."""
    held = {f'h{n:02}': [512] for n in range(20)}
    request = make_request({**held, 'm1': [2048], 'm2': [2048], 'spare': []},
                           **{f'{host}0': {'locked': True} for host in held})
    forecast = campaign_forecasts.forecast_campaign(request, [*held, 'm1', 'm2'], 1)
    assert not any(step.again for step in forecast.steps)
    assert {host for step in forecast.steps for host in step.hosts} == {'m1', 'm2'}
    assert set(forecast.staying) == set(held) and forecast.instances == 2


def test_host_is_not_empty_while_an_instance_is_on_its_way_to_it():
    request = make_request({'a': [], 'b': [], 'x': [2048]})
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=(model.InFlightMove('x0', 'x', 'a'),)))
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    assert [step.hosts for step in forecast.steps] == [('b',)]
    ((host, (blocked,)),) = forecast.staying.items()
    assert (host, blocked.instance_uuid, blocked.later) == ('a', 'x0', True)


def test_host_that_is_down_is_named():
    request = make_request({'a': [2048], 'b': [2048], 'c': [], 'd': []})
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services={**request.cluster.services,
                                   'a': model.Service('a', state='down')}),
        options=dataclasses.replace(request.options, max_down_fraction=0.5))
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    ((host, (blocked,)),) = forecast.staying.items()
    assert (host, blocked.reason) == ('a', 'nova-compute of a is down')
    assert [step.hosts for step in forecast.steps] == [('b',)]


def test_scope_that_is_held_has_an_obstacle_and_no_step():
    request = make_request({'a': [2048], 'b': [2048], 'c': []})
    down = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services={h: model.Service(h, state='down') for h in 'abc'}))
    forecast = campaign_forecasts.forecast_campaign(down, 'ab', 1)
    assert not forecast.steps and not forecast.staying
    assert 'hosts are down' in forecast.obstacles[0]


def test_host_that_was_disabled_before_gives_room_once_it_is_done():
    request = make_request({'a': [], 'b': [4096]})
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services={**request.cluster.services, 'a': model.Service(
            'a', status='disabled', disabled_reason='kernel')}))
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    assert [step.hosts for step in forecast.steps] == [('a',), ('b',)] and not forecast.staying


def test_loads_of_earlier_steps_count_for_ceilings():
    """The instance of a fills spare by load: that of b, which memory would admit, must not."""
    request = make_request({'a': [1024], 'b': [1024], 'spare': []})
    loads = {'a': 0.6, 'b': 0.6, 'spare': 0.2}
    scores = model.ClusterScores({name: dataclasses.replace(
        policy, hosts=loads, fill=loads, usages={'a0': 6.0, 'b0': 6.0})
        for name, policy in request.scores.policies.items()})
    request = dataclasses.replace(request, scores=scores)
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    assert [[(m.instance_uuid, m.to_host) for m in step.moves] for step in forecast.steps] == [
        [('a0', 'spare')], [('b0', 'a')]]


@pytest.mark.parametrize(('staying', 'asked', 'chosen'), [
    ({4: 'abc', 2: 'a', 1: 'ab'}, [4, 2, 1], 2), ({4: 'ab', 2: 'ab', 1: ''}, [4, 2, 1], 1),
    ({4: 'a', 2: 'b', 1: 'c'}, [4, 2, 1], 4), ({4: ''}, [4], 4), ({4: 'ab', 2: ''}, [4, 2], 2)])
def test_smaller_batches_are_forecast_while_hosts_stay(monkeypatch, staying, asked, chosen):
    request = make_request({'a': [2048], 'b': [2048], 'c': [2048], 'spare': []})
    tried = []

    def forecast_steps(_cloud, _request, _hosts, search):
        tried.append(search.together)
        left = tuple(staying[search.together])
        is_worse = search.most_staying is not None and len(left) > search.most_staying
        return campaign_forecasts.CampaignForecast(
            (campaign_forecasts.CampaignStep(('x', 'y'), ()),),
            {} if is_worse else dict.fromkeys(left, ()), 0, search.together,
            unforecast=left if is_worse else ())
    monkeypatch.setattr(campaign_forecasts, '_forecast_steps', forecast_steps)
    forecast = campaign_forecasts.forecast_campaign(request, 'abc', 4)
    assert forecast.together == chosen and tried == asked
    fewer = len(staying[4]) - len(staying[chosen])
    assert forecast.together_reason == ('' if chosen == 4 else (
        f'{chosen} at a time and not 4, because {fewer} more host{"s" * (fewer > 1)} would '
        'keep instances with 4'))


@pytest.mark.parametrize('looks', range(24))
def test_a_smaller_batch_whose_time_is_over_changes_nothing_and_is_named(monkeypatch, looks):
    """The clock of the repeats strikes after so many looks; that of the first never does."""
    monkeypatch.setattr(campaign_forecasts, '_may_leave_fewer', lambda *_args: True)
    request = make_request({'a': [6144], 'b': [2048], 'c': [2048], 'd': [8192], 'spare': []},
                           c0={'locked': True})
    first = campaign_forecasts.forecast_campaign(request, 'abcd', 2,
                                                 repeat_expired=lambda: True)
    assert first.staying and first.together_reason.startswith(
        'the time was over before the forecast with 1 at a time ended')
    left, done = iter(range(looks)), []
    forecast = campaign_forecasts.forecast_campaign(
        request, 'abcd', 2, repeat_expired=lambda: next(left, None) is None,
        report_progress=done.append)
    assert not forecast.unforecast and len(forecast.staying) <= len(first.staying)
    if 'time was over' in forecast.together_reason:
        assert forecast == first
    else:
        assert looks > 3
    assert done == sorted(done) and done[-1] == 4, 'repeats report nothing'


def test_no_smaller_batch_is_forecast_for_a_held_host():
    request = make_request({'a': [2048], 'b': [2048], 'c': [2048], 'spare': []},
                           b0={'locked': True})
    done = []
    forecast = campaign_forecasts.forecast_campaign(request, 'abc', 4,
                                                    report_progress=done.append)
    assert forecast.together == 4 and set(forecast.staying) == {'b'} and done == [0, 2, 3]


def test_full_cloud_keeps_its_hosts():
    request = make_request({'a': [8192], 'b': [8192]})
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    assert not forecast.steps and set(forecast.staying) == {'a', 'b'}


def test_seconds_of_the_steps_are_those_of_their_plans():
    request = make_request({'a': [2048], 'b': [2048], 'spare': []})
    asked = []

    def estimate(plan, planned):
        asked.append((len(plan.moves), planned.cluster.services['spare'].enabled))
        return 60.0

    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1, estimate=estimate)
    assert asked == [(1, True), (1, True)] and forecast.seconds == 120.0
    assert campaign_forecasts.forecast_campaign(request, 'ab', 1).seconds is None
    done = []
    campaign_forecasts.forecast_campaign(request, 'ab', 1, report_progress=done.append)
    assert done == [0, 1, 2]


@clouds.examples(60)
@hypothesis.given(clouds.knobs(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_each_step_keeps_the_rules_and_leaves_its_hosts_empty(knobs, together, rng):
    request = clouds.request(knobs)
    request = dataclasses.replace(
        request, strategies=[evacuate.Evacuate()], history=dataclasses.replace(
            request.history, paused=None))
    hosts = sorted(h for h in request.cluster.scope_hosts if request.cluster.services[h].enabled)
    hypothesis.assume(hosts)
    chosen = rng.sample(hosts, rng.randint(1, len(hosts)))
    forecast = campaign_forecasts.forecast_campaign(request, chosen, together)
    if any('down' in obstacle for obstacle in forecast.obstacles) and not forecast.staying:
        assert not forecast.steps, 'the scope is held'
        return
    where = {uuid: i.host for uuid, i in request.cluster.instances.items()}
    to_come = set(chosen)
    for step in forecast.steps:
        assert 1 <= len(step.hosts) <= together and set(step.hosts) <= to_come
        to_come -= set(step.hosts)
        for move in step.moves:
            assert where[move.instance_uuid] == move.from_host
            where[move.instance_uuid] = move.to_host
        assert not set(where.values()) & set(step.hosts)
        assert step.again == sum(move.to_host in to_come for move in step.moves)
        assert not step.again or len(step.hosts) == 1
    assert to_come == set(forecast.staying)
    for host, blocked in forecast.staying.items():
        assert blocked or not request.cluster.services[host].up, 'each host has a reason'
    assert forecast == campaign_forecasts.forecast_campaign(request, chosen, together)


def test_a_search_whose_time_is_over_still_tries_the_first_host():
    request = make_request({'a': [2048], 'b': [2048], 'spare': []})
    cloud = supposed_clouds.SupposedCloud(request)
    found = campaign_forecasts.find_step(cloud, ['b', 'a'], ['a', 'b'], 2, lambda: True)
    assert found is not None and found[1] == ('b',)
    full = make_request({'a': [8192], 'b': [2048], 'c': [8192]})
    tries = []
    cloud = supposed_clouds.SupposedCloud(full)
    assert campaign_forecasts.find_step(
        cloud, ['a', 'b'], ['a', 'b'], 1, lambda: tries.append(1) or True) is None
    assert len(tries) < 4, 'no other host is tried'


@pytest.mark.parametrize('looks', range(12))
def test_hosts_that_the_time_does_not_reach_are_named_and_called_neither_empty_nor_full(looks):
    """The clock strikes after so many looks at it: the forecast steps are as without a clock."""
    request = make_request({'a': [2048], 'b': [2048], 'c': [8192], 'd': [8192], 'spare': []})
    whole = campaign_forecasts.forecast_campaign(request, 'abcd', 1)
    assert [step.hosts for step in whole.steps][:2] == [('a',), ('b',)]
    left = iter(range(looks))
    forecast = campaign_forecasts.forecast_campaign(
        request, 'abcd', 1, expired=lambda: next(left, None) is None)
    assert forecast.steps == whole.steps[:len(forecast.steps)]
    done = {host for step in forecast.steps for host in step.hosts}
    assert done | set(forecast.staying) | set(forecast.unforecast) == set('abcd')
    assert len(done) + len(forecast.staying) + len(forecast.unforecast) == 4
    for host, blocked in forecast.staying.items():
        assert blocked == whole.staying[host]
    assert forecast.instances == len(done), 'instances of other hosts do not count'
    if not looks:
        assert forecast.unforecast == tuple('abcd')


def test_explanation_that_the_time_cuts_off_names_no_rule():
    """a0 finds no place after a search, and a1 leaves."""
    request = make_request({'a': [6144, 2048], 'b': [5120], 'c': [3072, 2048], 'full': [8192]})
    (whole,) = campaign_forecasts.forecast_campaign(request, 'a', 1).staying.values()
    assert [b.reason for b in whole] == ['no host may take it: no-room (3 hosts)']
    looks, is_done = 0, False
    while not is_done:
        left = iter(range(looks))
        forecast = campaign_forecasts.forecast_campaign(
            request, 'a', 1, expired=lambda left=left: next(left, None) is None)
        is_done = forecast.staying == {'a': whole}
        assert is_done or forecast.unforecast == ('a',) and not forecast.staying
        looks += 1
    assert looks > 20


def test_forecast_without_an_end_of_time_reaches_each_host():
    request = make_request({'a': [2048], 'b': [2048], 'spare': []}, b0={'locked': True})
    forecast = campaign_forecasts.forecast_campaign(request, 'ab', 1)
    assert not forecast.unforecast and set(forecast.staying) == {'b'}
