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

"""Meanings of the rules, a line each: the words of doc/source/reference/rules.rst."""

MEANINGS = {
    'no-such-instance': 'The instance is not in Nova any more.',
    'moved-away': 'It is on another host than the plan says.',
    'moved-already': 'The plan moves it already.',
    'same-host': 'It is on the destination already.',
    'locked': 'Its owner, or an administrator, locked it.',
    'not-active': 'Its status is none that is moved.',
    'task-state': 'Nova is doing something with it.',
    'opted-out': 'It is in pinned_instances.',
    'owner-opted-out': 'Its metadata or tags say so.',
    'project-opted-out': 'Its project is in opted_out_projects.',
    'pinned': 'It has allocations that cannot be judged; the text says why.',
    'in-flight': 'It is migrating.',
    'cooling': 'It was moved lately.',
    'quarantined': 'Its last migration failed for good.',
    'placement-refuses-everywhere': (
        'Placement was asked for it on three hosts and confirmed none; only when planning.'),
    'just-booted': 'It was launched less than instance_cooldown ago.',
    'copies-disk': 'Its disks would be copied.',
    'power-state': 'It is ACTIVE in Nova, but its guest does not run on its host.',
    'accelerators': 'Its flavor has accel:device_profile: Nova moves it neither live nor cold.',
    'memory-encryption': 'hw:mem_encryption or hw_mem_encryption is true: not moved live.',
    'vtpm': (
        'It has a vTPM (hw:tpm_version, hw_tpm_version), and hw:tpm_secret_security is not '
        'host: not moved live.'),
    'pci-passthrough': (
        'Its flavor has pci_passthrough:alias with an alias that is not in '
        'live_migratable_pci_aliases: not moved live.'),
    'one-time-use': (
        'A PCI device of its host that it may have, by the resource class, has the trait '
        'HW_PCI_ONE_TIME_USE. Nova would move it, stopped instances too: the device that it '
        "leaves stays reserved, and the destination's is used up."),
    'post-copy': (
        'live_migration_permit_post_copy is set, and its flavor has pci_passthrough:alias, or it '
        'has a VGPU: not moved live. QEMU says VFIO migration is not supported with postcopy '
        'migration; Nova does not look before.'),
    'out-of-scope': 'A host is not in the scope.',
    'service-unknown': 'A host has no nova-compute service.',
    'service-down': 'A nova-compute is down or forced down.',
    'service-disabled': 'The destination is disabled.',
    'source-disabled': 'The source is disabled, and this is no drain.',
    'drain-over': 'The source of a drain is enabled again.',
    'host-draining': 'The destination is being emptied.',
    'host-quarantined': 'The destination refused moves lately.',
    'cell-differs': (
        'The destination is in another cell: by the names of cells, or, whatever these say, '
        'because Nova did not find it from the source within a day.'),
    'az-pinned': (
        'The instance was booted into an availability zone, and this is another. From Nova 34 on '
        'the pin can be taken away: PUT /servers/UUID with pinned_availability_zone null, '
        'microversion 2.104.'),
    'az-differs': 'restrict_to_az is set.',
    'hypervisor-type': 'The destination has another hypervisor_type: not moved live.',
    'hypervisor-older': (
        'The destination has an older hypervisor_version: not moved live, unless '
        'skip_hypervisor_version_check_on_lm.'),
    'vgpu-hypervisor': (
        'It has a VGPU, and the QEMU of either host is older than 8.1.0: not moved live.'),
    'cpu-traits': (
        'require_cpu_compatibility is set, and the destination lacks a CPU feature of the '
        'source.'),
    'required-traits': (
        "The destination's providers, nested and sharing ones too, lack a trait that the "
        'flavor requires (trait:X=required), or have one that it forbids.'),
    'pci-destination': (
        "Its flavor has pci_passthrough:alias, and none of the destination's PCI devices of its "
        'resource class has the trait HW_PCI_LIVE_MIGRATABLE: not moved live.'),
    'placement-refused': (
        'Placement itself was asked within the last 15 minutes and had no allocation '
        'candidate for the instance on the destination, or twice no answer (confirm_moves); '
        'only when planning.'),
    'aggregate-tenant': (
        'The destination is in aggregates with filter_tenant_id* for other projects. With '
        'AggregateMultiTenancyIsolation.'),
    'aggregate-extra-specs': (
        'An extra spec of the flavor, without a scope or with '
        'aggregate_instance_extra_specs:, is fulfilled by no aggregate of the destination. '
        'With AggregateInstanceExtraSpecsFilter.'),
    'aggregate-image': (
        'An aggregate of the destination names a property of the image with other values. '
        'With AggregateImagePropertiesIsolation.'),
    'tenant-aggregate': (
        'The project has aggregates, and the destination is in none of them. With '
        'limit_tenants_to_placement_aggregate.'),
    'tenant-without-aggregate': (
        'The project has no aggregate. With placement_aggregate_required_for_tenants, too.'),
    'isolated-aggregate': (
        'An aggregate of the destination has trait:X=required, the flavor does not require X, '
        'and the source is in no such aggregate. With enable_isolated_aggregate_filtering.'),
    'anti-affinity': 'The group has too many members there.',
    'affinity': 'The group has no member there.',
    'affinity-unmovable': 'All members are on the source: Nova migrates them nowhere.',
    'group-in-flight': 'Another member of the group is migrating.',
    'hint-in-flight': 'An instance is migrating that a hint ties to it: one of its project whose '
                      'different_host or same_host hint names it; or one that its own hint names, '
                      'and Nova has not said where to. With the filter of the hint.',
    'different-host': (
        'It was booted with the hint different_host, and one of those is there, or may come '
        'there by a move under way, also by an alternate of its task. With '
        'DifferentHostFilter.'),
    'same-host-hint': (
        'It was booted with the hint same_host, and none of those is there, or only such as a '
        'move under way may take away. With SameHostFilter.'),
    'no-provider': (
        'The destination has no resource provider, or its providers change faster than they '
        'can be read.'),
    'no-inventory': (
        "No provider of the destination's tree has a resource class, or its root has none of "
        'those that the instance needs.'),
    'claim-unit': 'The amount cannot be allocated there in one piece.',
    'no-room': (
        'The providers of its tree, and those that share with it, have not enough left for '
        'the claim.'),
    'policy-untrusted': 'The metrics cannot be believed.',
    'host-frozen': "A host has no score while the others' can be trusted.",
    'no-profile': 'The instance has no usage in a policy.',
    'ceiling': 'The destination would be filled above its ceiling.',
    'would-worsen': 'Another policy would end above its threshold.',
    'would-undo-repair': 'The next repair would take it back.',
    'foreseen-peak': 'The destination would be above a ceiling at its foreseen peak (pack).',
    'partial-drain': 'No order lets the whole drain end (pack).',
    'just-came': (
        'Whom it was booted beside has just come to the destination by a live migration, and '
        'nova-scheduler may not know it yet.'),
    'just-left': (
        'A member of its anti-affinity group, or an instance it was booted apart from, has '
        'just left the destination by a live migration, and nova-scheduler may not know it '
        'yet.'),
    'method-changed': (
        'The instance was started or stopped after it was planned: the next plan knows how to '
        'move it.'),
    'no-slot': 'Migrations that others asked for fill the slots of a host.',
    'source-overcommitted': (
        'A resource provider of its host uses more than its capacity, and Placement before 14.0 '
        'refused the migration for that.'),
    'source-reshaped': (
        'The resource providers of its host were reshaped after it was planned: the next plan '
        'knows.'),
    'tree-reshaped': 'Those of the destination were: the next alternate is tried.',
    'no-swap': ("Two moves are no swap: neither to each other's place nor both of spread, or not "
                'in an order that can be undone.'),
    'over-budget': 'The plan has more moves than its budget.',
    'moved-twice': 'It moves an instance twice.',
    'alternate-twice': "A destination stands twice among a move's.",
    'wave-order': 'A move begins before what it requires.',
    'outage': 'Too many hosts are down or disabled.',
    'paused': 'The scope is paused.',
    'scope-cooling': 'The scope cools down.',
    'unsettled': "The scores do not show the instance's last move yet.",
    'not-drained': 'The source of a drain is not to be drained.',
    'no-repair': 'The instance is in no group that is to be repaired.',
    'held': 'The scope is paused, frozen or in an outage.',
    'no-destination': 'No host is known where the instance might go.',
    'no-order': 'No order of those that are asked for makes it safe.',
}
#: Meaning of a rule that only a strategy of a plug-in has.
UNKNOWN = 'A rule of a plug-in; its own documentation says what it means.'


def explain_rule(rule: str) -> str:
    return MEANINGS.get(rule, UNKNOWN)
