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

"""The counts of a daemon, and the data that it drops."""

from kronos_nova import model
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.store import attempt_phases


def row(name='blue', **fields):
    return {**cycle_report.render_failed_scope(name, ''), 'timings': {'plan': 0.2}, **fields}


def move(phase='spread', method='live'):
    return {'phase': phase, 'method': method}


def scores(untrusted=None):
    return model.ClusterScores({'cpu': model.PolicyScores('cpu', {'a': 0.5}, untrusted=untrusted)})


def test_counts_begin_at_zero_so_that_the_first_failure_is_an_increase():
    tally = tallies.DaemonTally()
    tally.expect_scopes(['blue'])
    tally.begin_executor_counts(['MigrationFailed'])
    counts = tally.copy_tally().counts
    assert counts['cycles'] == {
        ('blue', result): 0 for result in ('moves', 'nothing', 'failed', 'stopped')}
    assert counts['plans'] == {('blue', 'false'): 0}
    assert len(counts['planned_moves']) == len(model.Phase) * len(model.MoveMethod)
    assert set(counts['planned_moves'].values()) == {0}
    assert {('blue', 'kronos.collect'), ('blue', 'defect')} <= set(counts['cycle_failures'])
    assert set(counts['cycle_failures'].values()) == {0}
    assert counts['failed_attempts'] == {('MigrationFailed',): 0}
    assert len(counts['tasks_ended']) == len(model.Phase) * len(model.MoveMethod) * 3
    assert set(counts['tasks_ended'].values()) == {0}
    assert counts['breaker_trips'] == counts['truncated_plans'] == {('blue',): 0}
    assert counts['judged_plans'] == {('blue', 'better'): 0, ('blue', 'worse'): 0}
    durations = tally.copy_tally().durations
    assert {name: len(found) for name, found in durations.items()} == {
        'waits': len(model.Phase), 'migrations': len(model.MoveMethod) * 3,
        'phases': len(model.MoveMethod) * len(attempt_phases.PHASES)}


def test_a_cycle_is_counted_with_its_moves():
    tally = tallies.DaemonTally()
    tally.record_planned_cycle(row(moves=[move(), move(), move('evacuate', 'cold')]), scores(),
                               7.0, False)
    tally.record_planned_cycle(row(), scores(), 8.0, True)
    found = tally.copy_tally()
    assert found.counts['cycles'] == {('blue', 'moves'): 1, ('blue', 'nothing'): 1}
    assert found.counts['plans'] == {('blue', 'false'): 1, ('blue', 'true'): 0}
    assert {key: n for key, n in found.counts['planned_moves'].items() if n} == {
        ('blue', 'spread', 'live', 'false'): 2, ('blue', 'evacuate', 'cold', 'false'): 1}
    assert found.planned_at == {'blue': 8.0}
    assert found.durations['steps']['plan',].counts[3] == 2


def test_a_failed_scope_keeps_its_planning_time_and_drops_its_scores():
    tally = tallies.DaemonTally()
    tally.expect_scopes(['blue', 'red'])
    for name in ('blue', 'red'):
        tally.record_planned_cycle(row(name), scores('too old'), 7.0, False)
    assert tally.copy_tally().readings['blue'].untrusted == {'cpu'}
    tally.record_failed_cycle('blue', 'kronos.collect')
    found = tally.copy_tally()
    assert set(found.readings) == {'red'} and set(found.planned_at) == {'blue', 'red'}
    failures = found.counts['cycle_failures']
    assert {key: n for key, n in failures.items() if n} == {('blue', 'kronos.collect'): 1}
    tally.begin_cycle()
    tally.record_failed_cycle(None, 'defect')
    found = tally.copy_tally()
    assert not found.readings and found.counts['cycles']['red', 'failed'] == 1


def test_an_aborted_cycle_counts_as_failed_for_unplanned_scopes_alone():
    tally = tallies.DaemonTally()
    tally.expect_scopes(['blue', 'red', 'green', 'grey'])
    for _ in range(2):
        tally.begin_cycle()
        tally.record_planned_cycle(row('blue'), scores(), 7.0, False)
        tally.drop_scope('red')
        tally.record_failed_cycle('green', 'kronos.collect')
        tally.record_failed_cycle(None, 'defect')
    found = tally.copy_tally()
    assert set(found.readings) == {'blue'}
    assert {key: n for key, n in found.counts['cycles'].items() if n} == {
        ('blue', 'nothing'): 2, ('green', 'failed'): 2, ('grey', 'failed'): 2}


def test_scopes_of_other_engines_are_hidden_and_removed_ones_dropped():
    tally = tallies.DaemonTally()
    tally.expect_scopes(['blue', 'red'])
    for name in ('blue', 'red'):
        tally.record_planned_cycle(row(name), scores(), 7.0, False)
    tally.drop_scope('blue')
    found = tally.copy_tally()
    assert set(found.readings) == {'red'} and set(found.planned_at) == {'blue', 'red'}
    tally.expect_scopes(['blue'])
    found = tally.copy_tally()
    assert found.scopes == ('blue',) and not found.readings and set(found.planned_at) == {'blue'}


def test_time_of_the_last_certificate_stays_until_another_engine_has_the_scope():
    tally = tallies.DaemonTally()
    tally.expect_scopes(['blue', 'red'])
    states = {'safe': 1, 'unsafe': 0, 'unknown': 0, 'unplaceable': 0}
    for name in ('blue', 'red'):
        tally.record_planned_cycle(row(name, failover=states), scores(), 7.0, False)
        tally.record_planned_cycle(row(name, failover={}), scores(), 8.0, False)
        tally.record_failed_cycle(name, 'kronos.collect')
    assert tally.copy_tally().certified_at == {'blue': 7.0, 'red': 7.0}
    tally.drop_scope('blue')
    assert tally.copy_tally().certified_at == {'red': 7.0}
    tally.expect_scopes(['blue'])
    assert tally.copy_tally().certified_at == {}


def test_time_of_the_certificate_begins_at_the_first_cycle_that_should_have_one():
    tally = tallies.DaemonTally()
    tally.expect_scopes(['blue', 'red'])
    for at in (7.0, 8.0):
        tally.record_planned_cycle(row('blue', failover={}), scores(), at, False,
                                   failover=model.FailoverMode.WARN)
        tally.record_planned_cycle(row('red', failover={}), scores(), at, False)
    assert tally.copy_tally().certified_at == {'blue': 7.0}
    states = {'safe': 1, 'unsafe': 0, 'unknown': 0, 'unplaceable': 0}
    tally.record_planned_cycle(row('blue', failover=states), scores(), 9.0, False,
                               failover=model.FailoverMode.WARN)
    assert tally.copy_tally().certified_at == {'blue': 9.0}


def test_a_value_is_in_the_first_bucket_that_it_does_not_exceed():
    found = tallies.ValueDistribution.make_empty((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        found = found.add_value(value)
    assert (found.counts, found.total) == ((2, 2, 1), 14.0)
