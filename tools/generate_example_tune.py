#!/usr/bin/env python3
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


"""Writes doc/examples/tune/trace.npz and output.txt, for ``kronos weigh tune``.

A made-up cloud of 8 hosts: half have few instances that are busy,
the others many that are idle, and 90 more boot over two days, as Nova's own
weighers place them: to where the least memory is allocated. The same every
time; ``--check`` only compares the trace. ``output.txt`` is what the command
of the documentation's page prints.
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

EXAMPLE = Path(__file__).resolve().parents[1] / 'doc/examples/tune'
#: 2026-11-02T00:00:00Z, a Monday; two days by 15 minutes.
WINDOW = ranges.QueryWindow(1793577600.0, 900.0, 193)
CORES, MEMORY_MB, BOOTS = 32, 131072, 90
HOSTS = tuple(f'compute-{n:02}' for n in range(1, 9))
#: vCPUs, memory in MiB.
FLAVORS = ((2, 4096), (4, 8192), (4, 4096), (1, 2048))
BASE = 0.03


def identity(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f'{text}.tune.example.org'))


def made() -> recorded_trace.RecordedTrace:
    rng = random.Random(11)
    times = WINDOW.count
    rows: list[tuple[model.Instance, int, str]] = []
    held = dict.fromkeys(HOSTS, 0)

    def add(number: int, host: str, flavor: tuple[int, int], first: int, kind: str) -> None:
        vcpus, memory_mb = flavor
        held[host] += memory_mb
        # UUIDs in the order of time: so they boot.
        name = f'{number:08d}{identity(f"instance {number}")[8:]}'
        rows.append((model.Instance(
            uuid=name, host=host, name=f'{kind}-{number:03}', vcpus=vcpus, memory_mb=memory_mb,
            internal_name=f'instance-{number:08x}',
            claims={'VCPU': vcpus, 'MEMORY_MB': memory_mb}), first, kind))

    for number in range(44):
        busy = number < 12
        add(number, HOSTS[number % 4 if busy else 4 + number % 4], (4, 8192), 0,
            'busy' if busy else 'idle')
    for number in range(44, 44 + BOOTS):
        first = 4 + (number - 44) * (times - 24) // BOOTS
        host = min(HOSTS, key=lambda name: held[name])
        add(number, host, rng.choice(FLAVORS), first, rng.choice(('busy', 'office', 'idle')))
    usage = np.full((times, len(rows)), np.nan)
    for n, (one, first, kind) in enumerate(rows):
        for k in range(first, times):
            hour = WINDOW.compute_time(k) % 86400 / 3600
            part = {'busy': 0.8, 'idle': 0.04,
                    'office': 0.06 + 0.7 * math.exp(-((hour - 13.0) / 3.2) ** 2)}[kind]
            usage[k, n] = round(min(1.0, part * rng.uniform(0.9, 1.1)) * one.vcpus, 2)
    return assembled(rows, usage)


def assembled(rows: list[tuple[model.Instance, int, str]],
              usage: Any) -> recorded_trace.RecordedTrace:
    hosts = {}
    for name in HOSTS:
        here = [one for one, _, _ in rows if one.host == name]
        totals = {'VCPU': model.Inventory(CORES, allocation_ratio=4.0, max_unit=CORES),
                  'MEMORY_MB': model.Inventory(MEMORY_MB, reserved=4096, max_unit=MEMORY_MB)}
        hosts[name] = model.Host(
            name=name, hypervisor_hostname=f'{name}.example.org', uuid=identity(name),
            zone='nova', provider=model.Provider(
                uuid=identity(name), inventories=totals,
                used={c: sum(one.claims[c] for one in here) for c in totals}))
    cloud = model.Cluster(
        hosts=hosts, instances={one.uuid: one for one, _, _ in rows},
        services={h: model.Service(host=h, zone='nova') for h in HOSTS}, taken_at=WINDOW.end)
    policy = policies.load_policies(str(EXAMPLE / 'policies.yaml')).find_policy('cpu')
    scores = np.stack([np.nansum(usage[:, [n for n, (one, _, _) in enumerate(rows)
                                           if one.host == name]], axis=1)
                       for name in HOSTS], axis=1) / CORES + BASE
    questions = recorded_trace.list_questions(policy)
    answers = {
        questions['imbalance_query']: recorded_trace.RecordedSeries(
            HOSTS, ('',) * len(HOSTS), np.minimum(1.0, scores).round(4).astype(np.float32)),
        questions['vm_profile_query']: recorded_trace.RecordedSeries(
            tuple(one.uuid for one, _, _ in rows), ('',) * len(rows), usage.astype(np.float32))}
    return recorded_trace.RecordedTrace(WINDOW, cloud, (model.UNASSIGNED,), answers)


def same(one: recorded_trace.RecordedTrace, other: recorded_trace.RecordedTrace) -> bool:
    return (one.window == other.window and one.scopes == other.scopes
            and one.cluster.instances == other.cluster.instances
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
    trace.write_trace(target, wanted, policies.load_policies(str(EXAMPLE / 'policies.yaml')))
    (EXAMPLE / 'output.txt').write_text(output())
    return 0


def output() -> str:
    """What the command that the page shows prints."""
    page = (EXAMPLE.parents[1] / 'source/admin/tuning.rst').read_text()
    shown = re.search(r'^   \$ kronos (weigh tune .*--trace trace.npz.*)$', page, re.MULTILINE)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                               'sys.exit(app.main(sys.argv[1:]))', *shown[1].split()],
        cwd=EXAMPLE, check=True, capture_output=True, text=True,
        env={**os.environ, 'PYTHONPATH': str(EXAMPLE.parents[2])})
    return f'{done.stdout.rstrip()}\n{done.stderr.rstrip()}\n'


if __name__ == '__main__':
    sys.exit(main())
