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

"""The deadline of a drain, and the instances that are not expected to leave in time."""

import datetime

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import drain_deadlines
from kronos_nova.rebalancer.operations import drains

NOW, DAY = 1793491200.5, 86400.0


@pytest.mark.parametrize(('deadline', 'at'), [
    (None, None), (NOW + 240, NOW + 239.5), (datetime.timedelta(minutes=5), NOW + 299.5),
    (datetime.timedelta(hours=2), NOW + 7199.5),
    (datetime.timedelta(days=30), NOW + 30 * DAY - 0.5), (NOW + 30 * DAY, NOW + 30 * DAY - 0.5)])
def test_a_deadline_is_a_whole_second(deadline, at):
    assert drain_deadlines.resolve_deadline(deadline, NOW) == at


@pytest.mark.parametrize(('deadline', 'problem'), [
    (NOW, '2026-11-01T00:00:00.00:00 has passed'), (NOW - 60, 'has passed'),
    (-1e11, '1970-01-01'), (datetime.timedelta(), 'has passed'),
    (NOW + 239, 'less than 5 minutes away'), (datetime.timedelta(seconds=299), 'less than 5'),
    (NOW + 31 * DAY, 'more than 30 days away'), (datetime.timedelta(days=9e8), 'more than 30')])
def test_a_deadline_that_no_drain_can_have_is_refused(deadline, problem):
    with pytest.raises(exception.ConfigError, match=f'deadline: .*{problem}.*Give a time, or'):
        drain_deadlines.resolve_deadline(deadline, NOW)


def list_late(blocked=(), ends=(), expected=(), risks=()):
    moves = tuple(model.Move(uuid, host, 'z', model.Phase.EVACUATE)
                  for uuid, host in [('i0', 'a'), ('i1', 'a'), ('i2', 'b')])
    check = drains.DrainCheck(model.Plan('s', moves), tuple(blocked), {})
    return {late.instance_uuid: late.reason for late in drain_deadlines.list_late_instances(
        check, 'a', NOW + 100, NOW, dict(ends), dict(expected), dict(risks))}


def test_instances_whose_migrations_end_after_the_deadline_are_late():
    assert list_late() == {}, 'no migration was measured'
    found = list_late(ends={'i0': 100.0, 'i1': 101.0, 'i2': 900.0}, risks={'i0': 0.4})
    assert set(found) == {'i1'} and '2026-11-01T00:01:41' in found['i1']
    risky = list_late(ends={'i0': 1.0, 'i1': 2.0}, risks={'i0': 0.5, 'i2': 0.9})
    assert risky == {'i0': 'a risk of 50% that its live migration does not converge'}


@pytest.mark.parametrize(('fields', 'ends', 'late'), [
    ({}, {}, True), ({'later': True}, {}, False), ({'later': True}, {'i0': 91.0}, True),
    ({'later': True}, {'i0': 90.0}, False),
    ({'later': True, 'movable_from': NOW + 91}, {'i0': 1.0}, True),
    ({'later': True, 'movable_from': NOW + 90}, {'i0': 1.0}, False)])
def test_instances_that_wait_are_late_if_they_cannot_leave_in_time(fields, ends, late):
    blocked = blocked_instances.BlockedInstance('i9', 'its reason', **fields)
    found = list_late([blocked], ends, {'i9': 10.0})
    assert set(found) == ({'i9'} if late else set())
    assert not late or 'its reason' in found['i9']
