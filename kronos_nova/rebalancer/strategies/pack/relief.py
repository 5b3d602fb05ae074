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

"""Relief: hosts above their limit give, the worst first.

One instance that ends the excess is better than several. Among such instances the best is
the one that leaves both ends lowest, where a migration that copies less memory is worth
some height: it is over sooner, and the host is overfull until then.
"""

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.strategies.pack import fill_forecast as outlooks

#: Number of instances of a host to try, the largest first.
RANKED = 20
#: Destinations to try per instance before the next kind of host.
TRIED = 50
#: Weight of copying the largest memory on the host, in levels.
MEMORY = 0.5
#: Highest foreseen peak of a host in use, in levels, before an empty host is used:
#: most peaks do not come, and a later plan must empty that host again.
PEAK = 1.12


def relieve_hosts(outlook: outlooks.FillForecast, budget: int) -> list[model.Move]:
    """Apply moves off hosts above their limit; warn of each host that cannot be relieved."""
    simulation = outlook.simulation
    moves: list[model.Move] = []
    stuck: set[int] = set()
    over = {h: _compute_max_excess(outlook, h) for h in np.flatnonzero(simulation.givers).tolist()}
    while len(moves) < budget and not simulation.is_cut_off():
        excess, h = max(((e, -h) for h, e in over.items() if h not in stuck),
                        default=(0.0, 0))
        h = -h
        if excess <= metrics.ROUNDING:
            break
        move = _find_relief_move(outlook, h)
        if move is None and simulation.truncated:
            break  # the search was cut short, so a legal move may exist
        if move is None:
            stuck.add(h)
            simulation.warnings.append(
                f'host {simulation.hosts[h]} is over its ceiling by {excess:.2f} and no '
                'instance on it has a legal destination')
            continue
        moves.append(outlook.apply_move(move))
        for end in (h, simulation.host_index[move.to_host]):
            if end in over:
                over[end] = _compute_max_excess(outlook, end)
    return moves


def _compute_max_excess(outlook: outlooks.FillForecast, h: int) -> float:
    return float(outlook.compute_excess(h).max())


def _find_relief_move(outlook: outlooks.FillForecast, h: int) -> model.Move | None:
    simulation = outlook.simulation
    excess = outlook.compute_excess(h)
    hot = excess > metrics.ROUNDING
    numbers = [int(n) for n in simulation.list_on_host(simulation.hosts[h])
               if simulation.movable[n] and simulation.profiled[n]
               and outlook.compute_shares(int(n))[hot].max() > metrics.ROUNDING]
    if not numbers:
        return None
    numbers.sort(key=lambda n: (-outlook.compute_shares(n)[hot].max(), n))
    most = max(1.0, float(simulation.cost[numbers].max()))
    best: tuple[tuple[float, float, int], model.Move] | None = None
    for n in numbers[:RANKED]:
        rest = max(0.0, float((excess - outlook.compute_shares(n)).max()))
        level_and_move = _find_destination_move(outlook, n)
        if level_and_move is None:
            continue
        level, move = level_and_move
        height = max(outlook.compute_unloaded_level(n),
                     level) + MEMORY * float(simulation.cost[n]) / most
        key = round(rest, 9), round(height, 9), n
        if best is None or key < best[0]:
            best = key, move
    return best[1] if best is not None else None


def _find_destination_move(outlook: outlooks.FillForecast, n: int) -> tuple[float,
                                                                            model.Move] | None:
    """Return the level of the lowest host in use, and the move of the instance.

    The destination is that host, if its foreseen peak is not far above its ceiling; else
    the largest empty one, which gives bursts room of their own; else any that the rules
    allow now.
    """
    simulation = outlook.simulation
    targets = outlook.list_permitted(n, np.flatnonzero(simulation.takers))
    level = outlook.compute_loaded_levels(n, targets)
    used = outlook.counts[targets] > 0
    low = level <= PEAK
    lowest = float(level[used].min()) if used.any() else 1.0
    for chosen in (used & low, ~used & low, ~low):
        hosts = targets[chosen]
        for i in np.lexsort((hosts, level[chosen]))[:TRIED]:
            move = outlook.first_legal(n, [int(hosts[i])])
            if move is not None:
                return lowest, move
    return None
