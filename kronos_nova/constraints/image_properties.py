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


"""An image's properties as Nova understands them, from the texts of its API.

Source: nova.objects.image_meta, ImageMetaProps; a test compares the names.
"""

from collections.abc import Mapping

from kronos_nova.constraints import live

#: Old names, which Nova still accepts; the new one wins.
LEGACY = {
    'architecture': 'hw_architecture', 'owner_id': 'img_owner_id',
    'vmware_disktype': 'hw_disk_type', 'vmware_image_version': 'img_version',
    'vmware_ostype': 'os_distro', 'auto_disk_config': 'hw_auto_disk_config',
    'ipxe_boot': 'hw_ipxe_boot', 'xenapi_device_id': 'hw_device_id',
    'xenapi_image_compression_level': 'img_compression_level',
    'vmware_linked_clone': 'img_linked_clone', 'xenapi_use_agent': 'img_use_agent',
    'xenapi_skip_agent_inject_ssh': 'os_skip_agent_inject_ssh',
    'xenapi_skip_agent_inject_files_at_boot': 'os_skip_agent_inject_files_at_boot',
    'cache_in_nova': 'img_cache_in_nova', 'vm_mode': 'hw_vm_mode',
    'bittorrent': 'img_bittorrent', 'mappings': 'img_mappings',
    'block_device_mapping': 'img_block_device_mapping', 'bdm_v2': 'img_bdm_v2',
    'root_device_name': 'img_root_device_name',
    'hypervisor_version_requires': 'img_hv_requested_version', 'hypervisor_type': 'img_hv_type'}
BOOLEANS = frozenset({
    'hw_boot_menu', 'hw_ephemeral_encryption', 'hw_firmware_stateless',
    'hw_ipxe_boot', 'hw_locked_memory', 'hw_mem_encryption', 'hw_pmu', 'hw_qemu_guest_agent',
    'hw_time_hpet', 'hw_vif_multiqueue_enabled', 'hw_virtio_packed_ring', 'img_bdm_v2',
    'img_bittorrent', 'img_cache_in_nova', 'img_hide_hypervisor_id', 'img_linked_clone',
    'img_use_agent', 'os_require_quiesce', 'os_skip_agent_inject_files_at_boot',
    'os_skip_agent_inject_ssh'})
NUMBERS = frozenset({
    'hw_cpu_cores', 'hw_cpu_max_cores', 'hw_cpu_max_sockets', 'hw_cpu_max_threads',
    'hw_cpu_sockets', 'hw_cpu_threads', 'hw_device_id', 'hw_maxphysaddr_bits', 'hw_numa_nodes',
    'hw_redirected_usb_ports', 'hw_serial_port_count', 'hw_video_ram', 'img_compression_level',
    'img_version'})
#: Lists: Nova compares no text with them.
LISTS = frozenset({'hw_numa_cpus', 'hw_numa_mem', 'img_block_device_mapping', 'img_mappings',
                   'traits_required'})
_ARCHITECTURES = {'i386': 'i686', 'i486': 'i686', 'i586': 'i686', 'x86_32': 'i686',
                  'x86_32p': 'i686', 'amd64': 'x86_64'}
#: Synonyms of values, in lower case.
SPELLINGS = {
    'hw_architecture': _ARCHITECTURES, 'hw_emulation_architecture': _ARCHITECTURES,
    'img_hv_type': {'xapi': 'xen'},
    'hw_vm_mode': {'pv': 'xen', 'hv': 'hvm', 'baremetal': 'hvm'},
    'hw_scsi_model': {'lsilogicsas': 'lsisas1068', 'paravirtual': 'vmpvscsi'},
    'hw_vif_model': {'virtuale1000': 'e1000', 'virtuale1000e': 'e1000e',
                     'virtualpcnet32': 'pcnet', 'virtualsriovethernetcard': 'sriov',
                     'virtualvmxnet': 'vmxnet', 'virtualvmxnet3': 'vmxnet3'},
    'os_type': {}}


def parse_properties(image: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the texts that Nova may compare each property with.

    The texts are empty where Nova compares nothing, for example for false or 0.
    """
    named = {LEGACY.get(name, name): value for name, value in image.items()}
    named |= {name: value for name, value in image.items() if name not in LEGACY}
    return {name: _list_comparable_texts(name, value) for name, value in named.items()}


def _list_comparable_texts(name: str, value: str) -> frozenset[str]:
    if name in LISTS or not value:
        return frozenset()
    if name in BOOLEANS:
        return frozenset({'True'}) if live.parse_boolean(value) else frozenset()
    if name in NUMBERS:
        try:
            number = int(value)
        except ValueError:
            return frozenset()
        return frozenset({str(number)}) if number else frozenset()
    if name in SPELLINGS:
        return frozenset({SPELLINGS[name].get(value.lower(), value.lower())})
    return frozenset({value})
