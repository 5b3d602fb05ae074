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
from kronos_nova.feed import feed_channel
from kronos_nova.filters import placement
from tests.unit import nova_fakes
from tests.unit.nova_fakes import Fields

MOVE = {'requested_destination': Fields(cell='c')}


def group_of(*members, policy='anti-affinity', limit=None):
    rules = {} if limit is None else {'max_server_per_host': limit}
    return Fields(uuid='g', policy=policy, members=list(members), rules=rules)


def passing(notice, on=None, options=None, **fields):
    states = nova_fakes.hosts('a', 'b', 'c')
    for state in states:
        state.instances = dict.fromkeys((on or {}).get(state.host, ()))
    door = nova_fakes.FakeDoor(notice=notice, **options or {})
    with door.opened():
        found = placement.KronosPlacementFilter().filter_all(states, nova_fakes.spec(**fields))
    assert not door.faults.counts
    return ''.join(state.host for state in found)


def notice_of(draining='', quarantined='', flights=()):
    return feed_channel.PublishedState(frozenset(draining), frozenset(quarantined), tuple(
        model.InFlightMove(*flight, source='kronos') for flight in flights))


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


def test_a_flight_of_another_group_or_without_target_counts_at_its_host():
    group = group_of('u2', 'u-new')
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), instance_group=group) == 'abc'
    assert passing(notice_of(flights=[('u2', 'a', None)]), on={'a': ['u2']},
                   instance_group=group) == 'bc'


@pytest.mark.parametrize(('limit', 'expected'), [(None, 'c'), (1, 'c'), (2, 'abc')])
def test_max_server_per_host_is_the_group_s(limit, expected):
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), on={'a': ['u1']},
                   instance_group=group_of('u1', 'u-new', limit=limit)) == expected


@pytest.mark.parametrize('policy', ['soft-affinity', 'soft-anti-affinity'])
def test_other_policies_are_nova_s_affair(policy):
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), on={'a': ['u1']},
                   instance_group=group_of('u1', 'u-new', policy=policy)) == 'abc'


def affine(*members):
    return group_of(*members, 'u-new', policy='affinity')


def test_a_host_that_an_affinity_repair_is_leaving_gets_no_member():
    """Hosts without a member are refused by Nova's own filter."""
    notice = notice_of(flights=[('u1', 'a', 'b')])
    on = {'a': ['u1'], 'b': ['u2']}
    assert passing(notice, on, instance_group=affine('u1', 'u2')) == 'bc'
    # Another member stays there.
    assert passing(notice, {'a': ['u1', 'u3'], 'b': ['u2']},
                   instance_group=affine('u1', 'u2', 'u3')) == 'abc'
    # The destination holds a member as soon as that arrives.
    assert passing(notice, {'a': ['u1']}, instance_group=affine('u1')) == 'bc'
    # Nova knows already that it has arrived.
    assert passing(notice, {'b': ['u1', 'u2']}, instance_group=affine('u1', 'u2')) == 'bc'
    # Nobody knows yet where it goes.
    assert passing(notice_of(flights=[('u1', 'a', None)]), on,
                   instance_group=affine('u1', 'u2')) == 'abc'


def test_a_member_that_just_landed_counts_on_its_new_host_alone():
    """Nova's scheduler still sees the member on its source."""
    flights = [('u1', 'b', 'b'), ('u2', 'a', 'b')]
    assert passing(notice_of(flights=flights), {'a': ['u1', 'u2']},
                   instance_group=affine('u1', 'u2')) == 'bc'
    # Nova knows it, and its host is not on offer.
    landed = notice_of(flights=[('u1', 'x', 'x')])
    assert passing(landed, instance_group=group_of('u1', 'u-new')) == 'abc'
    assert passing(notice_of(flights=[('u1', 'b', 'b')]), {'a': ['u1']},
                   instance_group=group_of('u1', 'u-new')) == 'c'


def test_affinity_binds_a_move_only_while_a_host_is_left():
    notice = notice_of(flights=[('u1', 'a', 'b')])
    on = {'a': ['u1'], 'b': ['u2']}
    assert passing(notice, on, instance_group=affine('u1', 'u2'), **MOVE) == 'bc'
    flights = [('u1', 'a', 'x'), ('u2', 'b', 'x'), ('u3', 'c', 'x')]
    on = {'a': ['u1'], 'b': ['u2'], 'c': ['u3']}
    group = affine('u1', 'u2', 'u3')
    assert passing(notice_of(flights=flights), on, instance_group=group) == ''
    assert passing(notice_of(flights=flights), on, instance_group=group, **MOVE) == 'abc'
    # Its own flight says nothing of the others.
    assert passing(notice_of(flights=[('u-new', 'a', 'b')]), {'a': ['u-new', 'u2']},
                   instance_group=affine('u2'), **MOVE) == 'abc'


def hinted(**hints):
    return {'scheduler_hints': hints}


@pytest.mark.parametrize('value', [['u1'], 'u1', ['u2', 'u1']])
def test_a_host_that_is_an_end_of_a_partner_s_flight_is_no_different_host(value):
    notice = notice_of(flights=[('u1', 'a', 'b')])
    assert passing(notice, {'a': ['u1']}, **hinted(different_host=value)) == 'c'
    # It has arrived.
    assert passing(notice, {'b': ['u1']}, **hinted(different_host=value)) == 'ac'


def test_a_host_is_the_same_only_as_that_of_a_partner_that_stays():
    notice = notice_of(flights=[('u1', 'a', 'b')])
    # Hosts without a partner are refused by Nova's own filter.
    assert passing(notice, {'a': ['u1']}, **hinted(same_host=['u1'])) == 'c'
    assert passing(notice, {'a': ['u1'], 'b': ['u2']},
                   **hinted(same_host=['u1', 'u2'])) == 'bc'
    assert passing(notice, {'a': ['u1']}, **hinted(same_host=['u2'])) == 'abc'


def test_a_hint_binds_where_nova_has_its_filter_and_never_to_itself():
    notice = notice_of(flights=[('u1', 'a', 'b')])
    both = hinted(different_host=['u1'], same_host=['u1'])
    assert passing(notice, {'a': ['u1']}, {'enabled_filters': ['ComputeFilter']}, **both) == 'abc'
    assert passing(notice, {'a': ['u1']}, {'enabled_filters': ['SameHostFilter']},
                   **hinted(different_host=['u1'])) == 'abc'
    own = notice_of(flights=[('u-new', 'a', 'b')])
    assert passing(own, {'a': ['u-new']}, **hinted(different_host=['u-new']), **MOVE) == 'abc'


@pytest.mark.parametrize('hints', [{}, {'different_host': []}, {'same_host': None},
                                   {'group': ['g']}])
def test_a_request_without_partners_is_not_judged_by_hints(hints):
    assert passing(notice_of(flights=[('u1', 'a', 'b')]), {'a': ['u1']},
                   scheduler_hints=hints) == 'abc'


def test_a_hint_and_a_group_refuse_together():
    notice = notice_of(flights=[('u1', 'a', 'b'), ('u2', 'c', 'c')])
    assert passing(notice, {'a': ['u1'], 'c': ['u2']}, instance_group=group_of('u1', 'u-new'),
                   **hinted(different_host=['u2'])) == ''
    assert passing(notice, {'a': ['u1'], 'c': ['u2']}, instance_group=group_of('u1', 'u-new'),
                   **hinted(different_host=['u2']), **MOVE) == 'abc'


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
