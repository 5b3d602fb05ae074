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


"""Purging keeps every row that the project still reads, after any history."""

import hypothesis
from hypothesis import strategies as st
import pytest
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.constraints import metric_lag
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from tests.fixtures import stores
from tests.unit import clouds
from tests.unit.rebalancer.store import cases

DAY = 86400.0
SCOPES = ('blue', 'green')
WINDOW = 2 * DAY


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


CLOCK = Clock()


@pytest.fixture(scope='module')
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp('purge') / 'k.sqlite'
    store = stores.in_file(path, CLOCK)
    store.engine.dispose()
    # Hundreds of small commits, none of which has to survive a power failure.
    sa.event.listen(store.engine, 'connect',
                    lambda connection, record: connection.execute('PRAGMA synchronous = OFF'))
    yield store
    store.close()


def empty(store):
    """Delete all rows, which the tests of this module share."""
    with store.engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            if table is not tables.gate:
                connection.execute(sa.delete(table))


def plan(store, scope, state, cools, quarantine):
    lease = cases.lease_of(store, scope)
    plan_id = cases.new_id()
    task = cases.make_task(plan_id, scope, not_before=CLOCK.now)
    store.plans.save_plan(
        lease, model.Plan(scope, (model.Move(task.instance_uuid, 'h1', 'h2', task.phase),),
                          combined_before=0.5, combined_after=0.2, draining={f'h{cools}'}),
        [task], plan_id=plan_id, now=CLOCK.now, dry_run=False, cooldown=cools,
        instance_cooldown=cools)
    if state is TaskState.QUEUED:
        return
    row = store.tasks.claim_task('w', None, CLOCK.now, per_scope=999, total=999, claim_seconds=60)
    if row is None or not state.is_terminal:
        return
    cases.end(store, row, state, CLOCK.now,
              error_type=None if state is TaskState.COMPLETED else 'MigrationFailed',
              quarantine_seconds=quarantine)
    store.outcomes.record_outcome(lease, 0.7, CLOCK.now + 1)


def act(store, what, scope, state, seconds, for_ever):
    lasting = None if for_ever else seconds
    if what == 'plan':
        plan(store, scope, state, seconds, -1 if for_ever else seconds)
    elif what == 'empty':
        cases.save(store, 0, scope=scope, now=CLOCK.now, reason=f'r{CLOCK.now}')
    elif what == 'pause':
        store.pauses.pause_scope(scope, CLOCK.now, seconds=lasting, paused_by='me', reason='why')
    elif what == 'trip':
        store.outcomes.open_breaker(cases.lease_of(store, scope), CLOCK.now, seconds=lasting,
                                    paused_by='it', reason='why')
    elif what == 'refused':
        store.quarantine.count_refusal('h2', CLOCK.now, limit=2, seconds=seconds, reason='full')
    elif what == 'disks':
        store.quarantine.record_local_disks('h3', CLOCK.now, seconds, 'local')
    else:
        store.outcomes.record_imbalance_since(cases.lease_of(store, scope), CLOCK.now)


def in_force(store, judged):
    """All that engines and executors ask for, of now."""
    now = CLOCK.now
    alive = store.tasks.list_tasks_in_states(rows.LIVE)
    return {
        'history': [store.history.read_history(s, now, metric_lag.compute_retention(WINDOW))
                    for s in SCOPES],
        'alive': alive, 'their plans': [store.plans.find_plan(row.task.plan_id) for row in alive],
        'pauses': store.pauses.list_pauses(now),
        'quarantines': store.quarantine.list_quarantines(now),
        'outcomes': [store.outcomes.list_outcomes(s, judged) for s in SCOPES],
        'failures': [store.outcomes.count_failures(s, now - 3600) for s in SCOPES],
        'planned': [store.leases.find_planned_at(s) for s in SCOPES],
        'draining': store.plans.list_draining_hosts(),
        'claims': store.run_read(lambda c: c.execute(sa.select(tables.lease)).all())}


steps = st.lists(st.tuples(
    st.sampled_from(['plan', 'plan', 'plan', 'empty', 'pause', 'trip', 'refused', 'disks',
                     'wish']),
    st.sampled_from(SCOPES),
    st.sampled_from([TaskState.QUEUED, TaskState.CLAIMED, TaskState.COMPLETED, TaskState.FAILED,
                     TaskState.CANCELLED]),
    st.sampled_from([60.0, 7200.0, 5 * DAY, 90 * DAY]), st.booleans(),
    st.sampled_from([0.0, 60.0, 7200.0, DAY, 9 * DAY])), max_size=14)


@clouds.examples(30)
@hypothesis.given(steps, st.sampled_from([-1e9, 0.0, 3600.0, DAY, 5 * DAY]), st.integers(0, 3))
def test_nothing_that_is_still_in_force_is_forgotten(store, history, age, judged):
    """An age below zero asks for all to go."""
    empty(store)
    CLOCK.now = 1_600_000_000.0
    for what, scope, state, seconds, for_ever, wait in history:
        act(store, what, scope, state, seconds, for_ever)
        CLOCK.now += wait
    before = in_force(store, judged)
    store.history.purge_records(CLOCK.now - age, judged=judged,
                                remembered=metric_lag.compute_retention(WINDOW))
    assert in_force(store, judged) == before
    # What is left in the same second next time is what was left this time.
    assert store.history.purge_records(CLOCK.now - age, judged=judged,
                                       remembered=metric_lag.compute_retention(WINDOW)) == 0


def test_a_breaker_s_evidence_outlives_a_purge(store):
    """Two bad plans, an impatient operator, and a third: three in a row."""
    empty(store)
    CLOCK.now = 1_700_000_000.0
    kept = []
    for _ in range(5):
        cases.spread(store, CLOCK.now, lease=cases.lease_of(store, 'blue'))
        CLOCK.now += DAY
        came = store.outcomes.record_outcome(cases.lease_of(store, 'blue'), 0.9, CLOCK.now)
        kept.append(came.plan_id)
        store.history.purge_records(CLOCK.now, judged=3)
    assert [o.plan_id for o in store.outcomes.list_outcomes('blue', 9)] == kept[:1:-1]
