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
"""Spread over failure domains: worsening moves in many cycles, and repair against CP-SAT.

    python benchmarks/domain_spread.py cycles --count 100000
    python benchmarks/domain_spread.py repair --count 1000 --cpsat /path/to/python-with-ortools

``cycles`` plans random small clouds with two kinds of domains, sets of projects, named sets and
server groups, in both modes, with drains, repairs and migrations under way, and a part of the
metadata wrong. ``tests/unit/rebalancer/spread_judge.py``, which shares no code with the rule,
carries out each plan in a random order, with failures and alternates, and counts the moves for
balance, packing and repair after which a set is worse. Its word counts where each host is in one
domain of each kind and nothing else is under way; elsewhere the checker counts alone.

``repair`` lets the strategy ``repair`` alone plan clouds with one set and little room, and compares
the numbers by domain with the best ones that CP-SAT finds for as many moves: in any order, which
may need a move that worsens the spread for a time, and move by move as the rule demands.
"""

import argparse
import collections
import dataclasses
import json
import random
import subprocess
import sys
import time

from kronos_nova.constraints import cluster_view
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import domain_repair
from kronos_nova.rebalancer.strategies import repair
from tests.unit import clouds
from tests.unit.rebalancer import spread_judge


def draw_knobs(seed, **fixed):
    rng = random.Random(f'knobs {seed}')
    drawn = {
        'hosts': rng.randint(2, 7), 'instances': rng.randint(1, 26), 'groups': rng.randint(0, 4),
        'policies': rng.randint(1, 2), 'mode': rng.choice(['spread', 'spread', 'pack']),
        'budget': rng.randint(1, 8), 'drains': rng.random() < 0.4,
        'hard_repairs': rng.random() < 0.3, 'soft_repairs': rng.random() < 0.5,
        'clean': rng.random() < 0.8, 'tight': rng.random() < 0.3, 'domains': True}
    return clouds.Knobs(seed, **(drawn | fixed))


def run_cycles(count, first):
    tally, started = collections.Counter(), time.monotonic()
    for seed in range(first, first + count):
        request = clouds.request(draw_knobs(seed))
        plan = planner.plan(request)
        pack = request.policies.mode == 'pack'
        ceilings = {p.name: p.capacity_threshold if pack else 1.0
                    for p in request.policies.enabled_policies}
        faults = checker.check(plan, request.cluster, request.options, request.history,
                               request.scores, ceilings, request.budget)
        tally['cycles'] += 1
        tally['plans refused by the checker'] += bool(faults)
        tally.update(f'{m.phase} moves' for m in plan.moves)
        tally['moves of members'] += sum(
            bool(request.cluster.instances[m.instance_uuid].spread) for m in plan.moves)
        tally['plans in which the rule refused'] += 'worsens-spread' in plan.rejections
        if not request.cluster.flights and is_clear(request.cluster):
            tally['cycles that the judge judged'] += 1
            worse = spread_judge.list_worsening_moves(
                request.cluster, plan, random.Random(f'order {seed}'))
            tally['worsening moves'] += len(worse)
            if worse:
                print(f'seed {seed}: {worse}', file=sys.stderr)
        if faults:
            print(f'seed {seed}: {faults}', file=sys.stderr)
        if seed % 5000 == 4999:
            print(f'{seed + 1}: {dict(tally)}', file=sys.stderr, flush=True)
    return dict(tally) | {'seconds': round(time.monotonic() - started)}


def is_clear(cluster):
    known = spread_judge.map_domains(cluster)
    return all((kind, host) in known for kind in ('rack', 'pdu') for host in cluster.hosts)


def run_repairs(count, first, python):
    tally, seed = collections.Counter(), first
    with subprocess.Popen([python, __file__.replace('domain_spread', 'spread_optimum')],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as solver:
        while tally['clouds'] < count:
            request = make_repair(seed)
            seed += 1
            case = make_case(request)
            if case is None:
                continue
            best = ask(solver, case | {'ordered': False})
            # Repair gets a part of the budget; CP-SAT gets as much as this part.
            plan = planner.plan(dataclasses.replace(
                request, budget=round(request.budget / domain_repair.SHARE)))
            view = cluster_view.ClusterView(request.cluster, request.options)
            before = count_members(view)
            for move in plan.moves:
                view.land_move(move)
            after = count_members(view)
            tally['clouds'] += 1
            tally['proven by CP-SAT'] += best['proven']
            tally['improvable'] += best['counts'] < before
            tally['improved'] += after < before
            tally['worse than before'] += after > before
            tally['as good as CP-SAT in any order'] += after <= best['counts']
            tally['moves'] += len(plan.moves)
            ordered = best
            if after > best['counts']:  # what is as good as the bound needs no second answer
                ordered = ask(solver, case | {'ordered': True})
                tally['orders proven by CP-SAT'] += ordered['proven']
                print(f'seed {seed - 1}: {before} -> {after}, best {best["counts"]}, '
                      f'move by move {ordered["counts"]}', file=sys.stderr, flush=True)
            tally['as good as CP-SAT move by move'] += after <= ordered['counts']
        solver.stdin.close()
    return dict(tally)


def ask(solver, case):
    solver.stdin.write(json.dumps(case) + '\n')
    solver.stdin.flush()
    return json.loads(solver.stdout.readline())


def make_repair(seed):
    """Return a cloud with one set, whose repair alone is planned."""
    rng = random.Random(f'repair {seed}')
    request = clouds.request(draw_knobs(
        seed, hosts=rng.randint(3, 7), instances=rng.randint(6, 26), groups=0, drains=False,
        clean=True, tight=rng.random() < 0.7, mode='spread', soft_repairs=True))
    chosen = set(rng.sample(sorted(request.cluster.instances),
                            rng.randint(3, min(10, len(request.cluster.instances)))))
    instances = {u: dataclasses.replace(
        i, project_id='p', spread=(spread_requests.SpreadRequest('rack'),) if u in chosen else ())
        for u, i in request.cluster.instances.items()}
    return dataclasses.replace(
        request, strategies=(repair.Repair(),),
        cluster=dataclasses.replace(request.cluster, instances=instances))


def make_case(request):
    """Return the case for CP-SAT; None: the set cannot be improved in a cloud of endless room."""
    state = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                           request.options)
    domains = spread_judge.map_domains(request.cluster)
    members = [n for n, u in enumerate(state.uuids) if request.cluster.instances[u].spread]
    counts = count_members(state.view)
    racks = len({domains['rack', h] for h in state.hosts})
    if racks < 2 or counts[0] - (counts[-1] if len(counts) == racks else 0) < 2:
        return None
    columns = range(len(state.hosts))
    allowed = [[bool(state.open[h]) for h in columns] for _ in members]
    counted = list(state.room.counted)
    need = [[round(float(state.claims[c, n])) for n in members] for c in counted]
    # What is there may stay, however full the host.
    room = [[int(max(state.room.limit[c, h] - state.room.used[c, h], 0.0)
                 + sum(state.claims[c, n] for n in members if state.place[n] == h))
             if state.room.limit[c, h] < 2**40 else 2**40 for h in columns] for c in counted]
    return {'domain': [domains['rack', h] for h in state.hosts],
            'place': [int(state.place[n]) for n in members], 'allowed': allowed,
            'budget': request.budget, 'need': need, 'room': room, 'most': counts[0]}


def count_members(view):
    """Return the numbers of members by rack, the largest first."""
    domains = spread_judge.map_domains(view.cluster)
    place = {u: view.find_host_of(u) for u, i in view.cluster.instances.items() if i.spread}
    return spread_judge.count(place, 'rack', domains, place)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('part', choices=['cycles', 'repair'])
    parser.add_argument('--count', type=int, default=1000)
    parser.add_argument('--first', type=int, default=0, help='first seed')
    parser.add_argument('--cpsat', help='a Python in which ortools is installed')
    args = parser.parse_args()
    result = (run_cycles(args.count, args.first) if args.part == 'cycles'
              else run_repairs(args.count, args.first, args.cpsat))
    print(json.dumps(result, indent=1))


if __name__ == '__main__':
    main()
