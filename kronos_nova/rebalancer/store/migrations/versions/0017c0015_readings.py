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
"""Readings of the cloud that engines publish for kronos-api.

It adds tables alone: daemons of the release before go on beside them.
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0017c0015'
down_revision = '0016c0015'
branch_labels = None
depends_on = None

_MYSQL = ('mysql', 'mariadb')


def _create(title: str, *items: sa.schema.SchemaItem) -> None:
    op.create_table(title, *items, mysql_engine='InnoDB', mysql_charset='utf8mb4')


def upgrade() -> None:
    name = sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL)
    _create(
        'reading',
        sa.Column('reading_id', sa.String(36), primary_key=True),
        sa.Column('engine', sa.Unicode(255), nullable=False),
        sa.Column('version', sa.BigInteger, nullable=False),
        sa.Column('format', sa.String(16), nullable=False),
        sa.Column('taken_at', sa.Double, nullable=False),
        sa.Column('published_at', sa.Double, nullable=False),
        sa.Column('parts', sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL),
                  nullable=False),
    )
    _create(
        'reading_part',
        sa.Column('reading_id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(64), primary_key=True),
        sa.Column('number', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('version', sa.BigInteger, nullable=False),
        sa.Column('data', sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL),
                  nullable=False),
    )
    _create(
        'reading_scope',
        sa.Column('scope', name, primary_key=True),
        sa.Column('reading_id', sa.String(36), nullable=False),
        sa.Index('reading_scope_reading', 'reading_id'),
    )
