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


"""The request that Nova would send to Placement to move an instance to a host: pure.

It follows from the flavor's extra specs and the image's properties, as far as Nova's API shows
them. Left to Nova: the requests of Neutron's ports and of PCI devices, aggregates, and traits that
options of nova-scheduler add. Source: nova.scheduler.utils, ResourceRequest and
resources_from_request_spec; nova.scheduler.request_filter; a parity test compares this module with
both.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import re

from kronos_nova import model

Pairs = list[tuple[str, str]]

_KEY = re.compile(r'^(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$')
_TRUE = frozenset({'1', 't', 'true', 'on', 'y', 'yes'})
_CUSTOM = 'CUSTOM_'
VCPU, PCPU = 'VCPU', 'PCPU'
_MEMORY_ENCRYPTION = {
    'amd-sev': 'HW_CPU_X86_AMD_SEV', 'amd-sev-es': 'HW_CPU_X86_AMD_SEV_ES',
    'amd-sev-snp': 'HW_CPU_X86_AMD_SEV_SNP'}
_MAXPHYSADDR = {'passthrough': 'COMPUTE_ADDRESS_SPACE_PASSTHROUGH',
                'emulate': 'COMPUTE_ADDRESS_SPACE_EMULATED'}
_TPM_HOLDER = 'COMPUTE_SECURITY_TPM_SECRET_SECURITY_'


@dataclasses.dataclass(slots=True)
class _RequestGroup:
    resources: dict[str, int] = dataclasses.field(default_factory=dict)
    required: set[str] = dataclasses.field(default_factory=set)
    forbidden: set[str] = dataclasses.field(default_factory=set)

    def list_pairs(self, suffix: str) -> Pairs:
        resources = {name: n for name, n in self.resources.items() if n}
        pairs: Pairs = []
        if resources:
            pairs.append((f'resources{suffix}', ','.join(
                f'{name}:{amount}' for name, amount in sorted(resources.items()))))
        traits = [*sorted(self.required), *(f'!{t}' for t in sorted(self.forbidden))]
        if traits:
            pairs.append((f'required{suffix}', ','.join(traits)))
        return pairs


class _RequestGroups:
    """Request groups by suffix, '' for the group without one.

    ``reported``: as in :func:`build_candidates_query`.
    """

    def __init__(self, reported: Collection[str] | None) -> None:
        self._reported = reported
        self.groups: dict[str, _RequestGroup] = {'': _RequestGroup()}
        self.policy: str | None = None
        self.root_required: set[str] = set()

    def find_group(self, suffix: str = '') -> _RequestGroup:
        return self.groups.setdefault(suffix, _RequestGroup())

    def require_derived_trait(self, trait: str) -> None:
        """Require a trait that Nova derives from an extra spec or a property."""
        if self._reported is None or trait in self._reported:
            self.find_group().required.add(trait)

    def derive_root(self, trait: str) -> None:
        if self._reported is None or trait in self._reported:
            self.root_required.add(trait)

    def add(self, name: str, amount: object, suffix: str = '') -> None:
        """Set an amount of a resource class; ignore values that are no number from 0, as Nova does.

        The class is not checked: Nova has its own list, and Placement knows best.
        """
        try:
            number = int(str(amount))
        except ValueError:
            return
        if number >= 0:
            self.find_group(suffix).resources[name] = number

    def sum_amounts(self, name: str) -> int | None:
        """Sum the amounts of a class over all groups; None when no group names it."""
        amounts = [g.resources[name] for g in self.groups.values() if name in g.resources]
        return sum(amounts) if amounts else None


class _ExtraSpecs:
    """A flavor's and an image's settings, ``hw:x`` and ``hw_x``."""

    def __init__(self, instance: model.Instance) -> None:
        self.specs: Mapping[str, str] = instance.extra_specs or {}
        self.image: Mapping[str, str] = instance.image_properties or {}

    def read_single_value(self, name: str, prefix: str = 'hw') -> str | None:
        """Return the flavor's value, else the image's; Nova refuses an instance where they differ.
        """
        return self.specs.get(f'{prefix}:{name}') or self.image.get(f'{prefix}_{name}')

    def is_true(self, name: str) -> bool:
        return (_is_true_text(self.specs.get(f'hw:{name}'))
                or _is_true_text(self.image.get(f'hw_{name}')))


def reported_traits(cluster: model.Cluster) -> frozenset[str]:
    """Return every trait that a host of the cloud has."""
    trait_sets = [host.traits for host in cluster.hosts.values()]
    trait_sets += [p.traits for host in cluster.hosts.values() for p in host.tree]
    return frozenset().union(*trait_sets, *(p.traits for p in cluster.sharing.values()))


def list_flavor_traits(instance: model.Instance) -> frozenset[str]:
    """Return the traits that the flavor's extra specs name."""
    return frozenset(match[3] for key in instance.extra_specs or {}
                     if (match := _KEY.match(key)) is not None and match[1] == 'trait')


def build_candidates_query(instance: model.Instance, root_uuid: str,
                           reported: Collection[str] | None = None) -> Pairs | None:
    """Return the parameters of ``GET /allocation_candidates``; None without extra specs.

    Nova does not show these to every user.

    :param root_uuid: root provider of the destination.
    :param reported: the traits that hosts of the cloud have. A trait that Nova derives from an
        extra spec or an image's property is required only if it is among them: a Nova that is older
        than the trait neither reports nor requires it. None: all are.
    """
    if instance.extra_specs is None:
        return None
    wishes, request = _ExtraSpecs(instance), _RequestGroups(reported)
    _extra_specs(wishes, request)
    _request_processors(instance, wishes, request)
    _request_flavor_amounts(instance, request)
    _request_devices(wishes, request)
    _require_root_traits(wishes, request)
    pairs = [('in_tree', root_uuid), ('limit', '1'),
             ('root_required', ','.join([*sorted(request.root_required),
                                         '!COMPUTE_STATUS_DISABLED']))]
    if request.policy is not None:
        pairs.append(('group_policy', request.policy))
    return sorted(pairs + [pair for suffix, group in request.groups.items()
                           for pair in group.list_pairs(suffix)])


def _extra_specs(wishes: _ExtraSpecs, request: _RequestGroups) -> None:
    for key, value in wishes.specs.items():
        if key == 'group_policy' and value in ('none', 'isolate'):
            request.policy = value
        match = _KEY.match(key)
        if match is None:
            continue
        kind, suffix, name = match.groups()
        if kind == 'resources':
            request.add(name, value, suffix or '')
        elif value == 'required':
            request.find_group(suffix or '').required.add(name)
        elif value == 'forbidden':
            request.find_group(suffix or '').forbidden.add(name)


def _request_processors(instance: model.Instance, wishes: _ExtraSpecs,
                        request: _RequestGroups) -> None:
    """Request the pinned and the shared processors, which are two resource classes.

    For an image that Nova does not show, use the instance's present allocation.
    """
    policy = _find_cpu_policy(wishes)
    pinned = None
    if policy == 'dedicated':
        pinned = instance.vcpus
    elif policy == 'mixed':
        pinned = len(_list_pinned_processors(wishes, instance.vcpus))
        request.add(VCPU, instance.vcpus - pinned)
    elif (instance.image_properties is None and instance.claims.get(PCPU)
          and request.sum_amounts(PCPU) is None):
        for name in (VCPU, PCPU):
            request.add(name, instance.claims.get(name, 0))
    if pinned is not None:
        request.add(PCPU, pinned + (wishes.specs.get('hw:emulator_threads_policy') == 'isolate'))
    threads = wishes.specs.get('hw:cpu_thread_policy')
    if threads in (None, 'prefer'):
        threads = threads or wishes.image.get('hw_cpu_thread_policy')
    if threads == 'isolate':
        request.find_group().forbidden.add('HW_CPU_HYPERTHREADING')
    elif threads == 'require':
        request.require_derived_trait('HW_CPU_HYPERTHREADING')


def _find_cpu_policy(wishes: _ExtraSpecs) -> str | None:
    flavor = wishes.specs.get('hw:cpu_policy')
    if flavor in ('dedicated', 'mixed', 'shared'):
        return flavor
    return wishes.image.get('hw_cpu_policy')


def _list_pinned_processors(wishes: _ExtraSpecs, vcpus: int) -> set[int]:
    """Return the numbers of the processors that a mixed instance has to itself."""
    mask = wishes.specs.get('hw:cpu_dedicated_mask')
    if not mask and _is_true_text(wishes.specs.get('hw:cpu_realtime')):
        mask = (wishes.image.get('hw_cpu_realtime_mask')
                or wishes.specs.get('hw:cpu_realtime_mask') or f'0-{vcpus - 1}')
    if not mask:
        return set()
    if mask.strip().startswith('^'):
        mask = f'0-{vcpus - 1},{mask}'
    chosen: set[int] = set()
    left_out: set[int] = set()
    for part in filter(None, (p.strip() for p in mask.split(','))):
        first, _, last = part.removeprefix('^').partition('-')
        try:
            numbers = set(range(int(first), int(last or first) + 1))
        except ValueError:
            continue
        (left_out if part.startswith('^') else chosen).update(numbers)
    return (chosen - left_out) & set(range(vcpus))


def _request_flavor_amounts(instance: model.Instance, request: _RequestGroups) -> None:
    """Request the flavor's own amounts of the classes that no extra spec names."""
    if request.sum_amounts(VCPU) is None and request.sum_amounts(PCPU) is None:
        request.add(VCPU, instance.vcpus)
    if request.sum_amounts('MEMORY_MB') is None:
        request.add('MEMORY_MB', instance.memory_mb)
    if request.sum_amounts('DISK_GB') is None:
        request.add('DISK_GB', _disk_gb(instance))


def _disk_gb(instance: model.Instance) -> int:
    """Return the disk that Nova has claimed, else the flavor's.

    Nova alone knows which disks a volume has replaced, and rounds a root disk without a size
    differently.
    """
    if instance.claims:
        return int(instance.claims.get('DISK_GB', 0))
    return instance.disk_gb


def _request_devices(wishes: _ExtraSpecs, request: _RequestGroups) -> None:
    if wishes.is_true('mem_encryption'):
        request.add('MEM_ENCRYPTION_CONTEXT', 1)
        model_name = (wishes.image.get('hw_mem_encryption_model')
                      or wishes.specs.get('hw:mem_encryption_model') or 'amd-sev')
        if model_name in _MEMORY_ENCRYPTION:
            request.require_derived_trait(_MEMORY_ENCRYPTION[model_name])
    labels = [label.strip() for label in wishes.specs.get('hw:pmem', '').split(',')]
    for label in {name for name in labels if name}:
        request.add(_CUSTOM + re.sub('[^0-9A-Z]+', '_', f'PMEM_NAMESPACE_{label}'.upper()),
                    labels.count(label))
    version = wishes.read_single_value('tpm_version')
    if version is not None:
        crb = wishes.read_single_value('tpm_model') == 'tpm-crb'
        request.require_derived_trait('COMPUTE_SECURITY_TPM_CRB'
                                      if crb else 'COMPUTE_SECURITY_TPM_TIS')
        request.require_derived_trait('COMPUTE_SECURITY_TPM_2_0' if version == '2.0'
                                      else 'COMPUTE_SECURITY_TPM_1_2')
    if wishes.read_single_value('pci_numa_affinity_policy') == 'socket':
        request.require_derived_trait('COMPUTE_SOCKET_PCI_NUMA_AFFINITY')
    if wishes.read_single_value('secure_boot', 'os') == 'required':
        request.require_derived_trait('COMPUTE_SECURITY_UEFI_SECURE_BOOT')
    if (mode := wishes.read_single_value('maxphysaddr_mode')) in _MAXPHYSADDR:
        request.require_derived_trait(_MAXPHYSADDR[mode])
    if (_is_true_text(wishes.image.get('hw_firmware_stateless'))
            and wishes.image.get('hw_firmware_type') == 'uefi'):
        request.require_derived_trait('COMPUTE_SECURITY_STATELESS_FIRMWARE')


def _require_root_traits(wishes: _ExtraSpecs, request: _RequestGroups) -> None:
    """Require the root's traits that Nova's always enabled request filters add."""
    root = request.derive_root
    if wishes.specs.get('accel:device_profile'):
        root('COMPUTE_ACCELERATORS')
    if wishes.is_true('virtio_packed_ring'):
        root('COMPUTE_NET_VIRTIO_PACKED')
    if wishes.is_true('ephemeral_encryption'):
        root('COMPUTE_EPHEMERAL_ENCRYPTION')
        if form := wishes.read_single_value('ephemeral_encryption_format'):
            root(f'COMPUTE_EPHEMERAL_ENCRYPTION_{form.upper()}')
    if wishes.read_single_value('sound_model') == 'virtio':
        root('COMPUTE_SOUND_MODEL_VIRTIO')
    if wishes.read_single_value('tpm_version') is not None:
        security = wishes.specs.get('hw:tpm_secret_security') or 'user'
        if security in ('user', 'host', 'deployment'):
            root(_TPM_HOLDER + security.upper())


def _is_true_text(text: str | None) -> bool:
    return text is not None and text.strip().lower() in _TRUE
