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

"""How long the time travel takes: a made-up cloud over days, one spread policy file.

Prints wall and process seconds of each part and the seconds of a simulated
day; the answer for another cloud is another run::

    python benchmarks/simulate.py --hosts 100 --instances 3000 --days 7
"""

import argparse
from collections.abc import Callable
import json
import math
import resource
import time
from typing import Any

import numpy as np

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate
from kronos_nova.rebalancer.strategies import pack
from kronos_nova.rebalancer.strategies import repair
from kronos_nova.rebalancer.strategies import spread
from kronos_nova.sources import ranges

CORES = 64.0
START = 1793577600.0


def policies(budget: int) -> policy.PolicySet:
    return policy.parse_policies({'policies': [
        {'name': name, 'weight': 0.5, 'imbalance_query': name, 'vm_profile_query': f'{name}_used',
         'vm_profile_unit': 'absolute', 'host_capacity': 'VCPU', 'threshold': 0.15,
         'vm_profile_label_type': 'nova_instance_uuid', 'max_migrations_per_cycle': budget}
        for name in ('cpu', 'memory')]})


def made(hosts: int, instances: int, window: ranges.QueryWindow,
         budget: int) -> recorded_trace.RecordedTrace:
    """Daily waves of different phase and size, and noise."""
    rng = np.random.default_rng(1)
    names = [f'compute-{n:04}' for n in range(hosts)]
    uuids = [f'{n:08x}-0000-4000-8000-000000000000' for n in range(instances)]
    vcpus = rng.choice([1, 2, 4, 8], instances)
    place = rng.integers(0, hosts, instances)
    found = {u: model.Instance(
        uuid=u, host=names[place[n]], vcpus=int(vcpus[n]), memory_mb=int(vcpus[n]) * 2048,
        claims={'VCPU': int(vcpus[n]), 'MEMORY_MB': int(vcpus[n]) * 2048})
        for n, u in enumerate(uuids)}
    clouds = {h: model.Host(h, hypervisor_hostname=h, provider=model.Provider(
        h, inventories={'VCPU': model.Inventory(int(CORES), allocation_ratio=8.0),
                        'MEMORY_MB': model.Inventory(1024 * 1024)},
        used={'VCPU': int(vcpus[place == n].sum()),
              'MEMORY_MB': int(vcpus[place == n].sum()) * 2048}))
        for n, h in enumerate(names)}
    cluster = model.Cluster(
        hosts=clouds, instances=found, taken_at=window.end,
        services={h: model.Service(h) for h in names})
    answers = {}
    for one in policies(budget).enabled_policies:
        phase, size = rng.uniform(0, 2 * math.pi, instances), rng.uniform(0.05, 0.5, instances)
        day = np.arange(window.count) * window.step / 86400 * 2 * math.pi
        usage = (size * vcpus * (1 + 0.8 * np.sin(day[:, None] + phase))
                 * rng.uniform(0.8, 1.2, (window.count, instances)))
        load = np.stack([usage[:, place == n].sum(axis=1) for n in range(hosts)], axis=1)
        questions = recorded_trace.list_questions(one)
        answers[questions['imbalance_query']] = recorded_trace.RecordedSeries(
            tuple(names), ('',) * hosts,
            np.minimum(1.0, load / CORES + 0.02).astype(np.float32))
        answers[questions['vm_profile_query']] = recorded_trace.RecordedSeries(
            tuple(uuids), ('',) * instances, usage.astype(np.float32))
    return recorded_trace.RecordedTrace(window, cluster, (model.UNASSIGNED,), answers)


def timed(function: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = function()
    return found, {'wall': time.perf_counter() - wall, 'cpu': time.process_time() - cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hosts', type=int, default=100)
    parser.add_argument('--instances', type=int, default=3000)
    parser.add_argument('--days', type=float, default=7.0)
    parser.add_argument('--step', type=float, default=300.0)
    parser.add_argument('--budget', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    window = ranges.QueryWindow(START, options.step, int(options.days * 86400 / options.step) + 1)
    trace = made(options.hosts, options.instances, window, options.budget)
    chosen = policies(options.budget)
    seconds = {}
    known, seconds['past'] = timed(lambda: history.build_past(trace, [chosen], [model.UNASSIGNED]))
    candidate = backtest_run.PolicyCandidate('candidate', planning_pipeline.PassSettings(
        chosen, model.PlanningOptions(dry_run=False),
        [evacuate.Evacuate(), repair.Repair(), spread.Spread(), pack.Pack()], deadline=math.inf),
        (model.UNASSIGNED,))
    _was, seconds['history'] = timed(lambda: backtest_run.run_history(known, lambda k: None))
    found, seconds['candidate'] = timed(lambda: backtest_run.run_candidate(
        known, candidate, backtest_run.TimingAssumptions(), lambda k: None))
    row, seconds['review'] = timed(lambda: review.review_journey(
        known, found, review.ReviewQuestion((model.UNASSIGNED,))))
    result = {
        'hosts': options.hosts, 'instances': options.instances, 'times': window.count,
        'seconds': seconds, 'moves': row['moves'], 'cycles': row['cycles'],
        'cpu_seconds_per_day': seconds['candidate']['cpu'] / options.days,
        'peak_mib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if options.json:
        print(json.dumps(result))
        return
    for name, took in seconds.items():
        print(f'{name:10} wall {took["wall"]:8.2f} s  cpu {took["cpu"]:8.2f} s')
    print(f'{row["moves"]} moves in {row["cycles"]} cycles, '
          f'{result["cpu_seconds_per_day"]:.2f} s of CPU a day, '
          f'{result["peak_mib"]:.0f} MiB at most')


if __name__ == '__main__':
    main()
