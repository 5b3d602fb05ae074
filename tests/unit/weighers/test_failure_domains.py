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
from unittest import mock

import pytest

from kronos_nova.constraints import failure_domains
from kronos_nova.feed import periodic
from kronos_nova.scheduler import runtime
from kronos_nova.weighers import failure_domains as weigher
from kronos_nova.weighers import project_cache
from tests.unit import nova_fakes

KEY = failure_domains.KEY
OPTION = weigher.KronosDomainWeigher.OPTION


def aggregate(text, *hosts):
    return nova_fakes.Fields(name=f'{text} {hosts}', hosts=list(hosts), metadata={KEY: text})


#: Hosts a and b are in rack r1, c in r2, d in r3.
RACKS = {'a': [aggregate('rack:r1', 'a', 'b')], 'c': [aggregate('rack:r2', 'c')],
         'd': [aggregate('rack:r3', 'd')]}
RACKS['b'] = RACKS['a']


def host(name, *uuids, aggregates=None):
    return nova_fakes.HostState(
        name, instances=dict.fromkeys(uuids), num_instances=len(uuids),
        aggregates=RACKS[name] if aggregates is None else aggregates)


def spec(text='rack', members=None, hosts=(), **fields):
    group = None if members is None else nova_fakes.Fields(members=list(members),
                                                           hosts=list(hosts))
    return nova_fakes.spec(**{
        'project_id': 'mine', 'instance_group': group, 'num_instances': 1,
        'flavor': nova_fakes.Fields(extra_specs={} if text is None else {'kronos:spread': text}),
        **fields})


def weights(states, request, theirs=()):
    door = nova_fakes.FakeDoor()
    book = project_cache.ProjectBook(mock.Mock(), periodic.FaultCounters())
    book._refresher.ensure_running = lambda: None
    for uuid in theirs:
        book.record_project(uuid, 'mine')
    door.kept = {project_cache.ProjectBook: book,
                 weigher.DomainCache: weigher.DomainCache(None, None)}
    runtime.CONF.set_override(OPTION, 1.0, 'filter_scheduler')
    try:
        with door.opened():
            found = weigher.KronosDomainWeigher().weigh_objects(
                [nova_fakes.Fields(obj=s) for s in states], request)
    finally:
        runtime.CONF.clear_override(OPTION, 'filter_scheduler')
    assert not door.faults.counts
    return found


def test_members_count_in_the_whole_domain():
    states = [host('a'), host('b', 'm1'), host('c', 'm2', 'm3', 'x'), host('d', 'x2')]
    assert weights(states, spec(members=['m1', 'm2', 'm3'])) == [-0.5, -0.5, -0.66667, 0.0]


def test_the_emptiest_domain_costs_nothing():
    states = [host('a', 'm1', 'm2'), host('c', 'm3')]
    assert weights(states, spec(members=['m1', 'm2', 'm3'])) == [-0.5, 0.0]


def test_members_on_hosts_that_filters_dropped_count():
    states = [host('a'), host('c')]
    assert weights(states, spec(members=['m1'], hosts=['b'])) == [-0.5, 0.0]


def test_the_instance_that_is_moved_does_not_count():
    states = [host('a', 'm1'), host('c', 'm2')]
    request = spec(members=['m1', 'm2'], instance_uuid='m1')
    assert weights(states, request) == [0.0, -0.5]


def test_without_a_server_group_the_project_counts():
    states = [host('a', 'u1', 'x'), host('c', 'x'), host('d', 'u2', 'u3')]
    for text in ('rack', 'rack:web'):
        assert weights(states, spec(text), ('u1', 'u2', 'u3')) == [-0.5, 0.0, -0.66667]


def test_elder_siblings_of_the_request_count_in_their_domain():
    states, request = [host('a'), host('b'), host('c')], spec(members=[], num_instances=2)
    assert weights(states, request) == [0.0, 0.0, 0.0]
    states[0].num_instances += 1
    assert weights(states, request) == [-0.5, -0.5, 0.0]


def test_the_mean_of_several_kinds_counts():
    feeds = [aggregate('pdu:1', 'a', 'c'), aggregate('pdu:2', 'd')]
    states = [host('a', 'm1', aggregates=[*RACKS['a'], feeds[0]]),
              host('c', aggregates=[*RACKS['c'], feeds[0]]),
              host('d', aggregates=[*RACKS['d'], feeds[1]])]
    assert weights(states, spec('rack,pdu', members=['m1'])) == [-0.5, -0.25, 0.0]


def test_a_host_in_two_racks_is_neutral():
    twofold = [aggregate('rack:r1', 'a', 'b'), aggregate('rack:r2', 'b', 'c')]
    states = [host('a', 'm1', aggregates=twofold[:1]), host('b', aggregates=twofold),
              host('c', aggregates=twofold[1:])]
    assert weights(states, spec(members=['m1'])) == [-0.5, -0.25, 0.0]


@pytest.mark.parametrize('request_spec', [
    spec(None, members=['m1']), spec('pdu', members=['m1']), spec('rack:', members=['m1']),
    spec(members=['m1'], project_id=None)])
def test_without_a_request_for_a_known_kind_all_hosts_cost_nothing(request_spec):
    assert weights([host('a', 'm1'), host('c')], request_spec) == [0.0, 0.0]


def test_changed_aggregates_count_in_the_next_request():
    cache = weigher.DomainCache(None, None)
    states = [host('a'), host('c')]
    first = cache.find_domains(states)
    assert cache.find_domains(states) is first
    states[1].aggregates = [aggregate('rack:r1', 'c')]
    assert cache.find_domains(states).list_domains('rack', 'c') == {'r1'}


def test_members_in_a_domain_that_no_host_shows_count_for_no_host():
    # All hosts of rack r2 were dropped by filters; host e has no rack.
    states = [host('a'), host('e', aggregates=[])]
    assert weights(states, spec(members=['m1', 'm2'], hosts=['c'])) == [0.0, 0.0]
