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

"""When nothing may move, and why."""

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.planning import planning_holds


def cluster(*services):
    hosts = {s.host: model.Host(s.host) for s in services}
    return model.Cluster(hosts, {}, {s.host: s for s in services},
                         scope_hosts=frozenset(hosts))


def up(*names):
    return [model.Service(n) for n in names]


DOWN = model.Service('d', state='down')
OFF = [model.Service(n, status='disabled') for n in ('o1', 'o2', 'o3')]


def test_a_healthy_scope_is_no_outage():
    assert planning_holds.find_outage_reason(cluster(*up('a', 'b')),
                                             model.PlanningOptions()) is None


def test_too_many_hosts_down_are_an_outage():
    assert planning_holds.find_outage_reason(cluster(DOWN, *up('a', 'b', 'c')),
                                             model.PlanningOptions()) is None
    assert planning_holds.find_outage_reason(cluster(DOWN, *up('a', 'b')),
                                             model.PlanningOptions()) == (
        '1 of 3 hosts is down (d), more than max_down_fraction (0.3): nothing moves during an '
        'outage')
    assert planning_holds.find_outage_reason(cluster(DOWN, *up('a')),
                                             model.PlanningOptions(max_down_fraction=0.5)) is None


@pytest.mark.parametrize('service', [
    model.Service('x', forced_down=True), model.Service('x', state='down', status='disabled')])
def test_forced_down_and_disabled_hosts_that_are_down_count_as_down(service):
    assert 'down (x)' in planning_holds.find_outage_reason(cluster(service, *up('a')),
                                                           model.PlanningOptions())


def test_a_host_without_a_service_counts_as_down():
    bare = cluster(*up('a', 'b'))
    bare = dataclasses.replace(bare, services={'a': bare.services['a']})
    assert 'down (b)' in planning_holds.find_outage_reason(bare, model.PlanningOptions())


def test_one_disabled_host_is_always_allowed():
    assert planning_holds.find_outage_reason(cluster(OFF[0], *up('a')),
                                             model.PlanningOptions(max_drain_fraction=0.0)) is None


def test_too_many_disabled_hosts_stop_everything():
    options = model.PlanningOptions(max_drain_fraction=0.3)
    assert planning_holds.find_outage_reason(cluster(*OFF, *up(*'abcdefg')), options) is None
    reason = planning_holds.find_outage_reason(cluster(*OFF, *up(*'abcdef')), options)
    assert reason == (
        '3 of 9 hosts are disabled (o1, o2, o3), more than max_drain_fraction (0.3): enable some '
        'hosts or raise the option')


def make_rebooting(host):
    return model.Service(host, state='down', status='disabled',
                         disabled_reason=f'firmware [campaign {host}]')


def test_a_campaign_host_that_reboots_counts_as_drained():
    """It comes back as a disabled host: a drain that begins meanwhile would pass the fraction."""
    options = model.PlanningOptions(max_drain_fraction=0.3, max_down_fraction=0.9)
    rebooting, broken = make_rebooting('r'), dataclasses.replace(
        make_rebooting('r'), disabled_reason='burnt')
    for first, free in ((rebooting, 0), (broken, 1)):
        scope = cluster(first, *OFF[:2], *up(*'abcdefg'))
        assert planning_holds.count_drainable_hosts(scope, options) == free
        assert planning_holds.count_drainable_hosts(scope, options, ('r', 'o1')) == 2
        held = planning_holds.find_outage_reason(cluster(first, *OFF, *up(*'abcdef')), options)
        assert (held is not None) == (first is rebooting), held
    assert '4 of 10 hosts are disabled (o1, o2, o3, ...)' in planning_holds.find_outage_reason(
        cluster(rebooting, *OFF, *up(*'abcdef')), options)


@pytest.mark.mutant
def test_a_long_list_of_hosts_is_cut():
    services = [model.Service(f'd{n}', state='down') for n in range(5)]
    assert '(d0, d1, d2, ...)' in planning_holds.find_outage_reason(cluster(*services),
                                                                    model.PlanningOptions())
    assert '(d0, d1, d2)' in planning_holds.find_outage_reason(cluster(*services[:3]),
                                                               model.PlanningOptions())


def scores(untrusted=None, taken_at=1000.0):
    return model.ClusterScores({'cpu': model.PolicyScores('cpu', untrusted=untrusted)}, taken_at)


def test_one_untrusted_policy_holds_every_imbalance_move():
    held = planning_holds.imbalance_hold(cluster(*up('a')), scores('samples are old'),
                                         model.MoveHistory(),
                                         model.PlanningOptions())
    assert held == 'metrics are not trusted: cpu: samples are old'
    two = model.ClusterScores({n: model.PolicyScores(n, untrusted='no samples')
                               for n in ('cpu', 'net')})
    held = planning_holds.imbalance_hold(cluster(*up('a')), two, model.MoveHistory(),
                                         model.PlanningOptions())
    assert held == 'metrics are not trusted: cpu: no samples; net: no samples'


@pytest.mark.parametrize('completed_at, held', [(1000.0, True), (701.0, True), (700.0, False)])
def test_imbalance_moves_wait_until_the_scores_show_the_last_move(completed_at, held):
    history = model.MoveHistory(completed=((model.Move('u', 'a', 'b', model.Phase.SPREAD),
                                            completed_at),))
    reason = planning_holds.imbalance_hold(cluster(*up('a', 'b')), scores(), history,
                                           model.PlanningOptions(settle_seconds=300.0))
    assert (reason is not None) == held


def test_moves_of_other_scopes_hold_nothing():
    history = model.MoveHistory(completed=((model.Move('u', 'x', 'y', model.Phase.SPREAD), 999.0),))
    assert planning_holds.imbalance_hold(cluster(*up('a')), scores(), history,
                                         model.PlanningOptions()) is None


@pytest.mark.parametrize('ends', [('a', 'x'), ('x', 'a')])
def test_a_move_across_the_border_of_the_scope_holds_it(ends):
    history = model.MoveHistory(completed=((model.Move('u', *ends, model.Phase.SPREAD), 999.0),))
    assert planning_holds.imbalance_hold(cluster(*up('a')), scores(), history,
                                         model.PlanningOptions())


def test_the_hold_is_as_long_as_samples_are_old():
    history = model.MoveHistory(completed=((model.Move('u', 'a', 'b', model.Phase.SPREAD), 400.0),))
    old = model.ClusterScores({'cpu': model.PolicyScores('cpu', age=400.0)}, 1000.0)
    reason = planning_holds.imbalance_hold(cluster(*up('a', 'b')), old, history,
                                           model.PlanningOptions(settle_seconds=300.0))
    assert 'settle in 100 s' in reason


@pytest.mark.mutant
def test_a_cut_off_plan_names_its_unfinished_parts():
    text = planning_holds.describe_remainder(
        steps=50, unfinished='evacuate', unbegun=['repair', 'spread'], unused_moves=3,
        hosts=['d1', 'd2', 'd3', 'd4'], policies=['cpu', 'net'])
    assert text == (
        'planning was cut off after 50 steps; evacuate was not finished; repair, spread was not '
        'begun; still to be drained: d1, d2, d3, ...; still above the threshold: cpu, net; '
        '3 moves of the budget are left; the next cycle goes on')
    text = planning_holds.describe_remainder(
        steps=None, unfinished='', unbegun=[], unused_moves=0, hosts=[], policies=[])
    assert text == ('planning was cut off by planning_deadline; 0 moves of the budget are left; '
                    'the next cycle goes on')


def test_the_newest_of_several_moves_decides():
    one = model.Move('u', 'a', 'b', model.Phase.SPREAD)
    history = model.MoveHistory(completed=((one, 100.0), (one, 950.0)))
    assert 'settle in 250 s' in planning_holds.imbalance_hold(
        cluster(*up('a', 'b')), scores(), history, model.PlanningOptions(settle_seconds=300.0))
