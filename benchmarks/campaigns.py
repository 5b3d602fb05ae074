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

    python benchmarks/campaigns.py --traces DIR --days 20110303

carries both campaigns out on the referee's cloud of 60 hosts (see referee.py), while its load goes
on: a step in each five minutes, each planned from the load of that time.
"""

import argparse
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
from kronos_nova.rebalancer.operations import campaign_forecasts
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
    cloud, migrations = campaign_forecasts.SupposedCloud(request), 0
    to_come = sorted(request.cluster.hosts)
    while True:
        stuck = []
        for host in to_come:
            found = campaign_forecasts.empty_hosts(cloud, [host], ())
            if found is None:
                stuck.append(host)
                continue
            cloud, _hosts, plans = found
            migrations += sum(len(plan.moves) for plan, _request in plans)
        if len(stuck) in (0, len(to_come)):
            return migrations, set(stuck)
        to_come = stuck


def compare_orders(spec: clusters.Spec, seed: int, together: int) -> dict[str, Any]:
    request = build_request(spec, seed)
    began = time.process_time()
    forecast = campaign_forecasts.forecast_campaign(request, request.cluster.hosts, together)
    seconds = time.process_time() - began
    naive, stuck = follow_naive_order(request)
    emptied = sum(i.host not in stuck for i in request.cluster.instances.values())
    return {'kind': spec.name, 'seed': seed,
            'ours': round(forecast.migrations / max(1, forecast.instances), 3),
            'naive': round(naive / max(1, emptied), 3), 'ours_stuck': len(forecast.staying),
            'naive_stuck': len(stuck), 'steps': len(forecast.steps), 'seconds': round(seconds, 2)}


class RefereedCampaign:
    """A ``policy`` for the referee that empties all hosts once, beginning after an hour.

    :param naive: by name, one at a time, also onto hosts that are still to come.
    """

    def __init__(self, together: int, naive: bool) -> None:
        self._together, self._naive = together, naive
        self._settings = referee._settings('spread', None, {'max_drain_fraction': 1.0})
        self.to_come: list[str] = []
        self.steps = self.begun_at = self.ended_at = 0
        self.instances = 0

    def __call__(self, state: Any) -> list[tuple[int, int]]:
        cloud = state.mem.setdefault('cloud', referee.Cloud(state, True))
        cluster = cloud.look(state)
        if state.k < 12:
            return []
        now = referee.EPOCH + referee.STEP * state.k
        scores = planning_pipeline.score_policies(
            cluster, cloud.samples(self._settings.policies.enabled_policies), self._settings, now)
        request = planning_pipeline.build_planning_input(
            cluster, scores, model.MoveHistory(), self._settings, now=now, seed=state.k)
        if not self.begun_at:
            self.begun_at, self.instances = state.k, len(cluster.instances)
            self.to_come = sorted(cluster.hosts)
            if not self._naive:
                forecast = campaign_forecasts.forecast_campaign(request, self.to_come,
                                                                self._together)
                ordered = [host for step in forecast.steps for host in step.hosts]
                self.to_come = [*ordered, *(h for h in self.to_come if h not in ordered)]
        supposed = campaign_forecasts.SupposedCloud(request)
        found = (campaign_forecasts.find_step(supposed, self.to_come, self.to_come, self._together)
                 if not self._naive else next((step for host in self.to_come if (
                     step := campaign_forecasts.empty_hosts(supposed, [host], ()))), None)
                 ) if self.to_come else None
        if found is None:
            return []
        _cloud, hosts, plans = found
        self.to_come = [host for host in self.to_come if host not in hosts]
        self.steps, self.ended_at = self.steps + 1, state.k
        return [(int(move.instance_uuid[:8]), int(move.to_host[5:]))
                for plan, _request in plans for move in plan.moves]


def referee_day(directory: pathlib.Path, day: str, together: int) -> dict[str, Any]:
    """Run both campaigns on a day of the referee."""
    sys.path.insert(0, str(directory))
    sim, boot = importlib.import_module('sim'), importlib.import_module('boot')
    row: dict[str, Any] = {'day': day}
    for name, naive in (('ours', False), ('naive', True)):
        trace = sim.Trace.planetlab(str(directory / f'planetlab_{day}.npz'))
        hosts = referee._hosts(sim, 60)
        hosts.ram = np.full(60, 32768.0)
        trace.arrive = np.zeros(len(trace.mips), int)
        policy = RefereedCampaign(together, naive)
        result = sim.simulate(trace, hosts, np.full(len(trace.mips), -1), policy=policy,
                              compat=False, ram=True, placer=boot.nova(16, 1, 1))
        row |= {name: round(result['migrations'] / policy.instances, 3),
                f'{name}_left': len(policy.to_come), f'{name}_steps': policy.steps,
                f'{name}_overload': round(result['real_OTF'], 2)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--together', type=int, default=4)
    parser.add_argument('--hosts', type=int, help='only kinds with at most so many hosts')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--traces', type=pathlib.Path, metavar='DIR',
                        help='the referee and its traces')
    parser.add_argument('--days', nargs='+', default=['20110303'])
    options = parser.parse_args()
    if options.traces is not None:
        for day in options.days:
            print(*(f'{key}={value}' for key, value in referee_day(
                options.traces.resolve(), day, options.together).items()), flush=True)
        return
    rows = []
    for spec in KINDS:
        if options.hosts and spec.hosts > options.hosts:
            continue
        for seed in range(options.seeds if spec.hosts < 100 else max(1, options.seeds // 5)):
            rows.append(compare_orders(spec, seed, options.together))
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
