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


"""Writes doc/examples/replay/snapshot: a small cloud, as kronos-record would.

A made-up cloud of 12 hosts and 150 instances: two hosts are hot, one is
disabled for maintenance, an anti-affinity group is violated. The same every
time; ``--check`` only compares.
"""

import dataclasses
import json
import math
from pathlib import Path
import random
import shutil
import sys
import uuid

from kronos_nova import model
from kronos_nova.conf import policies
from kronos_nova.rebalancer.snapshots import writer

EXAMPLE = Path(__file__).resolve().parents[1] / 'doc/examples/replay'
NOW = 1793491200.0  # 2026-11-01T00:00:00Z
CORES, MEMORY_MB, INSTANCES = 32, 131072, 150
FAST = ('compute-01', 'compute-02', 'compute-03', 'compute-04')
HOT = {'compute-02': 2.4, 'compute-07': 2.6}
DISABLED = 'compute-12'
#: vCPUs, memory in MiB, disk in GiB.
FLAVORS = ((1, 2048, 20), (2, 4096, 40), (4, 8192, 80), (8, 16384, 160))
HOSTS = [f'compute-{n:02}' for n in range(1, 13)]


def identity(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f'{text}.example.org'))


def instances() -> dict[str, model.Instance]:
    """Spread over the hosts by their order, few on the disabled one."""
    out = {}
    for number in range(INSTANCES):
        host = DISABLED if number < 4 else HOSTS[number % 11]
        vcpus, memory_mb, disk_gb = FLAVORS[(number // 11) % 4]
        one = model.Instance(
            uuid=identity(f'instance {number}'), host=host, name=f'app-{number:03}',
            internal_name=f'instance-{number:08x}', vcpus=vcpus, memory_mb=memory_mb,
            disk_gb=disk_gb, project_id=identity(f'project {number % 7}').replace('-', ''),
            locked=number == 17, status='SHUTOFF' if number == 40 else 'ACTIVE',
            claims={'VCPU': vcpus, 'MEMORY_MB': memory_mb, 'DISK_GB': disk_gb})
        out[one.uuid] = one
    return out


def groups(found: dict[str, model.Instance]) -> tuple[model.ServerGroup, ...]:
    on_first = [i.uuid for i in found.values() if i.host == 'compute-05']
    on_second = [i.uuid for i in found.values() if i.host == 'compute-06']
    return (
        model.ServerGroup(identity('group database'), model.GroupPolicy.ANTI_AFFINITY,
                          frozenset((on_first[0], on_first[1], on_second[0])),
                          name='database'),
        model.ServerGroup(identity('group cache'), model.GroupPolicy.AFFINITY,
                          frozenset(on_second[1:3]), name='cache'),
        model.ServerGroup(identity('group web'), model.GroupPolicy.SOFT_ANTI_AFFINITY,
                          frozenset((on_first[3], on_second[4])), name='web'))


def cluster() -> model.Cluster:
    found = instances()
    hosts, services = {}, {}
    for name in HOSTS:
        here = [i for i in found.values() if i.host == name]
        totals = {'VCPU': model.Inventory(CORES, allocation_ratio=4.0, max_unit=CORES),
                  'MEMORY_MB': model.Inventory(MEMORY_MB, reserved=4096, max_unit=MEMORY_MB),
                  'DISK_GB': model.Inventory(4000, max_unit=4000)}
        hosts[name] = model.Host(
            name=name, hypervisor_hostname=f'{name}.example.org', uuid=identity(name),
            zone='nova', traits=frozenset({'HW_CPU_X86_AVX2', 'HW_CPU_X86_VMX'}),
            provider=model.Provider(
                uuid=identity(name), generation=len(here), inventories=totals,
                used={c: sum(i.claims[c] for i in here) for c in totals}))
        services[name] = model.Service(host=name, zone='nova')
    services[DISABLED] = dataclasses.replace(
        services[DISABLED], status='disabled', disabled_reason='maintenance: memory module')
    return model.Cluster(hosts=hosts, instances=found, services=services, groups=groups(found),
                         aggregates={'fast-storage': FAST}, taken_at=NOW)


def samples(found: model.Cluster, rng: random.Random) -> dict[str, model.PolicySamples]:
    """What node_exporter and libvirt-exporter would have told: a host's score
    is what its instances use, and a little of its own."""
    cores, rss = {}, {}
    for one in found.instances.values():
        running = one.status == 'ACTIVE'
        cores[one.uuid] = round(running * rng.uniform(0.1, 0.45) * one.vcpus
                                * HOT.get(one.host, 1.0), 3)
        rss[one.uuid] = float(round(running * rng.uniform(0.5, 0.9) * one.memory_mb) * 1024**2)
    out = {}
    policy_set = policies.load_policies(str(EXAMPLE / 'policies.yaml'))
    for policy, usage, capacity in (
            (policy_set.find_policy('cpu'), cores, float(CORES)),
            (policy_set.find_policy('memory'), rss, float(MEMORY_MB * 1024**2))):
        scores = {host: round(min(1.0, 0.02 + math.fsum(
            usage[i.uuid] for i in found.instances.values() if i.host == host) / capacity), 6)
            for host in HOSTS}

        def answer(query: str | None, series: dict[str, float]) -> model.QueryResult:
            assert query is not None
            return model.QueryResult(query, model.SourceHealth.HEALTHY, series)

        out[policy.name] = model.PolicySamples(
            policy=policy.name, imbalance=answer(policy.imbalance_query, scores),
            profile=answer(policy.vm_profile_query, usage),
            host_capacity=answer(policy.host_capacity_query, dict.fromkeys(HOSTS, capacity)),
            age=23.4, taken_at=NOW)
    return out


def documents() -> dict[str, str]:
    """Every file's text by its path."""
    rng = random.Random(1)
    found = cluster()
    contents = writer.build_documents(writer.SnapshotContent(
        now=NOW, scopes=('fast-storage', model.UNASSIGNED), cluster=found,
        policies=policies.load_policies(str(EXAMPLE / 'policies.yaml')),
        samples=samples(found, rng), histories={}))
    return {path: json.dumps(data, indent=1, sort_keys=True) + '\n'
            for path, data in contents.items()}


def main() -> int:
    target = EXAMPLE / 'snapshot'
    wanted = documents()
    if '--check' in sys.argv[1:]:
        present = {str(p.relative_to(target)): p.read_text()
                   for p in target.rglob('*.json')}
        if present == wanted:
            return 0
        print(f'{target} is not what this program writes; run it without --check')
        return 1
    shutil.rmtree(target, ignore_errors=True)
    for path, text in wanted.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
