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


"""Plans and tasks for tests of the store, on any backend."""

import collections
import threading
import uuid

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import tables

NOW = 1_700_000_000.0
CAPS = {'per_scope': 2, 'total': 8, 'claim_seconds': 60}


def new_id():
    return str(uuid.uuid4())


def make_task(plan_id, scope='blue', **kw):
    values = {'task_id': new_id(), 'plan_id': plan_id, 'aggregate': scope,
              'instance_uuid': new_id(), 'from_host': 'h1', 'to_host': 'h2',
              'phase': model.Phase.SPREAD, 'alternates': ('h3',), 'not_before': NOW}
    return model.Task(**{**values, **kw})


def save(store, tasks=1, scope='blue', now=NOW, lease=None, dry_run=False, reason=None,
         draining=(), **kw):
    """Store a plan; ``tasks`` is a number, or functions from plan id to task."""
    plan_id = new_id()
    if isinstance(tasks, int):
        tasks = [make_task] * tasks
    made = [make(plan_id, scope) for make in tasks]
    plan = model.Plan(
        scope, tuple(model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase,
                                requires=t.requires, alternates=t.alternates) for t in made),
        policies=(model.PolicyReport('cpu', 0.4, 0.1, 0.15),), rejections={'claims': 3},
        warnings=('w',), reason=reason, draining=frozenset(draining))
    store.plans.save_plan(
        lease or store.leases.acquire_lease(scope, 'engine', 30, 'hash'), plan,
        [] if dry_run else made, plan_id=plan_id, now=now, dry_run=dry_run, cooldown=600,
        instance_cooldown=900, **kw)
    return plan_id, made, plan


def lease_of(store, scope='blue'):
    return store.leases.acquire_lease(scope, 'engine', 30, 'hash')


def dump(store):
    """Every row of every table."""
    with store.engine.connect() as connection:
        return {table.name: sorted(map(repr, connection.execute(sa.select(table))))
                for table in tables.metadata.sorted_tables}


def claim(store, worker='w', now=NOW, scopes=None, **kw):
    return store.tasks.claim_task(worker, scopes, now, **{**CAPS, **kw})


def end(store, row, state=TaskState.COMPLETED, now=NOW, worker='w', error_type=None, **kw):
    task = row.task
    result = model.TaskResult(
        task.task_id, task.plan_id, task.aggregate, task.instance_uuid, task.from_host,
        task.to_host, state is TaskState.COMPLETED, error_type and 'because', error_type)
    return store.tasks.finish_task(task, result, state, now, worker=worker, instance_cooldown=900,
                                   **kw)


def count_one_approval(task, begin_by):
    """One approval is enough, without a signature."""
    return plan_approvals.TaskApproval(task.authorization)


def at_once(count, action):
    """Run in threads that start together; returns what each gave."""
    barrier = threading.Barrier(count)
    results = [None] * count

    def body(index):
        barrier.wait()
        try:
            results[index] = action(index)
        except Exception as e:
            results[index] = e
    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive()
    return results


def count_moves(store):
    """Count the moves under way that use up the budget, by the scope of their plan."""
    return dict(collections.Counter(flight.scope for flight in store.tasks.list_in_flight_moves()))


def spread(store, now, before=0.5, after=0.2, end_as=TaskState.COMPLETED, error_type=None,
           phase=model.Phase.SPREAD, load=None, lease=None):
    """A plan of one move that has ended; its id."""
    plan_id = new_id()
    task = make_task(plan_id, not_before=now, phase=phase)
    plan = model.Plan(
        'blue', (model.Move(task.instance_uuid, 'h1', 'h2', phase),),
        combined_before=before, combined_after=after, load=load)
    store.plans.save_plan(lease or lease_of(store), plan, [task], plan_id=plan_id, now=now,
                          dry_run=False, cooldown=0, instance_cooldown=0)
    end(store, claim(store, now=now), end_as, now, error_type=error_type)
    return plan_id


def order_drain(store, host, deadline, reason, ordered_at=None, by='ann'):
    """Write the deadline of a drain; without ``ordered_at`` it is ordered now, or in time."""
    store.drain_orders.replace_order(drain_orders.DrainOrder(
        host, deadline, reason,
        min(deadline - 60, store.now()) if ordered_at is None else ordered_at, by))


def map_deadlines(store, now=None):
    """Return the deadlines that count, without their reasons."""
    return {host: order.at for host, order in store.drain_orders.map_deadlines(
        store.now() if now is None else now).items()}
