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


"""Requests that cannot see each other go to different hosts, of equal merit."""

import random
import uuid

import pytest

from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import tie_breaking


@pytest.mark.parametrize(('boot', 'concurrent', 'expected'), [
    (0.1, 1, 0.0), (0.0, 4, 0.0), (-0.1, 4, 0.0), (0.1, 4, 0.2), (0.1, 9, 0.3)])
def test_the_width_grows_with_unseen_load(boot, concurrent, expected):
    assert tie_breaking.compute_width(boot, concurrent) == pytest.approx(expected)


def test_rankings_differ_and_are_the_same_in_every_process():
    loads = {f'h{i}': depletion.HostLoad(0.5, 0.4, 0.01, 0.0) for i in range(20)}
    found = [tie_breaking.shift_loads(loads, 0.1, n) for n in range(tie_breaking.RANKINGS)]
    best = {min(r, key=lambda host, r=r: r[host].base) for r in found}
    assert len(best) > tie_breaking.RANKINGS // 2
    assert found[3] == tie_breaking.shift_loads(loads, 0.1, 3)
    for ranked in found:
        assert all(abs(ranked[h].base - 0.4) <= 0.05 and ranked[h].score == 0.5 for h in loads)


def test_every_ranking_is_used_by_some_request():
    rng = random.Random(1)
    used = {tie_breaking.ranking_of(str(uuid.UUID(int=rng.getrandbits(128)))) for _ in range(200)}
    assert used == set(range(tie_breaking.RANKINGS))


def herd(rng, concurrent, hosts, boots, boot, blind_rounds):
    """max - min after rounds of boots that do not see each other."""
    names = [f'h{i}' for i in range(hosts)]
    loads = {name: rng.uniform(0.1, 0.5) for name in names}
    for _ in range(boots // blind_rounds):
        width = tie_breaking.compute_width(boot, concurrent)
        now = {n: depletion.HostLoad(v, v) for n, v in loads.items()}
        chosen = []
        for _ in range(blind_rounds):
            ranking = tie_breaking.ranking_of(str(uuid.UUID(int=rng.getrandbits(128))))
            ranked = tie_breaking.shift_loads(now, width, ranking) if width else now
            chosen.append(min(names, key=lambda n, r=ranked: r[n].base))
        for name in chosen:
            loads[name] += boot
    return max(loads.values()) - min(loads.values())


@pytest.mark.parametrize(('hosts', 'concurrent'), [(6, 4), (20, 4), (20, 8), (50, 8)])
def test_unseen_boots_end_more_level_than_with_one_ranking(hosts, concurrent):
    def mean(known):
        rng = random.Random(hosts)
        return sum(herd(rng, known, hosts, 20 * hosts, 0.02, concurrent)
                   for _ in range(20)) / 20

    assert mean(concurrent) < 0.9 * mean(1)
