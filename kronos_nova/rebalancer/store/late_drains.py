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

"""Live migrations of drains that were over at their deadline: the next one may be offline."""

from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

#: For so long a drain remembers that a live migration of an instance was late.
REMEMBERED = 7 * 86400.0
_task = tables.task


def list_late_drains(connection: sa.Connection, now: float) -> frozenset[str]:
    """Return the instances whose newest migration was a live one of a drain, and ended too late.

    Tasks that did not reach Nova do not count.
    """
    since = now - REMEMBERED
    late = {row.instance_uuid: row.completed_at
            for row in connection.execute(*_select_late_drains(since))}
    if not late:
        return frozenset()
    newest = connection.execute(
        sa.select(_task.c.instance_uuid, sa.func.max(_task.c.completed_at).label('ended_at'))
        .where(_task.c.completed_at > since, _task.c.submitted_at.is_not(None),
               _task.c.instance_uuid.in_(sorted(late)))
        .group_by(_task.c.instance_uuid))
    return frozenset(row.instance_uuid for row in newest
                     if late[row.instance_uuid] >= row.ended_at)


@statements.build_once
def _select_late_drains(since: float) -> sa.Select[Any]:
    """Select a batch of late drains, the newest ones, in the order of their ends."""
    newest = sa.select(_task.c.instance_uuid, _task.c.completed_at).where(
        _task.c.completed_at > since, _task.c.submitted_at.is_not(None),
        _task.c.error_type == exception.MigrationTimeout.wire_type,
        sa.func.lower(_task.c.state) == model.TaskState.FAILED.value,
        sa.func.lower(_task.c.phase) == model.Phase.EVACUATE.value,
        sa.func.lower(_task.c.method) == model.MoveMethod.LIVE.value,
        ).order_by(_task.c.completed_at.desc()).limit(statements.BATCH).subquery()
    return sa.select(newest).order_by(newest.c.completed_at)
