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

"""Pre-flight waits for changes that Nova's scheduler may not know if its filters use them."""

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.executors import stale_scheduler_view

HINTS = model.PlanningOptions(nova_enabled_filters=frozenset({'DifferentHostFilter',
                                                              'SameHostFilter'}))


def instance(uuid, host, **fields):
    return model.Instance(uuid=uuid, name=uuid, host=host, status='ACTIVE', **fields)


def cluster(*instances, limit=1, policy=model.GroupPolicy.ANTI_AFFINITY):
    found = {i.uuid: i for i in instances}
    return model.Cluster(hosts={}, services={}, instances=found, groups=(model.ServerGroup(
        'g', policy, frozenset(found), max_server_per_host=limit),))


TASK = model.Task(task_id='t', plan_id='p', aggregate='a', instance_uuid='i', from_host='h1',
                  to_host='h2', phase=model.Phase.SPREAD)
MOVING, GONE, THERE = instance('i', 'h1'), instance('m', 'h3'), instance('n', 'h2')


def waits(found, left=(), came=(), options=HINTS):
    """(rule, text) of the no; None: nothing is waited for."""
    try:
        stale_scheduler_view.refuse_stale_view(TASK, found, options, left, came)
    except exception.PreFlightError as error:
        return error.kwargs['rule'], str(error)
    return None


def test_a_member_that_has_just_left_holds_its_place():
    rule, text = waits(cluster(MOVING, GONE), 'm')
    assert rule == 'just-left'
    assert 'instance m has just left h2' in text and 'server group g' in text


@pytest.mark.parametrize('left', [(), ('another',), ('i',)])
def test_others_that_left_do_not(left):
    assert waits(cluster(MOVING, GONE), left) is None


def test_one_that_came_back_is_judged_as_one_that_is_there():
    assert waits(cluster(MOVING, instance('m', 'h2')), 'm') is None


def test_those_there_and_those_that_left_count_up_to_what_the_group_admits():
    assert waits(cluster(MOVING, GONE, THERE, limit=2), 'm')
    assert waits(cluster(MOVING, GONE, THERE, limit=3), 'm') is None
    assert waits(cluster(MOVING, GONE, limit=2), 'm') is None


@pytest.mark.parametrize('policy', [
    p for p in model.GroupPolicy if p is not model.GroupPolicy.ANTI_AFFINITY])
def test_no_other_policy_looks_at_who_is_on_a_host(policy):
    assert waits(cluster(MOVING, GONE, policy=policy), 'm', 'm') is None


def hinted(other, **hints):
    return model.Cluster(hosts={}, services={}, instances={
        'i': instance('i', 'h1', scheduler_hints=hints), other.uuid: other})


def test_one_to_be_apart_from_counts_where_the_filter_is_enabled():
    found = hinted(GONE, different_host=('m',))
    rule, text = waits(found, 'm')
    assert rule == 'just-left' and 'different_host' in text
    assert waits(found, 'x') is None
    assert waits(found, 'm', options=model.PlanningOptions()) is None


def test_one_to_be_beside_is_waited_for_when_it_has_just_come():
    found = hinted(THERE, same_host=('n',))
    rule, text = waits(found, came='n')
    assert rule == 'just-came' and 'instance n has just come to h2' in text
    assert waits(found, came='x') is None
    assert waits(found, came='n', options=model.PlanningOptions()) is None
    assert waits(hinted(GONE, same_host=('m',)), came='m') is None, 'it went on'


def test_one_of_several_to_be_beside_that_has_long_been_there_is_enough():
    found = model.Cluster(hosts={}, services={}, instances={
        'i': instance('i', 'h1', scheduler_hints={'same_host': ('m', 'n')}),
        'm': instance('m', 'h2'), 'n': THERE})
    assert waits(found, came='n') is None
    assert waits(found, came='mn')


@pytest.mark.parametrize(('found', 'left', 'came', 'said'), [
    (cluster(MOVING, GONE), 'm', '', 'm has just left h2, and nova-scheduler may not know it yet; '
     'it is to be apart from it (server group g)'),
    (hinted(GONE, different_host=('m',)), 'm', '', 'm has just left h2, and nova-scheduler may '
     'not know it yet; it is to be apart from it (hint different_host)'),
    (hinted(THERE, same_host=('n',)), '', 'n', 'n has just come to h2, and nova-scheduler may '
     'not know it yet; it is to be beside it (hint same_host)')])
def test_error_names_the_instance_that_pre_flight_waits_for(found, left, came, said):
    with pytest.raises(exception.PreFlightError) as error:
        stale_scheduler_view.refuse_stale_view(TASK, found, HINTS, left, came)
    assert error.value.kwargs['instance_uuid'] == 'i'
    assert error.value.kwargs['problem'] == f'instance {said}'
