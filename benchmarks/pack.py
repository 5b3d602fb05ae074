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

"""How many hosts pack empties, beside CP-SAT's optimum and first fit decreasing.

Seeded clusters of 16 hosts and 250 instances, two policies, everything known
and nothing foreseen, so that only the packing counts::

    python benchmarks/pack.py --seeds 5 --cpsat /path/to/python-with-ortools --json

CP-SAT may place every instance anew, with no regard to migrations, and so is
a bound for every planner; it needs OR-tools in an interpreter of its own
(``pip install ortools``), and is left out without ``--cpsat``. First fit
decreasing takes hosts from the emptiest and puts each instance, the largest
first, on the fullest host that has room; a host that does not come free keeps
what it had. ``moves_of_as_many`` are ours for the cheapest hosts, as many as it
empties.
"""

import argparse
import collections
import json
import random
import subprocess
import sys
import time
from typing import Any

from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import policy as policies
from kronos_nova.rebalancer.planning import planner

NAMES = ('cpu', 'memory')
CEILING = 0.8
HOSTS, INSTANCES = 16, 250

#: Reads a cluster as JSON, writes the most hosts that can be empty.
CPSAT = """
import json, sys
from ortools.sat.python import cp_model
data = json.load(sys.stdin)
SCALE = 100000
m = cp_model.CpModel()
hosts, rows = data['capacity'], data['usage']
on = [m.NewBoolVar('') for _ in hosts]
x = [[m.NewBoolVar('') for _ in hosts] for _ in rows]
for row in x:
    m.AddExactlyOne(row)
for h, capacity in enumerate(hosts):
    for p, amount in enumerate(capacity):
        m.Add(sum(int(u[p] * SCALE) * x[i][h] for i, u in enumerate(rows))
              <= int(data['ceiling'] * amount * SCALE) * on[h])
m.Minimize(sum(on))
s = cp_model.CpSolver()
s.parameters.max_time_in_seconds = data['seconds']
s.parameters.num_workers = 2
s.Solve(m)
print(len(hosts) - round(s.ObjectiveValue()), len(hosts) - round(s.BestObjectiveBound()))
"""


def cluster(seed: int) -> tuple[model.Cluster, model.ClusterScores, policies.PolicySet]:
    """Hosts of one size or two, filled to 25-60 %, unevenly."""
    rng = random.Random(seed)
    sizes = rng.choice([(64.0,), (48.0, 96.0)])
    capacity = {f'h{n:02d}': (rng.choice(sizes), rng.choice(sizes) * 4) for n in range(HOSTS)}
    names = sorted(capacity)
    share = {n: rng.uniform(0.3, 1.7) for n in names}
    where = rng.choices(names, [share[n] for n in names], k=INSTANCES)
    fill = rng.uniform(0.25, 0.6)
    raw = [(rng.lognormvariate(0, 0.7), rng.lognormvariate(0, 0.7)) for _ in where]
    total = [sum(c[p] for c in capacity.values()) for p in (0, 1)]
    scale = [fill * total[p] / sum(r[p] for r in raw) for p in (0, 1)]
    while True:
        usage = [tuple(r[p] * scale[p] for p in (0, 1)) for r in raw]
        load = {n: [0.0, 0.0] for n in names}
        for host, row in zip(where, usage, strict=True):
            for p in (0, 1):
                load[host][p] += row[p]
        if all(load[n][p] <= CEILING * capacity[n][p] for n in names for p in (0, 1)):
            break
        scale = [s * 0.95 for s in scale]
    instances = {f'{i:04d}': model.Instance(uuid=f'{i:04d}', host=h, memory_mb=1024)
                 for i, h in enumerate(where)}
    found = model.Cluster(
        hosts={n: model.Host(name=n) for n in names}, instances=instances,
        services={n: model.Service(host=n) for n in names}, scope_hosts=frozenset(names),
        placement_known=False)
    policy_set = policies.parse_policies({'policies': [
        {'name': name, 'mode': 'pack', 'weight': 0.5, 'imbalance_query': 'q',
         'capacity_query': 'q', 'vm_profile_query': 'q', 'capacity_threshold': CEILING,
         'max_migrations_per_cycle': INSTANCES} for name in NAMES]})
    scores = model.ClusterScores({
        name: model.PolicyScores(
            policy=name, hosts={n: load[n][p] / capacity[n][p] for n in names},
            fill={n: load[n][p] / capacity[n][p] for n in names},
            capacity={n: capacity[n][p] for n in names},
            usages={f'{i:04d}': row[p] for i, row in enumerate(usage)})
        for p, name in enumerate(NAMES)})
    return found, scores, policy_set


def pack(seed: int) -> tuple[int, list[int], float]:
    """(hosts emptied, moves by host emptied, CPU seconds) of the real planner."""
    found, scores, policy_set = cluster(seed)
    request = planner.PlanningInput(
        cluster=found, scores=scores, policies=policy_set, history=model.MoveHistory(),
        strategies=[plugins.load_plugin(plugins.STRATEGIES, name)() for name in planner.ORDER],
        options=model.PlanningOptions(dry_run=False, max_alternates=0),
        budget=policy_set.move_budget)
    started = time.process_time()
    plan = planner.plan(request)
    seconds = time.process_time() - started
    place = {u: i.host for u, i in found.instances.items()}
    before = set(place.values())
    place.update({m.instance_uuid: m.to_host for m in plan.moves})
    by_host = sorted(collections.Counter(m.from_host for m in plan.moves).values())
    return len(before) - len(set(place.values())), by_host, seconds


def first_fit_decreasing(seed: int) -> tuple[int, int]:
    """(hosts emptied, moves)."""
    found, scores, _policies = cluster(seed)
    fill = {h: [scores.policies[n].fill[h] for n in NAMES] for h in sorted(found.hosts)}
    on: dict[str, list[str]] = {h: [] for h in fill}
    for uuid, instance in found.instances.items():
        on[instance.host].append(uuid)

    def share(uuid: str, host: str) -> list[float]:
        return [scores.policies[n].usages[uuid] / scores.policies[n].capacity[host]
                for n in NAMES]

    emptied = moves = 0
    for host in sorted(fill, key=lambda h: max(fill[h])):
        trial = {h: list(f) for h, f in fill.items()}
        chosen: list[tuple[str, str]] = []
        for uuid in sorted(on[host], key=lambda u: -max(share(u, host))):
            for other in sorted(trial, key=lambda h: -max(trial[h])):
                added = [a + b for a, b in zip(trial[other], share(uuid, other), strict=True)]
                if other != host and on[other] and max(added) <= CEILING + 1e-9:
                    trial[other] = added
                    chosen.append((uuid, other))
                    break
            else:
                break
        if on[host] and len(chosen) == len(on[host]):
            fill = trial
            for uuid, other in chosen:
                on[other].append(uuid)
            on[host] = []
            emptied, moves = emptied + 1, moves + len(chosen)
    return emptied, moves


def cpsat(python: str, seed: int, seconds: float) -> tuple[int, int]:
    """(most hosts found empty, proven bound on it); hosts empty at the start
    do not count."""
    found, scores, _policies = cluster(seed)
    hosts, count = sorted(found.hosts), len(found.instances)
    data = {'capacity': [[scores.policies[n].capacity[h] for n in NAMES] for h in hosts],
            'usage': [[scores.policies[n].usages[f'{i:04d}'] for n in NAMES]
                      for i in range(count)], 'ceiling': CEILING, 'seconds': seconds}
    out = subprocess.run([python, '-c', CPSAT], input=json.dumps(data), check=True,
                         capture_output=True, text=True).stdout.split()
    empty = len(hosts) - len({i.host for i in found.instances.values()})
    return int(out[0]) - empty, int(out[1]) - empty


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--first-seed', type=int, default=0)
    parser.add_argument('--cpsat', metavar='PYTHON', help='an interpreter that has OR-tools')
    parser.add_argument('--seconds', type=float, default=60.0, help='for CP-SAT, per cluster')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        emptied, moves, seconds = pack(seed)
        other, other_moves = first_fit_decreasing(seed)
        row = {'seed': seed, 'emptied': emptied, 'moves': sum(moves),
               'seconds': round(seconds, 3), 'ffd_emptied': other, 'ffd_moves': other_moves,
               'moves_of_as_many': sum(moves[:other])}
        if options.cpsat:
            row['cpsat_emptied'], row['cpsat_bound'] = cpsat(options.cpsat, seed,
                                                             options.seconds)
        rows.append(row)
        if not options.json:
            print(' '.join(f'{k}={v}' for k, v in row.items()), flush=True)
    if options.json:
        json.dump(rows, sys.stdout)
        print()


if __name__ == '__main__':
    main()
