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



"""The worked example of the scheduler page is what the code does."""

from pathlib import Path
import re

import pytest

from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import depletion
from tests.unit import nova_fakes

PAGE = (Path(__file__).resolve().parents[2] / 'doc/source/admin/scheduler.rst').read_text()
CORES, FLAVOR, WINDOW = 32, 4, 300.0


def numbers(text):
    return [float(n) for n in re.findall(r'\d+(?:\.\d+)?', text)]


def found(pattern):
    match = re.search(pattern, re.sub(r'\s+', ' ', PAGE))
    assert match, pattern
    return match.group(1)


def state(host, vcpus):
    return nova_fakes.HostState(host, host, vcpus_total=CORES, vcpus_used=vcpus,
                                total_usable_ram_mb=1000, free_ram_mb=500)


@pytest.fixture
def cloud():
    """(score by host, HostState by host, ledger that has seen them)."""
    allocated = numbers(found(r'There are ([\d, and]+) vCPUs allocated'))
    shown = numbers(found(r'the scores are ([\d.]+, [\d.]+ and [\d.]+)'))
    states = {name: state(name, int(n)) for name, n in zip('abc', allocated, strict=True)}
    ledger = allocation_history.AllocationLedger()
    ledger.record_allocations(list(states.values()), now=0.0, wall=0.0)
    return dict(zip('abc', shown, strict=True)), states, ledger


def loads_of(scores, ledger, sampled_at):
    return depletion.compute_loads(scores, ledger.copy_tracks(), sampled_at=sampled_at,
                                   window=WINDOW, memory=False, unmeasured=1.0)


def booted(cloud):
    """The hosts that six instances go to, one after the other."""
    scores, states, ledger = cloud
    loads = loads_of(scores, ledger, 0.0)
    chosen = []
    for _ in range(6):
        values = depletion.project_loads(states.values(), loads)
        least = min(zip(values, states, strict=True))[1]
        states[least].vcpus_used += FLAVOR
        chosen.append(least)
    return chosen


def test_expected_use_of_instance_matches_page(cloud):
    scores, states, ledger = cloud
    busy = sum(scores.values()) * CORES
    assert busy == pytest.approx(float(found(r'(\d+) cores are busy for 120 vCPUs')))
    each = float(found(r'vCPUs, ([\d.]+) for each'))
    assert busy / sum(s.vcpus_used for s in states.values()) == pytest.approx(each)
    assert each * FLAVOR == pytest.approx(float(found(r'expected to use ([\d.]+) cores')))
    load = loads_of(scores, ledger, 0.0)['a']
    assert load.per_vcpu * FLAVOR == pytest.approx(float(found(r'([\d.]+) of a host\.')))


def test_placement_of_six_instances_matches_page(cloud):
    assert booted(cloud) == found(r'they go to ([abc, ]+)\.').split(', ')


def test_catch_up_of_metrics_matches_page(cloud):
    scores, states, ledger = cloud
    booted(cloud)
    ledger.record_allocations(list(states.values()), now=1000.0, wall=1000.0)
    rows = [numbers(line) for line in PAGE.splitlines() if re.match(r'^\d+ s\s', line)]
    assert len(rows) == 4
    each = sum(scores.values()) / 120
    for after, score, shown, unshown, counted, load in rows:
        sampled_at = 1000.0 + after
        means = {name: depletion.compute_shown_mean(track.steps, sampled_at, WINDOW)[0]
                 for name, track in ledger.copy_tracks().items()}
        assert means['a'] == pytest.approx(shown)
        assert states['a'].vcpus_used - means['a'] == pytest.approx(unshown)
        # What metrics say when each allocated vCPU goes on using what it used.
        now = {name: scores[name] + each * (means[name] - numbers_of(name))
               for name in scores}
        assert now['a'] == pytest.approx(score)
        [found_load] = depletion.project_loads([states['a']], loads_of(now, ledger, sampled_at))
        assert found_load - now['a'] == pytest.approx(counted)
        assert found_load == pytest.approx(load)


def test_effect_of_flavors_and_moves_matches_page(cloud):
    scores, states, ledger = cloud
    shapes = {}
    for number, ram_mb in enumerate(numbers(found(r'one of (\d+ MiB that uses [\d.]+ cores and '
                                                  r'one of \d+ MiB)'))[::2]):
        uses = numbers(found(r'MiB that uses ([\d.]+ cores and one of \d+ MiB that uses '
                             r'[\d.]+)\.'))[::2]
        shapes[flavor_usages.FlavorShape(FLAVOR, int(ram_mb))] = uses[number]
    measured = float(found(r'measured at ([\d.]+) cores'))
    move = flavor_usages.IncomingMove('u', 'b', flavor_usages.FlavorShape(FLAVOR, 1), 0.0, measured)
    outlook = depletion.compute_outlook(
        scores, ledger.copy_tracks(), sampled_at=0.0, window=WINDOW, memory=False, unmeasured=1.0,
        usage=flavor_usages.FlavorUsages(shapes, (move,)))
    told = outlook.map_corrections()
    added = [outlook.loads['a'].per_vcpu * (FLAVOR + told.sum_corrections(FLAVOR, ram_mb)[0])
             for ram_mb in (*(shape.memory_mb for shape in shapes), 1234)]
    assert added == pytest.approx(numbers(found(
        r'adds ([\d.]+ to its host\'s load, one of the second [\d.]+, and one of a flavor '
        r'that is not published [\d.]+)\.')))
    assert added[0] == pytest.approx(0.0125)
    plain = loads_of(scores, ledger, 0.0)
    assert outlook.loads['b'].base - plain['b'].base == pytest.approx(
        float(found(r'cores adds ([\d.]+) to its destination')))


def numbers_of(name):
    """vCPUs of a host before the request."""
    return dict(zip('abc', numbers(found(r'There are ([\d, and]+) vCPUs allocated')),
                    strict=True))[name]
