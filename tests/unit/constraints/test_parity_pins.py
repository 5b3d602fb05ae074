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


"""Rules about flavors, images, projects and hints say what Nova's code says.

Of Nova: its filter classes, its request filters on aggregates, its translation
of a flavor into a request of Placement, and the checks of its API. Random
cases; what makes Nova raise counts as its no.
"""

import dataclasses
import itertools
import random
from unittest import mock

from nova import objects
from nova.compute import pci_placement_translator
from nova.objects import fields
from nova.pci import stats
from nova.scheduler import host_manager
from nova.scheduler import request_filter
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.filters import affinity_filter
from nova.scheduler.filters import aggregate_image_properties_isolation as image_filter
from nova.scheduler.filters import aggregate_instance_extra_specs as extra_specs_filter
from nova.scheduler.filters import aggregate_multitenancy_isolation as tenancy_filter
from nova.scheduler.filters import extra_specs_ops as their_ops
from nova.virt import hardware
from oslo_utils import strutils
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import extra_specs_ops
from kronos_nova.constraints import hints
from kronos_nova.constraints import image_properties
from kronos_nova.constraints import live
from kronos_nova.constraints import prefilters
from kronos_nova.constraints import requests
from tests.unit import clouds

objects.register_all()

CASES = 2000
UUID = clouds.uuid_of('i')
MOVE = model.Move(UUID, 'a', 'b', model.Phase.EVACUATE)
OPERATORS = ('=', '==', '!=', '>=', '<=', 's==', 's!=', 's<', 's<=', 's>', 's>=', '<in>',
             '<all-in>', '<or>', '<is>', '')
WORDS = ('1', '2', '10', 'ssd', 'fast', 'true', 'True', 'a', 'ab', '<or>', '0.5', 'x86_64')


def or_no(verdict):
    """Nova's verdict; where it raises, the request fails."""
    try:
        return bool(verdict())
    except (ValueError, IndexError):
        return False


def view(enabled=(), prefilters_=(), metadata=(), instance=None, **fields_):
    """Return a view with host a in no aggregate and host b in each given aggregate."""
    names = {f'agg{n}': dict(found) for n, found in enumerate(metadata)}
    instances = {UUID: model.Instance(UUID, 'a', **(instance or {}))}
    return cluster_view.ClusterView(model.Cluster(
        {h: model.Host(h) for h in 'ab'}, instances, {h: model.Service(h) for h in 'ab'},
        aggregates=fields_.pop('aggregates', dict.fromkeys(names, ('b',))),
        aggregate_metadata=names, scope_hosts=frozenset('ab'), **fields_), model.PlanningOptions(
            nova_enabled_filters=frozenset(enabled), nova_prefilters=frozenset(prefilters_)))


def host_state(metadata=(), instances=()):
    state = host_manager.HostState('b', 'b', clouds.uuid_of('cell'))
    state.aggregates = [objects.Aggregate(metadata=dict(m)) for m in metadata]
    state.instances = {u: object() for u in instances}
    return state


def some_requirement(rng):
    return ' '.join([rng.choice(OPERATORS), *rng.choices(WORDS, k=rng.randint(0, 5))]).strip()


def test_operators_say_what_novas_say():
    rng = random.Random(1)
    verdicts = []
    for _ in range(10_000):
        value = ' '.join(rng.choices(WORDS, k=rng.randint(0, 2)))
        required = some_requirement(rng)
        theirs = or_no(lambda v=value, r=required: their_ops.match(v, r))
        assert extra_specs_ops.matches_extra_spec(value, required) == theirs, (value, required)
        verdicts.append(theirs)
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9


def some_metadata(rng, keys):
    return [{k: ','.join(rng.choices(WORDS, k=rng.randint(1, 3)))
             for k in rng.sample(keys, rng.randint(0, 3))} for _ in range(rng.randint(0, 3))]



def test_extra_specs_of_aggregates_are_judged_as_by_novas_filter():
    theirs = extra_specs_filter.AggregateInstanceExtraSpecsFilter()
    rng = random.Random(2)
    keys = ['ssd', 'cpu', 'hw:numa_nodes', 'a:b']
    verdicts = []
    for _ in range(CASES):
        extra_specs = {rng.choice(['', 'hw:', 'aggregate_instance_extra_specs:', 'capabilities:'])
                       + rng.choice(['ssd', 'cpu', 'numa_nodes', 'a:b']):
                       rng.choice([rng.choice(WORDS), some_requirement(rng)])
                       for _ in range(rng.randint(0, 2))}
        metadata = some_metadata(rng, keys)
        spec = objects.RequestSpec(flavor=objects.Flavor(extra_specs=extra_specs))
        try:
            expected = theirs.host_passes(host_state(metadata), spec)
        except (ValueError, IndexError):
            continue  # it depends on the order of a set whether Nova comes that far
        ours = aggregates.extra_specs(view([aggregates.EXTRA_SPECS], (), metadata, {
            'extra_specs': extra_specs}), MOVE) is None
        assert ours == expected, (extra_specs, metadata)
        verdicts.append(ours)
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9 and len(verdicts) > CASES / 2


def some_tenancy(rng, projects):
    keys = ['filter_tenant_id', 'filter_tenant_id2', 'ssd']
    return [{k: rng.choice([',', ', ']).join(rng.choices(projects, k=rng.randint(1, 2)))
             for k in rng.sample(keys, rng.randint(0, 2))} for _ in range(rng.randint(0, 3))]


def test_tenancy_of_aggregates_is_judged_as_by_novas_filter():
    theirs = tenancy_filter.AggregateMultiTenancyIsolation()
    rng = random.Random(3)
    verdicts = []
    for _ in range(CASES):
        metadata = some_tenancy(rng, ['p1', 'p2', 'p3'])
        project = rng.choice(['p1', 'p2', 'p3', 'p4'])
        expected = theirs.host_passes(host_state(metadata), objects.RequestSpec(
            project_id=project))
        ours = aggregates.tenants(view([aggregates.TENANTS], (), metadata, {
            'project_id': project}), MOVE) is None
        assert ours == expected, (project, metadata)
        verdicts.append(ours)
    assert 0.1 < sum(verdicts) / CASES < 0.9


IMAGE_VALUES = {
    'hw_architecture': ['x86_64', 'AMD64', 'i386', 'aarch64'], 'architecture': ['x86_64', 'i686'],
    'hw_qemu_guest_agent': ['yes', 'true', 'no', '1', 'maybe'], 'hw_video_ram': ['0', '16', '08'],
    'os_distro': ['ubuntu', 'Debian'], 'hw_vif_model': ['virtio', 'VirtualE1000', 'e1000'],
    'hw_vm_mode': ['hvm', 'HV', 'xen'], 'os_type': ['Linux', 'windows'],
    'hw_scsi_model': ['paravirtual', 'virtio-scsi'], 'hypervisor_type': ['QEMU', 'xapi'],
    'img_hv_type': ['kvm', 'qemu'], 'hw_disk_bus': ['virtio', 'scsi'],
    'os_require_quiesce': ['on', 'off']}
TEXTS = ['True', 'yes', 'x86_64', 'i686', '16', '8', 'ubuntu', 'Debian', 'virtio', 'e1000', 'hvm',
         'xen', 'linux', 'vmpvscsi', 'qemu', 'kvm', 'scsi']


def test_image_properties_of_aggregates_are_judged_as_by_novas_filter():
    theirs = image_filter.AggregateImagePropertiesIsolation()
    rng = random.Random(4)
    verdicts = []
    keys = [*IMAGE_VALUES, 'availability_zone', 'own']
    for _ in range(CASES):
        image = {k: rng.choice(IMAGE_VALUES[k])
                 for k in rng.sample(list(IMAGE_VALUES), rng.randint(0, 5))}
        metadata = [{k: ', '.join(rng.choices(TEXTS, k=rng.randint(1, 4)))
                     for k in rng.sample(keys, rng.randint(0, 4))}
                    for _ in range(rng.randint(0, 2))]
        spec = objects.RequestSpec(image=objects.ImageMeta.from_dict({'properties': image}))
        expected = theirs.host_passes(host_state(metadata), spec)
        ours = aggregates.image_properties(view([aggregates.IMAGES], (), metadata, {
            'image_properties': image}), MOVE) is None
        assert ours == expected, (image, metadata)
        verdicts.append(ours)
    assert 0.1 < sum(verdicts) / CASES < 0.9


def test_the_names_of_image_properties_are_novas():
    known = objects.ImageMetaProps.fields
    assert image_properties.LEGACY == objects.ImageMetaProps._legacy_property_map

    def named(*kinds):
        return {n for n, f in known.items() if isinstance(f, kinds)}

    assert named(fields.FlexibleBooleanField) == image_properties.BOOLEANS
    assert named(fields.IntegerField) == image_properties.NUMBERS
    assert image_properties.LISTS == {n for n, f in known.items() if 'List' in type(f).__name__}
    assert {n for n, f in known.items() if type(f.AUTO_TYPE).coerce is not
            fields.BaseNovaEnum.coerce and isinstance(f.AUTO_TYPE, fields.BaseNovaEnum)} == (
                image_properties.SPELLINGS.keys())
    assert set(strutils.TRUE_STRINGS) == live.TRUE


@pytest.mark.parametrize(('kind', 'name', 'hint'), [
    (affinity_filter.DifferentHostFilter, hints.DIFFERENT, 'different_host'),
    (affinity_filter.SameHostFilter, hints.SAME, 'same_host')])
def test_hints_are_judged_as_by_novas_filters(kind, name, hint):
    theirs = kind()
    rng = random.Random(hint)
    verdicts = []
    others = [clouds.uuid_of(f'o{n}') for n in range(4)]
    for _ in range(CASES):
        at = {u: rng.choice('abb') for u in others if rng.random() < 0.8}
        hinted = tuple(rng.sample(others, rng.randint(0, 3)))
        spec = objects.RequestSpec(scheduler_hints={hint: list(hinted)} if hinted else {})
        expected = theirs.host_passes(host_state(
            instances=[u for u, h in at.items() if h == 'b']), spec)
        found = view([name], instance={'scheduler_hints': {hint: hinted} if hinted else {}})
        cluster = found.cluster
        cluster = model.Cluster(
            cluster.hosts, {**cluster.instances, **{u: model.Instance(u, h)
                                                    for u, h in at.items()}}, cluster.services)
        ours = hints.hints(cluster_view.ClusterView(cluster, found.options), MOVE) is None
        assert ours == expected, (at, hinted)
        verdicts.append(ours)
    assert 0.1 < sum(verdicts) / CASES < 0.9


def aggregate_list(metadata):
    return [objects.Aggregate(uuid=clouds.uuid_of(name), name=name, metadata=found)
            for name, found in metadata.items()]


def by_metadata(metadata, value):
    """What AggregateList.get_by_metadata finds: rows whose value is this one."""
    return aggregate_list({n: m for n, m in metadata.items() if value in m.values()})


def not_matching(metadata, keys, prefix, value):
    """As get_non_matching_by_metadata_keys."""
    return aggregate_list({n: m for n, m in metadata.items() if any(
        k.startswith(prefix) and v == value and k not in keys for k, v in m.items())})


def test_aggregates_of_a_project_equal_those_of_novas_request_filter():
    rng = random.Random(5)
    verdicts = []
    options = (prefilters.TENANTS, prefilters.TENANTS_REQUIRED)
    for case in range(CASES // 3):
        metadata = {f'agg{n}': found for n, found in enumerate(
            some_tenancy(rng, ['p1', 'p2']))}
        holding = {name for name in metadata if rng.random() < 0.5}
        project, required = rng.choice(['p1', 'p2', 'p3']), case % 2 == 0
        spec = objects.RequestSpec(project_id=project, requested_destination=None)
        with mock.patch.object(request_filter.CONF, 'scheduler', mock.Mock(
                limit_tenants_to_placement_aggregate=True,
                placement_aggregate_required_for_tenants=required)), mock.patch.object(
                objects.AggregateList, 'get_by_metadata',
                lambda context, value, m=metadata: by_metadata(m, value)):
            try:
                request_filter.require_tenant_aggregate(None, spec)
                asked = spec.requested_destination
                wanted = set(asked.aggregates[0].split(',')) if asked else None
                expected = wanted is None or bool(
                    wanted & {clouds.uuid_of(n) for n in holding})
            except Exception as exc:
                assert type(exc).__name__ == 'RequestFilterFailed'
                expected = False
        found = view((), options[:1 + required], metadata.values(), {'project_id': project},
                     aggregates={n: ('b',) if n in holding else () for n in metadata})
        ours = prefilters.tenant_aggregates(found, MOVE) is None
        assert ours == expected, (metadata, holding, project, required)
        verdicts.append(ours)
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9


TRAITS = ('HW_CPU_X86_AVX2', 'CUSTOM_GPU', 'CUSTOM_SSD')


def some_extra_specs(rng):
    keys = [f'{kind}{suffix}:{name}' for kind, suffix, name in [
        *itertools.product(('trait', 'hw'), ('', '1', '_A-b'), (*TRAITS, 'CUSTOM_X')),
        *itertools.product(['resources'], ('', '1', '_A-b'), ('VGPU', 'CUSTOM_X'))]]
    return {k: rng.choice(['0', '1', '2']) if k.startswith('resources') else
            rng.choice(['required', 'required', 'forbidden', 'no'])
            for k in rng.sample(keys, rng.randint(0, 6))}


def test_isolated_aggregates_are_left_out_as_by_novas_request_filter():
    """Of an instance whose image requires nothing, from a host in no aggregate."""
    rng = random.Random(6)
    verdicts = []
    for _ in range(CASES // 3):
        metadata = {f'agg{n}': {f'trait:{t}': rng.choice(['required', 'required', 'forbidden'])
                                for t in rng.sample(TRAITS, rng.randint(0, 2))}
                    for n in range(rng.randint(0, 3))}
        extra_specs = some_extra_specs(rng)
        spec = request_spec(extra_specs)
        spec.requested_destination = None
        with mock.patch.object(request_filter.CONF, 'scheduler', mock.Mock(
                enable_isolated_aggregate_filtering=True, max_placement_results=10)), (
                mock.patch.object(
                    objects.aggregate.AggregateList, 'get_non_matching_by_metadata_keys',
                    lambda context, keys, prefix, value, m=metadata: not_matching(
                        m, keys, prefix, value))):
            request_filter.isolate_aggregates(None, spec)
        asked = spec.requested_destination
        expected = not (asked and asked.forbidden_aggregates)
        ours = prefilters.isolated_aggregates(view(
            (), [prefilters.ISOLATED], metadata.values(), {'extra_specs': extra_specs}),
            MOVE) is None
        assert ours == expected, (metadata, extra_specs)
        verdicts.append(ours)
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9


def request_spec(extra_specs):
    return objects.RequestSpec(
        flavor=objects.Flavor(name='f', vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, swap=0,
                              extra_specs=extra_specs),
        image=objects.ImageMeta(properties=objects.ImageMetaProps()), is_bfv=False,
        requested_resources=[])


def test_request_groups_of_a_flavor_equal_novas():
    rng = random.Random(7)
    for _ in range(CASES):
        extra_specs = some_extra_specs(rng)
        theirs = scheduler_utils.ResourceRequest.from_request_spec(request_spec(extra_specs))
        ours = requests.parse_groups(extra_specs)
        for suffix in {*ours, *(k or '' for k in theirs._rg_by_id)}:
            group = theirs.get_request_group(suffix or None)
            mine = ours.get(suffix, requests.RequestGroup())
            assert (mine.required, mine.forbidden) == (
                group.required_traits, group.forbidden_traits), extra_specs
            base = set() if suffix else {'VCPU', 'MEMORY_MB', 'DISK_GB'}
            assert mine.resources == set(group.resources) - base, (extra_specs, suffix)
        assert requests.list_required_traits(extra_specs) == theirs.all_required_traits


def device_host(name, tags):
    """Return a host with a device for each tag and the traits that Nova derives."""
    return model.Host(name, nested=tuple(model.Provider(
        f'{name}{n}', inventories={'CUSTOM_PCI': model.Inventory(1)},
        traits=frozenset(pci_placement_translator._get_traits_for_dev(tag)))
        for n, tag in enumerate(tags)))


def test_destinations_whose_devices_nova_does_not_move_live():
    """By what PciPassthroughFilter asks :mod:`nova.pci.stats` for a live-migratable alias."""
    rng, verdicts = random.Random(8), []
    instance = model.Instance(UUID, 'a', claims={'CUSTOM_PCI': 1},
                              extra_specs={'pci_passthrough:alias': 'card:1'})
    asked = objects.InstancePCIRequest(count=1, spec=[{'live_migratable': 'true'}])
    for _ in range(200):
        tags = [rng.choice([{}, {'live_migratable': 'true'}, {'live_migratable': 'false'}])
                for _ in range(rng.randint(1, 3))]
        theirs = stats.PciDeviceStats._filter_pools_for_live_migratable_devices(
            mock.Mock(), tags, asked)
        hosts = {'a': device_host('a', [{'live_migratable': 'true'}]),
                 'b': device_host('b', tags)}
        found = live.destination_devices(cluster_view.ClusterView(
            model.Cluster(hosts, {UUID: instance}, {}), model.PlanningOptions()), MOVE)
        assert (found is None) == bool(theirs), tags
        verdicts.append(found is None)
    assert 0.2 < sum(verdicts) / len(verdicts) < 0.9


@pytest.mark.parametrize(('source', 'destination', 'change'), [
    ([{}], [{}], {}),  # a Nova that does not report the trait
    ([{'live_migratable': 'true'}], [], {}),  # no such device: a matter of room
    ([{'live_migratable': 'true'}], [{}], {'status': 'SHUTOFF'}),  # moved cold
    ([{'live_migratable': 'true'}], [{}], {'extra_specs': {}}),
    ([{'live_migratable': 'true'}], [{}], {'claims': {'VCPU': 1}})])
def test_devices_of_a_destination_that_are_left_to_nova(source, destination, change):
    instance = dataclasses.replace(
        model.Instance(UUID, 'a', claims={'CUSTOM_PCI': 1},
                       extra_specs={'pci_passthrough:alias': 'card:1'}), **change)
    hosts = {'a': device_host('a', source), 'b': device_host('b', destination)}
    assert live.destination_devices(cluster_view.ClusterView(
        model.Cluster(hosts, {UUID: instance}, {}), model.PlanningOptions()), MOVE) is None


BOOLS = (None, 'true', 'True', '1', 'no', 'false', 'maybe')


def test_pins_equal_the_live_migration_refusals_of_novas_api():
    """By what reject_mem_enc_instances and reject_legacy_vtpm_live_migration
    ask :mod:`nova.virt.hardware`."""
    cases = 0
    for flavor_enc, image_enc, flavor_tpm, image_tpm, security in itertools.product(
            BOOLS, BOOLS, (None, '2.0'), (None, '2.0'), (None, 'user', 'host', 'deployment')):
        extra_specs = {k: v for k, v in (
            ('hw:mem_encryption', flavor_enc), ('hw:tpm_version', flavor_tpm),
            ('hw:tpm_secret_security', security)) if v is not None}
        image = {k: v for k, v in (('hw_mem_encryption', image_enc),
                                   ('hw_tpm_version', image_tpm)) if v is not None}
        flavor = objects.Flavor(name='f', extra_specs=extra_specs)
        meta = objects.ImageMeta.from_dict({'id': UUID, 'properties': image | {
            'hw_firmware_type': 'uefi', 'hw_machine_type': 'q35'}})
        try:
            encrypted = hardware.get_mem_encryption_constraint(flavor, meta) is not None
        except Exception:
            continue  # flavor and image contradict each other: it was never booted
        tpm = hardware.get_vtpm_constraint(flavor, meta) is not None and (
            hardware.get_tpm_secret_security_constraint(flavor) or 'user') != 'host'
        found = live.devices(view(instance={'extra_specs': extra_specs,
                                            'image_properties': image}), MOVE)
        rule = None if found is None else found.rule
        assert rule == ('memory-encryption' if encrypted else 'vtpm' if tpm else None)
        cases += 1
    assert cases > 200


def test_every_rule_of_a_pair_is_judged_by_the_planner_and_before_a_move():
    assert {*constraints.PAIRS, *constraints.ALONE, hints.HINTS_RULE} <= set(constraints.RULES)
    assert set(constraints.RULES) - set(constraints.PRE_FLIGHT) == {
        constraints.metrics.SCORED_RULE, constraints.metrics.CEILING_RULE}
