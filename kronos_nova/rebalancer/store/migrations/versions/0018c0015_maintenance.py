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

"""Notices of moves to the owners of instances, and steps against migrations that do not converge.

Daemons of the release before go on beside the new table and column, and write neither.
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0018c0015'
down_revision = '0017c0015'
branch_labels = None
depends_on = None


def upgrade() -> None:
    name = sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), 'mysql', 'mariadb')
    op.create_table(
        'notice',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.Unicode(255), nullable=False),
        sa.Column('scope', name, nullable=False),
        sa.Column('host', name, nullable=False),
        sa.Column('reason', sa.String(16), nullable=False),
        sa.Column('noticed_at', sa.Double, nullable=False),
        sa.Column('movable_from', sa.Double, nullable=False),
        sa.Column('valid_until', sa.Double, nullable=False),
        sa.Column('used_at', sa.Double),
        sa.Column('announced_at', sa.Double),
        sa.Index('notice_valid_until', 'valid_until'),
        sa.Index('notice_noticed_at', 'noticed_at'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.add_column('task', sa.Column('escalation', sa.UnicodeText().with_variant(
        mysql.MEDIUMTEXT(), 'mysql', 'mariadb')))
