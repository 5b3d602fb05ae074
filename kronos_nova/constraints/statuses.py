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

"""Methods by which Nova can move an instance in each of its statuses.

Source: nova.compute.api, the vm_state that ``live_migrate`` (active, paused) and ``resize``
(active, stopped) require. Our own limit: only a drain moves instances that do not run, because only
a drained host has to be empty.
"""

from kronos_nova import model

ACTIVE = 'ACTIVE'
PAUSED = 'PAUSED'
STOPPED = 'SHUTOFF'
UNCONFIRMED = 'VERIFY_RESIZE'

#: Remedies for an instance that Nova cannot move in its status.
REMEDIES = {
    STOPPED: 'start it, or set [engine] cold_migrate_stopped',
    PAUSED: 'unpause it',
    'SUSPENDED': 'Nova moves no suspended instance; resume it',
    'SHELVED': 'its host keeps its disks until it is offloaded; offload it (openstack server '
               'shelve --offload)',
    'RESCUE': 'Nova moves no instance in rescue mode; unrescue it',
    'ERROR': 'it is left as it is; repair, rebuild or delete it',
    'SOFT_DELETED': 'it keeps its place until Nova reclaims it; delete it with force or restore '
                    'it',
    'BUILD': 'it is moved when it has been built',
    UNCONFIRMED: 'confirm or revert its resize'}


def choose_method(status: str) -> model.MoveMethod:
    """Return the method for a movable instance of this status."""
    return model.MoveMethod.COLD if status == STOPPED else model.MoveMethod.LIVE


def is_method_accepted(method: model.MoveMethod, status: str) -> bool:
    """Return True when Nova accepts the method for an instance of this status."""
    if method is model.MoveMethod.OFFLINE:
        return status in (ACTIVE, STOPPED)
    return (status == STOPPED) == method.is_cold


def is_movable(instance: model.Instance, phase: model.Phase,
               options: model.PlanningOptions) -> bool:
    """Return True when the instance's status lets Nova move it, and the phase justifies it."""
    if phase not in (model.Phase.EVACUATE, model.Phase.REQUESTED):
        return instance.status == ACTIVE
    return instance.status in (ACTIVE, PAUSED) or (
        instance.status == STOPPED and options.cold_migrate_stopped)
