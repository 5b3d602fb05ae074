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


"""A place for each of many instances at once, when one by one strands somebody.

Depth first: whoever has the fewest hosts left chooses next, of these the one
with the largest claims, and takes the host that it fills most. A choice that
leaves somebody without a host is taken back. Hosts that are alike are tried
once. Bounded by a count, so that the same input gives the same answer.
"""

import numpy as np

from kronos_nova import model
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import replay

#: Placements that are tried, and the largest batch times hosts looked at.
TRIED = 2000
LARGEST = 100_000
#: So many pairs of instance and host that masks judge count as one step.
PER_STEP = 64


def placeable(simulation: sim.Simulation, instances: sim.Ints) -> sim.Ints:
    """Those for whom there is a host now."""
    return instances[_allowed(simulation, instances).any(axis=1)]


def place(simulation: sim.Simulation, instances: sim.Ints) -> list[model.Move] | None:
    """Moves of the phase EVACUATE for all of them, applied; None, and the
    simulation as before, when none were found."""
    if len(instances) * len(simulation.hosts) > LARGEST:
        return None
    search = _Search(simulation)
    return search.moves if search.descend(instances) else None


class _Search:

    def __init__(self, simulation: sim.Simulation) -> None:
        self._simulation = simulation
        self._counted = simulation.room.counted
        self._tried = 0
        self.moves: list[model.Move] = []

    def descend(self, left: sim.Ints) -> bool:
        """Whether all of these have been placed; if not, none of them is."""
        if not left.size:
            return True
        simulation = self._simulation
        allowed = _allowed(simulation, left)
        choices = allowed.sum(axis=1)
        if not choices.min() or self._too_little(left, allowed):
            return False
        share = [self._share(int(n)) for n in left]
        row = min(range(len(left)), key=lambda r: (choices[r], -share[r], left[r]))
        n, others = int(left[row]), np.delete(left, row)
        seen: set[bytes] = set()
        for h in self._fullest_first(n, np.flatnonzero(allowed[row])):
            kind = self._kind(h, allowed)
            if kind in seen:
                continue
            if self._tried >= TRIED or simulation.stop():
                return False
            self._tried += 1
            move = replay.apply(simulation, n, h, model.Phase.EVACUATE)
            if move is None:
                continue
            seen.add(kind)
            self.moves.append(move)
            if self.descend(others):
                return True
            simulation.undo(self.moves.pop())
        return False

    def _too_little(self, left: sim.Ints, allowed: sim.Bools) -> bool:
        """All together do not fit, even if they could be cut in pieces: room
        where none of them fits is of no use."""
        room, counted = self._simulation.room, self._counted
        hosts = np.flatnonzero(allowed.any(axis=0))
        free = np.maximum((room.limit - room.used)[counted][:, hosts], 0.0)
        need = self._simulation.claims[counted][:, left]
        return bool((need.sum(axis=1) > free.sum(axis=1)).any())

    def _share(self, n: int) -> float:
        """Of the largest host, what the instance claims of its scarcest class."""
        most = np.max(self._simulation.room.limit, axis=1, initial=0.0)
        claims = self._simulation.claims[:, n]
        return float(np.divide(claims, most, out=np.zeros(len(claims)), where=most > 0).max(
            initial=0.0))

    def _fullest_first(self, n: int, hosts: sim.Ints) -> list[int]:
        fullest = self._simulation.room.fullest(n, hosts)
        return [int(h) for h in hosts[np.lexsort((hosts, -fullest))]]

    def _kind(self, h: int, allowed: sim.Bools) -> bytes:
        """Equal for hosts with the same room left for the same instances."""
        room = self._simulation.room
        return ((room.limit[:, h] - room.used[:, h]).tobytes()
                + self._simulation.fill[:, h].tobytes() + allowed[:, h].tobytes())


def _allowed(simulation: sim.Simulation, instances: sim.Ints) -> sim.Bools:
    """By masks: instances x hosts of the scope."""
    every = np.arange(len(simulation.hosts), dtype=np.intp)
    simulation.steps += 1 + len(instances) * len(every) // PER_STEP
    allowed = masks.permitted(simulation, instances, every, masks.FILLING)
    if simulation.trusted:
        allowed &= ~simulation.frozen[None, :]
    return allowed
