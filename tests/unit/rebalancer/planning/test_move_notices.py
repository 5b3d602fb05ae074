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

"""Notices of drains that may shut an instance down."""

import dataclasses
import datetime

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import offline_drains
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.planning import move_notices
from kronos_nova.rebalancer.planning import planner
from tests.unit.rebalancer.operations import test_drains

ALLOW, NEVER = model.OfflineDrains.ALLOW, model.OfflineDrains.NEVER
METADATA, FLAVOR = model.ContractSource.METADATA, model.ContractSource.FLAVOR
VALID_FOR = 7200.0


def make_request(*, option=ALLOW, late=True, notice=None, source=FLAVOR, quarantined=3600.0,
                 cap=model.Disruption.NEVER, disruption=None):
    """Return a request with one instance, which asks for notice, on a disabled host.

    :param notice: whether a notice of two minutes ago names the shutdown; None: no notice.
    """
    request = test_drains.cloud(1024)
    now = request.now
    stated = model.Contract(source, notify=model.NoticePeriod(60), disruption=disruption)
    cluster = dataclasses.replace(
        request.cluster, taken_at=now,
        instances={'i0': dataclasses.replace(request.cluster.instances['i0'], contracts=(stated,))},
        services={**request.cluster.services, 'a': model.Service('a', status='disabled')})
    given = {} if notice is None else {'i0': model.MoveNotice(
        'i0', 'p', 'a', model.NoticeReason.DRAIN, now - 120, now - 60, now + VALID_FOR,
        may_shut_down=notice)}
    return dataclasses.replace(request, cluster=cluster, options=dataclasses.replace(
        request.options, drain_offline=option, evacuate_disabled_hosts=True, max_drain_fraction=1.0,
        contracts=model.ContractOptions(strongest_for_tenants=cap)), history=model.MoveHistory(
            notices=given, late_drains={'i0': 'a'} if late else {},
            quarantined={'i0': quarantined} if late else {}))


def give(request):
    return move_notices.make_notices(
        request, move_notices.list_drain_notices(request), request.now, VALID_FOR)


@pytest.mark.parametrize('option, disruption, named', [
    (ALLOW, None, True), (NEVER, None, False), (ALLOW, model.Disruption.LIVE, False),
    (model.OfflineDrains.CONSENT, None, False),
    (model.OfflineDrains.CONSENT, model.Disruption.COLD_OK, True)])
def test_first_notice_of_a_drain_says_whether_it_may_shut_the_instance_down(
        option, disruption, named):
    (notice,) = give(make_request(option=option, late=False, disruption=disruption))
    assert notice.may_shut_down == named and notice.movable_from == notice.noticed_at + 60


@pytest.mark.parametrize('late, notice, given', [
    (True, False, 1), (True, True, 0), (True, None, 1), (False, False, 0), (False, True, 0),
    (False, None, 1)])
def test_late_instance_gets_a_further_notice_unless_the_first_one_named_the_shutdown(
        late, notice, given):
    request = make_request(late=late, notice=notice)
    made = give(request)
    assert len(made) == given
    assert all(one.may_shut_down and one.movable_from == request.now + 60 for one in made)


def test_notice_counts_in_full_for_a_shutdown_in_spite_of_the_cap_for_tenants():
    capped = {'source': METADATA, 'cap': model.Disruption.POWEROFF_OK}
    (notice,) = give(make_request(**capped))
    assert notice.may_shut_down
    assert not give(make_request(late=False, **capped)), 'a live move needs none'


@pytest.mark.parametrize('changes', [
    {'option': NEVER}, {'disruption': model.Disruption.LIVE},
    {'option': model.OfflineDrains.CONSENT}])
def test_late_instance_that_may_not_be_shut_down_gets_no_notice(changes):
    assert not give(make_request(notice=False, **changes))


def test_other_rules_hold_the_notice_of_a_shutdown():
    request = make_request(notice=False)
    instance = dataclasses.replace(request.cluster.instances['i0'], locked=True)
    assert not give(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={'i0': instance})))


@pytest.mark.parametrize('source, cap', [
    (FLAVOR, model.Disruption.NEVER), (METADATA, model.Disruption.POWEROFF_OK)])
@pytest.mark.parametrize('quarantined', [True, False])
def test_notice_of_a_shutdown_never_meets_a_live_move_of_the_same_cycle(source, cap, quarantined):
    """Without its quarantine the instance moves live again, as its owner knows already."""
    request = make_request(notice=False, source=source, cap=cap)
    if not quarantined:
        request = dataclasses.replace(request, history=dataclasses.replace(
            request.history, quarantined={}))
    moves = planner.plan(request).moves
    made = give(request)
    assert (len(moves), len(made)) == ((0, 1) if quarantined else (1, 0))
    after = cluster_view.ClusterView(request.cluster, request.options, dataclasses.replace(
        request.history, notices={**request.history.notices, **{n.instance_uuid: n for n in made}}))
    assert all(constraints.judge_move(after, move, constraints.PRE_FLIGHT) is None
               for move in moves)


@pytest.mark.parametrize('waits', ['hours', 'max_moves'])
@pytest.mark.parametrize('late', [True, False])
def test_notice_names_the_shutdown_for_the_time_at_which_the_instance_may_move(waits, late):
    """Hours that are closed now, and moves that are used up now, do not hide it."""
    request = make_request(late=late)
    now = request.now
    hour = datetime.datetime.fromtimestamp(now, datetime.UTC).hour
    stated = {'hours': movement_hours.parse_hours(f'* {(hour + 6) % 24} * * *')
              } if waits == 'hours' else {'max_moves': model.MoveQuota(1, 7200)}
    instance = dataclasses.replace(request.cluster.instances['i0'], contracts=(
        model.Contract(FLAVOR, notify=model.NoticePeriod(60), **stated),))
    request = dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, instances={'i0': instance}),
        history=dataclasses.replace(request.history, move_times={'i0': (now - 600,)}))
    (notice,) = give(request)
    assert notice.may_shut_down and notice.movable_from >= now + 3600
    view = cluster_view.ClusterView(
        dataclasses.replace(request.cluster, taken_at=notice.movable_from), request.options,
        dataclasses.replace(request.history, late_drains={'i0': 'a'}, notices={'i0': notice}))
    move = model.Move('i0', 'a', 'b', model.Phase.EVACUATE)
    assert offline_drains.is_admitted(view, move), 'then it is shut down'


def test_hours_that_never_open_bring_no_notice():
    request = make_request()
    instance = dataclasses.replace(request.cluster.instances['i0'], contracts=(model.Contract(
        FLAVOR, notify=model.NoticePeriod(60), hours=movement_hours.parse_hours('* * 31 2 *')),))
    assert not give(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={'i0': instance})))


def test_notices_end_with_the_most_of_a_cycle_and_judge_no_further_instance():
    request = make_request(late=False)
    here = request.cluster.instances['i0']
    names = [f'i{n}' for n in range(move_notices.MOST_NOTICES + 20)]
    request = dataclasses.replace(request, cluster=dataclasses.replace(request.cluster, instances={
        uuid: dataclasses.replace(here, uuid=uuid) for uuid in names}))
    wanted = move_notices.list_drain_notices(request)
    rest = iter(wanted)
    made = move_notices.make_notices(request, rest, request.now, VALID_FOR)
    assert [notice.instance_uuid for notice in made] == sorted(names)[:move_notices.MOST_NOTICES]
    assert len(list(rest)) == 20


def test_drain_gives_notice_to_instances_on_drained_hosts_alone():
    """Also where another one was late, off a host that is in service again."""
    request = make_request(notice=None)
    here = request.cluster.instances['i0']
    others = {uuid: dataclasses.replace(here, uuid=uuid, host='b') for uuid in ('i1', 'i2')}
    request = dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, instances={'i0': here, **others}),
        history=dataclasses.replace(
            request.history, quarantined={'i0': 3600.0, 'i1': 3600.0},
            late_drains={'i0': 'a', 'i1': 'b'}))
    assert [notice.instance_uuid for notice in give(request)] == ['i0']


def test_notice_of_balance_that_a_drain_takes_over_names_no_shutdown_until_the_next_one():
    """Its owner learns of the shutdown after the late migration, and it counts from then."""
    request = make_request(late=False, notice=False)
    given = dataclasses.replace(request.history.notices['i0'], reason=model.NoticeReason.BALANCE)
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, notices={'i0': given}))
    (taken,) = move_notices.list_extended_notices(request, VALID_FOR)
    assert (taken.reason, taken.may_shut_down) == (model.NoticeReason.DRAIN, False)
    assert taken.noticed_at == given.noticed_at and not give(request), 'the live move may begin'
    (further,) = give(dataclasses.replace(request, history=dataclasses.replace(
        make_request().history, notices={'i0': taken})))
    assert further.may_shut_down and further.noticed_at == request.now
