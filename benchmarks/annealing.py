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


"""A long annealing: the best plan that many patient chains can find.

An outside reference for small clusters. It knows budgets and destinations but
no claims, groups or costs, so what it reports may be better than any legal
plan, never the other way round. It shares no code with the planner.
"""

import dataclasses
import time

import numpy as np


@dataclasses.dataclass
class Problem:
    """P policies, H hosts, N instances; ``share`` (P, N, H) is what an
    instance adds to a host's score."""

    score: np.ndarray
    share: np.ndarray
    place: np.ndarray
    weights: np.ndarray


def problem(case):
    hosts = sorted(case.cluster.scope_hosts)
    uuids = sorted(case.cluster.instances)
    policies = case.policies.enabled_policies
    values = [case.scores.policies[p.name] for p in policies]
    return Problem(
        score=np.array([[v.hosts[h] for h in hosts] for v in values]),
        share=np.array([[[v.usages[u] / v.capacity[h] for h in hosts] for u in uuids]
                        for v in values]),
        place=np.array([hosts.index(case.cluster.instances[u].host) for u in uuids]),
        weights=np.array([p.weight for p in policies]))


def anneal(p, budget, seed, seconds, chains=384, hottest=0.03, coldest=2e-5, wide=0.1):
    """Lowest combined imbalance found with at most ``budget`` moves.

    Every chain holds ``budget`` slots (an instance and where it goes; staying
    is a destination too) and changes one slot at a time. A part of the spread
    inside the hosts' scores, vanishing with the temperature, gives plateaus a
    slope. Ten times the worse half of the chains starts anew from the better.
    """
    rng = np.random.default_rng(seed)
    policies, hosts = p.score.shape
    count = len(p.place)
    c = np.arange(chains)
    instance = np.stack([rng.choice(count, budget, replace=False) for _ in c])
    target = p.place[instance].copy()
    score = np.repeat(p.score[None], chains, axis=0)
    share = np.ascontiguousarray(np.moveaxis(p.share, 0, 2))  # N, H, P
    used = np.zeros((chains, count), dtype=bool)
    used[c[:, None], instance] = True

    def energy(s, slope):
        true = (s.max(axis=2) - s.min(axis=2)) @ p.weights
        return true, true + slope * (s.std(axis=2) @ p.weights)

    best, steps = np.inf, 0
    started = time.perf_counter()
    part, stage = 0.0, 1
    slope, heat = wide, hottest
    _, now = energy(score, slope)
    while part < 1.0:
        if steps % 64 == 0:
            part = (time.perf_counter() - started) / seconds
            heat = hottest * (coldest / hottest) ** min(part, 1.0)
            slope = wide * max(0.0, 1.0 - 1.2 * part)
            true, now = energy(score, slope)
            best = min(best, float(true.min()))
            if part * 10 > stage:
                stage += 1
                order = np.argsort(now)
                good, bad = order[:chains // 2], order[chains - chains // 2:]
                for array in (instance, target, score, used, now):
                    array[bad] = array[good]
        steps += 1
        slot = rng.integers(budget, size=chains)
        old, was = instance[c, slot], target[c, slot]
        fresh = rng.random(chains) < 0.6
        new = np.where(fresh, rng.integers(count, size=chains), old)
        to = np.where(rng.random(chains) < 0.05, p.place[new], rng.integers(hosts, size=chains))
        legal = ~(used[c, new] & (new != old))
        after = score.copy()
        source = p.place[old]
        after[c, :, source] += share[old, source]
        after[c, :, was] -= share[old, was]
        source = p.place[new]
        after[c, :, source] -= share[new, source]
        after[c, :, to] += share[new, to]
        true, then = energy(after, slope)
        take = legal & ((then <= now) | (rng.random(chains) < np.exp(
            np.minimum(0.0, (now - then) / heat))))
        best = min(best, float(true[take].min(initial=np.inf)))
        k = c[take]
        used[k, old[take]] = False
        used[k, new[take]] = True
        instance[k, slot[take]] = new[take]
        target[k, slot[take]] = to[take]
        score[k], now[k] = after[take], then[take]
    return best, steps * chains
