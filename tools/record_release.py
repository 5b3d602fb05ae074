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


"""Writes tests/fixtures/releases/NAME: messages and a database as this tree writes them.

Later trees must still read them: see tests/unit/rebalancer/test_neighbours.py. Run it
once before a release, with the release's name; a record never changes.
"""

import argparse
import contextlib
import json
from pathlib import Path
import sqlite3
import sys
import tempfile
import uuid

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.messaging import messages
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import schema
from kronos_nova.rebalancer.store import tables

RELEASES = Path(__file__).resolve().parents[1] / 'tests/fixtures/releases'
NOW = 1793491200.0  # 2026-11-01T00:00:00Z
SCOPE = 'Größe 1'


def _id(number: int) -> str:
    return str(uuid.UUID(int=number << 64 | 0x4000_8000_0000_0000))


def tasks() -> list[model.Task]:
    """One of each phase, the second of a kind that uses every field."""
    made = [model.Task(
        _id(100 + number), _id(1), SCOPE, _id(200 + number), f'h{number}', 'h9', phase,
        created_at=NOW, state=model.TaskState.QUEUED) for number, phase in enumerate(model.Phase)]
    first = made[0]
    made.append(model.Task(
        _id(150), _id(1), SCOPE, _id(250), 'h1', 'h2', model.Phase.SPREAD,
        policy_names=('cpu', 'memory'), instance_name='vm "1" \N{SNOWMAN}', improvement=0.25,
        priority=7, max_retries=2, retry_count=1, wave=1, requires=(first.instance_uuid,),
        alternates=('h3', 'h4'),
        alternate_improvements=(0.2, 0.125), not_before=NOW + 30.5, created_at=NOW,
        deadline=NOW + 7200,
        state=model.TaskState.QUEUED, memory_mb=2048, disk_gb=20, method=model.MoveMethod.COLD))
    return made


def results(done: list[model.Task]) -> list[model.TaskResult]:
    """A success and a failure."""
    def result(task: model.Task, error: str | None, kind: str | None) -> model.TaskResult:
        attempt = model.Attempt(task.to_host, NOW + 31, NOW + 59, kind, error, _id(300))
        return model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                                task.from_host, task.to_host, error is None, error, kind, 12.5, 1,
                                NOW + 60, (attempt,))
    return [result(done[0], None, None), result(done[1], 'it failed', 'MigrationFailed')]


def rows(path: Path) -> dict[str, list[dict[str, object]]]:
    """table -> its rows, by a store that has done a little of everything.

    :param path: the SQLite file that it makes.
    """
    made = tasks()
    store = api.Store.from_url(f'sqlite:///{path}', clock=lambda: NOW)
    store.upgrade()
    lease = store.leases.acquire_lease(SCOPE, 'engine one', 30, 'hash')
    if lease is None:
        raise SystemExit('the lease of an empty database was refused')
    plan = model.Plan(
        SCOPE, tuple(model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase,
                                t.improvement, t.wave, alternates=t.alternates)
                     for t in made),
        policies=(model.PolicyReport('cpu', 0.4, 0.1, 0.15),
                  model.PolicyReport('memory', None, None, 0.2, True, 'stale')),
        combined_before=0.4, combined_after=0.1, rejections={'claims': 3},
        held=(model.Rejection('anti-affinity', 'h3 has a member'),), warnings=('w',),
        draining=frozenset({'h8'}), load=0.5)
    store.plans.save_plan(lease, plan, made, plan_id=_id(1), now=NOW, dry_run=False, cooldown=600,
                          instance_cooldown=900)
    store.plans.save_plan(None, model.Plan(SCOPE, reason='nothing to do'), [], plan_id=_id(2),
                          now=NOW + 1, dry_run=True, cooldown=600, instance_cooldown=900)
    for result in results(made):
        claimed = store.tasks.claim_task('worker', None, NOW + 31, per_scope=9, total=9,
                                         claim_seconds=60)
        if claimed is None:
            raise SystemExit('a task that is due was not given out')
        state = model.TaskState.COMPLETED if result.success else model.TaskState.FAILED
        by_id = {t.task_id: t for t in made}
        store.tasks.finish_task(
            by_id[claimed.task.task_id], result, state, NOW + 60, worker='worker',
                                instance_cooldown=900, quarantine_seconds=-1 if result.error
                                else None)
    store.tasks.claim_task('worker', None, NOW + 62, per_scope=9, total=9, claim_seconds=60)
    store.quarantine.count_refusal('h7', NOW, limit=1, seconds=3600, reason='NoValidHost')
    store.quarantine.record_local_disks('h6', NOW, 3600, 'no shared storage')
    store.pauses.pause_scope(None, NOW, seconds=None, paused_by='root@control', reason='see CHG-17')
    store.outcomes.record_imbalance_since(lease, NOW)
    store.outcomes.open_breaker(lease, NOW, seconds=60, paused_by='engine', reason='worse plans')
    with store.engine.connect() as connection:
        found = {table.name: [dict(row) for row in connection.execute(
            sa.select(table)).mappings()] for table in tables.metadata.sorted_tables}
    store.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('name', help='of the release, e.g. 1.0.0')
    home = RELEASES / parser.parse_args().name
    if home.exists():
        print(f'{home} was recorded before: a record is not changed', file=sys.stderr)
        return 1
    made = tasks()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'k.sqlite'
        tables_of_rows = rows(path)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            dump = '\n'.join(connection.iterdump()) + '\n'
    documents = {'messages': {'tasks': [messages.to_wire(task) for task in made],
                              'results': [messages.to_payload(r) for r in results(made)]},
                 'rows': {'revision': schema.get_head_revision(), 'tables': tables_of_rows}}
    home.mkdir(parents=True)
    (home / 'database.sql').write_text(dump, encoding='utf-8')
    for name, document in documents.items():
        (home / f'{name}.json').write_text(
            json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + '\n',
            encoding='utf-8')
    return 0


if __name__ == '__main__':
    sys.exit(main())
