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


"""Brute force after every plan: nothing that helps was left undone."""

import dataclasses
import itertools

import hypothesis

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from tests.unit import clouds

BUDGET = 40
FAR = 1e-7


def after(request, plan):
    """Return a simulation of the cloud after the plan, without further moves."""
    done = clouds.moved(request, plan)
    return sim.Simulation(done.cluster, done.scores, done.policies, done.history, done.options)


def excess(state):
    total = 0.0
    for p, policy in enumerate(state.policies):
        high = max(state.score[p, h] for h in range(len(state.hosts)) if state.givers[h])
        low = min(state.score[p, h] for h in range(len(state.hosts)) if state.takers[h])
        total += policy.weight * max(0.0, high - low - policy.threshold)
    return total


def gain(state, limits, *pairs):
    """Return the fall in combined imbalance beyond prices and soft groups, if every
    move is legal in this order, the excess over the thresholds falls and no policy
    ends above both its limit and its threshold."""
    before, above = state.compute_combined(), excess(state)
    done, cost = [], 0.0
    for n, host in pairs:
        move = state.build_move(n, host, model.Phase.SPREAD)
        if state.judge_move(move) is not None:
            break
        cost += state.cost[n] / 1024 * state.options.minimum_gain + max(0.0, state.soft_cost(move))
        state.apply_move(move)
        done.append(move)
    fall = before - state.compute_combined() - cost
    good = (len(done) == len(pairs) and excess(state) < above - FAR
            and all(value <= limit + FAR for value, limit in zip(
                state.compute_imbalances(), limits, strict=True)))
    for move in reversed(done):
        state.undo_move(move)
    return fall if good else 0.0


def improvements(state, moved):
    limits = [max(value, policy.threshold) for value, policy in zip(
        state.compute_imbalances(), state.policies, strict=True)]
    free = [n for n, u in enumerate(state.uuids) if u not in moved]
    for n in free:
        for host in range(len(state.hosts)):
            if host != state.place[n] and gain(state, limits, (n, host)) > FAR:
                yield state.uuids[n], state.hosts[host]
    for n, m in itertools.combinations(free, 2):
        here, there = int(state.place[n]), int(state.place[m])
        if here == there:
            continue
        if max(gain(state, limits, (n, there), (m, here)),
               gain(state, limits, (m, here), (n, there))) > FAR:
            yield state.uuids[n], state.uuids[m]


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(mode='spread', clean=True, drains=False, budget=BUDGET,
                                     hard_repairs=False, soft_repairs=False,
                                     objective='balanced'))
def test_no_plan_ends_with_an_improving_move_or_swap_left(knobs):
    knobs = dataclasses.replace(knobs, instances=min(knobs.instances, 14))
    request = clouds.request(knobs)
    plan = planner.plan(request)
    if all(p.imbalance_after <= p.threshold + FAR for p in plan.policies):
        return
    state = after(request, plan)
    found = next(improvements(state, {m.instance_uuid for m in plan.moves}), None)
    assert found is None, f'{found} would have helped'


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(mode='spread', drains=False, hard_repairs=False,
                                     soft_repairs=False, objective='balanced'))
def test_combined_imbalance_never_ends_above_its_start(knobs):
    plan = planner.plan(clouds.request(knobs))
    if plan.combined_before is not None:
        assert plan.combined_after <= plan.combined_before + 1e-8


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(mode='spread', drains=False, hard_repairs=False,
                                     soft_repairs=False, budget=8))
def test_balanced_is_no_farther_from_the_thresholds_than_kronos(knobs):
    """Of plans that both reach them, ours has no more moves."""
    def run(objective):
        request = clouds.request(dataclasses.replace(knobs, objective='balanced'))
        return planner.plan(dataclasses.replace(request, options=dataclasses.replace(
            request.options, objective=objective, minimum_gain=0.0)))

    def reached(plan):
        return all(p.imbalance_after is None or p.imbalance_after <= p.threshold + FAR
                   for p in plan.policies)

    ours, theirs = run('balanced'), run('kronos')
    if reached(theirs):
        assert reached(ours)
        assert len(ours.moves) <= len(theirs.moves)
