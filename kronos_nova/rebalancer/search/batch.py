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


"""A placement of many instances at once, for cases where one by one strands an instance.

The search is depth first: the instance with the fewest hosts left chooses next, and among
equals the one with the largest claims; it takes the host that it fills most. A choice that
leaves another instance without a host is taken back. Of equal hosts only one is tried. A
count bounds the search, so that the same input gives the same answer.
"""

from collections.abc import Iterator
import dataclasses

import numpy as np

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import replay

#: Largest number of placements to try, and of instances times hosts.
TRIED = 2000
LARGEST = 100_000
#: Number of pairs of instance and host, judged by masks, that count as one step.
PER_STEP = 64


def list_placeable_instances(simulation: sim.Simulation, instances: sim.Ints) -> sim.Ints:
    """Return the instances that a host can take now."""
    every = np.arange(len(simulation.hosts), dtype=np.intp)
    return instances[may_take(simulation, instances, every).any(axis=1)]


def place_together(simulation: sim.Simulation, instances: sim.Ints) -> list[model.Move] | None:
    """Place all instances in the phase EVACUATE; return the applied moves.

    None, with the simulation unchanged, when no placement was found. If the search then had
    not tried all hosts that may take an instance, it adds a warning to the simulation.
    """
    hosts, some = choose_hosts_to_try(simulation, instances)
    moves, _ = place_on(simulation, instances, hosts, model.Phase.EVACUATE, TRIED)
    if moves is not None:
        return moves
    if len(hosts) < some and not simulation.truncated:
        simulation.warnings.append(
            f'no room for {plurals.count_noun(len(instances), "instance")} together on the '
            f'{len(hosts)} of {some} hosts that the planner tried: it placed each one alone; '
            'disable fewer hosts at once')
    return None


def place_on(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints,
             phase: model.Phase, most: int) -> tuple[list[model.Move] | None, int]:
    """Place all instances on these hosts with at most ``most`` attempts.

    The rules are those of :func:`place_together`.

    :returns: the applied moves or None, and the number of attempts.
    """
    search = _BatchSearch(simulation, instances, hosts, phase, most)
    return (search.moves if search.place_all() else None), search.tried


def choose_hosts_to_try(simulation: sim.Simulation, instances: sim.Ints) -> tuple[sim.Ints, int]:
    """Return the hosts to try, ascending, and the number of hosts to choose from.

    Among equal hosts as many as there are instances are enough: the instances can fill no
    more. If the hosts are still too many, take the fullest host of every instance, then the
    second of every instance, and so on, up to the limit.
    """
    every = np.arange(len(simulation.hosts), dtype=np.intp)
    allowed = may_take(simulation, instances, every)
    counts: dict[bytes, int] = {}
    chosen = []
    for h in np.flatnonzero(allowed.any(axis=0)):
        kind = _build_host_key(simulation, int(h), allowed[:, h].tobytes())
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= len(instances):
            chosen.append(int(h))
    hosts = np.array(chosen, dtype=np.intp)
    width = max(1, LARGEST // max(1, len(instances)))
    if len(hosts) <= width:
        return hosts, len(hosts)
    ranks = np.full(len(hosts), len(hosts), dtype=np.intp)
    for row, n in enumerate(instances):
        own = np.flatnonzero(allowed[row, hosts])
        order = own[_fullest_first(simulation, int(n), hosts[own])]
        ranks[order] = np.minimum(ranks[order], np.arange(len(order)))
    return np.sort(hosts[np.lexsort((hosts, ranks))[:width]]), len(hosts)


@dataclasses.dataclass(slots=True)
class _HostChoice:
    """A choice of a host for one instance, before the ``others`` choose.

    ``alike`` identifies, by host, the instances that it may take now; as bits, for there is
    one choice for each instance. ``tried`` are kinds of hosts that were tried.
    """

    instance: int
    others: sim.Ints
    hosts: Iterator[int]
    alike: dict[int, bytes]
    tried: set[bytes] = dataclasses.field(default_factory=set)


class _BatchSearch:

    def __init__(self, simulation: sim.Simulation, instances: sim.Ints,
                 hosts: sim.Ints, phase: model.Phase, most: int) -> None:
        self._simulation = simulation
        self._instances = instances
        self._hosts = hosts
        self._counted = simulation.room.counted
        self._share = compute_claim_shares(simulation, instances)
        self._phase, self._most = phase, most
        self.tried = 0
        self.moves: list[model.Move] = []

    def place_all(self) -> bool:
        """Place all instances, or none; return whether all have a place.

        It uses a stack and not recursion: there may be more instances than Python lets
        calls be nested.
        """
        choices: list[_HostChoice] = []
        unplaced = np.arange(len(self._instances), dtype=np.intp)
        while unplaced.size:
            choice = self._choose_instance(unplaced)
            if choice is not None:
                choices.append(choice)
            else:
                self._take_back()
            while choices and not self._try_next_host(choices[-1]):
                choices.pop()
                self._take_back()
            if not choices:
                return False
            unplaced = choices[-1].others
        return True

    def _take_back(self) -> None:
        if self.moves:
            self._simulation.undo_move(self.moves.pop())

    def _choose_instance(self, unplaced: sim.Ints) -> _HostChoice | None:
        """Return the choice of the instance with the fewest hosts; None: not all can be placed.

        :param left: positions in ``instances``.
        """
        numbers = self._instances[unplaced]
        allowed = may_take(self._simulation, numbers, self._hosts, self._phase)
        count = allowed.sum(axis=1)
        if not count.min() or self._too_little(numbers, allowed):
            return None
        row = int(np.lexsort((numbers, -self._share[unplaced], count))[0])
        columns = np.flatnonzero(allowed[row])
        columns = columns[_fullest_first(
            self._simulation, int(numbers[row]), self._hosts[columns])]
        bits = np.packbits(allowed[:, columns], axis=0)
        hosts = [int(h) for h in self._hosts[columns]]
        return _HostChoice(int(numbers[row]), np.delete(unplaced, row), iter(hosts),
                           {h: bits[:, c].tobytes() for c, h in enumerate(hosts)})

    def _try_next_host(self, choice: _HostChoice) -> bool:
        """Move the instance to its next host; return whether one was left."""
        simulation = self._simulation
        for h in choice.hosts:
            kind = _build_host_key(simulation, h, choice.alike[h])
            if kind in choice.tried:
                continue
            if self.tried >= self._most or simulation.is_cut_off():
                return False
            self.tried += 1
            move = replay.apply_move(simulation, choice.instance, h, self._phase)
            if move is not None:
                choice.tried.add(kind)
                self.moves.append(move)
                return True
        return False

    def _too_little(self, numbers: sim.Ints, allowed: sim.Bools) -> bool:
        """Return whether the free room is too small even for divided instances.

        Room on hosts that can take no instance does not count.
        """
        room, counted = self._simulation.room, self._counted
        hosts = self._hosts[allowed.any(axis=0)]
        free = np.maximum((room.limit - room.used)[counted][:, hosts], 0.0)
        need = self._simulation.claims[counted][:, numbers]
        return bool((need.sum(axis=1) > free.sum(axis=1)).any())


def compute_claim_shares(simulation: sim.Simulation, instances: sim.Ints) -> sim.Floats:
    """Return each instance's claim of its scarcest class, as a share of the largest host."""
    most = np.max(simulation.room.limit, axis=1, initial=0.0)[:, None]
    claims = simulation.claims[:, instances]
    ratio = np.divide(claims, most, out=np.zeros(claims.shape), where=most > 0)
    return np.asarray(ratio.max(axis=0, initial=0.0))


def _fullest_first(simulation: sim.Simulation, n: int, hosts: sim.Ints) -> sim.Ints:
    """Return positions in ``hosts``, the fullest host first."""
    return np.asarray(np.lexsort((hosts, -simulation.room.compute_fullest(n, hosts))))


def _build_host_key(simulation: sim.Simulation, h: int, alike: bytes) -> bytes:
    """Return a key that is equal for hosts with the same room left for the same instances.

    :param alike: the instances that the host may take, as bits.
    """
    room = simulation.room
    return ((room.limit[:, h] - room.used[:, h]).tobytes()
            + simulation.fill[:, h].tobytes() + alike)


def may_take(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints,
             phase: model.Phase = model.Phase.EVACUATE) -> sim.Bools:
    """Return which hosts the masks permit to which instances: instances x hosts."""
    simulation.steps += 1 + len(instances) * len(hosts) // PER_STEP
    allowed = masks.mark_permitted(simulation, instances, hosts,
                                   masks.choose_filling_masks(phase))
    if simulation.trusted:
        allowed &= ~simulation.frozen[hosts][None, :]
    return allowed
