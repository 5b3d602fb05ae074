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


"""Queries to Placement, compared with Nova's own queries."""

import random
from typing import Any
from urllib import parse

from nova import context
from nova import exception as nova_exception
from nova import objects
from nova.objects import fields
from nova.scheduler import request_filter
from nova.scheduler import utils
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import allocation_request

objects.register_all()

ROOT = '6c6c5d80-9b43-4d5c-8f43-0d7bb8a3d201'
#: Filters of Nova that no option switches on, and that need no database.
FILTERS = (
    request_filter.compute_status_filter, request_filter.accelerators_filter,
    request_filter.packed_virtqueue_filter, request_filter.ephemeral_encryption_filter,
    request_filter.virtio_sound_filter, request_filter.tpm_secret_security_filter)
BOOLS = ('true', 'False', 'yes', '0', 'nonsense')
SPECS: dict[str, tuple[str, ...]] = {
    'resources:VCPU': ('0', '1', '4', '-1', 'x'), 'resources:PCPU': ('2', '0'),
    'resources:MEMORY_MB': ('0', '100'), 'resources:DISK_GB': ('0', '7'),
    'resources:CUSTOM_FPGA': ('1', '2'), 'resources1:VGPU': ('1',), 'resources1:VCPU': ('2',),
    'resources_GPU:VGPU': ('1', '0'), 'resources_GPU:CUSTOM_X': ('3',),
    'trait:CUSTOM_A': ('required', 'forbidden', 'preferred'),
    'trait1:CUSTOM_B': ('required', 'forbidden'), 'trait_GPU:CUSTOM_C': ('required',),
    'group_policy': ('none', 'isolate', 'wrong'), 'quota:cpu_shares': ('10',),
    'capabilities:cpu_info': ('x',),
    'hw:cpu_policy': ('dedicated', 'shared', 'mixed'),
    'hw:cpu_dedicated_mask': ('0', '^0', '0-1', '1,3'), 'hw:cpu_realtime': BOOLS,
    'hw:cpu_realtime_mask': ('^0', '0-1,^0', '1-2'),
    'hw:cpu_thread_policy': ('isolate', 'require', 'prefer'),
    'hw:emulator_threads_policy': ('isolate', 'share'),
    'hw:mem_encryption': BOOLS, 'hw:mem_encryption_model': ('amd-sev', 'amd-sev-es'),
    'hw:pmem': ('small', 'small, big ,small', ''), 'hw:tpm_version': ('1.2', '2.0'),
    'hw:tpm_model': ('tpm-tis', 'tpm-crb'),
    'hw:tpm_secret_security': ('user', 'host', 'deployment'),
    'hw:pci_numa_affinity_policy': ('socket', 'required'),
    'os:secure_boot': ('required', 'disabled', 'optional'),
    'hw:maxphysaddr_mode': ('emulate', 'passthrough'),
    'accel:device_profile': ('mine',), 'hw:virtio_packed_ring': BOOLS,
    'hw:ephemeral_encryption': BOOLS, 'hw:ephemeral_encryption_format': ('luks', 'plain'),
    'hw:sound_model': ('virtio', 'ich6')}
IMAGE: dict[str, tuple[str, ...]] = {
    'hw_cpu_policy': ('dedicated', 'shared', 'mixed'),
    'hw_cpu_thread_policy': ('isolate', 'require', 'prefer'), 'hw_cpu_realtime_mask': ('^1',),
    'hw_mem_encryption': ('true', 'false'), 'hw_mem_encryption_model': ('amd-sev',),
    'hw_tpm_version': ('1.2', '2.0'), 'hw_tpm_model': ('tpm-tis', 'tpm-crb'),
    'hw_pci_numa_affinity_policy': ('socket',), 'os_secure_boot': ('required', 'disabled'),
    'hw_maxphysaddr_mode': ('emulate',), 'hw_firmware_stateless': ('true', 'false'),
    'hw_firmware_type': ('uefi', 'bios'), 'hw_machine_type': ('q35',),
    'hw_virtio_packed_ring': ('true', 'false'), 'hw_ephemeral_encryption': ('true', 'false'),
    'hw_ephemeral_encryption_format': ('luks',), 'hw_sound_model': ('virtio',)}


def drawn(rng: random.Random, table: dict[str, tuple[str, ...]], most: int) -> dict[str, str]:
    return {name: rng.choice(table[name])
            for name in rng.sample(sorted(table), rng.randint(0, most))}


def novas(instance: model.Instance, bfv: bool, disk: tuple[int, int, int]) -> Any:
    """Nova's own request, as pairs; NovaException where it would make none."""
    flavor = objects.Flavor(
        name='f', vcpus=instance.vcpus, memory_mb=instance.memory_mb, root_gb=disk[0],
        ephemeral_gb=disk[1], swap=disk[2], extra_specs=dict(instance.extra_specs or {}))
    spec = objects.RequestSpec(
        flavor=flavor, is_bfv=bfv, requested_resources=[], image=objects.ImageMeta(
            name='image', id=ROOT, properties=objects.ImageMetaProps.from_dict(
                dict(instance.image_properties or {}))),
        request_level_params=objects.RequestLevelParams())
    for each in FILTERS:
        each(context.get_admin_context(), spec)
    found = utils.ResourceRequest.from_request_spec(spec)
    found.get_request_group(None).in_tree = ROOT
    return sorted(parse.parse_qsl(found.to_querystring()))


def test_it_is_what_nova_would_ask() -> None:
    """Thousands of flavors and images, of which Nova refuses some."""
    rng = random.Random(5)
    compared = refused = pinned = grouped = 0
    for _ in range(4000):
        specs, image = drawn(rng, SPECS, 6), drawn(rng, IMAGE, 3)
        disk = rng.choice([0, 10]), rng.choice([0, 5]), rng.choice([0, 1500])
        bfv = rng.random() < 0.3
        claimed = (0 if bfv else disk[0]) + disk[1] + -(-disk[2] // 1024)
        instance = model.Instance(
            'vm', 'h', vcpus=rng.choice([1, 2, 4]), memory_mb=512, extra_specs=specs,
            image_properties=image, claims={'VCPU': 1, 'DISK_GB': claimed})
        try:
            asked = novas(instance, bfv, disk)
        except (nova_exception.NovaException, ValueError):
            refused += 1
            continue
        ours = allocation_request.build_candidates_query(instance, ROOT)
        assert ours is not None
        known = [(name, value) for name, value in ours if name != 'limit']
        assert known == [(n, v) for n, v in asked if n != 'limit'], (specs, image, disk, bfv)
        compared += 1
        pinned += any('PCPU' in value for _, value in known)
        grouped += any(name in ('resources1', 'resources_GPU') for name, _ in known)
    assert compared > 1000 and refused > 100 and pinned > 100 and grouped > 100


def test_nova_has_no_other_filter_of_requests() -> None:
    """A new one is looked at here first."""
    left_to_nova = {
        'require_tenant_aggregate', 'map_az_to_placement_aggregate', 'isolate_aggregates',
        'require_image_type_support', 'transform_image_metadata', 'routed_networks_filter',
        'remote_managed_ports_filter', 'owner_nova_filter'}
    names = {f.__name__ for f in request_filter.ALL_REQUEST_FILTERS}
    assert names - left_to_nova == {f.__name__ for f in FILTERS}


def query(**values: Any) -> dict[str, str]:
    found = allocation_request.build_candidates_query(model.Instance('vm', 'h', vcpus=4,
                                                                     memory_mb=512, **values),
                                                      ROOT)
    assert found is not None
    return dict(found)


def test_a_flavor_that_nova_does_not_show_is_not_asked_for() -> None:
    assert allocation_request.build_candidates_query(model.Instance('vm', 'h', extra_specs=None),
                                                     ROOT) is None


@pytest.mark.parametrize(('specs', 'image', 'trait'), [
    ({'hw:tpm_version': '2.0'}, {}, 'COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER'),
    ({'hw:tpm_version': '2.0'}, {}, 'COMPUTE_SECURITY_TPM_2_0'),
    ({'hw:virtio_packed_ring': 'true'}, {}, 'COMPUTE_NET_VIRTIO_PACKED'),
    ({}, {'hw_sound_model': 'virtio'}, 'COMPUTE_SOUND_MODEL_VIRTIO'),
    ({'hw:ephemeral_encryption': 'true'}, {}, 'COMPUTE_EPHEMERAL_ENCRYPTION'),
    ({'hw:mem_encryption': 'true', 'hw:mem_encryption_model': 'amd-sev-es'}, {},
     'HW_CPU_X86_AMD_SEV_ES'),
    ({'hw:cpu_thread_policy': 'require'}, {}, 'HW_CPU_HYPERTHREADING')])
def test_an_unreported_trait_is_required_only_if_the_flavor_names_it(
        specs: dict[str, str], image: dict[str, str], trait: str) -> None:
    """An older Nova derives none that it does not report."""
    def asked(specs: dict[str, str], *reported: str) -> bool:
        found = allocation_request.build_candidates_query(model.Instance(
            'vm', 'h', vcpus=4, memory_mb=512, extra_specs=specs, image_properties=image), ROOT,
            frozenset(reported))
        assert found is not None
        return trait in ','.join(value for _, value in found).split(',')

    assert asked(specs, trait)
    assert not asked(specs, 'COMPUTE_SOMETHING_ELSE')
    assert asked(specs | {f'trait:{trait}': 'required'}, 'COMPUTE_SOMETHING_ELSE')


def test_the_traits_of_a_cloud_are_those_of_all_its_providers() -> None:
    def provider(trait: str) -> model.Provider:
        return model.Provider(trait, traits=frozenset({trait}))

    cluster = model.Cluster(
        hosts={'a': model.Host('a', provider=provider('ROOT'), nested=(provider('NESTED'),)),
               'b': model.Host('b', traits=frozenset({'OF_HOST'}))}, instances={}, services={},
        sharing={'s': provider('SHARING')})
    assert allocation_request.reported_traits(cluster) == {'ROOT', 'NESTED', 'OF_HOST', 'SHARING'}


def test_own_traits_are_those_that_the_flavor_names() -> None:
    assert allocation_request.list_flavor_traits(model.Instance('vm', 'h', extra_specs={
        'trait:A': 'required', 'trait1:B': 'forbidden', 'resources:VCPU': '1'})) == {'A', 'B'}


@pytest.mark.parametrize(('image', 'specs', 'resources'), [
    (None, {}, 'MEMORY_MB:512,PCPU:4'), ({}, {}, 'MEMORY_MB:512,VCPU:4'),
    (None, {'resources:PCPU': '2'}, 'MEMORY_MB:512,PCPU:2')])
def test_pinning_by_a_hidden_image_is_derived_from_the_claims(
        image: dict[str, str] | None, specs: dict[str, str], resources: str) -> None:
    found = query(extra_specs=specs, image_properties=image, claims={'PCPU': 4})
    assert found['resources'] == resources
    assert fields.CPUAllocationPolicy.DEDICATED == 'dedicated'
