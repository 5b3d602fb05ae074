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

"""An outage of Nova, Placement or Keystone: tasks wait, one executor announces it."""

import dataclasses

import pytest

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import service_breakers
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases

HOUR = 3600


@pytest.fixture
def bench():
    return benches.Bench()


def down(service='Nova'):
    return exception.ServiceUnavailable(
        instance_uuid='i', service=service, problem='the endpoint cannot be reached')


def twenty(bench):
    bench.plan(*[lambda p, s, n=n: cases.make_task(
        p, s, from_host=f'a{n}', to_host=f'b{n}', deadline=None, max_retries=3)
        for n in range(20)])


@pytest.mark.turns(4)
@pytest.mark.parametrize(('step', 'service'), [
    ('pre_flight', 'Nova'), ('pre_flight', 'Placement'), ('pre_flight', 'Keystone'),
    ('submit', 'Nova'), ('submit', 'Keystone')])
def test_an_outage_of_an_hour_costs_no_task_and_no_retry(bench, service, step):
    twenty(bench)
    bench.driver.answers[step] = [down(service)]
    other = bench.new_worker('w2')
    for _ in range(HOUR // 30):
        bench.passes(seconds=15)
        bench.passes(seconds=15, by=other)
    rows = [bench.row(n) for n in range(20)]
    assert {row.task.state for row in rows} == {TaskState.QUEUED}
    assert {(row.task.retry_count, row.attempts) for row in rows} == {(0, ())}
    assert bench.told == [] and bench.quarantined() == {}
    [(event, scope, payload)] = bench.announced
    assert (event, scope, payload['service']) == ('service.unavailable', 'blue', service)
    assert payload['problem'] == 'the endpoint cannot be reached.'
    assert len(bench.steps(step)) < 2 * 2 * HOUR / 30, 'an open breaker asks nobody'
    [held] = bench.store.quarantine.list_quarantines(bench.now)
    assert (held.kind, held.name) == ('service', service)

    bench.driver.answers |= {'pre_flight': ['marker'], 'submit': ['req']}
    bench.passes(200, seconds=5)
    assert {bench.row(n).task.state for n in range(20)} == {TaskState.COMPLETED}
    assert [event for event, _ in bench.told] == ['migration.completed'] * 20
    assert bench.store.quarantine.list_quarantines(bench.now) == []


@pytest.mark.parametrize(('pause', 'announced'), [(10.0, 1), (500.0, 1), (700.0, 2)])
def test_an_outage_is_announced_once_until_its_service_has_worked_long(bench, pause, announced):
    twenty(bench)
    for outage in (1, 2):
        bench.driver.answers['pre_flight'] = [down()]
        bench.passes(10)
        [held] = bench.store.quarantine.list_quarantines(bench.now)
        assert (held.since > cases.NOW + pause) == (outage == announced == 2)
        bench.driver.answers['pre_flight'] = ['marker']
        bench.passes(6)
        assert bench.store.quarantine.list_quarantines(bench.now) == []
        bench.now += pause
    assert len(bench.announced) == announced


def test_one_request_that_always_fails_delays_no_other_task(bench):
    """Nova answers 500 for this instance alone."""
    twenty(bench)
    first = bench.tasks[0].to_host
    bench.driver.answers['pre_flight'] = [
        lambda task: down() if task.to_host == first else 'marker']
    bench.passes(60)
    states = [bench.row(n).task.state for n in range(20)]
    assert states == [TaskState.QUEUED] + [TaskState.COMPLETED] * 19


def test_a_retry_counts_once_nova_was_asked(bench):
    bench.driver.answers['submit'] = [benches.error(exception.NovaClientError)]
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=1))
    bench.passes(10)
    assert (bench.state, bench.row().task.retry_count) == (TaskState.FAILED, 1)


def test_an_open_breaker_stops_queries_about_running_migrations(bench):
    bench.plan(cases.make_task, benches.elsewhere)
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.passes(4)
    assert [bench.row(n).task.state for n in (0, 1)] == [TaskState.SUBMITTED] * 2
    before = len(bench.steps('read_progress'))
    bench.driver.answers['read_progress'] = [down()]
    bench.passes(30)
    assert len(bench.steps('read_progress')) - before <= 2 + 300 / 30 + 1
    assert [event[0] for event in bench.announced] == ['service.unavailable']
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(6)
    assert [bench.row(n).task.state for n in (0, 1)] == [TaskState.COMPLETED] * 2


def test_an_outage_of_placement_does_not_keep_nova_from_being_asked(bench):
    bench.plan(cases.make_task, benches.elsewhere)
    bench.driver.answers['pre_flight'] = ['marker', down('Placement')]
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.passes(3)
    looks = len(bench.steps('read_progress'))
    bench.passes(3)
    assert len(bench.steps('read_progress')) > looks


def test_a_task_past_its_deadline_is_known_to_be_late_during_an_outage(bench):
    bench.plan(cases.make_task)
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING, down()]
    bench.passes(2)
    bench.now = bench.row().task.deadline
    bench.passes(2)
    assert bench.state is TaskState.UNKNOWN


def test_breaker_that_waits_long_announces_one_outage_once(bench):
    bench.worker = bench.new_worker('w1', dataclasses.replace(
        benches.SETTINGS, retry_backoff=1200.0))
    bench.driver.answers['pre_flight'] = [down()]
    bench.plan(cases.make_task)
    bench.passes(80, seconds=60)
    assert len(bench.steps('pre_flight')) > 3
    assert [event for event, *_ in bench.announced] == ['service.unavailable']


def test_instance_that_is_gone_says_nothing_of_placement(bench):
    """Only Nova was asked about it, so the outage of Placement goes on and is announced once."""
    bench.plan(*[lambda p, s, n=n: cases.make_task(p, s, from_host=f'a{n}', to_host=f'b{n}')
                 for n in range(3)])
    gone = exception.PreFlightError(
        instance_uuid='i', rule='no-such-instance', problem='it was deleted')
    bench.driver.answers['pre_flight'] = [
        *[down('Placement')] * 2, gone, down('Placement')]
    bench.passes(60)
    assert [event for event, *_ in bench.announced] == ['service.unavailable']


@pytest.mark.parametrize('kind', [exception.MigrationFailed, exception.InstanceRefused])
def test_refusal_by_nova_closes_its_breaker(bench, kind):
    bench.driver.answers |= {'pre_flight': [down(), down(), 'marker'],
                             'submit': [benches.error(kind)]}
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes(12)
    assert bench.state is TaskState.FAILED
    assert [q for q in bench.store.quarantine.list_quarantines(bench.now)
            if q.kind == 'service'] == []


def test_a_clock_that_was_set_back_does_not_keep_a_breaker_open(bench):
    bench.plan(cases.make_task)
    breakers = service_breakers.ServiceBreakers(bench.store, None, 30)
    for _ in range(service_breakers.FAILURES):
        breakers.record_failure(down(), bench.tasks[0], 1000)
    assert breakers.find_open(['Nova'], 1001) == (
        'Nova does not work: the endpoint cannot be reached.')
    assert breakers.find_open(['Placement'], 1001) is None
    assert breakers.find_open(['Nova'], 900) is None
    assert breakers.list_outages() == {'Nova': 'the endpoint cannot be reached.'}


def test_an_announcement_that_fails_is_logged_and_harms_nothing(bench, caplog):
    def announce(*_event):
        raise OSError('no broker')

    bench.plan(cases.make_task)
    breakers = service_breakers.ServiceBreakers(bench.store, announce, 30)
    for _ in range(service_breakers.FAILURES):
        breakers.record_failure(down('Cinder'), bench.tasks[0], bench.now)
    assert 'The outage of Nova was not announced (OSError: no broker)' in caplog.text
