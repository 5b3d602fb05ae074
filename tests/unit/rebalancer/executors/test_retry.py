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


"""What follows from a failure."""

import dataclasses
import random

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.store import rows

NOW = 5000.0
SETTINGS = retry.RetrySettings(max_attempts=2, retry_backoff=30)


def row(attempt=0, retry_count=0, alternates=('h3',), **kw):
    return rows.TaskRow(model.Task(
        't', 'p', 's', 'i', 'h1', 'h2', model.Phase.SPREAD, alternates=alternates,
        retry_count=retry_count, max_retries=3, **kw), attempt=attempt)


def after(error, of=None):
    made = error(instance_uuid='i', problem='p', to_host='h2', seconds=300.0)
    return retry.after_failure(of or row(), made, NOW, SETTINGS)


@pytest.mark.parametrize('error', [exception.PreFlightError, exception.MigrationTimeout])
def test_a_permanent_error_is_final_and_quarantines(error):
    verdict = after(error)
    assert not verdict.again and verdict.quarantine and not verdict.refused


@pytest.mark.parametrize('error, refused', [
    (exception.MigrationFailed, True), (exception.PlacementRejected, False),
    (exception.FailureUntold, False)])
def test_a_refusing_destination_gives_way_to_the_next_at_once(error, refused):
    assert after(error) == retry.RetryDecision(
        again=True, refused=refused, attempt=1, retry_count=0, not_before=NOW)


def test_when_all_destinations_refused_a_new_pass_begins_with_the_first():
    verdict = after(exception.MigrationFailed, row(attempt=1, alternates=()))
    assert verdict == retry.RetryDecision(
        again=True, refused=True, attempt=0, retry_count=1, not_before=NOW + 30)


@pytest.mark.parametrize('retries', range(6))
@pytest.mark.parametrize('seed', range(20))
@pytest.mark.turns(4)
def test_retries_that_count_alternates_bound_all_attempts(retries, seed):
    pick = random.Random(seed)
    errors = [exception.MigrationFailed, exception.PlacementRejected, exception.FailureUntold,
              exception.NovaClientError]
    destinations = ('h2', 'h3', 'h4')
    tried = row(alternates=destinations[1:])
    task = dataclasses.replace(tried.task, max_retries=retries, counts_alternates=True)
    attempts, again = 0, True
    while again:
        attempts += 1
        assert attempts <= 1 + retries
        error = pick.choice(errors)(instance_uuid='i', problem='p', to_host='h2',
                                    seconds=300.0)
        verdict = retry.after_failure(dataclasses.replace(tried, task=task), error, NOW,
                                      retry.RetrySettings(max_attempts=3))
        again = verdict.again
        tried = dataclasses.replace(tried, attempt=verdict.attempt)
        task = dataclasses.replace(task, retry_count=verdict.retry_count,
                                   alternates=destinations[verdict.attempt + 1:])
    assert attempts == 1 + retries


def test_max_attempts_bounds_the_destinations_of_a_pass():
    assert after(exception.MigrationFailed, row(attempt=1)).retry_count == 1


@pytest.mark.parametrize('error, quarantine', [
    (exception.MigrationFailed, True), (exception.PlacementRejected, False),
    (exception.FailureUntold, True), (exception.MigrationError, True),
    (exception.NovaClientError, False)])
def test_max_retries_ends_the_task_and_instance_faults_quarantine(error, quarantine):
    verdict = after(error, row(retry_count=3, alternates=()))
    assert (verdict.again, verdict.quarantine) == (False, quarantine)


def test_defect_15_backoff_doubles_and_counts_from_now():
    waits = [after(exception.NovaClientError, row(retry_count=n, not_before=1.0)).not_before - NOW
             for n in range(3)]
    assert waits == [30, 60, 120]


def test_an_api_error_stays_with_its_destination():
    assert after(exception.NovaClientError, row(attempt=1)).attempt == 1


def test_the_deadline_grows_with_memory_and_copied_disk():
    task = model.Task('t', 'p', 's', 'i', 'h1', 'h2', model.Phase.SPREAD, memory_mb=2048,
                      disk_gb=10)
    assert retry.compute_deadline(task, NOW, retry.RetrySettings()) == NOW + 600 + 800 * 12


@pytest.mark.parametrize(('method', 'memory_mb', 'disk_gb', 'gib'), [
    ('live', 512, 0, 2), ('live', 512, 1, 4), ('live', 65536, 100, 164), ('cold', 65536, 0, 0),
    ('cold', 65536, 100, 100)])
def test_the_deadline_counts_copied_gib_as_nova_does(method, memory_mb, disk_gb, gib):
    task = model.Task('t', 'p', 's', 'i', 'h1', 'h2', model.Phase.EVACUATE, memory_mb=memory_mb,
                      disk_gb=disk_gb, method=model.MoveMethod(method))
    assert retry.compute_deadline(task, NOW, retry.RetrySettings()) == NOW + 600 + 800 * gib


def changed(rule, of):
    error = exception.PreFlightError(instance_uuid='i', problem='p', rule=rule)
    return retry.after_failure(of, error, NOW, SETTINGS)


@pytest.mark.parametrize('rule', [
    'service-disabled', 'anti-affinity', 'drain-over', 'tree-reshaped'])
def test_changes_around_the_instance_do_not_quarantine_it(rule):
    verdict = changed(rule, row(alternates=()))
    assert not verdict.again and not verdict.quarantine and not verdict.refused


@pytest.mark.parametrize('rule', [
    'copies-disk', 'quarantined', 'locked', 'method-changed', 'contract-method', 'source-reshaped',
    'source-overcommitted'])
def test_permanent_rules_end_the_task_without_a_quarantine(rule):
    assert changed(rule, row()) == retry.RetryDecision(again=False)


@pytest.mark.parametrize('failure', [
    exception.PreFlightError(instance_uuid='i', problem='p', rule='locked'),
    exception.PreFlightError(instance_uuid='i', problem='p', rule='service-down'),
    exception.MigrationFailed(instance_uuid='i', problem='p'),
    exception.NovaClientError(instance_uuid='i', problem='p'),
    exception.MigrationTimeout(instance_uuid='i', problem='p', seconds=300.0)])
def test_a_final_verdict_has_retry_count_and_destination_refusal(failure):
    verdict = retry.after_failure(row(retry_count=3, alternates=()), failure, NOW, SETTINGS)
    assert (verdict.again, verdict.retry_count) == (False, 3)
    assert verdict.refused is isinstance(failure, exception.MigrationFailed)


def test_the_next_destination_of_a_later_pass_is_of_the_same_pass():
    assert after(exception.MigrationFailed, row(retry_count=2)) == retry.RetryDecision(
        again=True, refused=True, attempt=1, retry_count=2, not_before=NOW)


def test_a_rule_of_migration_failed_still_charges_the_destination():
    """Nova's refusal to copy disks carries one, and still counts against the destination."""
    error = exception.MigrationFailed(instance_uuid='i', problem='p', rule='copies-disk')
    assert retry.after_failure(row(), error, NOW, SETTINGS).refused


def test_a_group_member_under_way_is_waited_for_at_the_same_destination():
    verdict = changed('group-in-flight', row(attempt=1, retry_count=1))
    assert verdict == retry.RetryDecision(again=True, attempt=1, retry_count=2, not_before=NOW + 60)
    verdict = changed('group-in-flight', row(retry_count=3))
    assert not verdict.again and not verdict.quarantine


@pytest.mark.parametrize('rule', ['no-slot', 'just-left', 'just-came'])
def test_waiting_for_other_tasks_uses_no_retries(rule):
    verdict = changed(rule, row(attempt=1, retry_count=3, alternates=('c',)))
    assert verdict == retry.RetryDecision(again=True, attempt=1, retry_count=3, not_before=NOW + 30)


def test_a_destination_that_was_disabled_gives_way_to_the_next():
    verdict = changed('service-disabled', row(alternates=('c',)))
    assert verdict.again and verdict.attempt == 1 and not verdict.refused


@pytest.mark.parametrize('rule', ['not-active', 'moved-away', None])
def test_rules_about_the_instance_quarantine_it(rule):
    verdict = changed(rule, row(alternates=('c',)))
    assert not verdict.again and verdict.quarantine


def test_every_setting_is_read_from_its_option():
    """Each has another value than its default, and than any other."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    for name, value in (
            ('max_concurrent_migrations', 5), ('max_concurrent_migrations_total', 9),
            ('max_concurrent_per_source', 6), ('max_concurrent_per_destination', 7),
            ('migration_timeout', 105), ('seconds_per_gib', 106),
            ('migration_poll_interval', 11), ('poll_interval', 12), ('claim_seconds', 109),
            ('retry_backoff', 110)):
        conf.set_override(name, value, 'executor')
    conf.set_override('aggregates', ['blue', 'green'], 'executor')
    conf.set_override('abort_at_deadline', True, 'executor')
    conf.set_override('drain_escalation', ['force-complete'], 'executor')
    conf.set_override('drain_arrival_seconds', 111, 'executor')
    conf.set_override('drain_longest_pause', 112, 'executor')
    for name, value in (('max_alternates', 7), ('instance_cooldown', 201),
                        ('instance_quarantine_seconds', 202), ('dry_run', True)):
        conf.set_override(name, value, 'engine')
    found = retry.build_settings(conf)
    assert found == retry.RetrySettings(
        scopes=frozenset({'blue', 'green'}), per_scope=5, total=9, per_source=6,
        per_destination=7, migration_timeout=105, seconds_per_gib=106, look_interval=11,
        poll_interval=12, claim_seconds=109, retry_backoff=110, max_attempts=8,
        instance_cooldown=201, instance_quarantine_seconds=202, begin=False,
        abort_at_deadline=True, frozen=found.frozen,
        escalation_limits=escalation.EscalationLimits(
            (model.EscalationKind.FORCE_COMPLETE,), arrival_seconds=111, longest_pause=112))
    conf.set_override('dry_run', False, 'engine')
    conf.set_override('aggregates', [], 'executor')
    assert retry.build_settings(conf).begin and retry.build_settings(conf).scopes is None


def test_settings_read_the_freeze_windows_at_the_given_time():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    chosen = retry.build_settings(conf)
    assert chosen.frozen(NOW) is None
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('freeze_windows', ['0 2 * * * 1h'], 'engine')
    two = 2 * 3600.0
    assert chosen.frozen(two - 1) is None and chosen.frozen(two + 3600) is None
    assert '0 2 * * * 1h' in chosen.frozen(two + 1)
