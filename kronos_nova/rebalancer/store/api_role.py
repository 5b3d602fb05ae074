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

"""The database role of kronos-api: it reads everything, and writes what decisions write.

It can neither change the schema nor delete plans, tasks, decisions or audit rows.
"""

from collections.abc import Callable
from collections.abc import Iterator
import re

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.store import schema
from kronos_nova.rebalancer.store import tables

#: Tables that the role writes, by privilege.
WRITTEN = {
    'INSERT': ('audit', 'campaign', 'campaign_host', 'cooldown', 'decision', 'drain', 'drain_order',
               'pause', 'plan', 'quarantine', 'swap', 'task'),
    'UPDATE': ('campaign', 'campaign_host', 'cooldown', 'drain_order', 'gate', 'lease', 'pause',
               'quarantine', 'swap', 'task'),
    'DELETE': ('drain', 'drain_order', 'pause', 'quarantine'),
}
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_]{0,31}')


def list_grants(engine: sa.Engine, role: str) -> list[str]:
    """Return the SQL statements that give an existing role its rights.

    :param engine: of the database; the statements fit its kind and name.
    :raises ConfigError: the role's name is no plain one.
    :raises StoreError: SQLite has no roles.
    """
    if _NAME.fullmatch(role) is None:
        raise exception.ConfigError(
            path='command line', field='ROLE', problem=f'{role!r} is no plain name',
            remedy='Use letters, digits and underscores, at most 32, and no digit first.')
    if engine.dialect.name == 'sqlite':
        raise exception.StoreError(problem='is SQLite, which has no roles',
                                   remedy='Use MariaDB or PostgreSQL.')
    postgresql = engine.dialect.name == 'postgresql'
    quote = engine.dialect.identifier_preparer.quote_identifier
    prefix = '' if postgresql else f'{quote(str(engine.url.database))}.'
    grantee = quote(role) if postgresql else f"'{role}'@'%'"

    def format_grant(privileges: str, table: str) -> str:
        return f'GRANT {privileges} ON {prefix}{quote(table)} TO {grantee};'

    return [*_list_table_grants(format_grant), *(
        [f'GRANT USAGE ON SEQUENCE {quote("audit_number_seq")} TO {grantee};']
        if postgresql else [])]


def _list_table_grants(format_grant: Callable[[str, str], str]) -> Iterator[str]:
    for name in sorted([*tables.metadata.tables, schema.VERSION_TABLE]):
        yield format_grant(', '.join(['SELECT', *(
            privilege for privilege, names in WRITTEN.items() if name in names)]), name)
