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

"""Neighbouring releases: we read the records of each earlier release, and accept its writes
on our schema. ``python tools/record_release.py`` makes the records."""

import contextlib
import dataclasses
import datetime
import json
from pathlib import Path
import sqlite3

import pytest
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.messaging import messages
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.rebalancer.store import schema
from kronos_nova.rebalancer.store import tables

RELEASES = sorted((Path(__file__).resolve().parents[2] / 'fixtures/releases').iterdir())
NOW = 1793491200.0


def read(release: Path, name: str) -> dict:
    return json.loads((release / f'{name}.json').read_text(encoding='utf-8'))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request) -> Path:
    return request.param


def _same(written: object, found: object) -> None:
    if isinstance(found, tuple):
        assert isinstance(written, list) and len(written) == len(found)
        for one, other in zip(written, found, strict=True):
            _same(one, other)
        return
    if isinstance(written, dict):
        for field, value in written.items():
            _same(value, getattr(found, field))
        return
    if written == '' and found is None:  # no error, in a payload
        return
    if isinstance(written, str) and isinstance(found, float):
        written = datetime.datetime.fromisoformat(written).timestamp()
    assert found == written


def test_a_release_is_recorded():
    assert RELEASES


def test_revisions_are_recorded_without_a_gap():
    """Each by the tree that had it; ``python tools/record_release.py`` writes the next one."""
    recorded = sorted({read(release, 'rows')['revision'] for release in RELEASES})
    assert recorded == schema.list_revisions(), (
        f'run python tools/record_release.py schema-{schema.get_head_revision()} on the tree that '
        'adds the revision')


def test_its_messages_are_understood_field_by_field(release):
    recorded = read(release, 'messages')
    assert {task['phase'] for task in recorded['tasks']} <= set(model.Phase)
    for wire in recorded['tasks']:
        task = messages.from_wire(wire, NOW)
        for field in wire.keys() - {'version'}:
            _same(wire[field], getattr(task, field))
    assert {payload['success'] for payload in recorded['results']} == {True, False}
    for payload in recorded['results']:
        result = messages.from_payload(payload)
        for field in payload:
            _same(payload[field], getattr(result, field))


def test_an_earlier_release_understands_our_messages(release):
    """The release ignores unknown fields, so its known fields must stay in our messages with
    their types."""
    recorded = read(release, 'messages')
    ours = messages.to_wire(model.Task(
        'a', 'b', 'c', 'd', 'e', 'f', model.Phase.SPREAD, created_at=NOW, deadline=NOW))
    for wire in recorded['tasks']:
        assert wire.keys() <= ours.keys()
        for field, value in wire.items():
            if value is not None:
                assert isinstance(ours[field], type(value)), field
    assert ours['version'].split('.')[0] == recorded['tasks'][0]['version'].split('.')[0]
    payload = messages.to_payload(model.TaskResult('a', 'b', 'c', 'd', 'e', 'f', True))
    assert recorded['results'][0].keys() <= payload.keys()


def _open_new_store(tmp_path: Path) -> api.Store:
    store = api.Store.from_url(f'sqlite:///{tmp_path}/new.sqlite')
    store.upgrade()
    return store


def _open_recorded_store(tmp_path: Path, release: Path) -> api.Store:
    """The database that a store of that release has made, with its rows."""
    with contextlib.closing(sqlite3.connect(tmp_path / 'recorded.sqlite')) as connection:
        connection.executescript((release / 'database.sql').read_text(encoding='utf-8'))
    return api.Store.from_url(f'sqlite:///{tmp_path}/recorded.sqlite')


def _reflect(store: api.Store) -> dict:
    """Each table's columns and constraints, by table."""
    found = sa.inspect(store.engine)
    return {table: (
        [{**column, 'type': str(column['type'])} for column in found.get_columns(table)],
        found.get_pk_constraint(table), *(sorted(map(repr, read(table))) for read in (
            found.get_foreign_keys, found.get_indexes, found.get_unique_constraints,
            found.get_check_constraints)))
        for table in found.get_table_names()}


def _fill(store: api.Store, recorded: dict) -> None:
    """The rows as that release writes them: with the columns that it knows."""
    known = sa.MetaData()
    with store.engine.begin() as connection:
        known.reflect(connection)
        for table in tables.metadata.sorted_tables:
            for row in recorded['tables'].get(table.name, ()):
                there = known.tables[table.name]
                if table.name == 'gate':  # the schema comes with its row
                    connection.execute(sa.delete(there))
                connection.execute(sa.insert(there).values(row))


def _check_meaning(store: api.Store, recorded: dict) -> None:
    for row in recorded['tables']['plan']:
        found = store.plans.find_plan(row['plan_id'])
        document = json.loads(row['document'])
        assert (found.dry_run, found.plan.scope) == (bool(row['dry_run']), row['scope'])
        assert [move.instance_uuid for move in found.plan.moves] == [
            move['instance_uuid'] for move in document['moves']]
        assert found.plan.combined_before == document['combined_before']
    for row in recorded['tables']['task']:
        found = store.tasks.find_task(row['task_id'])
        assert (found.task.state, found.task.instance_uuid, found.task.from_host) == (
            row['state'], row['instance_uuid'], row['from_host'])
        assert (found.worker, found.error_type) == (row['worker'], row['error_type'])
    states = {row['state'] for row in recorded['tables']['task']}
    assert {'queued', 'claimed', 'completed', 'failed'} <= states
    history = store.history.read_history(recorded['tables']['lease'][0]['scope'], NOW + 61)
    assert history.cooling and history.quarantined and history.completed
    assert 'CHG-17' in history.paused
    assert [(row['at'], row['by_name'], row['command'], row['target'], row['reason'])
            for row in recorded['tables']['audit']] == [
        dataclasses.astuple(entry) for entry in reversed(store.audit.list_newest_entries(99))]
    for row in recorded['tables']['drain']:
        assert row['host'] in store.history.read_history(row['scope'], NOW).draining
    assert store.outcomes.count_failures(recorded['tables']['lease'][0]['scope'], 0) is not None


def test_its_database_is_carried_over(release, tmp_path):
    recorded = read(release, 'rows')
    # Releases after the first one write no rows of this table.
    written = ('budget',) if recorded['revision'] == '0015' else ()
    assert all(recorded['tables'].get(name) for name in (
        'plan', 'task', 'cooldown', 'quarantine', 'lease', 'drain', 'pause', 'gate', *written))
    store = _open_recorded_store(tmp_path, release)
    assert schema.read_current_revision(store.engine) == recorded['revision']
    store.upgrade()
    store.check()
    _check_meaning(store, recorded)
    new = _open_new_store(tmp_path)
    assert _reflect(store) == _reflect(new)
    new.close()
    store.close()


def test_while_its_daemons_run_they_write_on_our_schema(release, tmp_path):
    """The first daemon of ours upgrades the schema; theirs go on until they are
    restarted. So a new column needs a default of the database's own."""
    recorded = read(release, 'rows')
    store = _open_new_store(tmp_path)
    _fill(store, recorded)
    _check_meaning(store, recorded)
    for scope in (None, recorded['tables']['lease'][0]['scope']):
        assert store.pauses.resume_scope(scope, NOW)
    claimed = store.tasks.claim_task(
        'ours', None, NOW + 7200 - 1, per_scope=99, total=99, claim_seconds=60)
    assert claimed is not None, 'one of its tasks is ours to carry out'
    store.close()


def test_a_column_without_a_default_would_be_noticed(tmp_path):
    recorded = read(RELEASES[-1], 'rows')
    store = _open_new_store(tmp_path)
    # The check itself, shown on a schema that a careless migration has left.
    for name in recorded['tables']['task'][0]:
        if name == 'memory_mb':
            recorded['tables']['task'] = [
                {key: value for key, value in row.items() if key != name}
                for row in recorded['tables']['task']]
    with pytest.raises(Exception, match='NOT NULL'):
        _fill(store, recorded)
    store.close()


def test_a_later_releases_plan_is_read_without_its_new_fields():
    recorded = read(RELEASES[-1], 'rows')
    (row, *_) = (row for row in recorded['tables']['plan'] if not row['dry_run'])
    document = json.loads(row['document'])
    plain = store_rows.plan_row(row)
    document['surprise'] = {'a': 1}
    for part in ('moves', 'policies', 'held'):
        assert document[part], part
        for item in document[part]:
            item['surprise'] = [1]
    assert store_rows.plan_row({**row, 'document': json.dumps(document)}) == plain


def test_an_earlier_releases_plan_has_defaults_for_what_came_later():
    recorded = read(RELEASES[-1], 'rows')
    (row, *_) = (row for row in recorded['tables']['plan'] if not row['dry_run'])
    document = json.loads(row['document'])
    for name in ('held', 'load', 'truncated', 'warnings', 'draining', 'policies'):
        del document[name]
    for move in document['moves']:
        del move['alternates'], move['requires'], move['wave']
    plan = store_rows.plan_row({**row, 'document': json.dumps(document)}).plan
    assert (plan.held, plan.load, plan.policies) == ((), None, ())
    assert {move.wave for move in plan.moves} == {0}
