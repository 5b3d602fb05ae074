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


"""How long planning takes: spread with ``objective = kronos``, size by size.

Each size is measured in a process of its own, as the minimum over ``--runs``:
``ingest`` builds the Simulation, ``moves`` proposes the moves on it, ``plan``
is the planner from Cluster to ordered Plan (ingest and moves are part of it),
``check`` the checker's replay, ``score`` what makes Scores of samples and
``parse`` what makes samples of Prometheus's answers of that size (the bodies
hold one label per series; ``json`` is the part that json.loads alone needs).

With ``--ancestor-python PYTHON``, one in which kronos-openstack 0.2.0 is
installed, the same clusters are planned by it, its processor time is set against
ours and the moves are compared::

    python benchmarks/planner.py --ancestor-python /path/to/bin/python --parity 40
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import gc
import json
import pathlib
import platform
import random
import resource
import subprocess
import sys
import time
from typing import Any

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import clusters
from kronos_nova import model
from kronos_nova import scoring
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import spread
from kronos_nova.sources import answer

OPTIONS = model.PlanningOptions(dry_run=False, objective='kronos', max_steps=2**40,
                                enforce_placement_disk=False)

#: Size, budget, and how many moves the ancestor is asked for (0: it does not finish).
SIZES = (
    (clusters.Spec('20 x 300', 20, 300, grouped=0.1), 10, 10),
    (clusters.Spec('50 x 1,000', 50, 1_000, grouped=0.1), 10, 10),
    (clusters.Spec('100 x 3,000', 100, 3_000), 10, 10),
    (clusters.Spec('200 x 10,000, 300 groups', 200, 10_000, grouped=0.09), 10, 1),
    (clusters.Spec('500 x 15,000', 500, 15_000, grouped=0.1), 50, 0),
    (clusters.Spec('1,800 x 48,000', 1_800, 48_000, grouped=0.1), 100, 0),
    (clusters.Spec('1,800 x 96,000', 1_800, 96_000, grouped=0.1), 100, 0),
    (clusters.Spec('3,600 x 48,000', 3_600, 48_000, grouped=0.1), 100, 0),
    (clusters.Spec('5,000 x 150,000', 5_000, 150_000, grouped=0.1), 200, 0),
)

#: Where ties, zeros, groups and lack of room meet; compared, not timed.
PARITY = (
    clusters.Spec('plain', 12, 120),
    clusters.Spec('idle', 10, 100, policies=3, idle=0.4, grouped=0.3),
    clusters.Spec('tight', 8, 90, hot=0.25, grouped=0.5, room=1.05),
)
#: Scores and usages of every second one are multiples of this: ties, without rounding.
GRID = 1 / 64


def request(case: clusters.Case, budget: int) -> planner.PlanningInput:
    return planner.PlanningInput(
        cluster=case.cluster, scores=case.scores, policies=case.policies,
        strategies=(spread.Spread(),), history=model.MoveHistory(), options=OPTIONS, budget=budget)


def simulate(r: planner.PlanningInput) -> sim.Simulation:
    return sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)


def measure(spec: clusters.Spec, budget: int, runs: int, seed: int) -> dict[str, Any]:
    """Seconds by step, moves, and the peak memory of this process in MiB."""
    case = clusters.build(spec, seed)
    r = request(case, budget)
    bodies = {p: answers(case, p) for p in case.scores.policies}
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[..., Any], *args: Any) -> Any:
        gc.collect()
        started, used = time.perf_counter(), time.process_time()
        out = work(*args)
        cpu.setdefault(name, []).append(time.process_time() - used)
        wall.setdefault(name, []).append(time.perf_counter() - started)
        return out

    def check(plan: model.Plan, ceilings: dict[str, float]) -> None:
        wrong = checker.check(plan, r.cluster, r.options, r.history, r.scores, ceilings, budget)
        assert wrong == (), wrong[:3]

    def score(samples: dict[str, model.PolicySamples]) -> None:
        for p in case.policies.enabled_policies:
            scoring.score_policy(p, samples[p.name], case.cluster, now=0.0, staleness=300.0)

    for _ in range(runs):
        state = timed('ingest', simulate, r)
        moves = timed('moves', spread.Spread().propose, state, budget)
        plan = timed('plan', planner.plan, r)
        timed('check', check, plan, state.ceilings)
        samples = timed('parse', parse, bodies)
        timed('json', lambda: [json.loads(b) for pair in bodies.values() for b in pair])
        timed('score', score, samples)
    row: dict[str, Any] = {'wall': {name: min(seconds) for name, seconds in wall.items()},
                           'cpu': {name: min(seconds) for name, seconds in cpu.items()}}
    row |= {'name': spec.name, 'hosts': spec.hosts, 'instances': spec.instances,
            'policies': spec.policies, 'groups': len(case.cluster.groups), 'budget': budget,
            'found': len(moves), 'kept': len(plan.moves),
            'rss_mib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    return row


def answers(case: clusters.Case, policy: str) -> tuple[bytes, bytes]:
    """Prometheus's answers that the scores of a policy could have come from:
    hosts, instances."""
    known = case.scores.policies[policy]

    def body(label: str, values: Any) -> bytes:
        return json.dumps({'status': 'success', 'data': {'resultType': 'vector', 'result': [
            {'metric': {label: k}, 'value': [1700000000.123, repr(v)]}
            for k, v in values.items()]}}).encode()

    return body('host', known.hosts), body('instance_name', known.usages)


def parse(bodies: dict[str, tuple[bytes, bytes]]) -> dict[str, model.PolicySamples]:
    return {p: model.PolicySamples(
        p, answer.parse_vector('q', 'host', hosts, 10**9),
        answer.parse_vector('q', 'instance_name', instances, 10**9))
        for p, (hosts, instances) in bodies.items()}


# The ancestor.


def ancestor(python: str, case: clusters.Case, budget: int, limit: float) -> dict[str, Any]:
    """What Kronos 0.2.0 plans for the case: its seconds and moves.

    :raises subprocess.TimeoutExpired: not within ``limit`` seconds.
    """
    cluster, scores = case.cluster, case.scores.policies
    data = {
        'policies': [{'name': p.name, 'weight': p.weight, 'threshold': p.threshold,
                      'max_migrations_per_cycle': budget} for p in case.policies.enabled_policies],
        # As its scorer hands them over: the highest first.
        'scores': {p: dict(sorted(s.hosts.items(), key=lambda item: item[1], reverse=True))
                   for p, s in scores.items()},
        'instances': {u: {'host': i.host, 'weights': {
            p: s.usages[u] / s.capacity[i.host] for p, s in scores.items()}}
            for u, i in cluster.instances.items()},
        'services': {h: s.status for h, s in sorted(cluster.services.items())},
        'groups': [{'id': g.uuid, 'policies': [str(g.policy)], 'members': sorted(g.members)}
                   for g in cluster.groups],
        'room': {h: {c: i.capacity - host.provider.used.get(c, 0)
                     for c, i in host.provider.inventories.items()}
                 for h, host in cluster.hosts.items() if host.provider},
        'flavors': {u: {'vcpus': i.vcpus, 'memory_mb': i.memory_mb, 'disk_gb': i.disk_gb}
                    for u, i in cluster.instances.items()},
        'budget': budget, 'drains': False}
    script = pathlib.Path(__file__).with_name('ancestor.py')
    done = subprocess.run([python, str(script)], input=json.dumps(data), capture_output=True,
                          text=True, check=True, timeout=limit)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(python: str, case: clusters.Case, budget: int, limit: float,
            runs: int = 20) -> dict[str, Any]:
    """The ancestor's processor time and ours, and whether the moves agree."""
    theirs = ancestor(python, case, budget, limit)
    r = request(case, budget)
    seconds = []
    for _ in range(runs):  # short, and the machine is shared: the least disturbed one counts
        state = simulate(r)
        gc.collect()
        started = time.process_time()
        moves = spread.Spread().propose(state, budget)
        seconds.append(time.process_time() - started)
    return {'moves': len(moves), 'ancestor_cpu_seconds': theirs['cpu_seconds'],
            'our_cpu_seconds': min(seconds), 'ratio': theirs['cpu_seconds'] / min(seconds),
            'same_moves': [[m.instance_uuid, m.from_host, m.to_host] for m in moves]
            == once(theirs['moves'])}


def once(moves: list[list[str]]) -> list[list[str]]:
    """Up to where the ancestor moves an instance for the second time, which
    our rules do not permit."""
    seen: set[str] = set()
    for n, (uuid, _, _) in enumerate(moves):
        if uuid in seen:
            return moves[:n]
        seen.add(uuid)
    return moves


def coarse(case: clusters.Case) -> clusters.Case:
    """The case with few different scores and usages."""
    def even(value: float) -> float:
        return round(value / GRID) * GRID

    scores = {name: dataclasses.replace(
        p, hosts={h: even(v) for h, v in p.hosts.items()},
        usages={u: even(v / p.capacity[case.cluster.instances[u].host])
                * p.capacity[case.cluster.instances[u].host] for u, v in p.usages.items()})
        for name, p in case.scores.policies.items()}
    return dataclasses.replace(case, scores=model.ClusterScores(scores))


def shuffle(case: clusters.Case, seed: int) -> clusters.Case:
    """The case with its hosts and instances listed in another order."""
    shuffler = random.Random(seed)

    def mix(listed: Mapping[str, Any]) -> dict[str, Any]:
        return dict(shuffler.sample(list(listed.items()), len(listed)))

    scores = {name: dataclasses.replace(p, hosts=mix(p.hosts))
              for name, p in case.scores.policies.items()}
    cluster = dataclasses.replace(case.cluster, instances=mix(case.cluster.instances))
    return dataclasses.replace(case, cluster=cluster, scores=model.ClusterScores(scores))


def small(number: int) -> clusters.Case:
    """A cluster to compare, in an order of its own; every second one is coarse."""
    case = clusters.build(PARITY[number // 2 % len(PARITY)], number)
    return shuffle(coarse(case) if number % 2 else case, number)


def parity(python: str, count: int, limit: float) -> dict[str, Any]:
    """Sequences of small clusters beside the ancestor's."""
    same, moves = 0, 0
    differ: list[int] = []
    for n in range(count):
        row = compare(python, small(n), 8, limit, runs=1)
        same += row['same_moves']
        moves += row['moves']
        if not row['same_moves']:
            differ.append(n)
    return {'clusters': count, 'same': same, 'moves': moves, 'differ': differ}


# What is shown.


COLUMNS = ('ingest', 'moves', 'plan', 'check', 'parse', 'json', 'score')


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds; of wall clock, and below of processor time."""
    lines = [f'{"size":26}{"moves":>6}' + ''.join(f'{c:>9}' for c in COLUMNS) + f'{"MiB":>7}']
    for row in rows:
        for clock, left, right in (('wall', f'{row["name"]:26}{row["found"]:>6}',
                                    f'{row["rss_mib"]:>7.0f}'), ('cpu', f'{"  cpu":32}', '')):
            lines.append(left + ''.join(f'{row[clock][c] * 1e3:>9.1f}' for c in COLUMNS) + right)
        if 'ancestor' in row:
            a = row['ancestor']
            lines.append(f'  Kronos 0.2.0, cpu: {a["ancestor_cpu_seconds"]:.2f} s for '
                         f'{a["moves"]} moves, '
                         f'ours {a["our_cpu_seconds"] * 1e3:.2f} ms, ratio {a["ratio"]:,.0f}, '
                         f'{"the same" if a["same_moves"] else "OTHER"} moves')
    return '\n'.join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--only', help='sizes whose name contains this')
    parser.add_argument('--ancestor-python', metavar='PATH',
                        help='a Python in which kronos-openstack 0.2.0 is installed')
    parser.add_argument('--ancestor-limit', type=float, default=1200.0, metavar='SECONDS')
    parser.add_argument('--parity', type=int, default=0, metavar='N',
                        help='compare so many small clusters with the ancestor, too')
    parser.add_argument('--size', type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size is not None:
        spec, budget, _ = SIZES[options.size]
        print(json.dumps(measure(spec, budget, options.runs, options.seed)))
        return
    result: dict[str, Any] = {'python': platform.python_version(), 'sizes': []}
    for number, (spec, _, theirs) in enumerate(SIZES):
        if options.only and options.only not in spec.name:
            continue
        done = subprocess.run(
            [sys.executable, __file__, '--size', str(number), '--runs', str(options.runs),
             '--seed', str(options.seed)], check=True, capture_output=True, text=True)
        row = json.loads(done.stdout)
        if options.ancestor_python and theirs:
            row['ancestor'] = compare(options.ancestor_python, clusters.build(spec, options.seed),
                                      theirs, options.ancestor_limit)
        result['sizes'].append(row)
        if not options.json:
            print(table([row]), flush=True)
    if options.ancestor_python and options.parity:
        result['parity'] = parity(options.ancestor_python, options.parity, options.ancestor_limit)
        if not options.json:
            print(result['parity'])
    if options.json:
        print(json.dumps(result, indent=1))


if __name__ == '__main__':
    main()
