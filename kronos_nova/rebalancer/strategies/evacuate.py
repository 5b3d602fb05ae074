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

"""Evacuate: move everything off hosts that an operator disabled.

What runs or is paused is live-migrated; what is stopped is migrated cold, if
that is allowed. What cannot be moved is named with the reason.
"""

import re

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import chain
from kronos_nova.rebalancer.strategies import base

#: libvirt and Nova disable hosts by themselves with this prefix: no order
#: to drain.
AUTOMATIC = 'AUTO:'
#: They end by themselves: a later cycle drains the instance.
PASSING = frozenset({'cooling', 'in-flight', 'group-in-flight'})


def drained_hosts(cluster: model.Cluster, options: model.Options) -> list[str]:
    """Hosts of the scope to drain: disabled, up, and disabled for a reason
    that ``drain_reason_regex`` matches."""
    pattern = re.compile(options.drain_reason_regex)
    found = []
    for host in sorted(cluster.scope_hosts):
        service = cluster.services.get(host)
        reason = (service.disabled_reason or '') if service else ''
        if (service is not None and service.up and not service.enabled
                and not reason.startswith(AUTOMATIC) and pattern.search(reason)):
            found.append(host)
    return found


class Evacuate(base.Strategy):
    """Fewest instances first, so that hosts become free one after another."""

    continues = True

    def enabled(self, options: model.Options, policy_set: policies.PolicySet) -> bool:
        return options.evacuate_disabled_hosts

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        hosts = drained_hosts(simulation.cluster, simulation.options)
        if simulation.history.scope_cooling > 0:
            hosts = [h for h in hosts if h in simulation.history.draining]
        for host in hosts:
            simulation.drain(host)
        moves: list[model.Move] = []
        for host in sorted(hosts, key=lambda h: (len(simulation.on_host(h)), h)):
            self._empty(simulation, host, budget, moves)
        if not hosts:
            simulation.notes.append('no disabled host to drain')
        return moves

    def _empty(self, simulation: sim.Simulation, host: str, budget: int,
               moves: list[model.Move]) -> None:
        """Largest claims first: they fit the fewest hosts. Where nothing has
        room, somebody else makes room."""
        numbers = sorted(simulation.on_host(host), key=lambda n: (-simulation.cost[n], n))
        for n in numbers:
            if len(moves) >= budget or simulation.stop():
                break
            move = (base.best_place(simulation, np.array([n]), model.Phase.EVACUATE)
                    if simulation.drainable[n] else None)
            if move is not None:
                simulation.apply(move)
                moves.append(move)
            elif simulation.truncated:
                break  # nothing is known against it
            elif not (simulation.drainable[n]
                      and chain.make_room(simulation, int(n), moves, budget - len(moves))):
                self._blocked(simulation, int(n))

    def _blocked(self, simulation: sim.Simulation, n: int) -> None:
        """Tell what keeps the host from becoming empty."""
        uuid, host = simulation.uuids[n], simulation.hosts[simulation.place[n]]
        if _under_way(simulation, uuid):
            return
        probe = model.Move(uuid, host, '', model.Phase.EVACUATE)
        own = constraints.check_alone(simulation.view, probe)
        if own is not None:
            if own.rule not in PASSING:
                simulation.warnings.append(f'host {host} is disabled and not drained, because '
                                           f'{own.detail} ({own.rule})')
            return
        rows, columns = base.representatives(
            simulation, np.array([n]), np.arange(len(simulation.hosts)))
        moves = [simulation.move(n, int(h), model.Phase.EVACUATE) for h in columns]
        reasons = {no.rule for move in moves
                   if (no := constraints.check(simulation.view, move)) is not None}
        if reasons & PASSING:
            return
        why = ', '.join(sorted(reasons)) or 'the scope has no other host'
        simulation.warnings.append(
            f'host {host} is disabled and not drained, because no host may take instance {uuid} '
            f'({why})')


def _under_way(simulation: sim.Simulation, uuid: str) -> bool:
    """It is leaving, or on its way. A resize that its owner has not confirmed
    may stay so for days: that is told."""
    if not simulation.view.in_flight(uuid):
        return False
    return (simulation.cluster.instances[uuid].status != statuses.UNCONFIRMED
            or any(f.instance_uuid == uuid and f.source == 'task'
                   for f in simulation.cluster.flights))
