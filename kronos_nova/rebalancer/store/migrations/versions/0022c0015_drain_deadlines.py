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

"""Deadlines of drains, and of the tasks that they make.

Daemons of the release before go on beside the new table and column, and write neither.
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0022c0015'
down_revision = '0021c0015'
branch_labels = None
depends_on = None


def upgrade() -> None:
    name = sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), 'mysql', 'mariadb')
    op.create_table(
        'drain_order',
        sa.Column('host', name, primary_key=True),
        sa.Column('deadline', sa.Double, nullable=False),
        sa.Column('disabled_reason', sa.Unicode(255), nullable=False),
        sa.Column('ordered_at', sa.Double, nullable=False),
        sa.Column('ordered_by', sa.Unicode(255), nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.add_column('task', sa.Column('arrive_by', sa.Double))
