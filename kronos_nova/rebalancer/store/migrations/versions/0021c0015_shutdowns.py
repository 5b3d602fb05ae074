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

"""Notices of shutdowns.

An engine of the release before writes NULL: its notice names no shutdown.
"""

from alembic import op
import sqlalchemy as sa

revision = '0021c0015'
down_revision = '0020c0015'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('notice', sa.Column('may_shut_down', sa.Boolean))
