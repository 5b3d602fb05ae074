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

"""Which drains shut an instance down after its live migration was late."""

import dataclasses

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import offline_drains
from kronos_nova.model import movement_hours
from tests.unit.constraints import test_contracts

UUID, NOON = test_contracts.UUID, test_contracts.NOON
METADATA, TAG, FLAVOR, PROJECT = model.ContractSource
NEVER, CONSENT, ALLOW = model.OfflineDrains
DISRUPTION = model.Disruption
CLOSED = movement_hours.parse_hours('* * 31 2 *')
MIDNIGHT = movement_hours.parse_hours('* 0 * * *')


def view_of(option, stated, late='a', quarantined=3600.0, caps=(), times=(), **instance):
    options = model.PlanningOptions(
        drain_offline=option, evacuate_disabled_hosts=True,
        contracts=model.ContractOptions(**dict(caps)))
    return cluster_view.ClusterView(
        model.Cluster({}, {UUID: model.Instance(UUID, 'a', contracts=stated, **instance)}, {
            'a': model.Service('a', status='disabled')}, taken_at=NOON), options,
        model.MoveHistory(quarantined={UUID: quarantined}, move_times={UUID: times},
                          late_drains={UUID: late} if late else {}))


def is_admitted(option, *stated, phase=model.Phase.EVACUATE, **more):
    return offline_drains.is_admitted(view_of(option, stated, **more),
                                      model.Move(UUID, 'a', 'b', phase))


@pytest.mark.parametrize('disruption, admitting', [
    (None, {ALLOW}), (DISRUPTION.POWEROFF_OK, {CONSENT, ALLOW}),
    (DISRUPTION.COLD_OK, {CONSENT, ALLOW}), (DISRUPTION.LIVE, set()),
    (DISRUPTION.DRAIN_ONLY, set()), (DISRUPTION.NEVER, set())])
@pytest.mark.parametrize('source', model.ContractSource)
def test_option_and_contract_admit_a_shutdown_together(source, disruption, admitting):
    """The default cap takes nothing from what an owner says about it."""
    stated = () if disruption is None else (model.Contract(source, disruption=disruption),)
    assert {option for option in model.OfflineDrains if is_admitted(option, *stated)} == admitting


@pytest.mark.parametrize('stated', [
    {'hours': CLOSED}, {'unreadable': ('disruption',)}, {'max_moves': model.MoveQuota(0, 60)},
    {'notify': model.NoticePeriod(60)}])
@pytest.mark.parametrize('caps', [{}, {'ignore_after': NOON - 1}])
def test_other_statements_of_an_owner_count_in_full(stated, caps):
    consent = model.Contract(PROJECT, disruption=DISRUPTION.COLD_OK)
    assert is_admitted(CONSENT, consent, caps=caps)
    assert not is_admitted(CONSENT, consent, model.Contract(METADATA, **stated), caps=caps)
    assert not is_admitted(ALLOW, model.Contract(METADATA, **stated), caps=caps)


def test_owner_who_has_had_notice_or_waives_it_is_moved():
    stated = model.Contract(METADATA, notify=model.NoticePeriod(60))
    view = view_of(ALLOW, (stated,))
    move = model.Move(UUID, 'a', 'b', model.Phase.EVACUATE)
    for seconds, named, admitted in ((59.0, True, False), (61.0, True, True), (61.0, False, False)):
        view.history = dataclasses.replace(view.history, notices={UUID: model.MoveNotice(
            UUID, 'p', 'a', model.NoticeReason.DRAIN, NOON - seconds, NOON, NOON + 60,
            may_shut_down=named)})
        assert offline_drains.is_admitted(view, move) == admitted
        assert offline_drains.may_shut_down(view, move), 'a notice says so before it counts'
    assert is_admitted(ALLOW, stated, model.Contract(METADATA, release=NOON + 60))


def test_owner_who_has_opted_out_is_left_alone():
    assert is_admitted(ALLOW)
    assert not is_admitted(ALLOW, opted_out='tag',
                           caps={'opt_out': DISRUPTION.POWEROFF_OK})


@pytest.mark.parametrize('more', [
    {'late': None}, {'late': 'c'}, {'status': 'SHUTOFF'}, {'status': 'PAUSED'}, {'status': 'ERROR'},
    {'phase': model.Phase.SPREAD}, {'phase': model.Phase.REQUESTED}])
def test_only_late_drains_of_active_instances_are_offline(more):
    """One that has left the host since can be moved live, perhaps."""
    assert is_admitted(ALLOW) and not is_admitted(ALLOW, **more)


def obstacle(option, *stated, **more):
    return offline_drains.find_obstacle(
        view_of(option, stated, **more), model.Move(UUID, 'a', 'b', model.Phase.EVACUATE),
        suppose_late=True)


@pytest.mark.parametrize('option, stated, more, detail, remedy', [
    (NEVER, (), {}, 'drain_offline is never', 'consent or allow'),
    (CONSENT, (), {}, 'no contract says', 'kronos:disruption = cold-ok'),
    (ALLOW, (), {'status': 'PAUSED'}, 'not active', 'without a shutdown'),
    (ALLOW, (model.Contract(TAG, disruption=DISRUPTION.LIVE),), {'late': None},
     'strongest_for_tenants', 'its owner says kronos:disruption = cold-ok'),
    (ALLOW, (model.Contract(FLAVOR, disruption=DISRUPTION.LIVE),), {}, 'live', 'resized'),
    (ALLOW, (model.Contract(PROJECT, disruption=DISRUPTION.NEVER),), {}, 'never',
     '[contracts] file'),
    (ALLOW, (model.Contract(METADATA, hours=CLOSED),), {}, 'within a year',
     'other hours'),
    (ALLOW, (model.Contract(FLAVOR, hours=MIDNIGHT), model.Contract(
        METADATA, hours=movement_hours.parse_hours('* 1 * * *'))), {}, 'within a year',
     'other hours'),
    (ALLOW, (model.Contract(METADATA, hours=MIDNIGHT),), {}, 'hours', 'its hours begin'),
    (ALLOW, (model.Contract(METADATA, hours=MIDNIGHT), model.Contract(
        FLAVOR, disruption=DISRUPTION.LIVE)), {}, 'live', 'resized'),
    (ALLOW, (model.Contract(METADATA, max_moves=model.MoveQuota(1, 60)),),
     {'times': (NOON - 1,)}, '1/1m', 'earlier moves'),
    (ALLOW, (model.Contract(METADATA, hours=MIDNIGHT, notify=model.NoticePeriod(60)),), {},
     'notice', 'kronos:release'),
    (ALLOW, (model.Contract(METADATA, unreadable=('hours',)),), {}, 'hours', 'corrected'),
    (ALLOW, (model.Contract(METADATA, notify=model.NoticePeriod(60)),), {}, 'notice',
     'kronos:release'),
    (ALLOW, (), {'opted_out': 'tag'}, 'opted out', 'takes the metadata or the tag away')])
def test_each_obstacle_names_its_remedy(option, stated, more, detail, remedy):
    found = obstacle(option, *stated, **more)
    assert detail in found.detail and remedy in found.remedy, found
    assert found.lacks_notice == any(contract.notify for contract in stated)
    passes = found.lacks_notice or bool(stated) and (
        'times' in more or {contract.hours for contract in stated} == {MIDNIGHT})
    assert found.passes == passes
    move = model.Move(UUID, 'a', 'b', model.Phase.EVACUATE)
    assert offline_drains.may_shut_down(view_of(option, stated, **more), move) == passes


@pytest.mark.parametrize('returning', [True, False])
@pytest.mark.parametrize('also', [{}, {'notify': model.NoticePeriod(60)}])
def test_hours_that_never_open_together_forbid_a_shutdown_while_some_are_open(also, returning):
    """The way back of a swap is bound to no hours."""
    one, two = (model.Contract(source, hours=movement_hours.parse_hours(f'* {hour} * * *'), **also)
                for source, hour in ((FLAVOR, 12), (METADATA, 0)))
    assert is_admitted(ALLOW, dataclasses.replace(one, notify=None)), 'it is noon'
    view = view_of(ALLOW, (one, two))
    view.returning = frozenset({UUID} if returning else ())
    move = model.Move(UUID, 'a', 'b', model.Phase.EVACUATE)
    found = offline_drains.find_obstacle(view, move)
    assert offline_drains.may_shut_down(view, move) == returning == (found is None)
    assert found is None or 'within a year' in found.detail and not found.passes
    assert obstacle(ALLOW, one, dataclasses.replace(two, hours=one.hours, **also)) == obstacle(
        ALLOW, one), 'hours that are open at once do not count'


@pytest.mark.parametrize('source, caps, beyond', [
    (METADATA, {}, 'strongest_for_tenants'), (FLAVOR, {}, None),
    (METADATA, {'strongest_for_tenants': DISRUPTION.NEVER}, None),
    (METADATA, {'strongest_for_tenants': DISRUPTION.LIVE}, None),
    (METADATA, {'strongest_for_tenants': DISRUPTION.NEVER, 'ignore_after': NOON + 1}, None),
    (METADATA, {'strongest_for_tenants': DISRUPTION.COLD_OK}, 'strongest_for_tenants'),
    (METADATA, {'strongest_for_tenants': DISRUPTION.NEVER, 'ignore_after': NOON - 1},
     'ignore_after')])
def test_obstacle_of_a_cap_for_tenants_says_that_the_cap_does_not_count(source, caps, beyond):
    found = obstacle(ALLOW, model.Contract(source, disruption=DISRUPTION.DRAIN_ONLY), caps=caps)
    _text, _comma, cap = found.detail.partition(', which counts in full here, beyond [contracts] ')
    assert (cap or None) == beyond


@pytest.mark.parametrize('noticed, named, detail, remedy, lacks', [
    (None, False, 'has had none', 'kronos:release', True),
    (300.0, False, 'does not name the shutdown', 'a further', True),
    (30.0, False, 'does not name the shutdown', 'a further', True),
    (30.0, True, 'from 2026-11-01T12:00:30+00:00 on', 'the time of the notice comes', False)])
def test_each_state_of_a_notice_has_its_text(noticed, named, detail, remedy, lacks):
    view = view_of(ALLOW, (model.Contract(FLAVOR, notify=model.NoticePeriod(60)),))
    if noticed is not None:
        view.history = dataclasses.replace(view.history, notices={UUID: model.MoveNotice(
            UUID, 'p', 'a', model.NoticeReason.DRAIN, NOON - noticed, NOON, NOON + 60,
            may_shut_down=named)})
    found = offline_drains.find_obstacle(view, model.Move(UUID, 'a', 'b', model.Phase.EVACUATE))
    assert detail in found.detail and remedy in found.remedy, found
    assert found.passes and found.lacks_notice == lacks


def test_way_back_of_a_swap_needs_no_notice_of_a_shutdown():
    stated = (model.Contract(FLAVOR, notify=model.NoticePeriod(60)),)
    assert not is_admitted(ALLOW, *stated)
    view = view_of(ALLOW, stated)
    view.returning = frozenset({UUID})
    assert offline_drains.is_admitted(view, model.Move(UUID, 'a', 'b', model.Phase.EVACUATE))


def test_instance_that_was_not_late_has_an_obstacle_unless_that_is_supposed():
    view, move = view_of(ALLOW, (), None), model.Move(UUID, 'a', 'b', model.Phase.EVACUATE)
    assert 'no late live one' in offline_drains.find_obstacle(view, move).detail
    assert offline_drains.find_obstacle(view, move, suppose_late=True) is None
    assert not offline_drains.is_late(view, move) and offline_drains.may_shut_down(view, move)


@pytest.mark.parametrize('option, late, phase, rule', [
    (ALLOW, 'a', 'evacuate', None), (ALLOW, None, 'evacuate', 'quarantined'),
    (ALLOW, 'c', 'evacuate', 'quarantined'),
    (NEVER, 'a', 'evacuate', 'quarantined'), (CONSENT, 'a', 'evacuate', 'quarantined'),
    (ALLOW, 'a', 'spread', 'quarantined'), (ALLOW, 'a', 'requested', 'quarantined')])
@pytest.mark.parametrize('seconds', [-1.0, 3600.0])
def test_quarantine_of_a_late_drain_holds_all_but_the_offline_one(option, late, phase, rule,
                                                                  seconds):
    view = view_of(option, (), late, seconds)
    rejection = constraints.check_alone(view, model.Move(UUID, 'a', 'b', model.Phase(phase)))
    assert (rejection and rejection.rule) == rule


def test_other_holds_of_the_history_stay():
    view = view_of(ALLOW, ())
    view.history = dataclasses.replace(view.history, cooling={UUID: 60.0})
    rejection = constraints.check_alone(view, model.Move(UUID, 'a', 'b', model.Phase.EVACUATE))
    assert rejection.rule == 'cooling'
