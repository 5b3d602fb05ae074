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

import pytest

from kronos_nova import scoreboard
from kronos_nova.filters import capacity
from tests.unit import nova_fakes
from tests.unit.nova_fakes import Fields


def passing(ceilings, hosts=('a', 'b', 'c'), spec=None, **options):
    snapshot = None if ceilings is None else scoreboard.Snapshot(ceilings=tuple(
        scoreboard.Ceiling(name, limit, fill) for name, (limit, fill) in ceilings.items()))
    door = nova_fakes.FakeDoor(snapshot, **options)
    if 'answered' in options:
        door.scores.answered = options['answered']
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


def judged(ceiling, states, **asked):
    door = nova_fakes.FakeDoor(scoreboard.Snapshot(ceilings=(ceiling,)))
    with door.opened():
        found = capacity.KronosCapacityFilter().filter_all(states, nova_fakes.spec(**asked))
    assert not door.faults.counts
    return [state.host for state in found]


def state(host, **fields):
    return nova_fakes.HostState(host, host, **fields)


def test_what_the_request_is_expected_to_add_counts_on_the_size_of_each_host():
    # 0.6 x 64 + 0.6 x 16 = 48 cores are busy for 96 vCPUs: half a core each.
    states = [state('big', vcpus_total=64, vcpus_used=64),
              state('small', vcpus_total=16, vcpus_used=32)]
    ceiling = scoreboard.Ceiling('cpu', 0.7, {'big': 0.6, 'small': 0.6})
    assert judged(ceiling, states, vcpus=2) == ['big', 'small']  # 0.616 and 0.6625
    assert judged(ceiling, states, vcpus=4) == ['big']  # 0.63 and 0.725
    assert judged(ceiling, states, vcpus=12) == ['big']  # 0.694 and 0.975


def test_a_memory_ceiling_goes_by_memory():
    states = [state('a', total_usable_ram_mb=1000, free_ram_mb=500, vcpus_total=1),
              state('b', total_usable_ram_mb=4000, free_ram_mb=2000, vcpus_total=1)]
    ceiling = scoreboard.Ceiling('mem', 0.6, {'a': 0.5, 'b': 0.5}, memory=True)
    assert judged(ceiling, states, memory_mb=200) == ['b']  # 0.7 and 0.55


def test_hosts_that_no_compute_has_reported_are_judged_by_their_score():
    states = [state('a', vcpus_total=None, vcpus_used=None), state('b')]
    ceiling = scoreboard.Ceiling('cpu', 0.7, {'a': 0.7, 'b': 0.8})
    assert judged(ceiling, states, vcpus=64) == ['a']
