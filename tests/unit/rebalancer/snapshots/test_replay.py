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


"""A recorded cloud is planned offline, with the configuration's options."""

import json
from pathlib import Path
import shutil
import time

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.snapshots import replay

EXAMPLE = Path(__file__).resolve().parents[4] / 'doc/examples/replay'


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    opts.register_planning(found)
    found(['--config-file', str(EXAMPLE / 'kronos.conf')], project='kronos')
    found.set_override('policies_file', str(EXAMPLE / 'policies.yaml'), 'engine')
    return found


@pytest.fixture
def copy(tmp_path):
    """The example snapshot, to be changed."""
    return Path(shutil.copytree(EXAMPLE / 'snapshot', tmp_path / 'snapshot'))


def rows(conf, directory=EXAMPLE / 'snapshot'):
    return replay.replay_snapshot(conf, str(directory), time.perf_counter)


def change(copy, path, **values):
    data = json.loads((copy / path).read_text())
    (copy / path).write_text(json.dumps({**data, **values}))


def uuids(row):
    return {m['instance_uuid'] for m in row['moves']}


def test_every_recorded_scope_is_planned(conf):
    assert [row['name'] for row in rows(conf)] == ['fast-storage', model.UNASSIGNED]
    assert [row['hosts'] for row in rows(conf)] == [4, 8]


@pytest.mark.parametrize(('options', 'expected'), [
    ({'aggregates': []}, ['fast-storage', model.UNASSIGNED]),
    ({'include_unassigned_hosts': False}, ['fast-storage']),
    ({'aggregates': ['elsewhere']}, [model.UNASSIGNED])])
def test_the_configuration_chooses_among_the_recorded_scopes(options, expected, conf):
    for name, value in options.items():
        conf.set_override(name, value, 'engine')
    assert [row['name'] for row in rows(conf)] == expected


def test_a_configuration_without_the_snapshots_scopes_is_refused(conf):
    conf.set_override('aggregates', ['elsewhere'], 'engine')
    conf.set_override('include_unassigned_hosts', False, 'engine')
    with pytest.raises(exception.SnapshotError, match='fast-storage'):
        rows(conf)


def test_dry_run_changes_nothing_about_a_replay(conf):
    conf.set_override('dry_run', False, 'engine')
    moving = [uuids(row) for row in rows(conf)]
    conf.set_override('dry_run', True, 'engine')
    assert moving == [uuids(row) for row in rows(conf)]
    assert all(moving)


def test_samples_are_as_old_as_they_were_when_recorded(conf):
    """The example is from years away from today, by whichever clock."""
    for row in rows(conf):
        assert [p['age_seconds'] for p in row['policies']] == [23.4, 23.4]
        assert not any(p['skipped'] for p in row['policies'])
    conf.set_override('staleness_threshold', 20, 'prometheus')
    for row in rows(conf):
        assert all('staleness_threshold' in p['reason'] for p in row['policies'])


def test_recorded_cooldowns_hold_and_no_longer_than_configured(conf, copy):
    change(copy, 'cooldowns.json', aggregate_cooldowns={'fast-storage': 1e6})
    fast, pool = rows(conf, copy)
    assert fast['moves'] == [] and 'cools down for another 600 s' in fast['reason']
    assert pool['moves']
    conf.set_override('cooldown', 0, 'engine')
    assert rows(conf, copy)[0]['moves']


def test_a_quarantine_for_ever_holds(conf, copy):
    first = rows(conf)[0]['moves'][0]['instance_uuid']
    change(copy, 'cooldowns.json', instance_quarantines={first: -1})
    assert first not in uuids(rows(conf, copy)[0])


def test_unknown_cooldowns_are_a_warning_of_every_scope(conf, copy):
    (copy / 'cooldowns.json').write_text('{"unknown": true, "error": "the database is away"}')
    assert all('the database is away' in row['warnings'][0] for row in rows(conf, copy))


def test_cpu_traits_that_were_not_recorded_are_not_taken_for_none(conf, copy):
    conf.set_override('require_cpu_compatibility', True, 'engine')
    assert rows(conf)[0]['moves']
    change(copy, 'meta.json', files=[])
    (copy / 'placement/cpu_traits.json').unlink()
    with pytest.raises(exception.SnapshotError, match='CPU traits were not recorded'):
        rows(conf, copy)


def test_moves_of_our_tasks_under_way_use_up_the_budget(conf, copy):
    held = json.loads((copy / 'nova/instances.json').read_text())['compute-01']
    (copy / 'nova/migrations.json').write_text(json.dumps([
        {'instance_uuid': i['uuid'], 'from_host': 'compute-01', 'to_host': 'compute-03',
         'source': 'task'} for i in held[:8]]))
    fast, pool = rows(conf, copy)
    assert fast['moves'] == [] and 'budget' in fast['reason']
    assert pool['moves']


def test_so_do_tasks_of_its_scope_whose_host_has_left_it(conf, copy):
    held = json.loads((copy / 'nova/instances.json').read_text())['compute-01']
    (copy / 'nova/migrations.json').write_text(json.dumps([
        {'instance_uuid': i['uuid'], 'from_host': 'elsewhere', 'to_host': 'compute-03',
         'source': 'task', 'scope': 'fast-storage'} for i in held[:8]]))
    fast, pool = rows(conf, copy)
    assert fast['moves'] == [] and 'budget' in fast['reason']
    assert pool['moves']


def test_without_placement_data_it_is_planned_without_claims(conf, copy):
    change(copy, 'meta.json', files=[])
    shutil.rmtree(copy / 'placement')
    assert rows(conf, copy)[0]['moves']


def test_policies_of_which_no_query_was_recorded_move_nothing_by_load(conf, tmp_path):
    other = tmp_path / 'policies.yaml'
    other.write_text('policies: [{name: cpu, weight: 1, imbalance_query: "up"}]')
    conf.set_override('policies_file', str(other), 'engine')
    for row in rows(conf):
        assert {m['phase'] for m in row['moves']} <= {'evacuate', 'affinity'}
        (policy,) = row['policies']
        assert policy['skipped'] and 'not in the snapshot' in policy['reason']


def test_an_unrecorded_aggregate_is_reported_and_the_rest_is_planned(conf, copy):
    change(copy, 'meta.json', aggregates=['fast-storage', 'gone'])
    conf.set_override('aggregates', ['fast-storage', 'gone'], 'engine')
    fast, gone = rows(conf, copy)
    assert fast['moves']
    assert gone['hosts'] is None and 'no aggregate gone' in gone['reason']
