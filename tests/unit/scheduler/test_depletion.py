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



"""Samples lack the present allocations minus the mean of their window."""

import datetime
import math
import threading

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import policy
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import depletion
from tests.unit import nova_fakes

Step = allocation_history.AllocationStep


def state(host='a', vcpus=0, free=1000, **fields):
    return nova_fakes.HostState(host, host, **{
        'vcpus_total': 10, 'total_usable_ram_mb': 1000, 'vcpus_used': vcpus,
        'free_ram_mb': free, **fields})


def noted(*seen):
    """A ledger after (time, HostState) in order."""
    ledger = allocation_history.AllocationLedger()
    for now, host in seen:
        ledger.record_allocations([host], now=now, wall=now)
    return ledger


def load_now(ledger, now, *, score=0.5, sampled_at=0.0, window=100.0, memory=False,
             unmeasured=1.0):
    """The load of host a as a request sees it with this HostState."""
    loads = depletion.compute_loads({'a': score}, ledger.copy_tracks(), sampled_at=sampled_at,
                                    window=window,
                                    memory=memory, unmeasured=unmeasured)
    return depletion.project_loads([now], loads)[0]


def test_the_first_host_state_seen_is_the_baseline():
    ledger = noted((50.0, state(vcpus=5)))
    assert load_now(ledger, state(vcpus=5)) == pytest.approx(0.5)
    assert load_now(ledger, state(vcpus=5), sampled_at=1000.0) == pytest.approx(0.5)


def test_growth_counts_with_the_measured_use_and_shrinkage_is_given_back():
    ledger = noted((0.0, state(vcpus=5)))
    # 0.5 x 10 cores are busy for 5 vCPUs: each is worth a core.
    assert load_now(ledger, state(vcpus=7)) == pytest.approx(0.7)
    assert load_now(ledger, state(vcpus=2)) == pytest.approx(0.2)
    assert load_now(ledger, state(vcpus=7), score=0.25) == pytest.approx(0.35)


def test_a_memory_policy_uses_memory():
    ledger = noted((0.0, state(vcpus=5, free=600)))
    # 500 MiB are busy for 400 allocated: at most all of each.
    assert load_now(ledger, state(vcpus=9, free=500), memory=True) == pytest.approx(0.6)
    assert load_now(ledger, state(free=700), score=0.2, memory=True) == pytest.approx(0.15)


def test_it_fades_as_the_window_takes_it_in():
    ledger = noted((0.0, state(vcpus=5)), (1000.0, state(vcpus=7)))
    now = state(vcpus=7)
    for sampled_at, unshown in ((900.0, 2.0), (1000.0, 2.0), (1025.0, 1.5), (1050.0, 1.0),
                                (1100.0, 0.0), (5000.0, 0.0)):
        shown, _ = depletion.compute_shown_mean(ledger.copy_tracks()['a'].steps, sampled_at, 100.0)
        assert now.vcpus_used - shown == pytest.approx(unshown), sampled_at


def test_without_a_window_a_sample_shows_all_that_was_there():
    ledger = noted((0.0, state(vcpus=5)), (1000.0, state(vcpus=7)), (1010.0, state(vcpus=8)))
    steps = ledger.copy_tracks()['a'].steps
    assert [depletion.compute_shown_mean(steps, at, 0.0)[0]
            for at in (-5.0, 999.0, 1000.0, 1010.0)] == [
        5.0, 5.0, 7.0, 8.0]


def test_nothing_allocated_is_measured_by_nothing():
    ledger = noted((0.0, state()))
    assert load_now(ledger, state(vcpus=2), score=0.1) == pytest.approx(0.3)
    assert load_now(ledger, state(vcpus=2), score=0.1, unmeasured=0.0) == pytest.approx(0.1)


def test_a_change_is_dated_by_the_compute_node_s_record():
    def updated(at):
        return datetime.datetime.fromtimestamp(at, datetime.UTC)

    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations([state(vcpus=5)], now=100.0, wall=1e9)
    # Seen at 400, on record for 60 s.
    ledger.record_allocations([state(vcpus=6, updated=updated(1e9 + 240))], now=400.0,
                              wall=1e9 + 300)
    # A record of before the last change, of the future, or without a zone.
    ledger.record_allocations([state(vcpus=7, updated=updated(1e9))], now=500.0, wall=1e9 + 400)
    ledger.record_allocations([state(vcpus=8, updated=updated(2e9))], now=600.0, wall=1e9 + 500)
    ledger.record_allocations([state(vcpus=9, updated=datetime.datetime(2020, 1, 1))],
                              now=700.0, wall=1e9 + 600)
    assert [(s.since, s.vcpus) for s in ledger.copy_tracks()['a'].steps] == [
        (100.0, 5.0), (340.0, 6.0), (340.0, 7.0), (600.0, 8.0), (700.0, 9.0)]


@pytest.mark.parametrize('fields', [
    {'vcpus': None}, {'free': None}, {'vcpus_total': None}, {'vcpus_total': 0},
    {'total_usable_ram_mb': 0}, {'vcpus': math.nan}, {'free': -math.inf}, {'vcpus': 'x'}])
def test_a_host_that_does_not_tell_has_its_score(fields):
    ledger = noted((0.0, state(**fields)))
    assert load_now(ledger, state(vcpus=9)) == 0.5


@pytest.mark.parametrize('fields', [{'vcpus': None}, {'free': None}, {'vcpus': 'x'}])
def test_a_host_that_tells_no_longer_has_its_score(fields):
    assert load_now(noted((0.0, state(vcpus=5))), state(**fields)) == 0.5


def test_a_host_without_attributes_keeps_its_score_and_harms_no_other():
    class Bare:
        host = 'b'

    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations([state(vcpus=5), Bare()], now=0.0, wall=0.0)
    assert load_now(ledger, state(vcpus=7)) == pytest.approx(0.7)
    told = noted((0.0, state('b', vcpus=5)))
    loads = depletion.compute_loads({'b': 0.5}, told.copy_tracks(), sampled_at=0.0, window=0.0,
                                    memory=False, unmeasured=1.0)
    assert depletion.project_loads([Bare()], loads) == [0.5]


def test_a_host_that_begins_to_tell_is_compared_with_that():
    ledger = noted((0.0, state(vcpus=None)), (10.0, state(vcpus=5)))
    assert load_now(ledger, state(vcpus=6)) == pytest.approx(0.6)


def test_a_new_host_differs_from_a_changed_one():
    ledger = allocation_history.AllocationLedger()
    assert ledger.record_allocations([state()], 0.0, 0.0)
    assert not ledger.record_allocations([state(vcpus=1)], 1.0, 1.0)
    assert ledger.record_allocations([state('b')], 2.0, 2.0)


def test_a_node_name_that_comes_later_is_news():
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations([nova_fakes.HostState('a', None, vcpus_used=None)], 0.0, 0.0)
    assert ledger.record_allocations([state()], 1.0, 1.0)
    assert ledger.copy_tracks()['a'].node == 'a'


changes = st.lists(st.tuples(st.floats(0, 500), st.integers(0, 64)), min_size=1, max_size=200)


@given(changes, st.floats(0, 5000), st.just(0.0) | st.floats(1, 3600))
def test_the_shown_mean_lies_within_the_extremes_in_bounded_memory(
        seen, sampled_at, window):
    now, ledger = 0.0, allocation_history.AllocationLedger()
    for gap, vcpus in seen:
        now += gap
        ledger.record_allocations([state(vcpus=vcpus, free=1000 - vcpus)], now, now)
    steps = ledger.copy_tracks()['a'].steps
    assert len(steps) <= allocation_history.MAX_STEPS
    assert list(steps) == sorted(steps, key=lambda s: s.since)
    assert (steps[-1].vcpus, steps[0].vcpus) == (seen[-1][1], seen[0][1]) or len(steps) < 2
    vcpus, ram_mb = depletion.compute_shown_mean(steps, sampled_at, window)
    assert vcpus == pytest.approx(ram_mb, abs=1e-6)
    assert min(v for _, v in seen) - 1e-9 <= vcpus <= max(v for _, v in seen) + 1e-9


@given(st.lists(st.tuples(st.floats(2, 50), st.integers(0, 64)), min_size=2, max_size=20),
       st.floats(1, 300))
def test_the_shown_value_is_the_mean_of_past_allocations(seen, window):
    """Held against a sum over small steps of time."""
    now, held, ledger = 0.0, [], allocation_history.AllocationLedger()
    for gap, vcpus in seen:
        now += gap
        held.append((now, vcpus))
        ledger.record_allocations([state(vcpus=vcpus)], now, now)

    def at(moment):
        return next((v for t, v in reversed(held) if t <= moment), held[0][1])

    count = 4000
    mean = sum(at(now - window * (i + 0.5) / count) for i in range(count)) / count
    shown, _ = depletion.compute_shown_mean(ledger.copy_tracks()['a'].steps, now, window)
    assert shown == pytest.approx(mean, abs=64 * 2 * len(seen) / count)


@given(st.integers(1, 40), st.integers(2, 6), st.floats(0.05, 1.0), st.data())
def test_a_burst_ends_as_level_as_with_perfect_metrics(count, hosts, use, data):
    """Each goes to the least loaded host: their loads then differ by no more
    than one instance, or than the samples did."""
    names = [f'h{i}' for i in range(hosts)]
    scores = {name: data.draw(st.floats(0.1, 0.6)) for name in names}
    states = {name: state(name, vcpus=round(score * 100 / use), vcpus_total=100)
              for name, score in scores.items()}
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations(list(states.values()), 0.0, 0.0)
    loads = depletion.compute_loads(scores, ledger.copy_tracks(), sampled_at=10.0, window=300.0,
                                    memory=False, unmeasured=1.0)
    unit = next(iter(loads.values())).per_vcpu
    for _ in range(count):
        found = depletion.project_loads(states.values(), loads)
        least = min(zip(found, names, strict=True))[1]
        states[least].vcpus_used += 1
    final = depletion.project_loads(states.values(), loads)
    taken = [load for load, name in zip(final, names, strict=True) if load > scores[name] + 1e-9]
    assert max(taken) - min(final) <= unit + 1e-9


DAY = allocation_history.FORGET_AFTER


def test_hosts_that_left_are_forgotten():
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations([state('cn1'), state('cn2'), state('cn3')], 0.0, 0.0)
    assert not ledger.forget_missing_hosts(0.0, set())
    ledger.record_allocations([state('cn1')], DAY, DAY)
    assert not ledger.forget_missing_hosts(DAY, set())
    assert ledger.forget_missing_hosts(DAY + 1.0, {'cn3'})
    # cn3 has been unseen as long, but something is still measured there.
    assert set(ledger.copy_tracks()) == {'cn1', 'cn3'}
    assert set(ledger._last) == {'cn1', 'cn3'}


def test_an_idle_night_forgets_no_host_with_a_score():
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations([state('cn1')], 0.0, 0.0)
    for hour in range(100):
        assert not ledger.forget_missing_hosts(hour * 3600.0, {'cn1'})


def test_a_host_whose_name_another_took_goes_sooner():
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations([state('cn1'), state('cn2')], 0.0, 0.0)
    ledger.forget_missing_hosts(0.0, {'cn1', 'cn2'})
    later = allocation_history.REPLACED_AFTER + 1.0
    ledger.record_allocations([state('cn1.example.org')], later, later)
    assert ledger.forget_missing_hosts(later, {'cn1', 'cn2'})
    assert set(ledger.copy_tracks()) == {'cn1.example.org', 'cn2'}


def test_many_threads_leave_a_whole_ledger():
    """No error, nothing lost that a later look does not repair."""
    ledger, names, errors = allocation_history.AllocationLedger(), [f'h{i}' for i in range(50)], []

    def request(seed):
        try:
            for i in range(60):
                ledger.record_allocations([state(name, vcpus=(i + seed) % 7) for name in names],
                                          float(i), float(i))
                if seed == 0:
                    ledger.forget_missing_hosts(float(i), set())
                    ledger.copy_tracks()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=request, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    ledger.record_allocations([state(name, vcpus=3) for name in names], 100.0, 100.0)
    assert {(t.steps[-1].vcpus, len(t.steps) <= allocation_history.MAX_STEPS)
            for t in ledger.copy_tracks().values()} == {(3.0, True)}


@pytest.mark.parametrize(('fields', 'memory'), [
    ({'imbalance_query': 'rate(node_cpu_seconds_total[5m])'}, False),
    ({'imbalance_query': '1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes'}, True),
    ({'imbalance_query': 'node_memory_x', 'host_capacity': 'VCPU'}, False),
    ({'imbalance_query': 'x', 'host_capacity': 'MEMORY_MB'}, True)])
def test_the_load_of_a_policy_follows_memory_or_vcpus(fields, memory):
    assert depletion.goes_by_memory(policy.Policy(name='p', weight=1.0, **fields)) == memory


def test_policies_are_weighed_together():
    cpu, memory = depletion.HostLoad(0.4, 0.4, 0.1, 0.0), depletion.HostLoad(0.2, 0.8, 0.0, 0.001)
    assert depletion.combine_loads([(0.75, cpu), (0.25, memory)]) == pytest.approx(
        (0.35, 0.5, 0.075, 0.00025))
