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
    assert planning_pipeline._keep_failover(request, plan_of(), None) == (plan_of(), None)


def test_pipeline_refuses_places_that_the_checker_refuses(monkeypatch):
    request = with_mode(test_failover.small(3, [
        ('a', 'h0', 4), ('b', 'h1', 1), ('c', 'h1', 1)]), ENFORCE)
    monkeypatch.setattr(failover_guard, '_list_broken', lambda today, after: [])
    with pytest.raises(exception.PlanRefused, match='no-place'):
        planning_pipeline._keep_failover(request, plan_of(('b', 'h1', 'h2')), None)


@clouds.examples(100)
@hypothesis.given(st.one_of(clouds.knobs(), clouds.knobs(trees=True)))
def test_no_plan_turns_a_safe_host_unsafe(knobs):
    request = with_mode(test_failover.enforce(clouds.request(knobs)), ENFORCE)
    plan = planner.plan(request)
    guarded = failover_guard.guard_plan(request, plan, None)
    safe = {hosts for hosts, v in guarded.today.verdicts.items()
            if v.state is failover.FailureState.SAFE}
    places = {hosts: guarded.after.verdicts[hosts].places for hosts in safe}
    assert failover_checker.check_places(
        places, request.cluster, request.options, request.history, request.scores,
        sim.compute_ceilings(request.policies, request.options), guarded.plan.moves) == ()
    planning_pipeline.check_plan(guarded.plan, request)
