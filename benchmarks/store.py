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


"""Measure the store with many ended tasks: each hot query, each transaction of a purge, and
how long a purge delays an executor that claims.

Fills an empty database. ``--server`` starts a private server on loopback; ``--url`` takes a
database that exists and is empty::

    python benchmarks/store.py --server sqlite
    python benchmarks/store.py --server mariadb --tasks 1000000
    python benchmarks/store.py --url postgresql+psycopg2://user@host/database
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
from typing import Any
import uuid

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables

SERVERS = ('sqlite', 'mariadb', 'postgresql')
SCOPES, HOSTS, INSTANCES = 20, 1_000, 50_000
#: Tasks of a plan, and live tasks in all.
PER_PLAN, LIVE = 5, 60
DAYS = 90
DAY = 86400.0
#: Seconds that completed moves are remembered: three hours, and a window of one.
REMEMBERED = 14400.0
RUNS = 15
#: Rows of one INSERT.
CHUNK = 5_000
_STATES = ([TaskState.COMPLETED] * 85 + [TaskState.FAILED] * 7 + [TaskState.CANCELLED] * 8)
_LIVE = (TaskState.QUEUED, TaskState.QUEUED, TaskState.PENDING, TaskState.SUBMITTED)


def make_id(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


class Content:
    """The rows of a database: plans of ``PER_PLAN`` tasks at even distances over ``days``."""

    def __init__(self, tasks: int, now: float, days: float = DAYS, seed: int = 0) -> None:
        self._draw = random.Random(seed)
        self.now = now
        self.days = days
        self.tasks = tasks
        self._plans = max(SCOPES, tasks // PER_PLAN)
        self.scopes = [f'aggregate-{number:02}' for number in range(SCOPES)]
        self.hosts = [f'compute-{number:04}' for number in range(HOSTS)]
        self.instances = [make_id(self._draw) for _ in range(INSTANCES)]
        #: A plan that has ended, and the newest one.
        self.plan_ids: list[str] = []
        #: The newest plan that has ended, and its scope.
        self.judged = ('', '')

    def chunks(self) -> Iterator[dict[sa.Table, list[dict[str, Any]]]]:
        """Some plans and their rows at a time, parents first."""
        step = self.days * DAY / self._plans
        found: dict[sa.Table, list[dict[str, Any]]] = {}
        for number in range(self._plans):
            created = self.now - self.days * DAY + number * step
            live = number >= self._plans - LIVE // PER_PLAN
            self._add_plan(found, number, created, live)
            if len(found[tables.task]) >= CHUNK:
                yield found
                found = {}
        yield found

    def _add_plan(self, found: dict[sa.Table, list[dict[str, Any]]], number: int,
                  created: float, live: bool) -> None:
        draw, plan_id = self._draw, make_id(self._draw)
        scope = self.scopes[number % SCOPES]
        if number == self._plans - LIVE // PER_PLAN - 1:
            self.judged = plan_id, scope
        if number in (0, self._plans - 1):
            self.plan_ids.append(plan_id)
        made = [self._task(plan_id, scope, created, number * PER_PLAN + n)
                for n in range(PER_PLAN)]
        plan = model.Plan(
            scope, tuple(model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase)
                         for t in made), combined_before=0.4, combined_after=0.2)
        add = {
            tables.plan: [{
                'plan_id': plan_id, 'scope': scope, 'epoch': number, 'created_at': created,
                'dry_run': False, 'moves': PER_PLAN, 'reason': None,
                'document': rows.plan_document(plan)}],
            tables.task: [self._columns(task, created, live) for task in made],
            tables.budget: [{'plan_id': plan_id, 'scope': scope, 'spent_at': created,
                             'moves': PER_PLAN}],
            tables.outcome: [{
                'plan_id': plan_id, 'scope': scope, 'planned_at': created,
                'combined_before': 0.4, 'combined_foreseen': 0.2,
                'combined_realised': None if live else 0.21,
                'realised_at': None if live else created + 1800}],
            tables.decision: [] if draw.random() > 0.2 else [{
                'decision_id': make_id(draw), 'plan_id': plan_id, 'decided_at': created,
                'decided_by': 'operator', 'verb': 'approved', 'tasks': PER_PLAN, 'reason': '',
                'told': True}],
            tables.swap: [] if draw.random() > 0.02 else [{
                'swap_id': make_id(draw), 'plan_id': plan_id, 'scope': scope,
                'created_at': created, 'state': draw.choice(('swapped', 'undone')),
                'members': '[]', 'undos': '[]', 'passes': 3, 'logged': True}]}
        for table, new in add.items():
            found.setdefault(table, []).extend(new)

    def _task(self, plan_id: str, scope: str, created: float, number: int) -> model.Task:
        one, other, third = self._draw.sample(self.hosts, 3)
        return model.Task(
            task_id=make_id(self._draw), plan_id=plan_id, aggregate=scope,
            instance_uuid=self.instances[number % INSTANCES], from_host=one, to_host=other,
            alternates=(third,), phase=model.Phase.SPREAD, policy_names=('cpu',),
            not_before=created, created_at=created, memory_mb=4096, disk_gb=40)

    def _columns(self, task: model.Task, created: float, live: bool) -> dict[str, Any]:
        draw = self._draw
        if live:
            state = draw.choice(_LIVE)
            began = {} if state is not TaskState.SUBMITTED else {
                'worker': 'executor-1', 'heartbeat_at': self.now, 'submitted_at': created + 60,
                'reference': '1'}
            return (dict.fromkeys(_ENDED) | rows.task_columns(task, self.now)
                    | {'state': state.value, **began})
        state = draw.choice(_STATES)
        ended = created + 60 + draw.random() * 900
        failed = state is TaskState.FAILED
        attempts = rows.attempts_text([model.Attempt(
            task.to_host, ended - 60, ended, 'error' if failed else None,
            'MigrationFailed' if failed else None,
            phases={'preparing': 2.0, 'running': 30.0, 'post-migrating': 1.0})])
        return rows.task_columns(task, created) | {
            'state': state.value, 'active_instance': None, 'updated_at': ended,
            'completed_at': ended, 'submitted_at': ended - 60, 'worker': 'executor-1',
            'heartbeat_at': ended, 'reference': '1',
            'error': 'error' if failed else None, 'attempts': attempts,
            'error_type': 'MigrationFailed' if failed else None}


_ENDED = ('active_instance', 'updated_at', 'completed_at', 'submitted_at', 'worker',
          'heartbeat_at', 'reference', 'error', 'error_type', 'attempts')


_FILLING = {
    'sqlite': ('PRAGMA synchronous = OFF', 'PRAGMA cache_size = -500000'),
    'mysql': ('SET SESSION unique_checks = 0', 'SET SESSION foreign_key_checks = 0'),
    'postgresql': ("SET synchronous_commit = 'off'",)}


def fill(store: api.Store, content: Content) -> None:
    """Write all rows, and a lease of every scope."""
    for scope in content.scopes:
        store.leases.acquire_lease(scope, 'engine', 86400, 'hash')
    with store.engine.connect() as connection:
        with contextlib.closing(connection.connection.cursor()) as cursor:
            for statement in _FILLING[store.engine.dialect.name]:
                cursor.execute(statement)
        for chunk in content.chunks():
            with connection.begin():
                for table, new in chunk.items():
                    if new:
                        connection.execute(sa.insert(table), new)
    # What was set for filling ends with its connection.
    store.engine.dispose()
    with store.engine.begin() as connection:
        gap = content.days * DAY / content.tasks
        moved = content.instances[:content.tasks]
        for first in range(0, len(moved), CHUNK):
            connection.execute(sa.insert(tables.cooldown), [
                {'kind': 'instance', 'name': each, 'until': content.now + 3600 - n * gap}
                for n, each in enumerate(moved[first:first + CHUNK], first)])
    # As a server's own daemon does within minutes.
    if store.engine.dialect.name == 'postgresql':
        _run_alone(store, 'VACUUM ANALYZE')
    elif store.engine.dialect.name != 'sqlite':
        _run_alone(store, 'ANALYZE TABLE ' + ', '.join(tables.metadata.tables))


def _run_alone(store: api.Store, statement: str) -> None:
    """Run a statement outside of a transaction."""
    with store.engine.connect().execution_options(isolation_level='AUTOCOMMIT') as connection:
        connection.exec_driver_sql(statement)


def preparations(store: api.Store, content: Content) -> dict[str, Callable[[], Any]]:
    """Undo a query that writes, so that it writes the same again."""
    task, outcome = tables.task, tables.outcome
    return {
        'claim': lambda: store.run_transaction(lambda c: c.execute(
            sa.update(task).values(state=TaskState.QUEUED.value, worker=None)
            .where(task.c.state == TaskState.CLAIMED.value))),
        'realise': lambda: store.run_transaction(lambda c: c.execute(
            sa.update(outcome).values(realised_at=None, combined_realised=None)
            .where(outcome.c.plan_id == content.judged[0])))}


def queries(store: api.Store, content: Content) -> dict[str, Callable[[], Any]]:
    """What engines and executors ask in each pass, and operators while they wait.

    ``renew`` writes one row, and shows the cost of a commit alone.
    """
    now, scope, host = content.now, content.scopes[0], content.hosts[7]
    lease = store.leases.acquire_lease(scope, 'engine', 86400, 'hash')
    judged = store.leases.acquire_lease(content.judged[1], 'engine', 86400, 'hash')
    assert lease is not None and judged is not None
    one = content.instances[3]
    return {
        'agenda': lambda: store.executors.read_todo('executor-2', None, now, 60),
        'renew': lambda: store.leases.renew_lease(lease, 86400),
        'claim': lambda: _claim(store, now),
        'flights': store.tasks.list_in_flight_moves,
        'history': lambda: store.history.read_history(scope, now, REMEMBERED),
        'failures': lambda: store.outcomes.count_failures(scope, now - 3600),
        'realise': lambda: _realise(store, judged, content),
        'outcomes': lambda: store.outcomes.list_outcomes(scope, 3),
        'waiting': lambda: store.approvals.list_waiting_plans(now),
        'lapse': lambda: store.approvals.cancel_lapsed_tasks(lease, now - DAY),
        'tell': lambda: store.approvals.pop_unannounced_decisions(lease),
        'settle_swaps': lambda: store.tasks.settle_swaps(now),
        'ended': store.tasks.count_newest_ended,
        'seen': store.plans.read_live_work,
        'census': store.statistics.read_census,
        'newest_plans': store.plans.list_newest_plans,
        'plans': lambda: store.plans.list_plans(20),
        'plan': lambda: store.plans.find_plan(content.plan_ids[0]),
        'tasks': lambda: store.tasks.list_plan_tasks(content.plan_ids[0]),
        'tasks_from': lambda: store.tasks.list_tasks_from_host(host, now - DAY),
        'tasks_of_instance': lambda: store.tasks.list_instance_tasks(one, 20),
    }


def _claim(store: api.Store, now: float) -> None:
    assert store.tasks.claim_task('executor-2', None, now, per_scope=99, total=99,
                                  claim_seconds=86400) is not None


def _realise(store: api.Store, lease: rows.ScopeLease, content: Content) -> None:
    found = store.outcomes.record_outcome(lease, 0.25, content.now)
    assert found is not None and found.plan_id == content.judged[0]


def time_query(query: Callable[[], Any], runs: int,
               prepare: Callable[[], Any] = lambda: None) -> dict[str, float]:
    """Milliseconds; the first call, which builds the statement, is left out."""
    prepare()
    query()
    found = []
    for _ in range(runs):
        prepare()
        began = time.perf_counter()
        query()
        found.append((time.perf_counter() - began) * 1e3)
    return {'least': round(min(found), 2), 'median': round(statistics.median(found), 2),
            'longest': round(max(found), 2)}


@contextlib.contextmanager
def timed_transactions(engine: sa.Engine) -> Iterator[list[float]]:
    """Seconds of each transaction that writes, from its first statement to its commit."""
    found: list[float] = []
    began: dict[int, float] = {}
    commit = engine.dialect.do_commit

    def execute(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.split(maxsplit=1)[0] in ('INSERT', 'UPDATE', 'DELETE'):
            began.setdefault(id(connection.connection.dbapi_connection), time.perf_counter())

    def end(dbapi_connection: Any) -> None:
        commit(dbapi_connection)
        of = id(getattr(dbapi_connection, 'dbapi_connection', dbapi_connection))
        if of in began:
            found.append(time.perf_counter() - began.pop(of))

    sa.event.listen(engine, 'before_cursor_execute', execute)
    engine.dialect.do_commit = end  # type: ignore[method-assign]
    try:
        yield found
    finally:
        engine.dialect.do_commit = commit  # type: ignore[method-assign]
        sa.event.remove(engine, 'before_cursor_execute', execute)


def measure_purge(store: api.Store, url: str, content: Content, days: float) -> dict[str, Any]:
    """Purge the oldest days while an executor claims all the time."""
    claims: list[float] = []
    over = threading.Event()

    def claim() -> None:
        other = api.Store.from_url(url)
        release = preparations(other, content)['claim']
        while not over.is_set():
            began = time.perf_counter()
            _claim(other, content.now)
            claims.append(time.perf_counter() - began)
            release()
            over.wait(0.05)
        other.close()

    thread = threading.Thread(target=claim)
    thread.start()
    try:
        with timed_transactions(store.engine) as seconds:
            began = time.perf_counter()
            plans = store.history.purge_records(content.now - (content.days - days) * DAY)
            whole = time.perf_counter() - began
    finally:
        over.set()
        thread.join()
    return {'plans': plans, 'seconds': round(whole, 1), 'transactions': len(seconds),
            'longest': round(max(seconds), 3), 'claims': len(claims),
            'longest_claim': round(max(claims), 3)}


def measure(url: str, tasks: int, *, runs: int = RUNS, purge_days: float = 5.0) -> dict[str, Any]:
    """Fill the database and measure all."""
    content = Content(tasks, time.time())
    store = api.Store.from_url(url)
    store.upgrade()
    try:
        began = time.perf_counter()
        fill(store, content)
        prepare = preparations(store, content)
        found: dict[str, Any] = {
            'database': store.engine.dialect.name, 'tasks': tasks,
            'filled': round(time.perf_counter() - began),
            'milliseconds': {
                name: time_query(query, runs, prepare.get(name, lambda: None))
                for name, query in queries(store, content).items()}}
        prepare['claim']()
        found['purge'] = measure_purge(store, url, content, purge_days)
    finally:
        store.close()
    return found


@contextlib.contextmanager
def server(name: str) -> Iterator[str]:
    """The URL of an empty database on a private server, in a directory that is deleted."""
    with tempfile.TemporaryDirectory(prefix='kronos-store-') as directory:
        if name == 'sqlite':
            yield f'sqlite:///{directory}/kronos.sqlite'
            return
        from tests.integration import servers

        with getattr(servers, name)(pathlib.Path(directory)) as url:
            if name == 'mariadb':
                # Its 128 MiB are less than such a database.
                store = api.Store.from_url(url)
                _run_alone(store, f'SET GLOBAL innodb_buffer_pool_size = {2**30}')
                store.close()
            yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument('--server', choices=SERVERS)
    where.add_argument('--url', help='of an empty database')
    parser.add_argument('--tasks', type=int, default=1_000_000)
    parser.add_argument('--runs', type=int, default=RUNS)
    parser.add_argument('--purge-days', type=float, default=5.0,
                        help=f'so many of the oldest days, of {DAYS}, are purged')
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.url or stack.enter_context(server(options.server))
        print(json.dumps(measure(url, options.tasks, runs=options.runs,
                                 purge_days=options.purge_days), indent=1))


if __name__ == '__main__':
    main()
