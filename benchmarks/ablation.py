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


"""The worth of each search routine of the planner: plans with and without it, side by side.

Takes one routine out at a time, plans the clusters of quality.py, and prints for each routine

    worse     geometric mean of combined imbalance without the routine / with it, over all plans
              whose imbalances differ from 0; above 1: the routine helps
    kind      the kind of cluster where it helps most, and the mean ratio there
    moves     moves of all plans without it / with it
    left      instances left on hosts to drain, without it and with it
    seconds   processor time without it / with it

A routine whose ratios stay below 1.01 everywhere, in seconds too, is not worth its lines. ::

    python benchmarks/ablation.py --seeds 1 2 3 4 5 --budgets 5 20 50
"""

import argparse
import collections
import contextlib
import math
import sys
from unittest import mock

import clusters
import judging
import quality

from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.search import ejection_chain
from kronos_nova.rebalancer.search import exchanges
from kronos_nova.rebalancer.search import portfolio
from kronos_nova.rebalancer.search import ruin_recreate
from kronos_nova.rebalancer.search import swaps
from kronos_nova.rebalancer.strategies import evacuate

Search = ruin_recreate.RuinRecreateSearch


def find_no_exchange(self, scale):
    return None


#: Routine -> the patch that takes it out.
ROUTINES = {
    'local search': lambda: mock.patch.object(
        portfolio, 'improve_plan', lambda simulation, start, moves, budget: list(moves)),
    'variants': lambda: mock.patch.object(
        Search, '_search_variants', Search._search_single_plans),
    'exchanges': lambda: mock.patch.object(
        exchanges.ExchangeSearch, 'choose_exchange', find_no_exchange),
    'swaps': lambda: mock.patch.object(swaps, 'best_swap', lambda simulation: None),
    'greedy start of large clusters': lambda: mock.patch.object(
        portfolio, 'plan_large_cluster', lambda simulation, start, budget: []),
    'ejection chain': lambda: mock.patch.object(
        ejection_chain, 'make_room', lambda *args: False),
    'placing together': lambda: mock.patch.object(
        batch, 'place_together', lambda *args: None)}
SPECS = {**{name: spec for name, spec in quality.KINDS.items() if name != '100x3000'},
         'small': clusters.Spec('small', hosts=6, instances=40, hot=0.3, mixed=True, room=1.2,
                                threshold=0.05)}


def plan_everything(options):
    """Plan every case; yield (kind, key, combined imbalance, moves, instances left, seconds)."""
    for kind, spec in SPECS.items():
        for seed in options.seeds:
            case = clusters.build(spec, seed)
            for budget in options.budgets:
                found, cpu, _ = quality.plan(case, budget)
                real = judging.Real(case, quality.pairs(found.moves))
                yield kind, (kind, seed, budget), real.combined(), len(found.moves), 0, cpu
    for room in (1.05, 1.15, 1.25, 1.5):
        for seed in options.seeds:
            case = clusters.build(clusters.Spec('drain', instances=300, drains=2, room=room,
                                                threshold=0.2), seed)
            found, cpu, _ = quality.plan(case, 100, strategies=(evacuate.Evacuate(),),
                                         evacuate_disabled_hosts=True)
            real = judging.Real(case, quality.pairs(found.moves))
            left = sum(1 for host in real.place.values() if host not in real.open)
            yield 'drain', ('drain', seed, room), real.combined(), len(found.moves), left, cpu
    if options.large:
        spec = clusters.Spec('large', hosts=400, instances=10_000, mixed=True, threshold=0.3)
        case = clusters.build(spec, options.seeds[0])
        found, cpu, _ = quality.plan(case, 50)
        real = judging.Real(case, quality.pairs(found.moves))
        yield 'large', ('large',), real.combined(), len(found.moves), 0, cpu


def compare(name, whole, without):
    """Print the row of one routine."""
    ratios = collections.defaultdict(list)
    for kind, key, combined, *_ in without:
        reference = whole[key][2]
        if combined > 1e-9 and reference > 1e-9:
            ratios[kind].append(math.log(combined / reference))
    kinds = {kind: math.exp(sum(found) / len(found)) for kind, found in ratios.items()}
    every = [ratio for found in ratios.values() for ratio in found]
    most = max(kinds, key=lambda kind: kinds[kind])

    def total(column):
        return sum(row[column] for row in without), sum(row[column] for row in whole.values())

    moves, left, seconds = total(3), total(4), total(5)
    print(f'{name}: worse {math.exp(sum(every) / len(every)):.4f}, most {most} {kinds[most]:.4f}, '
          f'moves {moves[0] / moves[1]:.4f}, left {left[0]} {left[1]}, '
          f'seconds {seconds[0] / seconds[1]:.2f}', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', nargs='+', type=int, default=[1, 2, 3])
    parser.add_argument('--budgets', nargs='+', type=int, default=[5, 20, 50])
    parser.add_argument('--routines', nargs='+', choices=ROUTINES, default=list(ROUTINES))
    parser.add_argument('--large', action='store_true', help='plan a cluster of 400 hosts, too')
    options = parser.parse_args()
    whole = {row[1]: row for row in plan_everything(options)}
    for name in options.routines:
        with contextlib.ExitStack() as stack:
            stack.enter_context(ROUTINES[name]())
            compare(name, whole, list(plan_everything(options)))


if __name__ == '__main__':
    sys.exit(main())
