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

"""When each phase of an attempt has begun; hooks of tasks, and those that are owed."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0009'
down_revision = '0008'
branch_labels = None
depends_on = None


def upgrade() -> None:
    name = sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), 'mysql', 'mariadb')
    text = sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
    # NULL in what a daemon of the release before writes meanwhile.
    op.add_column('task', sa.Column('timings', text))
    op.add_column('task', sa.Column('hooks', text))
    op.create_table(
        'owed_hook',
        sa.Column('owed_id', sa.String(36), primary_key=True),
        sa.Column('task_id', sa.String(36), nullable=False),
        sa.Column('plan_id', sa.String(36), nullable=False),
        sa.Column('number', sa.Integer, nullable=False),
        sa.Column('scope', name, nullable=False),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('from_host', name, nullable=False),
        sa.Column('to_host', name, nullable=False),
        sa.Column('phase', sa.String(16), nullable=False),
        sa.Column('method', sa.String(8), nullable=False),
        sa.Column('hook', name, nullable=False),
        sa.Column('parameters', text, nullable=False),
        sa.Column('marker', text, nullable=False),
        sa.Column('begun_at', sa.Double, nullable=False),
        sa.Column('worker', sa.Unicode(255)),
        sa.Column('heartbeat_at', sa.Double),
        sa.Column('tries', sa.Integer, nullable=False),
        sa.Column('not_before', sa.Double, nullable=False),
        sa.Column('error', text),
        sa.Index('owed_hook_task', 'task_id'),
        sa.Index('owed_hook_instance', 'instance_uuid'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
