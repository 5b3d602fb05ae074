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

"""Statements that are executed all the time are built once."""

import numpy as np
import sqlalchemy as sa

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

_task = tables.task


@statements.build_once
def _of(scope, since, states, worker):
    mine = sa.true() if worker is None else _task.c.worker == worker
    return sa.select(_task.c.task_id).where(
        _task.c.scope == scope, _task.c.not_before > since,
        _task.c.state.in_([state.value for state in states]), mine)


def test_numbers_and_texts_are_parameters_of_one_statement():
    one, first = _of('a', 1.0, (TaskState.QUEUED,), None)
    other, second = _of("b'; --", 2.0, (TaskState.QUEUED,), None)
    assert one is other
    assert list(first.values()) == ['a', 1.0] and list(second.values()) == ["b'; --", 2.0]
    assert "b'" not in str(other)


def test_anything_else_makes_a_statement_of_its_own():
    statement = _of('a', 1.0, (TaskState.QUEUED,), None)[0]
    assert _of('a', 1.0, (TaskState.CLAIMED,), None)[0] is not statement
    given, values = _of('a', 1.0, (TaskState.QUEUED,), 'w')
    assert given is not statement and 'worker' in str(given.whereclause)
    assert list(values.values()) == ['a', 1.0, 'w']


def test_a_literal_is_its_value_and_a_clock_of_the_database_is_not():
    @statements.build_once
    def later(clock):
        return sa.select(clock + 5.0)

    assert later(sa.literal(2.0))[0] is later(3.0)[0]
    with database.from_url('sqlite://').connect() as connection:
        assert connection.scalar(*later(sa.literal(2.0))) == 7.0
        assert connection.scalar(*later(3.0)) == 8.0
        assert connection.scalar(*later(database.EPOCH_NOW)) > 1e9


def test_a_parameter_of_an_update_does_not_set_the_column_of_its_name():
    @statements.build_once
    def moved(scope, until):
        return sa.update(tables.lease).where(tables.lease.c.scope == scope).values(until=until)

    store = api.Store.from_url('sqlite://')
    store.upgrade()
    for scope in ('a', 'b'):
        store.leases.acquire_lease(scope, 'me', 30.0, 'hash')
    with store.engine.begin() as connection:
        assert connection.execute(*moved('a', 7.0)).rowcount == 1
        assert {row.scope: row.until == 7.0
                for row in connection.execute(sa.select(tables.lease))} == {'a': True, 'b': False}


def test_frequent_statements_of_executors_are_built_once(monkeypatch):
    built = []
    for kind in (sa.BinaryExpression, sa.Select):
        def init(self, *args, _init=kind.__init__, **kwargs):
            built.append(self)
            return _init(self, *args, **kwargs)
        monkeypatch.setattr(kind, '__init__', init)
    store = api.Store.from_url('sqlite://')
    store.upgrade()

    def idle(now, scopes):
        for served in (None, scopes):
            store.executors.read_todo('me', served, now, 60.0)
            store.tasks.list_tasks_in_states(rows.IN_FLIGHT, served, worker='me')
            store.tasks.claim_task('me', served, now, per_scope=1, total=1, claim_seconds=60.0)

    idle(1.0, ['a', 'b'])
    assert built
    built.clear()
    idle(2.0, ['b', 'a'])
    assert not built


def test_a_number_of_numpy_is_bound_as_any_other():
    built = []

    @statements.build_once
    def later(now: float) -> sa.Select:
        built.append(now)
        return sa.select(tables.task).where(tables.task.c.completed_at > now)

    for value in (1.0, np.float64(2.0), np.float64(3.0)):
        _statement, given = later(value)
        assert given == {'given_now': float(value)}
    assert len(built) == 1
