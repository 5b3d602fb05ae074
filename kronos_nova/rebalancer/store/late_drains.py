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

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

#: For so long a drain remembers that a live migration of an instance was late.
REMEMBERED = 7 * 86400.0
_LATE_TYPE = exception.MigrationTimeout.wire_type
_task = tables.task


def map_late_drains(connection: sa.Connection, now: float,
                    quarantined: Mapping[str, str]) -> dict[str, str]:
    """Return the instances whose newest migration was a live one of a drain, and ended too late.

    Tasks that did not reach Nova do not count. An instance that is quarantined for another reason
    is not among them, nor one whose quarantine an operator has lifted since: its next migration
    is to be a live one.

    :param quarantined: reasons of the quarantines in force, by instance.
    :returns: the host that each one did not leave.
    """
    since = now - REMEMBERED
    late = {row.instance_uuid: row
            for row in connection.execute(*_select_late_drains(since))
            if quarantined.get(row.instance_uuid, _LATE_TYPE).startswith(_LATE_TYPE)}
    if not late:
        return {}
    newest = connection.execute(
        sa.select(_task.c.instance_uuid, sa.func.max(_task.c.completed_at).label('ended_at'))
        .where(_task.c.completed_at > since, _task.c.submitted_at.is_not(None),
               _task.c.instance_uuid.in_(sorted(late)))
        .group_by(_task.c.instance_uuid))
    ended = {row.instance_uuid: row.ended_at for row in newest}
    lifted = audits.map_newest_lifts(connection, since)
    return {uuid: row.from_host for uuid, row in late.items()
            if uuid in ended  # else it was purged in between
            and row.completed_at >= max(ended[uuid], lifted.get(f'instance {uuid}', 0.0))}


@statements.build_once
def _select_late_drains(since: float) -> sa.Select[Any]:
    """Select a batch of late drains, the newest ones, in the order of their ends."""
    newest = sa.select(_task.c.instance_uuid, _task.c.from_host, _task.c.completed_at).where(
        _task.c.completed_at > since, _task.c.submitted_at.is_not(None),
        _task.c.error_type == _LATE_TYPE,
        sa.func.lower(_task.c.state) == model.TaskState.FAILED.value,
        sa.func.lower(_task.c.phase) == model.Phase.EVACUATE.value,
        sa.func.lower(_task.c.method) == model.MoveMethod.LIVE.value,
        ).order_by(_task.c.completed_at.desc()).limit(statements.BATCH).subquery()
    return sa.select(newest).order_by(newest.c.completed_at)
