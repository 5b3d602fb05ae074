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

"""Changes that would make a rule allow a move. Pure.

A rule's own detail has the numbers; a remedy names the change and who could make it. None: no
change helps, Nova itself does not make such a move.
"""

#: Remedies by rule; a test compares the keys with all rules.
REMEDIES: dict[str, str | None] = {
    # The instance.
    'no-such-instance': None,
    'moved-away': 'ask of the host where it is now',
    'same-host': None,
    'locked': 'its owner unlocks it (openstack server unlock)',
    'not-active': 'it is started, or resumed, first; a drain takes some other states as well',
    'task-state': 'what Nova does with it ends by itself',
    'opted-out': 'its UUID leaves [engine] pinned_instances',
    'owner-opted-out': 'its owner takes the metadata or the tag away',
    'project-opted-out': 'the project leaves [engine] opted_out_projects',
    'pinned': None,
    'in-flight': 'the migration that is under way ends',
    'quarantined': 'kronos quarantine lift instance, when its last failure is understood',
    'cooling': 'the cooldown ends by itself; kronos plan retry does not wait for it',
    'just-booted': 'it stays where the scheduler put it for a while; drains do not wait',
    'placement-refuses-everywhere': 'Placement has a candidate again; an engine asks in its turn',
    'power-state': 'it runs on its host as Nova says, or is stopped in Nova',
    'memory-encryption': None,
    'vtpm': 'a flavor with hw:tpm_secret_security=host',
    'accelerators': None,
    'pci-passthrough': 'an alias that Nova moves live, named in live_migratable_pci_aliases',
    'one-time-use': None,
    'post-copy': 'live_migration_permit_post_copy is off on the compute nodes, and here',
    'vgpu-hypervisor': 'QEMU 8.1.0 or later on both hosts',
    # The hosts.
    'out-of-scope': 'both hosts belong to one scope: one aggregate of [engine] aggregates, or none',
    'service-unknown': 'a nova-compute of the host registers with Nova',
    'service-down': 'nova-compute of the host comes up, or is no longer forced down',
    'service-disabled': 'the host is enabled (openstack compute service set --enable)',
    'source-disabled': 'it is a drain (evacuate_disabled_hosts), or the host is enabled',
    'drain-over': None,
    'host-draining': 'its drain ends, or the host is enabled again',
    'host-quarantined': 'kronos quarantine lift host, when its refusals are understood',
    'cell-differs': None,
    'az-pinned': 'its pin is taken away with microversion 2.104 (Nova 34: PUT /servers/UUID with '
                 'pinned_availability_zone null); before, it is shelved and unshelved into another',
    'az-differs': '[engine] restrict_to_az is off',
    'hypervisor-type': None,
    'hypervisor-older': 'the destination is upgraded, or Nova and we skip the check '
                        '(skip_hypervisor_version_check_on_lm)',
    'cpu-traits': 'the destination has the CPU features, or cpu_models of both hosts are levelled',
    'required-traits': 'the destination has, or loses, the trait; or the flavor asks for less',
    'pci-destination': 'live_migratable is yes in [pci] device_spec of the destination',
    # Aggregates and hints.
    'aggregate-extra-specs': 'the host joins an aggregate with that metadata',
    'aggregate-tenant': 'filter_tenant_id of the aggregate names the project',
    'aggregate-image': 'the metadata of the aggregate, or the image, is changed',
    'tenant-aggregate': 'the host joins an aggregate of the project',
    'tenant-without-aggregate': 'an aggregate is given to the project',
    'isolated-aggregate': 'the flavor or image requires the traits of the aggregate',
    'different-host': 'those that it was booted apart from leave the host',
    'same-host-hint': 'those that it was booted beside are there first',
    # Server groups.
    'anti-affinity': 'a member of the server group leaves the host first',
    'affinity': 'a member of the server group is there first',
    'affinity-unmovable': None,
    'group-in-flight': 'the member that is migrating arrives first',
    'hint-in-flight': 'the instance that is migrating arrives first',
    # Claims.
    'no-provider': 'nova-compute of the host reports to Placement',
    'no-inventory': 'the host has an inventory of the class',
    'no-room': 'as much as is short is freed on the host, or its allocation ratio is raised',
    'claim-unit': 'the inventory\'s min_unit, max_unit and step_size admit the amount',
    'placement-refused': 'Placement has a candidate again; an engine asks in its turn',
    'copies-disk': '[engine] allow_disk_copy, or instance_storage = shared where it is',
    # Metrics.
    'policy-untrusted': 'the metrics are repaired; drains and repairs do not need them',
    'host-frozen': 'the host has a score again: its exporter is scraped',
    'no-profile': 'the vm_profile_query has a series of it, or the policy a fallback',
    'ceiling': 'load leaves the host, or the ceiling is raised (capacity_threshold when packing)',
}
