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

"""What a plan reports, and the reason when it does nothing."""

import collections
import dataclasses
import itertools
import random

import hypothesis
import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import move_gains
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import base
from tests.scenarios import loader
from tests.unit import clouds

SEED = 5


def request(**changes):
    """A cloud whose policy is over its threshold and has legal moves."""
    r = clouds.request(clouds.Knobs(seed=SEED, hosts=4, instances=16, budget=3))
    r = dataclasses.replace(r, **changes)
    return r


def untrusted(r):
    return model.ClusterScores({n: dataclasses.replace(p, untrusted='samples are old')
                                for n, p in r.scores.policies.items()}, r.scores.taken_at)


def test_a_plan_with_moves_has_no_reason_and_reports_a_fall():
    plan = planner.plan(request())
    assert plan.moves and plan.reason is None and plan.scope == 'scope'
    assert plan.combined_after < plan.combined_before
    assert plan.policies[0].imbalance_after < plan.policies[0].imbalance_before
    assert all(p.threshold < p.imbalance_before for p in plan.policies)
    assert sum(m.improvement for m in plan.moves) == pytest.approx(
        plan.combined_before - plan.combined_after)


@pytest.mark.parametrize('mode', ['spread', 'pack'])
def test_a_scope_with_hosts_that_cannot_be_read_waits_and_keeps_its_drains(mode):
    r = clouds.request(clouds.Knobs(seed=SEED, hosts=4, instances=16, budget=3, mode=mode))
    away = {h: model.Service(h, status=model.UNKNOWN) for h in ('away1', 'away2')}
    cluster = dataclasses.replace(
        r.cluster, services={**r.cluster.services, **away},
        unreadable_hosts=frozenset({'away1', 'away2'}))
    r = dataclasses.replace(r, cluster=cluster, history=dataclasses.replace(
        r.history, draining=frozenset({'away1', 'elsewhere'})))
    plan = planner.plan(r)
    assert not plan.moves and plan.draining == {'away1'}
    assert plan.reason == (
        'the cell of 2 of its hosts (away1, away2) does not answer Nova, or is not named while '
        'another one does not: nothing of the scope moves')
    planning_pipeline.check_plan(plan, r)


def combined_after(r, moves):
    """The combined imbalance when these moves are done, from the scores alone:
    services, frozen hosts and capacity play no part in this cloud."""
    total = 0.0
    for p in r.policies.enabled_policies:
        known = r.scores.policies[p.name]
        level = dict(known.hosts)
        for move in moves:
            usage = known.usages.get(move.instance_uuid, 0.0)
            level[move.from_host] -= usage / known.capacity[move.from_host]
            level[move.to_host] += usage / known.capacity[move.to_host]
        total += p.weight * (max(level.values()) - min(level.values()))
    return total


def test_alternates_have_improvements_and_the_best_comes_first():
    r = request()
    plan = planner.plan(r)
    assert combined_after(r, plan.moves) == pytest.approx(plan.combined_after)
    several = 0
    for move in plan.moves:
        assert len(move.alternates) == len(move.alternate_improvements)
        assert list(move.alternate_improvements) == sorted(
            move.alternate_improvements, reverse=True)
        several += len(move.alternates) > 1
        for host, improvement in zip(move.alternates, move.alternate_improvements, strict=True):
            others = [m for m in plan.moves if m is not move]
            instead = [*others, dataclasses.replace(move, to_host=host)]
            assert improvement == pytest.approx(
                combined_after(r, others) - combined_after(r, instead))
            assert improvement > 0
    assert several


def imbalances_after(r, moves):
    simulation = sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)
    for move in moves:
        simulation.apply_move(move)
    return simulation.compute_combined(), simulation.compute_imbalances(), simulation


@pytest.mark.turns(3)
@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(clouds.knobs(mode='spread'))
def test_the_improvement_of_an_alternate_is_its_gain_over_staying(knobs):
    # As planning begins: of the hosts that were being emptied, those that still are.
    r = planner.prepare_planning_input(clouds.request(knobs))
    plan = planner.plan(r)
    for move in plan.moves:
        if not move.alternate_improvements:
            continue
        others = [m for m in plan.moves if m is not move]
        stays, before, simulation = imbalances_after(r, others)
        for host, improvement in zip(move.alternates, move.alternate_improvements, strict=True):
            instead = dataclasses.replace(move, to_host=host)
            ends, after, _ = imbalances_after(r, [*others, instead])
            assert improvement == pytest.approx(stays - ends, abs=1e-9)
            if move.phase is model.Phase.SPREAD:
                assert improvement > 0
                assert all((after <= before + 1e-6) | (after <= simulation.thresholds + 1e-6))
                assert simulation.group_change(instead)[1] <= 0


@pytest.mark.turns(3)
@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(clouds.knobs(mode='spread'))
def test_gain_is_lost_without_the_move_and_changes_follow_the_plan(knobs):
    r = planner.prepare_planning_input(clouds.request(knobs))
    plan = planner.plan(r)
    whole, _, simulation = imbalances_after(r, plan.moves)
    if not simulation.trusted:
        assert all(m.gain is None and not m.changes for m in plan.moves)
        return
    last = {}
    for move in plan.moves:
        others, _, _ = imbalances_after(r, [m for m in plan.moves if m is not move])
        assert move.gain == pytest.approx(others - whole, abs=1e-9)
        assert [c.policy for c in move.changes] == [p.name for p in r.policies.enabled_policies]
        for c in move.changes:
            for host, before, after in ((move.from_host, c.from_before, c.from_after),
                                        (move.to_host, c.to_before, c.to_after)):
                if before is not None:
                    assert before == pytest.approx(last.get((c.policy, host), before), abs=1e-9)
                    last[c.policy, host] = after
    for (name, host), score in last.items():
        number = [p.name for p in r.policies.enabled_policies].index(name)
        assert score == pytest.approx(
            simulation.score[number, simulation.host_index[host]], abs=1e-9)


def test_without_trusted_scores_alternates_have_no_improvements():
    r = request(options=model.PlanningOptions(evacuate_disabled_hosts=True, max_drain_fraction=1.0))
    cluster = dataclasses.replace(r.cluster, services={
        name: dataclasses.replace(s, status='disabled' if name == 'h0' else 'enabled')
        for name, s in r.cluster.services.items()})
    plan = planner.plan(dataclasses.replace(r, cluster=cluster, scores=untrusted(r)))
    assert any(m.alternates for m in plan.moves)
    assert all(m.alternate_improvements == () for m in plan.moves)


@pytest.mark.parametrize('changes, reason', [
    ({'budget': 0}, 'the budget is used up by moves that are under way or have just ended'),
    ({'history': model.MoveHistory(scope_cooling=90.0)}, 'the scope cools down for another 90 s'),
    ({'history': model.MoveHistory(scope_cooling=0.9)}, 'the scope cools down for another 1 s'),
    ({'strategies': ()}, 'no enabled strategy has anything to do'),
])
def test_nothing_has_a_reason(changes, reason):
    plan = planner.plan(request(**changes))
    assert plan.moves == () and plan.reason == reason


def even(seed):
    """A cloud of equal hosts, whose loads are multiples of one step: destinations tie."""
    rng = random.Random(seed)
    names = [f'h{n}' for n in range(5)]
    placed = {clouds.uuid_of(f'{seed}-{n}'): rng.choice(names) for n in range(14)}
    scores = {}
    for name in ('cpu', 'net'):
        usages = {uuid: rng.randrange(1, 6) * 0.005 for uuid in placed}
        level = {h: sum(u for uuid, u in usages.items() if placed[uuid] == h) for h in names}
        scores[name] = model.PolicyScores(
            name, hosts=level, fill=level, capacity=dict.fromkeys(names, 1.0), usages=usages)
    cluster = model.Cluster(
        {h: model.Host(h, provider=model.Provider(
            h, inventories={'VCPU': model.Inventory(99)})) for h in names},
        {uuid: model.Instance(uuid, h, claims={'VCPU': rng.randrange(1, 4)})
         for uuid, h in placed.items()},
        {h: model.Service(h) for h in names}, scope='scope', scope_hosts=frozenset(names))
    r = request()
    return dataclasses.replace(
        r, cluster=cluster, scores=model.ClusterScores(scores, 0.0), budget=5,
        history=model.MoveHistory(),
        policies=policy.PolicySet(policies=[{
            'name': name, 'weight': 0.5, 'threshold': 0.01, 'imbalance_query': 'x',
            'vm_profile_query': 'x'} for name in scores]),
        options=model.PlanningOptions(dry_run=False, max_alternates=3))


@pytest.mark.turns(3)
def test_of_alternates_that_are_as_good_the_emptiest_comes_first(monkeypatch):
    """What rounding leaves of a move that has landed does not decide."""
    given, tied = {}, 0
    really = move_gains.rank_alternates

    def seen(simulation, moves, gains=None):
        given.update({m.instance_uuid: m.alternates for m in moves})
        return really(simulation, moves, gains)

    monkeypatch.setattr(move_gains, 'rank_alternates', seen)
    for seed in range(60):
        for move in planner.plan(even(seed)).moves:
            best = list(zip(move.alternates, move.alternate_improvements, strict=True))
            for (host, one), (other, two) in itertools.pairwise(best):
                if one == pytest.approx(two, abs=1e-9):
                    tied += 1
                    before = given[move.instance_uuid]
                    assert before.index(host) < before.index(other)
    assert tied > 40


@pytest.mark.parametrize('begun', [False, True])
def test_a_drain_of_which_a_move_is_dropped_is_dropped_whole_or_goes_on(begun, monkeypatch):
    """Orders rarely fail, so the test removes one move from an order."""
    scenario = loader.load(loader.HERE / 'pack_closes_several_hosts_without_moving_twice.yaml')
    r = scenario.request
    if begun:
        r = dataclasses.replace(r, history=model.MoveHistory(draining=frozenset({'c'})))
    really = planner.waves.order_moves

    def order(view, moves, **how):
        ordered = really(view, moves, **how)
        kept = tuple(m for m in ordered.moves if m.instance_uuid != loader.uuid_of('c1'))
        return dataclasses.replace(ordered, moves=kept, dropped=collections.Counter(
            {'claims': len(ordered.moves) - len(kept)}))

    monkeypatch.setattr(planner.waves, 'order_moves', order)
    plan = planner.plan(r)
    moved = sorted(scenario.names[m.instance_uuid] for m in plan.moves)
    if begun:
        assert 'c0' in moved and 'c1' not in moved and 'c' in plan.draining
    else:
        assert moved == ['a0', 'b0'] and plan.draining == {'a', 'b'}
        assert plan.rejections['partial-drain'] == 2


def test_a_scope_without_hosts_says_so():
    r = request()
    empty = dataclasses.replace(r.cluster, scope_hosts=frozenset())
    assert planner.plan(dataclasses.replace(r, cluster=empty)).reason == (
        'scope scope has no hosts')


def test_an_untrusted_policy_is_skipped_with_its_reason_and_has_no_numbers():
    r = request()
    plan = planner.plan(dataclasses.replace(r, scores=untrusted(r)))
    assert plan.moves == ()
    assert 'metrics are not trusted: cpu: samples are old' in plan.reason
    report = plan.policies[0]
    assert report.skipped and report.reason == 'samples are old'
    assert (report.imbalance_before, report.imbalance_after) == (None, None)
    assert (plan.combined_before, plan.combined_after) == (None, None)


def test_a_balanced_cloud_says_so():
    r = request()
    level = model.ClusterScores({n: dataclasses.replace(p, hosts=dict.fromkeys(p.hosts, 0.5))
                                 for n, p in r.scores.policies.items()})
    plan = planner.plan(dataclasses.replace(r, scores=level))
    assert plan.moves == () and 'at or below its threshold' in plan.reason


def test_a_plan_cut_off_by_the_safety_stop_is_marked_and_says_so():
    plan = planner.plan(request(), expired=lambda: True)
    assert plan.truncated and plan.moves == ()
    assert 'cut off' in plan.reason


def test_a_plan_cut_off_by_the_count_of_steps_is_marked():
    r = request()
    few = dataclasses.replace(r.options, max_steps=0)
    assert planner.plan(dataclasses.replace(r, options=few)).truncated


@pytest.mark.turns(3)
@pytest.mark.parametrize('drains', [True, False])
def test_moves_beyond_the_step_limit_are_not_reported_as_impossible(drains):
    """The safety stop never counts as a refusal by a rule."""
    r = clouds.request(clouds.Knobs(seed=11, hosts=6, instances=12, budget=8))
    uuids = sorted(u for u, i in r.cluster.instances.items() if i.host == 'h0')
    assert len(uuids) > 1
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset(uuids))
    services = {**r.cluster.services}
    if drains:
        services['h0'] = model.Service('h0', status='disabled', zone='az1')
    r = dataclasses.replace(
        r, cluster=dataclasses.replace(r.cluster, services=services,
                                       groups=() if drains else (group,)),
        options=dataclasses.replace(r.options, evacuate_disabled_hosts=True,
                                    enforce_hard_affinity=True, max_drain_fraction=1.0))
    assert planner.plan(r).warnings == ()
    for calls in (*range(100), *(2 ** n for n in range(7, 16))):
        answers = iter([False] * calls)
        plan = planner.plan(r, expired=lambda: next(answers, True))  # noqa: B023
        assert [w for w in plan.warnings if 'planning was cut off' not in w] == []
        if not plan.truncated:
            return
    raise AssertionError('the plan is never whole')


def test_warning_about_a_cut_off_plan_names_strategies_and_budget():
    r = request()
    by_deadline = planner.plan(r, expired=lambda: True)
    assert any('by planning_deadline' in w and 'spread was not begun' in w
               and f'{r.budget} moves of the budget are left' in w for w in by_deadline.warnings)
    assert not any('not finished' in w for w in by_deadline.warnings)
    assert by_deadline.reason == 'planning was cut off by planning_deadline; see the warnings'
    by_stop = planner.plan(r, stopping=lambda: True)
    assert by_stop.truncated
    assert by_stop.reason == 'planning was cut off because the engine was stopped; see the warnings'
    assert any('the engine was stopped; ' in w for w in by_stop.warnings)
    assert not any('planning_deadline' in w for w in by_stop.warnings)
    few = dataclasses.replace(r.options, max_steps=1)
    by_count = planner.plan(dataclasses.replace(r, options=few))
    assert by_count.truncated
    assert any('steps' in w and 'spread was not finished' in w for w in by_count.warnings)
    none = dataclasses.replace(r.options, max_steps=0)
    assert planner.plan(dataclasses.replace(r, options=none)).reason == (
        'planning was cut off after 0 steps; see the warnings')


@pytest.mark.parametrize('excess, named', [(0.0, False), (0.01, True)])
def test_only_policies_above_their_thresholds_are_named_as_left_out(excess, named):
    r = request()
    threshold = r.policies.enabled_policies[0].threshold
    level = model.ClusterScores({n: dataclasses.replace(
        p, hosts={**dict.fromkeys(p.hosts, 0.0), 'h0': threshold + excess})
        for n, p in r.scores.policies.items()})
    plan = planner.plan(dataclasses.replace(r, scores=level), expired=lambda: True)
    assert any('still above the threshold: cpu' in w for w in plan.warnings) == named
    assert plan.warnings


class Swap(base.Strategy):
    """Two instances change places, of which neither has room at first."""

    def __init__(self, phase):
        self.phase = phase

    def enabled(self, options, policy_set):
        return True

    def propose(self, simulation, budget):
        moves = [simulation.build_move(simulation.index[u], simulation.host_index[h], self.phase)
                 for u, h in (('i', 'b'), ('j', 'a'))]
        for move in moves:
            simulation.apply_move(move)
        return moves


def swap(phase, usages, groups=(), **options):
    """Hosts a and b are full, z is free; the loads are a 0.9, b 0.5, z 0.1.
    On a there is x besides, which needs no room."""
    hosts = {'a': 0.9, 'b': 0.5, 'z': 0.1}
    places = {'i': 'a', 'j': 'b'}
    cluster = model.Cluster(
        hosts={h: model.Host(h, provider=model.Provider(
            h, inventories={'VCPU': model.Inventory(8)}, used={'VCPU': 6 * (h != 'z')}))
            for h in hosts},
        instances={**{u: model.Instance(u, h, claims={'VCPU': 6}) for u, h in places.items()},
                   'x': model.Instance('x', 'a')}, groups=tuple(groups),
        services={h: model.Service(h, status='disabled' if phase == 'evacuate' and h == 'a'
                                   else 'enabled') for h in hosts},
        scope_hosts=frozenset(hosts))
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', hosts=hosts, fill=hosts, capacity=dict.fromkeys(hosts, 1.0), usages=usages)})
    r = request()
    return planner.plan(dataclasses.replace(
        r, cluster=cluster, scores=scores, strategies=[Swap(model.Phase(phase))], budget=5,
        policies=policy.PolicySet(policies=(r.policies.policies[0].model_copy(
            update={'name': 'cpu', 'weight': 1.0, 'mode': 'spread', 'threshold': 0.1}),)),
        history=model.MoveHistory(), options=model.PlanningOptions(dry_run=False, **options)))


def test_a_repair_is_parked_where_it_repairs_too():
    parted = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i', 'x'}))
    plan = swap('affinity', {'i': 0.3, 'j': 0.1, 'x': 0.0}, [parted], enforce_hard_affinity=True)
    assert [(m.instance_uuid, m.to_host, m.requires) for m in plan.moves] == [
        ('i', 'z', ()), ('j', 'a', ('i',))]


class One(base.Strategy):
    """Moves i to b."""

    def __init__(self, phase):
        self.phase = phase

    def enabled(self, options, policy_set):
        return True

    def propose(self, simulation, budget):
        move = simulation.build_move(simulation.index['i'], simulation.host_index['b'], self.phase)
        simulation.apply_move(move)
        return [move]


def one(phase, **changes):
    """Instances on a, b and c, none on z; i goes to b."""
    hosts = {'a': 0.5, 'b': 0.5, 'c': 0.5, 'z': 0.0}
    cluster = model.Cluster(
        hosts={h: model.Host(h) for h in hosts}, services={h: model.Service(h) for h in hosts},
        instances={u: model.Instance(u, h) for u, h in zip('ijk', 'abc', strict=True)},
        scope_hosts=frozenset(hosts), placement_known=False)
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', hosts=hosts, fill=hosts, capacity=dict.fromkeys(hosts, 1.0),
        usages=dict.fromkeys('ijk', 0.1))})
    return planner.plan(request(cluster=cluster, scores=scores,
                                strategies=[One(model.Phase(phase))], **changes))


@pytest.mark.parametrize('phase, alternates', [('pack', ('c',)), ('evacuate', ('z', 'c'))])
def test_only_a_pack_does_not_fall_back_to_an_empty_host(phase, alternates):
    assert [m.alternates for m in one(phase).moves] == [alternates]


def test_a_quarantined_host_is_no_alternate():
    history = model.MoveHistory(quarantined_hosts=frozenset({'z'}))
    assert [m.alternates for m in one('evacuate', history=history).moves] == [('c',)]


def test_a_swap_of_two_full_hosts_parks_one_on_a_third_if_that_is_better():
    plan = swap('spread', {'i': 0.3, 'j': 0.1})
    assert [(m.instance_uuid, m.to_host, m.requires) for m in plan.moves] == [
        ('i', 'z', ()), ('j', 'a', ('i',))]
    assert plan.combined_before == pytest.approx(0.8)
    assert plan.combined_after == pytest.approx(0.3)
    assert plan.warnings == ()


@pytest.mark.parametrize('phase, usages', [
    ('spread', {'i': 0.0, 'j': 0.0}), ('pack', {'i': 0.3, 'j': 0.1}),
    ('affinity', {'i': 0.3, 'j': 0.1})])
def test_else_the_swap_is_dropped_and_the_plan_says_so(phase, usages):
    plan = swap(phase, usages)
    assert plan.moves == () and plan.rejections['no-room'] == 2
    assert plan.warnings == ('2 moves wait for the next cycle: no order of this cycle is safe',)
    assert plan.reason == 'see the warnings'
    assert plan.combined_after == pytest.approx(plan.combined_before)


def test_a_drain_takes_any_host_that_there_is():
    plan = swap('evacuate', {'i': 0.3, 'j': 0.1})
    assert [(m.instance_uuid, m.to_host) for m in plan.moves] == [('i', 'z')]
    assert 'service-disabled' in plan.rejections


class Recorder(base.Strategy):
    """Record each call and its budget."""

    def __init__(self, log, name, imbalance=False, continues=False, take=0):
        self.log, self.name, self.take = log, name, take
        self.imbalance, self.continues = imbalance, continues

    def enabled(self, options, policy_set):
        return self.name != 'disabled'

    def propose(self, simulation, budget):
        self.log.append((self.name, budget))
        self.seen = simulation
        moves = []
        for n in [n for n in range(len(simulation.uuids)) if simulation.movable[n]][:self.take]:
            source = simulation.place[n]
            h = next(h for h in range(len(simulation.hosts)) if h != source
                     and simulation.judge_move(
                         simulation.build_move(n, h, model.Phase.EVACUATE)) is None)
            moves.append(simulation.build_move(n, h, model.Phase.EVACUATE))
            simulation.apply_move(moves[-1])
        return moves


def test_strategies_run_in_order_and_share_one_budget():
    log = []
    strategies = (Recorder(log, 'first', take=2), Recorder(log, 'disabled'),
                  Recorder(log, 'second', take=1), Recorder(log, 'third'))
    plan = planner.plan(request(strategies=strategies))
    assert log == [('first', 3), ('second', 1)]
    assert len(plan.moves) == 3


def test_a_strategy_is_given_the_seed_and_the_time_of_the_request():
    strategy = Recorder([], 'other')
    planner.plan(request(strategies=(strategy,), seed=7, now=1234.0))
    assert (strategy.seen.seed, strategy.seen.now) == (7, 1234.0)


def test_untrusted_metrics_hold_imbalance_strategies_only():
    log = []
    r = request(strategies=(Recorder(log, 'spread', imbalance=True), Recorder(log, 'drain')))
    planner.plan(dataclasses.replace(r, scores=untrusted(r)))
    assert log == [('drain', 3)]


@pytest.mark.parametrize('trusted, cooling, held', [
    (True, 0.0, False), (False, 0.0, True), (True, 0.9, True), (False, 0.9, True)])
def test_untrusted_scores_and_scope_cooldown_hold_imbalance_moves(trusted, cooling, held):
    strategy = Recorder([], 'pack', continues=True)
    r = clouds.request(clouds.Knobs(seed=2, hosts=4, instances=16, budget=3, mode='pack'))
    planner.plan(dataclasses.replace(
        r, scores=r.scores if trusted else untrusted(r), strategies=(strategy,),
        history=model.MoveHistory(scope_cooling=cooling, draining=frozenset({'h0'}))))
    assert strategy.seen.held == held


def test_a_cooling_scope_only_continues_drains():
    log = []
    r = request(strategies=(Recorder(log, 'repair'), Recorder(log, 'pack', continues=True)),
                history=model.MoveHistory(scope_cooling=0.9, draining=frozenset({'h0'})))
    pack = clouds.request(clouds.Knobs(seed=2, hosts=4, instances=16, budget=3, mode='pack'))
    plan = planner.plan(dataclasses.replace(pack, strategies=r.strategies, history=r.history))
    assert log == [('pack', 3)]
    assert plan.reason == 'the scope cools down for another 1 s'


def test_a_cooling_scope_begins_no_drain():
    log = []
    planner.plan(request(strategies=(Recorder(log, 'pack', continues=True),),
                         history=model.MoveHistory(scope_cooling=0.9)))
    assert log == []


def test_a_drain_of_a_host_that_left_the_scope_is_forgotten():
    plan = planner.plan(request(history=model.MoveHistory(draining=frozenset({'gone'}))))
    assert plan.draining == frozenset()


def test_rejections_are_counted_by_rule_and_zeros_left_out():
    r = request()
    locked = {u: dataclasses.replace(i, claims={'VCPU': 10_000})
              for u, i in r.cluster.instances.items()}
    plan = planner.plan(dataclasses.replace(
        r, cluster=dataclasses.replace(r.cluster, instances=locked)))
    assert plan.moves == () and plan.rejections['no-room'] > 0
    assert all(plan.rejections.values())
