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

"""Campaigns over hosts.

Daemons of the release before go on beside the new tables, and neither read nor write them.
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0019c0015'
down_revision = '0018c0015'
branch_labels = None
depends_on = None


def upgrade() -> None:
    name = sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), 'mysql', 'mariadb')
    text = sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
    op.create_table(
        'campaign',
        sa.Column('campaign_id', sa.String(36), primary_key=True),
        sa.Column('scope', name, nullable=False),
        sa.Column('live_scope', name),
        sa.Column('reason', sa.Unicode(255), nullable=False),
        sa.Column('together', sa.Integer, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('created_by', sa.Unicode(255), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('windows', text, nullable=False),
        sa.Column('opened', sa.Boolean, nullable=False),
        sa.Column('held_by', sa.Unicode(255), nullable=False),
        sa.Column('held_because', text, nullable=False),
        sa.Column('waits', text, nullable=False),
        sa.Column('migrations', sa.Integer, nullable=False),
        sa.Column('seconds', sa.Double),
        sa.Column('ended_at', sa.Double),
        sa.UniqueConstraint('live_scope', name='campaign_live_scope'),
        sa.Index('campaign_created', 'created_at'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
    op.create_table(
        'campaign_host',
        sa.Column('campaign_id', sa.String(36),
                  sa.ForeignKey('campaign.campaign_id', name='campaign_host_campaign'),
                  primary_key=True),
        sa.Column('host', name, primary_key=True),
        sa.Column('position', sa.Integer, nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('since', sa.Double, nullable=False),
        sa.Column('disabled_at', sa.Double),
        sa.Column('worker', sa.Unicode(255)),
        sa.Column('announced_at', sa.Double),
        sa.Column('detail', text, nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
