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

"""Verdicts of pre-flight on given readings; tests/functional compares the readings with a
real Nova."""

import dataclasses
import json
import time
from typing import Any

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import preflight_check
from kronos_nova.rebalancer.executors import preflight_reader
from kronos_nova.rebalancer.executors import stale_scheduler_view
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.executors import novas

HOSTS = ('host1', 'host2', 'host3')


class Ready:
    """A driver whose reader and Nova return scripted answers and record the requests."""

    def __init__(self) -> None:
        self.driver = novas.driver(answers.Answers())
        self.nova = self
        self.driver._pre_flight = preflight_check.PreFlightCheck(
            self.driver._conf, self)  # type: ignore[arg-type]
        self.asked: list[Any] = []
        self.error: api.ApiError | None = None
        self.changed: dict[str, list[nova_api.Migration] | api.ApiError] = {}
        self.cluster = model.Cluster(
            hosts={h: model.Host(h, provider=model.Provider(
                h, inventories={'VCPU': model.Inventory(8)})) for h in HOSTS},
            instances={'vm': model.Instance('vm', 'host1', claims={'VCPU': 2})},
            services={h: model.Service(h, zone='az1') for h in HOSTS},
            aggregates={'rack': ('host3',)})

    def read(self, task: model.Task, now: float) -> preflight_reader.PreflightView:
        self.asked.append((task, now))
        if self.error is not None:
            raise self.error
        return preflight_reader.PreflightView(self.cluster, 5)

    def migrations_of_host(self, host: str, now: float) -> list[nova_api.Migration]:
        self.asked.append((host, now))
        found = self.changed.get(host, [])
        if isinstance(found, api.ApiError):
            raise found
        return found

    def set(self, **fields: Any) -> None:
        """Fields of the instance."""
        one = dataclasses.replace(self.cluster.instances['vm'], **fields)
        self.cluster = dataclasses.replace(self.cluster, instances={'vm': one})

    def go(self, task: model.Task = novas.TASK, known: base.StoredFacts | None = None) -> Any:
        return json.loads(self.driver.pre_flight(task, known or base.StoredFacts(now=time.time())))

    def refused(self, task: model.Task = novas.TASK,
                known: base.StoredFacts | None = None) -> tuple[type[Exception], str | None, str]:
        """Return (kind, rule, problem) of the error that pre-flight raises."""
        with pytest.raises(exception.MigrationError) as error:
            self.go(task, known)
        assert error.value.kwargs['instance_uuid'] == 'vm'
        return type(error.value), error.value.kwargs.get('rule'), error.value.kwargs['problem']


@pytest.fixture
def ready() -> Ready:
    return Ready()


def test_the_marker_is_the_newest_migration_and_when_it_was_read(ready: Ready) -> None:
    marker = ready.go(known=base.StoredFacts(now=7.0))
    assert marker == {'migration_id': 5, 'time': 7.0}
    assert ready.asked == [(novas.TASK, 7.0), ('host1', 7.0), ('host2', 7.0)]


@pytest.mark.parametrize(('what', 'status', 'expected'), [
    ('server vm', 404, (exception.PreFlightError, 'no-such-instance',
                        'it was deleted; there is nothing left to move')),
    ('server other', 404, (exception.NovaClientError, None,
                           'could not read server other from Nova: no')),
    ('server vm', 503, (exception.ServiceUnavailable, None,
                        'could not read server vm from Nova: no'))])
def test_only_the_instance_itself_can_be_gone(ready: Ready, what: str, status: int,
                                              expected: Any) -> None:
    ready.error = api.ApiError('Nova', what, 'no', status)
    assert ready.refused() == expected


def test_an_instance_on_no_host_is_not_moved(ready: Ready) -> None:
    ready.set(host='', status='SHELVED_OFFLOADED')
    assert ready.refused() == (exception.PreFlightError, 'moved-away',
                               'it is SHELVED_OFFLOADED and on no host any more')


def test_an_aggregate_that_is_gone_has_no_hosts(ready: Ready) -> None:
    ready.cluster = dataclasses.replace(
        ready.cluster, aggregates={'rack': ('host1', 'host2')})
    assert ready.go(dataclasses.replace(novas.TASK, aggregate='rack'))
    task = dataclasses.replace(novas.TASK, aggregate='row')
    assert ready.refused(task) == (exception.PreFlightError, 'out-of-scope',
                                   'aggregate row no longer exists')


def test_a_destination_of_another_scope_is_refused(ready: Ready) -> None:
    task = dataclasses.replace(novas.TASK, to_host='host3')
    assert ready.refused(task)[:2] == (exception.PreFlightError, 'out-of-scope')


def test_a_host_of_two_aggregates_is_of_the_one_that_is_planned_first(ready: Ready) -> None:
    ready.driver._conf.set_override('aggregates', ['rack', 'row'], 'engine')
    ready.cluster = dataclasses.replace(
        ready.cluster, aggregates={'rack': ('host2',), 'row': ('host1', 'host2')})
    task = dataclasses.replace(novas.TASK, aggregate='row')
    assert ready.go(task, base.StoredFacts(now=time.time(), scopes=frozenset({'row'})))
    known = base.StoredFacts(now=time.time(), scopes=frozenset({'rack', 'row'}))
    assert ready.refused(task, known)[:2] == (exception.PreFlightError, 'out-of-scope')


@pytest.mark.parametrize(('fields', 'kind', 'rule'), [
    ({'host': 'host3'}, exception.PreFlightError, 'moved-away'),
    ({'locked': True}, exception.PreFlightError, 'locked'),
    ({'claims': {'VCPU': 9}}, exception.PlacementRejected, 'no-room'),
    ({'claims': {'PCPU': 1}}, exception.PlacementRejected, 'no-inventory')])
def test_pre_flight_checks_the_rules_again(ready: Ready, fields: dict[str, Any],
                                           kind: type[Exception], rule: str) -> None:
    ready.set(**fields)
    found, said, problem = ready.refused()
    assert (found, said) == (kind, rule)
    assert problem.startswith(f'not moved to host2, rule {rule}: ')


def test_the_reason_for_a_drain_must_stand_still(ready: Ready) -> None:
    task = dataclasses.replace(novas.TASK, phase=model.Phase.EVACUATE)
    assert ready.refused(task)[1] == 'drain-over'
    ready.cluster = dataclasses.replace(ready.cluster, services={
        **ready.cluster.services, 'host1': model.Service('host1', 'disabled', zone='az1')})
    assert ready.go(task)


@pytest.mark.parametrize(('facts', 'rule'), [
    ({'history': model.MoveHistory(quarantined={'vm': 60.0})}, 'quarantined'),
    ({'draining': frozenset({'host2'})}, 'host-draining'),
    ({'flights': (model.InFlightMove('vm', 'host1', 'host3', 'task'),)}, 'in-flight')])
def test_pre_flight_applies_facts_from_the_database(ready: Ready, facts: dict[str, Any],
                                                    rule: str) -> None:
    assert ready.refused(known=base.StoredFacts(now=time.time(), **facts))[1] == rule


def test_a_cold_move_of_an_active_instance_is_left_to_the_next_plan(ready: Ready) -> None:
    ready.cluster = dataclasses.replace(ready.cluster, services={
        **ready.cluster.services, 'host1': model.Service('host1', 'disabled', zone='az1')})
    assert ready.refused(novas.COLD) == (
        exception.PreFlightError, 'method-changed',
        'it is ACTIVE and a cold migration was planned; the next plan knows')


def test_a_live_move_of_a_stopped_instance_needs_a_new_plan(ready: Ready) -> None:
    ready.driver._conf.set_override('cold_migrate_stopped', True, 'engine')
    ready.set(status='SHUTOFF')
    task = dataclasses.replace(novas.TASK, phase=model.Phase.REQUESTED)
    assert ready.refused(task) == (
        exception.PreFlightError, 'method-changed',
        'it is SHUTOFF and a live migration was planned; the next plan knows')
    assert ready.go(dataclasses.replace(task, method=model.MoveMethod.COLD))


@pytest.mark.mutant
def test_a_move_between_zones_is_logged(ready: Ready, caplog: pytest.LogCaptureFixture) -> None:
    ready.go()
    assert not caplog.messages
    ready.cluster = dataclasses.replace(ready.cluster, services={
        **ready.cluster.services, 'host2': model.Service('host2', zone='az2')})
    ready.driver._conf.set_override('restrict_to_az', False, 'engine')
    ready.go()
    assert caplog.messages == [f'{model.format_task(novas.TASK)}: the move from host1 to host2 is '
                               'one from zone az1 to zone az2']


# Slots that others take.

def live(uuid: str, source: str | None, destination: str | None, status: str = 'running',
         kind: str = nova_api.LIVE_MIGRATION, at: float = 0.0) -> nova_api.Migration:
    return nova_api.Migration(9, f'm-{uuid}', uuid, kind, status, source, destination, at)


def test_unreadable_migrations_of_a_host_raise_service_unavailable(ready: Ready) -> None:
    ready.changed['host2'] = api.ApiError('Nova', 'migrations', 'no', 503)
    assert ready.refused() == (exception.ServiceUnavailable, None,
                               'could not read migrations from Nova: no')


@pytest.mark.parametrize(('host', 'others', 'flights', 'limit', 'said'), [
    ('host1', [('a', 'host1', 'host3')], [], 2, None),
    ('host1', [('a', 'host1', 'host3'), ('b', 'host1', None)], [], 2,
     '2 migrations from host1 that others asked for, and 0 of ours, are under way; [executor] '
     'allows 2'),
    ('host1', [('a', 'host1', 'host3')], [('c', 'host1', 'host3')], 2,
     '1 migration from host1 that others asked for, and 1 of ours, are under way; [executor] '
     'allows 2'),
    ('host1', [('a', 'host1', 'host3')], [('c', 'host3', 'host1')], 2, None),
    ('host1', [('a', 'host3', 'host1'), ('b', 'host3', 'host1')], [], 2, None),
    ('host1', [('c', 'host1', 'host3'), ('vm', 'host1', 'host3')], [('c', 'host1', 'host3')], 2,
     None),
    ('host1', [], [('c', 'host1', 'host3'), ('d', 'host1', 'host3')], 2, None),
    # Nova carries out a request of ours from another host than the task's source.
    ('host1', [('c', 'host1', 'host3')], [('c', 'host4', 'host3')], 1,
     '1 migration from host1 that others asked for, and 0 of ours, are under way; [executor] '
     'allows 1'),
    ('host2', [('a', 'host3', 'host2')], [], 2, None),
    ('host2', [('a', 'host3', 'host2'), ('b', 'host1', 'host2')], [], 2,
     '2 migrations to host2 that others asked for, and 0 of ours, are under way; [executor] '
     'allows 2'),
    ('host2', [('a', 'host3', 'host2')], [('c', 'host3', 'host2')], 2,
     '1 migration to host2 that others asked for, and 1 of ours, are under way; [executor] '
     'allows 2'),
    ('host2', [('a', 'host3', 'host2')], [('c', 'host2', 'host3')], 2, None)])
def test_migrations_of_others_take_slots_as_ours_do(
        ready: Ready, host: str, others: list[Any], flights: list[Any], limit: int,
        said: str | None) -> None:
    for option in ('max_concurrent_per_source', 'max_concurrent_per_destination'):
        ready.driver._conf.set_override(
            option, limit if (option.endswith('source')) == (host == 'host1') else 10, 'executor')
    ready.changed[host] = [live(*one) for one in others]
    known = base.StoredFacts(now=time.time(), flights=tuple(model.InFlightMove(*one, source='task')
                                           for one in flights))
    if said is None:
        ready.go(known=known)
    else:
        assert ready.refused(known=known) == (exception.PreFlightError, 'no-slot', said)


@pytest.mark.parametrize('other', [
    live('a', 'host1', 'host3', 'completed'), live('a', 'host1', 'host3', kind='migration')])
def test_ended_and_cold_migrations_take_no_slot(ready: Ready, other: Any) -> None:
    ready.driver._conf.set_override('max_concurrent_per_source', 1, 'executor')
    ready.changed['host1'] = [other]
    ready.go()
    ready.changed['host1'] = [live('a', 'host1', 'host3')]
    assert ready.refused()[1] == 'no-slot'


def test_record_that_does_not_change_takes_no_slot(ready: Ready) -> None:
    ready.driver._conf.set_override('max_concurrent_per_source', 1, 'executor')
    other = live('a', 'host1', 'host3', 'queued')
    for seconds, refused in ((60.0, True), (3600.0, False)):
        ready.changed['host1'] = [dataclasses.replace(other, updated_at=time.time() - seconds)]
        if refused:
            assert ready.refused()[1] == 'no-slot'
        else:
            ready.go()
    ahead = base.StoredFacts(now=time.time() + 86400.0)
    ready.changed['host1'] = [dataclasses.replace(other, updated_at=ahead.now - 60.0)]
    assert ready.refused(known=ahead)[1] == 'no-slot', 'this machine has another clock'
    ready.changed['host1'] = [dataclasses.replace(other, updated_at=time.time() - 60.0)]
    ready.go(known=ahead)
    flight = model.InFlightMove('b', 'host1', 'host3', source='task')
    ready.changed['host1'] = [live('a', 'host1', 'host3')]
    ready.driver._conf.set_override('max_concurrent_per_source', 2, 'executor')
    assert ready.refused(known=base.StoredFacts(now=time.time(), flights=(flight,)))[1] == 'no-slot'
    ready.go(known=base.StoredFacts(now=time.time(), flights=(flight,), slotless=frozenset({'b'})))


# What nova-scheduler may not know yet.

SECONDS = 120


def waits(ready: Ready, migration: nova_api.Migration, seconds: int = SECONDS) -> str | None:
    """The rule that holds a member of a group, which is apart from vm, if any."""
    other = model.Instance('a', 'host3')
    ready.cluster = dataclasses.replace(
        ready.cluster, instances={**ready.cluster.instances, 'a': other},
        groups=(model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY,
                                  frozenset({'vm', 'a'})),))
    ready.driver._conf.set_override('scheduler_instance_sync_interval', seconds, 'executor')
    ready.changed['host2'] = [migration]
    try:
        ready.go()
    except exception.PreFlightError as error:
        return str(error.kwargs['rule'])
    return None


def test_an_instance_that_just_left_the_destination_delays_the_move(ready: Ready) -> None:
    now = time.time()
    left = live('a', 'host2', 'host3', 'completed', at=now)
    assert waits(ready, left) == 'just-left'
    assert waits(ready, dataclasses.replace(left, status='error')) == 'just-left'
    assert waits(ready, left, seconds=0) is None
    for other in ({'from_host': 'host3', 'to_host': 'host2'}, {'type': 'migration'},
                  {'status': 'running', 'to_host': 'host1'}):
        assert waits(ready, dataclasses.replace(left, **other)) is None


def test_it_is_waited_for_as_long_as_nova_scheduler_may_take(ready: Ready) -> None:
    left = live('a', 'host2', 'host3', 'completed')
    known_at = time.time() - SECONDS - stale_scheduler_view.MARGIN
    assert waits(ready, dataclasses.replace(left, updated_at=known_at + 20)) == 'just-left'
    assert waits(ready, dataclasses.replace(left, updated_at=known_at - 20)) is None
    assert waits(ready, dataclasses.replace(left, updated_at=known_at)) is None


def test_a_same_host_partner_that_just_arrived_delays_the_move(ready: Ready) -> None:
    ready.set(scheduler_hints={'same_host': ('b',)})
    ready.cluster = dataclasses.replace(ready.cluster, instances={
        **ready.cluster.instances, 'b': model.Instance('b', 'host2')})
    ready.driver._conf.set_override('nova_enabled_filters', ['SameHostFilter'], 'engine')
    ready.driver._conf.set_override('scheduler_instance_sync_interval', SECONDS, 'executor')
    for source, destination, rule in (('host3', 'host2', 'just-came'), ('host2', 'host3', None)):
        ready.changed['host2'] = [live('b', source, destination, 'completed', at=time.time())]
        if rule is None:
            ready.go()
        else:
            assert ready.refused()[1] == rule


# Contracts.

@pytest.mark.parametrize(('stated', 'rule'), [
    ({'disruption': model.Disruption.NEVER}, 'contract-disruption'),
    ({'hours': movement_hours.parse_hours('* * 31 2 *')}, 'contract-hours'),
    ({'max_moves': model.MoveQuota(1, 60)}, 'contract-max-moves'),
    ({'notify': model.NoticePeriod(60)}, 'contract-notice'),
    ({'unreadable': ('hours',)}, 'contract-unreadable')])
def test_pre_flight_judges_the_contract_again(ready: Ready, stated: dict[str, Any],
                                              rule: str) -> None:
    """The task may have waited for days."""
    assert ready.go()
    ready.driver._conf.set_override('strongest_for_tenants', 'never', 'contracts')
    ready.set(contracts=(model.Contract(model.ContractSource.METADATA, **stated),))
    history = model.MoveHistory(move_times={'vm': (ready.cluster.taken_at - 1.0,)})
    known = base.StoredFacts(now=time.time(), history=history)
    assert ready.refused(known=known)[1] == rule
    ready.driver._conf.set_override('strongest_for_tenants', 'live', 'contracts')
    assert ready.go()


@pytest.mark.parametrize(('stated', 'rule'), [
    ({'disruption': model.Disruption.NEVER}, 'contract-disruption'),
    ({'hours': movement_hours.parse_hours('* * 31 2 *')}, None),
    ({'max_moves': model.MoveQuota(1, 7 * 86400)}, None),
    ({'notify': model.NoticePeriod(60)}, None),
    ({'unreadable': ('hours',)}, 'contract-unreadable')])
def test_neither_hours_nor_used_moves_hold_the_way_back_of_a_swap(
        ready: Ready, stated: dict[str, Any], rule: str | None) -> None:
    """The swap itself has used the move; without its way back it would be stuck."""
    ready.set(contracts=(model.Contract(model.ContractSource.FLAVOR, **stated),))
    task = dataclasses.replace(novas.TASK, phase=model.Phase.REQUESTED)
    history = model.MoveHistory(move_times={'vm': (ready.cluster.taken_at - 1.0,)})
    known = base.StoredFacts(now=time.time(), history=history)
    assert ready.refused(task, known)[1].startswith('contract-')
    returning = dataclasses.replace(known, returning=True)
    if rule is None:
        assert ready.go(task, returning)
    else:
        assert ready.refused(task, returning)[1] == rule


@pytest.mark.parametrize(('ago', 'rule'), [(59.0, 'contract-notice'), (61.0, None)])
def test_pre_flight_counts_the_time_of_a_notice(ready: Ready, ago: float,
                                                rule: str | None) -> None:
    ready.set(contracts=(model.Contract(
        model.ContractSource.FLAVOR, notify=model.NoticePeriod(60)),))
    now = ready.cluster.taken_at
    known = base.StoredFacts(now=now, history=model.MoveHistory(notices={'vm': model.MoveNotice(
        'vm', 'p', novas.TASK.from_host, model.NoticeReason.BALANCE, now - ago, now, now + 60)}))
    if rule is None:
        assert ready.go(known=known)
    else:
        assert ready.refused(known=known)[1] == rule


def test_an_unreadable_value_of_a_tenant_forbids_to_shut_down_within_the_cap(
        ready: Ready) -> None:
    ready.set(contracts=(model.Contract(model.ContractSource.METADATA, unreadable=('hours',)),))
    task = dataclasses.replace(novas.TASK, phase=model.Phase.REQUESTED,
                               method=model.MoveMethod.OFFLINE)
    ready.driver._conf.set_override('strongest_for_tenants', 'cold-ok', 'contracts')
    assert ready.go(task)
    ready.driver._conf.set_override('strongest_for_tenants', 'live', 'contracts')
    assert ready.refused(task)[1] == 'contract-method'
    assert ready.go(dataclasses.replace(task, method=model.MoveMethod.LIVE))


@pytest.mark.parametrize(('option', 'stated', 'problem'), [
    ('consent', 'cold-ok', None), ('allow', 'cold-ok', None),
    ('never', 'cold-ok', '[engine] drain_offline is never'),
    ('allow', 'live', 'its contract says disruption live (metadata), which counts in full here, '
                      'beyond [contracts] strongest_for_tenants')])
def test_pre_flight_of_an_offline_drain_needs_the_option_and_the_owner(
        ready: Ready, option: str, stated: str, problem: str | None) -> None:
    """An owner's word counts in full: the cap for other moves does not."""
    ready.driver._conf.set_override('drain_offline', option, 'engine')
    ready.driver._conf.set_override('strongest_for_tenants', 'poweroff-ok', 'contracts')
    ready.set(contracts=(model.Contract(model.ContractSource.METADATA,
                                        model.Disruption(stated)),))
    task = dataclasses.replace(novas.TASK, phase=model.Phase.EVACUATE,
                               method=model.MoveMethod.OFFLINE)
    known = base.StoredFacts(now=time.time(), history=model.MoveHistory(
        quarantined={'vm': 60.0}, late_drains={'vm': 'host1'}))
    ready.cluster = dataclasses.replace(ready.cluster, services={
        **ready.cluster.services, 'host1': model.Service('host1', status='disabled', zone='az1')})
    ready.driver._conf.set_override('evacuate_disabled_hosts', True, 'engine')
    if problem is None:
        assert ready.go(task, known)
    elif option == 'never':
        assert ready.refused(task, known)[1] == 'quarantined'
    else:
        assert ready.refused(task, dataclasses.replace(known, history=dataclasses.replace(
            known.history, quarantined={}))) == (
                exception.PreFlightError, 'contract-method', f'it is not moved offline: {problem}')


@pytest.mark.parametrize(('late', 'method', 'quarantined', 'rule'), [
    ({'vm': 'host1'}, model.MoveMethod.OFFLINE, True, None),
    ({'vm': 'host1'}, model.MoveMethod.LIVE, True, 'quarantined'),
    ({'vm': 'host1'}, model.MoveMethod.LIVE, False, None),
    ({'vm': 'host2'}, model.MoveMethod.OFFLINE, False, 'contract-method'),
    ({}, model.MoveMethod.OFFLINE, False, 'contract-method'),
    ({}, model.MoveMethod.OFFLINE, True, 'quarantined')])
def test_pre_flight_shuts_down_only_an_instance_that_is_late_still(
        ready: Ready, late: dict[str, str], method: model.MoveMethod, quarantined: bool,
        rule: str | None) -> None:
    """A task may have waited for approval for days."""
    ready.driver._conf.set_override('drain_offline', 'allow', 'engine')
    ready.driver._conf.set_override('evacuate_disabled_hosts', True, 'engine')
    ready.cluster = dataclasses.replace(ready.cluster, services={
        **ready.cluster.services, 'host1': model.Service('host1', status='disabled', zone='az1')})
    task = dataclasses.replace(novas.TASK, phase=model.Phase.EVACUATE, method=method)
    known = base.StoredFacts(now=time.time(), history=model.MoveHistory(
        quarantined={'vm': 60.0} if quarantined else {}, late_drains=late))
    if rule is None:
        assert ready.go(task, known)
    else:
        assert ready.refused(task, known)[1] == rule


def test_pre_flight_shuts_no_instance_down_against_its_contract(ready: Ready) -> None:
    task = dataclasses.replace(novas.TASK, phase=model.Phase.REQUESTED,
                               method=model.MoveMethod.OFFLINE)
    ready.set(contracts=(model.Contract(model.ContractSource.FLAVOR, model.Disruption.COLD_OK),))
    assert ready.go(task)
    ready.set(contracts=(model.Contract(model.ContractSource.FLAVOR, model.Disruption.LIVE),))
    assert ready.refused(task) == (
        exception.PreFlightError, 'contract-method',
        'it is not moved offline: its contract says disruption live (flavor)')
