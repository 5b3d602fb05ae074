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

"""One simulated cloud: what follows instances, and what stays."""

import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import world
from tests.unit import clouds
from tests.unit.rebalancer.backtest import made

HOSTS = ('h1', 'h2', 'h3')


def entered(past, lag=300.0, k=0):
    found = world.InstancePlaces(past, lag)
    found.enter_time(k)
    return found


def pair(count=4):
    """Two instances of 3 and 2 cores on h1, each host with 0.1 of its own."""
    places, used = {'a': 'h1', 'b': 'h1'}, {'a': [3.0] * count, 'b': [2.0] * count}
    return made.built(made.cluster(places), made.scores_of(places, used), used)


def test_usage_follows_the_instance_and_base_load_stays():
    found = entered(pair())
    found.complete_move('a', 'h2', made.START + 10)
    assert found.compute_true_scores(0)[0].tolist() == pytest.approx([0.3, 0.4, 0.1])
    found.complete_move('b', 'h2', made.START + 20)
    assert found.compute_true_scores(0)[0].tolist() == pytest.approx([0.1, 0.6, 0.1])


def test_a_move_under_way_counts_at_both_ends():
    found = entered(pair())
    assert found.compute_true_scores(0, [('a', 'h2')])[0].tolist() == pytest.approx([0.6, 0.4, 0.1])


def test_metrics_show_a_move_little_by_little():
    found = entered(pair(), lag=400.0)
    found.complete_move('a', 'h2', made.START)
    policies = world.make_runnable_policies(made.policy_set())

    def shown(now):
        samples = found.build_samples(policies, {'cpu': 0}, 0, now)['cpu']
        return [samples.imbalance.series[h] for h in HOSTS]

    assert shown(made.START) == pytest.approx([0.6, 0.1, 0.1])
    assert shown(made.START + 100) == pytest.approx([0.525, 0.175, 0.1])
    assert shown(made.START + 400) == pytest.approx([0.3, 0.4, 0.1])


def test_samples_are_capped_at_a_full_host_and_true_scores_are_not():
    places, used = {'a': 'h1', 'b': 'h2'}, {'a': [8.0] * 2, 'b': [8.0] * 2}
    past = made.built(made.cluster(places), made.scores_of(places, used), used)
    found = entered(past, lag=0.0)
    found.complete_move('b', 'h1', made.START)
    assert found.compute_true_scores(0)[0, 0] == pytest.approx(1.7)
    samples = found.build_samples(world.make_runnable_policies(made.policy_set()), {'cpu': 0}, 0,
                                  made.START)
    assert samples['cpu'].imbalance.series['h1'] == 1.0


def test_a_score_above_one_in_history_is_left_for_the_engine_to_refuse():
    past = made.built(made.cluster({'a': 'h1'}), {'h1': [1.5] * 2, 'h2': [0.1] * 2},
                      {'a': [1] * 2})
    samples = entered(past).build_samples(world.make_runnable_policies(made.policy_set()),
                                          {'cpu': 0}, 0, made.START)
    assert samples['cpu'].imbalance.series == {'h1': 1.5, 'h2': pytest.approx(0.1)}


def test_without_a_capacity_only_moves_make_a_score_unknown():
    chosen = made.policy_set(host_capacity=None, host_capacity_query='cores')
    past = made.built(made.cluster({'a': 'h1'}), {h: [0.5] * 2 for h in HOSTS}, {'a': [1.0] * 2},
                      policies=chosen, host_capacity_query={'h1': [10.0] * 2, 'h2': [0.0] * 2})
    found = entered(past)
    assert found.compute_true_scores(0)[0].tolist() == [0.5, 0.5, 0.5]
    found.complete_move('a', 'h2', made.START)
    assert found.compute_true_scores(0)[0].tolist() == pytest.approx([0.4, math.nan, 0.5],
                                                                     nan_ok=True)


def test_a_negative_score_or_usage_is_no_measurement():
    past = made.built(made.cluster({'a': 'h1'}), {'h1': [-0.5] * 2, 'h2': [0.1] * 2},
                      {'a': [-1.0] * 2})
    found = entered(past)
    samples = found.build_samples(world.make_runnable_policies(made.policy_set()), {'cpu': 0}, 0,
                                  made.START)['cpu']
    assert samples.imbalance.series['h1'] == -0.5 and samples.profile.series == {}


def test_a_host_without_a_score_has_none_in_the_simulation():
    past = made.built(made.cluster({'a': 'h1'}), {'h1': [None, 0.5], 'h2': [0.1] * 2},
                      {'a': [1] * 2})
    assert math.isnan(entered(past).compute_true_scores(0)[0, 0])


def test_fill_moves_with_the_score_from_its_own_history():
    chosen = made.policy_set(mode='pack', capacity_query='peak')
    places, used = {'a': 'h1'}, {'a': [3.0] * 2}
    past = made.built(made.cluster(places), made.scores_of(places, used), used, policies=chosen,
                      capacity_query={'h1': [0.8] * 2, 'h2': [0.2] * 2, 'h3': [0.1] * 2})
    found = entered(past, lag=0.0)
    found.complete_move('a', 'h2', made.START)
    samples = found.build_samples(world.make_runnable_policies(chosen), {'cpu': 0}, 0, made.START)
    assert samples['cpu'].capacity.series == pytest.approx({'h1': 0.5, 'h2': 0.5, 'h3': 0.1})


def test_a_cloud_without_any_instance_keeps_its_scores():
    past = made.built(made.cluster({'a': 'h1'}, taken_at=made.START + made.STEP),
                      {h: [0.5] * 2 for h in HOSTS}, {'a': [None, 1.0]})
    assert entered(past).compute_true_scores(0).tolist() == [[0.5] * 3]


def foreseeing(**fields):
    return made.policy_set(mode='pack', capacity_query='fill', vm_mean_query='mean',
                           vm_deviation_query='deviation', **fields)


def test_means_and_deviations_follow_the_instance():
    chosen = foreseeing()
    places, used = {'a': 'h1', 'b': 'h2'}, {'a': [3.0] * 2, 'b': [1.0, None]}
    past = made.built(made.cluster(places), {h: [0.5] * 2 for h in HOSTS}, used, policies=chosen,
                      capacity_query={h: [0.5] * 2 for h in HOSTS},
                      vm_mean_query={'a': [2.0, 2.5], 'b': [1.0, None]},
                      vm_deviation_query={'a': [0.5, 0.25], 'b': [0.125, None]})
    found = entered(past, lag=600.0)
    found.complete_move('a', 'h3', made.START)
    first, second = (found.build_samples(world.make_runnable_policies(chosen), {'cpu': 0}, k,
                                         made.START + 1)['cpu']
                     for k in range(2))
    assert first.mean.series == {'a': 2.0, 'b': 1.0}
    assert first.deviation.series == {'a': 0.5, 'b': 0.125}
    found.enter_time(1)
    assert second.mean.series == {'a': 2.5} and second.deviation.series == {'a': 0.25}


def test_no_mean_of_an_instance_that_is_not_there():
    chosen = foreseeing()
    past = made.built(made.cluster({'a': 'h1'}, taken_at=made.START + made.STEP),
                      {h: [0.5] * 2 for h in HOSTS}, {'a': [None, 1.0]}, policies=chosen,
                      capacity_query={h: [0.5] * 2 for h in HOSTS},
                      vm_mean_query={'a': [1.0, 1.0]}, vm_deviation_query={'a': [1.0, 1.0]})
    samples = entered(past).build_samples(world.make_runnable_policies(chosen), {'cpu': 0}, 0,
                                          made.START)['cpu']
    assert samples.mean.series == samples.deviation.series == {}


def test_policies_that_do_not_ask_about_hours_get_no_answer():
    samples = entered(pair()).build_samples(
        world.make_runnable_policies(made.policy_set()), {'cpu': 0}, 0, made.START)['cpu']
    assert samples.mean is None and samples.deviation is None


def test_claims_follow_the_instance_and_others_keep_theirs():
    cloud = made.cluster({'a': 'h1', 'b': 'h1'})
    cloud.hosts['h1'].provider.used['VCPU'] += 5
    used = {'a': [1.0] * 2, 'b': [1.0] * 2}
    found = entered(made.built(cloud, made.scores_of({'a': 'h1', 'b': 'h1'}, used), used))
    found.complete_move('a', 'h2', made.START)
    seen = found.build_cluster(made.START, ())
    assert {h: seen.hosts[h].provider.used['VCPU'] for h in HOSTS} == {'h1': 6, 'h2': 1, 'h3': 0}
    assert seen.instances['a'].host == 'h2'
    assert cloud.hosts['h1'].provider.used['VCPU'] == 7, 'the recorded cloud stays as it is'


def test_a_claim_of_a_class_that_a_host_has_not_used_yet():
    cloud = made.cluster({'a': 'h1'})
    cloud.instances['a'].claims['VGPU'] = 2
    found = entered(made.built(cloud, {h: [0.5] * 2 for h in HOSTS}, {'a': [1.0] * 2}))
    assert found.build_cluster(0.0, ()).hosts['h1'].provider.used['VGPU'] == 0
    found.complete_move('a', 'h2', made.START)
    seen = found.build_cluster(0.0, ()).hosts
    assert (seen['h1'].provider.used['VGPU'], seen['h2'].provider.used['VGPU']) == (0, 2)


def test_instances_come_where_they_came_and_go():
    past = made.built(made.cluster({'a': 'h1', 'b': 'h2'}, taken_at=made.START + made.STEP),
                      {h: [0.5] * 3 for h in HOSTS}, {'a': [None, 1, 1], 'b': [1, 1, None]})
    found = world.InstancePlaces(past, 0.0)
    assert found.enter_time(0) == []
    assert set(found.build_cluster(0.0, ()).instances) == {'b'}
    assert found.count_residents(0).tolist() == [0, 1, 0]
    assert found.enter_time(1) == []
    assert found.count_residents(1).tolist() == [1, 1, 0]
    assert found.enter_time(2) == ['b']
    seen = found.build_cluster(0.0, ())
    assert set(seen.instances) == {'a'} and seen.hosts['h2'].provider.used['VCPU'] == 0


def test_an_instance_recorded_while_migrating_has_no_task_state_before():
    cloud = made.cluster({'a': 'h1'})
    object.__setattr__(cloud.instances['a'], 'task_state', 'migrating')
    found = entered(made.built(cloud, {h: [0.5] * 2 for h in HOSTS}, {'a': [1] * 2}))
    assert found.build_cluster(0.0, ()).instances['a'].task_state is None


def test_history_follows_its_own_moves():
    past = made.built(made.cluster({'a': 'h2'}), {h: [0.5] * 3 for h in HOSTS},
                      [('a', 'h1', [1, None, None]), ('a', 'h2', [None, 1, 1])])
    was = backtest_run.run_history(past, lambda k: None)
    assert was.moved == (world.CompletedMove(0, 0, 1, made.START + made.STEP),)
    assert np.array_equal(was.score, past.score)
    assert backtest_run.run_without_moves(past, lambda k: None).counts[-1].tolist() == [1, 0, 0]


HISTORY = st.integers(0, 2**20)


def random_past(seed):
    rng = np.random.default_rng(seed)
    count, uuids = 5, [f'i{n}' for n in range(8)]
    cloud = made.cluster({u: HOSTS[rng.integers(3)] for u in uuids},
                         taken_at=made.START + float(rng.integers(-2, 8)) * made.STEP)

    def gappy(values):
        return [None if rng.random() < 0.2 else float(v) for v in values]

    used = [(u, str(rng.choice(['', 'h1', 'h2', 'h3'])), gappy(rng.uniform(0, 3, count)))
            for u in uuids for _ in range(rng.integers(1, 3))]
    hosts = {h: gappy(rng.uniform(0, 1, count)) for h in HOSTS}
    hosts['h1'][0] = 0.5
    return made.built(cloud, hosts, used)


@clouds.examples(150)
@given(HISTORY)
def test_history_is_reproduced_to_the_last_bit(seed):
    past = random_past(seed)
    assert np.array_equal(backtest_run.run_history(past, lambda k: None).score, past.score,
                          equal_nan=True)


@clouds.examples(40)
@given(HISTORY)
def test_a_candidate_without_moves_equals_the_history_without_moves(seed):
    past = random_past(seed)
    candidate = backtest_run.PolicyCandidate('x', made.settings(made.policy_set(threshold=1.0)),
                                             made.SCOPES)
    went = backtest_run.run_candidate(past, candidate, backtest_run.TimingAssumptions(),
                                      lambda k: None)
    assert went.moved == ()
    still = backtest_run.run_without_moves(past, lambda k: None)
    assert np.array_equal(went.score, still.score, equal_nan=True)
    if (past.home == past.home[0]).all():
        assert np.array_equal(went.score, past.score, equal_nan=True)


@clouds.examples(150)
@given(HISTORY)
def test_moves_conserve_the_usage_of_instances(seed):
    past = random_past(seed)
    rng = np.random.default_rng(seed + 1)
    found = world.InstancePlaces(past, 600.0)
    for k in range(past.window.count):
        found.enter_time(k)
        for _ in range(3):
            n = int(rng.integers(len(past.uuids)))
            if found.place[n] >= 0:
                found.complete_move(past.uuids[n], HOSTS[rng.integers(3)],
                                    past.window.compute_time(k))
        for change in (found._compute_change(k, []),
                       found.compute_shown_change(k, past.window.compute_time(k) + 100)):
            assert (change * past.capacity[:, k]).sum() == pytest.approx(0.0, abs=1e-9)
        # Where nothing is cut off at 0, the hosts' load is history's.
        scores, before = found.compute_true_scores(k), past.score[:, k]
        known = ~np.isnan(before).any()
        if known and (scores > 0).all():
            assert scores.sum() == pytest.approx(before.sum())


@clouds.examples(150)
@given(HISTORY)
def test_no_score_is_negative_and_coming_back_restores_history(seed):
    past = random_past(seed)
    found = entered(past)
    there = [u for n, u in enumerate(past.uuids) if found.place[n] >= 0]
    home = {u: past.hosts[past.home[0, past.uuids.index(u)]] for u in there}
    for u in there:
        found.complete_move(u, 'h1', made.START)
    assert not (np.nan_to_num(found.compute_true_scores(0)) < 0).any()
    for u in there:
        found.complete_move(u, home[u], made.START)
    assert np.array_equal(found.compute_true_scores(0), past.score[:, 0], equal_nan=True)


def test_flights_are_part_of_the_cloud_that_is_planned():
    flight = model.InFlightMove('a', 'h1', 'h2', 'task')
    assert entered(pair()).build_cluster(5.0, (flight,)).flights == (flight,)
