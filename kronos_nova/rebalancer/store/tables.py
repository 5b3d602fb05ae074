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


"""The tables, portable to SQLite, MariaDB/MySQL and PostgreSQL.

Times are epoch seconds (UTC). Names of aggregates and hosts compare byte by
byte on every backend. Lists are JSON text: nothing searches inside them. All tables stand in this
one module, so that a reader can compare the schema with its revisions.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata = sa.MetaData()

_MYSQL = ('mysql', 'mariadb')


#: Characters of a name: those of Nova's own columns.
NAME_LENGTH = 255


def make_name_type() -> sa.types.TypeEngine[str]:
    """Return the type of an aggregate or host name: any text of at most 255 characters."""
    return sa.Unicode(NAME_LENGTH).with_variant(
        mysql.VARCHAR(NAME_LENGTH, charset='utf8mb4', collation='utf8mb4_bin'), *_MYSQL)


def make_text_type() -> sa.types.TypeEngine[str]:
    """Return the type of texts of any length (64 KiB, MySQL's TEXT, is too short for a plan)."""
    return sa.UnicodeText().with_variant(mysql.MEDIUMTEXT(), *_MYSQL)


def make_bytes_type() -> sa.types.TypeEngine[bytes]:
    """Return the type of bytes of up to 16 MiB (MySQL's BLOB ends at 64 KiB)."""
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL)


def make_table(title: str, *items: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(title, metadata, *items, mysql_engine='InnoDB', mysql_charset='utf8mb4')


plan = make_table(
    'plan',
    sa.Column('plan_id', sa.String(36), primary_key=True),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('epoch', sa.BigInteger, nullable=False),
    sa.Column('created_at', sa.Double, nullable=False),
    sa.Column('dry_run', sa.Boolean, nullable=False),
    sa.Column('moves', sa.Integer, nullable=False),
    sa.Column('reason', make_text_type()),
    sa.Column('document', make_text_type(), nullable=False),
    sa.Index('plan_scope_created', 'scope', 'created_at'),
    sa.Index('plan_created', 'created_at'),
)

#: ``active_instance`` is the instance's UUID while the task lives and NULL
#: when it is terminal: UNIQUE then means one live task per instance.
#: ``improvements`` are those of ``destinations`` but the first; ``attempts`` those that
#: have ended (NULL: none). ``swap_id`` is that of the swap to which the task belongs.
#: Of the attempt under way, or of the last one: ``attempt`` is its number, from 0, and so the
#: index of its host in ``destinations``; ``marker`` is the driver's text by which it finds its
#: migration again; ``reference`` is Nova's request ID, then the UUID of Nova's migration.
task = make_table(
    'task',
    sa.Column('task_id', sa.String(36), primary_key=True),
    sa.Column('plan_id', sa.String(36), sa.ForeignKey('plan.plan_id', name='task_plan'),
              nullable=False),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('instance_uuid', sa.String(36), nullable=False),
    sa.Column('active_instance', sa.String(36)),
    sa.Column('instance_name', make_name_type(), nullable=False),
    sa.Column('from_host', make_name_type(), nullable=False),
    sa.Column('to_host', make_name_type(), nullable=False),
    sa.Column('destinations', make_text_type(), nullable=False),
    sa.Column('attempt', sa.Integer, nullable=False),
    sa.Column('phase', sa.String(16), nullable=False),
    sa.Column('policy_names', make_text_type(), nullable=False),
    sa.Column('improvement', sa.Double, nullable=False),
    sa.Column('priority', sa.Integer, nullable=False),
    sa.Column('wave', sa.Integer, nullable=False),
    sa.Column('requires', make_text_type(), nullable=False),
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
    sa.Column('method', sa.String(8), nullable=False, server_default='live'),
    sa.Column('trees', make_text_type()),
    sa.Column('worker', sa.Unicode(255)),
    sa.Column('heartbeat_at', sa.Double),
    sa.Column('marker', make_text_type()),
    sa.Column('reference', sa.Unicode(255)),
    sa.Column('submitted_at', sa.Double),
    sa.Column('doubt_since', sa.Double),
    sa.Column('doubt', sa.String(32)),
    sa.Column('completed_at', sa.Double),
    sa.Column('error', make_text_type()),
    sa.Column('error_type', sa.String(64)),
    sa.Column('improvements', make_text_type()),
    sa.Column('attempts', make_text_type()),
    # attempt_phases.Marks as JSON, and the hooks that the task brings.
    sa.Column('timings', make_text_type()),
    sa.Column('hooks', make_text_type()),
    sa.Column('counts_alternates', sa.Boolean),
    sa.Column('swap_id', sa.String(36)),
    # authorization.task_authorization.TaskAuthorization as JSON.
    sa.Column('authorization', make_text_type()),
    # model.EscalationSteps as JSON; NULL: none.
    sa.Column('escalation', make_text_type()),
    # When the instance is to have left, by the deadline of its drain; NULL: no deadline.
    sa.Column('arrive_by', sa.Double),
    sa.UniqueConstraint('active_instance', name='task_active_instance'),
    sa.Index('task_plan_id', 'plan_id'),
    sa.Index('task_state_order', 'state', 'not_before', 'priority'),
    sa.Index('task_completed', 'completed_at'),
    sa.Index('task_scope_ended', 'scope', 'state', 'completed_at'),
    sa.Index('task_from_host', 'from_host', 'completed_at'),
    sa.Index('task_instance', 'instance_uuid', 'created_at'),
    sa.Index('task_swap_id', 'swap_id'),
)

#: Two instances that change places, both or none; ``plan_id`` is that of the plan which began
#: it. ``members``: JSON list of [instance UUID, where it was, where it is to go]; ``undos``: JSON
#: list of the plans that undo it. Each transaction that settles it raises ``passes`` first.
swap = make_table(
    'swap',
    sa.Column('swap_id', sa.String(36), primary_key=True),
    sa.Column('plan_id', sa.String(36),
              sa.ForeignKey('plan.plan_id', name='swap_plan', ondelete='CASCADE'),
              nullable=False),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('created_at', sa.Double, nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('members', make_text_type(), nullable=False),
    sa.Column('undos', make_text_type(), nullable=False),
    sa.Column('passes', sa.BigInteger, nullable=False),
    sa.Column('logged', sa.Boolean),
    sa.Index('swap_plan_id', 'plan_id'),
    sa.Index('swap_state_logged', 'state', 'logged'),
)

#: Hooks that have begun for an attempt of a task and have not been ended: ``number`` is
#: the order in which they began. Due when the task is no longer in flight.
owed_hook = make_table(
    'owed_hook',
    sa.Column('owed_id', sa.String(36), primary_key=True),
    sa.Column('task_id', sa.String(36), nullable=False),
    sa.Column('plan_id', sa.String(36), nullable=False),
    sa.Column('number', sa.Integer, nullable=False),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('instance_uuid', sa.String(36), nullable=False),
    sa.Column('from_host', make_name_type(), nullable=False),
    sa.Column('to_host', make_name_type(), nullable=False),
    sa.Column('phase', sa.String(16), nullable=False),
    sa.Column('method', sa.String(8), nullable=False),
    sa.Column('hook', make_name_type(), nullable=False),
    sa.Column('parameters', make_text_type(), nullable=False),
    sa.Column('marker', make_text_type(), nullable=False),
    sa.Column('begun_at', sa.Double, nullable=False),
    sa.Column('worker', sa.Unicode(255)),
    sa.Column('heartbeat_at', sa.Double),
    sa.Column('tries', sa.Integer, nullable=False),
    sa.Column('not_before', sa.Double, nullable=False),
    sa.Column('error', make_text_type()),
    sa.Index('owed_hook_task', 'task_id'),
    sa.Index('owed_hook_instance', 'instance_uuid'),
)

#: ``kind`` is 'instance' (name: its UUID) or 'scope'.
cooldown = make_table(
    'cooldown',
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', make_name_type(), primary_key=True),
    sa.Column('until', sa.Double, nullable=False),
    sa.Index('cooldown_until', 'until'),
)

#: ``kind`` is 'instance', 'host', or, no quarantines, though they end alike, 'disks'
#: (a host whose instances' disks are its own), 'cells' (two hosts of different
#: cells, sorted, set apart by a space) and 'service' (one that executors found out of
#: order); ``until`` NULL is for ever. ``refusals``
#: counts a host's refusals; below the limit ``until`` is not in the future.
quarantine = make_table(
    'quarantine',
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', make_name_type(), primary_key=True),
    sa.Column('until', sa.Double),
    sa.Column('since', sa.Double, nullable=False),
    sa.Column('refusals', sa.Integer, nullable=False),
    sa.Column('reason', make_text_type(), nullable=False),
)

#: Rows stay for ever: the epoch of a scope must never fall.
lease = make_table(
    'lease',
    sa.Column('scope', make_name_type(), primary_key=True),
    sa.Column('owner', sa.Unicode(255), nullable=False),
    sa.Column('epoch', sa.BigInteger, nullable=False),
    sa.Column('until', sa.Double, nullable=False),
    sa.Column('policy_hash', sa.String(128), nullable=False),
    sa.Column('planned_at', sa.Double),
    # rows.CycleRecord as JSON; an engine of the release before leaves it as it was.
    sa.Column('cycle', make_text_type()),
)

#: Executors that run, and which scopes they serve: a JSON list, NULL for all.
executor = make_table(
    'executor',
    sa.Column('name', make_name_type(), primary_key=True),
    sa.Column('scopes', make_text_type()),
    sa.Column('seen_at', sa.Double, nullable=False),
)

#: Moves that each plan has spent. No code reads the rows, and only engines of the previous release
#: write them: without the table these could store no plan. The next release may drop it.
budget = make_table(
    'budget',
    sa.Column('plan_id', sa.String(36), sa.ForeignKey('plan.plan_id', name='budget_plan'),
              primary_key=True),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('spent_at', sa.Double, nullable=False),
    sa.Column('moves', sa.Integer, nullable=False),
    sa.Index('budget_scope_spent', 'scope', 'spent_at'),
)

#: Hosts whose pack drain goes on in the next cycle.
drain = make_table(
    'drain',
    sa.Column('scope', make_name_type(), primary_key=True),
    sa.Column('host', make_name_type(), primary_key=True),
    sa.Column('since', sa.Double, nullable=False),
)

#: Deadlines of drains that people have ordered. A row counts while the host is disabled for this
#: reason.
drain_order = make_table(
    'drain_order',
    sa.Column('host', make_name_type(), primary_key=True),
    sa.Column('deadline', sa.Double, nullable=False),
    sa.Column('disabled_reason', sa.Unicode(255), nullable=False),
    sa.Column('ordered_at', sa.Double, nullable=False),
    sa.Column('ordered_by', sa.Unicode(255), nullable=False),
)

#: Nothing moves in a scope (``kind`` 'scope') or anywhere ('cloud', its name is
#: empty); ``until`` NULL is until an operator resumes.
pause = make_table(
    'pause',
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', make_name_type(), primary_key=True),
    sa.Column('since', sa.Double, nullable=False),
    sa.Column('until', sa.Double),
    sa.Column('paused_by', make_name_type(), nullable=False),
    sa.Column('reason', make_text_type(), nullable=False),
)

#: Combined imbalance that a plan predicted, and its outcome. When the outcome is known,
#: ``before`` and ``foreseen`` are scaled to the load at that time.
outcome = make_table(
    'outcome',
    sa.Column('plan_id', sa.String(36), sa.ForeignKey('plan.plan_id', name='outcome_plan'),
              primary_key=True),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('planned_at', sa.Double, nullable=False),
    sa.Column('combined_before', sa.Double, nullable=False),
    sa.Column('combined_foreseen', sa.Double, nullable=False),
    sa.Column('combined_realised', sa.Double),
    sa.Column('realised_at', sa.Double),
    # For plans of mode pack alone, see model.PackingDensity.
    sa.Column('hosts_before', sa.Integer),
    sa.Column('hosts_foreseen', sa.Integer),
    sa.Column('hosts_realised', sa.Integer),
    sa.Column('overload_before', sa.Double),
    sa.Column('overload_foreseen', sa.Double),
    sa.Column('overload_realised', sa.Double),
    # Growth of the scope's load until the outcome was known.
    sa.Column('growth', sa.Double),
    sa.Index('outcome_scope_planned', 'scope', 'planned_at'),
    sa.Index('outcome_scope_realised', 'scope', 'realised_at', 'planned_at'),
)

#: Operators' decisions on plans: ``verb`` is approved, co-approved (more people must approve),
#: rejected, cancelled or superseded (by a drain); ``tasks`` is how many were meant, with those that
#: required them.
decision = make_table(
    'decision',
    sa.Column('decision_id', sa.String(36), primary_key=True),
    sa.Column('plan_id', sa.String(36),
              sa.ForeignKey('plan.plan_id', name='decision_plan', ondelete='CASCADE'),
              nullable=False),
    sa.Column('decided_at', sa.Double, nullable=False),
    sa.Column('decided_by', make_name_type(), nullable=False),
    sa.Column('verb', sa.String(16), nullable=False),
    sa.Column('tasks', sa.Integer, nullable=False),
    sa.Column('reason', make_text_type(), nullable=False),
    # True: announced to listeners; NULL, as commands write it: not yet.
    sa.Column('told', sa.Boolean),
    sa.Index('decision_plan_id', 'plan_id'),
    sa.Index('decision_told', 'told'),
)

#: Commands that have changed something; without a foreign key, so that they outlive plans.
audit = make_table(
    'audit',
    sa.Column('number', sa.Integer, primary_key=True, autoincrement=True),
    sa.Column('at', sa.Double, nullable=False),
    sa.Column('by_name', make_name_type(), nullable=False),
    sa.Column('command', sa.String(32), nullable=False),
    sa.Column('target', make_text_type(), nullable=False),
    sa.Column('reason', make_text_type(), nullable=False),
    sa.Index('audit_at', 'at'),
)

#: Since when plans of a scope have wanted to move instances for balance's sake.
wish = make_table(
    'wish',
    sa.Column('scope', make_name_type(), primary_key=True),
    sa.Column('since', sa.Double, nullable=False),
)

#: When a scope's circuit breaker opened last.
breaker = make_table(
    'breaker',
    sa.Column('scope', make_name_type(), primary_key=True),
    sa.Column('tripped_at', sa.Double, nullable=False),
)

#: One row: each claim of a task updates it first, so that counting against
#: the caps and claiming are one step on every backend.
gate = make_table(
    'gate',
    sa.Column('name', sa.String(16), primary_key=True),
    sa.Column('passes', sa.BigInteger, nullable=False),
)

request = make_table(
    'request',
    sa.Column('request_id', make_name_type(), primary_key=True),
    sa.Column('host', make_name_type(), nullable=False),
    sa.Column('kind', sa.String(16), nullable=False),
    sa.Column('document', make_text_type(), nullable=False),
    sa.Column('digest', sa.String(64), nullable=False),
    sa.Column('received_at', sa.Double, nullable=False),
    sa.Column('progress', make_text_type()),
    sa.Column('plan_id', sa.String(36)),
    sa.Column('worker', sa.Unicode(255)),
    sa.Column('heartbeat_at', sa.Double),
    sa.Column('reply', make_text_type()),
    sa.Column('failed', sa.Boolean),
    sa.Column('ended_at', sa.Double),
    sa.Column('told_at', sa.Double),
    # A token of authorization.request_authorization.
    sa.Column('authorization', make_text_type()),
    sa.Index('request_ended', 'ended_at'),
    sa.Index('request_plan_id', 'plan_id'),
)

#: The newest notice to the owner of each instance: model.MoveNotice, and the scope of its engine.
notice = make_table(
    'notice',
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('project_id', sa.Unicode(255), nullable=False),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('host', make_name_type(), nullable=False),
    sa.Column('reason', sa.String(16), nullable=False),
    sa.Column('noticed_at', sa.Double, nullable=False),
    sa.Column('movable_from', sa.Double, nullable=False),
    sa.Column('valid_until', sa.Double, nullable=False),
    sa.Column('used_at', sa.Double),
    # When all listeners had got it.
    sa.Column('announced_at', sa.Double),
    # NULL, as an engine of the release before writes it: it names no shutdown.
    sa.Column('may_shut_down', sa.Boolean),
    sa.Index('notice_valid_until', 'valid_until'),
    sa.Index('notice_noticed_at', 'noticed_at'),
)

#: model.Campaign. ``live_scope`` is the scope while the campaign lives and NULL once it has ended:
#: UNIQUE then means one live campaign per scope. ``windows``: a JSON list of texts.
campaign = make_table(
    'campaign',
    sa.Column('campaign_id', sa.String(36), primary_key=True),
    sa.Column('scope', make_name_type(), nullable=False),
    sa.Column('live_scope', make_name_type()),
    sa.Column('reason', sa.Unicode(255), nullable=False),
    sa.Column('together', sa.Integer, nullable=False),
    sa.Column('created_at', sa.Double, nullable=False),
    sa.Column('created_by', sa.Unicode(255), nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('windows', make_text_type(), nullable=False),
    sa.Column('opened', sa.Boolean, nullable=False),
    sa.Column('held_by', sa.Unicode(255), nullable=False),
    sa.Column('held_because', make_text_type(), nullable=False),
    sa.Column('waits', make_text_type(), nullable=False),
    sa.Column('migrations', sa.Integer, nullable=False),
    sa.Column('seconds', sa.Double),
    sa.Column('ended_at', sa.Double),
    # A token of authorization.campaign_authorization; NULL: none.
    sa.Column('authorization', make_text_type()),
    sa.Column('changed_at', sa.Double),
    # Steps in a row that gave way because of Nova; NULL: none.
    sa.Column('refusals', sa.Integer),
    sa.UniqueConstraint('live_scope', name='campaign_live_scope'),
    sa.Index('campaign_created', 'created_at'),
)

#: model.CampaignHost, by its campaign and its name.
campaign_host = make_table(
    'campaign_host',
    sa.Column('campaign_id', sa.String(36),
              sa.ForeignKey('campaign.campaign_id', name='campaign_host_campaign'),
              primary_key=True),
    sa.Column('host', make_name_type(), primary_key=True),
    sa.Column('position', sa.Integer, nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('since', sa.Double, nullable=False),
    sa.Column('disabled_at', sa.Double),
    sa.Column('worker', sa.Unicode(255)),
    # Of a held host: when listeners got the news. Else as asked_at, for engines of the release
    # before, which know no other column.
    sa.Column('announced_at', sa.Double),
    sa.Column('detail', make_text_type(), nullable=False),
    # When an engine last asked Nova to disable or enable the host.
    sa.Column('asked_at', sa.Double),
)

#: Readings of the cloud that engines publish. ``version`` rises with each publication; ``format``
#: names the encoding of the parts; ``parts``: JSON, the version of each part by its name.
reading = make_table(
    'reading',
    sa.Column('reading_id', sa.String(36), primary_key=True),
    sa.Column('engine', sa.Unicode(255), nullable=False),
    sa.Column('version', sa.BigInteger, nullable=False),
    sa.Column('format', sa.String(16), nullable=False),
    sa.Column('taken_at', sa.Double, nullable=False),
    sa.Column('published_at', sa.Double, nullable=False),
    sa.Column('parts', make_text_type(), nullable=False),
)

#: The bytes of a part, divided into rows that each backend takes in one statement.
reading_part = make_table(
    'reading_part',
    sa.Column('reading_id', sa.String(36), primary_key=True),
    sa.Column('name', sa.String(64), primary_key=True),
    sa.Column('number', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('version', sa.BigInteger, nullable=False),
    sa.Column('data', make_bytes_type(), nullable=False),
)

#: The newest reading of each scope.
reading_scope = make_table(
    'reading_scope',
    sa.Column('scope', make_name_type(), primary_key=True),
    sa.Column('reading_id', sa.String(36), nullable=False),
    sa.Index('reading_scope_reading', 'reading_id'),
)
