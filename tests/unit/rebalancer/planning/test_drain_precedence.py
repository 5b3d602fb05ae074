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

"""Tasks that give way to a drain, and tasks that make room for it."""

from kronos_nova import model
from kronos_nova.rebalancer.planning import drain_precedence

EVACUATE, SPREAD, PACK = model.Phase.EVACUATE, model.Phase.SPREAD, model.Phase.PACK
REQUESTED, AFFINITY = model.Phase.REQUESTED, model.Phase.AFFINITY


def task(uuid, phase, *requires, plan='p', host='a'):
    return model.Task(f'task-{plan}-{uuid}', plan, 'blue', uuid, host, 'z', phase,
                      requires=requires)


def yielding(*tasks):
    return [t.task_id for t in drain_precedence.list_yielding_tasks(tasks)]


def test_moves_for_balance_give_way_and_others_stay():
    assert yielding(task('1', SPREAD), task('2', PACK), task('3', EVACUATE), task('4', AFFINITY),
                    task('5', REQUESTED)) == ['task-p-1', 'task-p-2']


def test_moves_that_a_drain_or_a_repair_requires_stay():
    assert yielding(task('1', SPREAD), task('2', SPREAD, '1'), task('3', EVACUATE, '2'),
                    task('4', SPREAD), task('5', AFFINITY, '4'), task('6', SPREAD, '4')) == [
        'task-p-6']


def test_a_move_that_a_drain_of_another_plan_requires_gives_way():
    assert yielding(task('1', SPREAD), task('3', EVACUATE, '1', plan='q')) == ['task-p-1']


def test_a_drain_has_the_moves_off_its_host_and_those_that_make_room_for_it_alone():
    live = [task('1', EVACUATE, 'room', host='h'), task('2', EVACUATE, 'shared', host='h'),
            task('room', SPREAD, 'more'), task('more', SPREAD), task('shared', SPREAD),
            task('3', EVACUATE, 'shared', host='other'), task('4', SPREAD),
            task('5', REQUESTED, host='h')]
    assert [t.instance_uuid for t in drain_precedence.list_drain_tasks(live, 'h')] == [
        '1', '2', 'room', 'more']


def test_a_repair_that_a_drain_requires_stays_when_the_drain_ends():
    live = [task('1', EVACUATE, '2', host='h'), task('2', AFFINITY)]
    assert [t.instance_uuid for t in drain_precedence.list_drain_tasks(live, 'h')] == ['1']


def test_requirements_in_a_circle_end():
    tasks = [task('1', SPREAD, '2'), task('2', SPREAD, '1')]
    assert drain_precedence.list_required_instances(tasks, ['1']) == {'1', '2'}


def test_only_moves_of_our_tasks_are_dropped():
    flights = (model.InFlightMove('1', 'a', 'b', 'task'), model.InFlightMove('1', 'a', 'b'),
               model.InFlightMove('2', 'a', 'b', 'task'))
    cluster = model.Cluster({}, {}, {}, flights=flights)
    assert drain_precedence.drop_task_moves(cluster, {'1'}).flights == flights[1:]
