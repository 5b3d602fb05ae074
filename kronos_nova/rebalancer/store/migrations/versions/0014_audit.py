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

"""Audit rows of commands, which outlive the plans that they changed."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0014'
down_revision = '0013'
branch_labels = None
depends_on = None

_MYSQL = ('mysql', 'mariadb')


def _text() -> sa.types.TypeEngine[str]:
    return sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL)


def upgrade() -> None:
    op.create_table(
        'audit',
        sa.Column('number', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('at', sa.Double, nullable=False),
        sa.Column('by_name', sa.Unicode(255).with_variant(
            mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL),
            nullable=False),
        sa.Column('command', sa.String(32), nullable=False),
        sa.Column('target', _text(), nullable=False),
        sa.Column('reason', _text(), nullable=False),
        sa.Index('audit_at', 'at'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
