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


"""How good plans are, in real units, beside the ancestor and the best known.

Freshly seeded clusters; ``--seed`` gives others. ``--ancestor-python`` names
a Python with kronos-openstack 0.2.0 installed; without it those columns are
empty. Parts::

    ancestor  combined imbalance after as many moves, real usage on the
              destination's capacity: ours, the ancestor's, and the ratio
    best      gap to the best plan known: a long annealing that knows no rules,
              or a search of ours fifty times as long
    missed    plans that end with budget left and above a threshold although an
              improving legal move or swap is there (brute force)
    drains    instances left on a disabled host although one has room
    optimum   what CP-SAT finds in ``--seconds`` from our plan on, what it and a
              linear relaxation prove that nobody can go below; needs --cpsat
    time      seconds from Cluster to Plan, by size (no ancestor)

Example::

    python benchmarks/quality.py --json --parts best missed --seconds 30
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import annealing
import clusters
import judging

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.search import board
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import portfolio
from kronos_nova.rebalancer.search import ruin_recreate
from kronos_nova.rebalancer.strategies import evacuate
from kronos_nova.rebalancer.strategies import spread

Spec = clusters.Spec
KINDS = {spec.name: spec for spec in (
    Spec('level', instances=300),
    Spec('sizes', instances=300, mixed=True),
    Spec('hot', instances=300, hot=0.2),
    Spec('idle', instances=300, idle=0.4),
    Spec('groups', instances=300, grouped=0.5, mixed=True),
    Spec('tight', instances=300, room=1.08, mixed=True),
    Spec('tied', instances=320, policies=1, tied=True),
    Spec('three', instances=400, policies=3, mixed=True),
    Spec('100x3000', hosts=100, instances=3000, mixed=True),
)}


STRATEGIES = (evacuate.Evacuate(), spread.Spread())


def plan(case, budget, seed=0, strategies=STRATEGIES, **options):
    """Our plan, and how long it took (CPU and wall seconds)."""
    request = planner.PlanningInput(
        cluster=case.cluster, scores=case.scores, policies=case.policies,
        strategies=strategies, history=model.MoveHistory(),
        options=model.PlanningOptions(dry_run=False, max_drain_fraction=1.0,
                                      enforce_placement_disk=False, **options), budget=budget,
        seed=seed)
    wall, cpu = time.perf_counter(), time.process_time()
    found = planner.plan(request)
    return found, time.process_time() - cpu, time.perf_counter() - wall


def pairs(moves):
    return [(m.instance_uuid, m.to_host) for m in moves]


def ancestor(python, case, budget, drains=False):
    """The ancestor's moves, as pairs; a subprocess of its own Python."""
    cluster = case.cluster
    scores = case.scores.policies
    message = {
        'budget': budget, 'drains': drains,
        'groups': [{'id': g.uuid, 'policies': [str(g.policy)], 'members': sorted(g.members)}
                   for g in cluster.groups],
        'services': {h: s.status for h, s in cluster.services.items()},
        'room': {h: {c: i.capacity - host.provider.used[c]
                     for c, i in host.provider.inventories.items()}
                 for h, host in cluster.hosts.items()},
        'flavors': {u: {'vcpus': i.vcpus, 'memory_mb': i.memory_mb, 'disk_gb': i.disk_gb}
                    for u, i in cluster.instances.items()},
        'policies': [{'name': p.name, 'weight': p.weight, 'threshold': p.threshold,
                      'max_migrations_per_cycle': 100} for p in case.policies.enabled_policies],
        'instances': {u: {'host': i.host, 'weights': {
            n: s.usages[u] / s.capacity[i.host] for n, s in scores.items()}}
            for u, i in cluster.instances.items()},
        'scores': {n: dict(s.hosts) for n, s in scores.items()}}
    driver = pathlib.Path(__file__).with_name('ancestor.py')
    done = subprocess.run([python, str(driver)], input=json.dumps(message), text=True,
                          capture_output=True, check=True)
    answer = json.loads(done.stdout)
    return [(u, to) for u, _, to in answer['moves']], answer['seconds']


def against_ancestor(options):
    for name in options.kinds:
        for seed in options.seeds:
            case = clusters.build(KINDS[name], seed)
            start = judging.Real(case)
            for budget in options.budgets:
                found, cpu, _ = plan(case, budget)
                ours = judging.Real(case, pairs(found.moves))
                row = {'part': 'ancestor', 'kind': name, 'seed': seed, 'budget': budget,
                       'start': start.combined(), 'ours': ours.combined(),
                       'moves': len(found.moves), 'cpu_seconds': cpu,
                       'groups_broken': ours.broken() - start.broken()}
                if options.ancestor_python:
                    moves, seconds = ancestor(options.ancestor_python, case, budget)
                    theirs = judging.Real(case, moves)
                    row |= {'ancestor': theirs.combined(), 'ancestor_moves': len(moves),
                            'ancestor_seconds': seconds,
                            'ratio': ours.combined() / theirs.combined()}
                yield row


def against_best(options):
    for name in options.kinds:
        if KINDS[name].hosts > 16 or KINDS[name].grouped or KINDS[name].room < 4:
            continue
        for seed in options.seeds:
            case = clusters.build(KINDS[name], seed)
            problem = annealing.problem(case)
            for budget in (5, 10, 20):
                found, cpu, wall = plan(case, budget)
                ours = judging.Real(case, pairs(found.moves)).combined()
                cold, _ = annealing.anneal(problem, budget, seed, options.seconds)
                long = _long(case, budget, seed)
                best = min(cold, long, ours)
                yield {'part': 'best', 'kind': name, 'seed': seed, 'budget': budget,
                       'start': found.combined_before, 'ours': ours, 'annealing': cold,
                       'long_search': long, 'gap': ours / best - 1.0,
                       'gap_to_annealing': ours / cold - 1.0, 'difference': ours - best,
                       'cpu_seconds': cpu, 'wall_seconds': wall}


def _long(case, budget, seed):
    """Our own search with many times the work and no price."""
    state = sim.Simulation(case.cluster, case.scores, case.policies, model.MoveHistory(),
                           model.PlanningOptions(minimum_gain=0.0))
    tried = board.SearchBoard(state, *choice.choose_candidates(state, budget), budget)
    ruin_recreate.RuinRecreateSearch(tried, budget, seed, 10 * portfolio.ADDITIONS,
                                     lambda: False).run()
    return tried.measure.compute_combined(tried.score)


def optimum(options):
    if not options.cpsat:
        return
    for name in options.kinds:
        for seed in options.seeds:
            case = clusters.build(KINDS[name], seed)
            for budget in options.budgets:
                found, cpu, _ = plan(case, budget)
                ours = judging.Real(case, pairs(found.moves)).combined()
                known = _cpsat(options.cpsat, case, budget, pairs(found.moves), options.seconds)
                row = {'part': 'optimum', 'kind': name, 'seed': seed, 'budget': budget,
                       'start': found.combined_before, 'ours': ours,
                       'cpsat': known['best'], 'cpsat_bound': known['bound'],
                       'linear_bound': known['linear'], 'cpu_seconds': cpu}
                if options.ancestor_python:
                    moves, _ = ancestor(options.ancestor_python, case, budget)
                    row['ancestor'] = judging.Real(case, moves).combined()
                yield row


def _cpsat(python, case, budget, moves, seconds):
    """CP-SAT's answer (see optimum.py); a subprocess of its own Python."""
    cluster, known = case.cluster, annealing.problem(case)
    hosts, uuids = sorted(cluster.scope_hosts), sorted(cluster.instances)
    classes = ('VCPU', 'MEMORY_MB')
    message = {
        'score': known.score.tolist(), 'share': known.share.tolist(),
        'place': known.place.tolist(), 'weights': known.weights.tolist(), 'budget': budget,
        'limit': [[cluster.hosts[h].provider.inventories[c].capacity for h in hosts]
                  for c in classes],
        'need': [[cluster.instances[u].claims[c] for u in uuids] for c in classes],
        'hint': [[uuids.index(u), hosts.index(h)] for u, h in moves],
        'seconds': seconds, 'workers': 2}
    driver = pathlib.Path(__file__).with_name('optimum.py')
    done = subprocess.run([python, str(driver)], input=json.dumps(message), text=True,
                          capture_output=True, check=True)
    return json.loads(done.stdout)


def missed(options):
    """Small hot clusters, so that every pair can be tried."""
    for number in range(20):
        seed = options.seeds[0] * 1000 + number
        case = clusters.build(Spec('small', hosts=6, instances=40, hot=0.3, mixed=True,
                                   room=(8.0, 1.2)[number % 2], threshold=0.05), seed)
        least = model.PlanningOptions().minimum_gain
        row = {'part': 'missed', 'seed': seed}
        plans = {'ours': pairs(plan(case, 30)[0].moves)}
        if options.ancestor_python:
            plans['ancestor'] = ancestor(options.ancestor_python, case, 30)[0]
        for who, moves in plans.items():
            real = judging.Real(case, moves)
            over = len(moves) < 30 and real.over()
            row |= {f'{who}_moves': len(moves), f'{who}_combined': real.combined(),
                    f'{who}_over': real.over(), f'{who}_missed':
                    over and real.missed({u for u, _ in moves}, least, 30 - len(moves))
                    is not None}
        yield row


def drains(options):
    """Two hosts to empty onto hosts that are nearly full."""
    for room in (1.15, 1.25, 1.5):
        for seed in options.seeds:
            case = clusters.build(Spec('drain', instances=300, drains=2, room=room,
                                       threshold=0.2), seed)
            row = {'part': 'drains', 'room': room, 'seed': seed}
            plans = {'ours': pairs(plan(case, 100, strategies=(evacuate.Evacuate(),),
                                        evacuate_disabled_hosts=True)[0].moves)}
            if options.ancestor_python:
                plans['ancestor'] = ancestor(options.ancestor_python, case, 100, True)[0]
            for who, moves in plans.items():
                real = judging.Real(case, moves)
                left = [u for u, h in real.place.items() if h not in real.open]
                able = [u for u in left if any(real.legal(u, h) and real.below(u, h)
                                               for h in real.hosts)]
                row |= {f'{who}_moves': len(moves), f'{who}_left': len(left),
                        f'{who}_left_with_room': len(able),
                        f'{who}_vcpus_left': sum(case.cluster.instances[u].vcpus
                                                 for u in left),
                        f'{who}_hosts_left': len({real.place[u] for u in left})}
            yield row


def times(options):
    for hosts, instances, budget in ((16, 300, 20), (100, 3000, 20), (100, 3000, 50),
                                     (400, 10_000, 50), (1800, 48_000, 100)):
        for threshold in (0.01, 0.3):
            case = clusters.build(Spec('size', hosts=hosts, instances=instances, mixed=True,
                                       threshold=threshold), options.seeds[0])
            runs = [plan(case, budget) for _ in range(options.runs)]
            yield {'part': 'time', 'hosts': hosts, 'instances': instances, 'budget': budget,
                   'threshold': threshold, 'moves': len(runs[0][0].moves),
                   'before': runs[0][0].combined_before, 'after': runs[0][0].combined_after,
                   'cpu_seconds': min(r[1] for r in runs),
                   'wall_seconds': min(r[2] for r in runs)}


PARTS = {'ancestor': against_ancestor, 'best': against_best, 'missed': missed,
         'optimum': optimum, 'drains': drains, 'time': times}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--json', action='store_true', help='one JSON list at the end')
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--kinds', nargs='+', choices=KINDS, default=list(KINDS)[:-1])
    parser.add_argument('--budgets', nargs='+', type=int, default=[10, 50])
    parser.add_argument('--seeds', nargs='+', type=int, default=[1, 2, 3])
    parser.add_argument('--seconds', type=float, default=20.0, help='of one annealing')
    parser.add_argument('--runs', type=int, default=3, help='of which the fastest counts')
    parser.add_argument('--cpsat', metavar='PYTHON', help='an interpreter that has OR-tools')
    parser.add_argument('--ancestor-python', help='a Python with kronos-openstack 0.2.0')
    options = parser.parse_args()
    rows = []
    for part in options.parts:
        for row in PARTS[part](options):
            rows.append(row)
            if not options.json:
                print(' '.join(f'{k}={v:.4f}' if isinstance(v, float) else f'{k}={v}'
                               for k, v in row.items()), flush=True)
    if options.json:
        print(json.dumps(rows))
        return
    for key in ('ratio', 'gap', 'gap_to_annealing'):
        values = [row[key] for row in rows if key in row]
        if values:
            print(f'{key}: median {statistics.median(values):.3f} worst {max(values):.3f}')
    for row in rows:
        if row.get('ours', 0.0) > row.get('start', 1.0) + 1e-9:
            print('worse than the start:', row)


if __name__ == '__main__':
    sys.exit(main())
