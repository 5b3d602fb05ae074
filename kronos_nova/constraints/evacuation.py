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

"""Instances that Nova can rebuild on another host after their own has failed.

Source: nova.compute.api, ``evacuate``. It accepts ACTIVE, SHUTOFF and ERROR; an administrator
resets the state of another instance to ERROR first, so that the status forbids nothing here.
"""

import dataclasses

from kronos_nova import model
from kronos_nova.constraints import requests
from kronos_nova.constraints import rules
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views

#: Extra specs that nova-compute or Cyborg judges by what Kronos does not read: NUMA cells, huge
#: pages, dedicated CPUs, PCI devices, accelerators and encrypted memory.
UNREAD_SPECS = frozenset({
    requests.PCI_ALIAS, 'accel:device_profile', 'hw:cpu_policy', 'hw:cpu_realtime',
    'hw:cpu_dedicated_mask', 'hw:emulator_threads_policy', 'hw:mem_encryption', 'hw:mem_page_size',
    'hw:pmem'})
#: The same of images.
UNREAD_IMAGE = frozenset({
    'hw_cpu_policy', 'hw_cpu_realtime', 'hw_emulator_threads_policy', 'hw_mem_encryption',
    'hw_mem_page_size'})

def rebuild(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse an instance that Nova rebuilds on no other host, or whose claims cannot be judged."""
    instance = view.find_instance(move.instance_uuid)
    if instance is None:
        return None
    if instance.pinned is not None:
        return model.Rejection('evacuation-unknown', f'instance {instance.uuid}: {instance.pinned}')
    specs, image = instance.extra_specs, instance.image_properties
    if 'hw:tpm_version' in (specs or {}) or 'hw_tpm_version' in (image or {}):
        return model.Rejection('evacuation-vtpm', f'instance {instance.uuid} has a vTPM, with '
                                                  'which Nova evacuates nothing')
    if (specs or image or instance.claims.get('PCPU')) and (name := _find_unread(instance)):
        return model.Rejection('evacuation-unknown', f'instance {instance.uuid}: Kronos does not '
                                                     f'read what {name} needs of a host')
    return None


def _find_unread(instance: model.Instance) -> str | None:
    """Return a request of the flavor or the image that no rule judges for a new host; or None."""
    for name in sorted(instance.extra_specs or ()):
        if name in UNREAD_SPECS or name.startswith('hw:numa_'):
            return name
    for name in sorted(instance.image_properties or ()):
        if name in UNREAD_IMAGE or name.startswith(('hw_numa_', 'trait:')):
            return name
    return 'PCPU' if instance.claims.get('PCPU') else None


REBUILD_RULE = rules.Rule(
    rebuild, kind=rules.RuleKind.FAILURE,
    keys=frozenset({'hw:tpm_version', 'hw_tpm_version'}) | UNREAD_SPECS | UNREAD_IMAGE,
    codes={
        'evacuation-unknown': rules.RejectionCode(
            meaning='It has allocations that cannot be judged, or asks for NUMA cells, huge pages, '
                    'dedicated CPUs, PCI devices, accelerators, encrypted memory or traits of an '
                    'image: the text says which. Only for the supposed failure of a host.',
            remedy=None,
            retry=None),
        'evacuation-vtpm': rules.RejectionCode(
            meaning='It has a vTPM (hw:tpm_version, hw_tpm_version): Nova evacuates no such '
                    'instance. Only for the supposed failure of a host.',
            remedy=None,
            retry=None)})


def affinity_in_flight(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse an instance while a member of its hard affinity group is in flight.

    Nova may count the member at one end of its migration alone.
    """
    for group in view.list_groups_of(move.instance_uuid):
        if group.policy is model.GroupPolicy.AFFINITY:
            for uuid in sorted(group.members):
                if uuid != move.instance_uuid and view.is_in_flight(uuid):
                    return model.Rejection('affinity-in-flight', f'instance {uuid} of server group '
                                                                 f'{group.uuid} is migrating')
    return None


AFFINITY_IN_FLIGHT_RULE = rules.Rule(
    affinity_in_flight, kind=rules.RuleKind.FAILURE,
    codes={
        'affinity-in-flight': rules.RejectionCode(
            meaning='A member of its affinity group is migrating. Only for the supposed failure of '
                    'a host.',
            remedy='the member that is migrating arrives first',
            retry=None)})


def stop_instance(instance: model.Instance) -> model.Instance:
    """Return the instance as its failed host leaves it: it does not run, and Nova is idle.

    Rules about live migration judge by the status.
    """
    if instance.status == statuses.STOPPED and instance.task_state is None:
        return instance
    return dataclasses.replace(instance, status=statuses.STOPPED, task_state=None)
