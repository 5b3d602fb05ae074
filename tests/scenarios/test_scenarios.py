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

"""Every scenario is planned, checked by the checker, and held to its text."""

import copy
import dataclasses
import itertools

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation
from kronos_nova.rebalancer.planning import planner
from tests.scenarios import loader
from tests.unit import rule_names


@pytest.mark.parametrize('path', loader.files(), ids=lambda p: p.stem)
def test_plan_keeps_rules_and_expectations_of_scenario(path):
    scenario = loader.load(path)
    request = scenario.request
    before = copy.deepcopy(request.cluster), copy.deepcopy(request.scores)
    plan = planner.plan(request)
    assert before == (request.cluster, request.scores), 'planning changed its input'
    assert plan == planner.plan(request), 'the same request gave another plan'
    wrong = checker.check(plan, request.cluster, request.options, request.history,
                          request.scores, ceilings(request), request.budget)
    assert wrong == ()
    hold_to(scenario, plan)


#: What can come true only after a plan was made: pre-flight judges it.
AFTERWARDS = {'drain-over', 'moved-away', 'no-such-instance'}
#: What holds for an evacuation of a failed host alone: tests of the failover certificate judge it.
FAILED = {'affinity-in-flight', 'evacuation-unknown', 'evacuation-vtpm'}


def test_each_rule_refuses_some_scenario_move():
    told = set()
    for request in (loader.load(path).request for path in loader.files()):
        state = simulation.Simulation(request.cluster, request.scores, request.policies,
                                      request.history, request.options)
        for instance in request.cluster.instances.values():
            told.update(found.rule for host in request.cluster.hosts for phase in model.Phase
                        if (found := state.judge_move(model.Move(
                            instance.uuid, instance.host, host, phase))) is not None)
    assert rule_names.produced('constraints') - told == AFTERWARDS | FAILED


def test_each_rule_rejects_under_its_own_codes():
    for request in (loader.load(path).request for path in loader.files()):
        view = simulation.Simulation(request.cluster, request.scores, request.policies,
                                     request.history, request.options).view
        for instance, host, phase in itertools.product(
                request.cluster.instances.values(), request.cluster.hosts, model.Phase):
            move = model.Move(instance.uuid, instance.host, host, phase)
            for rule in constraints.ALL:
                if rule.kind is constraints.rules.RuleKind.FAILURE:
                    continue
                no = rule.judge(view, move)
                assert no is None or no.rule in rule.codes, (rule.name, no)


def ceilings(request):
    return simulation.Simulation(request.cluster, request.scores, request.policies,
                                 request.history, request.options).ceilings


def hold_to(scenario, plan):
    expect = dict(scenario.expect)
    moves = [f'{scenario.names[m.instance_uuid]} {m.from_host} -> {m.to_host}'
             for m in plan.moves]
    if 'moves' in expect:
        assert sorted(moves) == sorted(expect.pop('moves')), plan
    if 'count' in expect:
        assert len(moves) == expect.pop('count'), (moves, plan)
    for host, number in expect.pop('per_host', {}).items():
        assert sum(m.to_host == host for m in plan.moves) == number, moves
    if 'at_least' in expect:
        assert len(moves) >= expect.pop('at_least'), plan
    if 'phases' in expect:
        assert sorted({str(m.phase) for m in plan.moves}) == sorted(expect.pop('phases')), moves
    for text in expect.pop('not_moved', ()):
        assert all(scenario.names[m.instance_uuid] != text for m in plan.moves), moves
    for host in expect.pop('not_from', ()):
        assert all(m.from_host != host for m in plan.moves), moves
    for host in expect.pop('not_to', ()):
        assert all(m.to_host != host for m in plan.moves), moves
    if 'reason' in expect:
        assert expect.pop('reason') in (plan.reason or ''), plan
    for text in expect.pop('warnings', ()):
        assert any(text in w for w in plan.warnings), plan.warnings
    if expect.pop('no_warnings', False):
        assert plan.warnings == ()
    for rule in expect.pop('rejected_by', ()):
        assert plan.rejections.get(rule), plan.rejections
    for name, limit in expect.pop('imbalance_at_most', {}).items():
        report = {p.name: p for p in plan.policies}[name]
        assert report.imbalance_after <= limit + 1e-9, plan
    if 'waves' in expect:
        assert max(m.wave for m in plan.moves) + 1 == expect.pop('waves'), plan.moves
    for name, others in expect.pop('requires', {}).items():
        required = next(m.requires for m in plan.moves if scenario.names[m.instance_uuid] == name)
        assert sorted(scenario.names[u] for u in required) == sorted(others), plan.moves
    for name, hosts in expect.pop('alternates', {}).items():
        found = next(m.alternates for m in plan.moves if scenario.names[m.instance_uuid] == name)
        assert list(found) == hosts, plan.moves
    if 'held' in expect:
        texts = [no.detail for no in plan.held]
        for uuid, name in scenario.names.items():
            texts = [text.replace(uuid, name) for text in texts]
        wanted = expect.pop('held')
        assert len(texts) == len(wanted), texts
        assert all(any(want in text for text in texts) for want in wanted), texts
    if 'undrained' in expect:
        wanted = expect.pop('undrained')
        assert len(plan.undrained) == len(wanted), plan.undrained
        assert all(any(want in no.detail for no in plan.undrained) for want in wanted)
    if 'draining' in expect:
        assert plan.draining == frozenset(expect.pop('draining')), plan
    for host in expect.pop('emptied', ()):
        gone = {m.instance_uuid for m in plan.moves if m.from_host == host}
        left = [i for i in scenario.request.cluster.instances.values()
                if i.host == host and i.uuid not in gone]
        assert not left and all(m.to_host != host for m in plan.moves), moves
    if expect.pop('settled', False):
        assert_settled(scenario, plan)
    assert not expect, f'unknown expectations: {sorted(expect)}'


def assert_settled(scenario, plan):
    """The cloud after the plan, with the scores that follow from it, gets no
    further moves."""
    request = scenario.request
    state = simulation.Simulation(request.cluster, request.scores, request.policies,
                                  request.history, request.options)
    for move in plan.moves:
        state.apply_move(move)
    again = planner.plan(after(request, state, plan))
    assert again.moves == (), again


def after(request, state, plan):
    target = {m.instance_uuid: m for m in plan.moves}
    instances = {u: dataclasses.replace(i, host=target[u].to_host) if u in target else i
                 for u, i in request.cluster.instances.items()}
    hosts = {}
    for name, host in request.cluster.hosts.items():
        used = {c: state.view.sum_allocated(name, c) for c in host.provider.used}
        hosts[name] = dataclasses.replace(
            host, provider=dataclasses.replace(host.provider, used=used))
    policies = {}
    for p, policy in enumerate(request.policies.enabled_policies):
        old = request.scores.policies[policy.name]
        policies[policy.name] = dataclasses.replace(
            old, hosts={h: float(state.score[p, i]) for h, i in state.host_index.items()},
            fill={h: state.view.map_known_fills(h)[policy.name] for h in old.fill})
    return dataclasses.replace(
        request, scores=dataclasses.replace(request.scores, policies=policies),
        history=dataclasses.replace(request.history, draining=plan.draining),
        cluster=dataclasses.replace(request.cluster, instances=instances, hosts=hosts))
