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


"""What the engine publishes binds boots, by the rebalancer's own rules."""

import pytest

from kronos_nova import model
from kronos_nova import published
from kronos_nova.filters import placement
from tests.unit import nova_fakes
from tests.unit.nova_fakes import Fields

MOVE = {'requested_destination': Fields(cell='c')}


def group_of(*members, policy='anti-affinity', limit=None):
    rules = {} if limit is None else {'max_server_per_host': limit}
    return Fields(uuid='g', policy=policy, members=list(members), rules=rules)


def passing(notice, on=None, **fields):
    states = nova_fakes.hosts('a', 'b', 'c')
    for state in states:
        state.instances = dict.fromkeys((on or {}).get(state.host, ()))
    door = nova_fakes.FakeDoor(notice=notice)
    with door.opened():
        found = placement.KronosPlacementFilter().filter_all(states, nova_fakes.spec(**fields))
    assert not door.faults.counts
    return ''.join(state.host for state in found)


def notice_of(draining='', quarantined='', flights=()):
    return published.Published(frozenset(draining), frozenset(quarantined), tuple(
        model.Flight(*flight, source='kronos') for flight in flights))


def test_nothing_published_passes_all():
    assert passing(None) == 'abc'
    assert passing(notice_of()) == 'abc'


def test_closed_hosts_are_avoided_until_nothing_else_is_left():
    assert passing(notice_of(draining='a', quarantined='b')) == 'c'
    assert passing(notice_of(draining='ab', quarantined='c')) == 'abc'


def test_a_named_destination_is_never_refused():
    assert passing(notice_of(draining='abc'), requested_destination=Fields(host='a')) == 'abc'


def test_a_member_under_way_counts_at_both_ends():
    notice = notice_of(flights=[('u1', 'a', 'b')])
    assert passing(notice, on={'a': ['u1']}, instance_group=group_of('u1', 'u-new')) == 'c'


def test_a_flight_of_another_group_or_to_nowhere_yet_counts_only_where_it_is():
    group = group_of('u2', 'u-new')
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), instance_group=group) == 'abc'
    assert passing(notice_of(flights=[('u2', 'a', None)]), on={'a': ['u2']},
                   instance_group=group) == 'bc'


@pytest.mark.parametrize(('limit', 'expected'), [(None, 'c'), (1, 'c'), (2, 'abc')])
def test_max_server_per_host_is_the_group_s(limit, expected):
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), on={'a': ['u1']},
                   instance_group=group_of('u1', 'u-new', limit=limit)) == expected


@pytest.mark.parametrize('policy', ['affinity', 'soft-affinity', 'soft-anti-affinity'])
def test_other_policies_are_nova_s_affair(policy):
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), on={'a': ['u1']},
                   instance_group=group_of('u1', 'u-new', policy=policy)) == 'abc'


def test_no_host_is_left_to_a_boot_and_a_move_is_left_to_nova():
    flights = [('u1', 'a', 'b'), ('u2', 'b', 'c')]
    on = {'a': ['u1'], 'b': ['u2']}
    group = group_of('u1', 'u2', 'u-new')
    assert passing(notice_of(flights=flights), on, instance_group=group) == ''
    assert passing(notice_of(flights=flights), on, instance_group=group, **MOVE) == 'abc'


def test_a_group_prefers_a_draining_host_to_none():
    notice = notice_of(draining='c', flights=[('u1', 'a', 'b')])
    assert passing(notice, on={'a': ['u1']}, instance_group=group_of('u1', 'u-new')) == 'c'


def test_the_instance_s_own_flight_does_not_bar_it():
    notice = notice_of(flights=[('u-new', 'a', 'b')])
    assert passing(notice, on={'a': ['u-new']}, instance_group=group_of('u-new'), **MOVE) == 'abc'


def test_a_group_of_an_old_request_without_a_uuid_is_nova_s_affair():
    group = Fields(policy='anti-affinity', members=['u1'], rules={})
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), instance_group=group) == 'abc'
