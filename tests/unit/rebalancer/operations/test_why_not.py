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

"""Why a move was not made: the verdicts of the rules, and the effects of the move."""

import dataclasses
import datetime

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.cli import explain
from kronos_nova.constraints import cluster_view
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.operations import why_not
from kronos_nova.rebalancer.planning import planner
from tests.scenarios import loader
from tests.unit import clouds

PHASES = tuple(model.Phase)


@clouds.examples(200)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_exactly_the_refusing_rules_are_named(knobs, rng):
    request = planner.prepare_planning_input(clouds.request(knobs))
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.hosts)
    hypothesis.assume(uuids)
    uuid, host, phase = rng.choice(uuids), rng.choice(hosts), rng.choice(PHASES)
    answer = why_not.why_not(request, uuid, host, phase)
    ceilings = {p.name: p.capacity_threshold if request.policies.mode == 'pack' else 1.0
                for p in request.policies.enabled_policies}
    view = cluster_view.ClusterView(
        request.cluster, request.options, request.history, request.scores, ceilings,
        draining=request.history.draining)
    wrong = constraints.list_rejections(view, answer.move)
    assert [(v.rule, v.detail) for v in answer.refused] == [(no.rule, no.detail) for no in wrong]
    assert len(answer.verdicts) == len(constraints.RULES) or answer.verdicts[0].passed is False
    assert answer.conclusion.startswith('refused by ' if wrong else 'no rule refuses it')


def test_each_refusing_rule_names_the_change_that_would_allow_the_move():
    request = loader.load(
        loader.HERE / 'spread_waits_until_scores_show_the_last_move.yaml').request
    uuid = loader.uuid_of('a0')
    locked = dataclasses.replace(request.cluster.instances[uuid], locked=True)
    request = dataclasses.replace(
        request, history=model.MoveHistory(quarantined={uuid: -1.0}), cluster=dataclasses.replace(
            request.cluster, instances={**request.cluster.instances, uuid: locked}))
    answer = why_not.why_not(request, uuid, 'b', model.Phase.SPREAD)
    assert [rule for rule, _ in answer.changes] == ['locked', 'quarantined']
    assert 'unlock' in answer.changes[0][1] and 'lift' in answer.changes[1][1]
    answer = why_not.why_not(request, uuid, 'a', model.Phase.SPREAD)
    assert ('same-host', None) in answer.changes


@clouds.examples(300)
@hypothesis.given(clouds.knobs(tight=True, trees=False), st.randoms(use_true_random=False))
def test_the_named_shortfall_is_exactly_enough(knobs, rng):
    """With that much more room, or room below the ceiling, the rule allows the move; with one
    less it still refuses."""
    request = planner.prepare_planning_input(clouds.request(knobs))
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.scope_hosts)
    hypothesis.assume(uuids)
    uuid, host = rng.choice(uuids), rng.choice(hosts)
    answer = why_not.why_not(request, uuid, host, model.Phase.EVACUATE)
    refused = {v.rule for v in answer.refused}
    assert answer.amounts.keys() <= refused | {'no-room'}
    assert ('ceiling' in refused) == ('ceiling' in answer.amounts)
    if 'no-room' not in refused or not request.cluster.hosts[host].provider:
        return
    missing = {name: int(amount) for amount, name in (
        part.split() for part in answer.amounts['no-room'].split(', '))}
    of = request.cluster.hosts[host]

    def again(less):
        inventories = {name: dataclasses.replace(
            inventory, allocation_ratio=1.0, reserved=0, max_unit=2**31 - 1,
            total=int(inventory.capacity) + (missing[name] - less if name in missing else 0))
            for name, inventory in of.provider.inventories.items()}
        cluster = dataclasses.replace(request.cluster, hosts={
            **request.cluster.hosts, host: dataclasses.replace(
                of, provider=dataclasses.replace(of.provider, inventories=inventories))})
        return {v.rule for v in why_not.why_not(
            dataclasses.replace(request, cluster=cluster), uuid, host,
            model.Phase.EVACUATE).refused}

    assert 'no-room' not in again(0)
    assert 'no-room' in again(1)


@clouds.examples(200)
@hypothesis.given(clouds.knobs(trees=False), st.randoms(use_true_random=False))
def test_a_rule_that_counts_tells_what_there_would_be_of_what_there_may_be(knobs, rng):
    request = planner.prepare_planning_input(clouds.request(knobs))
    uuids, hosts = sorted(request.cluster.instances), sorted(request.cluster.scope_hosts)
    hypothesis.assume(uuids)
    uuid, host = rng.choice(uuids), rng.choice(hosts)
    answer = why_not.why_not(request, uuid, host, model.Phase.EVACUATE)
    told = {v.rule: v.detail for v in answer.verdicts if v.passed}
    of = request.cluster.instances[uuid]
    if 'claims' in told and request.cluster.placement_known:
        for part in filter(None, told['claims'].split(', ')):
            there, _, may, name = part.split()
            assert of.claims[name] <= int(there)
            assert int(there) <= int(may) or name == 'DISK_GB'
    groups = [g for g in request.cluster.groups if uuid in g.members]
    if 'anti-affinity' in told:
        apart = [g for g in groups if g.policy is model.GroupPolicy.ANTI_AFFINITY]
        parts = [part for part in told['anti-affinity'].split('; ') if part]
        assert len(parts) == len(apart)
        for part in parts:
            there, _, may, *_ = part.split()
            assert 1 <= int(there) <= int(may)


def test_the_named_change_has_its_amount():
    found = why_not.MoveAnswer(
        model.Move('i', 'a', 'b', model.Phase.SPREAD), (), (
            why_not.RuleVerdict('no-room', False), why_not.RuleVerdict('locked', False),
            why_not.RuleVerdict('cell-differs', False)), (), None, None, False,
        {'no-room': '2 VCPU', 'cell-differs': 'nothing'})
    assert found.changes == (
        ('no-room', 'as much as is short is freed on the host, or its allocation ratio is '
                    'raised: 2 VCPU'),
        ('locked', constraints.CODES['locked'].remedy), ('cell-differs', None))


@clouds.examples(200)
@hypothesis.given(clouds.knobs(mode='spread', drains=False))
def test_the_prediction_equals_a_plan_of_that_one_move(knobs):
    """Without drains: a draining host neither gives nor takes other instances."""
    request = dataclasses.replace(clouds.request(knobs), budget=1)
    plan = planner.plan(request)
    hypothesis.assume(len(plan.moves) == 1 and plan.combined_after is not None)
    (move,) = plan.moves
    answer = why_not.why_not(request, move.instance_uuid, move.to_host, move.phase)
    assert answer.refused == ()
    assert answer.combined_before == pytest.approx(plan.combined_before)
    assert answer.combined_after == pytest.approx(plan.combined_after)
    assert [(e.policy, e.before, e.after) for e in answer.effects] == [
        (p.name, pytest.approx(p.imbalance_before), pytest.approx(p.imbalance_after))
        for p in plan.policies]


@pytest.fixture
def request_(tmp_path):
    path = tmp_path / 'two.yaml'
    path.write_text('''
title: A host with load, and an idle one
policies:
  - {name: cpu, weight: 1.0, threshold: 0.15, imbalance_query: cpu, vm_profile_query: vm}
hosts: {a: , b: }
scores: {cpu: {a: 0.5, b: 0.2}}
instances: {a0: {at: a, usage: {cpu: 0.2}}, b0: {at: b, usage: {cpu: 0.1}}}
expect: {count: 1}
''')
    return loader.load(path).request


def asked(request, host='b', uuid=None, phase=model.Phase.SPREAD):
    loaded = uuid or next(u for u, i in request.cluster.instances.items() if i.host == 'a')
    return why_not.why_not(request, loaded, host, phase)


def test_a_scope_that_is_held_says_so(request_):
    history = dataclasses.replace(request_.history, paused='paused by me')
    answer = asked(dataclasses.replace(request_, history=history))
    assert answer.holds == ('paused by me',)
    assert answer.conclusion == 'no rule refuses it; it waits, because paused by me'


def test_an_allowed_move_without_benefit_says_so(request_):
    idle = next(u for u, i in request_.cluster.instances.items() if i.host == 'b')
    answer = asked(request_, 'a', idle)
    assert 'it would not lower the imbalance' in answer.conclusion
    assert answer.effects[0].after > answer.effects[0].before


def test_below_every_threshold_that_is_the_reason(request_):
    policies = request_.policies.model_copy(update={'policies': tuple(
        p.model_copy(update={'threshold': 1.0}) for p in request_.policies.policies)})
    answer = asked(dataclasses.replace(request_, policies=policies))
    assert 'of no policy is above its threshold' in answer.conclusion
    assert 'unless others that bring more' in asked(request_).conclusion


def test_where_metrics_do_not_count_a_destination_is_one_of_several(request_):
    answer = asked(request_, phase=model.Phase.EVACUATE)
    assert answer.conclusion.endswith('one of the destinations that are compared')


@pytest.mark.parametrize('option, late, verdict, text', [
    ('never', True, 'refused', 'not shut down after its late live migration: [engine]'),
    ('consent', True, 'refused', 'not shut down after its late live migration: no contract'),
    ('allow', False, 'if late', 'started again, if its live migration is late'),
    ('allow', True, 'passed', 'started again: its live migration was late')])
def test_a_drain_says_whether_it_may_shut_the_instance_down(request_, option, late, verdict, text):
    loaded = next(u for u, i in request_.cluster.instances.items() if i.host == 'a')
    request = dataclasses.replace(
        request_, options=dataclasses.replace(request_.options,
                                              drain_offline=model.OfflineDrains(option)),
        history=model.MoveHistory(late_drains={loaded: 'a'} if late else {},
                                  quarantined={loaded: 3600.0} if late else {}))
    rows = [row for row in explain._render_answer_rows(asked(
        request, phase=model.Phase.EVACUATE)) if row[0] == 'shutdown']
    assert [row[1] for row in rows] == [verdict] and text in rows[0][2]
    assert (verdict == 'refused') == ('; remedy: ' in rows[0][2])
    assert asked(request, phase=model.Phase.SPREAD).shutdown is None


def test_a_drain_that_shuts_no_instance_down_has_no_row_about_it(request_):
    assert request_.options.drain_offline == model.OfflineDrains.NEVER
    assert asked(request_, phase=model.Phase.EVACUATE).shutdown is None


NOTIFY = {'contracts': (model.Contract(
    model.ContractSource.FLAVOR, notify=model.NoticePeriod(60)),)}


@pytest.mark.parametrize('changes, verdict, text', [
    ({'locked': True}, 'refused', 'not shut down after its late live migration: this move is '
                                  'refused by locked'),
    ({}, 'later', 'its live migration was late; this move is refused by cooling'),
    ({**NOTIFY, 'task_state': 'image_uploading'}, 'later',
     'its live migration was late; its owner asks for notice')])
def test_a_late_instance_that_another_rule_keeps_is_not_shut_down_now(
        request_, changes, verdict, text):
    """It cools down, and is busy; a lock stays."""
    loaded = next(u for u, i in request_.cluster.instances.items() if i.host == 'a')
    changed = dataclasses.replace(request_.cluster.instances[loaded], **changes)
    request = dataclasses.replace(
        request_, options=dataclasses.replace(request_.options,
                                              drain_offline=model.OfflineDrains.ALLOW),
        history=model.MoveHistory(late_drains={loaded: 'a'}, quarantined={loaded: 3600.0},
                                  cooling={loaded: 60.0}),
        cluster=dataclasses.replace(
            request_.cluster, instances={**request_.cluster.instances, loaded: changed}))
    (row,) = [row for row in explain._render_answer_rows(asked(
        request, phase=model.Phase.EVACUATE)) if row[0] == 'shutdown']
    assert row[1] == verdict and text in row[2], row
    assert ('cooling' in row[2]) == ('cooling' in text)


@pytest.mark.parametrize('late, quarantined', [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize('stated, text', [
    ({'notify': model.NoticePeriod(60)}, 'its owner asks for notice, and has had none'),
    ({'hours': movement_hours.parse_hours('* * * 1 *')}, 'its contract says hours'),
    ({'max_moves': model.MoveQuota(1, 7 * 86400)}, 'its contract says max_moves')])
def test_obstacle_that_passes_does_not_read_as_no_shutdown(request_, stated, text, late,
                                                               quarantined):
    """A missing notice, closed hours and moves that are used up read the same.

    They hold the live migration as well, so none comes once the quarantine is over.
    """
    uuid, instance = next((u, i) for u, i in request_.cluster.instances.items() if i.host == 'a')
    at = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC).timestamp()
    request = dataclasses.replace(
        request_, cluster=dataclasses.replace(request_.cluster, taken_at=at, instances={
            **request_.cluster.instances, uuid: dataclasses.replace(
                instance, contracts=(model.Contract(model.ContractSource.FLAVOR, **stated),))}),
        options=dataclasses.replace(request_.options, drain_offline=model.OfflineDrains.ALLOW),
        history=model.MoveHistory(
            move_times={uuid: (at - 60,)}, quarantined={uuid: 3600.0} if quarantined else {},
            late_drains={uuid: 'a'} if late else {}))
    (row,) = [row for row in explain._render_answer_rows(
        asked(request, phase=model.Phase.EVACUATE)) if row[0] == 'shutdown']
    assert row[1] == 'later' and 'not shut down' not in row[2], row
    assert row[2].startswith('shut down, moved cold and started again') and text in row[2], row
    assert ('if its live migration is late' in row[2]) != late and '; remedy: ' in row[2]
