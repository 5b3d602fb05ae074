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

"""What ordering and checking a plan cost, and how it grows.

Process seconds, the minimum of several runs. The ratios say what matters: ten
times the cloud should cost about as much, twice the moves about twice::

    python benchmarks/ordering.py --runs 5
"""

import argparse
from collections.abc import Callable
import json
import random
import time
from typing import Any

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import relevant_cluster
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer.planning import waves

POLICIES = ('cpu', 'memory', 'network')
SPREAD = model.Phase.SPREAD


def cloud(hosts: int, instances: int, room: int) -> tuple[model.Cluster, model.ClusterScores]:
    """Equal hosts with ``room`` VCPUs left, a third of the instances in
    groups of five, three policies."""
    rng = random.Random(1)
    names = [f'h{n:05}' for n in range(hosts)]
    found = {f'{n:036}': model.Instance(f'{n:036}', names[n % hosts], claims={
        'VCPU': 2, 'MEMORY_MB': 4096}) for n in range(instances)}
    count = -(-instances // hosts)
    providers = {h: model.Provider(
        h, used={'VCPU': 2 * count, 'MEMORY_MB': 4096 * count},
        inventories={'VCPU': model.Inventory(2 * count + room),
                     'MEMORY_MB': model.Inventory(10**9)}) for h in names}
    uuids = sorted(found)
    groups = tuple(model.ServerGroup(
        f'g{n}', rng.choice([model.GroupPolicy.ANTI_AFFINITY, model.GroupPolicy.SOFT_AFFINITY]),
        frozenset(rng.sample(uuids, 5))) for n in range(instances // 15))
    fills = {p: {h: rng.uniform(0.3, 0.6) for h in names} for p in POLICIES}
    scores = {p: model.PolicyScores(p, hosts=f, fill=f, capacity=dict.fromkeys(names, 100.0),
                                    usages=dict.fromkeys(uuids, 0.3)) for p, f in fills.items()}
    cluster = model.Cluster({h: model.Host(h, provider=providers[h]) for h in names}, found,
                            {h: model.Service(h) for h in names}, groups,
                            scope_hosts=frozenset(names))
    return cluster, model.ClusterScores(scores)


def anywhere(cluster: model.Cluster, count: int) -> list[model.Move]:
    rng = random.Random(2)
    hosts = sorted(cluster.hosts)
    return [model.Move(u, cluster.instances[u].host, rng.choice(
        [h for h in rng.sample(hosts, 2) if h != cluster.instances[u].host]), SPREAD)
        for u in rng.sample(sorted(cluster.instances), count)]


def to_one_host(cluster: model.Cluster, count: int) -> list[model.Move]:
    to = min(cluster.hosts)
    uuids = random.Random(3).sample(sorted(cluster.instances), 2 * count)
    return [model.Move(u, cluster.instances[u].host, to, SPREAD) for u in uuids
            if cluster.instances[u].host != to][:count]


def through_a_full_host(cluster: model.Cluster, count: int) -> list[model.Move]:
    """One out, one in, in turn: every move depends on others."""
    host, *others = sorted(cluster.hosts)
    on: dict[str, list[str]] = {}
    for u, i in cluster.instances.items():
        on.setdefault(i.host, []).append(u)
    moves = []
    for n, u in enumerate(on[host][:count // 2]):
        moves += [model.Move(u, host, others[-1 - n], SPREAD),
                  model.Move(on[others[n]][0], others[n], host, SPREAD)]
    return moves


def seconds(runs: int, work: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float('inf'), None
    for _ in range(runs):
        started = time.process_time()
        result = work()
        best = min(best, time.process_time() - started)
    return best, result


def measure(runs: int, cluster: model.Cluster, scores: model.ClusterScores,
            moves: list[model.Move]) -> dict[str, Any]:
    options, history = model.PlanningOptions(), model.MoveHistory()
    ceilings = dict.fromkeys(POLICIES, 1.0)

    def order() -> waves.OrderedMoves:
        part = relevant_cluster.reduce_cluster(cluster, moves, history)
        view = cluster_view.ClusterView(part, options, history, scores, ceilings)
        return waves.order_moves(view, moves, max_alternates=options.max_alternates)

    ordered, result = seconds(runs, order)
    plan = model.Plan(cluster.scope, moves=result.moves)
    checked, wrong = seconds(runs, lambda: checker.check(
        plan, cluster, options, history, scores, ceilings, len(moves)))
    if wrong:
        raise SystemExit(f'the checker refuses the plan: {wrong[0]}')
    return {'order': ordered, 'check': checked, 'moves': len(result.moves),
            'waves': 1 + max(m.wave for m in result.moves),
            'alternates': sum(len(m.alternates) for m in result.moves)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--hosts', type=int, default=5000)
    parser.add_argument('--per-host', type=int, default=30)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    rows = {}
    for hosts in (options.hosts // 10, options.hosts):
        roomy = cloud(hosts, hosts * options.per_host, 400)
        full = cloud(hosts, hosts * options.per_host, 4)
        for name, (cluster, scores), make, count in (
                ('anywhere', roomy, anywhere, 100), ('anywhere', roomy, anywhere, 200),
                ('to one host', roomy, to_one_host, 100), ('to one host', roomy, to_one_host, 200),
                ('through a full host', full, through_a_full_host, 2 * options.per_host)):
            rows[f'{count} {name}, {hosts} hosts'] = measure(
                options.runs, cluster, scores, make(cluster, count))
    if options.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        print(f'{name:36} order {row["order"] * 1e3:6.1f} ms  check {row["check"] * 1e3:6.1f} ms'
              f'  {row["moves"]} moves, {row["waves"]} waves, {row["alternates"]} alternates')

    def cost(name: str) -> float:
        return float(rows[name]['order'] + rows[name]['check'])

    for name in ('anywhere', 'to one host'):
        small, large = (f'{name}, {h} hosts' for h in (options.hosts // 10, options.hosts))
        print(f'{name}: ten times the cloud costs {cost(f"200 {large}") / cost(f"200 {small}"):.1f}'
              f' times, twice the moves {cost(f"200 {large}") / cost(f"100 {large}"):.1f} times')


if __name__ == '__main__':
    main()
