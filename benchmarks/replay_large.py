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


"""Times kronos-replay on a recorded snapshot of a large cloud.

A generated cloud is recorded by the recorder and the writer that kronos-record
uses, into a temporary directory, and replayed by the real command in a process
of its own, several times: each must print the same plan::

    python -m benchmarks.replay_large --hosts 1800 --instances 48000
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import yaml

from benchmarks import clusters
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.sources import base

NOW = 1_700_000_000.0
REPLAY = [sys.executable, '-c', 'import sys; from kronos_nova.cmd import replay; '
                                'sys.exit(replay.main())']


class Generated(base.MetricsSource):
    """What a source would have answered for a generated case."""

    def __init__(self, case: clusters.Case) -> None:
        self._case = case

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        known = self._case.scores.policies[policy.name]
        instances = self._case.cluster.instances
        shares = {u: v / known.capacity[instances[u].host] for u, v in known.usages.items()}
        assert policy.vm_profile_query is not None
        return model.PolicySamples(
            policy.name, self._answer(policy.imbalance_query, known.hosts),
            profile=self._answer(policy.vm_profile_query, shares), age=30.0, taken_at=NOW)

    @staticmethod
    def _answer(query: str, values: Any) -> model.QueryResult:
        return model.QueryResult(query, model.SourceHealth.HEALTHY, dict(values))

    def health(self) -> tuple[model.SourceHealth, str]:
        return model.SourceHealth.HEALTHY, 'generated'


class Cloud:
    """A collector that has collected."""

    def __init__(self, cluster: model.Cluster) -> None:
        self._cluster = cluster

    def collect_cluster(self, now: float) -> model.Cluster:
        return self._cluster


def record(case: clusters.Case, directory: str) -> tuple[str, str]:
    """Paths of the snapshot and of a kronos.conf for it."""
    shaped = {'policies': [{
        'name': p.name, 'weight': p.weight, 'threshold': p.threshold,
        'imbalance_query': f'{p.name}_of_hosts', 'vm_profile_query': f'{p.name}_of_instances',
        'vm_profile_label_type': 'nova_instance_uuid', 'max_migrations_per_cycle': 100}
        for p in case.policies.enabled_policies]}
    path = pathlib.Path(directory)
    (path / 'policies.yaml').write_text(yaml.safe_dump(shaped))
    (path / 'kronos.conf').write_text(
        f'[engine]\npolicies_file = {path / "policies.yaml"}\ninstance_cooldown = 0\n')
    recording = recorder.read_recording(
        Cloud(case.cluster), Generated(case), 'nothing was remembered',
        policies.parse_policies(shaped, 'policies.yaml'), ['scope'], lambda: NOW)
    return writer.write_snapshot(str(path / 'snapshots'), recording), str(path / 'kronos.conf')


def replay(snapshot: str, conf: str) -> tuple[float, dict[str, Any]]:
    """Seconds, and the report of the only scope."""
    began = time.perf_counter()
    done = subprocess.run([*REPLAY, '--config-file', conf, snapshot, '--format', 'json'],
                          check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    row, = json.loads(done.stdout)['aggregates']
    return seconds, row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hosts', type=int, default=1_800)
    parser.add_argument('--instances', type=int, default=48_000)
    parser.add_argument('--runs', type=int, default=3)
    options = parser.parse_args()
    case = clusters.build(clusters.Spec(
        'recorded', options.hosts, options.instances, grouped=0.1, threshold=0.05), 1)
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        snapshot, conf = record(case, directory)
        wrote = time.perf_counter() - began
        size = sum(f.stat().st_size for f in pathlib.Path(snapshot).rglob('*') if f.is_file())
        runs = [replay(snapshot, conf) for _ in range(options.runs)]
    rows = [{k: v for k, v in row.items() if k != 'timings'} for _, row in runs]
    fastest, row = min(runs, key=lambda run: run[0])
    print(f'{options.hosts} hosts, {options.instances} instances, '
          f'{len(case.cluster.groups)} server groups')
    print(f'recorded in {wrote:.1f} s, {size / 2**20:.0f} MiB')
    print(f'replayed in {fastest:.1f} s (the fastest of {len(runs)}): {len(row["moves"])} moves, '
          f'combined imbalance {row["combined_before"]:.3f} -> {row["combined_after"]:.3f}')
    print('seconds inside: ' + ', '.join(f'{k} {v:.2f}' for k, v in row['timings'].items()))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f'processor seconds per run {(used.ru_utime + used.ru_stime) / len(runs):.1f}, '
          f'peak memory {used.ru_maxrss / 1024:.0f} MiB')
    if any(other != rows[0] for other in rows):
        raise SystemExit('the replays differ')
    print(f'{len(rows)} replays printed the same plan')


if __name__ == '__main__':
    main()
