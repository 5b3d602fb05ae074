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

"""Who has just left counts where Nova's filters may still see it."""

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.executors import departures

APART = model.Options(nova_enabled_filters=frozenset({'DifferentHostFilter'}))


def instance(uuid, host, **fields):
    return model.Instance(uuid=uuid, name=uuid, host=host, status='ACTIVE', **fields)


def cluster(*instances, limit=1, policy=model.GroupPolicy.ANTI_AFFINITY):
    found = {i.uuid: i for i in instances}
    return model.Cluster(hosts={}, services={}, instances=found, groups=(model.ServerGroup(
        'g', policy, frozenset(found), max_server_per_host=limit),))


TASK = model.Task(task_id='t', plan_id='p', aggregate='a', instance_uuid='i', from_host='h1',
                  to_host='h2', phase=model.Phase.SPREAD)
MOVING, GONE, THERE = instance('i', 'h1'), instance('m', 'h3'), instance('n', 'h2')


def waits(found, *left, options=None):
    options = options or model.Options()
    try:
        departures.check(TASK, found, options, left)
    except exception.PreFlightError as error:
        assert error.kwargs['rule'] == 'just-left'
        assert departures.matters(TASK, found, options)
        return str(error)
    return None


def test_a_member_that_has_just_left_holds_its_place():
    text = waits(cluster(MOVING, GONE), 'm')
    assert 'instance m has just left h2' in text and 'server group g' in text


@pytest.mark.parametrize('left', [(), ('another',), ('i',)])
def test_others_that_left_do_not(left):
    assert waits(cluster(MOVING, GONE), *left) is None


def test_one_that_came_back_is_judged_as_one_that_is_there():
    assert waits(cluster(MOVING, instance('m', 'h2')), 'm') is None


def test_those_there_and_those_that_left_count_up_to_what_the_group_admits():
    assert waits(cluster(MOVING, GONE, THERE, limit=2), 'm')
    assert waits(cluster(MOVING, GONE, THERE, limit=3), 'm') is None
    assert waits(cluster(MOVING, GONE, limit=2), 'm') is None


@pytest.mark.parametrize('policy', [
    p for p in model.GroupPolicy if p is not model.GroupPolicy.ANTI_AFFINITY])
def test_no_other_policy_looks_at_who_is_on_a_host(policy):
    found = cluster(MOVING, GONE, policy=policy)
    assert not departures.matters(TASK, found, model.Options())
    assert waits(found, 'm') is None


def test_a_hint_counts_where_its_filter_is_enabled():
    found = model.Cluster(hosts={}, services={}, instances={
        'i': instance('i', 'h1', scheduler_hints={'different_host': ('m',)}), 'm': GONE})
    assert 'different_host' in waits(found, 'm', options=APART)
    assert waits(found, 'x', options=APART) is None
    assert waits(found, 'm') is None and not departures.matters(TASK, found, model.Options())
