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


"""The rules of the store for SQLite alone."""

import os
import sqlite3
import stat
import time

from oslo_config import cfg
from oslo_db import exception as db_exception
import pytest
import sqlalchemy as sa
import tenacity

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases


@pytest.fixture
def store(tmp_path):
    store = api.Store.from_url(f'sqlite:///{tmp_path}/kronos/kronos.sqlite')
    store.upgrade()
    yield store
    store.close()


def test_the_file_and_its_new_directory_are_private(store, tmp_path):
    def mode(name):
        return stat.S_IMODE(os.stat(tmp_path / name).st_mode)
    with store.engine.connect():
        assert mode('kronos') == 0o700
        assert mode('kronos/kronos.sqlite') == 0o600
        assert mode('kronos/kronos.sqlite-wal') == 0o600


def test_commits_survive_a_power_failure_and_writers_wait(store):
    with store.engine.connect() as connection:
        for pragma, value in (('journal_mode', 'wal'), ('synchronous', 2),
                              ('busy_timeout', 30000), ('foreign_keys', 1)):
            assert connection.execute(sa.text(f'PRAGMA {pragma}')).scalar() == value


def test_a_writer_locks_before_it_reads(store, tmp_path):
    other = api.Store.from_url(f'sqlite:///{tmp_path}/kronos/kronos.sqlite')

    def read_then_write(index):
        with (store, other)[index].engine.begin() as connection:
            passes = connection.execute(sa.text('SELECT passes FROM gate')).scalar()
            connection.execute(sa.text('UPDATE gate SET passes = :n'), {'n': passes + 1})
    for _ in range(20):
        assert cases.at_once(2, read_then_write) == [None, None]
    with store.engine.connect() as connection:
        assert connection.execute(sa.text('SELECT passes FROM gate')).scalar() == 40


#: MariaDB's, which oslo.db maps since 18.1: as it is, and as oslo.db 17 passes it on.
CHANGED = sa.exc.OperationalError('UPDATE lease', {}, Exception(
    1020, "Record has changed since last read in table 'lease'"))


@pytest.mark.parametrize('error', [db_exception.DBDeadlock, db_exception.DBDuplicateEntry,
                                   CHANGED, db_exception.DBError(CHANGED)])
@pytest.mark.parametrize('lost', [7, 8])
def test_a_race_that_is_lost_is_run_again_seven_times_after_short_waits(
        store, monkeypatch, error, lost):
    waits, tried = [], []
    monkeypatch.setattr(tenacity.nap.time, 'sleep', waits.append)

    def step(connection):
        tried.append(1)
        if len(tried) <= lost:
            raise error
        return 'done'
    if lost < 8:
        assert store.run_transaction(step) == 'done'
    else:
        with pytest.raises(exception.StoreError, match='refused a statement'):
            store.run_transaction(step)
    assert len(tried) == 8 and len(waits) == 7
    assert all(0 <= wait <= min(1.0, 0.02 * 2 ** n) for n, wait in enumerate(waits))
    assert len(set(waits)) == 7, 'two that met do not meet again'


@pytest.mark.parametrize('error', [
    db_exception.DBConnectionError, db_exception.DBError(),
    sa.exc.OperationalError('UPDATE lease', {}, Exception(1021, 'Disk full'))])
def test_an_error_without_a_race_is_not_retried(store, error):
    tried = []

    def step(connection):
        tried.append(1)
        raise error
    with pytest.raises(exception.StoreError):
        store.run_transaction(step)
    assert tried == [1]


def test_simulations_have_a_clock_of_their_own():
    for store in (api.Store.from_url('sqlite://', clock=lambda: 5.0),
                  api.Store(engine=database.from_url('sqlite://'), clock=lambda: 5.0)):
        assert store.now() == 5.0


def test_the_database_in_memory_of_long_simulations_stays(monkeypatch):
    store = stores.in_memory()
    cases.save(store)
    before, now = stores.raw(), time.time()
    monkeypatch.setattr(time, 'time', lambda: now + 7200)
    assert stores.raw() is before and len(store.plans.list_plans()) == 1


def test_configuration_names_the_database(tmp_path):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', f'sqlite:///{tmp_path}/k.sqlite', 'database')
    store = api.Store(conf)
    with pytest.raises(exception.StoreError, match='revision none'):
        store.check()
    store.upgrade()
    store.check()


@pytest.mark.parametrize('url, words', [
    ('nonsense', 'cannot be understood'),
    ('nosuch://host/db', 'cannot be understood'),
    ('sqlite:////proc/kronos/k.sqlite', 'cannot be opened'),
    ('mysql+nosuchdriver://u:p@h/d', 'cannot be understood'),
])
def test_an_unusable_url_is_explained(url, words):
    with pytest.raises(exception.StoreError, match=words) as error:
        database.from_url(url)
    assert ':p@' not in str(error.value)


def test_an_unreachable_server_is_explained_without_its_password():
    store = api.Store.from_url('mysql+pymysql://kronos:s3cret@127.0.0.1:1/kronos')
    with pytest.raises(exception.StoreError, match='cannot be reached') as error:
        store.check()
    assert 's3cret' not in str(error.value)
    assert error.value.__cause__ is None


def test_a_file_that_is_no_database_is_explained(tmp_path):
    (tmp_path / 'k.sqlite').write_text('not a database at all' * 100)
    with pytest.raises(exception.StoreError, match='not a database'):
        api.Store.from_url(f'sqlite:///{tmp_path}/k.sqlite').check()


@pytest.fixture
def crippled(store, tmp_path):
    """The store, and a way to have each connection begin with a statement."""
    def cripple(pragma):
        with store.engine.connect() as connection:
            pages = connection.exec_driver_sql('PRAGMA page_count').scalar()
        store.engine.dispose()
        sa.event.listen(store.engine, 'connect', lambda connection, record:
                        connection.execute(pragma.format(pages=pages)))
        return store
    return cripple


@pytest.mark.parametrize(('pragma', 'words'), [
    ('PRAGMA max_page_count = {pages}', 'is full.*Make room'),
    ('PRAGMA query_only = ON', 'readonly.*right to write')])
def test_a_file_that_cannot_be_written_is_named_with_what_to_do(crippled, tmp_path, pragma, words):
    """SQLite's own limits of size and access: the errors of a full disk and a read-only
    file. No part of the plan is written, and earlier rows can be read."""
    store = crippled(pragma)
    with pytest.raises(exception.StoreError, match=words) as error:
        cases.save(store, 300)
    assert f'{tmp_path}/kronos/kronos.sqlite' in str(error.value)
    assert error.value.__cause__ is None
    assert store.plans.list_plans() == [] and store.tasks.list_in_flight_moves() == ()


def test_a_file_that_is_locked_is_named_and_reading_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(database, 'BUSY_SECONDS', 0.1)
    store = api.Store.from_url(f'sqlite:///{tmp_path}/k.sqlite')
    store.upgrade()
    other = sqlite3.connect(tmp_path / 'k.sqlite', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    with pytest.raises(exception.StoreError, match='is locked.*fuser') as error:
        cases.save(store)
    assert f'{tmp_path}/k.sqlite' in str(error.value)
    assert store.plans.list_plans() == []
    other.execute('ROLLBACK')
    cases.save(store)
    other.close()
    store.close()


def test_a_damaged_file_is_named_with_what_to_do(tmp_path):
    path = tmp_path / 'k.sqlite'
    store = api.Store.from_url(f'sqlite:///{path}')
    store.upgrade()
    store.close()
    with open(path, 'r+b') as f:
        f.seek(100)
        f.write(b'\xff' * 8000)
    with pytest.raises(exception.StoreError, match='malformed.*restore a backup') as error:
        api.Store.from_url(f'sqlite:///{path}').check()
    assert str(path) in str(error.value)


def test_mark_cannot_end_a_task_or_set_other_columns(store):
    cases.save(store)
    row = cases.claim(store)
    for state, fields in ((cases.TaskState.FAILED, {}),
                          (cases.TaskState.SUBMITTED, {'scope': 'x'})):
        with pytest.raises(ValueError):
            store.tasks.update_state(
                row.task.task_id, 'w', [cases.TaskState.CLAIMED], state, cases.NOW,
                                     **fields)
    with pytest.raises(ValueError):
        cases.end(store, row, cases.TaskState.UNKNOWN)
