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

"""Steps of a campaign that gave way because of Nova, and the times of requests for its hosts.

Engines of the release before go on beside the new columns, and write neither: they count in their
memory, and keep the time of a request in ``announced_at``.
"""

from alembic import op
import sqlalchemy as sa

revision = '0023c0015'
down_revision = '0022c0015'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('campaign', sa.Column('refusals', sa.Integer))
    op.add_column('campaign_host', sa.Column('asked_at', sa.Double))
