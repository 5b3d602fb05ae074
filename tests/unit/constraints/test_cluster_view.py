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

"""Moves in flight and moves that have just ended count in a cluster view."""

import pytest

from kronos_nova import lookback
from kronos_nova import model
from kronos_nova.constraints import cluster_view

GROUP = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i'}))
USAGE = 0.2
RATE = lookback.LookbackWindow(ramp=300.0)


def view(*flights, at='a', completed=(), sampled_at=1000.0, used_b=0):
    hosts = {h: model.Host(h, provider=model.Provider(
        h, inventories={'VCPU': model.Inventory(8)}, used={'VCPU': 2 if h == at else used_b}))
        for h in 'ab'}
    cluster = model.Cluster(
        hosts, {'i': model.Instance('i', at, claims={'VCPU': 2})},
        {h: model.Service(h) for h in 'ab'}, groups=(GROUP,),
        flights=tuple(model.InFlightMove('i', 'a', to, source) for to, source in flights),
        scope_hosts=frozenset('ab'), taken_at=1_000_000.0)
    level = dict.fromkeys('ab', 0.5)
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', hosts=level, fill=level, capacity=dict.fromkeys('ab', 1.0),
        usages={'i': USAGE}, age=0.0, score_look=RATE, fill_look=RATE)}, sampled_at)
    history = model.MoveHistory(completed=tuple(
        (model.Move('i', 'a', 'b', model.Phase.SPREAD), when) for when in completed))
    return cluster_view.ClusterView(cluster, model.PlanningOptions(settle_seconds=300.0), history,
                                    scores)


def members(seen):
    return {h for h in 'ab' if seen.list_members_on(GROUP, h)}


def test_a_task_that_nova_does_not_know_is_charged_by_us():
    seen = view(('b', 'task'))
    assert seen.sum_allocated('b', 'VCPU') == 2
    assert members(seen) == {'a', 'b'} and seen.is_in_flight('i')
    assert seen.map_known_fills('b') == {'cpu': 0.5
                                         + USAGE} and seen.map_known_fills('a') == {'cpu': 0.5}


def test_claims_that_placement_charges_are_not_charged_twice():
    seen = view(('b', 'nova'), used_b=2)
    assert seen.sum_allocated('b', 'VCPU') == 2
    assert members(seen) == {'a', 'b'}


@pytest.mark.parametrize('order', [1, -1])
def test_a_task_that_nova_has_not_scheduled_yet_is_charged_by_us(order):
    seen = view(*[(None, 'nova'), ('b', 'task')][::order])
    assert seen.sum_allocated('b', 'VCPU') == 2
    assert members(seen) == {'a', 'b'}


@pytest.mark.parametrize('order', [1, -1])
def test_novas_word_on_the_destination_goes_first(order):
    seen = view(*[('b', 'nova'), ('a', 'task')][::order], used_b=2)
    assert seen.sum_allocated('b', 'VCPU') == 2 and members(seen) == {'a', 'b'}


def test_a_moving_member_counts_once_on_each_known_destination():
    hosts = {h: model.Host(h) for h in 'abc'}
    cluster = model.Cluster(
        hosts, {'i': model.Instance('i', 'a'), 'j': model.Instance('j', 'a')},
        {h: model.Service(h) for h in hosts}, groups=(GROUP,), scope_hosts=frozenset(hosts),
        flights=(model.InFlightMove('i', 'a', 'b', 'task', ('a', 'b', 'c', 'gone')),))
    seen = cluster_view.ClusterView(cluster, model.PlanningOptions())
    spread = seen.placement.map_members_by_host(GROUP)
    assert {h: set(m) for h, m in spread.items()} == {h: {'i'} for h in 'abc'}


def test_groups_contain_all_earlier_moves_at_any_time_of_reading():
    """The view reads groups late from the cluster, but never without an earlier move."""
    both = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i', 'j', 'gone'}))
    other = model.ServerGroup('h', model.GroupPolicy.AFFINITY, frozenset({'j'}))
    cluster = model.Cluster(
        {h: model.Host(h) for h in 'ab'},
        {'i': model.Instance('i', 'a'), 'j': model.Instance('j', 'b')},
        {h: model.Service(h) for h in 'ab'}, groups=(both, other), scope_hosts=frozenset('ab'))
    move = model.Move('i', 'a', 'b', model.Phase.SPREAD)

    def spread(seen, group):
        return {h: set(m) for h, m in seen.placement.map_members_by_host(group).items()}

    seen = cluster_view.ClusterView(cluster, model.PlanningOptions())
    seen.land_move(move)
    assert spread(seen, both) == {'b': {'i', 'j'}} and spread(seen, other) == {'b': {'j'}}
    seen.undo_landing(move)
    assert spread(seen, both) == {'a': {'i'}, 'b': {'j'}}
    seen.begin_departure(move)
    assert spread(seen, both) == {'a': {'i'}, 'b': {'i', 'j'}}
    seen.revert_departure(move)
    assert spread(seen, both) == {'a': {'i'}, 'b': {'j'}}


def test_a_flight_without_a_destination_is_charged_to_no_host():
    seen = view((None, 'nova'))
    assert seen.is_in_flight('i') and members(seen) == {'a'} and seen.sum_allocated('b',
                                                                                    'VCPU') == 0


def test_an_instance_that_has_arrived_is_not_charged_again():
    seen = view(('b', 'nova'), at='b', used_b=2)
    assert seen.is_in_flight('i') and members(seen) == {'b'}
    assert seen.sum_allocated('b', 'VCPU') == 2 and seen.map_known_fills('b') == {'cpu': 0.5}


@pytest.mark.parametrize('ago, share', [(-5.0, 1.0), (0.0, 1.0), (150.0, 0.5), (300.0, 0.0),
                                        (900.0, 0.0)])
def test_a_completed_move_is_laid_over_samples_that_do_not_show_it(ago, share):
    """A rate over W seconds shows t / W of a change t seconds old."""
    seen = view(at='b', completed=(1000.0 - ago,))
    assert seen.map_known_fills('a')['cpu'] == pytest.approx(0.5 - share * USAGE)
    assert seen.map_known_fills('b')['cpu'] == pytest.approx(0.5 + share * USAGE)
    assert seen.load.compute_unseen_load('cpu',
                                         'b') == pytest.approx((share * USAGE, share * USAGE))
    assert seen.load.compute_fill_doubt('cpu', 'b') == 0.0


def test_a_completed_move_of_an_instance_that_went_on_is_not_laid():
    assert view(at='a', completed=(1000.0,)).map_known_fills('b') == {'cpu': 0.5}


def three_hosts(*completed, at='c', **known):
    """Hosts a, b and c at 0.5; the instance was moved as ``completed`` says."""
    level = dict.fromkeys('abc', 0.5)
    cluster = model.Cluster({h: model.Host(h) for h in 'abc'}, {'i': model.Instance('i', at)},
                            {h: model.Service(h) for h in 'abc'}, scope_hosts=frozenset('abc'))
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', hosts=level, fill=level, capacity=dict.fromkeys('abc', 1.0),
        usages={'i': USAGE}, **{'age': 0.0, 'score_look': RATE, 'fill_look': RATE, **known})},
        1000.0)
    history = model.MoveHistory(completed=tuple(
        (model.Move('i', source, to, model.Phase.SPREAD), 1000.0 - ago)
        for source, to, ago in completed))
    return cluster_view.ClusterView(cluster, model.PlanningOptions(settle_seconds=300.0), history,
                                    scores)


def test_an_instance_moved_twice_is_added_where_samples_lack_it():
    """Of the last 300 s it was on a for 100, on b for 100 and on c for 100."""
    seen = three_hosts(('a', 'b', 200.0), ('b', 'c', 100.0))
    for host, share in (('a', -1 / 3), ('b', -1 / 3), ('c', 2 / 3)):
        assert seen.map_known_fills(host)['cpu'] == pytest.approx(0.5 + share * USAGE)
        assert seen.load.compute_unseen_load('cpu',
                                             host) == pytest.approx((share * USAGE, share * USAGE))


def test_moves_before_a_foreign_move_are_unknown():
    seen = three_hosts(('c', 'a', 200.0), ('a', 'b', 100.0), at='a')
    assert {h: seen.map_known_fills(h)['cpu'] for h in 'abc'} == dict.fromkeys('abc', 0.5)


def test_scores_and_fills_each_show_a_move_after_their_own_range():
    seen = three_hosts(('b', 'c', 450.0), score_look=lookback.LookbackWindow(ramp=60.0),
                       fill_look=lookback.LookbackWindow(ramp=600.0))
    assert seen.load.compute_unseen_load('cpu', 'c') == (0.0, 0.0)
    assert seen.map_known_fills('c')['cpu'] == pytest.approx(0.5 + 0.25 * USAGE)


PEAK = lookback.LookbackWindow(ramp=300.0, span=86400.0)


def test_a_peak_has_risen_at_once_and_falls_when_its_range_has_passed():
    seen = three_hosts(('b', 'c', 7200.0), fill_look=PEAK)
    assert seen.map_known_fills('b')['cpu'] == pytest.approx(0.5 - USAGE)
    assert seen.map_known_fills('c')['cpu'] == 0.5
    seen = three_hosts(('b', 'c', 86700.0), fill_look=PEAK)
    assert seen.map_known_fills('b')['cpu'] == 0.5
    assert three_hosts(('b', 'c', 60.0),
                       fill_look=PEAK).map_known_fills('c')['cpu'] == pytest.approx(
                           0.5 + 0.8 * USAGE)


def test_a_peak_with_an_instance_does_not_rise_when_it_returns():
    away = (('c', 'a', 7200.0), ('a', 'c', 30.0))
    seen = three_hosts(*away, fill_look=PEAK)
    assert seen.map_known_fills('c')['cpu'] == 0.5
    assert seen.map_known_fills('a')['cpu'] == pytest.approx(0.5 - USAGE)
    assert three_hosts(('b', 'c', 100_000.0), *away,
                       fill_look=PEAK).map_known_fills('c')['cpu'] == 0.5


def test_a_peak_never_saw_an_instance_that_only_passed_by():
    seen = three_hosts(('a', 'b', 20.0), ('b', 'c', 10.0), fill_look=lookback.LookbackWindow(
        delay=60.0, span=86400.0))
    fills = {h: seen.map_known_fills(h)['cpu'] for h in 'abc'}
    assert fills == pytest.approx({'a': 0.5 - USAGE, 'b': 0.5, 'c': 0.5 + USAGE})


def test_of_an_age_that_is_not_measured_bounds_are_known():
    """The move ended 200 s ago and samples are 0 to 100 s old: they show 1/3 to
    2/3 of the usage."""
    seen = three_hosts(('b', 'c', 200.0), age=None, staleness=100.0)
    assert seen.load.compute_unseen_load('cpu', 'c') == pytest.approx((USAGE / 3, USAGE * 2 / 3))
    assert seen.load.compute_unseen_load('cpu', 'b') == pytest.approx((-USAGE * 2 / 3, -USAGE / 3))
    # No host is filled above a ceiling, whatever it is.
    assert seen.map_known_fills('b')['cpu'] == pytest.approx(0.5 - USAGE / 3)
    assert seen.map_known_fills('c')['cpu'] == pytest.approx(0.5 + USAGE * 2 / 3)
    assert seen.load.compute_fill_doubt('cpu', 'b') == seen.load.compute_fill_doubt(
        'cpu', 'c') == pytest.approx(USAGE / 3)


def test_held_and_closed_say_why():
    cluster = view().cluster
    history = model.MoveHistory(cooling={'i': 60.0}, quarantined={'j': -1.0, 'k': 5.0},
                                quarantined_hosts=frozenset('a'))
    seen = cluster_view.ClusterView(cluster, model.PlanningOptions(), history, draining=('b',))
    assert '60 s' in seen.judge_history('i').detail
    assert 'for ever' in seen.judge_history('j').detail and '5 s' in seen.judge_history('k').detail
    assert seen.judge_history('l') is None
    assert seen.judge_closed_host('a').rule == 'host-quarantined'
    assert seen.judge_closed_host('b').rule == 'host-draining' and seen.judge_closed_host(
        'c') is None


def test_a_move_that_may_end_on_several_hosts_counts_on_each():
    seen = view()
    one = model.Move('i', 'a', 'b', model.Phase.SPREAD)
    before = (seen.sum_allocated('b', 'VCPU'), members(seen))
    for _ in range(2):
        seen.begin_departure(one)
    assert seen.sum_allocated('b', 'VCPU') == 4 and members(seen) == {'a', 'b'}
    assert seen.map_known_fills('b')['cpu'] == pytest.approx(0.5 + 2 * USAGE)
    for _ in range(2):
        seen.revert_departure(one)
    assert (seen.sum_allocated('b', 'VCPU'), members(seen)) == before
    assert not seen.is_in_flight('i') and seen.map_known_fills('b')['cpu'] == pytest.approx(0.5)
