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

"""The store finds live migrations of drains that were ended as too late."""

import pytest

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import late_drains
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

LATE, DAY = 'MigrationTimeout', 86400.0


def end(store, at, state=TaskState.FAILED, error_type=LATE, submitted=True,
        quarantine_seconds=None, **fields):
    """Carry one task to its end; return its instance."""
    cases.save(store, [lambda p, s: cases.make_task(
        p, s, **{'phase': model.Phase.EVACUATE, **fields})], now=at)
    row = cases.claim(store, now=at)
    if submitted:
        store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTED,
                                 at, submitted_at=at)
    assert cases.end(store, row, state, at, error_type=error_type,
                     quarantine_seconds=quarantine_seconds) == []
    return row.task.instance_uuid


def read(store, now=NOW, scope='blue'):
    return store.history.read_history(scope, now).late_drains


def test_late_drains_are_read_only_where_they_matter(store):
    end(store, NOW)
    assert store.history.read_history('blue', NOW, late_drains=False).late_drains == {}


def test_late_drains_are_known_in_each_scope_for_a_week(store):
    uuid = end(store, NOW)
    assert read(store) == read(store, scope='green') == {uuid: 'h1'}
    assert read(store, NOW + late_drains.REMEMBERED - 1) == {uuid: 'h1'}
    assert read(store, NOW + late_drains.REMEMBERED) == {}


@pytest.mark.parametrize('fields', [
    {'error_type': 'MigrationFailed'}, {'phase': model.Phase.SPREAD},
    {'phase': model.Phase.REQUESTED}, {'method': model.MoveMethod.OFFLINE},
    {'method': model.MoveMethod.COLD}, {'state': TaskState.CANCELLED}, {'submitted': False},
    {'state': TaskState.COMPLETED, 'error_type': None}])
def test_other_ends_are_no_late_drains(store, fields):
    end(store, NOW, **fields)
    assert read(store) == {}


@pytest.mark.parametrize('fields, remains', [
    ({'method': model.MoveMethod.OFFLINE}, False), ({'error_type': 'MigrationFailed'}, False),
    ({'state': TaskState.COMPLETED, 'error_type': None}, False), ({}, True),
    ({'submitted': False, 'state': TaskState.CANCELLED}, True)])
def test_newest_migration_decides(store, fields, remains):
    uuid = end(store, NOW)
    end(store, NOW + DAY, instance_uuid=uuid, **fields)
    assert read(store, NOW + DAY) == ({uuid: 'h1'} if remains else {})


@pytest.mark.parametrize('error_type, remains', [
    (LATE, True), ('PreFlightError', False), ('InstanceInError', False)])
def test_quarantine_of_another_reason_ends_no_earlier(store, error_type, remains):
    """A task that did not reach Nova may quarantine the instance as well."""
    uuid = end(store, NOW, quarantine_seconds=3600.0)
    end(store, NOW + 60, instance_uuid=uuid, error_type=error_type, submitted=False,
        quarantine_seconds=3600.0)
    assert (uuid in read(store, NOW + 61)) == remains
    assert uuid in read(store, NOW + 3661), 'its quarantine is over'


def test_operator_who_lifts_the_quarantine_wants_a_live_migration(store):
    uuid = end(store, NOW, quarantine_seconds=3600.0)
    other = end(store, NOW, quarantine_seconds=3600.0)
    assert store.quarantine.lift_quarantine('instance', uuid, NOW + 60, 'ann')
    assert read(store, NOW + 61).keys() == {other}
    end(store, NOW + 120, instance_uuid=uuid, quarantine_seconds=3600.0)
    assert read(store, NOW + 121).keys() == {uuid, other}
