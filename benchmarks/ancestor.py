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


"""Kronos 0.2.0 planned as an outside program: JSON in, JSON out.

Run by a Python in which ``kronos-openstack`` is installed; ours need not be.
It is fed what its own collector would have: host scores as ratios, and each
instance's usage as a ratio of the host that it is on.
"""

import json
import sys
import time
import types

from kronos.clients.nova import ComputeService
from kronos.engine import constraints
from kronos.engine import evacuator
from kronos.engine import placement
from kronos.engine import planner
from kronos.engine.types import HostScore
from kronos.engine.types import PolicyResult
from kronos.engine.types import VmProfile
from kronos.policies.models import PolicyConfig
from kronos.policies.models import PolicyMode


def _headroom(row):
    """What its placement gate asks of a provider snapshot."""
    return types.SimpleNamespace(headroom=lambda name: float(row.get(name, 0.0)))


def main():
    case = json.load(sys.stdin)
    checker = constraints.ConstraintChecker(
        types.SimpleNamespace(list_server_groups=lambda: case['groups']))
    services = {h: ComputeService(host=h, binary='nova-compute', state='up', status=status)
                for h, status in case['services'].items()}
    checker.set_services(services)
    gate = placement.PlacementGate(enabled=True)
    gate.set_snapshots({h: _headroom(row) for h, row in case['room'].items()})
    gate.set_flavors({u: placement.FlavorFootprint(**row) for u, row in case['flavors'].items()})
    checker.set_placement_gate(gate)
    policies = [PolicyConfig(mode='spread', imbalance_query='q', **row)
                for row in case['policies']]
    profiles = {u: VmProfile(u, u, row['host'], weights=row['weights'])
                for u, row in case['instances'].items()}
    scores = {p: dict(row) for p, row in case['scores'].items()}
    on = {}
    for profile in profiles.values():
        on.setdefault(profile.host, []).append(profile)
    started, used = time.perf_counter(), time.process_time()
    budget, steps = case['budget'], []
    if case['drains']:
        drain = evacuator.Evacuator(checker, enabled=True)
        plan, scores, on, budget = drain.evacuate(
            'scope', list(services), policies, scores, on, profiles, services, budget)
        steps += plan.steps
    results = [PolicyResult(p.name, PolicyMode.SPREAD, [HostScore(h, s, s) for h, s in
                                                       scores[p.name].items()],
                            0.0, True, None, 0.0) for p in policies]
    if not case['drains']:
        steps += planner.Planner(checker).plan('scope', policies, results, profiles,
                                               scores=scores, vms_by_host=on,
                                               budget=budget).steps
    json.dump({'seconds': time.perf_counter() - started,
               'cpu_seconds': time.process_time() - used,
               'moves': [[s.instance_uuid, s.from_host, s.to_host] for s in steps]}, sys.stdout)


if __name__ == '__main__':
    main()
