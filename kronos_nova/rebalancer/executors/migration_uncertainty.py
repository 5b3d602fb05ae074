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

"""Doubts about a task in flight: contradictions with Nova, as the task's row keeps them."""

from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.store import rows

SAID = {base.MigrationStage.ABSENT: 'Nova shows no migration of this instance',
        base.MigrationStage.SETTLING: 'its migration failed, and not all that it had taken is '
                                      'given back',
        base.MigrationStage.UNTOLD: 'its migration failed, and Nova has not said why',
        base.MigrationStage.CANCELLED: 'it was aborted, and Nova may still put its instance into '
                                       'ERROR',
        base.MigrationStage.LEFT: 'Nova works on it no more, and its record says otherwise'}
#: Uses the same column but is no doubt: Nova does not change the migration.
UNCHANGED = 'Nova has not changed its migration'
#: Describes a row that an executor of the previous release has written.
UNNAMED = 'what Nova shows contradicts it'


def encode_doubt(stage: base.MigrationStage, since: float) -> str:
    """Return the doubt with its time, as the row keeps it.

    An executor of the previous release sets the time alone.
    """
    return f'{stage}@{since:.0f}'


def find_doubt_since(row: rows.TaskRow, stage: base.MigrationStage) -> float | None:
    """Return when this doubt began; None: the row has another doubt, or no doubt."""
    if row.doubt_since is None or row.doubt != encode_doubt(stage, row.doubt_since):
        return None
    return row.doubt_since


def describe_doubt(row: rows.TaskRow) -> str | None:
    """Describe the doubt about a task, as a clause; None: it has no doubt, or is over."""
    if row.doubt_since is None or row.task.state.is_terminal:
        return None
    if rows.find_unchanged_since(row.doubt, row.doubt_since) is not None:
        return UNCHANGED
    return next((text for stage, text in SAID.items() if find_doubt_since(row, stage) is not None),
                UNNAMED)
