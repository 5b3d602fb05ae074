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

"""Properties of every plan for any cloud."""

import copy
import dataclasses
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.planning import planner
from tests.unit import clouds


def ceilings(request):
    pack = request.policies.mode == 'pack'
    return {p.name: p.capacity_threshold if pack else 1.0
            for p in request.policies.enabled_policies}


def refusals(request, plan, budget=None):
    return checker.check(plan, request.cluster, request.options, request.history, request.scores,
                         ceilings(request), request.budget if budget is None else budget)


@clouds.examples(600)
@hypothesis.given(knobs=clouds.knobs())
def test_every_plan_passes_the_checker(knobs):
    request = clouds.request(knobs)
    plan = planner.plan(request)
    assert refusals(request, plan) == ()
    assert plan.moves or plan.reason, 'nothing moves and no reason is given'


@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs())
def test_defect_24_plans_are_bounded_deterministic_and_keep_their_input(knobs):
    request = clouds.request(knobs)
    before = copy.deepcopy((request.cluster, request.scores, request.history))
    plan = planner.plan(request)
    assert before == (request.cluster, request.scores, request.history)
    assert plan == planner.plan(clouds.request(knobs))
    assert len(plan.moves) <= request.budget
    assert len({m.instance_uuid for m in plan.moves}) == len(plan.moves)
    assert not plan.truncated


@clouds.examples(120)
@hypothesis.given(knobs=clouds.knobs(drains=False, hard_repairs=False, soft_repairs=False,
                                     mode='spread'))
def test_no_policy_ends_worse_and_above_its_threshold(knobs):
    plan = planner.plan(clouds.request(knobs))
    for report in plan.policies:
        if report.imbalance_before is not None:
            assert report.imbalance_after <= max(report.imbalance_before,
                                                 report.threshold) + 1e-8


@clouds.examples(80)
@hypothesis.given(knobs=clouds.knobs(drains=False, hard_repairs=False, soft_repairs=False,
                                     mode='spread'))
def test_the_excess_over_the_thresholds_never_grows(knobs):
    """``combined`` may: below a threshold an imbalance does not matter."""
    request = clouds.request(knobs)
    plan = planner.plan(request)
    if plan.combined_before is None:
        return
    weights = {p.name: p.weight for p in request.policies.enabled_policies}
    before, after = (sum(weights[p.name] * max(0.0, getattr(p, end) - p.threshold)
                         for p in plan.policies)
                     for end in ('imbalance_before', 'imbalance_after'))
    assert after <= before + 1e-8


class World:
    """Nova, Placement and the load, as a plan's tasks are carried out.

    Knows where instances truly are; a move under way counts at both ends.
    Judged by counting, not by kronos_nova.constraints.
    """

    def __init__(self, request):
        self.request = request
        self.cluster = request.cluster
        self.host = {u: i.host for u, i in self.cluster.instances.items()}
        self.coming = {}
        for f in self.cluster.flights:
            if f.to_host is not None:
                self.coming.setdefault(f.instance_uuid, f.to_host)
        self.flying = {f.instance_uuid for f in self.cluster.flights}
        # An instance that nova is migrating already is in ``used`` at both ends.
        self.base = {(h, c): amount for h, host in self.cluster.hosts.items() if host.provider
                     for c, amount in host.provider.used.items()}
        for u in {f.instance_uuid for f in self.cluster.flights
                  if not any(o.source == 'nova' and o.to_host is not None
                             and o.instance_uuid == f.instance_uuid
                             for o in self.cluster.flights)}:
            self._charge(u, self.coming.get(u), 1)

    def _charge(self, uuid, host, sign):
        for c, amount in self.cluster.instances[uuid].claims.items():
            if (host, c) in self.base:
                self.base[host, c] += sign * amount

    def present(self, group, host, but):
        return {u for u in group.members if u != but
                and (self.host.get(u) == host or self.coming.get(u) == host)}

    def start(self, move):
        self.assert_allowed(move)
        self.flying.add(move.instance_uuid)
        self.coming[move.instance_uuid] = move.to_host
        self._charge(move.instance_uuid, move.to_host, 1)

    def finish(self, move, success):
        self.flying.discard(move.instance_uuid)
        del self.coming[move.instance_uuid]
        if success:
            self.host[move.instance_uuid] = move.to_host
        self._charge(move.instance_uuid, move.from_host if success else move.to_host, -1)

    def fill(self, policy, host):
        scores = self.request.scores.policies[policy]
        start = {u: i.host for u, i in self.cluster.instances.items()}
        total = scores.fill[host]
        for u, usage in scores.usages.items():
            was = start[u] == host
            is_now = self.host[u] == host or self.coming.get(u) == host
            total += (is_now - was) * usage / scores.capacity[host]
        return total

    def assert_allowed(self, move):
        uuid, to = move.instance_uuid, move.to_host
        instance, host = self.cluster.instances[uuid], self.cluster.hosts[to]
        assert self.host[uuid] == move.from_host
        assert uuid not in self.flying
        service = self.cluster.services[to]
        assert (service.status, service.state, service.forced_down) == ('enabled', 'up', False)
        assert self.cluster.services[move.from_host].up
        assert to not in self.request.history.quarantined_hosts
        for group in self.cluster.groups:
            if uuid not in group.members:
                continue
            assert not (group.members & self.flying) - {uuid}
            if group.policy == 'anti-affinity':
                assert len(self.present(group, to, uuid)) < group.max_server_per_host
            if group.policy == 'affinity':
                assert any(self.host.get(u) == to for u in group.members - {uuid})
        self.assert_hints(instance, to)
        if self.cluster.placement_known:
            for c, amount in instance.claims.items():
                if c != 'DISK_GB' or self.request.options.enforce_placement_disk:
                    used = self.base[to, c]
                    assert used + amount <= host.provider.inventories[c].capacity
        if move.phase != 'spread':
            for name, limit in ceilings(self.request).items():
                scores = self.request.scores.policies[name]
                if scores.untrusted or to not in scores.fill or to not in scores.capacity:
                    continue
                usage = scores.usages.get(uuid, 0.0) / scores.capacity[to]
                assert self.fill(name, to) + usage <= limit + 1e-8


    def assert_hints(self, instance, to):
        enabled = self.request.options.nova_enabled_filters
        if 'DifferentHostFilter' in enabled:
            for u in instance.scheduler_hints.get('different_host', ()):
                assert u not in self.flying or u in self.coming
                assert to not in (self.host.get(u), self.coming.get(u))
        beside = instance.scheduler_hints.get('same_host', ())
        if 'SameHostFilter' in enabled and beside:
            assert any(self.host.get(u) == to and u not in self.flying for u in beside)


def carry_out(rng, world, plan, failure):
    """Any order that ``requires`` permits; failures cancel dependents."""
    waiting, flying, done, over = list(plan.moves), [], set(), set()
    while waiting or flying:
        for move in list(waiting):
            if set(move.requires) & over:
                waiting.remove(move)
                over.add(move.instance_uuid)
        ready = [m for m in waiting if set(m.requires) <= done]
        assert ready or flying or not waiting, 'moves wait for each other for ever'
        if not ready and not flying:
            return
        pick = rng.randrange(len(ready) + len(flying))
        if pick < len(ready):
            world.start(ready[pick])
            waiting.remove(ready[pick])
            flying.append(ready[pick])
            continue
        move = flying.pop(pick - len(ready))
        success = rng.random() >= failure
        world.finish(move, success)
        (done if success else over).add(move.instance_uuid)


@clouds.examples(500)
@hypothesis.given(knobs=clouds.knobs())
def test_any_order_and_any_failure_keep_every_hard_rule(knobs):
    request = clouds.request(knobs)
    # Completed moves shift the fill for a time; the world does not model that.
    request = dataclasses.replace(
        request, history=dataclasses.replace(request.history, completed=()))
    plan = planner.plan(request)
    if not plan.moves:
        return
    rng = random.Random(knobs.seed)
    for failure in (0.0, 0.0, 0.3, 0.3, 0.7):
        carry_out(rng, World(request), plan, failure)


@clouds.examples(500)
@hypothesis.given(knobs=clouds.knobs(), share=st.sampled_from([0.1, 0.3, 0.6]))
def test_hints_refuse_no_whole_plan_and_hold_in_any_order(knobs, share):
    """Also among requested moves."""
    rng = random.Random(knobs.seed)
    request = clouds.hinted(clouds.request(knobs), rng, share)
    request = dataclasses.replace(
        request, history=dataclasses.replace(request.history, completed=()))
    plan = planner.plan(request)
    assert refusals(request, plan) == ()
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.scope_hosts)
    answer = requested_moves.plan_requested_moves(request, [
        requested_moves.RequestedMove(u, request.cluster.instances[u].host,
                                      tuple(rng.sample(hosts, min(3, len(hosts)))))
        for u in rng.sample(uuids, min(10, len(uuids)))])
    for found in (plan, answer.plan):
        for failure in (0.0, 0.3, 0.7):
            carry_out(rng, World(request), found, failure)


@pytest.mark.parametrize('mode', ['spread', 'pack'])
@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs(clean=True, budget=5, mode='spread'))
def test_a_steady_cloud_settles_and_no_placement_comes_twice(mode, knobs):
    request = clouds.request(dataclasses.replace(knobs, mode=mode))
    seen = set()
    for _ in range(60):
        placement = tuple(sorted((u, i.host) for u, i in request.cluster.instances.items()))
        plan = planner.plan(request)
        assert refusals(request, plan) == ()
        if not plan.moves:
            return
        assert placement not in seen, 'instances go round in circles'
        seen.add(placement)
        request = clouds.moved(request, plan)
    raise AssertionError('it still moves after 60 cycles')


@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs(clean=True, mode='pack', drains=False, groups=0))
def test_pack_empties_hosts_whole_or_not_at_all(knobs):
    """With enough budget no host is left half emptied by a drain."""
    request = dataclasses.replace(clouds.request(knobs), budget=100)
    plan = planner.plan(request)
    state = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                           request.options)
    over = {h for h in state.hosts for name, fill in state.view.map_known_fills(h).items()
            if fill > state.ceilings[name]}
    for move in plan.moves:
        state.apply_move(move)
    for host in {m.from_host for m in plan.moves if m.phase is model.Phase.PACK} - over:
        assert not state.list_on_host(host).size, host
    received = {m.to_host for m in plan.moves}
    for host in received & set(state.hosts) - {m.to_host for m in plan.moves
                                               if m.from_host in over}:
        assert any(i.host == host for i in request.cluster.instances.values()), \
            f'{host} was empty and a drain filled it'
