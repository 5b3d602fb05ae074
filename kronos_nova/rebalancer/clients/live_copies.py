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

"""The amounts that a live migration copies, and the request to complete it by force."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import records

LIST_POLICY = 'servers:migrations:index'
FORCE_POLICY = f'{nova_records.POLICY}servers:migrations:force_complete'
#: The action by which Nova records such a request.
FORCE_COMPLETE = 'live_migration_force_complete'
#: The status in which Nova completes a live migration by force.
#: Source: nova.compute.api, live_migrate_force_complete.
RUNNING = 'running'
#: The status of a live migration whose guest runs on its destination already.
#: servers/{id}/migrations does not list it; os-migrations does.
#: Source: nova.virt.libvirt.migration, trigger_postcopy_switch; nova.db.main.api,
#: migration_get_in_progress_by_instance.
POSTCOPY = 'running (post-copy)'
_VERSION = '.'.join(map(str, nova_api.BASE))


@dataclasses.dataclass(frozen=True, slots=True)
class LiveCopy:
    """A record of servers/{id}/migrations: a live migration under way.

    ``sent``, ``remaining``: bytes of memory and disks, as Nova wrote them at ``updated_at`` (epoch
    seconds); None: the driver of its source does not tell, or has not yet.
    """

    id: int
    uuid: str
    status: str
    updated_at: float | None
    sent: int | None
    remaining: int | None


def list_copies(nova: nova_api.NovaApi, instance_uuid: str) -> list[LiveCopy]:
    """List the live migrations of an instance that are under way; there is one at most.

    A migration in post-copy is not among them.

    :raises ApiError: Nova could not be read.
    """
    what = f'live migrations of {instance_uuid}'
    body = nova.api.get(f'/servers/{instance_uuid}/migrations', what,
                        nova_records.POLICY + LIST_POLICY, _VERSION)
    return [_parse_copy(record) for record in nova.api.read_records(body, 'migrations', what)]


def force_completion(nova: nova_api.NovaApi, instance_uuid: str, migration_id: int,
                     may_send: Callable[[], bool]) -> Any:
    """Request once that Nova completes a live migration, by post-copy or by a pause of the guest.

    :param may_send: called directly before the request is sent.
    :returns: the response with any status.
    :raises ApiError: no answer; ``sent`` tells whether the request may be at work.
    """
    return nova.api.post(
        f'/servers/{instance_uuid}/migrations/{migration_id}/action',
        f'completion by force of the live migration of {instance_uuid}', _VERSION,
        {'force_complete': None}, may_send)


def _parse_copy(data: Mapping[str, Any]) -> LiveCopy:
    record = records.JsonRecord('Nova', 'migration', data)
    sent, remaining = (_sum_amounts(record, part) for part in ('processed', 'remaining'))
    return LiveCopy(
        id=record.read_amount('id'), uuid=record.read_identity('uuid'),
        status=record.read_text('status'), updated_at=record.optional_time('updated_at'),
        sent=sent, remaining=remaining)


def _sum_amounts(record: records.JsonRecord, part: str) -> int | None:
    """Return the bytes of memory and disks; None without those of the memory."""
    memory = record.optional_amount(f'memory_{part}_bytes')
    return None if memory is None else memory + (record.optional_amount(f'disk_{part}_bytes') or 0)
