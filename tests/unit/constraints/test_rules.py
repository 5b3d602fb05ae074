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

"""Each rule's yes and each of its noes, by stable name."""

import dataclasses

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import recently_booted
from tests.unit import clouds

UUID = clouds.uuid_of('i')
INVENTORIES = {'VCPU': model.Inventory(8), 'DISK_GB': model.Inventory(10)}
MOVE = model.Move(UUID, 'a', 'b', model.Phase.SPREAD)


def host(name, **fields):
    return model.Host(name, provider=model.Provider(name, inventories=INVENTORIES), **fields)


def judge(move=MOVE, *, hosts=None, services=None, instance=None, options=None, history=None,
          scores=None, ceilings=None, **cluster):
    hosts = {'a': host('a'), 'b': host('b'), 'c': host('c')} | (hosts or {})
    known = {h: model.Service(h, zone='az1') for h in hosts} | (services or {})
    whole = model.Cluster(
        hosts, {UUID: dataclasses.replace(model.Instance(UUID, 'a', claims={'VCPU': 2}),
                                          **(instance or {}))},
        known, **({'scope_hosts': frozenset('abc')} | cluster))
    view = cluster_view.ClusterView(whole, model.PlanningOptions(**(options or {})), history,
                                    scores or trusted(), ceilings)
    rejection = constraints.judge_move(view, move)
    return rejection.rule if rejection else None


def trusted(**changes):
    known = model.PolicyScores(
        'cpu', hosts={'a': 0.5, 'b': 0.5, 'c': 0.5}, fill={'a': 0.5, 'b': 0.5, 'c': 0.5},
        capacity={'a': 4.0, 'b': 4.0, 'c': 8.0}, usages={UUID: 1.0})
    return model.ClusterScores({'cpu': dataclasses.replace(known, **changes)})


def test_a_plain_move_is_legal():
    assert judge() is None


def phase(value):
    return dataclasses.replace(MOVE, phase=model.Phase(value))


CASES = {
    'same-host': {'move': dataclasses.replace(MOVE, to_host='a')},
    'moved-away': {'move': dataclasses.replace(MOVE, from_host='c')},
    'no-such-instance': {'move': dataclasses.replace(MOVE, instance_uuid='x')},
    'opted-out': {'options': {'pinned_instances': frozenset({UUID})}},
    'quieter-hour': {'move': dataclasses.replace(MOVE, phase=model.Phase.EVACUATE),
                     'history': model.MoveHistory(
                         quiet_waits={UUID: model.QuietWait(3600.0, 2.0, 1.0)})},
    'just-booted': {'history': model.MoveHistory(fresh={UUID: 1.0})},
    'copies-disk': {'instance': {'local_disk_gb': 1}, 'options': {'instance_storage': 'local'}},
    'out-of-scope': {'scope_hosts': frozenset('ac')},
    'service-unknown': {'services': {'b': None}},
    'source-disabled': {'services': {'a': model.Service('a', status='disabled')}},
    'cell-differs': {'hosts': {'a': host('a', cell='1'), 'b': host('b', cell='2')}},
    'az-pinned': {'instance': {'pinned_zone': 'az2'}},
    'az-differs': {'services': {'b': model.Service('b', zone='az2')},
                   'options': {'restrict_to_az': True}},
    'cpu-traits': {'hosts': {'a': host('a', traits=frozenset({'HW_CPU_X86_SVM'}))},
                   'options': {'require_cpu_compatibility': True}},
    'no-provider': {'hosts': {'b': model.Host('b')}},
    'no-inventory': {'instance': {'claims': {'PCPU': 1}}},
    'claim-unit': {'hosts': {'b': model.Host('b', provider=model.Provider(
        'b', inventories={'VCPU': model.Inventory(8, max_unit=1)}))}},
    'no-room': {'instance': {'claims': {'VCPU': 9}}},
    'no-profile': {'scores': trusted(usages={})},
    'host-frozen': {'scores': trusted(capacity={'a': 4.0, 'c': 8.0})},
    'policy-untrusted': {'scores': trusted(untrusted='old')},
    'ceiling': {'move': phase('pack'), 'ceilings': {'cpu': 0.7}},
}


@pytest.mark.parametrize('rule', CASES)
def test_a_rule_says_no_by_its_name(rule):
    case = dict(CASES[rule])
    if rule == 'service-unknown':
        case['services'] = {}
        case['hosts'] = {}
        view = cluster_view.ClusterView(
            model.Cluster({h: host(h) for h in 'ab'}, {UUID: model.Instance(UUID, 'a')},
                          {'a': model.Service('a')}, scope_hosts=frozenset('ab')),
            model.PlanningOptions())
        assert constraints.judge_move(view, MOVE).rule == rule
        return
    assert judge(**case) == rule


@pytest.mark.parametrize('case', [
    {'services': {'a': model.Service('a', status='disabled', zone='az1')},
     'move': phase('evacuate')},
    {'services': {'b': model.Service('b', zone='az2')}},
    {'instance': {'pinned_zone': 'az1'}},
    {'hosts': {'a': host('a', cell='1'), 'b': host('b', cell=None)}},
    {'hosts': {'a': host('a', cell='1'), 'b': host('b', cell='1')},
     'history': model.MoveHistory(other_cells=frozenset({('a', 'c'), ('b', 'c')}))},
    {'hosts': {'a': host('a', cell='1'), 'b': host('b', cell=None)},
     'history': model.MoveHistory(other_cells=frozenset({('a', 'c'), ('b', 'c')}))},
    {'hosts': {'a': host('a', traits=frozenset({'CUSTOM_X'}))},
     'options': {'require_cpu_compatibility': True}},
    {'hosts': {'a': host('a', traits=frozenset({'HW_CPU_X86_SVM'}))}},
    {'instance': {'claims': {'DISK_GB': 99}}, 'options': {'enforce_placement_disk': False}},
    {'instance': {'claims': {'VCPU': 0, 'PCPU': 0}}},
    {'instance': {'claims': {'VCPU': 99}}, 'options': {'enforce_placement_claims': False}},
    {'instance': {'claims': {'VCPU': 99}}, 'placement_known': False},
    {'move': phase('evacuate'), 'scores': trusted(untrusted='old'), 'ceilings': {'cpu': 0.1}},
    {'move': phase('pack'), 'ceilings': {'cpu': 0.75}},
    {'ceilings': {'cpu': 0.1}, 'scores': trusted(fill={'a': 0.8, 'b': 0.5, 'c': 0.5})},
    {'history': model.MoveHistory(fresh={UUID: 1.0}), 'move': phase('evacuate'),
     'services': {'a': model.Service('a', status='disabled', zone='az1')}},
    {'history': model.MoveHistory(fresh={UUID: 1.0}), 'move': phase('affinity')},
    {'instance': {'local_disk_gb': 0}, 'options': {'instance_storage': 'local'}},
    {'instance': {'local_disk_gb': 1}, 'move': phase('affinity'),
     'options': {'instance_storage': 'local'}},
    {'instance': {'local_disk_gb': 1},
     'options': {'instance_storage': 'local', 'allow_disk_copy': True}},
    {'instance': {'local_disk_gb': 1},
     'history': model.MoveHistory(local_disk_hosts=frozenset('b'))},
    {'instance': {'local_disk_gb': 1}, 'options': {'instance_storage': 'shared'},
     'history': model.MoveHistory(local_disk_hosts=frozenset('a'))},
], ids=lambda case: ' '.join(case))
def test_allowed_moves_stay_allowed(case):
    assert judge(**case) is None


@pytest.mark.parametrize('local_disk_gb', [1, None])
@pytest.mark.parametrize('value', ['spread', 'pack'])
def test_local_disks_by_nova_or_by_default_hold_an_imbalance_move(value, local_disk_gb):
    assert judge(phase(value), instance={'local_disk_gb': local_disk_gb},
                 history=model.MoveHistory(local_disk_hosts=frozenset('a'))) == 'copies-disk'
    assert judge(phase(value), instance={'local_disk_gb': local_disk_gb},
                 options={'instance_storage': 'local'}) == 'copies-disk'


@pytest.mark.parametrize('names', [(None, None), ('1', None), (None, '1'), ('1', '1')])
def test_cells_shown_by_nova_override_configured_cell_names(names):
    source, destination = names
    apart = model.MoveHistory(other_cells=frozenset({('a', 'b')}))
    hosts = {'a': host('a', cell=source), 'b': host('b', cell=destination)}
    assert judge(hosts=hosts, history=apart) == 'cell-differs'


@pytest.mark.parametrize('options', [{}, {'enforce_placement_disk': True},
                                     {'instance_storage': 'shared'}])
def test_disk_counts_unless_it_is_switched_off(options):
    """Nova's scheduler asks Placement for it on any storage."""
    assert judge(instance={'claims': {'DISK_GB': 11}}, options=options) == 'no-room'


def test_the_ceiling_uses_the_destinations_capacity():
    """One core of eight is half of one of four."""
    assert judge(phase('pack'), ceilings={'cpu': 0.7}) == 'ceiling'
    to_c = dataclasses.replace(phase('pack'), to_host='c')
    assert judge(to_c, ceilings={'cpu': 0.7}) is None


def test_a_spread_exceeds_the_ceiling_only_from_a_fuller_host():
    for fill, said in ((0.75, None), (0.74, 'ceiling')):
        worse = trusted(fill={'a': fill, 'b': 0.5, 'c': 0.5})
        assert judge(scores=worse, ceilings={'cpu': 0.6}) == said


def test_pre_flight_judges_all_but_metrics():
    left_out = {r.name for r in set(constraints.RULES) - set(constraints.PRE_FLIGHT)}
    assert left_out == {'scored', 'ceiling'}


def test_check_all_gives_every_rejection_or_the_missing_object_alone():
    whole = model.Cluster({h: host(h) for h in 'ab'}, {
        UUID: model.Instance(UUID, 'a', locked=True, claims={'VCPU': 99})},
        {h: model.Service(h) for h in 'ab'}, scope_hosts=frozenset('ab'))
    view = cluster_view.ClusterView(whole, model.PlanningOptions())
    assert [no.rule for no in constraints.list_rejections(view, MOVE)] == ['locked', 'no-room']
    gone = dataclasses.replace(MOVE, instance_uuid='x')
    assert [no.rule for no in constraints.list_rejections(view, gone)] == ['no-such-instance']


@pytest.mark.parametrize(('launched_at', 'left'), [
    (None, 0.0), (1000.0, 900.0), (900.0, 800.0), (100.0, 0.0), (100.5, 0.5), (0.0, 0.0),
    (1060.0, 900.0), (1061.0, 0.0)])
def test_an_instance_is_fresh_for_at_most_one_cooldown_by_any_clock(launched_at, left):
    assert recently_booted.compute_fresh_seconds(launched_at, 1000.0, 900.0) == left
    assert recently_booted.compute_fresh_seconds(launched_at, 1000.0, 0.0) == 0.0


def test_of_several_members_under_way_the_same_is_always_named():
    """Groups are sets, and their order differs from process to process."""
    others = [clouds.uuid_of(name) for name in 'mnopqr']
    whole = model.Cluster(
        {h: host(h) for h in 'ab'},
        {u: model.Instance(u, 'a', claims={'VCPU': 1}) for u in (UUID, *others)},
        {h: model.Service(h) for h in 'ab'}, scope_hosts=frozenset('ab'),
        groups=(model.ServerGroup('g', model.GroupPolicy.SOFT_AFFINITY,
                                  frozenset({UUID, *others})),),
        flights=tuple(model.InFlightMove(u, 'a', None) for u in others))
    no = constraints.judge_move(cluster_view.ClusterView(whole, model.PlanningOptions()), MOVE)
    assert (no.rule, no.detail) == (
        'group-in-flight', f'instance {min(others)} of server group g is migrating')
