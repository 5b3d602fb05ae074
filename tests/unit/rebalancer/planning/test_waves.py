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

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.planning import move_dependencies as boards
from kronos_nova.rebalancer.planning import waves


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
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory())
    return waves.order_moves(view, [model.Move(u, a, b, model.Phase.EVACUATE)
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


def test_a_later_move_leaves_the_room_that_an_earlier_one_needs():
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
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory())
    waves.order_moves(view, [model.Move('i', 'a', 'z', model.Phase.SPREAD)], max_alternates=2)
    assert view.find_host_of('i') == 'a' and not view.is_in_flight('i')
    assert view.sum_allocated('z', 'VCPU') == 0 and view.sum_allocated('a', 'VCPU') == 6
    moved = waves.order_moves(view, [model.Move('j', 'b', 'a', model.Phase.EVACUATE),
                                     model.Move('i', 'a', 'z', model.Phase.EVACUATE)])
    assert len(moved.moves) == 2
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1)})
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory())
    ordered = waves.order_moves(view, [model.Move('i', 'a', 'z', model.Phase.EVACUATE)],
                                max_alternates=2)
    assert ordered.moves[0].alternates == ('b', 'c')
    assert {h: view.sum_allocated(h, 'VCPU') for h in 'abcz'} == {'a': 1, 'b': 1, 'c': 1, 'z': 0}


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


def test_a_move_given_too_early_is_placed_after_the_one_it_needs():
    ordered = order(cloud({'i': ('a', 6), 'j': ('b', 6)}), ('j', 'b', 'a'), ('i', 'a', 'z'))
    assert by_uuid(ordered)['j'].requires == ('i',) and not ordered.dropped


def test_no_more_is_required_than_it_takes():
    """One of the two that leave h makes room enough."""
    cluster = cloud({'i': ('h', 4), 'j': ('h', 4), 'k': ('b', 4)})
    ordered = order(cluster, ('i', 'h', 'z'), ('j', 'h', 'z'), ('k', 'b', 'h'))
    assert by_uuid(ordered)['k'].requires == ('i',)


def test_as_many_are_required_as_it_takes():
    cluster = cloud({'i': ('h', 4), 'j': ('h', 4), 'k': ('b', 6)})
    ordered = order(cluster, ('i', 'h', 'z'), ('j', 'h', 'z'), ('k', 'b', 'h'))
    assert by_uuid(ordered)['k'].requires == ('i', 'j')


def test_room_is_awaited_from_the_move_of_the_earliest_wave():
    """a and b leave h; a has to wait for r first."""
    cluster = cloud({'r': ('m', 6), 'a': ('h', 4), 'b': ('h', 4), 'k': ('c', 4)})
    ordered = by_uuid(order(cluster, ('r', 'm', 'z'), ('a', 'h', 'm'), ('b', 'h', 'c'),
                            ('k', 'c', 'h')))
    assert ordered['a'].requires == ('r',) and ordered['k'].requires == ('b',)


def test_everyone_whose_room_it_takes_is_waited_for():
    cluster = cloud({'x1': ('a', 1), 'x2': ('a', 2), 'r': ('h', 4), 's': ('h', 1),
                     'y': ('b', 4)})
    ordered = order(cluster, ('x1', 'a', 'h'), ('x2', 'a', 'h'), ('r', 'h', 'z'),
                    ('y', 'b', 'h'))
    assert by_uuid(ordered)['y'].requires == ('r', 'x1', 'x2')


def test_a_move_does_not_wait_for_one_that_others_have_to_wait_for_anyway():
    """w waits for e; when e begins w is not there, and m takes no room from e."""
    cluster = cloud({'r': ('h', 4), 'e': ('a', 3), 'w': ('b', 4), 'm': ('c', 1)})
    ordered = by_uuid(order(cluster, ('r', 'h', 'z'), ('e', 'a', 'h'), ('w', 'b', 'h'),
                            ('m', 'c', 'h')))
    assert ordered['w'].requires == ('e', 'r') and ordered['m'].requires == ('r',)


def test_many_moves_to_one_host_do_not_wait_for_each_other():
    places = {f'i{n}': (f'h{n}', 1) for n in range(8)}
    ordered = order(cloud(places), *[(u, h, 'z') for u, (h, _) in places.items()])
    assert {m.wave for m in ordered.moves} == {0} and len(ordered.moves) == 8


SWAP = (('i', 'a', 'b'), ('j', 'b', 'a'))


def full_swap(*others):
    """Two full hosts, whose instances are to change places."""
    return cloud({'i': ('a', 6), 'j': ('b', 6), **dict(others)})


def test_two_moves_that_wait_for_each_others_room_are_dropped_and_counted():
    ordered = order(full_swap(), *SWAP)
    assert ordered.moves == () and ordered.dropped == {'no-room': 2}


def test_a_circle_is_broken_by_parking_where_it_is_welcome():
    ordered = order(full_swap(), *SWAP, improves=lambda move: True)
    i, j = by_uuid(ordered)['i'], by_uuid(ordered)['j']
    assert (i.to_host, i.requires) == ('z', ()) and (j.to_host, j.requires) == ('a', ('i',))
    assert ordered.parked.keys() == {'i'} and ordered.parked['i'].to_host == 'b'
    assert not ordered.dropped


def test_no_instance_is_parked_against_a_rule_or_without_room():
    asked = []
    ordered = order(full_swap(), *SWAP, improves=lambda move: asked.append(move.to_host))
    assert ordered.moves == () and set(asked) == {'z'}
    full = full_swap(('k', ('z', 6)))
    ordered = order(full, *SWAP, improves=lambda move: True)
    assert ordered.moves == () and ordered.dropped == {'no-room': 2} and ordered.parked == {}


def test_two_moves_do_not_count_on_the_same_room_to_fall_back_to():
    cluster = cloud({'i': ('a', 5), 'j': ('b', 5), 'x': ('c', 1), 'y': ('d', 1), 'k': ('e', 3)})
    ordered = order(cluster, ('i', 'a', 'c'), ('j', 'b', 'd'), max_alternates=9)
    assert sorted(m.alternates for m in ordered.moves) == [('e',), ('z',)]


def test_an_alternate_does_not_take_the_room_of_another_moves_destination():
    cluster = cloud({'i': ('a', 5), 'j': ('b', 5), 'k': ('c', 4)})
    ordered = order(cluster, ('i', 'a', 'z'), ('j', 'b', 'z'), max_alternates=9)
    assert ordered.dropped == {'no-room': 1}
    assert by_uuid(ordered)['i'].alternates == ()


def test_a_member_on_which_others_count_has_no_alternates():
    """k may go where j is; had j gone elsewhere, it might not."""
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1)},
                    groups=[group('affinity', 'i', 'j', 'k')])
    ordered = order(cluster, ('j', 'b', 'a'), ('k', 'c', 'a'), max_alternates=3)
    assert [m.alternates for m in ordered.moves] == [(), ()]
    alone = order(cluster, ('j', 'b', 'a'), max_alternates=3)
    assert alone.moves[0].alternates == ('c',)


def test_members_that_move_one_after_the_other_have_alternates():
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1)},
                    groups=[group('soft-affinity', 'i', 'j')])
    ordered = by_uuid(order(cluster, ('i', 'a', 'z'), ('j', 'b', 'z'), max_alternates=1))
    assert (ordered['i'].alternates, ordered['j'].alternates) == (('b',), ('a',))


def test_a_repair_of_soft_groups_has_no_alternates():
    cluster = cloud({'i': ('a', 1), 'j': ('a', 1), 'k': ('c', 1)},
                    groups=[group('soft-anti-affinity', 'i', 'j')])
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory())
    for phase, count in ((model.Phase.AFFINITY, 0), (model.Phase.SPREAD, 1)):
        moves = waves.order_moves(view, [model.Move('i', 'a', 'z', phase)], max_alternates=3).moves
        assert len(moves[0].alternates) == count


def test_a_pack_falls_back_to_no_empty_host():
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1)})
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory())
    for phase, alternates in ((model.Phase.PACK, ('c',)), (model.Phase.EVACUATE, ('z', 'c'))):
        moves = waves.order_moves(view, [model.Move('i', 'a', 'b', phase)], max_alternates=3,
                                  in_use=lambda host: host in 'abc').moves
        assert moves[0].alternates == alternates


def loaded(fills, places=()):
    """A cloud of hosts with these fills, and one instance of 0.5 on each.

    :param places: further instances of 0.5 by UUID, part of the fills.
    """
    cluster = cloud({**{f'i{h}': (h, 1) for h in fills},
                     **{u: (h, 1) for u, h in dict(places).items()}}, size=100)
    hosts = {**fills, 'z': 0.9}
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', hosts=hosts, fill=hosts, capacity=dict.fromkeys(hosts, 1.0),
        usages=dict.fromkeys(cluster.instances, 0.5))})
    return cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory(), scores,
                                    {'cpu': 1.0})


def test_a_spread_does_not_overload_a_host_on_the_way():
    """b is at its limit until its own instance has left."""
    view = loaded({'a': 0.9, 'b': 0.8, 'c': 0.1})
    moves = [model.Move('ib', 'b', 'c', model.Phase.SPREAD),
             model.Move('ia', 'a', 'b', model.Phase.SPREAD)]
    ordered = waves.order_moves(view, moves)
    assert by_uuid(ordered)['ia'].requires == ('ib',)


def test_ceiling_compares_a_source_by_its_load_before_arrivals():
    view = loaded({'a': 0.9, 'b': 0.8, 'c': 1.5})
    moves = [model.Move('ic', 'c', 'a', model.Phase.SPREAD),
             model.Move('ia', 'a', 'b', model.Phase.SPREAD)]
    ordered = waves.order_moves(view, moves)
    assert [m.instance_uuid for m in ordered.moves] == ['ic']
    assert ordered.dropped == {'ceiling': 1}


def test_no_alternate_is_above_its_ceiling_however_bad_the_source():
    view = loaded({'a': 1.5, 'b': 0.8, 'c': 0.1, 'd': 0.4})
    moves = [model.Move('ia', 'a', 'c', model.Phase.SPREAD)]
    assert waves.order_moves(view, moves, max_alternates=5).moves[0].alternates == ('d',)


def spreads(*moves):
    return [model.Move(u, a, b, model.Phase.SPREAD) for u, a, b in moves]


def test_a_host_may_be_filled_to_its_ceiling_and_fallen_back_to():
    view = loaded({'a': 0.9, 'b': 0.5, 'c': 0.5, 'd': 0.6})
    moves = waves.order_moves(view, spreads(('ia', 'a', 'b')), max_alternates=5).moves
    assert [m.alternates for m in moves] == [('c',)]


def test_the_emptiest_host_is_fallen_back_to_first_and_fills():
    view = loaded({'a': 0.9, 'b': 0.4, 'c': 0.4, 'd': 0.2, 'e': 0.0})
    moves = waves.order_moves(view, spreads(('ia', 'a', 'b')), max_alternates=5).moves
    assert [m.alternates for m in moves] == [('e', 'd', 'c')]
    moves = waves.order_moves(view, spreads(('ia', 'a', 'b'), ('ib', 'b', 'c')),
                              max_alternates=1).moves
    assert [m.alternates for m in moves] == [('e',), ('d',)]


def test_a_host_of_unknown_fill_is_no_alternate():
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1), 'l': ('d', 1)})
    fill = {'a': 0.5, 'c': 0.5, 'd': 2.0, 'z': 0.1}
    scores = model.ClusterScores({'cpu': model.PolicyScores(
        'cpu', hosts=fill, fill=fill, capacity=dict.fromkeys('abcdz', 1.0), usages={})})
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(), model.MoveHistory(), scores,
                                    {'cpu': 9.0})
    moves = [model.Move('i', 'a', 'z', model.Phase.EVACUATE)]
    assert waves.order_moves(view, moves, max_alternates=5).moves[0].alternates == ('c', 'd')


def test_few_hosts_are_tried_for_an_alternate_and_not_again_in_vain(monkeypatch):
    tried = []
    monkeypatch.setattr(waves, 'TRIED', 3)
    monkeypatch.setattr(boards.MoveBoard, 'try_alternate', lambda self, move,
                        host: tried.append(host))
    cluster = cloud({'i': ('a', 1), 'j': ('b', 1), 'k': ('c', 1), 'l': ('d', 1)})
    order(cluster, ('i', 'a', 'z'), max_alternates=4)
    assert tried == ['a', 'b', 'c']


def test_an_overload_is_refused_by_host_also_from_an_unknown_source():
    view = loaded({'a': 1.5, 'b': 0.8})
    move = spreads(('ia', 'a', 'b'))[0]
    assert boards.refuse_overfilling(view, move, {'cpu': 1.5}) is None
    for before in ({'cpu': 0.9}, {}):
        no = boards.refuse_overfilling(view, move, before)
        assert no.rule == 'ceiling' and 'host b would reach 1.30 of cpu' in no.detail


def test_a_spread_that_a_later_wave_makes_useless_is_dropped():
    """e must land first, or i takes its room; then a is no worse than h becomes."""
    view = loaded({'a': 1.5, 'h': 0.4}, {'e': 'a'})
    ordered = waves.order_moves(view, [model.Move('e', 'a', 'h', model.Phase.EVACUATE),
                                       *spreads(('ia', 'a', 'h'))])
    assert [m.instance_uuid for m in ordered.moves] == ['e']
    assert ordered.dropped == {'ceiling': 1}


def test_a_spread_that_overloads_a_host_waits_for_a_drain_that_may_not():
    view = loaded({'a': 1.5, 'h': 0.4, 'd': 0.3})
    moves = [model.Move('id', 'd', 'h', model.Phase.EVACUATE),
             model.Move('ia', 'a', 'h', model.Phase.SPREAD)]
    assert by_uuid(waves.order_moves(view, moves))['ia'].requires == ('id',)


def test_a_spread_may_overload_a_host_whose_source_was_worse():
    view = loaded({'a': 1.4, 'b': 0.8, 'c': 0.1})
    moves = [model.Move('ib', 'b', 'c', model.Phase.SPREAD),
             model.Move('ia', 'a', 'b', model.Phase.SPREAD)]
    assert by_uuid(waves.order_moves(view, moves))['ia'].requires == ()


@pytest.mark.parametrize('count', [50, 100])
def test_the_work_grows_with_the_moves_not_with_their_square(monkeypatch, count):
    """Each move is judged a few times, whether all go to one host or not."""
    judged = []
    monkeypatch.setattr(constraints, 'judge_move', lambda *a, check=constraints.judge_move: (
        judged.append(1), check(*a))[1])
    places = {f'i{n}': (f'h{n}', 1) for n in range(count)}
    cluster = cloud(places, size=1000)
    for to in ('z', None):
        judged.clear()
        moves = [(f'i{n}', f'h{n}', to or f'h{(n + 1) % count}') for n in range(count)]
        assert len(order(cluster, *moves, max_alternates=2).moves) == count
        assert len(judged) <= 8 * count


def test_a_host_that_many_moves_pass_through_is_still_few_steps(monkeypatch):
    """One out, one in, twenty times over a full host: the worst case."""
    judged = []
    monkeypatch.setattr(constraints, 'judge_move', lambda *a, check=constraints.judge_move: (
        judged.append(1), check(*a))[1])
    places = {**{f'o{n}': ('h', 1) for n in range(20)}, **{f'i{n}': (f'x{n}', 1)
                                                          for n in range(20)}}
    moves = [m for n in range(20) for m in ((f'o{n}', 'h', 'z'), (f'i{n}', f'x{n}', 'h'))]
    ordered = order(cloud(places, size=20), *moves)
    assert len(ordered.moves) == 40 and not ordered.dropped
    assert len(judged) <= 20 * 20
