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


"""Ceilings bind boots; when they would bind every host they bind none."""

from pathlib import Path
import re

import pytest

from kronos_nova import model
from kronos_nova.feed import feed_channel
from kronos_nova.filters import capacity
from kronos_nova.filters import placement
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import score_cache
from tests.unit import nova_fakes
from tests.unit.nova_fakes import Fields


def ceiling(name, limit, fill, **fields):
    """Shown by the samples alone, or as ``fields`` of depletion.loads() say."""
    asked = {'tracks': {}, 'sampled_at': 0.0, 'window': 0.0, 'memory': False, **fields}
    return policy_scores.BootCeiling(name, limit,
                                     depletion.compute_loads(fill, **asked, unmeasured=0.0))


def passing(ceilings, hosts=('a', 'b', 'c'), spec=None, **options):
    snapshot = None if ceilings is None else policy_scores.ScoreReading(ceilings=tuple(
        ceiling(name, limit, fill) for name, (limit, fill) in ceilings.items()))
    door = nova_fakes.FakeDoor(snapshot, **options)
    if 'answered' in options:
        door.scores.has_queried_source = options['answered']
    with door.opened():
        found = capacity.KronosCapacityFilter().filter_all(
            nova_fakes.hosts(*hosts), spec or nova_fakes.spec())
    assert not door.faults.counts
    return ''.join(state.host for state in found)


def test_a_host_above_any_ceiling_is_refused():
    assert passing({'cpu': (0.7, {'a': 0.8, 'b': 0.7, 'c': 0.1}),
                    'mem': (0.5, {'a': 0.1, 'b': 0.1, 'c': 0.6})}) == 'b'


def test_a_host_without_a_score_passes():
    assert passing({'cpu': (0.7, {'a': 0.8})}) == 'bc'


@pytest.mark.parametrize(('what', 'fill', 'expected'), [
    ('mean', {'a': 0.5}, 'abc'), ('penalty', {'a': 0.5}, 'abc'), ('exclude', {'a': 0.5}, 'a'),
    ('exclude', {}, 'abc'), ('exclude', {'z': 0.5}, 'abc'),
    # All known are above the ceiling, which is soft: they all pass.
    ('exclude', {'a': 0.9}, 'a')])
def test_unknown_hosts_are_refused_if_asked_for_unless_they_are_all(what, fill, expected):
    snapshot = policy_scores.ScoreReading(
        loads={host: depletion.HostLoad(value, value) for host, value in fill.items()},
        ceilings=(ceiling('cpu', 0.7, fill),))
    door = nova_fakes.FakeDoor(snapshot, unknown_hosts=what)
    for spec, found in ((nova_fakes.spec(), expected), (nova_fakes.spec(ignore_hosts=['a']),
                                                        'abc')):
        with door.opened():
            kept = capacity.KronosCapacityFilter().filter_all(nova_fakes.hosts(*'abc'), spec)
        assert ''.join(state.host for state in kept) == found
    assert not door.faults.counts


@pytest.mark.parametrize(('hard', 'expected'), [(False, 'abc'), (True, '')])
def test_when_all_are_above_all_pass_unless_the_ceiling_is_hard(hard, expected):
    fill = dict.fromkeys('abc', 0.9)
    assert passing({'cpu': (0.7, fill)}, hard_ceiling=hard) == expected


def test_together_ceilings_may_bind_every_host_and_then_bind_none():
    assert passing({'cpu': (0.7, {'a': 0.9}), 'mem': (0.7, {'b': 0.9})}, hosts='ab') == 'ab'


def test_without_ceilings_all_pass():
    assert passing({}) == 'abc'


@pytest.mark.parametrize(('options', 'expected'), [
    ({}, 'abc'), ({'fail_closed': True}, ''), ({'fail_closed': True, 'answered': False}, 'abc')])
def test_without_scores_all_pass_unless_the_operator_wants_none(options, expected):
    assert passing(None, **options) == expected


@pytest.mark.parametrize('fields', [
    {'requested_destination': Fields(cell='c')}, {'ignore_hosts': ['a']},
    {'requested_destination': Fields(host='a')},
    {'scheduler_hints': {'_nova_check_type': ['rebuild']}}])
def test_moves_are_not_bound(fields):
    full = {'cpu': (0.7, dict.fromkeys('abc', 0.9))}
    spec = nova_fakes.spec(**fields)
    assert passing(full, spec=spec, hard_ceiling=True) == 'abc'
    assert passing(None, spec=spec, fail_closed=True) == 'abc'


def judged(states, limit, fill, then=None, memory=False, **asked):
    """Which hosts pass when the samples show ``states`` as they are, and
    ``then`` has changed them."""
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations(states, now=0.0, wall=0.0)
    found = ceiling('cpu', limit, fill, tracks=ledger.copy_tracks(), memory=memory)
    for state in states:
        for name, value in (then or {}).get(state.host, {}).items():
            setattr(state, name, value)
    door = nova_fakes.FakeDoor(policy_scores.ScoreReading(ceilings=(found,)))
    with door.opened():
        left = capacity.KronosCapacityFilter().filter_all(states, nova_fakes.spec(**asked))
    assert not door.faults.counts
    return [state.host for state in left]


def state(host, **fields):
    return nova_fakes.HostState(host, host, **{
        'vcpus_total': 16, 'total_usable_ram_mb': 1000, 'free_ram_mb': 1000, **fields})


def test_the_expected_load_of_a_request_depends_on_the_host_size():
    # 0.6 x 64 + 0.6 x 16 = 48 cores are busy for 96 vCPUs: half a core each.
    states = [state('big', vcpus_total=64, vcpus_used=64),
              state('small', vcpus_total=16, vcpus_used=32)]
    fill = {'big': 0.6, 'small': 0.6}
    assert judged(states, 0.7, fill, vcpus=2) == ['big', 'small']  # 0.616 and 0.6625
    assert judged(states, 0.7, fill, vcpus=4) == ['big']  # 0.63 and 0.725
    assert judged(states, 0.7, fill, vcpus=12) == ['big']  # 0.694 and 0.975


def test_a_memory_ceiling_uses_memory():
    states = [state('a', total_usable_ram_mb=1000, free_ram_mb=500),
              state('b', total_usable_ram_mb=4000, free_ram_mb=2000)]
    fill = {'a': 0.5, 'b': 0.5}
    assert judged(states, 0.6, fill, memory=True, memory_mb=200) == ['b']  # 0.7 and 0.55


def test_allocations_and_releases_since_the_sample_count():
    states = [state('a', vcpus_used=16), state('b', vcpus_used=16)]
    fill = {'a': 0.5, 'b': 0.5}  # half a core for each vCPU
    then = {'a': {'vcpus_used': 24}, 'b': {'vcpus_used': 8}}
    assert judged(states, 0.7, fill, then, vcpus=1) == ['b']  # 0.5 + 9/32 and 0.5 - 7/32


def test_hosts_that_no_compute_has_reported_are_judged_by_their_score():
    states = [state('a', vcpus_total=None, vcpus_used=None), state('b', vcpus_total=0)]
    assert judged(states, 0.7, {'a': 0.7, 'b': 0.8}, vcpus=64) == ['a']


def test_a_host_that_no_longer_tells_its_allocation_is_judged_by_its_score():
    states = [state('a', vcpus_used=16), state('b', vcpus_used=16)]
    then = {'a': {'vcpus_used': None}}
    assert judged(states, 0.55, {'a': 0.5, 'b': 0.5}, then, vcpus=2) == ['a']  # b: 0.5625


class GroupsDoor(nova_fakes.FakeDoor):
    """Hosts a and b have scores, c and d have none, no file is for e."""

    def list_scored_groups(self, hosts):
        def some(names):
            return [h for h in hosts if h.host in names]

        return [score_cache.ScoredHosts(some('ab'), self.snapshot),
                score_cache.ScoredHosts(some('cd'), None, 'a reason'),
                score_cache.ScoredHosts(some('e'), None)]


@pytest.mark.parametrize(('options', 'limit', 'expected'), [
    ({}, 0.7, 'bcde'), ({}, 0.1, 'cde'), ({'fail_closed': True}, 0.7, 'be'),
    ({'fail_closed': True}, 0.1, 'e'), ({'fail_closed': True, 'hard_ceiling': True}, 0.1, 'e')])
def test_each_file_s_hosts_are_judged_by_its_own_scores(options, limit, expected):
    door = GroupsDoor(policy_scores.ScoreReading(ceilings=(
        ceiling('cpu', limit, {'a': 0.8, 'b': 0.5}),)), **options)
    # Not in the order of the groups.
    states = nova_fakes.hosts(*'ecabd')
    with door.opened():
        left = capacity.KronosCapacityFilter().filter_all(states, nova_fakes.spec())
    assert ''.join(h.host for h in left) == ''.join(c for c in 'ecabd' if c in expected)


FULL = {'a': model.BootLimit(vcpus=16), 'b': model.BootLimit(memory_mb=900.0)}


def kept(limits=FULL, spec=None, ceilings=None, **options):
    """Which of three hosts pass, of which a has 16 vCPUs in use and b 500 MiB."""
    states = [state('a', vcpus_used=16), state('b', free_ram_mb=500), state('c')]
    door = nova_fakes.FakeDoor(policy_scores.ScoreReading(ceilings=tuple(
        ceiling('cpu', 0.7, fill) for fill in ceilings or ())), limits=limits, **options)
    with door.opened():
        found = capacity.KronosCapacityFilter().filter_all(
            states, spec or nova_fakes.spec(memory_mb=500))
    assert not door.faults.counts
    return ''.join(host.host for host in found)


def test_hosts_whose_reserve_a_boot_would_take_come_last():
    assert kept() == 'c'
    assert kept({**FULL, 'c': model.BootLimit(0)}) == 'abc'


def test_hosts_are_compared_with_the_limit_of_each_class():
    disks = {'a': model.BootLimit(disk_gb=10), 'b': model.BootLimit(disk_gb=9)}
    assert kept(spec=nova_fakes.spec(memory_mb=400)) == 'bc'
    assert kept(spec=nova_fakes.spec(vcpus=0, memory_mb=500)) == 'ac'
    assert kept(disks, nova_fakes.spec(root_gb=5, ephemeral_gb=4, swap=1)) == 'ac'
    assert kept(disks, nova_fakes.spec(root_gb=5, ephemeral_gb=4, swap=1, is_bfv=True)) == 'abc'
    assert kept(disks, nova_fakes.spec(root_gb=5, ephemeral_gb=4, is_bfv=False)) == 'abc'


def test_reserve_is_kept_from_all_boots_on_demand(caplog):
    every = {**FULL, 'c': model.BootLimit(0)}
    assert kept(every, failover_reserve='keep') == ''
    assert 'u-new is refused 3 hosts' in caplog.text and 'failover_reserve' in caplog.text
    assert kept(every, failover_reserve='ignore') == 'abc'


@pytest.mark.parametrize('fields', [
    {'requested_destination': Fields(cell='c')}, {'ignore_hosts': ['a']},
    {'requested_destination': Fields(host='a')}, {'force_hosts': ['a']},
    {'scheduler_hints': {'_nova_check_type': ['rebuild']}}])
def test_evacuations_and_other_moves_may_take_the_reserve(fields):
    every = dict.fromkeys('abc', model.BootLimit(0))
    assert kept(every, nova_fakes.spec(**fields), failover_reserve='keep') == 'abc'


@pytest.mark.parametrize(('choice', 'hard', 'fill', 'expected'), [
    # c alone keeps the reserve, and is above the soft ceiling.
    ('prefer', False, {'c': 0.9}, 'c'), ('keep', False, {'c': 0.9}, 'c'),
    # The hard ceiling leaves a and b alone.
    ('prefer', True, {'c': 0.9}, 'ab'), ('keep', True, {'c': 0.9}, ''),
    ('prefer', True, {'b': 0.9, 'c': 0.9}, 'a')])
def test_reserve_goes_before_a_soft_ceiling_and_yields_to_a_hard_one(choice, hard, fill, expected):
    assert kept(ceilings=[fill], failover_reserve=choice, hard_ceiling=hard) == expected


PLUGINS = {kind.__name__: kind for kind in (capacity.KronosCapacityFilter,
                                            placement.KronosPlacementFilter)}
DOCUMENTED = Path(__file__).resolve().parents[3] / 'doc/source/install/scheduler.rst'


def filter_in_order(names, **options):
    """Which hosts the filters leave to a member of an anti-affinity group.

    The only other member arrives on a, and a boot on b would take its reserve.
    """
    notice = feed_channel.PublishedState(
        flights=(model.InFlightMove('member', 'c', 'a', source='kronos'),))
    group = Fields(uuid='g', policy='anti-affinity', members=['member', 'u-new'], rules={},
                   hosts=[])
    door = nova_fakes.FakeDoor(notice=notice, limits={'b': model.BootLimit(0)}, **options)
    states = [state('a'), state('b')]
    with door.opened():
        for name in names:
            states = PLUGINS[name]().filter_all(states, nova_fakes.spec(instance_group=group))
    assert not door.faults.counts
    return ''.join(host.host for host in states)


def test_reserved_host_is_left_where_the_documented_filters_refuse_the_others():
    (enabled,) = re.findall('^   enabled_filters = (.*)$', DOCUMENTED.read_text(), re.MULTILINE)
    ours = [name for name in enabled.split(',') if name in PLUGINS]
    assert len(ours) == 2
    assert filter_in_order(ours) == 'b'
    assert filter_in_order(ours, failover_reserve='keep') == ''
    assert filter_in_order(reversed(ours)) == '', 'why the order is documented'


def test_class_of_which_a_boot_takes_nothing_refuses_no_host():
    """The host is above each limit already."""
    host = {'vcpus_used': 9, 'total_usable_ram_mb': 9000, 'free_ram_mb': 0, 'disk_mb_used': 9216}
    for limit, free, more in ((model.BootLimit(vcpus=8), {'vcpus': 0}, {'vcpus': 1}),
                              (model.BootLimit(memory_mb=8), {'memory_mb': 0}, {'memory_mb': 1}),
                              (model.BootLimit(disk_gb=8), {'root_gb': 20, 'is_bfv': True},
                               {'root_gb': 1})):
        for fields, expected in ((free, 1), (more, 0)):
            door = nova_fakes.FakeDoor(limits={'a': limit}, failover_reserve='keep')
            with door.opened():
                found = capacity.KronosCapacityFilter().filter_all(
                    [state('a', **host)], nova_fakes.spec(**fields))
            assert len(found) == expected, (limit, fields)
            excesses = capacity.find_limit_excesses(state('a', **host), limit,
                                                    nova_fakes.spec(**fields))
            assert len(excesses) == 1 - expected


@pytest.mark.parametrize(('choice', 'expected'), [('prefer', 'a'), ('ignore', 'a'), ('keep', '')])
def test_unknown_host_that_is_excluded_is_no_other_host(choice, expected):
    """The only known host would lose its reserve."""
    reading = policy_scores.ScoreReading(loads={'a': 0.1})
    door = nova_fakes.FakeDoor(reading, limits={'a': model.BootLimit(0)}, unknown_hosts='exclude',
                               failover_reserve=choice)
    with door.opened():
        found = capacity.KronosCapacityFilter().filter_all([state('a'), state('x')],
                                                           nova_fakes.spec())
    assert ''.join(host.host for host in found) == expected


@pytest.mark.parametrize(('limits', 'options', 'warned'), [
    # Of three hosts two are reserved, and the third one is above a hard ceiling.
    (FULL, {'failover_reserve': 'keep', 'ceilings': [{'c': 0.9}], 'hard_ceiling': True}, '2 hosts'),
    (FULL, {'failover_reserve': 'keep'}, ''),
    (FULL, {'ceilings': [{'c': 0.9}], 'hard_ceiling': True}, ''),
    ({}, {'failover_reserve': 'keep', 'ceilings': [dict.fromkeys('abc', 0.9)],
          'hard_ceiling': True}, '')])
def test_boot_that_the_reserve_leaves_no_host_is_logged(caplog, limits, options, warned):
    passed = kept(limits, **options)
    assert ('is refused' in caplog.text) == bool(warned) and warned in caplog.text
    assert not (warned and passed)


def test_reserve_holds_without_scores():
    states = [state('a', vcpus_used=16), state('c')]
    door = nova_fakes.FakeDoor(limits=FULL)
    with door.opened():
        found = capacity.KronosCapacityFilter().filter_all(states, nova_fakes.spec())
    assert [host.host for host in found] == ['c'] and not door.faults.counts


def test_hosts_that_no_compute_has_reported_take_no_reserve():
    states = [state('a', vcpus_used=None), state('b', free_ram_mb=None)]
    door = nova_fakes.FakeDoor(limits=FULL, failover_reserve='keep')
    with door.opened():
        assert capacity.KronosCapacityFilter().filter_all(states, nova_fakes.spec()) == states


def test_excess_over_a_limit_is_named():
    limit = model.BootLimit(16, 900, 5)
    host = state('a', vcpus_used=16, free_ram_mb=100)
    spec = nova_fakes.spec(vcpus=2, memory_mb=100, root_gb=5)
    assert capacity.find_limit_excesses(host, limit, spec) == [
        '18 vCPUs would be in use, above 16', '1000 MiB of memory would be in use, above 900']
    host.vcpus_used = None
    assert capacity.find_limit_excesses(host, limit, spec) == []
