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

"""The conversion of a daemon's state to samples: metric name, label values in their order, value.
"""

from collections.abc import Iterator
import re
import statistics
from typing import Any

from kronos_nova import model
from kronos_nova.feed import worker_records
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.store import store_stats as censuses

#: The least score of a host for the coverage: below it, the load of the host's own system is
#: a large part, and no sign of a wrong unit.
LOADED = 0.05

#: A number that stands alone; ages in a reason change with each scrape.
_NUMBER = re.compile(r'(?<![\w./-])\d+(?:\.\d+)?(?![\w/-]|\.\w)')

Sample = tuple[str, tuple[str, ...], float | tallies.ValueDistribution]

#: A tally's name of a count or duration -> metric.
_COUNTS = {
    'cycles': 'kronos_cycles_total',
    'cycle_failures': 'kronos_cycle_failures_total',
    'plans': 'kronos_plans_total',
    'planned_moves': 'kronos_planned_moves_total',
    'truncated_plans': 'kronos_truncated_plans_total',
    'judged_plans': 'kronos_judged_plans_total',
    'breaker_trips': 'kronos_breaker_trips_total',
}
_DRIVEN = {
    'tasks_ended': 'kronos_tasks_ended_total',
    'failed_attempts': 'kronos_failed_attempts_total',
}
_DURATIONS = {
    'steps': 'kronos_cycle_step_seconds',
}
_DRIVEN_DURATIONS = {
    'waits': 'kronos_task_wait_seconds',
    'migrations': 'kronos_migration_seconds',
    'phases': 'kronos_migration_step_seconds',
}
#: A key of a policy's report -> metric.
_POLICY = {
    'imbalance_measured': 'kronos_imbalance_ratio',
    'imbalance_after': 'kronos_planned_imbalance_ratio',
    'threshold': 'kronos_imbalance_threshold_ratio',
    'age_seconds': 'kronos_sample_age_seconds',
}
_SCOPE = {
    'hosts': 'kronos_hosts',
    'instances': 'kronos_instances',
    'combined_measured': 'kronos_combined_imbalance',
    'combined_after': 'kronos_planned_combined_imbalance',
}


def list_health_samples(health: healths.DaemonHealth, release: str) -> Iterator[Sample]:
    facts = health.map_facts()
    yield 'kronos_build_info', (facts['daemon'], release), 1.0
    yield 'kronos_dry_run', (), float(facts['dry_run'])
    yield 'kronos_alive', (), float(not health.find_restart_reason())
    yield 'kronos_ready', (), float(not health.find_unready_reason())
    for loop, seconds in facts['seconds_since'].items():
        yield 'kronos_loop_age_seconds', (loop,), seconds


def of_interval(seconds: float | None) -> Iterator[Sample]:
    """Yield an engine's interval; nothing for another daemon."""
    if seconds is not None:
        yield 'kronos_evaluation_interval_seconds', (), seconds


def list_tally_samples(reading: tallies.TallyCopy, driver: str,
                       host_scores: bool) -> Iterator[Sample]:
    """Yield the samples of a tally.

    :param driver: the driver with which executors carry tasks out.
    :param host_scores: also each host's score under each policy.
    """
    for scope in reading.scopes:
        yield 'kronos_scope_configured', (scope,), 1.0
    for scope, at in reading.planned_at.items():
        yield 'kronos_scope_planned_timestamp_seconds', (scope,), at
    for scope, at in reading.certified_at.items():
        yield 'kronos_failover_certified_timestamp_seconds', (scope,), at
    for ours, name in _COUNTS.items():
        for key, number in reading.counts.get(ours, {}).items():
            yield name, key, float(number)
    for ours, name in _DRIVEN.items():
        for key, number in reading.counts.get(ours, {}).items():
            yield name, (driver, *key), float(number)
    for ours, name in _DURATIONS.items():
        for key, distribution in reading.durations.get(ours, {}).items():
            yield name, key, distribution
    for ours, name in _DRIVEN_DURATIONS.items():
        for key, distribution in reading.durations.get(ours, {}).items():
            yield name, (driver, *key), distribution
    for scope, scope_reading in reading.readings.items():
        yield from _list_scope_samples(scope, scope_reading)
        if host_scores:
            for policy, scores in scope_reading.scores.items():
                for host, score in scores.items():
                    yield 'kronos_host_score_ratio', (scope, policy, host), score


def _list_scope_samples(scope: str, scope_reading: tallies.ScopeReading) -> Iterator[Sample]:
    row = scope_reading.report
    yield from _list_field_samples(_SCOPE, row, (scope,))
    yield 'kronos_undrained_hosts', (scope,), float(scope_reading.undrained)
    if row['failover']:
        yield 'kronos_failover_unsafe_hosts', (scope,), float(row['failover']['unsafe'])
        yield 'kronos_failover_unknown_hosts', (scope,), float(row['failover']['unknown'])
        yield ('kronos_failover_unplaceable_instances', (scope,),
               float(row['failover']['unplaceable']))
    for rule, number in row['rejections'].items():
        yield 'kronos_rejected_moves', (scope, rule), float(number)
    for policy in row['policies']:
        key = (scope, policy['name'])
        yield from _list_field_samples(_POLICY, policy, key)
        yield 'kronos_policy_trusted', key, float(policy['name'] not in scope_reading.untrusted)
        yield 'kronos_missing_hosts', key, float(len(policy['missing_hosts']))
        scores = scope_reading.scores.get(policy['name'], {})
        shares = [share for host, share in policy['coverage'].items()
                  if scores.get(host, 0.0) >= LOADED]
        if shares:
            yield 'kronos_coverage_ratio', key, statistics.median(shares)


def _list_field_samples(names: dict[str, str], row: Any, key: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the fields that have a value: an untrusted policy has no imbalance."""
    for field, name in names.items():
        if row[field] is not None:
            yield name, key, float(row[field])


def list_database_samples(census: censuses.RowCensus | None) -> Iterator[Sample]:
    """Yield the samples of the database; None means that it is away."""
    yield 'kronos_store_up', (), float(census is not None)
    if census is None:
        return
    for (scope, phase, state), number in census.tasks.items():
        yield 'kronos_tasks', (scope, phase, state), float(number)
    for (scope, state), age in census.ages.items():
        yield 'kronos_oldest_task_age_seconds', (scope, state), age
    for kind in ('instance', 'host', 'disks', 'cells', 'service'):
        yield 'kronos_quarantined', (kind,), float(census.quarantined.get(kind, 0))
    for kind, (number, age) in census.requests.items():
        yield 'kronos_requests', (kind,), float(number)
        yield 'kronos_oldest_request_age_seconds', (kind,), age
    pauses = {pause.scope: pause for pause in census.pauses}
    for scope, numbers in census.campaigns.items():
        yield 'kronos_campaign_paused', (scope,), float(numbers.is_paused)
        for state in model.CampaignHostState:
            yield 'kronos_campaign_hosts', (scope, state), float(numbers.hosts.get(state, 0))
    yield 'kronos_cloud_paused', (), float(None in pauses)
    for scope in sorted({*census.scopes, *(name for name in pauses if name is not None)}):
        pause = pauses.get(scope)
        yield 'kronos_scope_paused', (scope,), float(pause is not None)
        yield 'kronos_breaker_open', (scope,), float(
            pause is not None and pause.paused_by == breakers.NAME)
    for scope, scope_stats in census.scopes.items():
        yield 'kronos_scope_leased', (scope,), float(scope_stats.leased)
        yield 'kronos_lease_epoch', (scope,), float(scope_stats.epoch)
        yield 'kronos_overdue_tasks', (scope,), float(census.overdue.get(scope, 0))
        yield 'kronos_draining_hosts', (scope,), float(scope_stats.draining)
        if scope_stats.outcome is not None and scope_stats.realised_at is not None:
            outcome = scope_stats.outcome
            yield 'kronos_predicted_gain', (scope,), outcome.before - outcome.foreseen
            yield 'kronos_realised_gain', (scope,), outcome.before - outcome.realised
            yield 'kronos_judged_timestamp_seconds', (scope,), scope_stats.realised_at


def list_worker_samples(reading: worker_records.RecordReading | None) -> Iterator[Sample]:
    """Yield the samples of nova-scheduler's workers; None means that the channel is away."""
    yield 'kronos_scheduler_channel_up', (), float(reading is not None)
    if reading is None:
        return
    yield 'kronos_scheduler_workers', (), float(len(reading.records))
    yield 'kronos_scheduler_refused_records', (), float(reading.refused)
    for number, record in reading.records.items():
        yield from _list_one_worker_samples((record.host, str(number)), record)


def _list_one_worker_samples(key: tuple[str, str],
                             record: worker_records.WorkerRecord) -> Iterator[Sample]:
    for file in record.files:
        yield 'kronos_scheduler_scored_hosts', (*key, file.path), float(file.hosts)
        if file.age is not None:
            yield 'kronos_scheduler_score_age_seconds', (*key, file.path), file.age
        if not file.hosts:
            yield ('kronos_scheduler_unscored_info',
                   (*key, file.path, _NUMBER.sub('N', file.reason)), 1.0)
    for plugin, work in record.plugins.items():
        yield 'kronos_scheduler_requests_total', (*key, plugin), float(work.requests)
        yield 'kronos_scheduler_request_seconds_total', (*key, plugin), work.seconds
        yield 'kronos_scheduler_refused_hosts_total', (*key, plugin), float(work.refused_hosts)
    for fault, fault_count in record.faults.items():
        yield 'kronos_scheduler_faults_total', (*key, *fault), float(fault_count.number)
        yield 'kronos_scheduler_fault_timestamp_seconds', (*key, *fault), fault_count.newest
