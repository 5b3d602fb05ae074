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

"""Tasks of a plan."""

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.planning import tasks


def made(phase, cooldown=600.0, **kwargs):
    plan = model.Plan('s', moves=tuple(model.Move(u, 'a', 'b', phase) for u in 'xy'))
    cluster = model.Cluster({}, {u: model.Instance(u, 'a', memory_mb=7) for u in 'xy'}, {
        'a': model.Service('a', status='disabled', disabled_reason='a change')})
    return tasks.from_plan(plan, cluster, ('cpu',), plan_id='p', now=1000.0, stagger_seconds=30,
                           max_retries=2, new_id=lambda: 'id', cooldown=cooldown, **kwargs)


def test_moves_of_a_wave_are_staggered():
    assert [t.not_before for t in made(model.Phase.SPREAD)] == [1000.0, 1030.0]


@pytest.mark.parametrize(('phase', 'cooldown', 'deadline'), [
    (model.Phase.SPREAD, 900.0, 2800.0), (model.Phase.PACK, 0.0, 2200.0),
    (model.Phase.EVACUATE, 900.0, None), (model.Phase.AFFINITY, 900.0, None)])
def test_tasks_based_on_scores_expire_with_the_scores(phase, cooldown, deadline):
    assert {t.deadline for t in made(phase, cooldown)} == {deadline}


@pytest.mark.parametrize('phase', [model.Phase.SPREAD, model.Phase.EVACUATE])
def test_tasks_that_need_approval_wait_until_its_limit(phase):
    assert {(t.state, t.deadline) for t in made(phase, approval_seconds=60.0)} == {
        (model.TaskState.PENDING, 1060.0)}
    assert {t.state for t in made(phase)} == {model.TaskState.QUEUED}


@pytest.mark.parametrize(('phase', 'option', 'late', 'methods'), [
    (model.Phase.EVACUATE, 'allow', 'x', ['offline', 'live']),
    (model.Phase.EVACUATE, 'never', 'x', ['live', 'live']),
    (model.Phase.EVACUATE, 'allow', '', ['live', 'live']),
    (model.Phase.SPREAD, 'allow', 'x', ['live', 'live'])])
def test_a_drain_whose_last_migration_was_late_is_offline(phase, option, late, methods):
    assert [str(t.method) for t in made(
        phase, options=model.PlanningOptions(drain_offline=option),
        history=model.MoveHistory(late_drains=dict.fromkeys(late, 'a')))] == methods


def test_a_task_shuts_a_guest_down_once():
    offline, live = made(
        model.Phase.EVACUATE, options=model.PlanningOptions(drain_offline='allow'),
        history=model.MoveHistory(late_drains={'x': 'a'}))
    assert [(task.max_retries, task.counts_alternates) for task in (offline, live)] == [
        (0, True), (2, False)]


@pytest.mark.parametrize(('phase', 'local', 'options', 'disk_gb'), [
    ('spread', 5, {}, 0), ('spread', 5, {'allow_disk_copy': True}, 5), ('evacuate', 5, {}, 5),
    ('evacuate', 0, {}, 0), ('evacuate', None, {}, 20),
    ('evacuate', 5, {'instance_storage': 'shared'}, 0)])
def test_a_task_says_what_disks_it_copies(phase, local, options, disk_gb):
    move = model.Move('x', 'a', 'b', model.Phase(phase))
    instance = model.Instance('x', 'a', disk_gb=20, local_disk_gb=local)
    assert tasks.copied_gb(move, instance, model.PlanningOptions(**options)) == disk_gb


def test_a_task_knows_the_trees_of_all_hosts_that_it_may_touch():
    hosts = {n: model.Host(n, uuid=n, provider=model.Provider(n, 3)) for n in 'abcd'}
    hosts['c'] = model.Host('c')
    cluster = model.Cluster(hosts, {}, {})
    move = model.Move('x', 'a', 'b', model.Phase.SPREAD, alternates=('c', 'd'))
    assert [(t.host, t.generation)
            for t in tasks.list_tree_digests(move, cluster, model.PlanningOptions())] == [
        ('a', 3), ('b', 3), ('d', 3)]
    assert tasks.list_tree_digests(move, cluster,
                                   model.PlanningOptions(enforce_placement_claims=False)) == ()


def test_the_second_half_of_a_swap_may_begin_later_than_scores_last():
    """The first half has moved and would have to return. Without approval neither begins."""
    moves = (model.Move('x', 'a', 'b', model.Phase.SPREAD),
             model.Move('y', 'b', 'a', model.Phase.SPREAD, requires=('x',), wave=1))
    plan = model.Plan('s', moves, swaps=(model.Swap('x', 'y'),))
    cluster = model.Cluster({}, {u: model.Instance(u, h) for u, h in ('xa', 'yb')}, {})

    def deadlines(**kw):
        return [t.deadline for t in tasks.from_plan(
            plan, cluster, (), plan_id='p', now=0.0, stagger_seconds=0, max_retries=0,
            new_id=lambda: 'id', **kw)]

    assert deadlines() == [tasks.MIN_WAIT, None]
    assert deadlines(approval_seconds=60.0) == [60.0, 60.0]


@pytest.mark.parametrize(('status', 'method'), [
    ('ACTIVE', 'live'), ('PAUSED', 'live'), ('SHUTOFF', 'cold')])
def test_a_stopped_instance_is_moved_cold(status, method):
    plan = model.Plan('s', moves=(model.Move('x', 'a', 'b', model.Phase.EVACUATE),))
    cluster = model.Cluster({}, {'x': model.Instance('x', 'a', status=status)}, {})
    task, = tasks.from_plan(plan, cluster, (), plan_id='p', now=0.0, stagger_seconds=0,
                            max_retries=0, new_id=lambda: 'id')
    assert task.method == method


def test_requested_moves_have_priority_after_drains():
    order = sorted(tasks.PRIORITY, key=lambda phase: tasks.PRIORITY[phase])
    assert order[:3] == [model.Phase.EVACUATE, model.Phase.REQUESTED, model.Phase.AFFINITY]
    assert set(order) == set(model.Phase)


@pytest.mark.parametrize(('phase', 'host', 'reason', 'arrive_by'), [
    (model.Phase.EVACUATE, 'a', 'a change', 5000.0), (model.Phase.EVACUATE, 'b', 'a change', None),
    (model.Phase.EVACUATE, 'a', 'an earlier change', None),
    (model.Phase.SPREAD, 'a', 'a change', None), (model.Phase.REQUESTED, 'a', 'a change', None)])
def test_a_drain_gives_its_deadline_to_its_moves_alone(phase, host, reason, arrive_by):
    history = model.MoveHistory(drain_deadlines={host: model.DrainDeadline(5000.0, reason)})
    assert [t.arrive_by for t in made(phase, history=history)] == [arrive_by] * 2
    assert [t.arrive_by for t in made(phase)] == [None] * 2
