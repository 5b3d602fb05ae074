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

"""What was asked for over MQTT."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0011'
down_revision = '0010'
branch_labels = None
depends_on = None


def _name() -> sa.types.TypeEngine[str]:
    return sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), 'mysql', 'mariadb')


def _text() -> sa.types.TypeEngine[str]:
    return sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    op.create_table(
        'request',
        sa.Column('request_id', _name(), primary_key=True),
        sa.Column('host', _name(), nullable=False),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('document', _text(), nullable=False),
        sa.Column('digest', sa.String(64), nullable=False),
        sa.Column('received_at', sa.Double, nullable=False),
        sa.Column('progress', _text()),
        sa.Column('plan_id', sa.String(36)),
        sa.Column('worker', sa.Unicode(255)),
        sa.Column('heartbeat_at', sa.Double),
        sa.Column('reply', _text()),
        sa.Column('failed', sa.Boolean),
        sa.Column('ended_at', sa.Double),
        sa.Column('told_at', sa.Double),
        sa.Index('request_ended', 'ended_at'),
        sa.Index('request_plan_id', 'plan_id'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
