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

"""Revisions of the schema: the current one, the required one, and the upgrade.

Alembic does the upgrade, and is loaded for that alone: every command reads the revision, and
Alembic would be a quarter of the time that a command takes to start.
"""

from collections.abc import Iterator
import contextlib
import os
import re
from typing import Any, TYPE_CHECKING

from oslo_log import log as logging
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.store import database

if TYPE_CHECKING:
    from alembic import config as alembic_config

LOG = logging.getLogger(__name__)

_UPGRADE_LOCK = 'kronos_upgrade'
_UPGRADE_LOCK_NUMBER = 0x6B726F6E
_MIGRATIONS = os.path.join(os.path.dirname(__file__), 'migrations')
#: The first release starts with one schema. It does not upgrade those of pre-releases.
_PRE_RELEASE_REMEDY = (
    'Run kronos-manage db sync of the last pre-release first, or stop all daemons and begin with '
    'an empty database: that loses plans with their tasks, cooldowns, quarantines, pauses, drains '
    'and the audit. See "From a pre-release" in the page Upgrades.')
#: A revision that only adds: its number, and the oldest head whose code works on it, too.
_ADDITIVE = re.compile(r'(?P<number>\d{4})c(?P<oldest>\d{4})')
#: Name of the table that has the current revision.
VERSION_TABLE = 'alembic_version'
_version = sa.table(VERSION_TABLE, sa.column('version_num', sa.String))


def list_revisions() -> list[str]:
    """Return the revisions that this release knows, oldest first: they number its files."""
    return sorted(name.split('_')[0] for name in os.listdir(os.path.join(_MIGRATIONS, 'versions'))
                  if name.endswith('.py') and name[0].isdigit())


def get_head_revision() -> str:
    """Return the revision that this release's code needs."""
    return list_revisions()[-1]


def admits_head(revision: str | None, head: str) -> bool:
    """Return whether a database at a later revision serves code that needs ``head``.

    The revision itself tells: ``0016c0015`` is number 0016 and admits code whose head has the
    number 0015 or a later one. The release before so goes on, and starts again, while a rolling
    upgrade is under way.
    """
    match = _ADDITIVE.fullmatch(revision or '')
    number = head[:4]
    return match is not None and match['oldest'] <= number < match['number']


def read_current_revision(engine: sa.Engine) -> str | None:
    """Return the revision of the database; None when it is empty."""
    with database.explain_errors(engine), (
            engine.connect().execution_options(kronos_begin='')) as connection:
        return _read_revision(connection)


def _read_revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(_version.name):
        return None
    return connection.execute(sa.select(_version.c.version_num)).scalar()


def refuse_other_revision(engine: sa.Engine) -> None:
    """Check that the database is at the revision that this release needs.

    :raises StoreError: unreachable, or at another revision.
    """
    check_revision(read_current_revision(engine))


def check_revision(revision: str | None) -> None:
    """Check that a revision is the one that this release needs, or a later one that admits it.

    :param revision: None: of an empty database.
    :raises StoreError: it is another one.
    """
    refuse_unknown_revision(revision)
    head = get_head_revision()
    if revision != head and not admits_head(revision, head):
        raise exception.StoreError(
            problem=f'has schema revision {revision or "none"}, this release needs '
                    f'{head}',
            remedy='Upgrade it: kronos-manage db sync, or start kronos-engine.')


def refuse_unknown_revision(revision: str | None) -> None:
    """Raise StoreError when this release neither works on the revision nor upgrades from it.

    :raises StoreError: a later release or a pre-release has written the database.
    """
    known = list_revisions()
    if revision is None or revision in known or admits_head(revision, known[-1]):
        return
    if revision.isdigit() and revision < known[0]:
        raise exception.StoreError(
            problem=f'has schema revision {revision} of a pre-release, from which this release '
                    'does not upgrade',
            remedy=_PRE_RELEASE_REMEDY)
    raise exception.StoreError(
        problem=f'has schema revision {revision}, which this release does not know',
        remedy='Install the release that wrote it, or restore a backup.')


def upgrade_schema(engine: sa.Engine) -> None:
    """Upgrade the schema to the revision that this release needs; concurrent callers wait in line.

    :raises StoreError: unreachable, refused, or at a revision that this release does not know.
    """
    with database.explain_errors(engine), engine.connect() as connection, _upgrade_lock(connection):
        with connection.begin():  # committed before the lock is given back
            revision = _read_revision(connection)
            refuse_unknown_revision(revision)
            head = get_head_revision()
            if admits_head(revision, head):
                LOG.warning('The database has schema revision %s of a later release. It admits '
                            'this release, which needs %s: the upgrade can go on.', revision, head)
            elif revision != head:
                # Only an upgrade needs Alembic: see above.
                from alembic import command  # noqa: PLC0415

                command.upgrade(_make_alembic_config(connection), 'head')


def _make_alembic_config(connection: sa.Connection | None = None) -> 'alembic_config.Config':
    # Only an upgrade needs Alembic: see above.
    from alembic import config as alembic_config  # noqa: PLC0415

    config = alembic_config.Config()
    config.set_main_option('script_location', _MIGRATIONS.replace('%', '%%'))
    config.attributes['connection'] = connection
    return config


@contextlib.contextmanager
def _upgrade_lock(connection: sa.Connection) -> Iterator[None]:
    """Hold the upgrade lock, which belongs to the session.

    A revision that is written but not committed when the lock is released would be written again
    by the next process in line.
    """
    backend = connection.dialect.name
    if backend == 'postgresql':
        lock, unlock = sa.func.pg_advisory_lock, sa.func.pg_advisory_unlock
        arguments: tuple[Any, ...] = (_UPGRADE_LOCK_NUMBER,)
        waits: tuple[Any, ...] = ()
    elif backend in ('mysql', 'mariadb'):
        lock, unlock = sa.func.get_lock, sa.func.release_lock
        arguments, waits = (_UPGRADE_LOCK,), (300,)
    else:  # SQLite: BEGIN IMMEDIATE lets in one writer at a time.
        yield
        return
    lock_answer = connection.execute(sa.select(lock(*arguments, *waits))).scalar()
    connection.commit()
    if waits and lock_answer != 1:
        raise exception.StoreError(
            problem='is being upgraded by another process for more than 300 s',
            remedy='Wait for it, or end it, and start again.')
    try:
        yield
    finally:
        connection.execute(sa.select(unlock(*arguments)))
        connection.commit()
