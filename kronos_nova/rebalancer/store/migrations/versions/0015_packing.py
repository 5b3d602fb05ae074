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

"""What plans of mode pack foresaw, and what came of them."""

from alembic import op
import sqlalchemy as sa

revision = '0015'
down_revision = '0014'
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL for plans that spread.
    for name in ('hosts_before', 'hosts_foreseen', 'hosts_realised'):
        op.add_column('outcome', sa.Column(name, sa.Integer))
    for name in ('overload_before', 'overload_foreseen', 'overload_realised', 'growth'):
        op.add_column('outcome', sa.Column(name, sa.Double))
