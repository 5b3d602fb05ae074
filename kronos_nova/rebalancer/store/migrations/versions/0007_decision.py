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

"""What operators said of plans: approved, rejected, cancelled."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0007'
down_revision = '0006'
branch_labels = None
depends_on = None

_MYSQL = ('mysql', 'mariadb')


def upgrade() -> None:
    op.create_table(
        'decision',
        sa.Column('decision_id', sa.String(36), primary_key=True),
        sa.Column('plan_id', sa.String(36),
                  sa.ForeignKey('plan.plan_id', name='decision_plan', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('decided_at', sa.Double, nullable=False),
        sa.Column('decided_by', sa.Unicode(255).with_variant(
            mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL),
            nullable=False),
        sa.Column('verb', sa.String(16), nullable=False),
        sa.Column('tasks', sa.Integer, nullable=False),
        sa.Column('reason', sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL),
                  nullable=False),
        sa.Index('decision_plan_id', 'plan_id'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
