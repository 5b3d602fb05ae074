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


"""Amounts by which a rule refuses a move, and margins by which it allows one. Pure.

Only rules that count something have them. A rule's ``codes`` have the changes that would help.
"""

from collections.abc import Mapping
import math

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim


def format_shortfalls(simulation: sim.Simulation, move: model.Move) -> Mapping[str, str]:
    """Return the amounts that are lacking or too much, by rule; only rules with such an amount."""
    amounts = {'no-room': _format_missing_claims(simulation, move),
               'ceiling': _format_excess_fill(simulation, move),
               'anti-affinity': _format_excess_members(simulation, move)}
    return {rule: text for rule, text in amounts.items() if text}


def format_margins(simulation: sim.Simulation, move: model.Move) -> Mapping[str, str]:
    """Return the use of each limit after the move, and the limit, by rule."""
    margins = {'claims': _format_used_claims(simulation, move),
               'anti-affinity': _format_group_members(simulation, move, True),
               'affinity': _format_group_members(simulation, move, False)}
    return {rule: text for rule, text in margins.items() if text}


def compute_shortage(simulation: sim.Simulation, uuid: str, host: str) -> dict[str, int]:
    """Return by resource class the part of the instance's claims that the host has no room for."""
    room = simulation.cluster.hosts[host].sum_capacities()
    shortage = {}
    for name, amount in simulation.cluster.instances[uuid].claims.items():
        # Below zero where a ratio was lowered: that amount must be freed first.
        free = room.get(name, 0.0) - simulation.view.sum_allocated(host, name)
        if free < amount:
            shortage[name] = math.ceil(amount - free)
    return shortage


def _format_missing_claims(simulation: sim.Simulation, move: model.Move) -> str:
    if move.to_host not in simulation.cluster.hosts:
        return ''
    return ', '.join(f'{amount} {name}' for name, amount in sorted(
        compute_shortage(simulation, move.instance_uuid, move.to_host).items()))


def _format_excess_fill(simulation: sim.Simulation, move: model.Move) -> str:
    source = (simulation.view.map_known_fills(move.from_host)
              if move.phase is model.Phase.SPREAD else {})
    return ', '.join(
        f'{fill - limit:.4f} of {name}' for name, (fill, ceiling) in
        simulation.view.map_projected_fills(move).items()
        if fill > (limit := max(ceiling, source.get(name, ceiling))) + metrics.ROUNDING)


def _format_excess_members(simulation: sim.Simulation, move: model.Move) -> str:
    excesses = []
    for group in simulation.view.list_groups_of(move.instance_uuid):
        here = sorted(set(simulation.view.list_members_on(group, move.to_host))
                      - {move.instance_uuid})
        too_many = len(here) + 1 - group.max_server_per_host
        if group.policy is model.GroupPolicy.ANTI_AFFINITY and too_many > 0:
            excesses.append(f'{too_many} of {", ".join(here)}')
    return '; '.join(excesses)


def _format_used_claims(simulation: sim.Simulation, move: model.Move) -> str:
    host = simulation.cluster.hosts.get(move.to_host)
    if host is None or host.provider is None:
        return ''
    room = host.sum_capacities()
    return ', '.join(
        f'{simulation.view.sum_allocated(move.to_host, name) + amount:.0f} of '
        f'{room[name]:.0f} {name}'
        for name, amount in sorted(simulation.cluster.instances[move.instance_uuid].claims.items())
        if amount and name in room)


def _format_group_members(simulation: sim.Simulation, move: model.Move, apart: bool) -> str:
    member_counts = []
    for group in simulation.view.list_groups_of(move.instance_uuid):
        here = len(set(simulation.view.list_members_on(group, move.to_host)) - {move.instance_uuid})
        if apart and group.policy is model.GroupPolicy.ANTI_AFFINITY:
            member_counts.append(
                f'{here + 1} of {group.max_server_per_host} members of {group.uuid}')
        elif not apart and group.policy is model.GroupPolicy.AFFINITY:
            member_counts.append(f'{here} other members of {group.uuid} are there')
    return '; '.join(member_counts)
