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


"""The store on real MariaDB and PostgreSQL: the same tests as on SQLite, and some more.

The same tests run on one of the two, in turns by the commit; `tools/test long` runs them on both.
"""

import functools
import importlib
import inspect
import pkgutil

from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import exc_filters
import pytest
import sqlalchemy as sa

from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import schema as revisions
from kronos_nova.rebalancer.store import tables
from tests import commands
from tests.fixtures import schemas
from tests.integration import servers
from tests.simulation import executor_world
from tests.unit.rebalancer import store as store_tests
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import test_faults
from tests.unit.rebalancer.store import test_plans


def _list_tests():
    """Yield the tests that take the store of SQLite and no other fixture."""
    for found in pkgutil.iter_modules(store_tests.__path__, f'{store_tests.__name__}.'):
        module = importlib.import_module(found.name)
        if found.name.rpartition('.')[2].startswith('test_') and not hasattr(module, 'store'):
            for name, function in vars(module).items():
                if name.startswith('test_') and inspect.isfunction(function) and list(
                        inspect.signature(function).parameters) == ['store']:
                    yield name, function


def _take_turns(function):
    """Return a copy of a test that takes turns: as is, it runs on SQLite with each commit."""
    @functools.wraps(function)
    def copy(store):
        function(store)
    return pytest.mark.turns(2)(copy)


for _name, _function in _list_tests():
    assert _name not in globals(), f'two tests are called {_name}'
    globals()[_name] = _take_turns(_function)


@pytest.fixture(scope='module', params=['mariadb', 'postgresql'])
def url(request, tmp_path_factory):
    start = getattr(servers, request.param)
    with start(tmp_path_factory.mktemp(request.param)) as url:
        yield url


def _empty(store):
    with store.engine.begin() as connection:
        found = sa.MetaData()
        found.reflect(connection)
        found.drop_all(connection)


class Schema:
    """The migrated schema of one database, recreated after a test has changed it.

    To drop all tables and to migrate takes most of the time of a case.
    """

    def __init__(self):
        self.touched = True
        self._rows = {}
        sa.event.listen(sa.Engine, 'before_cursor_execute', self._look)

    def _look(self, _connection, _cursor, statement, *_rest):
        verb = statement.split(maxsplit=1)[0].upper()
        if verb in ('CREATE', 'ALTER', 'DROP', 'RENAME', 'TRUNCATE') or (
                verb in ('INSERT', 'UPDATE', 'DELETE') and 'alembic_version' in statement):
            self.touched = True

    def renew(self, store):
        """The database is as after the first upgrade."""
        if self.touched:
            _empty(store)
            store.upgrade()
            with store.engine.begin() as connection:
                self._rows = {table: [dict(row) for row in connection.execute(
                    sa.select(table)).mappings()] for table in tables.metadata.sorted_tables}
            self.touched = False
            return
        with store.engine.begin() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(sa.delete(table))
            for table, rows in self._rows.items():
                if rows:
                    connection.execute(sa.insert(table), rows)

    def close(self):
        sa.event.remove(sa.Engine, 'before_cursor_execute', self._look)


@pytest.fixture(scope='module')
def schema(url):
    found = Schema()
    yield found
    found.close()


@pytest.fixture(scope='module')
def shared(url):
    """One engine, which compiles each statement once."""
    store = api.Store.from_url(url)
    yield store
    store.close()


@pytest.fixture
def store(shared, schema):
    schema.renew(shared)
    return shared


@pytest.mark.turns(2)
@pytest.mark.parametrize('seed', range(6))
def test_invariants_hold_when_executors_crash_and_freeze(store, seed):
    run = executor_world.Run(seed, store)
    run.go()


def test_frozen_transaction_blocks_others_only_for_seconds(url, monkeypatch):
    """Found by the crash harness: PostgreSQL waited for it for ever."""
    monkeypatch.setattr(database, 'IDLE_SECONDS', 1)
    frozen, other = api.Store.from_url(url), api.Store.from_url(url)
    _empty(frozen)
    frozen.upgrade()
    touch = sa.update(tables.gate).values(passes=tables.gate.c.passes + 1)
    with frozen.engine.connect() as connection:
        connection.execute(touch)
        with other.engine.begin() as waiting:
            waiting.execute(touch)
        with pytest.raises(db_exception.DBConnectionError):
            connection.execute(touch)
    with frozen.engine.begin() as again:
        assert again.scalar(sa.select(tables.gate.c.passes)) == 1
    frozen.close()
    other.close()


@pytest.fixture
def unmapped(monkeypatch):
    """oslo.db as before 18.1, which does not know MariaDB's error 1020."""
    for of_dialect in exc_filters._registry.values():
        for error, known in of_dialect.items():
            monkeypatch.setitem(of_dialect, error, [
                each for each in known if '1020' not in getattr(each[1], 'pattern', '')])


def test_lease_race_under_snapshot_isolation_is_retried(url, unmapped, monkeypatch):
    """MariaDB ends one of two that read and then write with 1020; by default since 11.6."""
    if not url.startswith('mysql'):
        pytest.skip('only MariaDB has it')
    stores = [api.Store.from_url(url) for _ in range(6)]
    races, is_race = [], database.is_race

    def count(error):
        races.extend([error] * ('1020' in str(error)))
        return is_race(error)
    monkeypatch.setattr(database, 'is_race', count)
    for each in stores:
        @sa.event.listens_for(each.engine, 'connect')
        def isolate(connection, record):
            with connection.cursor() as cursor:
                cursor.execute('SET SESSION innodb_snapshot_isolation = ON')
    _empty(stores[0])
    stores[0].upgrade()
    found = []
    for number in range(20):
        for _ in range(2):
            found += cases.at_once(6, lambda i, scope=f's{number}': stores[i].leases.acquire_lease(
                scope, f'e{i}', 0.0, 'hash'))
    for each in stores:
        each.close()
    assert races and [each for each in found if isinstance(each, Exception)] == []


def test_renew_removes_all_changes_of_a_case(store, schema):
    def content():
        with store.engine.connect() as connection:
            found = sa.MetaData()
            found.reflect(connection)
            return {table.name: (sorted(str(column.type) for column in table.c),
                                 len(table.indexes), connection.execute(sa.select(table)).all())
                    for table in found.sorted_tables}

    _empty(store)
    store.upgrade()
    schema.renew(store)
    new = content()
    assert new['gate'][2] and set(tables.metadata.tables) < set(new)
    for leave in ('DELETE FROM gate', 'UPDATE gate SET passes = 7',
                  "INSERT INTO drain (scope, host, since) VALUES ('s', 'h', 1)",
                  'ALTER TABLE drain ADD another INTEGER', 'DROP TABLE drain',
                  'CREATE TABLE another (number INTEGER)',
                  "UPDATE alembic_version SET version_num = '0001'"):
        with store.engine.begin() as connection:
            connection.execute(sa.text(leave))
        assert content() != new
        schema.renew(store)
        assert content() == new, leave


def test_kronos_manage_creates_and_upgrades_schema(url, store, tmp_path):
    _empty(store)
    conf = tmp_path / 'kronos.conf'
    conf.write_text(f'[database]\nconnection = {url}\n')
    module, sync = 'kronos_nova.cmd.manage', ('--config-file', conf, 'db', 'sync')
    done = commands.main(module, *sync)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f'The schema is at revision {revisions.get_head_revision()}.\n'
    test_plans.test_models_and_migration_agree(store)
    cases.save(store)
    before = test_faults.stored(store)
    done = schemas.run_next_release(schemas.copy_migrations(tmp_path), module, *sync)
    assert done.returncode == 0, done.stderr
    after = test_faults.stored(store)
    assert [row.pop('added') for row in after['task']] == [7]
    assert len(after['audit']) == len(before['audit']) + 1
    assert {**after, 'audit': before['audit']} == before
    done = commands.main(module, '--config-file', conf, 'db', 'version')
    assert (done.returncode, done.stdout) == (0, f'{schemas.name_next_revision()}\n'), done.stderr
