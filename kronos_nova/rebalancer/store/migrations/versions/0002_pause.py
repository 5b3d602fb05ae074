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


"""Pauses, what came of plans, circuit breakers, wishes; when a scope was last planned."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None

_MYSQL = ('mysql', 'mariadb')


def _name() -> sa.types.TypeEngine[str]:
    return sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL)


def upgrade() -> None:
    op.create_table(
        'pause',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', _name(), primary_key=True),
        sa.Column('since', sa.Double, nullable=False),
        sa.Column('until', sa.Double),
        sa.Column('paused_by', _name(), nullable=False),
        sa.Column('reason', sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL),
                  nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.create_table(
        'outcome',
        sa.Column('plan_id', sa.String(36),
                  sa.ForeignKey('plan.plan_id', name='outcome_plan'), primary_key=True),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('planned_at', sa.Double, nullable=False),
        sa.Column('combined_before', sa.Double, nullable=False),
        sa.Column('combined_foreseen', sa.Double, nullable=False),
        sa.Column('combined_realised', sa.Double),
        sa.Column('realised_at', sa.Double),
        sa.Index('outcome_scope_planned', 'scope', 'planned_at'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.create_table(
        'wish',
        sa.Column('scope', _name(), primary_key=True),
        sa.Column('since', sa.Double, nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.create_table(
        'breaker',
        sa.Column('scope', _name(), primary_key=True),
        sa.Column('tripped_at', sa.Double, nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.add_column('lease', sa.Column('planned_at', sa.Double))
