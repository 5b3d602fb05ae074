# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A private MariaDB on a UNIX socket and one loopback port."""

from collections.abc import Iterable
import pathlib
from typing import Any

from tools.cloud import errors
from tools.cloud.run import effective_user_is_root
from tools.cloud.run import Run

USER, PASSWORD = 'openstack', 'sandbox'


def format_tmpdir(run: Run) -> str:
    """Return the option of a directory for temporary tables that no other server has.

    A server that starts, also one that installs, deletes those of others that share its directory.
    """
    return f'--tmpdir={run.layout.data}'


def install(run: Run) -> None:
    """Create the data directory; about a second of CPU."""
    run.task(
        'mariadb-install',
        [
            'mariadb-install-db',
            '--no-defaults',
            f'--datadir={run.layout.data}/mariadb',
            '--auth-root-authentication-method=normal',
            '--skip-test-db',
            format_tmpdir(run),
            *(['--user=root'] if effective_user_is_root() else []),
        ],
    )()


def start(run: Run) -> None:
    """Install and start the server, wait for it, create the services' user."""
    install(run)
    run.spawn(
        'mariadb',
        [
            'mariadbd',
            '--no-defaults',
            *(['--user=root'] if effective_user_is_root() else []),
            f'--datadir={run.layout.data}/mariadb',
            f'--socket={run.layout.database_socket}',
            f'--pid-file={run.layout.data}/mariadb.pid',
            format_tmpdir(run),
            '--bind-address=127.0.0.1',
            f'--port={run.ports["mariadb"]}',
            '--skip-name-resolve',
            '--max-connections=500',
            '--character-set-server=utf8mb4',
            # Commits outlive the process, which tests kill, but not the machine.
            '--innodb-flush-log-at-trx-commit=2',
            '--innodb-doublewrite=0',
            '--innodb-buffer-pool-size=256M',
            '--innodb-log-file-size=64M',
        ],
    )

    def ready() -> str | None:
        try:
            execute(run, ['SELECT 1'])
        except OSError as e:
            return str(e)
        return None

    run.wait('MariaDB accepts connections', ready)
    execute(
        run,
        [
            f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1'",
        ],
    )


def url(run: Run, database: str) -> str:
    """SQLAlchemy's URL of a database."""
    return (
        f'mysql+pymysql://{USER}:{PASSWORD}@127.0.0.1:{run.ports["mariadb"]}/{database}'
        '?charset=utf8mb4'
    )


def connect(run: Run) -> Any:
    """Connect as root, each statement its own transaction.

    :raises ConnectionError: the server does not answer (yet)
    """
    import pymysql  # type: ignore[import-untyped]

    try:
        return pymysql.connect(
            unix_socket=str(run.layout.database_socket), user='root', autocommit=True
        )
    except pymysql.err.OperationalError as e:
        raise ConnectionError(str(e)) from e


def execute(run: Run, statements: Iterable[str]) -> list[tuple[Any, ...]]:
    """Run statements as root; returns the rows of the last one.

    :raises ConnectionError: the server does not answer (yet)
    :raises errors.ServiceDied: it refuses a statement
    """
    import pymysql

    with connect(run) as connection, connection.cursor() as cursor:
        try:
            for statement in statements:
                cursor.execute(statement)
        except pymysql.err.MySQLError as e:
            raise errors.ServiceDied(f'MariaDB refused a statement: {e}') from e
        return list(cursor.fetchall())


def _client(run: Run, program: str, *arguments: str) -> list[str]:
    return [program, '--no-defaults', '-u', 'root', '-S', str(run.layout.database_socket),
            *arguments]


def dump(run: Run, databases: Iterable[str], file: pathlib.Path) -> None:
    """Write the databases as SQL; the file appears whole or not at all."""
    temporary = file.with_suffix('.new')
    run.task(
        'mariadb-dump',
        _client(run, 'mariadb-dump', f'--result-file={temporary}', '--databases', *databases),
    )()
    temporary.replace(file)


def restore(run: Run, file: pathlib.Path) -> None:
    """Execute a dump; the first refused statement ends it.

    :raises errors.ServiceDied: with the refused statement
    """
    run.task('mariadb-restore', _client(run, 'mariadb', '--batch'), stdin=file)()
