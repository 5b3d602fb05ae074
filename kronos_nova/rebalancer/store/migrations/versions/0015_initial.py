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

"""The first schema. Its number goes on from fourteen revisions of the time before any release.

Columns stand in the order in which those revisions added them.
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0015'
down_revision = None
branch_labels = None
depends_on = None

_MYSQL = ('mysql', 'mariadb')


def _name() -> sa.types.TypeEngine[str]:
    return sa.Unicode(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL)


def _text() -> sa.types.TypeEngine[str]:
    return sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL)


def _create(title: str, *items: sa.schema.SchemaItem) -> sa.Table:
    return op.create_table(title, *items, mysql_engine='InnoDB', mysql_charset='utf8mb4')


def upgrade() -> None:
    _create(
        'plan',
        sa.Column('plan_id', sa.String(36), primary_key=True),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('dry_run', sa.Boolean, nullable=False),
        sa.Column('moves', sa.Integer, nullable=False),
        sa.Column('reason', _text()),
        sa.Column('document', _text(), nullable=False),
        sa.Index('plan_scope_created', 'scope', 'created_at'),
        sa.Index('plan_created', 'created_at'),
    )
    _create(
        'task',
        sa.Column('task_id', sa.String(36), primary_key=True),
        sa.Column('plan_id', sa.String(36), sa.ForeignKey('plan.plan_id', name='task_plan'),
                  nullable=False),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('active_instance', sa.String(36)),
        sa.Column('instance_name', _name(), nullable=False),
        sa.Column('from_host', _name(), nullable=False),
        sa.Column('to_host', _name(), nullable=False),
        sa.Column('destinations', _text(), nullable=False),
        sa.Column('attempt', sa.Integer, nullable=False),
        sa.Column('phase', sa.String(16), nullable=False),
        sa.Column('policy_names', _text(), nullable=False),
        sa.Column('improvement', sa.Double, nullable=False),
        sa.Column('priority', sa.Integer, nullable=False),
        sa.Column('wave', sa.Integer, nullable=False),
        sa.Column('requires', _text(), nullable=False),
        sa.Column('max_retries', sa.Integer, nullable=False),
        sa.Column('retry_count', sa.Integer, nullable=False),
        sa.Column('not_before', sa.Double, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False),
        sa.Column('expires_at', sa.Double),
        sa.Column('deadline', sa.Double),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('memory_mb', sa.BigInteger, nullable=False),
        sa.Column('disk_gb', sa.BigInteger, nullable=False),
        sa.Column('worker', sa.Unicode(255)),
        sa.Column('heartbeat_at', sa.Double),
        sa.Column('marker', _text()),
        sa.Column('reference', sa.Unicode(255)),
        sa.Column('submitted_at', sa.Double),
        sa.Column('doubt_since', sa.Double),
        sa.Column('completed_at', sa.Double),
        sa.Column('error', _text()),
        sa.Column('error_type', sa.String(64)),
        sa.Column('method', sa.String(8), nullable=False, server_default='live'),
        sa.Column('trees', _text()),
        sa.Column('improvements', _text()),
        sa.Column('attempts', _text()),
        sa.Column('doubt', sa.String(32)),
        sa.Column('timings', _text()),
        sa.Column('hooks', _text()),
        sa.Column('swap_id', sa.String(36)),
        sa.Column('counts_alternates', sa.Boolean),
        sa.UniqueConstraint('active_instance', name='task_active_instance'),
        sa.Index('task_plan_id', 'plan_id'),
        sa.Index('task_state_order', 'state', 'not_before', 'priority'),
        sa.Index('task_completed', 'completed_at'),
        sa.Index('task_scope_ended', 'scope', 'state', 'completed_at'),
        sa.Index('task_from_host', 'from_host', 'completed_at'),
        sa.Index('task_instance', 'instance_uuid', 'created_at'),
        sa.Index('task_swap_id', 'swap_id'),
    )
    _create(
        'swap',
        sa.Column('swap_id', sa.String(36), primary_key=True),
        sa.Column('plan_id', sa.String(36),
                  sa.ForeignKey('plan.plan_id', name='swap_plan', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('members', _text(), nullable=False),
        sa.Column('undos', _text(), nullable=False),
        sa.Column('passes', sa.BigInteger, nullable=False),
        sa.Column('logged', sa.Boolean),
        sa.Index('swap_plan_id', 'plan_id'),
        sa.Index('swap_state_logged', 'state', 'logged'),
    )
    _create(
        'owed_hook',
        sa.Column('owed_id', sa.String(36), primary_key=True),
        sa.Column('task_id', sa.String(36), nullable=False),
        sa.Column('plan_id', sa.String(36), nullable=False),
        sa.Column('number', sa.Integer, nullable=False),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('from_host', _name(), nullable=False),
        sa.Column('to_host', _name(), nullable=False),
        sa.Column('phase', sa.String(16), nullable=False),
        sa.Column('method', sa.String(8), nullable=False),
        sa.Column('hook', _name(), nullable=False),
        sa.Column('parameters', _text(), nullable=False),
        sa.Column('marker', _text(), nullable=False),
        sa.Column('begun_at', sa.Double, nullable=False),
        sa.Column('worker', sa.Unicode(255)),
        sa.Column('heartbeat_at', sa.Double),
        sa.Column('tries', sa.Integer, nullable=False),
        sa.Column('not_before', sa.Double, nullable=False),
        sa.Column('error', _text()),
        sa.Index('owed_hook_task', 'task_id'),
        sa.Index('owed_hook_instance', 'instance_uuid'),
    )
    _create(
        'cooldown',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', _name(), primary_key=True),
        sa.Column('until', sa.Double, nullable=False),
        sa.Index('cooldown_until', 'until'),
    )
    _create(
        'quarantine',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', _name(), primary_key=True),
        sa.Column('until', sa.Double),
        sa.Column('since', sa.Double, nullable=False),
        sa.Column('refusals', sa.Integer, nullable=False),
        sa.Column('reason', _text(), nullable=False),
    )
    _create(
        'lease',
        sa.Column('scope', _name(), primary_key=True),
        sa.Column('owner', sa.Unicode(255), nullable=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('until', sa.Double, nullable=False),
        sa.Column('policy_hash', sa.String(128), nullable=False),
        sa.Column('planned_at', sa.Double),
        sa.Column('cycle', _text()),
    )
    _create(
        'executor',
        sa.Column('name', _name(), primary_key=True),
        sa.Column('scopes', _text()),
        sa.Column('seen_at', sa.Double, nullable=False),
    )
    _create(
        'budget',
        sa.Column('plan_id', sa.String(36), sa.ForeignKey('plan.plan_id', name='budget_plan'),
                  primary_key=True),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('spent_at', sa.Double, nullable=False),
        sa.Column('moves', sa.Integer, nullable=False),
        sa.Index('budget_scope_spent', 'scope', 'spent_at'),
    )
    _create(
        'drain',
        sa.Column('scope', _name(), primary_key=True),
        sa.Column('host', _name(), primary_key=True),
        sa.Column('since', sa.Double, nullable=False),
    )
    _create(
        'pause',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', _name(), primary_key=True),
        sa.Column('since', sa.Double, nullable=False),
        sa.Column('until', sa.Double),
        sa.Column('paused_by', _name(), nullable=False),
        sa.Column('reason', _text(), nullable=False),
    )
    _create(
        'outcome',
        sa.Column('plan_id', sa.String(36), sa.ForeignKey('plan.plan_id', name='outcome_plan'),
                  primary_key=True),
        sa.Column('scope', _name(), nullable=False),
        sa.Column('planned_at', sa.Double, nullable=False),
        sa.Column('combined_before', sa.Double, nullable=False),
        sa.Column('combined_foreseen', sa.Double, nullable=False),
        sa.Column('combined_realised', sa.Double),
        sa.Column('realised_at', sa.Double),
        sa.Column('hosts_before', sa.Integer),
        sa.Column('hosts_foreseen', sa.Integer),
        sa.Column('hosts_realised', sa.Integer),
        sa.Column('overload_before', sa.Double),
        sa.Column('overload_foreseen', sa.Double),
        sa.Column('overload_realised', sa.Double),
        sa.Column('growth', sa.Double),
        sa.Index('outcome_scope_planned', 'scope', 'planned_at'),
        sa.Index('outcome_scope_realised', 'scope', 'realised_at', 'planned_at'),
    )
    _create(
        'decision',
        sa.Column('decision_id', sa.String(36), primary_key=True),
        sa.Column('plan_id', sa.String(36),
                  sa.ForeignKey('plan.plan_id', name='decision_plan', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('decided_at', sa.Double, nullable=False),
        sa.Column('decided_by', _name(), nullable=False),
        sa.Column('verb', sa.String(16), nullable=False),
        sa.Column('tasks', sa.Integer, nullable=False),
        sa.Column('reason', _text(), nullable=False),
        sa.Column('told', sa.Boolean),
        sa.Index('decision_plan_id', 'plan_id'),
        sa.Index('decision_told', 'told'),
    )
    _create(
        'audit',
        sa.Column('number', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('at', sa.Double, nullable=False),
        sa.Column('by_name', _name(), nullable=False),
        sa.Column('command', sa.String(32), nullable=False),
        sa.Column('target', _text(), nullable=False),
        sa.Column('reason', _text(), nullable=False),
        sa.Index('audit_at', 'at'),
    )
    _create(
        'wish',
        sa.Column('scope', _name(), primary_key=True),
        sa.Column('since', sa.Double, nullable=False),
    )
    _create(
        'breaker',
        sa.Column('scope', _name(), primary_key=True),
        sa.Column('tripped_at', sa.Double, nullable=False),
    )
    gate = _create(
        'gate',
        sa.Column('name', sa.String(16), primary_key=True),
        sa.Column('passes', sa.BigInteger, nullable=False),
    )
    op.bulk_insert(gate, [{'name': 'claim', 'passes': 0}])
    _create(
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
    )
