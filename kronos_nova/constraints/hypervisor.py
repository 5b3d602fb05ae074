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


"""Live migration leads to the same kind of hypervisor, never to an older one.

Source: nova.conductor.tasks.live_migrate,
_check_compatible_with_source_hypervisor. Nova cold-migrates to any.
"""

from kronos_nova import model
from kronos_nova.constraints import requests
from kronos_nova.constraints import rules
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views

VGPU = 'VGPU'
#: QEMU 8.1.0: the first to live-migrate mediated devices.
#: Source: nova.virt.libvirt.driver, MIN_MDEV_LIVEMIG_QEMU_VERSION.
MEDIATED = 8_001_000


def hypervisor(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a live migration to another type of hypervisor, or to an older version.

    A vGPU also needs a version of MEDIATED on both hosts. An unknown version (0) refuses nothing.
    """
    instance = view.find_instance(move.instance_uuid)
    source, destination = view.find_host(move.from_host), view.find_host(move.to_host)
    if (instance is None or source is None or destination is None
            or statuses.choose_method(instance.status) is model.MoveMethod.COLD):
        return None
    if source.hypervisor_type != destination.hypervisor_type:
        return model.Rejection('hypervisor-type', f'{move.to_host} has another hypervisor than '
                                                  f'{move.from_host}')
    if (0 < destination.hypervisor_version < source.hypervisor_version
            and not view.options.skip_hypervisor_version_check_on_lm):
        return model.Rejection('hypervisor-older', f'{move.to_host} has an older hypervisor than '
                                                   f'{move.from_host}')
    for host in (source, destination):
        if 0 < host.hypervisor_version < MEDIATED and has_vgpu(instance):
            return model.Rejection('vgpu-hypervisor', f'{host.name} has a QEMU older than 8.1.0, '
                                                      'which moves no vGPU live')
    return None


HYPERVISOR_RULE = rules.Rule(
    hypervisor,
    reads=frozenset({rules.CloudFact.HYPERVISOR, rules.CloudFact.STATUS, rules.CloudFact.VGPU,
                     rules.CloudFact.EXTRA_SPECS}),
    codes={
        'hypervisor-type': rules.RejectionCode(
            meaning='The destination has another hypervisor_type: not moved live.',
            remedy=None,
            retry=rules.RetryClass.ELSEWHERE),
        'hypervisor-older': rules.RejectionCode(
            meaning='The destination has an older hypervisor_version: not moved live, unless '
                    'skip_hypervisor_version_check_on_lm.',
            remedy='the destination is upgraded, or Nova and we skip the check '
                   '(skip_hypervisor_version_check_on_lm)',
            retry=rules.RetryClass.ELSEWHERE),
        'vgpu-hypervisor': rules.RejectionCode(
            meaning='It has a VGPU, and the QEMU of either host is older than 8.1.0: not moved '
                    'live.',
            remedy='QEMU 8.1.0 or later on both hosts',
            retry=rules.RetryClass.ELSEWHERE)})


def has_vgpu(instance: model.Instance) -> bool:
    """Return True when the instance's allocations, or its flavor, have a mediated device."""
    return bool(instance.claims.get(VGPU)) or any(
        VGPU in group.resources
        for group in requests.parse_groups(instance.extra_specs or {}).values())
