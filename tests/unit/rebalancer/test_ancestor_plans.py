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


"""``objective = kronos`` makes the spread moves of Kronos 0.2.0, and breaks ties as it does."""

import dataclasses
import json
import os
from pathlib import Path
import random
import re
import subprocess
import sys
import uuid

import pytest

from benchmarks import planner
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import spread

BUDGET = 8
SNAPSHOTS = 100
TOP = Path(__file__).resolve().parents[3]
OPTIONS = '[engine]\npolicies_file = {}\nenforce_placement_claims = false\n'
POLICIES = f"""policies:
- {{name: cpu, mode: spread, weight: 1.0, imbalance_query: load, vm_profile_query: use,
   threshold: 0.05, max_migrations_per_cycle: {BUDGET}}}
"""


def reverse(mapping):
    return dict(reversed(mapping.items()))


def list_names(case, **more):
    """Hosts and instances in the order in which ties are broken."""
    request = planner.request(case, BUDGET)
    found = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                           dataclasses.replace(request.options, **more))
    return found.hosts, found.uuids


def test_hosts_are_in_the_order_of_scores_and_instances_as_listed():
    case = planner.small(1)
    scores = case.scores.policies[case.policies.enabled_policies[0].name].hosts
    hosts, uuids = list_names(case)
    assert [scores[host] for host in hosts] == sorted(scores.values(), reverse=True)
    assert len(set(scores.values())) < len(scores), 'no tie'
    listed = list(scores)
    assert all(listed.index(one) < listed.index(other)
               for one, other in zip(hosts, hosts[1:], strict=False)
               if scores[one] == scores[other])
    assert uuids == tuple(case.cluster.instances)


def test_host_without_a_score_comes_last():
    case = planner.small(0)
    first = case.policies.enabled_policies[0].name
    left = min(case.scores.policies[first].hosts)
    scores = {name: dataclasses.replace(
        found, hosts={host: score for host, score in found.hosts.items() if host != left})
        for name, found in case.scores.policies.items()}
    hosts, _ = list_names(dataclasses.replace(case, scores=model.ClusterScores(scores)))
    assert hosts[-1] == left and sorted(hosts) == sorted(case.cluster.scope_hosts)


def test_other_objectives_break_ties_by_names():
    """Their plans must not depend on the order in which Nova lists."""
    case = planner.small(1)
    hosts, uuids = list_names(case, objective='balanced')
    assert (hosts, uuids) == (tuple(sorted(hosts)), tuple(sorted(uuids)))


def test_order_of_lists_decides_a_tie():
    case = planner.small(5)

    def plan(case):
        return spread.Spread().propose(planner.simulate(planner.request(case, BUDGET)), BUDGET)

    scores = {name: dataclasses.replace(found, hosts=reverse(found.hosts))
              for name, found in case.scores.policies.items()}
    other = dataclasses.replace(
        case, scores=model.ClusterScores(scores), cluster=dataclasses.replace(
            case.cluster, instances=reverse(case.cluster.instances)))
    assert plan(case) == plan(case) != plan(other)


@pytest.mark.timeout(1500)
@pytest.mark.skipif('KRONOS_ANCESTOR' not in os.environ, reason='KRONOS_ANCESTOR is not set')
def test_ancestor_itself_makes_the_same_moves_in_the_same_order():
    """Up to where it moves an instance for the second time, which we never do."""
    found = planner.parity(os.path.join(os.environ['KRONOS_ANCESTOR'], 'python'), 100, 120.0)
    assert found['same'] == 100 and found['moves'] > 300, found


def write_snapshot(directory, seed):
    """As kronos-record of 0.2.0 writes it: usages are multiples of 1/64, and lists in any order."""
    draw = random.Random(seed)
    hosts = draw.sample([f'h{n}' for n in range(6)], 6)
    instances = {host: [{
        'uuid': str(uuid.UUID(int=draw.getrandbits(128), version=4)), 'name': f'vm-{host}-{n}',
        'internal_name': f'{host}-{n}', 'host': host, 'flavor_vcpus': 1, 'flavor_ram_mb': 512,
        'status': 'ACTIVE', 'flavor_disk_gb': 1, 'server_groups': []}
        for n in range(draw.randint(2, 6))] for host in hosts}
    usages = {one['internal_name']: draw.randint(1, 6) / 64
              for host in hosts for one in instances[host]}
    scores = {host: sum(usages[one['internal_name']] for one in instances[host]) for host in hosts}
    answer = {'health': 'healthy', 'missing_labels': [], 'warnings': []}
    for name, content in {
            'meta': {'recorded_at': '2026-01-01T00:00:00+00:00', 'policy_names': ['cpu'],
                     'aggregates': ['_unassigned_']},
            'cooldowns': {}, 'nova/aggregates': {'_unassigned_': sorted(hosts)},
            'nova/instances': {host: instances[host] for host in sorted(hosts)},
            'nova/server_groups': [],
            'nova/services': [{
                'host': host, 'binary': 'nova-compute', 'state': 'up', 'status': 'enabled',
                'zone': 'nova', 'disabled_reason': '', 'forced_down': False} for host in hosts],
            'prometheus/imbalance_cpu': {**answer, 'query': 'load', 'series': scores},
            'prometheus/vm_profile_cpu': {**answer, 'query': 'use', 'series': usages}}.items():
        path = directory / f'{name}.json'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


def replay(command, configuration, snapshot, pattern):
    """The moves that a program prints: the start of a UUID, source and destination."""
    done = subprocess.run(
        [*command, '--config-file', configuration, snapshot], capture_output=True, text=True,
        check=True, timeout=120, cwd='/', env={**os.environ, 'PYTHONPATH': str(TOP)})
    return re.findall(pattern, done.stdout + done.stderr)


@pytest.mark.timeout(1500)
@pytest.mark.skipif('KRONOS_ANCESTOR' not in os.environ, reason='KRONOS_ANCESTOR is not set')
def test_kronos_replay_of_both_programs_has_the_same_moves(tmp_path):
    (tmp_path / 'policies.yaml').write_text(POLICIES)
    theirs, ours = tmp_path / 'theirs.conf', tmp_path / 'ours.conf'
    theirs.write_text(OPTIONS.format(tmp_path / 'policies.yaml'))
    ours.write_text(theirs.read_text() + 'objective = kronos\n')
    moves = 0
    for seed in range(SNAPSHOTS):
        snapshot = tmp_path / str(seed)
        write_snapshot(snapshot, seed)
        expected = replay(
            [os.path.join(os.environ['KRONOS_ANCESTOR'], 'kronos-replay')], theirs, snapshot,
            r'spread \S+ \((\w{8})\) (h\d) -> (h\d)')
        found = replay(
            [sys.executable, '-c', 'import sys; from kronos_nova.cmd import replay; '
                                   'sys.exit(replay.main())'], ours, snapshot,
            r'\| (\w{8})-\S{27} \| (h\d) +\| (h\d) ')
        assert [list(move) for move in found] == planner.once(
            [list(move) for move in expected]), seed
        moves += len(found)
    assert moves > 2 * SNAPSHOTS
