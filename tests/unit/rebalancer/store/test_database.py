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


"""The engine is made as the configuration says, and its errors are sentences."""

import errno
import os

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import engines
import pytest
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.store import database

OPTIONS = {'mysql_sql_mode': 'ANSI', 'mysql_wsrep_sync_wait': 3, 'connection_recycle_time': 77,
           'max_pool_size': 4, 'max_overflow': 6, 'pool_timeout': 9}
URL = 'mysql+pymysql://kronos:s3cret@db/kronos'


@pytest.fixture
def made(monkeypatch):
    """Collect (URL, options) of each requested engine; SQLite in memory replaces it."""
    found, real = [], engines.create_engine

    def create(url, **options):
        found.append((sa.engine.make_url(url), options))
        return real('sqlite://', sqlite_fk=True)
    monkeypatch.setattr(engines, 'create_engine', create)
    return found


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', URL, 'database')
    for name, value in OPTIONS.items():
        conf.set_override(name, value, 'database')
    conf.set_override('connection_parameters', 'ssl_ca=/ca', 'database')
    return conf


FIXED = {'sqlite_fk': True, 'max_retries': 0, 'thread_checkin': False}


def test_all_that_is_configured_reaches_the_engine(conf, made):
    database.create_engine(conf)
    (url, options), = made
    limits = {'connect_timeout': '10', 'read_timeout': '60', 'write_timeout': '60'}
    assert dict(url.query) == {'ssl_ca': '/ca', 'charset': 'utf8mb4', **limits}
    assert url.set(query={}) == sa.engine.make_url(URL)
    assert options == OPTIONS | FIXED


@pytest.mark.parametrize('seconds', [database.ANSWER_SECONDS, database.LONG_SECONDS])
def test_daemons_use_the_given_statement_limit_and_ten_s_to_connect(conf, made, seconds):
    database.create_engine(conf, seconds=seconds)
    assert made[0][0].query['read_timeout'] == str(seconds)
    assert made[0][0].query['connect_timeout'] == '10'


def test_an_impatient_engine_has_short_limits_and_one_connection(conf, made):
    database.create_engine(conf, patient=False)
    (url, options), = made
    assert dict(url.query) == {'ssl_ca': '/ca', 'charset': 'utf8mb4', **dict.fromkeys(
        ('connect_timeout', 'read_timeout', 'write_timeout'), '5')}
    assert options == FIXED | {'mysql_sql_mode': 'ANSI', 'connection_recycle_time': 77,
                               'max_pool_size': 1}


def test_limits_that_an_operator_gives_stay(conf, made):
    conf.set_override('connection_parameters', 'read_timeout=60', 'database')
    database.create_engine(conf, patient=False)
    assert made[0][0].query['read_timeout'] == '60'


def test_strict_mode_and_whole_characters_are_the_default(made):
    database.from_url('mysql+pymysql://db/kronos?charset=utf8')
    database.from_url('postgresql+psycopg2://db/kronos')
    assert [dict(url.query) for url, _ in made] == [{'charset': 'utf8'}, {}]
    assert [options['mysql_sql_mode'] for _, options in made] == ['TRADITIONAL'] * 2


@pytest.mark.parametrize('url', ['nonsense', 'mysql+pymysql://me:p@ss@db/kronos',
                                 'nosuch://db/kronos'])
def test_a_url_that_cannot_be_understood_is_not_repeated(url):
    with pytest.raises(exception.StoreError) as error:
        database.from_url(url)
    assert str(error.value) == str(exception.StoreError(
        problem='URL in [database] connection cannot be understood',
        remedy='Write it as sqlite:////path/file or mysql+pymysql://user:password@host/name, '
               'with special characters of the password quoted: %40 for @, %2F for /.'))


def test_error_about_a_file_that_cannot_be_created_names_the_cause(tmp_path):
    path = str(tmp_path)
    with pytest.raises(exception.StoreError) as error:
        database.from_url(f'sqlite:///{path}')
    assert str(error.value) == str(exception.StoreError(
        problem=f'file {path} cannot be opened ({os.strerror(errno.EISDIR)})',
        remedy='Correct the owner and mode of the file and its directory.'))


def test_a_database_in_memory_creates_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ('sqlite://', 'sqlite:///:memory:'):
        database.from_url(url)
    assert list(tmp_path.iterdir()) == []


class Orig(Exception):
    """What a driver raises."""


def explained(engine, error):
    with pytest.raises(exception.StoreError) as found, database.explain_errors(engine):
        raise error
    assert found.value.__cause__ is None and found.value.__suppress_context__
    return str(found.value)


@pytest.fixture
def server():
    """Never reached."""
    return sa.create_engine('postgresql+psycopg2://kronos:s3cret@db/kronos?password=t0ken')


WHERE = 'postgresql+psycopg2://kronos:***@db/kronos'


def test_error_about_a_refused_statement_omits_its_parameters(server):
    inner = sa_exc.DBAPIError('SELECT s3cret', {'a': 's3cret'}, Orig('no   right\nto do it'))
    for error in (db_exception.DBError(inner), inner):
        assert explained(server, error) == str(exception.StoreError(
            problem=f'{WHERE} refused a statement (no right to do it)',
            remedy="See the database server's log; check rights, disk space and the schema "
                   'revision.'))


def test_errors_differ_for_a_lost_server_and_a_missing_database(server):
    assert explained(server, db_exception.DBConnectionError(Orig('gone'))) == str(
        exception.StoreError(problem=f'{WHERE} cannot be reached (gone)',
                             remedy='Check [database] connection and that the server runs.'))
    assert explained(server, db_exception.DBNonExistentDatabase(
        'kronos', Orig('unknown database'))) == str(exception.StoreError(
            problem=f'{WHERE} does not exist (unknown database)',
            remedy='Create it and grant its user all rights on it.'))


@pytest.mark.parametrize(('said', 'shown'), [
    ('', 'Orig'), ('x' * 200, 'x' * 200), ('x' * 201, 'x' * 200)])
def test_a_driver_error_is_shortened_and_an_empty_one_names_its_class(server, said, shown):
    assert f'refused a statement ({shown})' in explained(
        server, db_exception.DBError(Orig(said)))


def test_words_of_sqlite_mean_nothing_from_a_server(server):
    assert 'check rights' in explained(server, db_exception.DBError(Orig('table is full')))


@pytest.mark.parametrize(('driver', 'limits'), [
    ('mysql+mysqldb', {'charset': 'utf8mb4', 'connect_timeout': '5', 'read_timeout': '5',
                       'write_timeout': '5'}),
    ('mariadb+mysqldb', {'charset': 'utf8mb4', 'connect_timeout': '5', 'read_timeout': '5',
                         'write_timeout': '5'}),
    *((driver, {'connect_timeout': '5', 'tcp_user_timeout': '2500', 'keepalives_idle': '5',
                'keepalives_interval': '5', 'keepalives_count': '2'})
      for driver in ('postgresql+psycopg2', 'postgresql+psycopg'))])
def test_each_driver_has_its_own_limits(conf, made, driver, limits):
    conf.set_override('connection', f'{driver}://kronos:s3cret@db/kronos', 'database')
    conf.set_override('connection_parameters', '', 'database')
    database.create_engine(conf, patient=False)
    (url, _), = made
    assert (dict(url.query), url.password) == (limits, 's3cret')


def test_a_driver_without_limits_is_used_as_it_is(conf, made):
    conf.set_override('connection', 'sqlite:///:memory:', 'database')
    database.create_engine(conf, patient=False)
    assert dict(made[0][0].query) == {'ssl_ca': '/ca'}


def test_a_driver_that_is_not_installed_is_named(monkeypatch):
    def missing(url, **options):
        raise ImportError("No module named 'MySQLdb'")
    monkeypatch.setattr(engines, 'create_engine', missing)
    with pytest.raises(exception.StoreError) as error:
        database.from_url('mysql+mysqldb://kronos:s3cret@db/kronos')
    assert str(error.value) == str(exception.StoreError(
        problem="driver for mysql+mysqldb is not installed (No module named 'MySQLdb')",
        remedy='Install it or choose another in [database] connection.'))


@pytest.mark.parametrize(('text', 'path'), [
    ('sqlite:////var/k.sqlite', '/var/k.sqlite'), ('sqlite:///k.sqlite', 'k.sqlite'),
    ('sqlite://', None), ('sqlite:///:memory:', None), (URL, None), ('nonsense', None),
    ('', None), (None, None)])
def test_which_file_a_url_means(text, path):
    assert database.sqlite_file(text) == path


def test_checking_for_a_database_creates_no_file(tmp_path):
    path = f'{tmp_path}/k.sqlite'
    for text in (URL, None, 'sqlite://', f'sqlite:///{tmp_path}'):
        database.must_exist(text)
    with pytest.raises(exception.StoreError) as error:
        database.must_exist(f'sqlite:///{path}')
    assert str(error.value) == str(exception.StoreError(
        problem=f'file {path} does not exist',
        remedy='Check [database] connection, or run kronos-manage db sync as the user of '
               'the daemons.'))
    assert list(tmp_path.iterdir()) == []
