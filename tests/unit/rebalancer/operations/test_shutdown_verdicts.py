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

"""Verdicts on shutdowns: what a drain check, and the start of a drain, say of late instances."""

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.cli import drain as cli_drain
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drain_starts
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import shutdown_verdicts
from kronos_nova.rebalancer.planning import move_notices
from tests.unit.cli import test_drain
from tests.unit.rebalancer.operations import test_drains

conf = test_drain.conf
FLAVOR, METADATA = model.ContractSource.FLAVOR, model.ContractSource.METADATA
ALLOW = model.OfflineDrains.ALLOW
DONE = 'shut down, moved cold and started again'


def make_request(*sizes, option=ALLOW, late=(), instances=None, history=None, **more):
    """Return a request with instances on host a; those named were late, and are quarantined."""
    request = test_drains.cloud(*sizes, **more)
    changed = {uuid: dataclasses.replace(request.cluster.instances[uuid], **fields)
               for uuid, fields in (instances or {}).items()}
    return dataclasses.replace(
        request, options=dataclasses.replace(request.options, drain_offline=option),
        cluster=dataclasses.replace(
            request.cluster, instances={**request.cluster.instances, **changed}),
        history=dataclasses.replace(
            history or model.MoveHistory(), late_drains=dict.fromkeys(late, 'a'),
            quarantined=dict.fromkeys(late, 3600.0)))


def check_drain(conf, request):
    """Return the answer of a drain check of host a, and the texts of its rows ``shutdown``."""
    here = sum(instance.host == 'a' for instance in request.cluster.instances.values())
    answer = drain_checks._add_estimate(conf, drain_checks.DrainAnswer(
        drains.plan_drain(request, 'a'), here), request, 'a')
    answer = drain_checks._add_shutdowns(answer, request, 'a')
    return answer, {row[0].removeprefix('instance '): row[2] for row in cli_drain._render_rows(
        answer, 'a') if row[1] == 'shutdown'}


def count(answer):
    return shutdown_verdicts.count_shutdowns(answer.shutdowns)


def test_late_instance_that_its_drain_moves_is_shut_down(conf):
    answer, texts = check_drain(conf, make_request(1000, late=['i0']))
    assert answer.check.methods == {'i0': model.MoveMethod.OFFLINE}
    assert texts == {'i0': f'{DONE}: its live migration was late'} and count(answer) == (1, 0, 0)


@pytest.mark.parametrize('more, reason', [
    ({'instances': {'i0': {'locked': True}}}, 'locked: '),
    ({'host_memory': 500}, 'no host may take it: no-room (2 hosts)')])
def test_late_instance_that_cannot_leave_is_not_shut_down(conf, more, reason):
    answer, texts = check_drain(conf, make_request(1000, late=['i0'], **more))
    assert not answer.check.plan.moves and count(answer) == (0, 0, 0)
    assert texts['i0'].startswith(f'not shut down after its late live migration: {reason}'), texts
    assert 'is shut down' not in cli_drain._format_start_message(
        'a', drain_starts.StartedDrain(answer, True))


def test_late_instance_that_is_busy_is_shut_down_later(conf):
    answer, texts = check_drain(conf, make_request(
        1000, late=['i0'], instances={'i0': {'task_state': 'image_uploading'}}))
    assert answer.check.blocked[0].later and count(answer) == (0, 1, 0)
    assert texts['i0'].startswith(f'{DONE}, but later: ') and 'image_uploading' in texts['i0']


def test_late_instance_stays_late_where_nothing_of_its_scope_is_planned(conf):
    request = make_request(1000, late=['i0'])
    answer, texts = check_drain(conf, dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, unreadable_hosts=frozenset({'x'}))))
    assert answer.is_held and count(answer) == (0, 1, 0)
    assert 'but later' in texts['i0']


def test_late_instance_that_lacks_a_notice_is_shut_down_later_unless_another_rule_keeps_it(conf):
    stated = {'contracts': (model.Contract(FLAVOR, notify=model.NoticePeriod(60)),)}
    answer, texts = check_drain(conf, make_request(1000, late=['i0'], instances={'i0': stated}))
    assert count(answer) == (0, 1, 0) and 'but later' in texts['i0']
    answer, texts = check_drain(conf, make_request(1000, late=['i0'], instances={
        'i0': {**stated, 'locked': True}}))
    assert count(answer) == (0, 0, 0) and texts['i0'].startswith('not shut down'), texts


def test_late_instance_without_its_quarantine_moves_live_until_it_has_a_notice(conf):
    """Its first notice names no shutdown, and its time has come."""
    notice = model.MoveNotice('i0', 'p', 'a', model.NoticeReason.DRAIN, -60.0, 0.0, 3600.0)
    request = make_request(1000, late=['i0'], instances={'i0': {
        'contracts': (model.Contract(FLAVOR, notify=model.NoticePeriod(60)),)}})
    answer, texts = check_drain(conf, dataclasses.replace(request, history=dataclasses.replace(
        request.history, quarantined={}, cooling={'i0': 60.0}, notices={'i0': notice})))
    assert answer.check.methods == {'i0': model.MoveMethod.LIVE} and count(answer) == (0, 0, 1)
    assert texts['i0'].startswith(f'{DONE}, if its live migration is late, but later: the notice')


#: 08:00 UTC.
NOW = 1_800_000_000.0
AT_EIGHT, AT_NINE = (movement_hours.parse_hours(f'* {hour} * * *') for hour in (8, 9))
NOTIFY = model.NoticePeriod(3600)
NAMED = model.MoveNotice('i0', 'p', 'a', model.NoticeReason.DRAIN, NOW - 1800, NOW + 1800,
                         NOW + 9000, may_shut_down=True)


def set_time(request, now, **history):
    return dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, taken_at=now), now=now,
        history=dataclasses.replace(request.history, **history))


def make_held_request(source, stated, *, quarantined=False, more=(), **history):
    """Return a request with one late instance and its contract, at eight o'clock."""
    request = make_request(1000, late=['i0'], instances={'i0': {
        'contracts': (model.Contract(source, **stated), *more)}})
    return set_time(request, NOW, **history, **({} if quarantined else {'quarantined': {}}))


@pytest.mark.parametrize('stated, history, end', [
    ({'hours': AT_NINE}, {}, 3600.0), ({'notify': NOTIFY}, {'notices': {'i0': NAMED}}, 1800.0),
    ({'max_moves': model.MoveQuota(1, 7200)}, {'move_times': {'i0': (NOW - 600,)}}, 6600.0)])
def test_shutdown_is_certain_where_its_obstacle_holds_the_live_migration_as_well(
        conf, stated, history, end):
    """The quarantine is over. A cap for tenants lets the instance move live before."""
    request = make_held_request(FLAVOR, stated, **history)
    answer, texts = check_drain(conf, request)
    assert not answer.check.plan.moves and count(answer) == (0, 1, 0)
    assert texts['i0'].startswith(f'{DONE}, but later: its live migration was late; '), texts
    assert answer.shutdowns[0].is_late and answer.check.blocked[0].movable_from == NOW + end
    answer, _texts = check_drain(conf, set_time(request, NOW + end))
    assert answer.check.methods == {'i0': model.MoveMethod.OFFLINE} and count(answer) == (1, 0, 0)
    answer, texts = check_drain(conf, make_held_request(METADATA, stated, **history))
    assert answer.check.methods == {'i0': model.MoveMethod.LIVE} and count(answer) == (0, 0, 1)
    assert texts['i0'].startswith(f'{DONE}, if its live migration is late, but later: '), texts


@pytest.mark.parametrize('notice, counts', [
    (None, (0, 1, 0)), (dataclasses.replace(NAMED, may_shut_down=False), (0, 0, 1))])
def test_notice_that_is_still_to_be_given_names_the_shutdown_and_an_unnamed_one_does_not(
        conf, notice, counts):
    """Without its quarantine the instance gets a notice where it has none, and moves at its time.
    """
    request = make_held_request(FLAVOR, {'notify': NOTIFY}, **(
        {} if notice is None else {'notices': {'i0': notice}}))
    answer, _texts = check_drain(conf, request)
    assert not answer.check.plan.moves and count(answer) == counts
    drained = dataclasses.replace(
        request, options=dataclasses.replace(request.options, evacuate_disabled_hosts=True,
                                             max_drain_fraction=1.0),
        cluster=dataclasses.replace(request.cluster, services={
            **request.cluster.services, 'a': model.Service('a', status='disabled')}))
    given = move_notices.make_notices(
        drained, move_notices.list_drain_notices(drained), NOW, 7200.0)
    answer, _texts = check_drain(conf, set_time(
        drained, NOW + 3600, notices={'i0': given[0] if given else notice}))
    assert (answer.check.methods == {'i0': model.MoveMethod.OFFLINE}) == (notice is None)
    assert count(answer) == ((1, 0, 0) if notice is None else (0, 0, 1))


def test_shutdown_that_waits_longer_than_the_live_migration_comes_after_it(conf):
    """The notice of the flavor has been given; the owner's own one, for longer, is capped."""
    later = model.Contract(METADATA, notify=model.NoticePeriod(86400))
    request = make_held_request(FLAVOR, {'notify': NOTIFY}, more=(later,), notices={'i0': NAMED})
    answer, texts = check_drain(conf, request)
    assert not answer.check.plan.moves and count(answer) == (0, 0, 1), texts
    answer, _texts = check_drain(conf, set_time(request, NOW + 1800))
    assert answer.check.methods == {'i0': model.MoveMethod.LIVE}


HELD = [(FLAVOR, {'hours': AT_NINE}, {}), (METADATA, {'hours': AT_NINE}, {}),
        (FLAVOR, {'notify': NOTIFY}, {}), (METADATA, {'notify': NOTIFY}, {}),
        (FLAVOR, {'notify': NOTIFY}, {'notices': {'i0': NAMED}})]


@pytest.mark.parametrize('source, stated, history', HELD)
def test_quarantined_instance_whose_shutdown_waits_leaves_later(conf, source, stated, history):
    """Its quarantine does not keep it: the drain can begin, and both rows say the same."""
    answer, texts = check_drain(conf, make_held_request(
        source, stated, quarantined=True, **history))
    (blocked,) = answer.check.blocked
    assert blocked.later and not blocked.reason.startswith('quarantined'), blocked
    assert ('its shutdown waits: ' in blocked.reason) == (blocked.movable_from is None), blocked
    assert texts['i0'].startswith(f'{DONE}, but later: ') and count(answer) == (0, 1, 0)
    drain_starts._refuse_without_force('a', dataclasses.replace(
        answer, check=dataclasses.replace(answer.check, obstacles=())), model.Service('a'),
        model.PlanningOptions())


@pytest.mark.parametrize('source, seconds, counts, method', [
    (FLAVOR, 1800.0, (0, 1, 0), None), (METADATA, 1800.0, (0, 0, 1), model.MoveMethod.LIVE),
    (METADATA, 3600.0, (0, 1, 0), model.MoveMethod.OFFLINE),
    (METADATA, -1.0, (0, 1, 0), model.MoveMethod.OFFLINE)])
def test_live_retry_comes_before_a_shutdown_that_waits_longer_than_the_quarantine(
        conf, source, seconds, counts, method):
    """The shutdown waits an hour; a cap for tenants lets the instance move live before."""
    request = make_held_request(source, {'hours': AT_NINE}, quarantined=True)
    request = set_time(request, NOW, quarantined={'i0': seconds})
    answer, texts = check_drain(conf, request)
    assert count(answer) == counts, texts
    assert texts['i0'].startswith(f'{DONE}, ' + (
        'but later: ' if counts[1] else 'if its live migration is late, but later: ')), texts
    after, quarantined = (3600.0, {'i0': seconds}) if seconds < 0 else (seconds, {})
    answer, _texts = check_drain(conf, set_time(request, NOW + after, quarantined=quarantined))
    assert answer.check.methods.get('i0') is method


@pytest.mark.parametrize('changes', [
    {'size': 9000}, {'locked': True}, {'refused': True}])
@pytest.mark.parametrize('source, stated, history', HELD)
def test_quarantined_instance_that_cannot_leave_is_not_shut_down_later(
        conf, source, stated, history, changes):
    """No host has room, it is locked, or Placement confirms no host."""
    request = make_held_request(source, stated, quarantined=True, **history)
    size = changes.get('size', 1000)
    instance = dataclasses.replace(
        request.cluster.instances['i0'], memory_mb=size, claims={'MEMORY_MB': size},
        locked=changes.get('locked', False))
    request = dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, instances={'i0': instance}),
        history=dataclasses.replace(request.history, refused_everywhere=frozenset(
            {'i0'} if 'refused' in changes else ())))
    answer, texts = check_drain(conf, request)
    (blocked,) = answer.check.blocked
    assert not blocked.later and count(answer) == (0, 0, 0), blocked
    assert texts['i0'].startswith('not shut down after its late live migration: '), texts
    assert bool(answer.check.missing) == ('size' in changes)


def test_quarantine_keeps_an_instance_whose_shutdown_is_forbidden(conf):
    for more in ({'option': model.OfflineDrains.NEVER}, {'instances': {'i0': {
            'contracts': (model.Contract(FLAVOR, disruption=model.Disruption.LIVE),)}}}):
        (blocked,) = check_drain(conf, make_request(1000, late=['i0'], **more))[0].check.blocked
        assert not blocked.later and blocked.reason.startswith('quarantined: ')


MEASURED = test_drain.measured([(1000, 0, 10.0)] * 8)


def add_dirty_rates(request, *uuids):
    """Let these instances write faster than their migrations send."""
    name = request.policies.enabled_policies[0].name
    return dataclasses.replace(request, scores=model.ClusterScores({name: dataclasses.replace(
        request.scores.policies[name], dirty_rates=dict.fromkeys(uuids, 300.0 * 2**20))}))


@pytest.mark.parametrize('option, rows', [(ALLOW, ['i1', 'i2']), (model.OfflineDrains.NEVER, [])])
def test_check_names_instances_that_risk_it_now_or_once_they_leave(conf, option, rows):
    """i2 leaves later; i3 does not leave; i0 writes nothing."""
    request = add_dirty_rates(make_request(1000, 1000, 1000, 1000, option=option, instances={
        'i2': {'task_state': 'image_uploading'}, 'i3': {'locked': True}}, history=MEASURED),
        'i1', 'i2', 'i3')
    answer, texts = check_drain(conf, request)
    assert list(texts) == rows and sorted(answer.risky) == ['i1', 'i2']
    assert all(text == f'{DONE}, if its live migration is late' for text in texts.values())


@pytest.mark.parametrize('option, rows', [(ALLOW, ['i0', 'i1']), (model.OfflineDrains.NEVER, [])])
def test_check_names_each_instance_that_leaves_live_while_no_risk_is_known(conf, option, rows):
    """No migration was measured. i2 is stopped and moves cold, i3 stays, i4 writes nothing."""
    request = make_request(1000, 1000, 1000, 1000, 1000, option=option, instances={
        'i1': {'task_state': 'image_uploading'}, 'i2': {'status': 'SHUTOFF'},
        'i3': {'locked': True}, 'i4': {'status': 'PAUSED'}})
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, cold_migrate_stopped=True))
    answer, texts = check_drain(conf, request)
    assert list(texts) == rows and answer.seconds is None
    assert {move.instance_uuid for move in answer.check.plan.moves} == {'i0', 'i2', 'i4'}
    assert count(answer) == (0, 0, len(rows))


@pytest.mark.parametrize('option, contract, obstacle', [
    ('allow', None, None), ('consent', None, 'no contract'),
    ('allow', model.Disruption.LIVE, 'its contract says')])
def test_verdicts_on_shutdowns_are_those_of_late_and_of_risky_instances(
        conf, option, contract, obstacle):
    stated = () if contract is None else (model.Contract(METADATA, disruption=contract),)
    request = add_dirty_rates(make_request(
        1000, 1000, 1000, option=model.OfflineDrains(option), late=['i0', 'gone'], history=MEASURED,
        instances=dict.fromkeys(('i0', 'i1', 'i2'), {'contracts': stated})), 'i1')
    answer, texts = check_drain(conf, request)
    assert [(v.instance_uuid, v.is_late) for v in answer.shutdowns] == [('i0', True), ('i1', False)]
    for verdict in answer.shutdowns:
        assert (verdict.obstacle is None) == (verdict.remedy is None) == (obstacle is None)
        assert obstacle is None or obstacle in verdict.obstacle
    assert all(text.startswith('shut down' if obstacle is None else 'not shut down')
               for text in texts.values())
    assert 'if its live migration is late' in texts['i1'] and 'if' not in texts['i0'].split(':')[0]


def test_instance_that_is_shut_down_later_has_no_risk_of_a_live_migration(conf):
    request = add_dirty_rates(make_request(
        1000, 1000, late=['i0'], history=MEASURED, instances={'i0': {'contracts': (
            model.Contract(FLAVOR, notify=NOTIFY),)}}), 'i0', 'i1')
    answer, _texts = check_drain(conf, request)
    assert list(answer.risky) == ['i1'] and count(answer) == (0, 1, 1)


def test_option_that_allows_none_is_named_for_late_instances_alone(conf):
    request = make_request(1000, 1000, option=model.OfflineDrains.NEVER, late=['i0'])
    _answer, texts = check_drain(conf, request)
    assert list(texts) == ['i0'] and '[engine] drain_offline is never' in texts['i0']
    free = dataclasses.replace(request, history=dataclasses.replace(
        request.history, quarantined={}))
    assert not check_drain(conf, free)[1], 'it moves live'
