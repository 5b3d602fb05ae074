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

"""Completion of a live migration by force, through Nova.

Nova's compute node chooses the way: post-copy where ``live_migration_permit_post_copy`` is set,
else a pause of the guest until the rest is sent; if the migration then fails, Nova resumes the
guest on its source.
Source: nova.virt.libvirt.migration, run_tasks and run_recover_tasks.
"""

from collections.abc import Callable
import dataclasses

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import live_copies
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import records
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import nova_responses

#: The event that begins once the guest runs on its destination.
#: Source: nova.compute.manager, _post_live_migration.
_ARRIVED = 'compute_post_live_migration_at_destination'


class ForcedCompletion:
    """Steps of a completion by force."""

    def __init__(self, nova: nova_api.NovaApi, options: model.PlanningOptions) -> None:
        self._nova = nova
        self._options = dataclasses.replace(
            options, contracts=contracts.count_in_full(options.contracts))

    def read_copy(self, task: model.Task, marker: str) -> escalation.CopySample | None:
        """Return the amounts of our migration: see :class:`base.Executor`.

        :raises ApiError: Nova could not be read.
        """
        copy = self._find_own_copy(task, marker)
        if copy is None and self._is_in_postcopy(task, marker):
            return escalation.CopySample(0.0, 0, 0, is_postcopy=True)
        if (copy is None or copy.status != live_copies.RUNNING or copy.updated_at is None
                or copy.sent is None or copy.remaining is None):
            return None
        return escalation.CopySample(copy.updated_at, copy.sent, copy.remaining)

    def _find_own_copy(self, task: model.Task, marker: str) -> live_copies.LiveCopy | None:
        """Find our migration by its UUID, which an earlier look has found."""
        reference = nova_responses.find_reference(marker)
        return next((copy for copy in live_copies.list_copies(self._nova, task.instance_uuid)
                     if copy.uuid == reference), None)

    def _is_in_postcopy(self, task: model.Task, marker: str) -> bool:
        """Return whether our migration, which is no copy under way, is in post-copy."""
        reference = nova_responses.find_reference(marker)
        return any(migration.uuid == reference and migration.status == live_copies.POSTCOPY
                   for migration in self._nova.list_migrations(task.instance_uuid))

    def force_completion(self, task: model.Task, marker: str,
                         may_send: Callable[[], bool]) -> str | None:
        """Ask Nova to complete our migration: see :class:`base.Executor`."""
        uuid, problem = task.instance_uuid, 'its live migration could not be completed by force: '
        try:
            copy = self._find_own_copy(task, marker)
            if copy is None or copy.status != live_copies.RUNNING:
                return 'Nova was not asked: the migration is not under way any more'
        except api.ApiError as exc:
            raise exception.HeldUp(instance_uuid=uuid, problem=problem + exc.problem) from None
        try:
            response = live_copies.force_completion(self._nova, uuid, copy.id, may_send)
        except api.ApiError as exc:
            kind = exception.NovaClientError if exc.sent else exception.HeldUp
            raise kind(instance_uuid=uuid, problem=problem + exc.problem) from None
        if 200 <= response.status_code < 300:
            return None
        refusal = self._nova.api.describe_refusal(response, live_copies.FORCE_POLICY)
        if response.status_code >= 500:
            raise exception.NovaClientError(instance_uuid=uuid, problem=problem + refusal)
        return f'Nova refused: {refusal}'

    def find_obstacle(self, task: model.Task, now: float) -> str | None:
        """Return why a contract allows no shutdown, by the instance as Nova shows it now.

        A pause of a guest, or its loss during post-copy, is as bad as a shutdown. What an owner
        says counts in full: a cap or a deadline for owners lets an instance move, and does not make
        a longer interruption welcome.

        :raises ApiError: Nova could not be read.
        """
        self._nova.negotiate_microversions()
        instance = dataclasses.replace(self._nova.read_server(task.instance_uuid).instance,
                                       status=statuses.ACTIVE)
        view = cluster_view.ClusterView(
            model.Cluster({}, {instance.uuid: instance}, {}, taken_at=now), self._options)
        return contracts.find_method_obstacle(
            view, model.Move(instance.uuid, task.from_host, task.to_host, task.phase),
            model.MoveMethod.OFFLINE)

    def read_seconds(self, task: model.Task) -> float | None:
        """Return the seconds from our request until the instance ran on its destination.

        By Nova's own clocks, in whole seconds; None: Nova does not have both times for its newest
        live migration, or another user has asked as well.

        :raises ApiError: Nova could not be read.
        """
        uuid = task.instance_uuid
        actions = [records.JsonRecord('Nova', 'action', action, identity='request_id')
                   for action in self._nova.list_actions(uuid)]
        moved = next((action for action in actions
                      if action.optional_text('action') == nova_api.LIVE_MIGRATION), None)
        later = actions if moved is None else actions[:actions.index(moved)]
        requests = [action for action in later
                    if action.optional_text('action') == live_copies.FORCE_COMPLETE]
        forced, own = requests[0] if len(requests) == 1 else None, self._nova.user_id()
        if forced is not None and own and forced.optional_text('user_id') not in (None, own):
            return None
        if forced is None or moved is None:
            return None
        events = [records.JsonRecord('Nova', 'event', event, identity='event')
                  for event in self._nova.action_events(uuid, moved.read_text('request_id'))]
        arrived = next((event.optional_time('start_time') for event in events
                        if event.optional_text('event') == _ARRIVED), None)
        began = forced.optional_time('start_time')
        if began is None or arrived is None or arrived < began:
            return None
        return arrived - began
