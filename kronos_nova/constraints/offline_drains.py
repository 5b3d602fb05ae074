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

"""Drains that shut an instance down after its live migration did not arrive in time."""

from kronos_nova import model
from kronos_nova.constraints import contracts
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views

#: Statements of a contract by which a shutdown is welcome.
CONSENTS = frozenset({model.Disruption.COLD_OK, model.Disruption.POWEROFF_OK})


def is_admitted(view: views.CloudView, move: model.Move) -> bool:
    """Return whether the move is to be made offline: shut down, moved cold, started again.

    Only drains are.
    """
    return move.phase is model.Phase.EVACUATE and find_obstacle(view, move) is None


def find_obstacle(view: views.CloudView, move: model.Move) -> str | None:
    """Return why a drain may not shut the instance down; None: it may.

    The newest migration of the instance was a live one off the same host, and late. What an owner
    says counts in full.
    """
    instance, option = view.find_instance(move.instance_uuid), view.options.drain_offline
    if option == model.OfflineDrains.NEVER:
        return 'offline: [engine] drain_offline is never'
    if view.find_late_drain(move.instance_uuid) != move.from_host:
        return (f'offline: its newest migration is no late live one of a drain off '
                f'{move.from_host}')
    if instance is None or instance.status != statuses.ACTIVE:
        return 'offline: it is not active'
    if option == model.OfflineDrains.CONSENT and not any(
            stated.disruption in CONSENTS for stated in instance.contracts):
        return 'offline: no contract says cold-ok or poweroff-ok'
    full = contracts.count_in_full(view.options.contracts)
    if any(limit.holds and limit.notice is not None
           for limit in contracts.list_limits(view, move, full)):
        return 'offline: its owner asks for notice, and has had none'
    return contracts.find_method_obstacle(view, move, model.MoveMethod.OFFLINE, full)
