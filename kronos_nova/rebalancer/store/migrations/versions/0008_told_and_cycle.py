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


"""Whether listeners have been told what an operator said of a plan; what the last cycle of a
scope found; which executors there are."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0008'
down_revision = '0007'
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What was said before is nobody's news any more; a command of the release before
    # says nothing of it, and is told.
    op.add_column('decision', sa.Column('told', sa.Boolean))
    op.add_column('lease', sa.Column('cycle', sa.UnicodeText().with_variant(
        mysql.MEDIUMTEXT(), 'mysql', 'mariadb')))
    op.create_table(
        'executor',
        sa.Column('name', sa.Unicode(255).with_variant(
            mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), 'mysql', 'mariadb'),
            primary_key=True),
        sa.Column('scopes', sa.UnicodeText().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb')),
        sa.Column('seen_at', sa.Double, nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.execute(sa.text('UPDATE decision SET told = :told').bindparams(told=True))
