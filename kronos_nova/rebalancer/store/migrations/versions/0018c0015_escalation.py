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

"""The steps against migrations that do not converge. Daemons of the release before write none."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0018c0015'
down_revision = '0017c0015'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('task', sa.Column('escalation', sa.UnicodeText().with_variant(
        mysql.MEDIUMTEXT(), 'mysql', 'mariadb')))
