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


"""The cloud that an operator's session reads, beside the cloud of an engine with its database."""

import shutil
import types

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import instance_swaps
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.store import api
from tests.fixtures import stores
from tests.unit import clouds
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import test_approvals

NOW = cases.NOW


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp('cloud') / 'k.sqlite'
    store = stores.in_file(path)
    store.close()
    return path


@pytest.fixture
def conf(tmp_path, template):
    shutil.copy(template, tmp_path)
    found = cfg.ConfigOpts()
    opts.register(found)
    found([])
    found.set_override('connection', f'sqlite:///{tmp_path}/k.sqlite', 'database')
    found.set_override('aggregates', ['blue'], 'engine')
    found.set_override('mode', 'approve', 'engine')
    found.set_override('dry_run', False, 'engine')
    found.set_override('sustain_for', 600, 'engine')
    return found


@pytest.fixture
def asked(conf, monkeypatch):
    """A session on a scope that has exceeded its threshold for a minute; a plan waits."""
    store = api.Store.from_url(conf.database.connection, clock=lambda: NOW)
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    cases.save(store, [test_approvals.pending()], lease=lease)
    store.outcomes.record_imbalance_since(lease, NOW - 60)
    store.close()
    monkeypatch.setattr(api.Store, 'now', lambda self: NOW)

    def record(collector, source, store, policy_set, scopes, clock):
        return types.SimpleNamespace(
            cluster=model.Cluster({}, {}, {}), samples={}, now=NOW,
            histories={scope: store.history.read_history(scope, NOW, 0.0) for scope in scopes})

    monkeypatch.setattr(recorder, 'read_recording', record)
    with cloud_state.Session() as session:
        session.conf, session.policies = conf, clouds.request(clouds.Knobs(1)).policies
        session.collector = session.metrics_source = None
        yield session


def test_commands_report_the_holds_of_engines(asked):
    history = asked.cloud.histories['blue']
    assert history.paused.startswith('plan ') and 'waits for approval' in history.paused
    assert history.waiting == 'the imbalance has to last for another 540 s (sustain_for)'


def test_a_dry_run_ignores_waiting_plans_and_the_sustain_time(asked, conf):
    conf.set_override('dry_run', True, 'engine')
    seen = asked.cloud
    assert (seen.histories['blue'].paused, seen.histories['blue'].waiting) == (None, None)
    assert (seen.waiting, seen.sustain) == ({}, 0.0)


def test_requested_moves_do_not_wait_for_a_plan_awaiting_approval(asked):
    seen = asked.cloud_for_requests
    assert seen.histories['blue'].paused is None and 'blue' in seen.waiting


def test_a_freeze_window_is_named_before_a_waiting_plan(asked, conf):
    conf.set_override('freeze_windows', ['* * * * * 1h'], 'engine')
    assert 'freeze window' in asked.cloud.histories['blue'].paused


def test_an_imbalance_that_has_lasted_is_not_waited_for(asked, conf):
    conf.set_override('sustain_for', 60, 'engine')
    assert asked.cloud.histories['blue'].waiting is None


@pytest.mark.parametrize(('wished', 'moves', 'sustain', 'waits'), [
    ({}, 1, 600.0, True), ({'blue': NOW}, 1, 600.0, False), ({}, 0, 600.0, False),
    ({}, 1, 0.0, False)])
def test_a_new_imbalance_has_to_last_as_well(wished, moves, sustain, waits):
    seen = cloud_state.CloudState(model.Cluster({}, {}, {}), {}, ('blue',), {}, NOW, wished=wished,
                       sustain=sustain)
    plan = model.Plan('blue', (model.Move('i', 'a', 'b', model.Phase.SPREAD),) * moves)
    assert (cloud_state.find_new_wait(seen, plan) is not None) == waits
    drain = model.Plan('blue', (model.Move('i', 'a', 'b', model.Phase.EVACUATE),))
    assert cloud_state.find_new_wait(seen, drain) is None


def row(state, attempts=(), **task):
    return types.SimpleNamespace(
        task=cases.make_task('plan', state=state, **task),
        attempts=[types.SimpleNamespace(to_host=host) for host in attempts])


def test_a_retry_tries_untried_destinations_first():
    found = plan_requests.build_retry_move(row(
        TaskState.FAILED, ('h2', 'h4'), to_host='h4', alternates=('h3', 'h5')))
    assert (found.from_host, found.hosts) == ('h1', ('h3', 'h5', 'h4', 'h2'))
    found = plan_requests.build_retry_move(row(TaskState.CANCELLED, to_host='h2'))
    assert found.hosts == ('h2', 'h3')


@pytest.mark.parametrize('state', list(TaskState))
def test_completed_tasks_are_reverted_and_failed_or_cancelled_ones_retried(state):
    assert (plan_requests.build_revert_move(row(state)) is not None) == (
        state is TaskState.COMPLETED)
    assert (plan_requests.build_retry_move(row(state)) is not None) == (
        state in (TaskState.FAILED, TaskState.CANCELLED))
    if state is TaskState.COMPLETED:
        found = plan_requests.build_revert_move(row(state, to_host='h9'))
        assert (found.from_host, found.hosts) == ('h9', ('h1',))


def test_an_instance_named_twice_does_not_change_places():
    uuid = clouds.uuid_of('1')
    with pytest.raises(exception.ConfigError, match=f'{uuid} is named twice'):
        instance_swaps.swap_instances(cloud_state.Session(), (uuid, uuid), reason='a reason')


@pytest.mark.parametrize(('given', 'remedy'), [
    ('web-1', 'openstack server show NAME -c id prints it'),
    (clouds.uuid_of('7'), 'Give the UUID of an instance.')])
def test_a_name_in_place_of_a_uuid_has_a_remedy_of_its_own(given, remedy):
    assert remedy in str(cloud_lookups.make_not_found_error(
        'INSTANCE', given, [clouds.uuid_of('1')], 'there is none'))
