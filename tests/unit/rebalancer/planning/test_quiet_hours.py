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

"""Quieter hours: the earliest one in which the migration converges, and never a longer wait."""

import dataclasses
import datetime

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.operations import why_not
from kronos_nova.rebalancer.planning import move_notices
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.simulation import migration_costs
from tests.unit.rebalancer.operations import test_drains

MIB = migration_costs.MIB
#: 2001-09-09 01:46:40 UTC: 800 s before the next hour.
NOW = 1_000_000_000.0
HOUR = quiet_hours.begin_hour(NOW)
#: Migrations arrived at 80, 90, ..., 170 MiB/s.
MEASURED = tuple(model.MeasuredAttempt(f'm{n}', 1000, 0, 1000 / (80.0 + 10 * n))
                 for n in range(10))
LOUD, QUIET = 150 * MIB, 10 * MIB


def profile(**rates):
    """Hourly rates of the day before NOW: loud, but for ``h3=QUIET``: the third hour to come."""
    return tuple((HOUR + 3600.0 * n - 86400.0, rates.get(f'h{n}', LOUD)) for n in range(24))


def cloud(rates, *, rate=LOUD, wait=86400.0, measured=MEASURED, count=1, contracts=(),
          history=None, **options):
    """A cloud whose host a is drained; i0 has the profile."""
    request = test_drains.cloud(*[1024] * count)
    services = {**request.cluster.services, 'a': dataclasses.replace(
        request.cluster.services['a'], status='disabled', disabled_reason='x')}
    instances = {**request.cluster.instances, 'i0': dataclasses.replace(
        request.cluster.instances['i0'], contracts=contracts)}
    policies = {name: dataclasses.replace(scores, dirty_rates={'i0': rate})
                for name, scores in request.scores.policies.items()}
    return dataclasses.replace(
        request, now=NOW,
        cluster=dataclasses.replace(request.cluster, services=services, instances=instances,
                                    taken_at=NOW),
        scores=dataclasses.replace(request.scores, policies=policies),
        options=model.PlanningOptions(evacuate_disabled_hosts=True, max_drain_fraction=1.0,
                                      drain_quiet_wait=wait, **options),
        history=dataclasses.replace(
            history or model.MoveHistory(), measured=measured,
            hourly_write_rates={} if rates is None else {'i0': rates}))


def find(request, now=NOW, budget=5):
    return quiet_hours.find_quiet_waits(request.cluster, request.scores, request.history,
                                        request.options, now, budget=budget)


def test_an_instance_waits_for_the_earliest_quiet_hour_and_not_the_quietest():
    request = cloud(profile(h3=QUIET, h4=0.0))
    assert find(request) == {'i0': model.QuietWait(HOUR + 3 * 3600, LOUD, QUIET)}


@pytest.mark.parametrize('change', [
    {'wait': 0.0}, {'rates': None}, {'rates': profile()}, {'rate': QUIET}, {'rate': 0.0},
    {'measured': ()}, {'wait': 3 * 3600.0 - 2801.0},
    {'rates': profile(h0=QUIET, h3=QUIET)}, {'rates': profile(h3=79 * MIB), 'rate': 100 * MIB}],
    ids=['off', 'no-rates', 'no-quiet-hour', 'quiet-now', 'idle', 'nothing-measured',
         'beyond-the-option', 'same-hour-was-quiet', 'hardly-quieter'])
def test_no_instance_waits_without_a_reason_to_do_so(change):
    assert find(cloud(**{'rates': profile(h3=QUIET)} | change)) == {}


def test_the_wait_counts_from_the_begin_of_the_drain():
    wait = 4 * 3600.0
    began = model.MoveHistory(drain_begins={'a': NOW - 3600.0})
    assert find(cloud(profile(h3=QUIET), wait=wait))
    assert find(cloud(profile(h3=QUIET), wait=wait, history=began))
    late = model.MoveHistory(drain_begins={'a': NOW - 2 * 3600.0})
    assert find(cloud(profile(h3=QUIET), wait=wait, history=late)) == {}
    ahead = model.MoveHistory(drain_begins={'a': NOW + 3600.0})
    assert find(cloud(profile(h5=QUIET), wait=wait, history=ahead)) == {}, 'a clock was ahead'


@pytest.mark.parametrize(('count', 'left', 'waits'), [
    (1, 361.0, True), (1, 359.0, False), (3, 481.0, True), (3, 479.0, False)])
def test_a_deadline_leaves_the_moves_a_start_and_a_minute_each_at_least(count, left, waits):
    history = model.MoveHistory(drain_deadlines={
        'a': model.DrainDeadline(HOUR + 3 * 3600 + left, 'x')})
    fast = tuple(dataclasses.replace(m, running=m.running / 4) for m in MEASURED)
    rates = tuple((at, 4 * rate) for at, rate in profile(h3=QUIET))
    request = cloud(rates, rate=4 * LOUD, count=count, history=history, measured=fast)
    assert bool(find(request)) == waits


def test_a_move_that_needs_longer_begins_earlier_before_a_deadline():
    seconds = migration_costs.MigrationCosts(MEASURED, False).expect_migration(
        'i0', 1024, 0, LOUD).seconds
    assert seconds > 61
    for left, waits in ((seconds + 301, True), (seconds + 299, False)):
        history = model.MoveHistory(drain_deadlines={
            'a': model.DrainDeadline(HOUR + 3 * 3600 + left, 'x')})
        assert bool(find(cloud(profile(h3=QUIET), history=history))) == waits


@pytest.mark.parametrize(('budget', 'deadline_of_b', 'waits'), [
    (1, 0.0, False), (2, 0.0, True), (1, 1.0, True)])
def test_the_moves_off_all_hosts_have_time_until_a_common_deadline(budget, deadline_of_b, waits):
    """Host b has to be empty by the same time, or later; its 60 instances need an hour."""
    request = cloud(profile(h3=QUIET))
    deadline, of_b = HOUR + 4 * 3600, dataclasses.replace(
        request.cluster.services['a'], host='b')
    more = {f'more{n}': dataclasses.replace(request.cluster.instances['i0'], uuid=f'more{n}',
                                            host='b') for n in range(60)}
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services={**request.cluster.services, 'b': of_b},
        instances={**request.cluster.instances, **more}), history=dataclasses.replace(
            request.history, drain_deadlines={
                'a': model.DrainDeadline(deadline, 'x'),
                'b': model.DrainDeadline(deadline + deadline_of_b, 'x')}))
    assert bool(find(request, budget=budget)) == waits


@pytest.mark.parametrize(('left', 'waits'), [(7260.0, True), (60.0, False), (-7200.0, False)])
def test_a_host_of_a_campaign_is_empty_before_its_window_closes(left, waits):
    history = model.MoveHistory(window_ends={'a': HOUR + 3 * 3600 + left},
                                drain_deadlines={'a': model.DrainDeadline(HOUR + 86400, 'x')})
    assert bool(find(cloud(profile(h3=QUIET), history=history))) == waits


def test_the_deadline_of_an_earlier_drain_shortens_nothing():
    history = model.MoveHistory(drain_deadlines={'a': model.DrainDeadline(NOW + 60, 'another')})
    assert find(cloud(profile(h3=QUIET), history=history))


@pytest.mark.parametrize(('begin', 'end', 'hour'), [
    (3 * 3600, 4 * 3600, 5), (2 * 3600, 3 * 3600 + 1800, 3.5), (3 * 3600 + 60, 3 * 3600 + 120, 3),
    (3 * 3600 + 60, 4 * 3600, 5), (3 * 3600 + 1800, 4 * 3600, 3), (2 * 3600, 3 * 3600, 3)])
def test_a_move_begins_in_no_freeze_and_ends_before_the_next(begin, end, hour):
    """Also where a freeze begins or ends within the hour, as in a zone of half an hour."""
    request = cloud(profile(h3=QUIET, h5=QUIET), history=model.MoveHistory(
        freezes=((HOUR + begin, HOUR + end),)))
    expected = HOUR + (3 * 3600 + 120 if end == 3 * 3600 + 120 else hour * 3600)
    assert find(request)['i0'].until == expected


def test_frozen_time_before_the_deadline_is_no_time_to_move():
    deadline = HOUR + 5 * 3600 + 90
    for end, waits in ((deadline - 90, True), (deadline, False), (deadline + 3600, False)):
        history = model.MoveHistory(
            drain_deadlines={'a': model.DrainDeadline(deadline, 'x')},
            freezes=((HOUR + 4 * 3600, end),))
        request = cloud(profile(h3=QUIET), history=history, count=55)
        assert bool(find(request)) == waits, end


def test_hours_that_a_contract_forbids_do_not_count():
    opens = datetime.datetime.fromtimestamp(HOUR + 5 * 3600 + 1800, datetime.UTC)
    hours = contracts_conf.parse_value(
        'hours', f'{opens.minute}-59 {opens.hour} * * *', 30 * 86400)
    request = cloud(profile(h3=QUIET, h5=QUIET), contracts=(
        model.Contract(model.ContractSource.FLAVOR, hours=hours),))
    assert find(request)['i0'].until == HOUR + 5 * 3600 + 1800


def test_an_opening_after_the_end_of_the_wait_does_not_count():
    opens = datetime.datetime.fromtimestamp(HOUR + 3 * 3600 + 1800, datetime.UTC)
    stated = model.Contract(model.ContractSource.FLAVOR, hours=contracts_conf.parse_value(
        'hours', f'{opens.minute}-59 {opens.hour} * * *', 30 * 86400))
    for minutes, waits in (29, False), (31, True):
        wait = HOUR + 3 * 3600 + 60.0 * minutes - NOW
        assert bool(find(cloud(profile(h3=QUIET), wait=wait, contracts=(stated,)))) == waits


def change_instance(request, **changes):
    return dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={**request.cluster.instances, 'i0': dataclasses.replace(
            request.cluster.instances['i0'], **changes)}))


def test_only_instances_that_stay_and_move_live_wait():
    request = cloud(profile(h3=QUIET))
    assert find(change_instance(request, status='PAUSED'))
    assert find(change_instance(request, status='SHUTOFF')) == {}
    assert find(change_instance(request, host='b')) == {}
    assert find(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=(model.InFlightMove('i0', 'a', 'b'),)))) == {}


def test_no_search_makes_room_for_an_instance_that_waits():
    request = cloud(profile(h3=QUIET), count=2)
    simulation = blocked_instances.build_simulation(dataclasses.replace(
        request, history=dataclasses.replace(request.history, quiet_waits=find(request))))
    assert [bool(simulation.drainable[simulation.index[uuid]]) for uuid in ('i0', 'i1')] == [
        False, True]
    assert simulation.repairable[simulation.index['i0']]


def test_the_instance_moves_once_its_hour_has_come_at_any_rate():
    rates = profile(h3=QUIET, h9=0.0)
    until = find(cloud(rates))['i0'].until
    for rate in (QUIET, LOUD, 10 * LOUD):
        request = cloud(rates, rate=rate)
        assert find(request, until) == {} == find(request, until + 3599)


def test_an_instance_that_is_quiet_now_does_not_wait_because_it_failed_before():
    """The hours to come are judged by their rates alone, so this hour is as well."""
    failed = model.MeasuredAttempt('i0', 1000, 0, 900.0, arrived=False, late=True)
    request = cloud(profile(h3=0.0), rate=QUIET, measured=(*MEASURED, failed, failed))
    costs = migration_costs.MigrationCosts(request.history.measured, False)
    assert costs.expect_migration('i0', 1024, 0, QUIET).risk >= migration_costs.RISKY
    assert find(request) == {}


def test_a_failure_at_a_loud_hour_does_not_make_the_quiet_hours_loud():
    failed = (*MEASURED, model.MeasuredAttempt('i0', 1000, 0, 900.0, arrived=False, late=True))
    assert find(cloud(profile(h3=QUIET), measured=failed))


def test_the_rule_holds_drains_alone_and_no_executor():
    request = cloud(profile(h3=QUIET))
    history = dataclasses.replace(request.history, quiet_waits=find(request))
    view = cluster_view.ClusterView(request.cluster, request.options, history)
    drain = model.Move('i0', 'a', 'b', model.Phase.EVACUATE)
    refused = constraints.judge_move(view, drain)
    assert refused is not None and refused.rule == 'quieter-hour'
    assert '150.0 MiB/s' in refused.detail and '10.0 MiB/s' in refused.detail
    assert '2001-09-09T04:00:00+00:00' in refused.detail
    assert constraints.CODES['quieter-hour'].retry is constraints.RetryClass.PASSING
    assert constraints.check_alone(view, dataclasses.replace(
        drain, phase=model.Phase.REQUESTED)) is None
    fresh = cluster_view.ClusterView(request.cluster, request.options, request.history)
    assert constraints.judge_move(fresh, drain, constraints.PRE_FLIGHT) is None


@pytest.mark.parametrize('option', model.OfflineDrains)
def test_a_move_that_shuts_the_instance_down_waits_for_no_quiet_hour(option):
    request = cloud(profile(h3=QUIET), drain_offline=option)
    history = dataclasses.replace(request.history, quiet_waits=find(request),
                                  late_drains={'i0': 'a'})
    view = cluster_view.ClusterView(request.cluster, request.options, history)
    refused = constraints.judge_move(view, model.Move('i0', 'a', 'b', model.Phase.EVACUATE))
    assert (refused is None) == (option is model.OfflineDrains.ALLOW)


_CLOSED = model.Contract(model.ContractSource.FLAVOR, hours=contracts_conf.parse_value(
    'hours', '0-59 22 * * *', 30 * 86400))
_LATER = 'its quieter hour begins at 2001-09-09T04:00:00+00:00, and '


@pytest.mark.parametrize(('change', 'history', 'reason'), [
    ({}, {}, None), ({'wait': 0.0}, {}, None), ({'rate': QUIET}, {}, None),
    ({'measured': ()}, {}, None),
    ({'rates': None}, {}, 'its memory writes of the last day are not known'),
    ({'rates': profile()}, {}, 'in no hour of the last day it wrote little enough'),
    ({'rates': profile(h0=QUIET, h3=QUIET)}, {},
     'in this hour it wrote little enough a day before'),
    ({'wait': 3600.0}, {},
     _LATER + '[engine] drain_quiet_wait ends before, at 2001-09-09T02:46:40+00:00'),
    ({}, {'drain_deadlines': {'a': model.DrainDeadline(HOUR + 3 * 3600 + 60, 'x')}},
     _LATER + 'the deadline of the drain at 2001-09-09T04:01:00+00:00 leaves the host no time '
              'after it'),
    ({}, {'window_ends': {'a': HOUR + 3 * 3600},
          'drain_deadlines': {'a': model.DrainDeadline(HOUR + 9 * 3600, 'x')}},
     _LATER + 'the end of the window of its campaign at 2001-09-09T04:00:00+00:00 leaves the host '
              'no time after it'),
    ({'contracts': (_CLOSED,)}, {}, _LATER + 'contracts and freeze windows leave no time in it'),
    ({}, {'freezes': ((HOUR + 3 * 3600, HOUR + 4 * 3600),)},
     _LATER + 'contracts and freeze windows leave no time in it')])
def test_the_reason_is_known_why_an_instance_waits_for_no_quieter_hour(change, history, reason):
    request = cloud(**{'rates': profile(h3=QUIET), 'history': model.MoveHistory(**history)}
                    | change)
    reasons = quiet_hours.explain_missing_waits(request.cluster, request.scores, request.history,
                                                request.options, NOW, budget=5)
    assert reasons == ({} if reason is None else {'i0': reason})
    assert reason is None or find(request) == {}
    assert drains.explain_missing_waits(request, 'a') == reasons
    assert drains.explain_missing_waits(request, 'b') == {}


RATES = st.sampled_from([0.0, QUIET, 60 * MIB, 100 * MIB, LOUD, 2 * LOUD])


@hypothesis.given(
    rates=st.lists(st.none() | RATES, min_size=24, max_size=24), rate=RATES,
    wait=st.floats(0, 7 * 86400), began=st.floats(0, 2 * 86400),
    left=st.none() | st.floats(1, 3 * 86400), hours=st.none() | st.sampled_from(
        ['* 3-4 * * *', '30-50 5 * * *', '15-25 */4 * * *']),
    frozen=st.frozensets(st.integers(1, 167)), length=st.floats(60, 3600),
    after=st.floats(0, 86400))
def test_no_wait_is_beyond_the_option_the_deadline_or_the_allowed_hours(
        rates, rate, wait, began, left, hours, frozen, length, after):
    now = NOW + after
    stated = () if hours is None else (model.Contract(
        model.ContractSource.FLAVOR,
        hours=contracts_conf.parse_value('hours', hours, 30 * 86400)),)
    history = model.MoveHistory(
        drain_begins={'a': now - began},
        drain_deadlines={} if left is None else {'a': model.DrainDeadline(now + left, 'x')},
        freezes=tuple((HOUR + 3600.0 * n, HOUR + 3600.0 * n + length) for n in sorted(frozen)))
    known = tuple((HOUR + 3600.0 * n - 86400.0, value) for n, value in enumerate(rates)
                  if value is not None)
    request = cloud(known, rate=rate, wait=wait, contracts=stated, history=history)
    waits = find(request, now)
    if not waits:
        return
    until, costs = waits['i0'].until, migration_costs.MigrationCosts(MEASURED, False)
    assert now < until <= now - began + wait
    if left is not None:
        assert until <= now + left - 300 - max(
            60.0, costs.expect_migration('i0', 1024, 0, rate).seconds)
    assert not any(begin < until + quiet_hours.START_SECONDS and until < end
                   for begin, end in history.freezes)
    if stated:
        assert stated[0].hours.is_open(until, request.options.contracts.timezone,
                                       request.options.contracts.begin_within)
    past = dict(known)[HOUR + (quiet_hours.begin_hour(until) - HOUR) % 86400 - 86400]
    assert past == waits['i0'].quiet_rate <= rate / 2
    assert costs.compute_rate_risk(past) < migration_costs.RISKY
    assert find(request, until) == {}


def supposed(request, status='enabled', **history):
    """The request before host a is drained, or while it is."""
    services = {**request.cluster.services, 'a': dataclasses.replace(
        request.cluster.services['a'], status=status)}
    return dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, services=services),
        history=dataclasses.replace(request.history, **history))


@pytest.mark.parametrize('status', ['enabled', 'disabled'])
def test_a_drain_check_says_that_the_instance_leaves_later_and_when(status):
    check = drains.plan_drain(supposed(cloud(profile(h3=QUIET), count=2), status), 'a')
    assert [move.instance_uuid for move in check.plan.moves] == ['i1']
    (blocked,) = check.blocked
    assert blocked.later and blocked.movable_from == HOUR + 3 * 3600
    assert '150.0 MiB/s' in blocked.reason and '2001-09-09T04:00:00+00:00' in blocked.reason
    assert check.contract_wait == blocked.movable_from - NOW and not check.obstacles


@pytest.mark.parametrize(('status', 'deadline'), [
    ('disabled', model.DrainDeadline(HOUR + 3 * 3600, 'x')),
    ('enabled', model.DrainDeadline(HOUR + 3 * 3600, what_if.REASON))])
def test_a_drain_check_heeds_the_deadline_of_the_drain_and_of_the_question(status, deadline):
    check = drains.plan_drain(supposed(cloud(profile(h3=QUIET)), status,
                                       drain_deadlines={'a': deadline}), 'a')
    assert len(check.plan.moves) == 1 and not check.blocked


def test_a_waiting_instance_that_no_host_may_take_stays():
    request = cloud(profile(h3=QUIET))
    instances = {'i0': dataclasses.replace(request.cluster.instances['i0'], memory_mb=10 ** 6,
                                           claims={'MEMORY_MB': 10 ** 6})}
    (blocked,) = drains.plan_drain(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=instances)), 'a').blocked
    assert not blocked.later and 'no-room' in blocked.reason and blocked.movable_from is None


def test_why_not_names_the_quieter_hour():
    request = cloud(profile(h3=QUIET))
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, quiet_waits=find(request)))
    answer = why_not.why_not(request, 'i0', 'b', model.Phase.EVACUATE)
    assert [verdict.rule for verdict in answer.refused] == ['quieter-hour']


def test_a_notice_to_the_owner_does_not_wait_for_the_quieter_hour():
    request = cloud(profile(h3=QUIET), contracts=(model.Contract(
        model.ContractSource.FLAVOR, notify=model.NoticePeriod(1800)),))
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, quiet_waits=find(request)))
    assert request.history.quiet_waits['i0'].until == HOUR + 3 * 3600
    assert [notice.instance_uuid for notice in move_notices.list_drain_notices(request)] == ['i0']


def test_a_campaign_forecast_says_that_the_host_waits_and_does_not_refuse_it():
    forecast = campaign_forecasts.forecast_campaign(cloud(profile(h3=QUIET), count=2), ['a'], 1)
    (blocked,) = forecast.staying['a']
    assert blocked.later and blocked.movable_from == HOUR + 3 * 3600 and not forecast.steps
    campaign_orders._refuse_without_force(forecast)
