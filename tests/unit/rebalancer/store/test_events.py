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
"""Changes since a time: rows of each kind, oldest first."""

from kronos_nova.model import TaskState
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW


def test_changes_are_listed_oldest_first_from_a_time_on(store):
    old = cases.save(store, 1, now=NOW)[0]
    new = cases.save(store, 1, 'red', now=NOW + 10)[0]
    row = cases.claim(store, now=NOW + 20)
    store.pauses.pause_scope('blue', NOW + 15, seconds=None, paused_by='me', reason='storm')
    changes = store.events.list_changes(NOW, 100)
    assert [plan.plan_id for plan in changes.plans] == [old, new]
    assert [change.task.state for change in changes.tasks] == [
        TaskState.QUEUED, TaskState.CLAIMED]
    ((number, entry),) = changes.commands
    assert number > 0 and (entry.command, entry.reason) == ('paused', 'storm')
    later = store.events.list_changes(NOW + 15, 100)
    assert later.plans == [] and [change.task.task_id for change in later.tasks] == [
        row.task.task_id]
    assert [plan.plan_id for plan in store.events.list_changes(NOW, 1).plans] == [old]


def test_without_a_time_the_clock_of_the_database_is_the_answer(store):
    cases.save(store, 1, now=NOW)
    changes = store.events.list_changes(None, 100)
    assert changes.now > NOW and (changes.plans, changes.tasks, changes.commands) == ([], [], [])


def test_task_that_ended_is_a_change(store):
    cases.save(store, 1, now=NOW)
    row = cases.claim(store, now=NOW + 1)
    cases.end(store, row, now=NOW + 5)
    assert [change.task.state for change in store.events.list_changes(NOW + 4, 9).tasks] == [
        TaskState.COMPLETED]
