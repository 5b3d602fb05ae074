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

"""Failover certificates: how long they take, and how often their verdicts are wrong.

    python benchmarks/failover.py
    python benchmarks/failover.py --cpsat 10000 --cpu 1

The first form certifies the failure of each host of a large cloud: for the first time, again
without a change, and again after so many instances were moved. The second one asks CP-SAT the same
about each host of so many small clouds, and the checker about each place. It needs a Python in
which ``ortools`` is installed.
"""

import argparse
import dataclasses
import gc
import os
import random
import time
from typing import Any

import clusters
import planner as planner_benchmark

from kronos_nova import model
from kronos_nova.rebalancer import failover_checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import failover_reserve
from kronos_nova.rebalancer.planning import planner

#: Seconds for one question to CP-SAT.
LIMIT = 60.0
#: CP-SAT counts in whole numbers: parts of a full host.
SCALE = 10**9


def change(request: planner.PlanningInput, count: int, seed: int) -> planner.PlanningInput:
    """Move instances to other hosts, as if Nova had been read again."""
    rng = random.Random(seed)
    instances, hosts = dict(request.cluster.instances), dict(request.cluster.hosts)
    names = sorted(hosts)
    for uuid in rng.sample(sorted(instances), count):
        instance, to_host = instances[uuid], rng.choice(names)
        for host, sign in ((instance.host, -1), (to_host, 1)):
            provider = hosts[host].provider
            assert provider is not None
            used = {name: amount + sign * instance.claims.get(name, 0)
                    for name, amount in provider.used.items()}
            hosts[host] = dataclasses.replace(hosts[host], provider=dataclasses.replace(
                provider, used=used, generation=provider.generation + 1))
        instances[uuid] = dataclasses.replace(instance, host=to_host)
    return dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=instances, hosts=hosts))


def measure(hosts: int, instances: int, room: float, changes: int) -> None:
    case = clusters.build(clusters.Spec('large', hosts, instances, grouped=0.1, room=room), 1)
    request = planner_benchmark.request(case, 0)
    certificate = None
    for name, now in (('first', request), ('unchanged', request),
                      (f'after {changes} changes', change(request, changes, 2))):
        gc.collect()
        began, used = time.perf_counter(), time.process_time()
        certificate = failover.certify_failures(
            now, failover.list_failures(now.cluster, 1), certificate)
        cpu, wall = time.process_time() - used, time.perf_counter() - began
        states = {str(state): len(certificate.list_verdicts(state))
                  for state in failover.FailureState}
        print(f'{hosts:,} x {instances:,}, room {room}: {name}: {cpu:.2f} s of processor time '
              f'({wall:.2f} s), {states}, {certificate.kept:,} kept', flush=True)
        print_reserve(certificate)


def print_reserve(certificate: failover.FailoverCertificate) -> None:
    """Print how much boots leave free, beside the claims of the fullest host."""
    used = time.process_time()
    reserve = failover_reserve.compute_reserve(certificate)
    limits = failover_reserve.compute_boot_limits(certificate)
    cpu, cluster = time.process_time() - used, certificate.request.cluster
    for name in (failover_reserve.VCPU, failover_reserve.MEMORY):
        capacity = sum(h.sum_capacities().get(name, 0.0) for h in cluster.hosts.values())
        most = max(h.provider.used[name] for h in cluster.hosts.values() if h.provider)
        kept = sum(amounts.get(name, 0) for amounts in reserve.values())
        print(f'{len(limits):,} hosts keep {kept / capacity:.1%} of all {name}, {kept / most:.2f} '
              f'times the claims of the fullest host ({cpu:.2f} s)', flush=True)


def small(seed: int) -> planner.PlanningInput:
    """Return a small cloud, tight or roomy."""
    rng = random.Random(seed)
    spec = clusters.Spec(
        'small', rng.randint(3, 8), rng.randint(10, 60), mixed=rng.random() < 0.5,
        grouped=rng.choice((0.0, 0.3)), room=rng.choice((1.05, 1.15, 1.25, 1.4, 1.8)),
        hot=rng.choice((0.0, 0.3)))
    request = planner_benchmark.request(clusters.build(spec, seed), 0)
    return dataclasses.replace(request, options=dataclasses.replace(
        request.options, enforce_placement_disk=None))


def solve(request: planner.PlanningInput, host: str) -> bool | None:
    """Ask CP-SAT whether the instances of the host have places; None: it found no answer."""
    from ortools.sat.python import cp_model

    cluster, asked = request.cluster, cp_model.CpModel()
    others = sorted(cluster.scope_hosts - {host})
    here = [i for i in cluster.instances.values() if i.host == host]
    on: dict[tuple[str, str], Any] = {
        (i.uuid, h): asked.new_bool_var('') for i in here for h in others}
    for i in here:
        asked.add_exactly_one(on[i.uuid, h] for h in others)
    for h in others:
        provider = cluster.hosts[h].provider
        assert provider is not None
        for name, inventory in provider.inventories.items():
            asked.add(sum(i.claims[name] * on[i.uuid, h] for i in here)
                      <= max(0, int(inventory.capacity) - provider.used[name]))
        for scores in request.scores.policies.values():
            if scores.fill[h] > 1.0:
                asked.add(sum(on[i.uuid, h] for i in here) == 0)
                continue
            # Rounded in favour of the cloud: a false "safe" is one beyond any rounding.
            asked.add(sum(int(scores.usages[i.uuid] / scores.capacity[h] * SCALE) * on[i.uuid, h]
                          for i in here) <= int((1.0 - scores.fill[h]) * SCALE) + len(here) + 1)
        for group in cluster.groups:
            mine = [i for i in here if i.uuid in group.members]
            if mine and group.policy is model.GroupPolicy.ANTI_AFFINITY:
                there = sum(cluster.instances[u].host == h for u in group.members)
                asked.add(sum(on[i.uuid, h] for i in mine)
                          <= max(0, group.max_server_per_host - there))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = LIMIT
    status = solver.solve(asked)
    if status == cp_model.INFEASIBLE:
        return False
    return True if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


def compare(count: int, first: int) -> None:
    """Print how often a verdict and CP-SAT differ."""
    asked = safe = false_safe = false_unsafe = proven = false_proofs = faults = unsolved = 0
    for seed in range(first, first + count):
        request = small(seed)
        certificate = failover.certify_failures(
            request, failover.list_failures(request.cluster, 1))
        faults += sum(map(len, failover_checker.check_places(
            {v.hosts: v.places for v in certificate.list_verdicts(failover.FailureState.SAFE)},
            request.cluster, request.options, request.history, request.scores,
            sim.compute_ceilings(request.policies, request.options)).values()))
        for verdict in certificate.verdicts.values():
            answer = solve(request, verdict.hosts[0])
            if answer is None:
                unsolved += 1
                continue
            ours = verdict.state is failover.FailureState.SAFE
            asked, safe, proven = asked + 1, safe + answer, proven + verdict.proven
            false_safe += ours and not answer
            false_unsafe += answer and not ours
            false_proofs += verdict.proven and answer
        if (seed - first) % 500 == 499 or seed == first + count - 1:
            print(f'{seed - first + 1:,} clouds, {asked:,} hosts, {safe:,} safe by CP-SAT '
                  f'({unsolved} without an answer): {false_safe} false safe, {false_unsafe} false '
                  f'unsafe ({false_unsafe / max(1, safe):.2%} of the safe), {false_proofs} of '
                  f'{proven:,} proofs wrong, {faults} faults found by the checker', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--hosts', type=int, default=1800)
    parser.add_argument('--instances', type=int, default=48000)
    parser.add_argument('--room', type=float, default=1.3)
    parser.add_argument('--changes', type=int, default=100)
    parser.add_argument('--cpsat', type=int, metavar='CLOUDS')
    parser.add_argument('--first', type=int, default=0, help='the first seed of --cpsat')
    parser.add_argument('--cpu', type=int, help='run on this processor alone')
    arguments = parser.parse_args()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    if arguments.cpsat:
        compare(arguments.cpsat, arguments.first)
    else:
        measure(arguments.hosts, arguments.instances, arguments.room, arguments.changes)


if __name__ == '__main__':
    main()
