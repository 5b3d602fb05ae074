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

"""Every metric: its name, its labels, its meaning.

Labels have values from closed lists, or names that operators give: ``scope`` is an aggregate,
``policy`` stands in a policy file, ``host`` is a nova-compute, ``driver`` is the installed one that
``[engine] executor`` names. ``scheduler`` is a host of nova-scheduler and ``worker`` the number of
a worker's record; a ``reason`` is bounded text. No label has a value that a tenant writes.
"""

from collections.abc import Mapping
import dataclasses
import enum


class MetricKind(enum.StrEnum):
    """Types of Prometheus metrics."""

    GAUGE = 'gauge'
    COUNTER = 'counter'
    HISTOGRAM = 'histogram'


class MetricReporter(enum.StrEnum):
    """The daemon that reports a metric, and the part that it is about."""

    DAEMON = 'each daemon, of itself'
    ENGINE = 'kronos-engine'
    EXECUTOR = 'kronos-executor'
    DATABASE = 'each daemon, of the database'


@dataclasses.dataclass(frozen=True, slots=True)
class MetricEntry:
    """A metric; a counter's name ends with ``_total``."""

    name: str
    kind: MetricKind
    source: MetricReporter
    labels: tuple[str, ...]
    text: str


def _list_metrics() -> tuple[MetricEntry, ...]:
    gauge, counter, histogram = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
    daemon, engine, executor, database = MetricReporter
    by_policy = ('scope', 'policy')
    by_worker = ('scheduler', 'worker')
    by_file = (*by_worker, 'policies_file')
    by_plugin = (*by_worker, 'plugin')
    by_fault = (*by_worker, 'where', 'error')
    return (
        MetricEntry('kronos_build_info', gauge, daemon, ('daemon', 'version'),
                    'Always 1; the labels say what runs.'),
        MetricEntry('kronos_dry_run', gauge, daemon, (),
                    '1: nothing is moved; plans are only reported.'),
        MetricEntry('kronos_alive', gauge, daemon, (), '1: what /healthz says is ok.'),
        MetricEntry('kronos_ready', gauge, daemon, (), '1: what /readyz says is ok.'),
        MetricEntry('kronos_loop_age_seconds', gauge, daemon, ('loop',),
                    'Since a loop of the daemon has last come round: cycle, leases or pass.'),

        MetricEntry('kronos_evaluation_interval_seconds', gauge, engine, (),
                    'From the beginning of a cycle to the next ([engine] evaluation_interval).'),
        MetricEntry('kronos_scope_configured', gauge, engine, ('scope',),
                    '1: this engine is to plan the scope, if no other one does.'),
        MetricEntry('kronos_scope_planned_timestamp_seconds', gauge, engine, ('scope',),
                    'When this engine last planned the scope, with any result.'),
        MetricEntry('kronos_cycles_total', counter, engine, ('scope', 'result'),
                    'Cycles of a scope: result is moves, nothing, failed or stopped.'),
        MetricEntry('kronos_cycle_failures_total', counter, engine, ('scope', 'code'),
                    'Failed cycles by the code of the error; defect is one of ours.'),
        MetricEntry('kronos_cycle_step_seconds', histogram, engine, ('step',),
                    'How long collect, score, plan and check took; collect has one value per '
                    'scope.'),
        MetricEntry('kronos_hosts', gauge, engine, ('scope',), 'Hosts of the scope.'),
        MetricEntry('kronos_instances', gauge, engine, ('scope',), 'Instances on them.'),
        MetricEntry('kronos_imbalance_ratio', gauge, engine, by_policy,
                    'Largest less smallest score, as measured, of the hosts that may give or '
                    'take.'),
        MetricEntry('kronos_planned_imbalance_ratio', gauge, engine, by_policy,
                    'The same once moves that wait for approval, moves under way and those of the '
                    'last plan are done, as planning predicts it.'),
        MetricEntry('kronos_imbalance_threshold_ratio', gauge, engine, by_policy,
                    'Above it the policy wants moves.'),
        MetricEntry('kronos_combined_imbalance', gauge, engine, ('scope',),
                    'Sum of all policies\' imbalances as measured, by weight.'),
        MetricEntry('kronos_planned_combined_imbalance', gauge, engine, ('scope',),
                    'The same once moves that wait for approval, moves under way and those of the '
                    'last plan are done, as planning predicts it.'),
        MetricEntry('kronos_policy_trusted', gauge, engine, by_policy,
                    '0: what Prometheus answered must not be used, and nothing moves for balance.'),
        MetricEntry('kronos_sample_age_seconds', gauge, engine, by_policy,
                    'Age of the samples, of policies with an age_query.'),
        MetricEntry('kronos_missing_hosts', gauge, engine, by_policy,
                    'Hosts that are up and have no score: they neither give nor take.'),
        MetricEntry('kronos_coverage_ratio', gauge, engine, by_policy,
                    'Median of the part of a score that instances explain, over the hosts that '
                    'have any and a score of 5 % at least.'),
        MetricEntry('kronos_host_score_ratio', gauge, engine, ('scope', 'policy', 'host'),
                    'Utilisation of a host; not told with [monitoring] host_scores = false.'),
        MetricEntry('kronos_rejected_moves', gauge, engine, ('scope', 'rule'),
                    'What the last cycle could not move, by the rule that refused.'),
        MetricEntry('kronos_undrained_hosts', gauge, engine, ('scope',),
                    'Hosts that were ordered to be drained and keep instances.'),
        MetricEntry('kronos_failover_unsafe_hosts', gauge, engine, ('scope',),
                    'Hosts whose instances would not all find places if the host failed, at the '
                    'last cycle. Missing with [engine] failover = off, and without a certificate.'),
        MetricEntry('kronos_failover_unknown_hosts', gauge, engine, ('scope',),
                    'Hosts with instances that the failover certificate cannot judge.'),
        MetricEntry('kronos_failover_unplaceable_instances', gauge, engine, ('scope',),
                    'Instances that no host may take if their own fails, also after moves: they '
                    'count for no unsafe host.'),
        MetricEntry('kronos_failover_certified_timestamp_seconds', gauge, engine, ('scope',),
                    'When this engine last certified the scope, with any result; before the first '
                    'certificate, when it first planned the scope. Missing with [engine] failover '
                    '= off.'),
        MetricEntry('kronos_plans_total', counter, engine, ('scope', 'dry_run'),
                    'Plans with moves; with dry_run true they are not carried out.'),
        MetricEntry('kronos_planned_moves_total', counter, engine,
                    ('scope', 'phase', 'method', 'dry_run'), 'Moves of the plans counted above.'),
        MetricEntry('kronos_truncated_plans_total', counter, engine, ('scope',),
                    'Plans that were cut off: by planning_deadline, or after very many steps.'),
        MetricEntry('kronos_judged_plans_total', counter, engine, ('scope', 'result'),
                    'Plans with a known outcome: better or worse.'),
        MetricEntry('kronos_breaker_trips_total', counter, engine, ('scope',),
                    'How often the circuit breaker has paused the scope.'),

        MetricEntry('kronos_scheduler_channel_up', gauge, engine, (),
                    '0: [kronos_channel] did not answer the engine in time, and the other metrics '
                    'of nova-scheduler are missing. Missing without a channel.'),
        MetricEntry('kronos_scheduler_workers', gauge, engine, (),
                    'Workers of nova-scheduler that published a record within two minutes. A '
                    'worker begins with its first request.'),
        MetricEntry('kronos_scheduler_refused_records', gauge, engine, (),
                    'Records of workers that the engine refuses: another key in hmac_keys, another '
                    'version, or not ours.'),
        MetricEntry('kronos_scheduler_scored_hosts', gauge, engine, by_file,
                    'Hosts with a score that requests use. 0: Nova decides alone.'),
        MetricEntry('kronos_scheduler_score_age_seconds', gauge, engine, by_file,
                    'Age of the oldest sample behind these scores.'),
        MetricEntry('kronos_scheduler_unscored_info', gauge, engine, (*by_file, 'reason'),
                    'Always 1; the reason why Nova decides alone. Numbers in it are replaced by '
                    'N.'),
        MetricEntry('kronos_scheduler_requests_total', counter, engine, by_plugin,
                    'Requests that a filter or weigher of ours judged; plugin KronosWeigher: '
                    'requests that were weighed.'),
        MetricEntry('kronos_scheduler_request_seconds_total', counter, engine, by_plugin,
                    'Time that these requests spent in the filter or weigher. Look-ups of a '
                    'multiplier are not included.'),
        MetricEntry('kronos_scheduler_refused_hosts_total', counter, engine, by_plugin,
                    'Hosts that the filter refused, of all requests.'),
        MetricEntry('kronos_scheduler_faults_total', counter, engine, by_fault,
                    'Errors of ours that did not reach Nova: where is the filter, the weigher or '
                    'the thread, error the name of the exception.'),
        MetricEntry('kronos_scheduler_fault_timestamp_seconds', gauge, engine, by_fault,
                    'When the newest error came.'),

        MetricEntry('kronos_tasks_ended_total', counter, executor,
                    ('driver', 'phase', 'method', 'result'),
                    'Tasks that this executor has ended: completed, failed or cancelled. With the '
                    'driver dry_run nothing has moved.'),
        MetricEntry('kronos_failed_attempts_total', counter, executor, ('driver', 'error_type'),
                    'Tries at one destination that failed; another may have followed.'),
        MetricEntry('kronos_task_wait_seconds', histogram, executor, ('driver', 'phase'),
                    'From planning a move until Nova is first asked for it.'),
        MetricEntry('kronos_migration_seconds', histogram, executor,
                    ('driver', 'method', 'result'),
                    'From asking Nova until the task has ended.'),
        MetricEntry('kronos_migration_step_seconds', histogram, executor,
                    ('driver', 'method', 'step'),
                    'Of a try at one destination, well or not: queue, pre_flight, hooks, '
                    'pre_check, '
                    'preparing, running, post_migrating, post_flight, as far as it came.'),

        MetricEntry('kronos_store_up', gauge, database, (),
                    '0: the database did not answer in time, and its other metrics are missing.'),
        MetricEntry('kronos_tasks', gauge, database, ('scope', 'phase', 'state'),
                    'Tasks that are not over.'),
        MetricEntry('kronos_oldest_task_age_seconds', gauge, database, ('scope', 'state'),
                    'Age of the oldest one since it was planned.'),
        MetricEntry('kronos_overdue_tasks', gauge, database, ('scope',),
                    'Those that should have begun, or ended, by now.'),
        MetricEntry('kronos_requests', gauge, database, ('kind',),
                    'Requests over MQTT that are open; kind is the task, such as migrate vm.'),
        MetricEntry('kronos_oldest_request_age_seconds', gauge, database, ('kind',),
                    'Age of the oldest one since it came.'),
        MetricEntry('kronos_scope_leased', gauge, database, ('scope',),
                    '1: some engine has the right to plan the scope. A dry run takes none.'),
        MetricEntry('kronos_lease_epoch', gauge, database, ('scope',),
                    'Grows when the scope gets a new lease: by another engine, or after a '
                    'restart.'),
        MetricEntry('kronos_cloud_paused', gauge, database, (), '1: kronos pause, of everything.'),
        MetricEntry('kronos_scope_paused', gauge, database, ('scope',),
                    '1: the scope is paused, by whomever.'),
        MetricEntry('kronos_breaker_open', gauge, database, ('scope',),
                    '1: it is the circuit breaker that has paused it.'),
        MetricEntry('kronos_quarantined', gauge, database, ('kind',),
                    'Objects that are left alone: kind is instance, host, disks (a host whose '
                    'instances\' disks are its own), cells (two hosts of different cells), or '
                    'service '
                    '(Nova, Placement or Keystone, when executors found that it does not work).'),
        MetricEntry('kronos_draining_hosts', gauge, database, ('scope',),
                    'Hosts that packing is emptying over several cycles.'),
        MetricEntry('kronos_campaign_paused', gauge, database, ('scope',),
                    '1: the campaign of the scope pauses. Missing without a campaign.'),
        MetricEntry('kronos_campaign_hosts', gauge, database, ('scope', 'state'),
                    'Hosts of the campaign of the scope, by their state.'),
        MetricEntry('kronos_predicted_gain', gauge, database, ('scope',),
                    'By how much the last judged plan that spreads was to lower the combined '
                    'imbalance.'),
        MetricEntry('kronos_realised_gain', gauge, database, ('scope',),
                    'By how much it did; negative: it made things worse.'),
        MetricEntry('kronos_judged_timestamp_seconds', gauge, database, ('scope',),
                    'When that was seen.'),
    )


METRICS: Mapping[str, MetricEntry] = {metric.name: metric for metric in _list_metrics()}
