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


"""What becomes of a plan of which Placement refuses moves."""

import dataclasses
import json
import pathlib
from typing import Any

from oslo_config import cfg
import pytest

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.engine import placement_check
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from tests.scenarios import loader
from tests.unit import clouds

NOW = 1_000_000.0


class Candidates:
    """Placement's answers: no candidate where ``refuses``, which is given the
    root and, if it takes two, the instance's number of VCPUs."""

    def __init__(self, refuses: Any = lambda root: False) -> None:
        self.refuses = refuses
        self.asked: list[str] = []

    def find_refusal(self, query: Any, own: Any) -> str | None:
        root = dict(query)['in_tree']
        self.asked.append(root)
        answer = self.refuses(*[root, dict(query)['resources']][
            :self.refuses.__code__.co_argcount])
        if isinstance(answer, Exception):
            raise answer
        return 'no allocation candidate' if answer else None


def with_roots(request: planner.PlanningInput) -> planner.PlanningInput:
    """Roots that are known by their hosts' names, and flavors that are shown."""
    hosts = {name: dataclasses.replace(h, provider=dataclasses.replace(
        h.provider, uuid=f'root {name}')) for name, h in request.cluster.hosts.items()
        if h.provider is not None}
    instances = {uuid: dataclasses.replace(i, extra_specs={})
                 for uuid, i in request.cluster.instances.items()}
    return dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, hosts=hosts, instances=instances))


class Bench:
    def __init__(self, **options: Any) -> None:
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf([], default_config_files=[])
        for name, value in options.items():
            conf.set_override(name, value, 'engine')
        request = clouds.request(clouds.Knobs(seed=9, hosts=6, instances=24, budget=3))
        self.request = with_roots(request)
        self.confirming = placement_check.PlanConfirmation(conf, None)
        self.candidates = Candidates()
        self.confirming._candidates = self.candidates  # type: ignore[assignment]
        self.plans: list[model.Plan] = []

    def plan(self, now: float = NOW) -> planning_pipeline.PassOutcome:
        request = dataclasses.replace(self.request, history=self.confirming.refusals.update_history(
            self.request.history, now))
        plan = planner.plan(request)
        self.plans.append(plan)
        return planning_pipeline.PassOutcome(cluster=request.cluster, scores=request.scores,
                                             plan=plan,
                                             timings={}, request=request)

    def confirmed(self, now: float = NOW) -> model.Plan:
        return self.confirming.confirm_outcome(self.plan(now), now, lambda: self.plan(now)).plan


def hosts_of(plan: model.Plan) -> set[str]:
    return {m.to_host for m in plan.moves}


def allowed_now(request: planner.PlanningInput, move: model.Move) -> bool:
    return constraints.judge_move(cluster_view.ClusterView(
        request.cluster, request.options, request.history), move) is None


def test_a_plan_that_placement_confirms_stays_as_it_is() -> None:
    bench = Bench()
    plan = bench.confirmed()
    assert plan.moves and plan is bench.plans[0] and len(bench.plans) == 1
    now = [m for m in plan.moves if allowed_now(bench.request, m)]
    assert {m.instance_uuid for m in plan.moves if not m.requires} <= {
        m.instance_uuid for m in now}
    assert sorted(bench.candidates.asked) == sorted(f'root {m.to_host}' for m in now)


def test_a_refused_host_is_planned_around_and_remembered() -> None:
    bench = Bench(confirm_max_replans=24)
    bad = min(hosts_of(bench.plan().plan))
    bench.candidates.refuses = lambda root: root == f'root {bad}'
    plan = bench.confirmed()
    assert plan.moves
    assert not [m for m in plan.moves if m.to_host == bad and not m.requires]
    known = bench.confirming.refusals.map_refused_hosts(NOW)
    assert known and all(hosts == {bad} for hosts in known.values())
    asked = len(bench.candidates.asked)
    assert bench.confirmed(NOW + 1).moves == plan.moves
    assert f'root {bad}' not in bench.candidates.asked[asked:], 'it is remembered'
    assert bench.confirming.refusals.map_refused_hosts(NOW + placement_check.REFUSED_SECONDS
                                                       + 1) == {}
    assert bench.confirming.refusals.map_refused_hosts(NOW) == {}


def test_a_swap_is_kept_only_if_placement_accepts_both_halves() -> None:
    """Else the first one would move there and back."""
    bench = Bench(confirm_max_replans=0)
    bench.request = with_roots(loader.load(
        loader.HERE / 'spread_swaps_where_no_single_move_helps.yaml').request)
    plan = bench.confirmed()
    assert len(plan.swaps) == 1 and sorted(bench.candidates.asked) == ['root a', 'root b']
    second = plan.moves[1]
    assert second.requires
    bench.candidates.refuses = lambda root: root == f'root {second.to_host}'
    plan = bench.confirmed()
    assert plan.moves == plan.swaps == () and 'confirm_max_replans' in str(plan.reason)


def test_moves_that_need_room_from_others_are_not_checked() -> None:
    """Placement would refuse it: the room is not there yet."""
    held = asked = 0
    for seed in range(60):
        bench = Bench()
        bench.request = with_roots(clouds.request(clouds.Knobs(
            seed=seed, hosts=4, instances=20, budget=6, tight=True)))
        plan = bench.confirmed()
        for move in (m for m in plan.moves if m.requires):
            now = allowed_now(bench.request, move)
            asked += now
            held += not now
            if not now:
                others = [m for m in plan.moves if m.to_host == move.to_host]
                assert bench.candidates.asked.count(f'root {move.to_host}') < len(others)
    assert held and asked


def test_a_plan_is_a_function_of_its_history() -> None:
    """So that a snapshot with the refused pairs repeats it."""
    bench = Bench(confirm_max_replans=24)
    bad = min(hosts_of(bench.plan().plan))
    bench.candidates.refuses = lambda root: root == f'root {bad}'
    plan = bench.confirmed()
    assert bench.plan().plan == plan


def test_replans_are_bounded_and_a_move_still_refused_is_left_out() -> None:
    bench = Bench(confirm_max_replans=2)
    bench.candidates.refuses = lambda root: True
    plan = bench.confirmed()
    assert len(bench.plans) == 3 and plan.moves == ()
    assert 'confirm_max_replans' in str(plan.reason)
    assert plan.combined_after == pytest.approx(plan.combined_before)


def test_requests_are_bounded_and_unchecked_moves_give_a_warning() -> None:
    bench = Bench(confirm_max_asks=1)
    plan = bench.confirmed()
    assert len(bench.candidates.asked) == 1 and len(plan.moves) > 1
    assert any('confirm_max_asks' in text for text in plan.warnings)


def test_a_disabled_check_sends_no_requests() -> None:
    bench = Bench(confirm_moves=False)
    assert bench.confirmed() is bench.plans[0]
    assert bench.candidates.asked == []


def test_placement_that_cannot_be_asked_stops_the_scope() -> None:
    bench = Bench()
    bench.candidates.refuses = lambda root: api.ApiError(
        'Placement', 'allocation candidates', 'HTTP 503', 503)
    with pytest.raises(exception.CollectError, match='HTTP 503. Nothing is moved this cycle'):
        bench.confirmed()
    assert bench.confirming.refusals.map_refused_hosts(NOW) == {}


def test_removing_a_move_removes_its_dependents_and_scores_the_rest() -> None:
    """Held to the checker, and to the scores of the moves that are left."""
    left = cut = 0
    for seed in range(12):
        request = clouds.request(clouds.Knobs(seed=seed, hosts=5, instances=20, budget=4))
        plan = planner.plan(request)
        outcome = planning_pipeline.PassOutcome(cluster=request.cluster, scores=request.scores,
                                                plan=plan,
                                                timings={}, request=request)
        for move in plan.moves:
            less = planning_pipeline.drop_moves(outcome, [move.instance_uuid], 'why').plan
            kept = {m.instance_uuid for m in less.moves}
            assert move.instance_uuid not in kept
            assert all(kept.issuperset(m.requires) for m in less.moves)
            gone = {m.instance_uuid for m in plan.moves} - kept
            assert all(uuid == move.instance_uuid or gone & set(m.requires)
                       or any(s.first == uuid and s.second in gone for s in plan.swaps)
                       for m in plan.moves for uuid in gone if m.instance_uuid == uuid)
            assert all((s.first in kept) == (s.second in kept) for s in plan.swaps)
            assert 'why' in less.warnings and (less.reason == 'why') == (not less.moves)
            if not less.moves:
                assert less.combined_after == pytest.approx(plan.combined_before)
            left += bool(less.moves)
            cut += len(gone) > 1
    assert left


class Drain(Bench):
    """A drained host in a scope of 80: ``big`` instances of 8 VCPUs, the first
    to be moved, and ``small`` ones of one."""

    def __init__(self, path: pathlib.Path, big: int = 3, small: int = 6, budget: int = 3,
                 **options: Any) -> None:
        super().__init__(**options)
        hosts: dict[str, Any] = {f'h{n:02}': {} for n in range(79)}
        instances = {f'big{n}': {'vcpus': 8, 'memory_mb': 8192} for n in range(big)}
        instances |= {f'small{n}': {'vcpus': 1, 'memory_mb': 1024} for n in range(small)}
        path /= 'drain.yaml'
        path.write_text(json.dumps({
            'title': 'drain', 'options': {'evacuate_disabled_hosts': True}, 'budget': budget,
            'policies': [{'name': 'cpu', 'weight': 1.0, 'threshold': 0.9,
                          'imbalance_query': 'cpu', 'vm_profile_query': 'vm'}],
            'hosts': hosts | {'d': {'status': 'disabled'}},
            'scores': {'cpu': dict.fromkeys([*hosts, 'd'], 0.1)},
            'instances': {name: {'at': 'd', 'extra_specs': {}, 'usage': {'cpu': 0.01}, **row}
                          for name, row in instances.items()}, 'expect': {}}))
        scenario = loader.load(path)
        self.request, self.names = scenario.request, scenario.names

    def cycles(self, count: int, start: float = NOW) -> dict[str, int]:
        """Carry out the planned moves, one cycle per minute.

        :returns: the cycle in which each was moved, by name.
        """
        moved: dict[str, int] = {}
        for cycle_ in range(count):
            try:
                plan = self.confirmed(start + 60 * cycle_)
            except exception.CollectError:
                continue
            cluster = self.request.cluster
            instances = dict(cluster.instances)
            for move in plan.moves:
                moved[self.names[move.instance_uuid]] = cycle_
                instances[move.instance_uuid] = dataclasses.replace(
                    instances[move.instance_uuid], host=move.to_host)
            self.request = dataclasses.replace(self.request, cluster=dataclasses.replace(
                cluster, instances=instances))
        return moved


def is_big(resources: str) -> bool:
    return 'VCPU:8' in resources


SMALL = {f'small{n}' for n in range(6)}


@pytest.mark.parametrize('options', [{}, {'confirm_max_replans': 0}])
def test_an_instance_refused_everywhere_gives_way_to_others(tmp_path: pathlib.Path,
                                                            options: dict[str, Any]) -> None:
    """In a large scope there is always another host to ask for."""
    bench = Drain(tmp_path, **options)
    bench.candidates.refuses = lambda root, resources: is_big(resources)
    moved = bench.cycles(12)
    assert moved.keys() == SMALL
    assert options or max(moved.values()) == 1, 'the budget goes to others in the same cycle'
    plan = bench.confirmed(NOW + 60 * 12)
    held = {no.detail.split()[-1] for no in plan.held
            if no.rule == 'placement-refuses-everywhere'}
    assert {bench.names[uuid] for uuid in held} == {'big0', 'big1', 'big2'}
    assert any('(placement-refuses-everywhere)' in text for text in plan.warnings)


def test_many_that_placement_refuses_have_all_had_their_turn_in_the_end(
        tmp_path: pathlib.Path) -> None:
    """More than are tried in the time for which the first are held."""
    bench = Drain(tmp_path, big=24, confirm_max_replans=0)
    bench.candidates.refuses = lambda root, resources: is_big(resources)
    assert bench.cycles(80).keys() == SMALL


def test_other_hosts_are_tried_after_an_instance_was_held(tmp_path: pathlib.Path) -> None:
    """So that the one that does for it is found in the end."""
    bench = Drain(tmp_path, big=1, small=0)
    bench.candidates.refuses = lambda root: True
    tried: set[str] = set()
    now = NOW
    for doublings in range(placement_check.DOUBLINGS + 2):
        bench.candidates.asked.clear()
        bench.confirmed(now)
        assert len(bench.candidates.asked) == placement_check.STRIKES
        assert tried.isdisjoint(bench.candidates.asked)
        tried |= set(bench.candidates.asked)
        bench.confirmed(now + 60)
        assert len(bench.candidates.asked) == placement_check.STRIKES, 'it is held'
        now += placement_check.REFUSED_SECONDS * 2 ** min(doublings, placement_check.DOUBLINGS)


def test_a_yes_takes_strikes_back_and_holds_grow_and_end() -> None:
    refusals = placement_check.RecentRefusals()
    assert refusals.add_refusals([('vm', 'a'), ('vm', 'b')], NOW) == {}
    refusals.clear_strikes(['vm'])
    assert refusals.add_refusals([('vm', 'c'), ('vm', 'd')], NOW) == {}
    assert refusals.list_refused_everywhere(NOW) == frozenset()
    assert refusals.add_refusals([('vm', 'e')], NOW + 60) == {'vm': placement_check.REFUSED_SECONDS}
    assert refusals.list_refused_everywhere(NOW + 61) == {'vm'}
    assert refusals.map_refused_hosts(NOW + 61) == {'vm': frozenset('abcde')}
    end = NOW + 60 + placement_check.REFUSED_SECONDS
    assert refusals.list_refused_everywhere(end) == frozenset()
    assert refusals.map_refused_hosts(end) == {'vm': frozenset('abcde')}, 'others are tried first'
    again = refusals.add_refusals([('vm', host) for host in 'fgh'], end)
    assert again == {'vm': 2 * placement_check.REFUSED_SECONDS}
    far = end + 100 * placement_check.REFUSED_SECONDS
    assert refusals.list_refused_everywhere(far) == frozenset() and refusals.map_refused_hosts(
        far) == {}
    assert refusals.add_refusals([('vm', h) for h in 'abc'],
                                 far) == {'vm': placement_check.REFUSED_SECONDS}


def error(status: int | None, **rest: Any) -> api.ApiError:
    return api.ApiError('Placement', 'allocation candidates', f'HTTP {status}', status, **rest)


def test_a_request_that_fails_once_is_repeated(tmp_path: pathlib.Path) -> None:
    bench = Drain(tmp_path)
    failed: list[str] = []

    def refuses(root: str) -> Any:
        if root in failed:
            return False
        failed.append(root)
        return error(504)

    bench.candidates.refuses = refuses
    plan = bench.confirmed()
    assert len(plan.moves) == 3 and len(bench.plans) == 1 and plan is bench.plans[0]
    assert len(bench.candidates.asked) == 6


@pytest.mark.parametrize('status', [500, 503, 504, None])
@pytest.mark.parametrize('replans', [0, 3])
def test_an_ask_that_is_not_answered_costs_its_own_move_only(
        tmp_path: pathlib.Path, status: int | None, replans: int) -> None:
    """Not the scope, cycle after cycle."""
    bench = Drain(tmp_path, big=1, small=6, confirm_max_replans=replans)
    bench.candidates.refuses = lambda root, resources: is_big(resources) and error(status)
    plan = bench.confirmed()
    assert {bench.names[m.instance_uuid] for m in plan.moves} < SMALL
    assert len(plan.moves) == 2
    assert any(f'did not answer (HTTP {status})' in text for text in plan.warnings)
    assert bench.cycles(12, NOW + 60).keys() == SMALL


@pytest.mark.parametrize('budget', [1, 2])
def test_unanswered_moves_give_way_even_if_they_fill_the_budget(tmp_path: pathlib.Path,
                                                                budget: int) -> None:
    bench = Drain(tmp_path, big=budget, budget=budget)
    bench.candidates.refuses = lambda root, resources: is_big(resources) and error(504)
    with pytest.raises(exception.CollectError, match='HTTP 504'):
        bench.confirmed()
    assert bench.confirming.refusals.map_refused_hosts(NOW) == {}, 'one bad moment leaves no trace'
    assert bench.cycles(15, NOW + 60).keys() == SMALL


@pytest.mark.parametrize('fatal', [
    error(401), error(403), error(None, unreachable=True)], ids=['401', '403', 'unreachable'])
def test_a_permanent_error_stops_the_scope_at_once(tmp_path: pathlib.Path,
                                                   fatal: api.ApiError) -> None:
    bench = Drain(tmp_path)
    bench.candidates.refuses = lambda root, resources: is_big(resources) and fatal
    with pytest.raises(exception.CollectError):
        bench.confirmed()
    assert bench.confirming.refusals.map_refused_hosts(NOW) == {} and len(
        bench.candidates.asked) <= 3


def test_most_asks_without_an_answer_stop_the_scope(tmp_path: pathlib.Path) -> None:
    bench = Drain(tmp_path, big=2, small=1)
    bench.candidates.refuses = lambda root, resources: is_big(resources) and error(503)
    with pytest.raises(exception.CollectError, match='HTTP 503'):
        bench.confirmed()


def test_an_unanswered_move_is_dropped_with_its_dependents() -> None:
    """In the last round; cycle.without holds the rest to the checker."""
    request = loader.load(loader.HERE / 'waves_protect_what_started_earlier.yaml').request
    plan = planner.plan(request)
    waiting, = (m for m in plan.moves if m.requires)
    assert len(plan.moves) == 3
    for bad in (m.instance_uuid for m in plan.moves if not m.requires):
        bench = Bench(confirm_max_replans=0)
        bench.request = dataclasses.replace(request, cluster=dataclasses.replace(
            request.cluster, instances={
                uuid: dataclasses.replace(i, extra_specs={
                    'resources:CUSTOM_MARK': '1'} if uuid == bad else {})
                for uuid, i in request.cluster.instances.items()}))
        bench.candidates.refuses = lambda root, resources: (
            'CUSTOM_MARK' in resources and error(504))
        kept = {m.instance_uuid for m in bench.confirmed().moves}
        left_out = {bad, waiting.instance_uuid} if bad in waiting.requires else {bad}
        assert kept == {m.instance_uuid for m in plan.moves} - left_out
