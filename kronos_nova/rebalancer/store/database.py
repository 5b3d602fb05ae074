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


"""Database connections: engine, database clock, and errors of one sentence each.

SQLite serves one host: the database file must not lie on a network file system, and no executor on
another host can use it.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import os
from typing import Any

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import engines
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc
import sqlalchemy.event
from sqlalchemy.ext import compiler

from kronos_nova import exception
from kronos_nova.rebalancer.store import psycopg2_waits
from kronos_nova.rebalancer.store import pymysql_tls

#: How long one writer waits for another on SQLite.
BUSY_SECONDS = 30
#: A server ends a transaction that is idle for so long (seconds): a process that is frozen in
#: one keeps its locks.
IDLE_SECONDS = 20
#: An impatient caller gives up after so many seconds.
IMPATIENCE = 5
#: MariaDB: Record has changed since last read.
_RECORD_CHANGED = 1020
#: A daemon waits so many seconds for a server that does not answer: once for the connection
#: that is open, and once for a new one, so a lease or a claim waits about 20 s.
ANSWER_SECONDS = 10
#: The same for commands, which may read much.
COMMAND_SECONDS = 60
#: The same for a purge and for migrations of the schema.
LONG_SECONDS = 900
_SQLITE_REMEDIES = {
    'is locked': f'Another process has been writing to it for more than {BUSY_SECONDS} s: see '
                 'which one has the file open (fuser -v FILE) and hangs.',
    'readonly': 'Give the user of the daemons the right to write to the file and its directory, '
                'and see that their file system is not mounted read-only.',
    'is full': 'Make room on the file system of the file. Committed data is not harmed.',
    'disk I/O error': 'See the kernel\'s log for the disk of the file, and its free space.',
    'malformed': 'The file is damaged: stop the daemons and restore a backup.',
    'not a database': 'Give [database] connection another file, or restore a backup of this one.',
}
_CHECK_CONNECTION = 'Check [database] connection and that the server runs.'


class EpochNow(sa.sql.functions.FunctionElement[float]):
    """The database's clock: epoch seconds UTC with microseconds."""

    type = sa.Double()
    inherit_cache = True


EPOCH_NOW = EpochNow()


@compiler.compiles(EpochNow, 'sqlite')
def _sqlite_now(element: Any, visitor: Any, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiler.compiles(EpochNow, 'mysql')
@compiler.compiles(EpochNow, 'mariadb')
def _mysql_now(element: Any, visitor: Any, **kw: Any) -> str:
    # Not UNIX_TIMESTAMP(NOW(6)): local time is ambiguous in October.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000e0)"


@compiler.compiles(EpochNow, 'postgresql')
def _postgresql_now(element: Any, visitor: Any, **kw: Any) -> str:
    return 'CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)'


def create_engine(conf: cfg.ConfigOpts, patient: bool = True,
                  seconds: int = COMMAND_SECONDS) -> sa.Engine:
    """Return the engine for ``[database]``; it opens no connection yet.

    :param patient: False: the caller prefers a quick failure to a long wait.
    :param seconds: how long a patient engine waits for a server that does not answer.
    :raises StoreError: the URL cannot be used.
    """
    group = conf.database
    if not patient:
        return from_url(
            _limit_waits(group.connection, group.connection_parameters, IMPATIENCE),
            seconds=IMPATIENCE, max_pool_size=1, mysql_sql_mode=group.mysql_sql_mode,
            connection_recycle_time=group.connection_recycle_time)
    return from_url(
        _limit_waits(group.connection, group.connection_parameters, seconds), seconds=seconds,
        mysql_sql_mode=group.mysql_sql_mode,
        mysql_wsrep_sync_wait=group.mysql_wsrep_sync_wait,
        connection_recycle_time=group.connection_recycle_time,
        max_pool_size=group.max_pool_size, max_overflow=group.max_overflow,
        pool_timeout=group.pool_timeout)


def _limit_waits(text: str, parameters: str | None, seconds: int) -> str:
    """Return the URL with limits for connecting and for each answer.

    Limits are added where the driver has any and the operator sets none.

    :param parameters: option connection_parameters; the returned URL contains them.
    """
    try:
        url = sa.engine.make_url(text)
        driver = url.get_driver_name()
    except (sa_exc.ArgumentError, sa_exc.NoSuchModuleError, ValueError):
        return text  # from_url reports it
    if parameters:
        url = url.update_query_string(parameters, append=True)
    connecting = min(seconds, ANSWER_SECONDS)
    mysql = {'connect_timeout': connecting, 'read_timeout': seconds, 'write_timeout': seconds}
    postgresql = {'connect_timeout': connecting, 'tcp_user_timeout': connecting * 500,
                  'keepalives_idle': connecting, 'keepalives_interval': 5, 'keepalives_count': 2}
    known: dict[str, Mapping[str, object]] = {
        'pymysql': mysql, 'mysqldb': mysql, 'psycopg2': postgresql, 'psycopg': postgresql}
    limits = {name: str(value) for name, value in known.get(driver, {}).items()
              if name not in url.query}
    return url.update_query_dict(limits).render_as_string(hide_password=False)


def sqlite_file(text: str | None) -> str | None:
    """Return the path of the SQLite file that the URL names; None: it names no file."""
    try:
        url = sa.engine.make_url(text or '')
    except (sa_exc.ArgumentError, ValueError):
        return None
    if url.get_backend_name() != 'sqlite' or url.database in (None, '', ':memory:'):
        return None
    return url.database


def must_exist(text: str | None) -> None:
    """Raise StoreError when the URL names a SQLite file that does not exist.

    A command that only reads must not create the file: it would belong to that command's user.

    :raises StoreError: the URL names such a file.
    """
    path = sqlite_file(text)
    if path is not None and not os.path.exists(path):
        raise exception.StoreError(
            problem=f'file {path} does not exist',
            remedy='Check [database] connection, or run kronos-manage db sync as the user of '
                   'the daemons.')


def from_url(text: str, seconds: int | None = None, **options: Any) -> sa.Engine:
    """Return the engine for a URL; ``options`` are oslo.db's.

    :param seconds: how long a statement may take on a server; None: for ever.
    :raises StoreError: the URL cannot be used.
    """
    try:
        url = sa.engine.make_url(text)
        url.get_dialect()
    except (sa_exc.ArgumentError, sa_exc.NoSuchModuleError, ValueError):
        url = None
    if url is None or '@' in (url.host or ''):
        raise exception.StoreError(
            problem='URL in [database] connection cannot be understood',
            remedy='Write it as sqlite:////path/file or mysql+pymysql://user:password@host/name, '
                   'with special characters of the password quoted: %40 for @, %2F for /.')
    if url.get_backend_name() == 'sqlite':
        _create_file(url.database)
    elif url.get_backend_name() in ('mysql', 'mariadb') and 'charset' not in url.query:
        url = url.update_query_dict({'charset': 'utf8mb4'})
    options.setdefault('mysql_sql_mode', 'TRADITIONAL')
    try:
        engine: sa.Engine = engines.create_engine(
            url, sqlite_fk=True, max_retries=0, thread_checkin=False, **options)
    except ImportError as e:
        raise exception.StoreError(
            problem=f'driver for {url.drivername} is not installed ({e})',
            remedy='Install it or choose another in [database] connection.') from None
    if url.get_backend_name() == 'sqlite':
        _prepare_sqlite(engine)
    else:
        _prepare_server(engine, seconds)
        if seconds is not None and engine.dialect.driver == 'psycopg2':
            psycopg2_waits.limit_waits(engine, seconds)
        if engine.dialect.driver == 'pymysql':
            pymysql_tls.share_context(engine)
    return engine


def _create_file(path: str | None) -> None:
    """Create the file, readable by its owner alone, before SQLite first opens it."""
    if not path or path == ':memory:':
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as e:
        raise exception.StoreError(
            problem=f'file {path} cannot be opened ({os.strerror(e.errno or 0)})',
            remedy='Correct the owner and mode of the file and its directory.') from None


def _prepare_sqlite(engine: sa.Engine) -> None:
    @sqlalchemy.event.listens_for(engine, 'connect')
    def set_pragmas(connection: Any, record: Any) -> None:
        connection.execute(f'PRAGMA busy_timeout = {BUSY_SECONDS * 1000}')
        connection.execute('PRAGMA journal_mode = WAL')
        # NORMAL may lose the last commits at a power failure, and with them
        # the fact that a migration was about to be requested.
        connection.execute('PRAGMA synchronous = FULL')

        record.info['in_transaction'] = True

    # oslo.db's listener says BEGIN unless this mark is set, and it comes
    # first. A transaction that reads first and writes later would fail when
    # another has written in between; IMMEDIATE makes it wait before.
    @sqlalchemy.event.listens_for(engine, 'begin')
    def begin_transaction(connection: sa.Connection) -> None:
        mode = connection.get_execution_options().get('kronos_begin', 'IMMEDIATE')
        connection.exec_driver_sql(f'BEGIN {mode}')

    @sqlalchemy.event.listens_for(engine, 'rollback')
    @sqlalchemy.event.listens_for(engine, 'commit')
    def mark_in_transaction(connection: sa.Connection) -> None:
        connection.info['in_transaction'] = True


def _prepare_server(engine: sa.Engine, seconds: int | None) -> None:
    """Limit idle transactions and statements on each new connection.

    MySQL has no limit for idle transactions and ignores the commented option; MariaDB obeys it.

    :param seconds: limit of each statement; the server ends a statement whose client has given up.
    """
    text = {
        'postgresql': f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'" + (
            '' if seconds is None else f"; SET statement_timeout = '{seconds}s'"),
        'mysql': 'SET @kronos = 1' + (
            '' if seconds is None else f', SESSION innodb_lock_wait_timeout = {seconds}'
            ) + f' /*M!, SESSION idle_transaction_timeout = {IDLE_SECONDS} */',
    }.get('mysql' if engine.dialect.name == 'mariadb' else engine.dialect.name)
    if text is None:
        return

    @sqlalchemy.event.listens_for(engine, 'connect')
    def set_session_limits(connection: Any, record: Any) -> None:
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(text)
        connection.commit()  # else the end of a transaction could undo it


def is_race(error: BaseException) -> bool:
    """Return whether another transaction interfered, so that this one must run again.

    MariaDB's 1020 (snapshot isolation, the default since 11.6) is not mapped by oslo.db before
    18.1.
    """
    if isinstance(error, db_exception.DBDeadlock | db_exception.DBDuplicateEntry):
        return True
    if not isinstance(error, db_exception.DBError | sa_exc.DBAPIError):
        return False
    inner: Any = getattr(error, 'inner_exception', None) or error
    inner = getattr(inner, 'orig', None) or inner
    return getattr(inner, 'args', ())[:1] == (_RECORD_CHANGED,)


@contextlib.contextmanager
def explain_errors(engine: sa.Engine) -> Iterator[None]:
    """Turn every database error into a StoreError without secrets."""
    try:
        yield
    except (db_exception.DBConnectionError, sa_exc.TimeoutError) as e:
        raise exception.StoreError(
            problem=f'{_format_database_name(engine)} cannot be reached '
                    f'({_format_driver_error(e)})',
            remedy=_CHECK_CONNECTION) from None
    except db_exception.DBNonExistentDatabase as e:
        raise exception.StoreError(
            problem=f'{_format_database_name(engine)} does not exist ({_format_driver_error(e)})',
            remedy='Create it and grant its user all rights on it.') from None
    except (db_exception.DBError, sa_exc.SQLAlchemyError) as e:
        brief = _format_driver_error(e)
        raise exception.StoreError(
            problem=f'{_format_database_name(engine)} refused a statement ({brief})',
            remedy=_find_remedy(engine, brief)) from None


def _find_remedy(engine: sa.Engine, brief: str) -> str:
    if engine.dialect.name == 'sqlite':
        for words, remedy in _SQLITE_REMEDIES.items():
            if words in brief:
                return remedy
    return "See the database server's log; check rights, disk space and the schema revision."


def _format_database_name(engine: sa.Engine) -> str:
    return redact_url(engine.url)


def redact_url(url: sa.URL) -> str:
    """Return the URL without its password, and without parameters, which may contain another."""
    return url.set(query={}).render_as_string(hide_password=True)


def _format_driver_error(error: BaseException) -> str:
    """Return the driver's message, without statement and parameters."""
    inner = getattr(error, 'inner_exception', None) or error
    inner = getattr(inner, 'orig', None) or inner
    return ' '.join(str(inner).split())[:200] or type(inner).__name__
