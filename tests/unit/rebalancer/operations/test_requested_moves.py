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

"""Moves that operators request: judged by every rule, in waves that the checker passes."""

from collections import Counter
import dataclasses

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.planning import failover_guard
from kronos_nova.rebalancer.planning import planner
from tests.scenarios import loader
from tests.unit import clouds
from tests.unit.rebalancer.planning import test_failover
from tests.unit.rebalancer.planning import test_failover_guard

A0 = loader.uuid_of('a0')


def undelayed(request):
    begun = planner.prepare_planning_input(request)
    return dataclasses.replace(begun, history=dataclasses.replace(
        begun.history, cooling={}, scope_cooling=0.0, waiting=None))


def view_of(request):
    return cluster_view.ClusterView(
        request.cluster, request.options, request.history, request.scores,
        {p.name: p.capacity_threshold if request.policies.mode == 'pack' else 1.0
         for p in request.policies.enabled_policies}, draining=request.history.draining)


@clouds.examples(300)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_each_requested_move_is_planned_or_refused_with_a_reason(knobs, rng):
    """requested_moves.plan checks its own plan: it raises no error and drops no request."""
    request = clouds.request(knobs)
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.hosts)
    hypothesis.assume(uuids)
    wishes = [requested_moves.RequestedMove(uuid, request.cluster.instances[uuid].host,
                                            tuple(rng.sample(hosts,
                                                             rng.randint(1, min(3, len(hosts))))))
              for uuid in rng.sample(uuids, rng.randint(1, min(6, len(uuids))))]
    answer = requested_moves.plan_requested_moves(request, wishes)
    had = {m.instance_uuid: m for m in answer.plan.moves}
    assert had.keys().isdisjoint(answer.refused)
    assert had.keys() | answer.refused.keys() == {w.instance_uuid for w in wishes}
    for wish in wishes:
        if wish.instance_uuid in had:
            move = had[wish.instance_uuid]
            assert move.to_host in wish.hosts and move.phase is model.Phase.REQUESTED
    if answer.plan.reason is not None:
        assert not answer.plan.moves


@clouds.examples(300)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_one_wish_is_refused_exactly_when_a_rule_refuses_it(knobs, rng):
    request = clouds.request(knobs)
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.hosts)
    hypothesis.assume(uuids)
    uuid, host = rng.choice(uuids), rng.choice(hosts)
    source = request.cluster.instances[uuid].host
    answer = requested_moves.plan_requested_moves(
        request, [requested_moves.RequestedMove(uuid, source, (host,))])
    hypothesis.assume(answer.plan.reason is None)
    move = model.Move(uuid, source, host, model.Phase.REQUESTED)
    no = constraints.judge_move(view_of(undelayed(request)), move)
    assert answer.refused.get(uuid) == no
    assert len(answer.plan.moves) == (no is None)


@clouds.examples(300)
@hypothesis.given(clouds.knobs(tight=True), st.randoms(use_true_random=False))
def test_a_refused_move_stays_refused_after_all_others_have_moved(knobs, rng):
    """Each move is requested again after the others have left; the prediction contains no move
    that is unsafe in every order."""
    request = clouds.request(knobs)
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.scope_hosts)
    hypothesis.assume(uuids)
    wishes = [requested_moves.RequestedMove(uuid, request.cluster.instances[uuid].host,
                                            tuple(rng.sample(hosts, min(2, len(hosts)))))
              for uuid in rng.sample(uuids, min(8, len(uuids)))]
    answer = requested_moves.plan_requested_moves(request, wishes)
    hypothesis.assume(answer.plan.reason is None)
    begun = undelayed(request)
    assert answer.plan.draining == begun.history.draining
    simulation = sim.Simulation(begun.cluster, begun.scores, begun.policies, begun.history,
                                begun.options, seed=begun.seed, now=begun.now)
    before = simulation.compute_combined()
    for move in answer.plan.moves:
        simulation.apply_move(move)
    if simulation.trusted and simulation.has_comparable_hosts():
        assert answer.plan.combined_before == before
        assert answer.plan.combined_after == pytest.approx(simulation.compute_combined(), abs=1e-12)
    for wish in wishes:
        no = answer.refused.get(wish.instance_uuid)
        if no is None or 'no-order' in {r.rule for r in answer.refused.values()}:
            continue  # of moves that are in no order others may have been counted with
        for host in wish.hosts:
            move = model.Move(wish.instance_uuid, wish.from_host, host, model.Phase.REQUESTED)
            assert constraints.judge_move(simulation.view, move) is not None


def test_a_plan_that_the_checker_refuses_is_no_plan(monkeypatch):
    asked = request(completed=())
    monkeypatch.setattr(requested_moves.checker, 'check', lambda *args: (
        model.Rejection('claims', 'host b is full'),))
    with pytest.raises(exception.PlanRefused, match='claims: host b is full'):
        requested_moves.plan_requested_moves(asked,
                                             [requested_moves.RequestedMove(A0, 'a', ('b',))])


def request(name='spread_waits_until_scores_show_the_last_move', **history):
    found = loader.load(loader.HERE / f'{name}.yaml').request
    return dataclasses.replace(found, history=dataclasses.replace(found.history, **history))


def test_a_move_without_a_safe_order_is_refused_and_not_counted(monkeypatch):
    """None is known of which that is so."""
    asked = request(completed=())
    monkeypatch.setattr(requested_moves.waves, 'order_moves', lambda view,
                        moves: requested_moves.waves.OrderedMoves(
        (), Counter()))
    answer = requested_moves.plan_requested_moves(asked,
                                                  [requested_moves.RequestedMove(A0, 'a', ('b',))])
    assert answer.refused[A0].rule == 'no-order' and not answer.plan.moves
    assert answer.plan.combined_after == answer.plan.combined_before


def test_cooldowns_and_settling_scores_hold_no_requested_move():
    asked = request(cooling={A0: 600.0}, scope_cooling=300.0, waiting='not yet', completed=())
    assert not planner.plan(asked).moves
    answer = requested_moves.plan_requested_moves(asked,
                                                  [requested_moves.RequestedMove(A0, 'a', ('b',))])
    assert [(m.instance_uuid, m.from_host, m.to_host) for m in answer.plan.moves] == [
        (A0, 'a', 'b')]
    assert answer.plan.combined_after < answer.plan.combined_before


def test_a_requested_move_may_raise_the_imbalance():
    # A move that has just ended is laid over the scores, and b is the hotter one.
    answer = requested_moves.plan_requested_moves(request(),
                                                  [requested_moves.RequestedMove(A0, 'a', ('b',))])
    (move,) = answer.plan.moves
    assert move.improvement < 0 and answer.plan.combined_after > answer.plan.combined_before


def test_a_pause_and_a_quarantine_hold_it():
    answer = requested_moves.plan_requested_moves(request(paused='a change'),
                                                  [requested_moves.RequestedMove(A0, 'a', ('b',))])
    assert answer.plan.reason == 'a change' and answer.refused[A0].rule == 'held'
    answer = requested_moves.plan_requested_moves(request(quarantined={A0: -1.0}),
                                                  [requested_moves.RequestedMove(A0, 'a', ('b',))])
    assert answer.refused[A0].rule == 'quarantined' and not answer.plan.moves


def test_a_requested_move_takes_the_first_allowed_host():
    asked = request()
    closed = {**asked.cluster.services, 'b': dataclasses.replace(
        asked.cluster.services['b'], status='disabled')}
    asked = dataclasses.replace(asked, cluster=dataclasses.replace(
        asked.cluster, services=closed))
    answer = requested_moves.plan_requested_moves(
        asked, [requested_moves.RequestedMove(A0, 'a', ('b', 'nowhere'))])
    assert answer.refused[A0].rule == 'service-disabled'
    back = dataclasses.replace(asked, cluster=dataclasses.replace(asked.cluster, services={
        **closed, 'b': dataclasses.replace(closed['b'], status='enabled')}))
    (move,) = requested_moves.plan_requested_moves(back,
                                                   [requested_moves.RequestedMove(
                                                       A0, 'a', ('a', 'b'))]).plan.moves
    assert move.to_host == 'b', 'it is on the first one already'


def test_an_instance_leaves_a_disabled_host_on_request():
    asked = request()
    asked = dataclasses.replace(asked, cluster=dataclasses.replace(
        asked.cluster, services={**asked.cluster.services, 'a': dataclasses.replace(
            asked.cluster.services['a'], status='disabled')}))
    assert requested_moves.plan_requested_moves(
        asked, [requested_moves.RequestedMove(A0, 'a', ('b',))]).plan.moves


def test_an_instance_that_has_moved_on_stays_where_it_is():
    answer = requested_moves.plan_requested_moves(request(),
                                                  [requested_moves.RequestedMove(A0, 'b', ('a',))])
    assert answer.refused[A0].rule == 'moved-away' and not answer.plan.moves


def test_a_missing_instance_is_refused_by_name():
    answer = requested_moves.plan_requested_moves(
        request(), [requested_moves.RequestedMove('gone', 'a', ('b',)),
                    requested_moves.RequestedMove(A0, 'a', ())])
    assert answer.refused['gone'].rule == 'no-such-instance'
    assert answer.refused[A0].rule == 'no-destination'


def request_tight(mode):
    """If b goes to h2, nothing is left there for the instance of h0."""
    request = test_failover_guard.with_mode(test_failover.small(4, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1), ('e', 'h1', 1), ('d', 'h3', 2)]), mode)
    return requested_moves.plan_requested_moves(request, [
        requested_moves.RequestedMove('b', 'h1', ('h2',)),
        requested_moves.RequestedMove('c', 'h1', ('h3',))])


def test_requested_move_that_breaks_the_certificate_is_refused_and_the_others_are_not():
    answer = request_tight(model.FailoverMode.ENFORCE)
    assert [m.instance_uuid for m in answer.plan.moves] == ['c'] and answer.plan.reason is None
    assert answer.refused == {'b': model.Rejection(
        'breaks-failover', f'instance b: {answer.plan.warnings[-1]}')}
    assert 'the instances of h0 would not all find places' in answer.refused['b'].detail


@pytest.mark.parametrize('mode', [model.FailoverMode.WARN, model.FailoverMode.OFF])
def test_requested_move_that_breaks_the_certificate_is_made_with_a_warning(mode):
    answer = request_tight(mode)
    assert [m.instance_uuid for m in answer.plan.moves] == ['b', 'c'] and not answer.refused
    assert ['h0' in warning for warning in answer.plan.warnings] == (
        [True] if mode is model.FailoverMode.WARN else [])


def test_moves_that_the_rules_refuse_cost_no_certificate(monkeypatch):
    """A first certificate of a large cloud takes half a minute."""
    monkeypatch.setattr(failover_guard, 'guard_plan', lambda *_: pytest.fail('a certificate'))
    request = test_failover_guard.with_mode(test_failover.small(2, [
        ('a', 'h0', 2), ('b', 'h1', 4)]), model.FailoverMode.ENFORCE)
    answer = requested_moves.plan_requested_moves(
        request, [requested_moves.RequestedMove('a', 'h0', ('h1',))])
    assert answer.refused['a'].rule == 'no-room'


def test_plan_of_refused_moves_alone_gives_no_reason_to_ask_again():
    request = test_failover_guard.with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), model.FailoverMode.ENFORCE)
    answer = requested_moves.plan_requested_moves(
        request, [requested_moves.RequestedMove('b', 'h1', ('h2',))])
    assert not answer.plan.moves and answer.plan.reason is None
    assert answer.refused['b'].rule == 'breaks-failover'
