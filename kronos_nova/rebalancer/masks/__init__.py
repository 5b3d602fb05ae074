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

"""Vectorised pre-checks of rules: quick refusals for many candidates at once.

A mask may permit too much, never too little: the scalar rule still judges every chosen candidate. A
property test holds mask >= legal for each.
"""

from collections.abc import Callable
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.constraints import service_state
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.masks import ceilings
from kronos_nova.rebalancer.masks import claims
from kronos_nova.rebalancer.masks import domains
from kronos_nova.rebalancer.masks import groups
from kronos_nova.rebalancer.masks import hosts

Mask = Callable[[sim.Simulation, sim.Ints, sim.Ints], sim.Bools]

#: Arrays only.
QUICK: tuple[Mask, ...] = (
    hosts.mark_receiving, hosts.mark_reachable, hosts.mark_compatible, hosts.mark_unrefused,
    claims.mark_room, groups.mark_still_groups)
#: For the phase spread: the quick masks, and those that look at each grouped instance.
MASKS: tuple[Mask, ...] = (*QUICK, groups.mark_hard_groups, domains.mark_spread_kept)
#: For drains and requested moves: they stay below the ceilings, and may worsen a spread.
FILLING: tuple[Mask, ...] = (*QUICK, groups.mark_hard_groups, ceilings.mark_below_ceilings)
#: For packing and repairs.
KEEPING: tuple[Mask, ...] = (*FILLING, domains.mark_spread_kept)


def choose_filling_masks(phase: model.Phase) -> tuple[Mask, ...]:
    """Return the masks of moves that fill hosts up to their ceilings."""
    return FILLING if phase in service_state.LEAVING else KEEPING


def mark_permitted(simulation: sim.Simulation, instances: sim.Ints, to_hosts: sim.Ints,
                   which: Sequence[Mask] = MASKS) -> sim.Bools:
    """Mark the candidates that no mask forbids: shape (instances, hosts)."""
    allowed = which[0](simulation, instances, to_hosts)
    for mask in which[1:]:
        allowed &= mask(simulation, instances, to_hosts)
    return allowed
