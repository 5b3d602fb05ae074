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

"""The real planner in simulated time."""

import dataclasses
import json

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import simulated_executor
from tests.unit.rebalancer.backtest import made

PLACES = {'a': 'h1', 'b': 'h1', 'c': 'h2', 'd': 'h3'}
#: h1 is hot until b moves away: 0.6, 0.3, 0.3 become 0.4, 0.5, 0.3 or such.
HOT = {'a': 3.0, 'b': 2.0, 'c': 2.0, 'd': 2.0}


def past(used=HOT, count=8, policies=None, places=PLACES, **cloud):
    series = {u: v if isinstance(v, list) else [v] * count for u, v in used.items()}
    return made.built(made.cluster(places, **cloud), made.scores_of(places, series), series,
                      policies=policies)


def travelled(found, policies=None, options=None, **assumptions):
    assumptions = {'interval': made.STEP, 'stagger': 0.0,
                   'limits': simulated_executor.ConcurrencyLimits(bandwidth=10.0), **assumptions}
    candidate = backtest_run.PolicyCandidate(
        'x', made.settings(policies, **(options or {})), made.SCOPES)
    return backtest_run.run_candidate(found, candidate,
                                      backtest_run.TimingAssumptions(**assumptions),
                                      lambda k: None)


def test_a_steady_cloud_is_left_alone_and_the_reason_is_counted():
    found = past({'a': 1.0, 'b': 1.0, 'c': 2.0, 'd': 2.0})
    went = travelled(found)
    assert went.moved == () and went.cycles == 8
    assert went.idle == {'every policy is at or below its threshold': 8}
    assert (went.score == found.score).all()


def test_a_hot_host_gives_one_instance_which_arrives_when_its_memory_has():
    went = travelled(past())
    assert len(went.moved) == 1
    (move,) = went.moved
    assert (move.from_host, move.at) == (0, made.START + 100.0)
    # At the first time the instance is on its way and counts at both ends.
    moved = {0: 3.0, 1: 2.0}[move.instance] / made.CORES
    assert went.score[0, 0].tolist() == pytest.approx(
        [0.6, *(0.3 + moved * (move.to_host == h) for h in (1, 2))])
    assert went.score[0, 1, 0] == pytest.approx(0.6 - moved)
    assert went.counts[0].tolist() == [2, 1, 1]
    assert went.counts[1, 0] == 1


@pytest.mark.parametrize(('deviation', 'emptied'), [(0.5, True), (2.0, False)])
def test_pack_foresees_the_peaks_that_were_recorded(deviation, emptied):
    """At 2 deviations a and b together stay at 0.5 or go up to 0.9."""
    chosen = made.policy_set(
        mode='pack', capacity_query='fill', capacity_threshold=0.8, max_migrations_per_cycle=5,
        vm_mean_query='mean', vm_deviation_query='deviation')
    places, used = {'a': 'h1', 'b': 'h2'}, {'a': [1.5] * 4, 'b': [1.5] * 4}
    scores = made.scores_of(places, used, base=0.0)
    found = made.built(
        made.cluster(places), scores, used, policies=chosen, capacity_query=scores,
        vm_mean_query=used, vm_deviation_query={u: [deviation] * 4 for u in used})
    went = travelled(found, chosen)
    assert len(went.moved) == emptied


def test_nothing_moves_while_the_scope_cools():
    """One move a cycle, and hosts that stay hot: the cooldown alone holds."""
    places = {f'i{n}': 'h1' for n in range(8)}
    one = made.policy_set(max_migrations_per_cycle=1)
    found = past(dict.fromkeys(places, 1.0), 12, one, places)
    went = travelled(found, one, cooldown=900.0, lag=0.0, options={'settle_seconds': 0.0})
    assert [m.at - made.START for m in went.moved][:3] == [100.0, 1000.0, 1900.0]
    assert went.idle['the scope cools down for another N s'] == 8


def test_scores_settle_before_the_next_plan():
    places = {f'i{n}': 'h1' for n in range(8)}
    one = made.policy_set(max_migrations_per_cycle=1)
    found = past(dict.fromkeys(places, 1.0), 6, one, places)
    went = travelled(found, one, cooldown=0.0, options={'settle_seconds': 600.0})
    assert [m.at - made.START for m in went.moved][:2] == [100.0, 1000.0]


def test_an_instance_that_came_cools_down():
    """Load that jumps from host to host cannot pull it along at once."""
    places = {'a': 'h1', 'c': 'h2', 'd': 'h3'}
    used = {'a': [3.0] * 12, 'c': [1.0] * 12, 'd': [1.0] * 12}
    found = past(used, policies=made.policy_set(threshold=0.0), places=places)
    went = travelled(found, made.policy_set(threshold=0.0), cooldown=0.0,
                     instance_cooldown=10_000.0)
    assert max([0, *(sum(m.instance == n for m in went.moved) for n in range(3))]) <= 1


def test_a_longer_interval_plans_less_often():
    assert travelled(past(), interval=2 * made.STEP).cycles == 4
    assert travelled(past(), interval=1.0).cycles == 8


def test_the_budget_bounds_a_cycle():
    places = {f'i{n}': 'h1' for n in range(8)}
    one = made.policy_set(max_migrations_per_cycle=2)
    went = travelled(past(dict.fromkeys(places, 1.0), 2, one, places), one)
    assert len(went.moved) == 2


def test_moves_under_way_use_up_the_budget():
    places = {f'i{n}': 'h1' for n in range(8)}
    two = made.policy_set(max_migrations_per_cycle=2)
    slow = simulated_executor.ConcurrencyLimits(bandwidth=1000 / 700, per_source=2)
    found = past(dict.fromkeys(places, 1.0), 4, two, places)
    went = travelled(found, two, cooldown=0.0, limits=slow)
    # Two begin at once and last two more cycles; then they settle.
    assert [m.at - made.START for m in went.moved] == [700.0, 700.0]
    assert went.idle['the budget is used up by moves that are under way or have just ended'] == 2


def test_cooldown_begins_again_when_the_instance_has_come():
    """One instance among three hosts, of which the one it is on is the hottest."""
    places = {'a': 'h1', 'b': 'h2'}
    chosen = made.policy_set(threshold=0.05)
    hosts = {'h1': [0.9] * 16, 'h2': [0.55] * 16, 'h3': [0.1] * 16}
    used = {'a': [2.0] * 16, 'b': [2.0] + [2.0] * 15}
    hosts['h3'] = [0.1] * 3 + [0.7] * 13
    hosts['h1'] = [0.9] * 3 + [0.2] * 13
    found = made.built(made.cluster(places), hosts, used, policies=chosen)
    slow = simulated_executor.ConcurrencyLimits(bandwidth=1000 / 400)

    def moves_of_a(instance_cooldown):
        went = travelled(found, chosen, cooldown=0.0, instance_cooldown=instance_cooldown,
                         limits=slow, lag=0.0, options={'settle_seconds': 0.0})
        return [m.at - made.START for m in went.moved if m.instance == 0]

    first, second = moves_of_a(900.0)[:2]
    assert first == 400.0
    # It came at 400 and may be planned from 1,300 on: at 1,500, not at 900.
    assert second == 1500.0 + 400.0
    assert moves_of_a(10_000.0) == [400.0]


def test_groups_and_services_hold_as_for_the_engine():
    """The only cooler hosts are one that is down and one with its group's member."""
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset(PLACES))
    found = past(services=[model.Service('h3', state='down')], groups=(group,))
    went = travelled(found, options={'max_down_fraction': 0.5})
    assert went.moved == () and went.rejections


def test_a_drain_goes_on_over_cycles_and_empties_the_host():
    places = {f'i{n}': 'h1' for n in range(5)}
    one = made.policy_set(max_migrations_per_cycle=2)
    found = past(dict.fromkeys(places, 0.5), 12, one, places,
                 services=[model.Service('h1', status='disabled', disabled_reason='broken')])
    went = travelled(found, one, options={'evacuate_disabled_hosts': True})
    assert went.counts[-1, 0] == 0 and len(went.moved) == 5


def test_an_instance_that_goes_while_it_is_moved_ends_the_move():
    used = {'a': 3.0, 'b': [2.0] + [None] * 7, 'c': 2.0, 'd': 2.0}
    series = {u: v if isinstance(v, list) else [v] * 8 for u, v in used.items()}
    hosts = {'h1': [0.6] + [0.4] * 7, 'h2': [0.3] * 8, 'h3': [0.3] * 8}
    found = made.built(made.cluster(PLACES, memory_mb=10_000), hosts, series)
    went = travelled(found)
    assert went.cancelled == {'the instance is gone': 1} and went.moved == ()


def test_untrusted_metrics_move_nothing():
    found = made.built(made.cluster(PLACES), {'h1': [1.5] * 4, 'h2': [0.3] * 4, 'h3': [0.3] * 4},
                       {u: [v] * 4 for u, v in HOT.items()})
    went = travelled(found)
    assert went.moved == ()
    assert any(reason.startswith('metrics are not trusted') for reason in went.idle)


def test_without_profiles_the_planner_moves_nothing():
    chosen = made.policy_set(vm_profile_query=None)
    found = made.built(made.cluster(PLACES), made.scores_of(
        PLACES, {u: [v] * 4 for u, v in HOT.items()}), None, policies=chosen)
    assert travelled(found, chosen).moved == ()


def test_a_plan_that_the_checker_refuses_is_not_carried_out(monkeypatch):
    """A fault that our planner cannot be made to have."""
    from kronos_nova.rebalancer import checker
    monkeypatch.setattr(checker, 'check', lambda *a: (model.Rejection('over-budget', 'x'),))
    went = travelled(past())
    assert went.moved == () and went.idle == {'the checker refused the plan': 8}


def test_the_same_journey_twice_is_the_same():
    def document():
        found = past()
        return json.dumps(review.review_journey(found, travelled(found),
                                                review.ReviewQuestion(made.SCOPES)))

    assert document() == document()


def test_candidates_do_not_see_each_other():
    found = past()
    before = found.usage.copy(), found.score.copy(), dataclasses.asdict(found.cluster)
    travelled(found)
    assert (found.usage == before[0]).all() and (found.score == before[1]).all()
    assert dataclasses.asdict(found.cluster) == before[2]
