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

"""Moves under way, as the store and executors would have them."""

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.backtest import simulated_executor


def task(name, at=0.0, *, scope='s', requires=(), memory_mb=1000, plan='p', deadline=None,
         priority=5, from_host='h1', to_host='h2'):
    return model.Task(
        task_id=name, plan_id=plan, aggregate=scope, instance_uuid=f'u{name}', from_host=from_host,
        to_host=to_host, phase=model.Phase.SPREAD, not_before=at, requires=requires,
        memory_mb=memory_mb, disk_gb=10, created_at=0.0, deadline=deadline, priority=priority)


def carrier(*tasks, **limits):
    found = simulated_executor.SimulatedExecutor(simulated_executor.ConcurrencyLimits(
        **{'bandwidth': 10.0, 'per_source': 9, 'per_destination': 9, **limits}))
    found.add(tasks)
    return found


def ended(found, until, since=0.0):
    return [(t.task_id, at) for t, at in found.advance_time(since, until)]


def test_a_move_takes_as_long_as_its_memory_takes():
    found = carrier(task('1'))
    assert ended(found, 99.9) == [] and [t.task_id for t in found.running_tasks] == ['1']
    assert ended(found, 100.0, since=99.9) == [('1', 100.0)] and not found.open_tasks


def test_a_copied_disk_takes_its_time_too():
    found = carrier(task('1'), copies_disk=True)
    assert ended(found, 5000.0) == [('1', (1000 + 10 * 1024) / 10)]


def test_no_move_begins_before_its_time():
    assert ended(carrier(task('1', at=30.0)), 1000.0) == [('1', 130.0)]


def test_so_many_at_once_in_a_scope_and_in_all():
    tasks = [task('1'), task('2'), task('3'), task('4', scope='t'), task('5', scope='t')]
    assert ended(carrier(*tasks, per_scope=2, total=3), 1000.0) == [
        ('1', 100.0), ('2', 100.0), ('4', 100.0), ('3', 200.0), ('5', 200.0)]


def test_so_many_at_once_off_a_host_and_to_a_host():
    tasks = [task('1'), task('2'), task('3', from_host='h3'), task('4', from_host='h4')]
    assert ended(carrier(*tasks, per_scope=9, per_source=1), 1000.0) == [
        ('1', 100.0), ('3', 100.0), ('4', 100.0), ('2', 200.0)]
    assert ended(carrier(*tasks, per_scope=9, per_source=1, per_destination=2), 1000.0) == [
        ('1', 100.0), ('3', 100.0), ('2', 200.0), ('4', 200.0)]


def test_the_more_urgent_begins_first():
    found = carrier(task('1'), task('2', priority=1), per_scope=1)
    assert ended(found, 1000.0) == [('2', 100.0), ('1', 200.0)]


def test_a_move_waits_for_its_required_moves():
    found = carrier(task('1', requires=('u2',)), task('2', at=50.0), per_scope=5)
    assert ended(found, 1000.0) == [('2', 150.0), ('1', 250.0)]


def test_another_plans_move_of_that_instance_does_not_count():
    found = carrier(task('2', plan='old'), task('1', requires=('u2',)))
    assert ended(found, 1000.0) == [('2', 100.0)]
    assert [t.task_id for t in found.open_tasks] == ['1']


def test_a_late_move_is_cancelled_with_the_moves_that_require_it():
    found = carrier(task('1'), task('2', deadline=60.0), task('3', requires=('u2',)),
                    task('4', requires=('u3',)), per_scope=1)
    assert ended(found, 1000.0) == [('1', 100.0)]
    assert found.cancelled == {'it did not begin in time': 1,
                               'a move that it requires was cancelled': 2}
    assert not found.open_tasks


@pytest.mark.parametrize(('deadline', 'expected'), [
    (100.0, [('1', 100.0)]), (100.5, [('1', 100.0), ('2', 200.0)])])
def test_the_deadline_itself_is_too_late(deadline, expected):
    assert ended(carrier(task('1'), task('2', deadline=deadline), per_scope=1), 1000.0) == expected


def test_no_move_takes_less_than_a_second():
    assert ended(carrier(task('1', memory_mb=1)), 10.0) == [('1', 1.0)]


def test_without_a_deadline_it_must_begin_within_the_limit():
    found = carrier(task('1', memory_mb=10_000), task('2'), per_scope=1, begin_within=500.0)
    assert ended(found, 2000.0) == [('1', 1000.0)]
    assert found.cancelled.total() == 1


@pytest.mark.parametrize('gone', ['u1', 'u2'])
def test_a_move_of_an_instance_that_is_gone_ends(gone):
    found = carrier(task('1'), task('2'), per_scope=1)
    found.advance_time(0.0, 10.0)
    found.cancel_gone_instances({gone})
    left = ended(found, 1000.0, since=10.0)
    assert left == ([('2', 110.0)] if gone == 'u1' else [('1', 100.0)])
    assert found.cancelled == {'the instance is gone': 1}
