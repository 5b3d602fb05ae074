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

"""The benchmark before the trace referee: it drives the real planner, and it
does not see the future. The referee here is a stand-in of the same shape."""

import dataclasses
import importlib.util
import pathlib
import types
from typing import Any

import numpy as np
import pytest

PATH = pathlib.Path(__file__).parents[2] / 'benchmarks' / 'referee.py'


@pytest.fixture(scope='module')
def referee():
    spec = importlib.util.spec_from_file_location('referee', PATH)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@dataclasses.dataclass
class State:
    """What a policy may read of the referee's state."""

    k: int
    hosts: Any
    trace: Any
    place: Any
    req: Any
    alive: Any
    ram: bool
    mem: dict
    past: Any

    def hist(self, n):
        return self.past[:, -n:]


def state_of(k, place, usage, ram=True, mem=None, hosts=4):
    """Constant usage up to step k; hosts of 5,320 MIPS and 32 GiB."""
    count = len(place)
    usage = np.array(usage, dtype=float)
    return State(
        k=k, place=np.array(place), req=usage, alive=np.ones(count, bool), ram=ram,
        mem={} if mem is None else mem, past=np.repeat(usage[:, None], k + 1, axis=1),
        hosts=types.SimpleNamespace(cap=np.full(hosts, 5320.0), pe=np.full(hosts, 2660.0),
                                    ram=np.full(hosts, 32768.0)),
        trace=types.SimpleNamespace(mips=np.full(count, 2500.0), ram=np.full(count, 870.0)))


def after(state, moves):
    for v, h in moves:
        state.place[v] = h
    return state_of(state.k + 1, state.place, state.req, state.ram, state.mem)


def test_pack_empties_hosts_and_settles(referee):
    policy = referee.make_policy('pack')
    state = state_of(1, [0, 1, 2, 3], [500.0, 500.0, 500.0, 500.0])
    moves = policy(state)
    assert len(moves) == 3 and len({h for _, h in moves}) == 1
    state = after(state, moves)
    assert len(set(state.place.tolist())) == 1
    assert policy(state) == []


def test_a_host_asked_for_more_than_it_has_is_relieved(referee):
    moves = referee.make_policy('pack')(
        state_of(40, [0, 0, 0, 1], [2500.0, 2500.0, 2400.0, 1000.0]))
    assert len(moves) == 1 and moves[0][1] != 0


def test_memory_is_a_claim_only_where_the_referee_says_so(referee):
    state = state_of(1, [0, 1], [500.0, 500.0])
    state.hosts.ram[:] = 900.0
    assert referee.make_policy('pack')(state) == []
    state = state_of(1, [0, 1], [500.0, 500.0], ram=False)
    state.hosts.ram[:] = 900.0
    assert len(referee.make_policy('pack')(state)) == 1


def test_an_instance_cools_down_after_its_move(referee):
    policy = referee.make_policy('pack', instance_cooldown=900.0)
    state = state_of(1, [0, 1], [500.0, 500.0])
    moved = {v for v, _ in policy(state)}
    state = after(state, [(v, 1 - int(state.place[v])) for v in moved])
    state.req[:] = 2600.0
    state.past[:, -1] = 2600.0
    assert not moved & {v for v, _ in policy(state)}


def test_options_are_policy_fields_or_planning_options(referee):
    quiet = referee.make_policy('pack', fill_target=0.1)
    assert quiet(state_of(1, [0, 1], [500.0, 500.0])) == []
    with pytest.raises(TypeError):
        referee.make_policy('pack', no_such_option=1)


def test_spread_takes_from_the_hottest(referee):
    moves = referee.make_policy('spread')(
        state_of(12, [0, 0, 0, 1], [900.0, 900.0, 900.0, 100.0]))
    assert moves and all(h != 0 for _, h in moves)


def test_a_query_that_the_referee_cannot_answer_is_an_error(referee):
    with pytest.raises(ValueError, match='cannot answer'):
        referee.make_policy('pack', vm_mean_query='sum by (a) (b)')(
            state_of(1, [0, 1], [500.0, 500.0]))


def test_the_placer_prefers_headroom_and_counts_recent_boots(referee):
    placer = referee.make_placer(multiplier=100.0)
    state = state_of(5, [0, 1, 1, 2, -1, -1, -1], [400.0, 2000.0, 2000.0, 2000.0, 0.0, 0.0, 0.0],
                     hosts=3)
    state.trace.mips[4] = 500.0
    first = placer(state, 4)
    assert first == 0
    state.place[4] = 0
    seen = [placer(state, 5)]
    for _ in range(30):  # what booted adds up until another host is better
        state.trace.mips[4] += 2500.0
        seen.append(placer(state, 5))
    assert seen[0] == 0 and set(seen) - {0}


def placing(referee, hosts=2, **options):
    """Asks for weights as the placer does: by the package's own scorecard."""
    placer = referee.make_placer(**options)
    state = state_of(5, [0, 1, -1], [1000.0, 2000.0, 0.0], hosts=hosts)
    placer(state, 2)
    return placer, state


def weights(state, request=(0.0, 0.0)):
    placed = state.place >= 0
    hosts = len(state.hosts.cap)
    taken = np.bincount(state.place[placed], state.trace.mips[placed], hosts)
    ram = np.bincount(state.place[placed], state.trace.ram[placed], hosts)
    return state.mem['scheduler'].weigh(state, taken, state.hosts.ram - ram, request)


# Usage is constant here, so that half of the score, the deviation, is 0.

def test_the_placers_weights_are_the_headroom_of_the_last_scrape(referee):
    _placer, state = placing(referee)
    assert weights(state).tolist() == pytest.approx([0.5 - 500 / 5320, 0.5 - 1000 / 5320])


def test_the_expected_usage_of_the_request_counts_if_given(referee):
    """3,000 of 5,000 allocated MIPS are used."""
    _placer, state = placing(referee)
    assert weights(state, (1000.0, 870.0)).tolist() == pytest.approx(
        [0.5 - (500 + 300) / 5320, 0.5 - (1000 + 300) / 5320])


def test_hosts_above_the_boot_ceiling_are_left_out_while_others_pass(referee):
    for ceiling, expected in ((None, 0), (0.6, 1), (0.1, 0)):
        placer = referee.make_placer(
            boot_ceiling=ceiling, imbalance_query='host_cpu_utilisation', multiplier=0.0)
        state = state_of(5, [0, 1, -1], [4000.0, 500.0, 0.0], hosts=2)
        state.hosts.cap[0] = 9000.0  # Nova's weighers prefer it
        state.past[0, :] = 5000.0
        assert placer(state, 2) == expected


def test_bursts_of_different_instances_add_up_as_squares(referee):
    """Two that deviate by 300 MIPS each: by 300 x sqrt(2) together."""
    _placer, state = placing(referee)
    state.place[2] = 1
    state.past[1:, ::2] = 600.0
    state.past[1:, 1::2] = 0.0
    query = 'sqrt(sum by (host) (stdvar_over_time(vm_cpu_mips[10m:5m]))) / host_cpu_mips'
    cloud = referee.Cloud(state, True)
    cloud.look(state)
    assert cloud._ask(query).series['host-0001'] == pytest.approx(300 * 2 ** 0.5 / 5320)


def test_boots_since_the_sample_count_with_the_measured_use(referee):
    """3,000 of 5,000 allocated MIPS are used, and 2,500 more booted on host 0."""
    _placer, state = placing(referee)
    state.place[2] = 0
    assert weights(state).tolist() == pytest.approx(
        [0.5 - (500 + 0.3 * 2500) / 5320, 0.5 - 1000 / 5320])


def test_a_boot_before_the_last_scrape_is_in_the_sample(referee):
    placer, state = placing(referee)
    state.place[2] = 0
    later = state_of(6, state.place, state.req, mem=state.mem, hosts=2)
    later.mem['scheduler'].placed(state, 0)
    later.past[2, :] = 500.0
    later.trace.arrive = np.array([0, 0, 5])
    assert weights(later).tolist() == pytest.approx([0.5 - 750 / 5320, 0.5 - 1000 / 5320])


def test_the_placers_options_are_fields_of_its_policies(referee):
    _placer, state = placing(referee, imbalance_query='host_cpu_utilisation')
    assert weights(state).tolist() == pytest.approx([0.5 - 1000 / 5320, 0.5 - 2000 / 5320])


def test_before_the_first_scrape_the_placer_leaves_it_to_nova(referee):
    state = state_of(0, [-1, -1], [0.0, 0.0], hosts=2)
    referee.make_placer()(state, 0)
    assert weights(state).tolist() == [0.0, 0.0]


def test_nothing_fits_nowhere(referee):
    state = state_of(1, [-1], [0.0])
    state.hosts.ram[:] = 100.0
    assert referee.make_placer()(state, 0) is None


def test_policies_with_boots_ignore_a_burst_and_relieve_overfull_hosts(referee):
    """A third of a host more on average is left alone; more than it has is not."""
    policy = referee.make_policy('both')
    assert policy(state_of(40, [0, 0, 1, 2, 3], [1000.0, 1000.0, 100.0, 100.0, 100.0])) == []
    moves = referee.make_policy('both')(
        state_of(40, [0, 0, 0, 1], [2500.0, 2500.0, 2400.0, 1000.0]))
    assert any(v != 3 for v, _ in moves) and all(h != 0 for _, h in moves)


def test_the_placer_with_foresight_knows_what_ours_cannot(referee):
    """Idle so far; the instance on host 0 will be busy."""
    state = state_of(5, [0, 1, -1], [0.0, 0.0, 0.0], hosts=2)
    state.trace.u = np.zeros((3, 20))
    state.trace.u[0, 6:] = 1.0
    assert referee._foresees()(state, 2) == 1
    assert referee.make_placer()(state, 2) == 0


def test_runs_are_of_the_referees_seeds_with_arrivals_in_bursts(referee):
    seen = []

    def setup(day, count, seed):
        seen.append((day, count, seed))
        return (types.SimpleNamespace(arrive=np.array([0, 1, 12, 13]), mips=np.ones(4)), None)

    def simulate(trace, hosts, place, policy, **kwargs):
        return trace.arrive.tolist()

    options = {'burst': 12, 'seeds': 2, 'hosts': 7, 'multiplier': 1.0}
    run = referee._runs(types.SimpleNamespace(simulate=simulate),
                        types.SimpleNamespace(setup=setup), 'a-day', options)
    assert run(lambda: (None, None)) == [[0, 12, 12, 24]] * 2
    assert seen == [('a-day', 7, 0), ('a-day', 7, 1)] and options == {'multiplier': 1.0}
