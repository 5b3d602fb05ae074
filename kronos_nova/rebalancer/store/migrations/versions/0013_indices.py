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

"""Indices for databases with a million tasks that have ended."""

from alembic import op

revision = '0013'
down_revision = '0012'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index('task_scope_ended', 'task', ['scope', 'state', 'completed_at'])
    op.create_index('task_from_host', 'task', ['from_host', 'completed_at'])
    op.create_index('task_instance', 'task', ['instance_uuid', 'created_at'])
    op.create_index('cooldown_until', 'cooldown', ['until'])
    op.create_index('outcome_scope_realised', 'outcome', ['scope', 'realised_at', 'planned_at'])
    op.create_index('decision_told', 'decision', ['told'])
    op.create_index('swap_state_logged', 'swap', ['state', 'logged'])
    op.drop_index('swap_state', 'swap')
