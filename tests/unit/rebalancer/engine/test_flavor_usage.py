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

"""The usage that the scheduler receives: measured, for the whole cloud, and with moves."""

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.feed import flavor_usages
from kronos_nova.rebalancer.engine import flavor_usage

POLICY = policy.Policy(name='cpu', weight=1.0, imbalance_query='cpu', vm_profile_query='vm',
                       vm_profile_label_type='nova_instance_uuid', host_capacity='VCPU',
                       vm_profile_unit='absolute')
SMALL, LARGE = flavor_usages.FlavorShape(1, 512), flavor_usages.FlavorShape(4, 8192)
NOW = 1000.0


def host(name, vcpus, memory_mb=65536):
    return model.Host(name, name, provider=model.Provider(name, inventories={
        'VCPU': model.Inventory(vcpus), 'MEMORY_MB': model.Inventory(memory_mb)}))


def instance(uuid, where, shape=SMALL, **fields):
    return model.Instance(uuid, where, vcpus=shape.vcpus, memory_mb=shape.memory_mb, **fields)


def cluster(*instances, flights=(), scope=('a',)):
    hosts = [host('a', 10), host('b', 40)]
    return model.Cluster(
        hosts={h.name: h for h in hosts}, instances={i.uuid: i for i in instances},
        services={h.name: model.Service(h.name) for h in hosts}, flights=flights,
        scope_hosts=frozenset(scope))


def samples(values, error=None):
    def answer(series):
        return model.QueryResult('q', model.SourceHealth.HEALTHY, series=series)

    return model.PolicySamples('cpu', answer({'a': 0.5, 'b': 0.5}), profile=dataclasses.replace(
        answer({} if error else values), error=error))


def task(uuid='u0', to_host='b', state=model.TaskState.QUEUED, **fields):
    return model.Task('t', 'p', model.UNASSIGNED, uuid, 'a', to_host, model.Phase.SPREAD,
                      state=state, created_at=900.0, **fields)


def told(*instances, values=None, tasks=(), rule=POLICY, **fields):
    values = dict.fromkeys((i.uuid for i in instances), 0.5) if values is None else values
    return flavor_usage.compute_usage(rule, samples(values), cluster(*instances, **fields), tasks,
                                      NOW)


def many(count, shape=SMALL, where='a', **fields):
    return [instance(f'{shape.vcpus}-{where}-{i}', where, shape, **fields) for i in range(count)]


def test_the_mean_of_a_flavor_over_all_hosts_of_the_cloud():
    both = [*many(3), *many(3, where='b')]
    values = {i.uuid: 0.2 if i.host == 'a' else 0.4 for i in both}
    assert dict(told(*both, values=values).shapes) == {SMALL: pytest.approx(0.3)}


def test_few_instances_say_nothing_and_the_most_common_flavor_comes_first():
    few, some = many(flavor_usage.MIN_INSTANCES - 1, LARGE), many(flavor_usage.MIN_INSTANCES, SMALL)
    assert list(told(*few, *some).shapes) == [SMALL]
    assert list(told(*many(9, LARGE), *some).shapes) == [LARGE, SMALL]


def test_only_measured_and_active_instances_of_a_shape_count():
    rule = POLICY.model_copy(update={'vm_profile_fallback': 'flavor_vcpu_ratio'})
    good = many(5)
    values = {i.uuid: 0.2 for i in good}
    odd = [*many(5, where='b'), *many(5, flavor_usages.FlavorShape(2, 512), status='SHUTOFF'),
           *many(5, flavor_usages.FlavorShape(0, 512))]
    assert dict(told(*good, *odd, values=values, rule=rule).shapes) == {
        SMALL: pytest.approx(0.2)}


def test_a_ratio_is_of_its_own_host_s_vcpus():
    rule = POLICY.model_copy(update={'vm_profile_unit': 'host_ratio'})
    found = told(*many(5, where='b'), rule=rule, values={i.uuid: 0.05 for i in many(5, where='b')})
    assert dict(found.shapes) == {SMALL: pytest.approx(0.05 * 40)}


def test_memory_is_in_mib():
    rule = POLICY.model_copy(update={'host_capacity': 'MEMORY_MB'})
    found = told(*many(5), rule=rule, values={i.uuid: 256.0 for i in many(5)})
    assert dict(found.shapes) == {SMALL: pytest.approx(256.0)}


def test_a_profile_that_failed_or_is_not_asked_says_nothing():
    here = cluster(*many(5))
    failed = samples({}, error='it is down')
    assert flavor_usage.compute_usage(POLICY, failed, here, (), NOW) == flavor_usages.FlavorUsages()
    unasked = dataclasses.replace(failed, profile=None)
    assert flavor_usage.compute_usage(POLICY, unasked, here, (),
                                      NOW) == flavor_usages.FlavorUsages()


@pytest.mark.parametrize(('state', 'counts'), [
    (model.TaskState.PENDING, False), (model.TaskState.QUEUED, True),
    (model.TaskState.CLAIMED, True), (model.TaskState.SUBMITTING, True),
    (model.TaskState.SUBMITTED, True), (model.TaskState.UNKNOWN, True),
    (model.TaskState.COMPLETED, False), (model.TaskState.FAILED, False),
    (model.TaskState.CANCELLED, False)])
def test_a_move_counts_from_its_decision_to_its_end(state, counts):
    found = told(instance('u0', 'a'), tasks=[task(state=state)])
    assert found.moves == ((flavor_usages.IncomingMove('u0', 'b', SMALL, 900.0, 0.5),) if counts
                           else ())


@pytest.mark.parametrize(('state', 'counts'), [
    (model.TaskState.QUEUED, False), (model.TaskState.CLAIMED, False),
    (model.TaskState.SUBMITTED, True), (model.TaskState.UNKNOWN, True)])
def test_a_task_past_its_deadline_is_not_begun(state, counts):
    found = told(instance('u0', 'a'), tasks=[task(state=state, deadline=NOW)])
    assert bool(found.moves) == counts


def test_a_move_without_a_measurement_is_published_without_usage():
    found = told(instance('u0', 'a'), values={}, tasks=[task()])
    assert [m.use for m in found.moves] == [None]


def test_arrived_and_deleted_instances_are_not_published_as_moves():
    assert told(instance('u0', 'b'), tasks=[task()]).moves == ()
    assert told(tasks=[task()]).moves == ()


def test_nova_s_own_migrations_count_and_nova_knows_their_destination():
    flights = (model.InFlightMove('u0', 'a', 'b'), model.InFlightMove('u1', 'a', None))
    found = told(instance('u0', 'a'), instance('u1', 'a'), flights=flights,
                 tasks=[task('u0', 'a')])
    assert [(m.instance_uuid, m.to_host) for m in found.moves] == [('u0', 'b')]
