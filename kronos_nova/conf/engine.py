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

"""[engine]: the options of planning: its scopes, its interval, and limits on moves."""

import dataclasses

from oslo_config import cfg
from oslo_config import types

from kronos_nova import model
from kronos_nova.conf import contracts
from kronos_nova.conf import freeze
from kronos_nova.conf import scope_mode

GROUP = cfg.OptGroup('engine', title='Planning')

OPTS: list[cfg.Opt] = [
    cfg.IntOpt('evaluation_interval', default=60, min=5,
               help='Seconds between two planning cycles. Shorter than the scrape interval of '
                    'Prometheus gains nothing.'),
    cfg.BoolOpt('dry_run', default=True,
                help='Plan, log and store the plan, but move nothing: no task, no message, no '
                     'cooldown. Set to false when the plans have convinced you.'),
    cfg.StrOpt('policies_file', default='/etc/kronos/policies.yaml',
               help='The policy file; it is read again when it changes. An invalid one is '
                    'refused and the last good one stays in force.'),
    cfg.IntOpt('instance_cooldown', default=900, min=0,
               help='Seconds during which an instance is not planned again, counted from its '
                    'planning and again from its completion. After its boot it is not moved to '
                    'balance load for as long; drains and repairs do not wait.'),
    cfg.IntOpt('instance_quarantine_seconds', default=3600, min=-1,
               help='Seconds during which an instance is left alone after its migration finally '
                    'failed; -1 is for ever (until an operator clears it).'),
    cfg.IntOpt('cooldown', default=600, min=0,
               help='Seconds between two plans for the same aggregate. Drains that have begun go '
                    'on regardless.'),
    cfg.IntOpt('keep_days', default=30, min=1,
               help='Days after which plans, and tasks that have ended, are deleted from the '
                    'database. Entries that are still live or in force stay.'),
    cfg.IntOpt('keep_audit_days', default=365, min=1,
               help='Days after which audit rows are deleted from the database: who has given '
                    'which command, and why. They outlive the plans that they concern; see '
                    'kronos-manage db audit.'),
    cfg.StrOpt('availability_zone',
               help='Plan only hosts of this availability zone: hosts of other zones belong to '
                    'no scope, and an executor with this option refuses moves to and from them. '
                    'Unset: hosts of all zones. Kronos 0.2.0 had the default nova. See also '
                    'restrict_to_az.'),
    cfg.ListOpt('aggregates', default=[],
                help='Host aggregates to plan, each on its own: instances never cross between '
                     'them. A host in several belongs to the first that is planned. Give '
                     'engines and executors the same list.'),
    cfg.BoolOpt('include_unassigned_hosts', default=True,
                help='Also plan the pool of hosts that belong to no aggregate.'),
    cfg.BoolOpt('enforce_hard_affinity', default=False,
                help='Repair violated affinity and anti-affinity server groups.'),
    cfg.BoolOpt('enforce_soft_affinity', default=False,
                help='Repair violated soft-affinity and soft-anti-affinity server groups.'),
    cfg.BoolOpt('enforce_domain_spread', default=False,
                help='Move instances that ask for a spread over failure domains (kronos:spread) to '
                     'emptier domains (kronos:domain of aggregates). Tenants may write such '
                     'requests, and so cause moves of their own instances, which get a quarter of '
                     'the moves of a cycle. Also without the option, moves for balance, packing '
                     'and repair never worsen a spread.'),
    cfg.StrOpt('name', default='',
               help='What tells this engine from others at the broker, where each has a queue '
                    'of its own for results. Default: the name of its host. Several engines of '
                    'one host each need a name, which must not change.'),
    cfg.StrOpt('snapshot_dir', default='',
               help='Directory into which SIGUSR1 writes a snapshot of all that the engine sees. '
                    'Empty: the signal only logs that no directory is set.'),
    cfg.BoolOpt('evacuate_disabled_hosts', default=False,
                help='Live-migrate instances off hosts whose nova-compute is disabled and up. '
                     'Hosts that are down are never drained: live migration needs the source.'),
    cfg.BoolOpt('cold_migrate_stopped', default=False,
                help='A drain also moves stopped instances (SHUTOFF), by cold migration, which '
                     'it confirms. Without it they block the drain, and are named. Between '
                     'hosts without shared storage nova-compute copies their disks by SSH, which '
                     'has to be set up. Executors heed it, too: give it to them as well.'),
    cfg.BoolOpt('enforce_placement_claims', default=True,
                help='Refuse a move whose destination has no room for the instance\'s allocation '
                     'in Placement.'),
    cfg.BoolOpt('enforce_placement_disk',
                help='Count DISK_GB among the claims. Not set: an instance\'s DISK_GB allocation '
                     'counts, because Nova\'s scheduler asks Placement for as much at the '
                     'destination, on any storage. true: also take disks to be copied '
                     'where instance_storage is auto, so that of two migrations the smaller one '
                     'with its disk goes first. false: it never counts, and Nova may refuse '
                     'planned moves.'),
    cfg.BoolOpt('require_cpu_compatibility', default=False,
                help='Refuse a destination that lacks a CPU trait (HW_CPU_*) of the source.'),
    # New in kronos-nova.
    cfg.BoolOpt('restrict_to_az', default=False,
                help='Refuse moves between availability zones.'),
    cfg.StrOpt('cell_metadata_key', default='kronos:cell',
               help='Key of the metadata of aggregates whose value names the cell that their '
                    'hosts are in, which Nova\'s API does not tell. Between hosts whose cells '
                    'are named and differ nothing is moved. Empty: it is not looked at. '
                    'Executors heed it, too: give it to them as well.'),
    cfg.BoolOpt('allow_disk_copy', default=False,
                help='Let imbalance moves (spread and pack) copy disks that lie on the host '
                     'itself. Without it our requests tell Nova to refuse such a move. Drains and '
                     'repairs copy where they must.'),
    cfg.StrOpt('instance_storage', default='auto', choices=[
        ('auto', 'Nova finds out at each move. After a refusal by lack of shared storage, '
                 'imbalance moves leave the instances with local disks on that host alone for a '
                 'day.'),
        ('shared', 'Every host sees the disks of all instances (Ceph, NFS).'),
        ('local', 'Disks lie on the host itself: without allow_disk_copy, imbalance moves take '
                  'only instances that have none, which boot from a volume.')],
        help='Where the disks of instances lie that are not volumes. Nova\'s API does not tell.'),
    cfg.StrOpt('drain_reason_regex', default='',
               help='Only hosts whose disabled_reason matches this regular expression are '
                    'drained. Reasons that begin with AUTO: (set by Nova itself) never are.'),
    cfg.StrOpt('drain_mode', default='auto', choices=[
        ('auto', 'Where the combined imbalance stays lowest. Instances of other hosts may have '
                 'to make room.'),
        ('compact', 'One destination is filled after the other, so that the fewest hosts are '
                    'used.'),
        ('scatter', 'Each destination gets as many instances of one cycle\'s plan as any other, '
                    'give or take one, where all have room.')],
        help='Where instances of a drained host go. Rules, claims and ceilings hold in each '
             'mode; who has no place in it goes where there is room.'),
    cfg.FloatOpt('max_down_fraction', default=0.3, min=0.0, max=1.0,
                 help='If a larger part of a scope\'s hosts is down, nothing moves: that is an '
                      'outage, not an imbalance.'),
    cfg.FloatOpt('max_drain_fraction', default=0.3, min=0.0, max=1.0,
                 help='If a larger part of a scope\'s hosts is disabled, nothing moves. One host '
                      'may always be drained. Hosts that are down count only while a campaign has '
                      'disabled them.'),
    cfg.IntOpt('max_missing_hosts', min=0,
               help='How many hosts of a scope may lack a score before a policy is untrusted and '
                    'imbalance moves stop. Default: 5 percent of the hosts, at least 1.'),
    cfg.StrOpt('objective', default='balanced', choices=['balanced', 'kronos'],
               help='balanced: search for the best plan within the budget. kronos: the greedy '
                    'choice of Kronos 0.2.0, with ties broken as there. For spread alone.'),
    cfg.FloatOpt('soft_affinity_weight', default=0.05, min=0.0, max=1.0,
                 help='Cost of one more violated soft server group rule, in units of combined '
                      'imbalance.'),
    cfg.FloatOpt('minimum_gain', default=0.0001, min=0.0, max=1.0,
                 help='Fall in combined imbalance that a move must bring for each GiB that it '
                      'is expected to send. At 0.0001 an instance with 100 GiB of memory moves '
                      'for one hundredth. 0 makes every move that helps at all. Without effect '
                      'when objective is kronos.'),
    cfg.IntOpt('max_alternates', default=2, min=0, max=10,
               help='Other legal destinations kept with each move, for when the first refuses.'),
    cfg.BoolOpt('confirm_moves', default=True,
                help='Ask Placement (GET /allocation_candidates) for each move that was chosen, '
                     'as nova-scheduler will, and plan again without those that it refuses or '
                     'twice does not answer for. When it cannot be asked at all, or answers for '
                     'the smaller part only, nothing is moved in that cycle.'),
    cfg.IntOpt('confirm_max_asks', default=200, min=1,
               help='How many moves of a scope Placement confirms in one cycle, those of plans '
                    'that were dropped included. Further ones go unconfirmed, and a warning says '
                    'so.'),
    cfg.IntOpt('confirm_max_replans', default=3, min=0,
               help='How often a scope is planned again in one cycle because Placement refused '
                    'moves. Moves that it refuses after that are left out of the plan.'),
    cfg.ListOpt('pinned_instances', default=[],
                help='UUIDs of instances that are never moved. They still count for scores, '
                     'claims and groups.'),
    cfg.ListOpt('opted_out_projects', default=[],
                help='IDs of projects whose instances are never moved. They still count for '
                     'scores, claims and groups. Executors heed it, too: give it to them as '
                     'well.'),
    cfg.StrOpt('opt_out_metadata_key', default='',
               help='Key of the servers\' metadata by which an owner keeps an instance where it '
                    'is: true, or anything that is no boolean, opts out; false does not, and '
                    'nothing opts in. Empty: metadata is not looked at. Give it to executors as '
                    'well.'),
    cfg.StrOpt('opt_out_tag', default='',
               help='Tag of servers by which an owner keeps an instance where it is. Empty: tags '
                    'are not looked at. Give it to executors as well.'),
    cfg.ListOpt('nova_enabled_filters',
                default=['ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
                         'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter'],
                help='What [filter_scheduler] enabled_filters of your nova-scheduler says (the '
                     'default is Nova\'s). Judged here if it stands there: '
                     'AggregateInstanceExtraSpecsFilter, AggregateMultiTenancyIsolation, '
                     'AggregateImagePropertiesIsolation, DifferentHostFilter, SameHostFilter; '
                     'others are left to Nova. Give it to executors as well.'),
    cfg.ListOpt('nova_prefilters', default=[],
                item_type=types.String(choices=[
                    'limit_tenants_to_placement_aggregate',
                    'placement_aggregate_required_for_tenants',
                    'enable_isolated_aggregate_filtering']),
                help='Options of [scheduler] that are true in your nova-scheduler. '
                     'Give it to executors as well.'),
    cfg.ListOpt('live_migratable_pci_aliases', default=[],
                help='PCI aliases that [pci] alias of Nova calls live_migratable. Instances with '
                     'others (pci_passthrough:alias) are not moved live, as Nova refuses that. '
                     'Give it to executors as well.'),
    cfg.BoolOpt('live_migration_permit_post_copy', default=False,
                help='Set it if [libvirt] live_migration_permit_post_copy is set on a compute '
                     'node: QEMU then moves no instance with a VFIO device or a vGPU live. Give '
                     'it to executors as well.'),
    cfg.BoolOpt('skip_hypervisor_version_check_on_lm', default=False,
                help='Set it if [workarounds] skip_hypervisor_version_check_on_lm is set in '
                     'Nova: else no instance is moved live to a host with an older hypervisor, '
                     'as Nova refuses that. Give it to executors as well.'),
    cfg.IntOpt('settle_seconds', default=300, min=0, max=3600,
               help='How long after a move\'s completion samples are taken to show it only in '
                    'part: imbalance moves wait so long, and as much longer as samples are old. '
                    'A longer range in a policy\'s queries counts instead. Set it to the longest '
                    'range inside your recording rules. 0 switches waiting off.'),
    cfg.StrOpt('failover', default='off', choices=[
        ('off', 'No host is certified.'),
        ('warn', 'Each cycle certifies for each host whether its instances would find places if '
                 'it failed. A plan that would turn a safe host unsafe says so.'),
        ('enforce', 'Moves that would do so are left out of the plan, of drains as well: where '
                    'the rest of the cloud has no room to spare, drains stop. Boots leave the '
                    'reserve free, as [kronos] failover_reserve in nova.conf says.')],
        help='Whether plans keep the failover certificate (kronos failover check). A cycle may '
             'then take as long again as planning_deadline. Without a certificate, as while a '
             'cell does not answer, all moves pass; while the metrics are not trusted, it '
             'counts claims alone.'),
    cfg.StrOpt('drain_offline', default='never', choices=[
        ('never', 'No instance.'),
        ('consent', 'Instances whose contract says kronos:disruption = cold-ok or poweroff-ok.'),
        ('allow', 'Also instances without a contract that says anything about it.')],
        help='Which instances a drain shuts down, moves cold and starts again, once an executor '
             'has ended their live migration at its deadline (abort_at_deadline or '
             'drain_escalation of [executor]). Such an instance is moved although it is '
             'quarantined for that. What an owner forbids counts in full, without the limits '
             'in [contracts]. Give it to executors as well.'),
    cfg.IntOpt('drain_quiet_wait', default=0, min=0, max=604800,
               help='How many seconds, from the begin of the drain, a drain may postpone an '
                    'instance whose live migration is not expected to converge now. The instance '
                    'waits for the next hour in which its memory writes (vm_dirty_rate_query) let '
                    'the migration converge a day before. A deadline of the drain shortens the '
                    'wait. Where plans wait for approval no drain waits. 0: no drain waits.'),
    cfg.IntOpt('sustain_for', default=0, min=0, max=86400,
               help='Seconds for which spread or pack must have had something to move, in every '
                    'cycle, before it is moved. Drains and repairs do not wait. 0: at once.'),
    cfg.IntOpt('breaker_worse_plans', default=3, min=0, max=100,
               help='After so many plans in a row that left a larger combined imbalance than '
                    'they found the scope is paused; with mode pack after so many that left '
                    'more hosts in use or more overload. 0: never.'),
    cfg.FloatOpt('breaker_failure_rate', default=0.5, min=0.0, max=1.0,
                 help='When a larger part of the scope\'s migrations of the last hour failed, and '
                      'at least three, it is paused. 1: never.'),
    cfg.IntOpt('breaker_pause', default=-1, min=-1,
               help='How many seconds such a pause lasts; -1: until kronos resume.'),
    cfg.MultiOpt('freeze_windows', item_type=freeze.WindowType(),
                 help='A time during which nothing begins to move, drains and repairs neither: '
                      'minute, hour, day, month and weekday as in cron, when it begins, and how '
                      'long it lasts (m, h, d). "0 8 * * mon-fri 10h" is office hours. Give the '
                      'option again for each further window. Executors heed it, too: give it to '
                      'them as well.'),
    cfg.Opt('freeze_timezone', type=freeze.ZoneType(), default='UTC',
            help='By whose clocks the windows begin, such as Europe/Berlin.'),
    cfg.StrOpt('mode', default=scope_mode.AUTO, choices=[
        (scope_mode.AUTO, 'A plan is carried out as soon as it is stored.'),
        (scope_mode.APPROVE, 'Nothing of a plan begins before an operator has approved it (kronos '
                             'plan approve), drains and repairs neither. Until it is approved, '
                             'rejected or has waited for approval_seconds its scope is not '
                             'planned again.')],
        help='Whether plans wait for an operator.'),
    cfg.MultiOpt('scope_mode', item_type=scope_mode.ScopeModeType(),
                 help='mode of one scope: the name of an aggregate, or _unassigned_, a colon, and '
                      'auto or approve. Give the option again for each further scope.'),
    cfg.IntOpt('min_approvals', default=1, min=1, max=scope_mode.MOST_APPROVALS,
               help='How many people must approve a plan that waits for approval. No person counts '
                    'twice: kronos-api knows people by their Keystone user, and all local users of '
                    'controllers count as one person. Above 1, moves that an operator requests '
                    '(plan retry and revert, swap) wait for the others as well.'),
    cfg.MultiOpt('scope_min_approvals', item_type=scope_mode.ScopeApprovalsType(),
                 help='min_approvals of one scope: its name, a colon, and the number. Give the '
                      'option again for each further scope.'),
    cfg.IntOpt('approval_seconds', default=3600, min=60,
               help='How many seconds a plan waits for approval. Then it lapses: its tasks are '
                    'cancelled, and the scope is planned again.'),
    cfg.IntOpt('publish_interval', default=60, min=0,
               help='Seconds between two readings of the cloud that the engine writes into the '
                    'database for kronos-api: hosts, instances and scores. A cycle writes the '
                    'parts that have changed. 0: kronos-api shows neither hosts nor instances.'),
    cfg.IntOpt('planning_deadline', default=30, min=1,
               help='Safety stop in seconds; a plan cut off by it says so.'),
    cfg.ListOpt('hypervisor_types', default=['QEMU', 'KVM'],
                help='Hypervisor types, as os-hypervisors names them, whose hosts are planned.'),
    cfg.StrOpt('source', default='prometheus',
               help='Score source, a name in the entry points kronos_nova.sources.'),
    cfg.BoolOpt('require_age', default=False,
                help='Treat a policy without age_query as untrusted.'),
    cfg.StrOpt('executor', default='nova',
               help='How moves are carried out, a name in the entry points '
                    'kronos_nova.executors. Used by kronos-executor.'),
]


def find_freeze_reason(conf: cfg.ConfigOpts, now: float) -> str | None:
    """Return a sentence on the freeze window that is open now, or None."""
    return freeze.find_open_window(conf.engine.freeze_windows or (), conf.engine.freeze_timezone,
                                   now)


def needs_approval(conf: cfg.ConfigOpts, scope: str) -> bool:
    """Return whether plans of the scope wait for an operator; its last scope_mode counts."""
    of = {setting.scope: setting.mode for setting in conf.engine.scope_mode or ()}
    return bool(of.get(scope, conf.engine.mode) == scope_mode.APPROVE)


def count_needed_approvals(conf: cfg.ConfigOpts, scope: str) -> int:
    """Return how many people must approve a plan of the scope; 0: its plans wait for no one."""
    if not needs_approval(conf, scope):
        return 0
    of = {setting.scope: setting.number for setting in conf.engine.scope_min_approvals or ()}
    return int(of.get(scope, conf.engine.min_approvals))


#: Fields of ``model.PlanningOptions`` without an option: only requests made by hand set them.
NOT_SET = frozenset({'overbooking', 'max_steps'})
_OTHER_GROUPS = frozenset({'contracts'})


def planned_zone(conf: cfg.ConfigOpts) -> str | None:
    """Return the availability zone whose hosts are planned; None: every zone."""
    return conf.engine.availability_zone or None


def build_options(conf: cfg.ConfigOpts) -> model.PlanningOptions:
    """Return the planner's options as a frozen value."""
    group = conf.engine
    values = {f.name: getattr(group, f.name) for f in dataclasses.fields(model.PlanningOptions)
              if f.name not in NOT_SET | _OTHER_GROUPS}
    values |= {name: frozenset(value) for name, value in values.items()
               if isinstance(value, list)}
    values['drain_mode'] = model.DrainMode(group.drain_mode)
    values['failover'] = model.FailoverMode(group.failover)
    values['drain_offline'] = model.OfflineDrains(group.drain_offline)
    return model.PlanningOptions(**values, contracts=contracts.build_options(conf))
