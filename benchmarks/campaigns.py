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
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any

from benchmarks import clusters
from kronos_nova import model
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.planning import planner
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--together', type=int, default=4)
    parser.add_argument('--hosts', type=int, help='only kinds with at most so many hosts')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
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
