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


"""Devices that keep Nova from moving an instance, or from moving it live.

Source: nova.compute.api, live_migrate and resize with their decorators;
nova.conductor.tasks.live_migrate. The rules judge only devices that Nova shows.
"""

from kronos_nova import model
from kronos_nova.constraints import hypervisor
from kronos_nova.constraints import requests
from kronos_nova.constraints import rules
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views

#: Nova's power states in which a guest can be moved live.
RUNNING, PAUSED = 1, 3
#: Texts that Nova reads as true.
#: Source: oslo_utils.strutils, TRUE_STRINGS.
TRUE = frozenset({'1', 't', 'true', 'on', 'y', 'yes'})


#: Extra specs and image properties with which the rule ``devices`` may refuse.
EXTRA_SPECS = frozenset({
    'accel:device_profile', 'hw:mem_encryption', 'hw:tpm_version', requests.PCI_ALIAS})
IMAGE = frozenset({'hw_mem_encryption', 'hw_tpm_version'})
#: Resource classes that an instance without a device claims.
PLAIN_CLAIMS = frozenset({'VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB'})
#: Nova's trait of PCI devices that serve one instance only.
#: Source: nova.compute.pci_placement_translator.
ONE_TIME_USE = 'HW_PCI_ONE_TIME_USE'


def needs_device_check(instance: model.Instance) -> bool:
    """Return True when the rule ``devices`` may refuse the instance. A quick test."""
    return (not PLAIN_CLAIMS.issuperset(instance.claims)
            or has_device_settings(instance))


def has_device_settings(instance: model.Instance) -> bool:
    """Return whether an instance without a device's claims needs a device check."""
    specs, image = instance.extra_specs, instance.image_properties
    return (instance.power_state not in (None, RUNNING, PAUSED)
            or bool(specs and (not EXTRA_SPECS.isdisjoint(specs)
                               or any(key.endswith(f':{hypervisor.VGPU}') for key in specs)))
            or bool(image and not IMAGE.isdisjoint(image)))


def parse_boolean(text: str | None) -> bool:
    return text is not None and text.strip().lower() in TRUE


def _uses_one_time_device(instance: model.Instance, host: model.Host) -> bool:
    """Return True when the instance may hold a device that stays reserved after a move.

    Allocations are known by class alone: any such device in use counts.
    """
    return any(ONE_TIME_USE in provider.traits and provider.used.get(name)
               for provider in host.nested for name in provider.inventories
               if instance.claims.get(name))


def devices(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that the instance's devices, encrypted memory or power state prevent."""
    instance = view.find_instance(move.instance_uuid)
    if instance is None:
        return None
    uuid = instance.uuid
    extra_specs = instance.extra_specs or {}
    if extra_specs.get('accel:device_profile'):
        return model.Rejection('accelerators', f'instance {uuid} has accelerators of Cyborg, with '
                                               'which Nova moves nothing')
    source = view.find_host(move.from_host)
    if source is not None and _uses_one_time_device(instance, source):
        return model.Rejection('one-time-use', f'instance {uuid} has a PCI device for one use: '
                                               'a move uses up one more')
    if statuses.choose_method(instance.status) is model.MoveMethod.COLD:
        return None
    if instance.power_state not in (None, RUNNING, PAUSED):
        return model.Rejection('power-state', f'instance {uuid} is not running on its host, '
                                              'although Nova\'s status says so')
    image = instance.image_properties or {}
    if (parse_boolean(extra_specs.get('hw:mem_encryption'))
            or parse_boolean(image.get('hw_mem_encryption'))):
        return model.Rejection('memory-encryption', f'the memory of instance {uuid} is encrypted')
    if (('hw:tpm_version' in extra_specs or 'hw_tpm_version' in image)
            and extra_specs.get('hw:tpm_secret_security') != 'host'):
        return model.Rejection('vtpm', f'instance {uuid} has a vTPM whose secret is not the '
                                       'host\'s (hw:tpm_secret_security)')
    aliases = {part.partition(':')[0].strip()
               for part in extra_specs.get(requests.PCI_ALIAS, '').split(',')} - {''}
    if not aliases <= view.options.live_migratable_pci_aliases:
        return model.Rejection('pci-passthrough', f'instance {uuid} has a PCI device whose alias '
                                                  'is not in live_migratable_pci_aliases')
    if view.options.live_migration_permit_post_copy and (
            aliases or hypervisor.has_vgpu(instance)):
        return model.Rejection('post-copy', f'instance {uuid} has a VFIO device or a vGPU, which '
                                            'QEMU does not move live while post-copy is permitted')
    return None


DEVICES_RULE = rules.Rule(
    devices, kind=rules.RuleKind.ALONE, keys=EXTRA_SPECS | IMAGE,
    codes={
        'accelerators': rules.RejectionCode(
            meaning='Its flavor has accel:device_profile: Nova moves it neither live nor cold.',
            remedy=None,
            retry=rules.RetryClass.FINAL),
        'one-time-use': rules.RejectionCode(
            meaning='A PCI device of its host that it may have, by the resource class, has the '
                    'trait HW_PCI_ONE_TIME_USE. Nova would move it, stopped instances too: the '
                    "device that it leaves stays reserved, and the destination's is used up.",
            remedy=None,
            retry=rules.RetryClass.FINAL),
        'power-state': rules.RejectionCode(
            meaning='It is ACTIVE in Nova, but its guest does not run on its host.',
            remedy='it runs on its host as Nova says, or is stopped in Nova',
            retry=rules.RetryClass.FINAL),
        'memory-encryption': rules.RejectionCode(
            meaning='hw:mem_encryption or hw_mem_encryption is true: not moved live.',
            remedy=None,
            retry=rules.RetryClass.FINAL),
        'vtpm': rules.RejectionCode(
            meaning='It has a vTPM (hw:tpm_version, hw_tpm_version), and hw:tpm_secret_security '
                    'is not host: not moved live.',
            remedy='a flavor with hw:tpm_secret_security=host',
            retry=rules.RetryClass.FINAL),
        'pci-passthrough': rules.RejectionCode(
            meaning='Its flavor has pci_passthrough:alias with an alias that is not in '
                    'live_migratable_pci_aliases: not moved live.',
            remedy='an alias that Nova moves live, named in live_migratable_pci_aliases',
            retry=rules.RetryClass.FINAL),
        'post-copy': rules.RejectionCode(
            meaning='live_migration_permit_post_copy is set, and its flavor has '
                    'pci_passthrough:alias, or it has a VGPU: not moved live. QEMU says VFIO '
                    'migration is not supported with postcopy migration; Nova does not look '
                    'before.',
            remedy='live_migration_permit_post_copy is off on the compute nodes, and here',
            retry=rules.RetryClass.FINAL)})


def _has_live_device(host: model.Host, name: str) -> bool:
    return any(requests.LIVE_MIGRATABLE in provider.traits
               for provider in host.nested if name in provider.inventories)


def destination_devices(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination with the instance's class of PCI devices, none movable live.

    Nova's PciPassthroughFilter refuses it as well. Source: nova.pci.stats,
    _filter_pools_for_live_migratable_devices. Where the source's devices lack the trait, too, its
    nova-compute may be one that does not report the trait: Nova judges.
    """
    instance = view.find_instance(move.instance_uuid)
    if (instance is None or requests.PCI_ALIAS not in (instance.extra_specs or {})
            or statuses.choose_method(instance.status) is model.MoveMethod.COLD):
        return None
    source, destination = view.find_host(move.from_host), view.find_host(move.to_host)
    if source is None or destination is None:
        return None
    for name, amount in instance.claims.items():
        if (amount and _has_live_device(source, name)
                and any(name in provider.inventories for provider in destination.nested)
                and not _has_live_device(destination, name)):
            return model.Rejection('pci-destination', f'host {move.to_host} has {name}, but none '
                                                      'that Nova moves live')
    return None


DESTINATION_DEVICES_RULE = rules.Rule(
    destination_devices,
    reads=frozenset({rules.CloudFact.EXTRA_SPECS, rules.CloudFact.FLAVOR_TRAITS,
                     rules.CloudFact.STATUS}),
    codes={
        'pci-destination': rules.RejectionCode(
            meaning='Its flavor has pci_passthrough:alias, and no PCI device of its resource '
                    'class at the destination has the trait HW_PCI_LIVE_MIGRATABLE: not moved '
                    'live.',
            remedy='live_migratable is yes in [pci] device_spec of the destination',
            retry=rules.RetryClass.ELSEWHERE)})
