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

"""Which looks at the cloud requests share."""

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.migfra import cloud_cache
from kronos_nova.rebalancer.migfra import moves
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.sources import base
from tests.fixtures import stores
from tests.unit.rebalancer.hooks import servers
from tests.unit.rebalancer.store import cases

POLICIES = policy.parse_policies({'policies': [
    {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'load'}]})


class Cloud(base.MetricsSource):
    """A collector and a source; how often each was asked."""

    def __init__(self):
        self.collected = self.fetched = 0
        self.fails, self.error = False, None

    def collect_cluster(self, now):
        self.collected += 1
        if self.fails:
            raise exception.CollectError(what='servers', service='Nova', problem='500')
        return model.Cluster({}, {}, {}, taken_at=now)

    def fetch(self, policy, *, profile=True):
        self.fetched += 1
        return model.PolicySamples(policy.name, model.QueryResult(
            'q', model.SourceHealth.HEALTHY, error=self.error))

    def health(self):
        return model.SourceHealth.HEALTHY, ''


@pytest.fixture
def bench(tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    conf, cloud, now = servers.conf(), Cloud(), [0.0]
    conf.set_override('look_seconds', 10.0, 'migfra')
    looks = cloud_cache.CloudCache(conf, store, cloud, cloud, clock=lambda: now[0])
    yield looks, cloud, store, now
    store.close()


def test_a_cached_view_is_shared_until_its_age_limit(bench):
    looks, cloud, _store, now = bench
    assert [looks.read_cloud(POLICIES).old for _ in range(3)] == [False, True, True]
    assert (cloud.collected, cloud.fetched) == (1, 1)
    now[0] = 9.9
    assert looks.read_cloud(POLICIES).old
    now[0] = 10.0
    assert not looks.read_cloud(POLICIES).old and cloud.collected == 2


def test_a_requested_new_view_is_shared_with_later_readers(bench):
    looks, cloud, _store, _now = bench
    looks.read_cloud(POLICIES)
    assert not looks.read_cloud(POLICIES, new=True).old
    assert looks.read_cloud(POLICIES).old and cloud.collected == 2


def test_flights_are_read_for_each_view(bench):
    looks, _cloud, store, _now = bench
    assert looks.read_cloud(POLICIES).state.cluster.flights == ()
    _, (task,), _ = cases.save(store)
    found = looks.read_cloud(POLICIES)
    assert found.old and [f.instance_uuid for f in found.state.cluster.flights] == [
        task.instance_uuid]


@pytest.mark.parametrize('state', [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED])
def test_when_any_task_has_ended_nothing_is_shared(bench, state):
    looks, _cloud, store, _now = bench
    cases.save(store, [cases.make_task, cases.make_task])
    looks.read_cloud(POLICIES)
    row = cases.claim(store)
    assert looks.read_cloud(POLICIES).old
    cases.end(store, row, state)
    assert not looks.read_cloud(POLICIES).old and looks.read_cloud(POLICIES).old
    cases.end(store, cases.claim(store), state)
    assert not looks.read_cloud(POLICIES).old, 'also when it ended at the same second'


def test_other_policies_fetch_new_samples(bench):
    looks, cloud, _store, _now = bench
    looks.read_cloud(POLICIES)
    other = policy.parse_policies({'policies': [
        {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'other'}]})
    assert looks.read_cloud(other).old and cloud.fetched == 2


def test_a_task_that_ends_while_an_old_look_is_taken_makes_it_a_new_one(bench, monkeypatch):
    looks, cloud, store, _now = bench
    cases.save(store)
    looks.read_cloud(POLICIES)
    row, flights = cases.claim(store), store.tasks.list_in_flight_moves

    def ends():
        if not store.tasks.find_task(row.task.task_id).task.state.is_terminal:
            cases.end(store, row)
        return flights()

    monkeypatch.setattr(store.tasks, 'list_in_flight_moves', ends)
    found = looks.read_cloud(POLICIES)
    assert not found.old and cloud.collected == 2, 'it is neither there nor under way'


def test_a_failed_sample_is_not_shared(bench):
    looks, cloud, _store, _now = bench
    cloud.error = 'timed out'
    looks.read_cloud(POLICIES)
    cloud.error = None
    assert looks.read_cloud(POLICIES).state.samples['cpu'].imbalance.error is None
    looks.read_cloud(POLICIES)
    assert (cloud.collected, cloud.fetched) == (1, 2)


def test_an_idle_cache_drops_an_outdated_cluster(bench):
    looks, _cloud, _store, now = bench
    looks.read_cloud(POLICIES)
    looks.drop_old_reading()
    assert looks._cached_answers.cluster is not None
    now[0] = 10.0
    looks.drop_old_reading()
    assert looks._cached_answers.cluster is None


class Handler(moves.MoveHandler):
    """A handler with one scripted result for a cached view and one for a new view."""

    def __init__(self, old, new):
        self.table, self.asked = {True: old, False: new}, []
        self._looks = self

    def read_cloud(self, policy_set, *, new=False):
        self.asked.append(new)
        return cloud_cache.CloudGlance(new, not new)

    def _judge_by_cloud(self, request, task, policies, projects, seen):
        found = self.table[not seen]
        if isinstance(found, Exception):
            raise found
        return found


def wanted_of(*refused):
    answer = requested_moves.RequestedPlan(model.Plan('blue'), dict.fromkeys(refused))
    return moves.MigfraRequestPlan(answer, None, {})


MOVE = protocol.MigrateVm.model_construct()


@pytest.mark.parametrize(('old', 'again'), [
    (wanted_of(), False), (wanted_of('u1'), True),
    (request_handler.MigfraRequestRefusal('no'), True),
    (exception.PlanRefused(scope='blue', problem='x'), True)])
def test_an_earlier_look_may_let_begin_and_never_refuses(old, again):
    found = Handler(old, None)._judge_by_cached_cloud(None, MOVE, None, None)
    assert (found is None) == again


def test_a_final_refusal_needs_no_new_view():
    with pytest.raises(request_handler.MigfraRequestRefusal):
        Handler(moves._FinalRefusal(
            'no such server'), None)._judge_by_cached_cloud(None, MOVE, None, None)


def test_evacuations_of_a_node_use_no_cached_view():
    handler = Handler(wanted_of(), wanted_of())
    task = protocol.EvacuateNode.model_construct()
    assert handler._judge_by_cached_cloud(None, task, None, None) is None and handler.asked == []


def test_a_failed_view_is_not_shared(bench):
    looks, cloud, _store, _now = bench
    cloud.fails = True
    with pytest.raises(exception.KronosException):
        looks.read_cloud(POLICIES)
    cloud.fails = False
    assert not looks.read_cloud(POLICIES).old
