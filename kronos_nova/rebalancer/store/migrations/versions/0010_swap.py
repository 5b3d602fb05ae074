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

"""Swaps: two instances that change places, both or none."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0010'
down_revision = '0009'
branch_labels = None
depends_on = None

_MYSQL = ('mysql', 'mariadb')


def _text() -> sa.types.TypeEngine[str]:
    return sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL)


def upgrade() -> None:
    op.create_table(
        'swap',
        sa.Column('swap_id', sa.String(36), primary_key=True),
        sa.Column('plan_id', sa.String(36),
                  sa.ForeignKey('plan.plan_id', name='swap_plan', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('scope', sa.Unicode(255).with_variant(
            mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL),
            nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('members', _text(), nullable=False),
        sa.Column('undos', _text(), nullable=False),
        sa.Column('passes', sa.BigInteger, nullable=False),
        sa.Column('logged', sa.Boolean),
        sa.Index('swap_plan_id', 'plan_id'),
        sa.Index('swap_state', 'state'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    # A task of the release before has a part in none.
    op.add_column('task', sa.Column('swap_id', sa.String(36)))
    op.create_index('task_swap_id', 'task', ['swap_id'])
