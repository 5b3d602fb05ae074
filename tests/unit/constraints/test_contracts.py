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

"""The rule of contracts: grades by phase, the operator's cap, hours, quotas and the deadline."""

import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.model import movement_hours
from tests.unit import clouds

UUID = clouds.uuid_of('i')
#: Sunday, 2026-11-01, 12:00 UTC.
NOON = 1793534400.0
BALANCE = (model.Phase.SPREAD, model.Phase.PACK, model.Phase.AFFINITY)
DRAINS = (model.Phase.EVACUATE, model.Phase.REQUESTED)
METADATA, TAG, FLAVOR, PROJECT = model.ContractSource
ONE_O_CLOCK = movement_hours.parse_hours('* 13 * * *')
NO_CAP = model.ContractOptions(strongest_for_tenants=model.Disruption.NEVER)


def make_view(instance, options, times=(), now=NOON, planning=None, notice=None, returning=()):
    return cluster_view.ClusterView(
        model.Cluster({}, {UUID: instance}, {}, taken_at=now),
        dataclasses.replace(planning or model.PlanningOptions(), contracts=options),
        model.MoveHistory(move_times={UUID: times}, notices={} if notice is None else {
            UUID: notice}), returning=returning)


def judge(phase, *stated, options=NO_CAP, times=(), now=NOON, planning=None, notice=None,
          returning=(), **instance):
    """Return the code of the rejection; None: the rule allows the move."""
    view = make_view(model.Instance(UUID, 'a', contracts=stated, **instance), options, times, now,
                     planning, notice, returning)
    rejection = contracts.contract(view, model.Move(UUID, 'a', 'b', phase))
    return rejection and rejection.rule


def refused(*stated, **more):
    """Return the phases of the moves that are refused."""
    return {phase for phase in model.Phase if judge(phase, *stated, **more) is not None}


@pytest.mark.parametrize(('value', 'phases'), [
    ('poweroff-ok', ()), ('cold-ok', ()), ('live', ()), ('drain-only', BALANCE),
    ('never', BALANCE + DRAINS)])
@pytest.mark.parametrize('source', model.ContractSource)
def test_each_grade_forbids_its_phases(value, phases, source):
    assert refused(model.Contract(source, model.Disruption(value))) == set(phases)


@pytest.mark.parametrize(('cap', 'phases'), [
    ('poweroff-ok', ()), ('cold-ok', ()), ('live', ()), ('drain-only', BALANCE),
    ('never', BALANCE + DRAINS)])
@pytest.mark.parametrize('stated', [
    {'disruption': model.Disruption.NEVER}, {'hours': ONE_O_CLOCK},
    {'max_moves': model.MoveQuota(1, 60)}, {'unreadable': ('hours',)},
    {'notify': model.NoticePeriod(60)}])
def test_tenants_forbid_no_more_than_the_cap(cap, phases, stated):
    options = model.ContractOptions(strongest_for_tenants=model.Disruption(cap))
    more = {'options': options, 'times': (NOON - 1,)}
    for source in (METADATA, TAG):
        assert refused(model.Contract(source, **stated), **more) == set(phases)
    for source in (FLAVOR, PROJECT):
        assert refused(model.Contract(source, **stated), **more) == set(model.Phase)


values = st.builds(
    model.Contract, st.sampled_from((METADATA, TAG)),
    disruption=st.none() | st.sampled_from(model.Disruption),
    hours=st.none() | st.sampled_from(list(map(movement_hours.parse_hours, (
        '* 13 * * *', '* 12 * * sun', '* * 31 2 *')))),
    max_moves=st.none() | st.builds(model.MoveQuota, st.integers(1, 3), st.integers(1, 99999)),
    notify=st.none() | st.builds(model.NoticePeriod, st.integers(1, 99999)),
    unreadable=st.lists(st.sampled_from(('disruption', 'hours')), unique=True).map(tuple))


@given(stated=st.lists(values, max_size=4), cap=st.sampled_from(model.Disruption),
       phase=st.sampled_from(DRAINS), times=st.lists(st.floats(0, NOON)).map(tuple),
       deadline=st.none() | st.floats(NOON - 9, NOON + 9))
def test_no_contract_of_tenants_blocks_a_drain_beyond_the_cap(stated, cap, phase, times, deadline):
    options = model.ContractOptions(strongest_for_tenants=cap, ignore_after=deadline)
    code = judge(phase, *stated, options=options, times=times)
    if cap is not model.Disruption.NEVER or (deadline is not None and deadline <= NOON):
        assert code is None


@given(stated=st.lists(values, max_size=3), more=values, phase=st.sampled_from(model.Phase),
       cap=st.sampled_from(model.Disruption))
def test_another_statement_never_makes_an_instance_movable(stated, more, phase, cap):
    options = model.ContractOptions(strongest_for_tenants=cap)
    if judge(phase, *stated, options=options) is not None:
        assert judge(phase, *stated, more, options=options) is not None


@given(stated=values, phase=st.sampled_from(model.Phase),
       caps=st.sampled_from(list(itertools.pairwise(model.Disruption))))
def test_a_stronger_cap_allows_tenants_to_forbid_more(stated, phase, caps):
    weak, strong = (judge(phase, stated, options=model.ContractOptions(
        strongest_for_tenants=cap)) for cap in caps)
    assert weak is None or strong is not None


def test_an_instance_outside_its_hours_stays():
    hours = model.Contract(PROJECT, hours=movement_hours.parse_hours('* 12 * * sun'))
    assert refused(hours) == set()
    assert judge(model.Phase.EVACUATE, hours, now=NOON + 3600) == 'contract-hours'
    zone = dataclasses.replace(NO_CAP, timezone='Europe/Berlin')
    assert judge(model.Phase.EVACUATE, hours, options=zone) == 'contract-hours'
    assert judge(model.Phase.EVACUATE, hours, options=zone, now=NOON - 3600) is None


@pytest.mark.parametrize(('times', 'code'), [
    ((), None), ((NOON - 1,), None), ((NOON - 100, NOON - 1), None),
    ((NOON - 99, NOON - 1), 'contract-max-moves'), ((NOON - 9,) * 5, 'contract-max-moves')])
def test_moves_are_counted_until_they_are_old_enough(times, code):
    quota = model.Contract(PROJECT, max_moves=model.MoveQuota(2, 100))
    assert judge(model.Phase.EVACUATE, quota, times=times) == code


def test_after_the_deadline_drains_ignore_tenants_alone():
    at_noon = dataclasses.replace(NO_CAP, ignore_after=NOON)
    never = model.Disruption.NEVER
    for source in (METADATA, TAG):
        assert refused(model.Contract(source, never), options=at_noon) == set(BALANCE)
        assert refused(model.Contract(source, never), options=at_noon, now=NOON - 1) == set(
            model.Phase)
    for source in (FLAVOR, PROJECT):
        assert refused(model.Contract(source, never), options=at_noon) == set(model.Phase)
    assert refused(opted_out='tag stay', options=at_noon) == set(BALANCE)


@pytest.mark.parametrize(('grade', 'phases'), [
    (model.Disruption.NEVER, BALANCE + DRAINS), (model.Disruption.DRAIN_ONLY, BALANCE)])
def test_an_opt_out_has_the_grade_of_the_option_and_no_cap(grade, phases):
    options = model.ContractOptions(strongest_for_tenants=model.Disruption.POWEROFF_OK,
                                    opt_out=grade)
    assert refused(opted_out='tag stay', options=options) == set(phases)
    assert refused(project_id='p', options=options, planning=model.PlanningOptions(
        opted_out_projects=frozenset('p'))) == set(phases)


def test_defaults_keep_opted_out_instances_where_they_are():
    """As before there were contracts."""
    assert refused(opted_out='tag stay', options=model.ContractOptions()) == set(model.Phase)


def test_only_contracts_that_can_hold_a_live_move_are_looked_at():
    for stated, phase in itertools.product([
            model.Contract(source, **fields) for source in model.ContractSource for fields in (
                *({'disruption': grade} for grade in model.Disruption), {'hours': ONE_O_CLOCK},
                {'max_moves': model.MoveQuota(1, 60)}, {'unreadable': ('hours',)})], model.Phase):
        instance = model.Instance(UUID, 'a', contracts=(stated,))
        assert contracts.may_hold_moves(instance) or judge(phase, stated,
                                                           times=(NOON,)) is None


@pytest.mark.parametrize(('value', 'allowed'), [
    ('poweroff-ok', True), ('cold-ok', True), ('live', False), ('drain-only', False),
    ('never', False)])
def test_shutting_down_needs_a_contract_that_allows_it(value, allowed):
    instance = model.Instance(UUID, 'a', contracts=(
        model.Contract(METADATA, model.Disruption(value)),))

    def obstacle(method=model.MoveMethod.OFFLINE, instance=instance, **options):
        view = make_view(instance, dataclasses.replace(NO_CAP, **options))
        return contracts.find_method_obstacle(
            view, model.Move(UUID, 'a', 'b', model.Phase.REQUESTED), method)

    assert (obstacle() is None) == allowed
    assert obstacle(model.MoveMethod.LIVE) is None
    assert obstacle(instance=dataclasses.replace(instance, status='SHUTOFF')) is None
    assert obstacle(strongest_for_tenants=model.Disruption.COLD_OK) is None
    assert obstacle(ignore_after=NOON) is None


@pytest.mark.parametrize('stated', [
    {'hours': ONE_O_CLOCK}, {'max_moves': model.MoveQuota(1, 60)}, {'unreadable': ('hours',)}])
def test_what_counts_as_never_forbids_to_shut_down_within_the_cap(stated):
    for cap in model.Disruption:
        view = make_view(
            model.Instance(UUID, 'a', contracts=(model.Contract(TAG, **stated),)),
            model.ContractOptions(strongest_for_tenants=cap), (NOON - 1,))
        assert (contracts.find_method_obstacle(
            view, model.Move(UUID, 'a', 'b', model.Phase.REQUESTED),
            model.MoveMethod.OFFLINE) is None) == (cap.rank <= model.Disruption.COLD_OK.rank)


@pytest.mark.parametrize('cap', model.Disruption)
def test_a_notice_that_waits_forbids_no_way_to_move(cap):
    """The rule forbids the move until its time has come, as far as the cap allows."""
    view = make_view(model.Instance(UUID, 'a', status='ACTIVE', contracts=(
        model.Contract(METADATA, notify=model.NoticePeriod(3600)),)), model.ContractOptions(
            strongest_for_tenants=cap))
    assert contracts.find_method_obstacle(
        view, model.Move(UUID, 'a', 'b', model.Phase.EVACUATE), model.MoveMethod.OFFLINE) is None


@pytest.mark.parametrize(('stated', 'code'), [
    ({'hours': movement_hours.parse_hours('* 12 * * *')}, 'contract-hours'),
    ({'max_moves': model.MoveQuota(9, 60)}, 'contract-max-moves'),
    ({'disruption': model.Disruption.DRAIN_ONLY}, None)])
def test_limits_that_count_keep_an_instance_off_parking_hosts(stated, code):
    def judge_parking(source, **options):
        view = make_view(model.Instance(UUID, 'a', contracts=(model.Contract(source, **stated),)),
                         model.ContractOptions(**options))
        rejection = contracts.find_parking_obstacle(
            view, model.Move(UUID, 'a', 'b', model.Phase.REQUESTED))
        return rejection and rejection.rule

    drain_only, never = model.Disruption.DRAIN_ONLY, model.Disruption.NEVER
    assert judge_parking(FLAVOR) == judge_parking(METADATA, strongest_for_tenants=never) == code
    assert judge_parking(METADATA, strongest_for_tenants=drain_only) is None
    assert judge_parking(METADATA, strongest_for_tenants=never, ignore_after=NOON) is None


def test_unreadable_contracts_of_the_scope_are_named_without_their_text():
    instances = {clouds.uuid_of(str(n)): model.Instance(
        clouds.uuid_of(str(n)), 'a', contracts=(model.Contract(TAG, unreadable=('hours',)),))
        for n in range(12)}
    elsewhere = model.Instance('x', 'z', contracts=(model.Contract(TAG, unreadable=('hours',)),))
    cluster = model.Cluster({}, {**instances, 'x': elsewhere}, {}, scope_hosts=frozenset('a'))
    warnings = contracts.describe_unreadable(cluster)
    assert len(warnings) == 11 and warnings[-1].endswith('2 more instances cannot be read')
    assert warnings[0].startswith(f'instance {min(instances)}: ')
    assert 'hours unreadable (tag)' in warnings[0]


def test_an_executor_ends_a_task_that_a_contract_forbids():
    codes = [code for code in constraints.CODES if code.startswith('contract-')]
    assert len(codes) == 5
    assert all(constraints.CODES[code].retry is constraints.RetryClass.FINAL for code in codes)


HOUR = model.Contract(PROJECT, notify=model.NoticePeriod(3600))


def notice(ago, **more):
    return model.MoveNotice(**{
        'instance_uuid': UUID, 'project_id': 'p', 'host': 'a', 'reason': model.NoticeReason.DRAIN,
        'noticed_at': NOON - ago, 'movable_from': NOON, 'valid_until': NOON + 60, **more})


@pytest.mark.parametrize(('given', 'code'), [
    (None, 'contract-notice'), (notice(3599.9), 'contract-notice'), (notice(3600), None),
    (notice(7200, host='b'), 'contract-notice'),
    (notice(7200, valid_until=NOON), 'contract-notice'),
    (notice(7200, used_at=NOON - 5), 'contract-notice')])
@pytest.mark.parametrize('phase', model.Phase)
def test_an_owner_has_notice_for_the_whole_time_before_a_move(given, code, phase):
    assert judge(phase, HOUR, notice=given) == code


def test_the_longest_notice_of_all_sources_counts():
    day = model.Contract(FLAVOR, notify=model.NoticePeriod(86400))
    assert judge(model.Phase.SPREAD, HOUR, day, notice=notice(3600)) == 'contract-notice'
    assert judge(model.Phase.SPREAD, HOUR, day, notice=notice(86400)) is None


@pytest.mark.parametrize(('until', 'code'), [
    (NOON + 1, None), (NOON, 'contract-notice'), (NOON - 365 * 86400, 'contract-notice'),
    (NOON + 30 * 86400, None), (NOON + 30 * 86400 + 1, 'contract-notice')])
@pytest.mark.parametrize('source', [METADATA, TAG])
def test_an_owner_releases_its_instance_until_a_time(until, code, source):
    release = model.Contract(source, release=until)
    assert judge(model.Phase.EVACUATE, HOUR, release) == code
    never = model.Contract(PROJECT, model.Disruption.NEVER)
    assert judge(model.Phase.EVACUATE, never, release) == 'contract-disruption'


def test_the_way_back_of_a_swap_waits_for_no_notice():
    assert judge(model.Phase.REQUESTED, HOUR, returning=[UUID]) is None


@pytest.mark.parametrize(('stated', 'times', 'given', 'expected'), [
    ((HOUR,), (), None, NOON + 3600), ((HOUR,), (), notice(600), NOON + 3000),
    ((HOUR,), (), notice(9000, host='b'), NOON + 3600), ((HOUR,), (), notice(3600), NOON),
    ((model.Contract(PROJECT, hours=ONE_O_CLOCK),), (), None, NOON + 3600),
    ((model.Contract(PROJECT, hours=ONE_O_CLOCK), HOUR), (), notice(0), NOON + 3600),
    # The hours are over when the time of the notice has come: the next day.
    ((model.Contract(PROJECT, hours=ONE_O_CLOCK, notify=model.NoticePeriod(7200)),), (), None,
     NOON + 25 * 3600),
    ((model.Contract(PROJECT, max_moves=model.MoveQuota(2, 100)),), (NOON - 60, NOON - 9), None,
     NOON + 40),
    ((model.Contract(PROJECT, max_moves=model.MoveQuota(1, 100)),), (NOON - 60, NOON - 9), None,
     NOON + 91),
    ((model.Contract(PROJECT, model.Disruption.NEVER), HOUR), (), None, None),
    ((model.Contract(PROJECT, hours=movement_hours.parse_hours('* * 31 2 *')),), (), None, None),
    ((model.Contract(PROJECT, hours=ONE_O_CLOCK),
      model.Contract(FLAVOR, hours=movement_hours.parse_hours('* 14 * * *'))), (), None, None),
    ((), (), None, NOON)])
def test_the_time_when_contracts_allow_a_move(stated, times, given, expected):
    view = make_view(model.Instance(UUID, 'a', contracts=stated), NO_CAP, times, notice=given)
    move = model.Move(UUID, 'a', '', model.Phase.EVACUATE)
    assert contracts.find_movable_from(view, move) == expected


@pytest.mark.parametrize('texts', [
    ('0-4 0 1 1 *', '0-4 0 1 2 *'), ('58-59,0-2 0,23 1-30/2 * *', '0-4 0 1 2 *'),
    ('0-58/2,59 * 1-30/2 * *', '58-59,0-2 0,23 1-30/2 * *')])
def test_hours_of_tenants_that_never_open_together_cost_few_steps_a_day(texts, monkeypatch):
    steps = []
    includes_day = movement_hours.MovementHours.includes_day
    monkeypatch.setattr(movement_hours.MovementHours, 'includes_day', lambda hours, day: (
        steps.append(day) or includes_day(hours, day)))
    stated = [model.Contract(source, hours=movement_hours.parse_hours(text))
              for source, text in zip((METADATA, TAG), texts, strict=True)]
    move = model.Move(UUID, 'a', '', model.Phase.EVACUATE)

    def search(minute):
        view = make_view(model.Instance(UUID, 'a', contracts=tuple(stated)), NO_CAP,
                         now=NOON + 60 * minute)
        steps.clear()
        assert contracts.find_movable_from(view, move) is None
        return len(steps)

    movement_hours._find_on_days.cache_clear()
    assert search(0) < 4 * 366
    assert search(1) < 30


given_notices = st.none() | st.builds(
    notice, st.floats(0, 99999), valid_until=st.floats(NOON - 9, NOON + 99999),
    host=st.sampled_from('ab'))


@given(stated=st.lists(values, max_size=3), phase=st.sampled_from(model.Phase),
       times=st.lists(st.floats(NOON - 99999, NOON), max_size=4).map(tuple), given=given_notices)
def test_contracts_allow_the_move_at_that_time_and_not_before(stated, phase, times, given):
    """Where no notice was given, one is given now, and lasts."""
    instance = model.Instance(UUID, 'a', contracts=tuple(stated))
    view = make_view(instance, NO_CAP, times, notice=given)
    move = model.Move(UUID, 'a', '', phase)
    start = contracts.find_movable_from(view, move)
    if start is None:
        return
    if given is None or given.host != 'a' or given.valid_until <= NOON:
        given = notice(0)
    given = dataclasses.replace(given, valid_until=start + 1)

    def find_code(now):
        return judge(phase, *stated, times=times, now=now, notice=given)

    assert find_code(start) is None
    if start > NOON:
        assert judge(phase, *stated, times=times, notice=given) is not None
        assert find_code(start - 0.5) is not None


def test_a_plan_uses_no_hours_that_end_before_its_moves_begin():
    hours = model.Contract(PROJECT, hours=movement_hours.parse_hours('0-9 12 * * *'))
    last = NOON + 10 * 60 - movement_hours.BEGIN_WITHIN
    assert judge(model.Phase.SPREAD, hours, now=last - 1) is None
    assert judge(model.Phase.SPREAD, hours, now=last) == 'contract-hours'
    at_once = dataclasses.replace(NO_CAP, begin_within=0.0)
    assert judge(model.Phase.SPREAD, hours, now=NOON + 599, options=at_once) is None


def test_keys_without_effect_are_warned_of_without_their_text():
    instances = {str(n): model.Instance(str(n), 'a', contracts=(
        model.Contract(TAG, ineffective=2),)) for n in range(12)}
    cluster = model.Cluster({}, instances, {}, scope_hosts=frozenset('a'))
    warnings = contracts.describe_unreadable(cluster)
    assert len(warnings) == 11 and warnings[-1] == '2 more sources have keys without effect'
    assert warnings[0] == ('instance 0: 2 keys of its tag begin with kronos: and have no effect: '
                           'the key is unknown, or the time of a release cannot be read')
