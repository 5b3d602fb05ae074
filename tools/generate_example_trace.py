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

"""Writes doc/examples/simulate: two days of a small cloud, and the page's table.

A made-up cloud of 10 hosts and 90 instances: office hours, nightly batches,
some that are always busy, and those that an accident of time has put
together. The same every time; ``--check`` only compares the
trace. ``output.txt`` is what the command of the documentation's page prints.
"""

import math
import os
from pathlib import Path
import random
import re
import subprocess
import sys
from typing import Any
import uuid

import numpy as np

from kronos_nova import model
from kronos_nova.conf import policies
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.backtest import trace
from kronos_nova.sources import ranges

EXAMPLE = Path(__file__).resolve().parents[1] / 'doc/examples/simulate'
#: 2026-11-02T00:00:00Z, a Monday; two days by 10 minutes.
WINDOW = ranges.QueryWindow(1793577600.0, 600.0, 289)
CORES, MEMORY_MB, INSTANCES = 32, 131072, 90
HOSTS = tuple(f'compute-{n:02}' for n in range(1, 11))
#: vCPUs, memory in MiB.
FLAVORS = ((2, 4096), (4, 8192), (4, 16384), (8, 16384))
#: Host's own share of its CPUs and of its memory.
BASE_CPU, BASE_MEMORY = 0.03, 0.05
#: Times that the example's vm_mean_query and vm_deviation_query look back on.
LOOKBACK = 36


def identity(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f'{text}.simulate.example.org'))


def kind(number: int) -> str:
    """Instances that were booted together came to the same hosts."""
    return ('office', 'office', 'batch', 'steady', 'idle')[number // 10 % 5]


def cluster() -> model.Cluster:
    instances = {}
    for number in range(INSTANCES):
        vcpus, memory_mb = FLAVORS[number % 4]
        host = HOSTS[(number // 10 + (0 if number % 10 < 6 else number % 10)) % len(HOSTS)]
        instances[identity(f'instance {number}')] = model.Instance(
            uuid=identity(f'instance {number}'), host=host, name=f'{kind(number)}-{number:02}',
            internal_name=f'instance-{number:08x}', vcpus=vcpus, memory_mb=memory_mb,
            claims={'VCPU': vcpus, 'MEMORY_MB': memory_mb})
    hosts = {}
    for name in HOSTS:
        here = [i for i in instances.values() if i.host == name]
        totals = {'VCPU': model.Inventory(CORES, allocation_ratio=4.0, max_unit=CORES),
                  'MEMORY_MB': model.Inventory(MEMORY_MB, reserved=4096, max_unit=MEMORY_MB)}
        hosts[name] = model.Host(
            name=name, hypervisor_hostname=f'{name}.example.org', uuid=identity(name), zone='nova',
            provider=model.Provider(uuid=identity(name), inventories=totals, used={
                c: sum(i.claims[c] for i in here) for c in totals}))
    office = sorted(u for u, i in instances.items() if i.name.startswith('office'))
    return model.Cluster(
        hosts=hosts, instances=instances,
        services={h: model.Service(host=h, zone='nova') for h in HOSTS},
        groups=(model.ServerGroup(identity('group web'), model.GroupPolicy.ANTI_AFFINITY,
                                  frozenset(office[:3]), name='web'),),
        taken_at=WINDOW.end)


def busy(what: str, hour: float, rng: random.Random) -> float:
    """Part of its vCPUs that an instance uses."""
    noise = rng.uniform(0.9, 1.1)
    if what == 'office':
        return noise * (0.08 + 0.72 * math.exp(-((hour - 13.0) / 3.2) ** 2))
    if what == 'batch':
        return noise * (0.9 if 1.0 <= hour < 5.0 else 0.05)
    return noise * (0.45 if what == 'steady' else 0.03)


def answers(found: model.Cluster) -> dict[recorded_trace.Question, recorded_trace.RecordedSeries]:
    """What exporters would have told: a host's score is what its instances
    use, and a little of its own."""
    rng = random.Random(5)
    uuids = sorted(found.instances)
    times = range(WINDOW.count)
    cores, rss = np.zeros((WINDOW.count, len(uuids))), np.zeros((WINDOW.count, len(uuids)))
    for n, one in enumerate(found.instances[u] for u in uuids):
        what = one.name.partition('-')[0]
        own = rng.uniform(0.7, 1.2)
        resident = rng.uniform(0.4, 0.8) * one.memory_mb
        for k in times:
            hour = WINDOW.compute_time(k) % 86400 / 3600
            cores[k, n] = round(min(1.0, own * busy(what, hour, rng)) * one.vcpus, 2)
            rss[k, n] = round(resident) * 1024.0**2
    policy_set = policies.load_policies(str(EXAMPLE / 'pack.yaml'))
    out = {}
    for name, usage, capacity, base in (
            ('cpu', cores, float(CORES), BASE_CPU),
            ('memory', rss, MEMORY_MB * 1024.0**2, BASE_MEMORY)):
        questions = recorded_trace.list_questions(policy_set.find_policy(name))
        scores = np.stack([usage[:, [n for n, u in enumerate(uuids)
                                     if found.instances[u].host == h]].sum(axis=1)
                           for h in HOSTS], axis=1) / capacity + base
        for field, keys, values in (
                ('imbalance_query', HOSTS, np.minimum(1.0, scores).round(4)),
                ('vm_profile_query', tuple(uuids), usage),
                ('vm_mean_query', tuple(uuids), so_far(np.mean, usage)),
                ('vm_deviation_query', tuple(uuids), so_far(np.std, usage)),
                ('host_capacity_query', HOSTS, np.full(scores.shape, capacity))):
            out[questions[field]] = recorded_trace.RecordedSeries(
                keys, ('',) * len(keys), values.astype(np.float32))
    return out


def so_far(function: Any, usage: Any) -> Any:
    """``function`` of the last samples at each time, to the digits of a sample."""
    return np.stack([function(usage[max(0, k - LOOKBACK + 1):k + 1], axis=0).round(2)
                     for k in range(len(usage))])


def made() -> recorded_trace.RecordedTrace:
    found = cluster()
    return recorded_trace.RecordedTrace(WINDOW, found, (model.UNASSIGNED,), answers(found))


def same(one: recorded_trace.RecordedTrace, other: recorded_trace.RecordedTrace) -> bool:
    return (one.window == other.window and one.scopes == other.scopes
            and one.cluster.hosts == other.cluster.hosts
            and one.cluster.instances == other.cluster.instances
            and one.cluster.groups == other.cluster.groups
            and sorted(one.answers) == sorted(other.answers)
            and all(a.keys == other.answers[q].keys
                    and np.array_equal(a.values, other.answers[q].values, equal_nan=True)
                    for q, a in one.answers.items()))


def main() -> int:
    target = str(EXAMPLE / 'trace.npz')
    wanted = made()
    if '--check' in sys.argv[1:]:
        if same(trace.read_trace(target), wanted):
            return 0
        print(f'{target} is not what this program writes; run it without --check')
        return 1
    # Another NumPy writes other bytes of the same trace.
    if not os.path.exists(target) or not same(trace.read_trace(target), wanted):
        trace.write_trace(target, wanted, policies.load_policies(str(EXAMPLE / 'calm.yaml')))
    (EXAMPLE / 'output.txt').write_text(output())
    return 0


def output() -> str:
    """What the command that the page shows prints."""
    page = (EXAMPLE.parents[1] / 'source/admin/simulate.rst').read_text()
    shown = re.search(r'^   \$ kronos (simulate .* --policies pack.yaml)$', page, re.MULTILINE)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                               'sys.exit(app.main(sys.argv[1:]))', *shown[1].split()],
        cwd=EXAMPLE, check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, 'PYTHONPATH': str(EXAMPLE.parents[2])})
    return done.stdout.rstrip() + '\n'


if __name__ == '__main__':
    sys.exit(main())
