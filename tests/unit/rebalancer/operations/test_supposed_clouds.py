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

"""Plans of supposed clouds: on a part of the instances they are as on all, and as legal."""

import dataclasses

import hypothesis

from kronos_nova import model
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import room_makers
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.strategies import evacuate
from tests.unit import clouds
from tests.unit.rebalancer.operations import test_campaign_forecasts

make_request = test_campaign_forecasts.make_request


def make_cloud(sizes, **changes):
    return supposed_clouds.SupposedCloud(make_request(sizes, **changes))


@clouds.examples(100)
@hypothesis.given(clouds.knobs())
def test_plan_on_the_instances_of_a_host_has_the_moves_of_a_plan_on_all(knobs):
    """That is where each instance has a destination; no other instance moves then."""
    request = clouds.request(knobs)
    cloud = supposed_clouds.SupposedCloud(dataclasses.replace(
        request, strategies=[evacuate.Evacuate()],
        history=dataclasses.replace(request.history, paused=None)))
    for host in sorted(request.cluster.scope_hosts):
        if cloud.count_stranded([host], ())[host]:
            continue
        part, whole = (cloud.plan_round([host], (), lambda: False, helpers)
                       for helpers in ((), None))
        if whole is not None and all(m.from_host == host for m in whole.plan.moves):
            assert part is not None and part.plan.moves == whole.plan.moves


def test_instances_without_a_destination_are_stranded():
    cloud = make_cloud({'a': [6144, 1024], 'b': [4096], 'c': [4096], 'full': [8192]})
    assert cloud.list_stranded('ab', ()) == {'a': ['a0'], 'b': []}
    assert cloud.count_stranded('ab', 'ac') == {'a': 1, 'b': 1}, 'nothing moves onto a and c'


def test_one_instance_makes_room_for_another():
    """b1 may go to c, and a0 takes its place; b0 is too small, and no host has room for c0."""
    cloud = make_cloud({'a': [6144], 'b': [1024, 3072], 'c': [5120], 'full': [8192]})
    assert cloud.list_stranded('a', ()) == {'a': ['a0']}
    assert cloud.list_room_makers(['a0'], 'a') == {'a0': ['b1']}
    assert cloud.list_room_makers(['a0'], 'ac') == {'a0': []}, 'c does not count'
    assert supposed_clouds.empty_hosts(cloud, 'a', (), helpers=()) is None
    after, emptied, ((plan, _request),) = supposed_clouds.empty_hosts(cloud, 'a', (),
                                                                      helpers=['b1'])
    assert emptied == ('a',) and after.is_empty('a') and not cloud.is_empty('a')
    assert [(m.instance_uuid, m.to_host) for m in plan.moves] == [('b1', 'c'), ('a0', 'b')]
    # The table follows the moves: a has 8192 left now, and b 1024.
    assert after.list_room_makers(['b0'], ()) == {'b0': ['b0', 'b1', 'c0', 'a0', 'full0']}
    assert after.list_room_makers(['b0'], 'a') == {'b0': []}
    _cloud, hosts, _plans = campaign_forecasts.find_step(cloud, ['a'], ['a'], 1)
    assert hosts == ('a',)


def test_smallest_instances_make_room_first(monkeypatch):
    monkeypatch.setattr(room_makers, 'MOST', 1)
    cloud = make_cloud({'a': [4096], 'b': [4096, 3072], 'c': [2048, 3072], 'd': [4096]})
    assert cloud.list_room_makers(['a0'], ()) == {'a0': ['c0']}


def test_more_hosts_than_the_room_holds_are_not_tried_together(monkeypatch):
    cloud = make_cloud({'a': [4096], 'b': [3072], 'c': [2048], 'spare': [1024]})
    assert cloud.count_fitting_hosts('abc', 'abc') == 2
    assert cloud.count_fitting_hosts('ca', 'abc') == 2 and cloud.count_fitting_hosts('a', '') == 1
    assert cloud.count_fitting_hosts('abc', ['a', 'b', 'c', 'spare']) == 0
    tried, empty_hosts = [], supposed_clouds.empty_hosts
    monkeypatch.setattr(supposed_clouds, 'empty_hosts', lambda cloud, hosts, *args, **named: (
        tried.append(list(hosts)), empty_hosts(cloud, hosts, *args, **named))[1])
    _cloud, hosts, _plans = campaign_forecasts.find_step(cloud, list('abc'), list('abc'), 3)
    assert hosts == ('a', 'b') and tried == [['a', 'b']]


def test_the_certificate_of_one_plan_saves_searches_of_the_next():
    request = make_request({'a': [2048], 'b': [2048], 'c': [2048], 'd': [], 'e': []})
    cloud = supposed_clouds.SupposedCloud(dataclasses.replace(
        request, options=dataclasses.replace(request.options,
                                             failover=model.FailoverMode.ENFORCE)))
    after, emptied, _plans = supposed_clouds.empty_hosts(cloud, 'a', 'a', helpers=())
    assert emptied == ('a',) and after.certificate.kept == 0
    again, emptied, _plans = supposed_clouds.empty_hosts(after, 'b', 'b', helpers=())
    assert emptied == ('b',) and again.certificate.kept > 0
