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

"""Replays a plan on the rules. It knows no planner, and trusts none.

For every move: what it requires has completed; each other move, unless it
waits for this one, counts at both ends. If every rule holds then, it holds in
any order of completion and after any failure.
"""

from collections.abc import Mapping
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import view as views


def check(plan: model.Plan, cluster: model.Cluster, options: model.Options,
          history: model.History, scores: model.Scores | None,
          ceilings: Mapping[str, float], budget: int) -> tuple[model.Rejection, ...]:
    """Everything that is wrong with a plan; empty when nothing is.

    :param cluster: with the plan's scope, as the planner got it.
    """
    found = list(_shape(plan, cluster, budget))
    if found:
        return tuple(found)
    view = views.ClusterView(cluster, options, history, scores, ceilings,
                             draining=plan.draining)
    requires = {m.instance_uuid: _closure(plan, m) for m in plan.moves}
    for move in plan.moves:
        landed = [m for m in plan.moves if m.instance_uuid in requires[move.instance_uuid]]
        flying = [m for m in plan.moves
                  if m is not move and m.instance_uuid not in requires[move.instance_uuid]
                  and move.instance_uuid not in requires[m.instance_uuid]]
        with views.laid(view, landed, flying):
            found += constraints.check_all(view, move)
            for host in move.alternates:
                found += constraints.check_all(view, dataclasses.replace(move, to_host=host))
    return tuple(found)


def _shape(plan: model.Plan, cluster: model.Cluster, budget: int) -> list[model.Rejection]:
    """What must hold before rules can be asked."""
    found = []
    uuids = [m.instance_uuid for m in plan.moves]
    if len(uuids) > budget:
        found.append(model.Rejection('over-budget', f'{len(uuids)} moves, {budget} allowed'))
    for uuid in sorted({u for u in uuids if uuids.count(u) > 1}):
        found.append(model.Rejection('moved-twice', f'instance {uuid} is moved twice'))
    for uuid in uuids:
        if uuid not in cluster.instances:
            found.append(model.Rejection('no-such-instance', f'instance {uuid} is not in Nova'))
    if found:
        return found
    waves = {m.instance_uuid: m.wave for m in plan.moves}
    for move in plan.moves:
        if cluster.instances[move.instance_uuid].host != move.from_host:
            found.append(model.Rejection(
                'moved-away', f'instance {move.instance_uuid} is not on {move.from_host}'))
        for uuid in move.requires:
            if uuid not in waves or waves[uuid] >= move.wave:
                found.append(model.Rejection(
                    'wave-order', f'instance {move.instance_uuid} requires {uuid}, which is in '
                                  'no earlier wave'))
    return found


def _closure(plan: model.Plan, move: model.Move) -> set[str]:
    """All that must have completed before; waves make this finite."""
    by_uuid = {m.instance_uuid: m for m in plan.moves}
    found: set[str] = set()
    pending = list(move.requires)
    while pending:
        uuid = pending.pop()
        if uuid not in found:
            found.add(uuid)
            pending += by_uuid[uuid].requires
    return found
