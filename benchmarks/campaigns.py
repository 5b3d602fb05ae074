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

"""Migrations of a campaign over every host of a cloud, beside the naive order.

The naive order drains the hosts by name, one at a time, and its instances go where a drain sends
them today: also onto hosts that are still to come::

    python benchmarks/campaigns.py --seeds 10 --json

Prints the migrations of both for each instance of the hosts that became empty, the hosts that did
not, the number of our steps, and our processor seconds.

``--traces DIR`` takes the clouds of the trace referee (:mod:`benchmarks.referee`) instead: 60 hosts
that our planner has spread since the begin of the day, at some hours of it. Beside them stands how
many hosts the policies' ceilings and the memory would let be empty, if instances could be divided:
with fewer than one no host can be emptied, whatever the order::

    python benchmarks/campaigns.py --traces DIR --days 20110303 --at 1 3

``--size`` makes one forecast for a large cloud, over its first hosts::

    python benchmarks/campaigns.py --size 1800 48600 1.25 --first 200 --together 8
"""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import importlib
import json
import pathlib
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks import clusters
from benchmarks import referee
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate

#: ``room``: how much more a host can hold than is claimed on it, so 1.25 is a cloud of 80 %.
KINDS = (
    clusters.Spec('half full', hosts=16, instances=300, room=2.0),
    clusters.Spec('80 % full', hosts=16, instances=300, room=1.25),
    clusters.Spec('80 % full, groups', hosts=16, instances=300, room=1.25, grouped=0.3),
    clusters.Spec('90 % full, mixed', hosts=24, instances=600, room=1.11, mixed=True),
    clusters.Spec('80 % full, 100 hosts', hosts=100, instances=2400, room=1.25),
)


def build_request(spec: clusters.Spec, seed: int) -> planner.PlanningInput:
    case = clusters.build(spec, seed)
    return planner.PlanningInput(
        case.cluster, case.scores, case.policies, [evacuate.Evacuate()], model.MoveHistory(),
        model.PlanningOptions(), budget=1)


def follow_naive_order(request: planner.PlanningInput) -> tuple[int, set[str]]:
    """Return the migrations, and the hosts that did not become empty, also when tried again."""
    cloud, migrations = supposed_clouds.SupposedCloud(request), 0
    to_come = sorted(request.cluster.hosts)
    while True:
        stuck = []
        for host in to_come:
            found = supposed_clouds.empty_hosts(cloud, [host], ())
            if found is None:
                stuck.append(host)
                continue
            cloud, _hosts, plans = found
            migrations += sum(len(plan.moves) for plan, _request in plans)
        if len(stuck) in (0, len(to_come)):
            return migrations, set(stuck)
        to_come = stuck


def compare_orders(request: planner.PlanningInput, together: int) -> dict[str, Any]:
    began = time.process_time()
    forecast = campaign_forecasts.forecast_campaign(request, request.cluster.hosts, together)
    seconds = time.process_time() - began
    naive, stuck = follow_naive_order(request)
    emptied = sum(i.host not in stuck for i in request.cluster.instances.values())
    return {'ours': round(forecast.migrations / max(1, forecast.instances), 3),
            'naive': round(naive / max(1, emptied), 3), 'ours_stuck': len(forecast.staying),
            'naive_stuck': len(stuck), 'steps': len(forecast.steps), 'seconds': round(seconds, 2)}


def forecast_first_hosts(spec: clusters.Spec, hosts: int, together: int, seconds: float,
                         mode: str) -> dict[str, Any]:
    """Forecast a campaign over some hosts of a large cloud, for so much processor time.

    :param mode: [engine] failover.
    """
    request = build_request(spec, 0)
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, failover=model.FailoverMode(mode)))
    ends_at = time.process_time() + seconds
    began = time.process_time()
    forecast = campaign_forecasts.forecast_campaign(
        request, sorted(request.cluster.hosts)[:hosts], together,
        expired=lambda: time.process_time() >= ends_at)
    return {'hosts': spec.hosts, 'instances': spec.instances, 'room': spec.room, 'failover': mode,
            'to come': hosts, 'emptied': sum(len(step.hosts) for step in forecast.steps),
            'staying': len(forecast.staying), 'not forecast': len(forecast.unforecast),
            'steps': len(forecast.steps), 'seconds': round(time.process_time() - began, 1),
            'ours': round(forecast.migrations / max(1, forecast.instances), 3)}


def read_referee_requests(traces: pathlib.Path, day: str,
                          hours: list[float]) -> Iterator[tuple[float, planner.PlanningInput]]:
    """Yield the cloud of the referee at some hours of a day, spread by our planner until then."""
    sys.path.insert(0, str(traces))
    sys.dont_write_bytecode = True
    rules, boot = importlib.import_module('sim'), importlib.import_module('boot')
    trace = rules.Trace.planetlab(str(traces / f'planetlab_{day}.npz'))
    hosts = rules.Hosts.planetlab(60)
    hosts.ram = np.full(60, 32768.0)
    trace.arrive = np.zeros(len(trace.mips), int)
    settings, ours = referee.build_settings('spread', None, {}), referee.make_policy('spread')
    steps, found = {round(hour * 3600 / referee.STEP): hour for hour in hours}, {}

    def follow_planner(state: Any) -> list[tuple[int, int]]:
        moves = ours(state)
        if state.k in steps:
            found[steps[state.k]] = _build_referee_request(state, settings)
        return moves

    rules.simulate(trace, hosts, np.full(len(trace.mips), -1), policy=follow_planner, compat=False,
                   ram=True, placer=boot.nova(16, 1, 1), steps=max(steps) + 2)
    yield from found.items()


def _build_referee_request(state: Any,
                           settings: planning_pipeline.PassSettings) -> planner.PlanningInput:
    cluster = state.mem['cloud'].look(state)
    now = referee.EPOCH + referee.STEP * state.k
    scores = planning_pipeline.score_policies(
        cluster, state.mem['cloud'].samples(settings.policies.enabled_policies), settings, now)
    return dataclasses.replace(planning_pipeline.build_planning_input(
        cluster, scores, model.MoveHistory(), settings, now=now),
        strategies=[evacuate.Evacuate()], budget=1)


def bound_empty_hosts(request: planner.PlanningInput) -> dict[str, float]:
    """Return how many hosts could be empty at once, by policy, and by resource class.

    Instances count as if they could be divided, and the hosts that stay take as much as ceilings
    and inventories allow: no order of a campaign has more hosts empty at a time. The load of a host
    that no instance explains stays where it is.
    """
    ceilings = sim.compute_ceilings(request.policies, request.options)
    bounds = {}
    for name, scores in request.scores.policies.items():
        if name in ceilings:
            load = sum(scores.fill[host] * scores.capacity[host] for host in scores.fill)
            bounds[name] = _count_spare_hosts(load, {
                host: ceilings[name] * scores.capacity[host] for host in scores.fill})
    hosts = {name: host.provider for name, host in request.cluster.hosts.items()
             if host.provider is not None}
    for name in sorted({name for p in hosts.values() for name in p.inventories}):
        bounds[name] = _count_spare_hosts(
            sum(p.used.get(name, 0) for p in hosts.values()),
            {host: p.inventories[name].capacity for host, p in hosts.items()
             if name in p.inventories})
    return bounds


def _count_spare_hosts(load: float, room: Mapping[str, float]) -> float:
    """Return how many hosts, the smallest first, the load could do without."""
    left, count = sum(room.values()) - load, 0.0
    for amount in sorted(room.values()):
        if amount > left:
            return round(count + max(0.0, left) / amount, 2)
        left, count = left - amount, count + 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--together', type=int, default=4)
    parser.add_argument('--hosts', type=int, help='only kinds with at most so many hosts')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--traces', type=pathlib.Path, metavar='DIR', help='of the referee')
    parser.add_argument('--days', nargs='+', default=['20110303'], help='of the traces')
    parser.add_argument('--at', nargs='+', type=float, default=[2.0, 5.0], metavar='HOUR')
    parser.add_argument('--size', nargs=3, type=float, metavar=('HOSTS', 'INSTANCES', 'ROOM'),
                        help='one forecast, for such a cloud')
    parser.add_argument('--first', type=int, default=200, metavar='N',
                        help='with --size: the campaign is over the first N hosts')
    parser.add_argument('--max-seconds', type=float, default=600.0, help='with --size')
    parser.add_argument('--failover', choices=('off', 'enforce'), default='off',
                        help='with --size: [engine] failover')
    options = parser.parse_args()
    if options.size:
        hosts, instances, room = options.size
        print(json.dumps(forecast_first_hosts(
            clusters.Spec('one size', int(hosts), int(instances), room=room), options.first,
            options.together, options.max_seconds, options.failover)))
        return
    if options.traces:
        for day in options.days:
            for hour, request in read_referee_requests(options.traces, day, options.at):
                print(json.dumps({'day': day, 'hour': hour, **compare_orders(
                    request, options.together), 'spare': bound_empty_hosts(request)}), flush=True)
        return
    rows = []
    for spec in KINDS:
        if options.hosts and spec.hosts > options.hosts:
            continue
        for seed in range(options.seeds if spec.hosts < 100 else max(1, options.seeds // 5)):
            rows.append({'kind': spec.name, 'seed': seed, **compare_orders(
                build_request(spec, seed), options.together)})
            if not options.json:
                print(*(f'{key}={value}' for key, value in rows[-1].items()), flush=True)
    if options.json:
        json.dump(rows, sys.stdout)
        print()
        return
    for spec in KINDS:
        mine = [row for row in rows if row['kind'] == spec.name]
        if mine:
            print(f'{spec.name}:', *(
                f'{key} {statistics.mean(row[key] for row in mine):.3f}'
                for key in ('ours', 'naive', 'ours_stuck', 'naive_stuck', 'steps', 'seconds')))


if __name__ == '__main__':
    main()
