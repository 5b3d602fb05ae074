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
from typing import Any

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer import confirming
from kronos_nova.rebalancer import cycle
from kronos_nova.rebalancer import planner
from kronos_nova.rebalancer.clients import api
from tests.unit import clouds

NOW = 1_000_000.0


class Candidates:
    """Placement's answers: no candidate where ``refuses``, which is given the
    root and, if it takes two, the instance's number of VCPUs."""

    def __init__(self, refuses: Any = lambda root: False) -> None:
        self.refuses = refuses
        self.asked: list[str] = []

    def refusal(self, query: Any, own: Any) -> str | None:
        root = dict(query)['in_tree']
        self.asked.append(root)
        answer = self.refuses(*[root, dict(query)['resources']][
            :self.refuses.__code__.co_argcount])
        if isinstance(answer, Exception):
            raise answer
        return 'no allocation candidate' if answer else None


class Bench:
    def __init__(self, **options: Any) -> None:
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf([], default_config_files=[])
        for name, value in options.items():
            conf.set_override(name, value, 'engine')
        request = clouds.request(clouds.Knobs(seed=9, hosts=6, instances=24, budget=3))
        hosts = {name: dataclasses.replace(h, provider=dataclasses.replace(
            h.provider, uuid=f'root {name}')) for name, h in request.cluster.hosts.items()}
        instances = {uuid: dataclasses.replace(i, extra_specs={})
                     for uuid, i in request.cluster.instances.items()}
        self.request = dataclasses.replace(request, cluster=dataclasses.replace(
            request.cluster, hosts=hosts, instances=instances))
        self.confirming = confirming.Confirming(conf, None)
        self.candidates = Candidates()
        self.confirming._candidates = self.candidates  # type: ignore[assignment]
        self.plans: list[model.Plan] = []

    def plan(self, now: float = NOW) -> cycle.Outcome:
        request = dataclasses.replace(self.request, history=self.confirming.refusals.onto(
            self.request.history, now))
        plan = planner.plan(request)
        self.plans.append(plan)
        return cycle.Outcome(cluster=request.cluster, scores=request.scores, plan=plan,
                             timings={}, request=request)

    def confirmed(self, now: float = NOW) -> model.Plan:
        return self.confirming.confirmed(self.plan(now), now, lambda: self.plan(now)).plan


def hosts_of(plan: model.Plan) -> set[str]:
    return {m.to_host for m in plan.moves}


def test_a_plan_that_placement_confirms_stays_as_it_is() -> None:
    bench = Bench()
    plan = bench.confirmed()
    assert plan.moves and plan is bench.plans[0] and len(bench.plans) == 1
    free = [m for m in plan.moves if not m.requires]
    assert sorted(bench.candidates.asked) == sorted(f'root {m.to_host}' for m in free)


def test_a_refused_host_is_planned_around_and_remembered() -> None:
    bench = Bench(confirm_max_replans=24)
    bad = min(hosts_of(bench.plan().plan))
    bench.candidates.refuses = lambda root: root == f'root {bad}'
    plan = bench.confirmed()
    assert plan.moves
    assert not [m for m in plan.moves if m.to_host == bad and not m.requires]
    known = bench.confirming.refusals.current(NOW)
    assert known and all(hosts == {bad} for hosts in known.values())
    asked = len(bench.candidates.asked)
    assert bench.confirmed(NOW + 1).moves == plan.moves
    assert f'root {bad}' not in bench.candidates.asked[asked:], 'it is remembered'
    assert bench.confirming.refusals.current(NOW + confirming.REFUSED_SECONDS + 1) == {}
    assert bench.confirming.refusals.current(NOW) == {}


def test_a_plan_is_a_function_of_its_history() -> None:
    """So that a snapshot with the refused pairs repeats it."""
    bench = Bench(confirm_max_replans=24)
    bad = min(hosts_of(bench.plan().plan))
    bench.candidates.refuses = lambda root: root == f'root {bad}'
    plan = bench.confirmed()
    assert bench.plan().plan == plan


def test_what_is_refused_to_the_end_is_left_out_and_replans_are_bounded() -> None:
    bench = Bench(confirm_max_replans=2)
    bench.candidates.refuses = lambda root: True
    plan = bench.confirmed()
    assert len(bench.plans) == 3 and plan.moves == ()
    assert 'confirm_max_replans' in str(plan.reason)
    assert plan.combined_after == pytest.approx(plan.combined_before)


def test_asks_are_bounded_and_the_rest_goes_unconfirmed_and_said() -> None:
    bench = Bench(confirm_max_asks=1)
    plan = bench.confirmed()
    assert len(bench.candidates.asked) == 1 and len(plan.moves) > 1
    assert any('confirm_max_asks' in text for text in plan.warnings)


def test_switched_off_nothing_is_asked() -> None:
    bench = Bench(confirm_moves=False)
    assert bench.confirmed() is bench.plans[0]
    assert bench.candidates.asked == []


def test_placement_that_cannot_be_asked_stops_the_scope() -> None:
    bench = Bench()
    bench.candidates.refuses = lambda root: api.ApiError(
        'Placement', 'allocation candidates', 'HTTP 503', 503)
    with pytest.raises(exception.CollectError, match='HTTP 503. Nothing is moved this cycle'):
        bench.confirmed()
    assert bench.confirming.refusals.current(NOW) == {}


def test_without_leaves_out_what_hangs_on_it_and_says_what_is_left() -> None:
    """Held to the checker, and to the scores of the moves that are left."""
    left = cut = 0
    for seed in range(12):
        request = clouds.request(clouds.Knobs(seed=seed, hosts=5, instances=20, budget=4))
        plan = planner.plan(request)
        outcome = cycle.Outcome(cluster=request.cluster, scores=request.scores, plan=plan,
                                timings={}, request=request)
        for move in plan.moves:
            less = cycle.without(outcome, [move.instance_uuid], 'why').plan
            kept = {m.instance_uuid for m in less.moves}
            assert move.instance_uuid not in kept
            assert all(kept.issuperset(m.requires) for m in less.moves)
            gone = {m.instance_uuid for m in plan.moves} - kept
            assert all(uuid == move.instance_uuid or move.instance_uuid in m.requires
                       for m in plan.moves for uuid in gone if m.instance_uuid == uuid)
            assert 'why' in less.warnings and (less.reason == 'why') == (not less.moves)
            if not less.moves:
                assert less.combined_after == pytest.approx(plan.combined_before)
            left += bool(less.moves)
            cut += len(gone) > 1
    assert left
