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

"""Waves: what must wait for what, and nothing else."""

import dataclasses

from kronos_nova import model
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer import ordering


def cloud(places, size=8, groups=()):
    """``places``: instance -> (host, VCPU); every host in it, and z, is up."""
    hosts = sorted({h for h, _ in places.values()} | {'z'})
    used = {h: sum(v for at, v in places.values() if at == h) for h in hosts}
    return model.Cluster(
        hosts={h: model.Host(h, provider=model.Provider(
            h, inventories={'VCPU': model.Inventory(size)}, used={'VCPU': used[h]}))
            for h in hosts},
        instances={u: model.Instance(u, h, claims={'VCPU': v}) for u, (h, v) in places.items()},
        services={h: model.Service(h) for h in hosts}, groups=tuple(groups),
        scope_hosts=frozenset(hosts))


def order(cluster, *moves, **options):
    view = views.ClusterView(cluster, model.Options(), model.History())
    return ordering.order(view, [model.Move(u, a, b, model.Phase.EVACUATE)
                                 for u, a, b in moves], **options)


def group(policy, *members, limit=1):
    return model.ServerGroup('g', model.GroupPolicy(policy), frozenset(members), limit)


def by_uuid(ordered):
    return {m.instance_uuid: m for m in ordered.moves}


def test_independent_moves_share_the_first_wave():
    ordered = order(cloud({'i': ('a', 1), 'j': ('b', 1)}), ('i', 'a', 'z'), ('j', 'b', 'z'))
    assert [(m.wave, m.requires) for m in ordered.moves] == [(0, ()), (0, ())]
    assert not ordered.dropped


def test_a_move_waits_for_the_one_that_frees_its_room():
    ordered = order(cloud({'i': ('a', 6), 'j': ('b', 6)}), ('i', 'a', 'z'), ('j', 'b', 'a'))
    assert by_uuid(ordered)['j'].requires == ('i',)
    assert by_uuid(ordered)['j'].wave == 1


def test_members_of_one_group_go_one_after_the_other():
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1)}, groups=[group('soft-affinity', 'i', 'j')])
    ordered = order(cluster, ('i', 'a', 'z'), ('j', 'b', 'z'))
    assert by_uuid(ordered)['j'].requires == ('i',)


def test_what_an_earlier_move_needs_is_not_taken_from_it():
    """x fits beside r; y fits when r is gone; y must not start before x has
    arrived, for then x would not fit."""
    cluster = cloud({'x': ('a', 3), 'r': ('h', 4), 's': ('h', 1), 'y': ('b', 4)})
    ordered = order(cluster, ('x', 'a', 'h'), ('r', 'h', 'z'), ('y', 'b', 'h'))
    assert by_uuid(ordered)['x'].requires == ()
    assert by_uuid(ordered)['y'].requires == ('r', 'x')


def test_a_move_that_no_order_makes_legal_is_dropped_and_counted():
    ordered = order(cloud({'i': ('a', 6), 'j': ('b', 6)}), ('i', 'a', 'z'), ('j', 'b', 'z'))
    assert [m.instance_uuid for m in ordered.moves] == ['i']
    assert ordered.dropped == {'no-room': 1}


def test_the_view_is_left_as_it_was():
    cluster = cloud({'i': ('a', 6), 'j': ('b', 6)})
    view = views.ClusterView(cluster, model.Options(), model.History())
    ordering.order(view, [model.Move('i', 'a', 'z', model.Phase.SPREAD)], max_alternates=2)
    assert view.host_of('i') == 'a' and not view.in_flight('i')
    assert view.used('z', 'VCPU') == 0 and view.used('a', 'VCPU') == 6


def test_alternates_are_other_legal_hosts_up_to_the_count():
    cluster = cloud({'i': ('a', 2), 'j': ('b', 1), 'k': ('c', 7), 'l': ('d', 1)})
    moves = order(cluster, ('i', 'a', 'z'), max_alternates=5).moves
    assert moves[0].alternates == ('b', 'd')
    moves = order(cluster, ('i', 'a', 'z'), max_alternates=1).moves
    assert moves[0].alternates == ('b',)
    assert order(cluster, ('i', 'a', 'z')).moves[0].alternates == ()


def test_an_alternate_is_not_where_a_waiting_move_goes():
    cluster = cloud({'i': ('a', 2), 'j': ('b', 7)})
    ordered = order(cluster, ('i', 'a', 'z'), ('j', 'b', 'a'), max_alternates=3)
    assert by_uuid(ordered)['j'].requires == ('i',)
    assert 'a' not in by_uuid(ordered)['i'].alternates
    assert 'b' not in by_uuid(ordered)['i'].alternates


def test_an_alternate_keeps_anti_affinity():
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1)},
                    groups=[group('anti-affinity', 'i', 'j')])
    assert order(cluster, ('i', 'a', 'z'), max_alternates=3).moves[0].alternates == ('c',)


def test_moves_come_in_order_of_their_waves():
    cluster = cloud({'i': ('a', 6), 'j': ('b', 6), 'k': ('c', 1)})
    ordered = order(cluster, ('i', 'a', 'z'), ('j', 'b', 'a'), ('k', 'c', 'b'))
    assert [m.wave for m in ordered.moves] == [0, 0, 1]
    assert dataclasses.asdict(ordered.moves[-1])['instance_uuid'] == 'j'
