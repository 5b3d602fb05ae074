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

"""The options of planning."""

import dataclasses
import enum

from kronos_nova.model import contracts as agreements


class DrainMode(enum.StrEnum):
    """The destinations of a drained host's instances.

    ``auto``: those of the least imbalance; ``compact``: the fewest hosts; ``scatter``: as many
    instances to each host as to any other.
    """

    AUTO = 'auto'
    COMPACT = 'compact'
    SCATTER = 'scatter'


class FailoverMode(enum.StrEnum):
    """What happens to planned moves that would turn a safe host unsafe (rule breaks-failover).

    ``off``: no host is certified; ``warn``: the plan warns; ``enforce``: they are left out.
    """

    OFF = 'off'
    WARN = 'warn'
    ENFORCE = 'enforce'


class OfflineDrains(enum.StrEnum):
    """Which instances a drain may shut down, when their live migration did not arrive in time.

    ``never``: none; ``consent``: those whose contract says ``cold-ok`` or ``poweroff-ok``;
    ``allow``: those whose contract does not forbid it, and those without one.
    """

    NEVER = 'never'
    CONSENT = 'consent'
    ALLOW = 'allow'


@dataclasses.dataclass(frozen=True, slots=True)
class PlanningOptions:
    """The options of planning that an operator may set; names are the options' names.

    ``max_missing_hosts`` None means max(1, 5 % of the scope's hosts). ``instance_storage`` is
    auto, shared or local. ``enforce_placement_disk`` False leaves DISK_GB out of the claims; None
    counts it, True also takes disks to be local where ``instance_storage`` is auto.
    ``nova_enabled_filters`` and ``nova_prefilters`` name what nova-scheduler enforces. With
    ``overbooking``, no option of a daemon, a destination may be filled above the policies'
    ceilings. ``contracts``: the options of [contracts].
    """

    dry_run: bool = True
    evacuate_disabled_hosts: bool = False
    cold_migrate_stopped: bool = False
    drain_reason_regex: str = ''
    drain_mode: DrainMode = DrainMode.AUTO
    drain_offline: OfflineDrains = OfflineDrains.NEVER
    drain_quiet_wait: float = 0.0
    enforce_hard_affinity: bool = False
    enforce_soft_affinity: bool = False
    enforce_domain_spread: bool = False
    enforce_placement_claims: bool = True
    enforce_placement_disk: bool | None = None
    require_cpu_compatibility: bool = False
    restrict_to_az: bool = False
    allow_disk_copy: bool = False
    instance_storage: str = 'auto'
    max_down_fraction: float = 0.3
    max_drain_fraction: float = 0.3
    max_missing_hosts: int | None = None
    objective: str = 'balanced'
    soft_affinity_weight: float = 0.05
    minimum_gain: float = 0.0001
    max_alternates: int = 2
    pinned_instances: frozenset[str] = frozenset()
    opted_out_projects: frozenset[str] = frozenset()
    nova_enabled_filters: frozenset[str] = frozenset()
    nova_prefilters: frozenset[str] = frozenset()
    live_migratable_pci_aliases: frozenset[str] = frozenset()
    live_migration_permit_post_copy: bool = False
    skip_hypervisor_version_check_on_lm: bool = False
    settle_seconds: float = 300.0
    overbooking: bool = False
    max_steps: int = 2_000_000
    failover: FailoverMode = FailoverMode.OFF
    contracts: agreements.ContractOptions = agreements.ContractOptions()
