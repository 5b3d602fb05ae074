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

"""What nobody could do better before the trace referee, and what knowing would do.

    python benchmarks/bounds.py --traces DIR moves energy
    python benchmarks/bounds.py --traces DIR afresh curve --table B
    python benchmarks/bounds.py --traces DIR level

``moves`` and ``energy`` are bounds: no policy, even one that knows the day, is
below them. They need SciPy (HiGHS). The others are not bounds on everybody:
``afresh`` and ``level`` put every instance anew before each step, free of
charge, by the same knowledge of the past that our policies have; ``curve``
runs our own planner beside one that is answered with the future.
"""

import argparse
from collections.abc import Callable
import dataclasses
import importlib
import json
import pathlib
import sys
from typing import Any

import numpy as np
import referee

#: Seconds of a referee's step.
STEP = referee.STEP
JOULES = 3.6e6
#: Steps at which the bound on moves lets a host be emptied; free in between.
STARTS = (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120, 144, 168, 192, 216, 240, 264)
#: What is aimed at, kWh / LP.
AIMS = {'A': 1.10, 'B': 1.15}


@dataclasses.dataclass
class Day:
    """A day as the referee begins it, and what can be known of it afterwards.

    ``asked``: V x T, MIPS, 0 from an instance's end on. ``alive``: V x T, at
    the tick, after CloudSim's accounting destroyed who asked for nothing twice.
    """

    name: str
    table: str
    trace: Any
    hosts: Any
    place: Any
    asked: Any
    alive: Any


def load(sim: Any, directory: pathlib.Path, name: str, table: str) -> Day:
    """A day of table A or B, placed as the referee places it."""
    trace = sim.Trace.planetlab(str(directory / f'planetlab_{name}.npz'))
    hosts = sim.Hosts.planetlab(800)
    place = sim.pabfd_boot(trace, hosts)
    if table == 'B':
        hosts.ram = np.full(len(hosts.cap), 32768.0)
    alive = np.ones(trace.u.shape, dtype=bool)
    if table == 'A':
        ends = (trace.u == 0) & (np.roll(trace.u, -1, axis=1) == 0)
        ends[:, 0] = ends[:, -1] = False
        alive = ~np.logical_or.accumulate(ends, axis=1)
    return Day(name, table, trace, hosts, place, trace.u * trace.mips[:, None] * alive, alive)


# Bounds that hold for everybody.

def moves(day: Day, limit: float, ceiling: float) -> dict[str, Any]:
    """The fewest moves, and the least degradation by them, below so much energy.

    A linear program over when each host is empty for the first time: until
    then it runs (in steps in which one of its instances asks for something),
    then whoever is left on it has moved at least once. Hosts run at levels of
    their power table up to ``ceiling`` and share the demand freely. Relaxed are
    whole hosts, who fits with whom, moves after the first, and the time within
    a span of ``STARTS``.

    :param limit: kWh.
    :returns: ``moves``; ``degraded``, MIPS x seconds that movers miss (CloudSim
        takes a tenth while an instance migrates), a bound of its own.
    """
    from scipy import optimize
    from scipy import sparse
    steps = day.trace.u.shape[1] - 1
    first = 0 if day.table == 'B' else 1
    used = np.unique(day.place[day.place >= 0])
    kind = (day.hosts.cap[used] == day.hosts.cap.max()).astype(int)
    member = sparse.csr_matrix(
        (np.ones(len(day.place)), (np.searchsorted(used, day.place), np.arange(len(day.place)))),
        shape=(len(used), len(day.place)))
    busy = (day.asked[:, :-1] > 0) | (day.asked[:, 1:] > 0)
    on = (member @ busy.astype(float)) > 0
    duration = day.trace.ram / referee.COPIED
    spans = list(zip(STARTS, (*STARTS[1:], steps), strict=True))
    left = np.array([member @ day.alive[:, b - 1].astype(float) for _, b in spans]).T
    # A mover is asked for the least when it begins or when it ends.
    end = day.asked[:, :-1] + np.diff(day.asked, axis=1) * (duration[:, None] / STEP)
    least = np.minimum(day.asked[:, :-1], end)
    missed = np.array([member @ (0.1 * duration * least[:, a:b].min(axis=1)
                                 * day.alive[:, b - 1]) for a, b in spans]).T
    levels = np.arange(0, round(ceiling * 10) + 1)
    held, tick = len(used) * len(spans), 2 * 2 * len(levels)
    count = held + (steps - first) * tick
    rows, columns, values, below = _power_rows(day, on, kind, levels, first, held, len(spans))
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=(len(below), count))
    energy = np.zeros(count)
    power = np.array([day.hosts.ptab[np.flatnonzero(day.hosts.cap == c)[0]][levels]
                      for c in np.unique(day.hosts.cap)]).ravel()
    energy[held:] = np.tile(np.concatenate((power, power)), steps - first) * STEP / 2 / JOULES
    # Once empty, for the bound for good: held in a span implies held before.
    ordered = sparse.lil_matrix((len(used) * (len(spans) - 1), count))
    for b in range(len(spans) - 1):
        at = np.arange(len(used)) * len(spans) + b
        ordered[np.arange(len(used)) + b * len(used), at] = -1.0
        ordered[np.arange(len(used)) + b * len(used), at + 1] = 1.0
    every = sparse.vstack([matrix, ordered.tocsr(), sparse.csr_matrix(energy[None, :])],
                          format='csr')
    limits = np.concatenate((below, np.zeros(ordered.shape[0]), [limit]))
    found: dict[str, Any] = {'hosts_used': len(used), 'instances': len(day.place)}
    for name, cost in (('moves', left), ('degraded', missed)):
        # Emptied in span b: held in b - 1 and not in b.
        objective, constant = np.zeros(count), float(cost[:, 0].sum())
        objective[:held] = np.hstack((np.diff(cost, axis=1), -cost[:, -1:])).ravel()
        solved = optimize.linprog(objective, A_ub=every, b_ub=limits,
                                  bounds=[(0, 1)] * held + [(0, None)] * (count - held),
                                  method='highs')
        found[name] = float(solved.fun + constant) if solved.success else solved.message
    return found


def _power_rows(day: Day, on: Any, kind: Any, levels: Any, first: int, held: int,
                spans: int) -> tuple[list[int], list[int], list[float], list[float]]:
    """Demand is served at both ends of each step by hosts that run; at least as
    many of a kind run as hold on to their instances, at most as there are."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    below: list[float] = []

    def add(entries: list[tuple[int, float]], limit: float) -> None:
        rows.extend([len(below)] * len(entries))
        columns.extend(c for c, _ in entries)
        values.extend(v for _, v in entries)
        below.append(limit)

    capacities = np.unique(day.hosts.cap)
    available = [int((day.hosts.cap == c).sum()) for c in capacities]
    demand = day.asked.sum(axis=0)
    begins = np.array(STARTS)
    for k in range(first, day.trace.u.shape[1] - 1):
        span = int(np.searchsorted(begins, k, side='right')) - 1
        for part in range(2):
            base = held + (k - first) * 4 * len(levels) + part * 2 * len(levels)
            add([(base + t * len(levels) + i, -capacities[t] * level / 10)
                 for t in range(2) for i, level in enumerate(levels)], -float(demand[k + part]))
            for t in range(2):
                mine = [(base + t * len(levels) + i, 1.0) for i in range(len(levels))]
                add(mine, available[t])
                holding = np.flatnonzero(on[:, k] & (kind == t))
                if span < 0:  # before a policy is asked
                    add([(c, -v) for c, v in mine], -float(len(holding)))
                else:
                    add([(int(h) * spans + span, 1.0) for h in holding]
                        + [(c, -v) for c, v in mine], 0.0)
    return rows, columns, values, below


def energy(day: Day, ceiling: float) -> dict[str, float]:
    """The least energy with whole hosts, and what the first step adds, kWh.

    ``divisible``: the referee's LP (hosts divisible, migrations free, all steps).
    ``whole``: each step as many whole hosts as the demand needs at that
    ceiling, equally full. ``begun``: the first step as it is (table B), and
    what every host with an instance draws until the fastest of the migrations
    of the second could have emptied it.
    """
    steps = day.trace.u.shape[1] - 1
    first = 0 if day.table == 'B' else 1
    demand = day.asked.sum(axis=0)
    whole = np.array([_whole(day.hosts, d, ceiling) for d in demand])
    divisible = np.array([_divisible(day.hosts, d, ceiling) for d in demand])
    shares = [np.bincount(day.place, day.asked[:, k], len(day.hosts.cap)) for k in (0, 1, 2)]
    draws = [float(day.hosts.power(np.minimum(s / day.hosts.cap, 1.0))[s > 0].sum())
             for s in shares]
    quickest = float(day.trace.ram.min()) / referee.COPIED
    begun = 0.0
    if first == 0:
        begun += (draws[0] + draws[1]) / 2 * STEP - (whole[0] + whole[1]) / 2 * STEP
    begun += (draws[1] - whole[1]) * quickest

    def total(power: Any) -> float:
        return float((power[first:steps] + power[first + 1:steps + 1]).sum() / 2 * STEP / JOULES)

    lp = float((divisible[:-1] + divisible[1:]).sum() / 2 * STEP / JOULES)
    return {'divisible': lp, 'whole': total(whole),
            'begun': total(whole) + begun / JOULES}


def _divisible(hosts: Any, demand: float, ceiling: float) -> float:
    """Watts at least; the larger hosts draw less per MIPS at every level."""
    rest, watts = demand, 0.0
    for c in np.unique(hosts.cap)[::-1]:
        at = np.flatnonzero(hosts.cap == c)
        served = min(rest, len(at) * c * ceiling)
        full = float(hosts.power(np.full(len(hosts.cap), ceiling))[at[0]])
        watts += served / (c * ceiling) * full
        rest -= served
    return watts


def _whole(hosts: Any, demand: float, ceiling: float) -> float:
    """Watts at least of whole hosts: any mix of the kinds that suffices, the
    demand shared freely over it."""
    low, high = (int(np.flatnonzero(hosts.cap == c)[0]) for c in np.unique(hosts.cap))
    best = np.inf
    for small in range(4):
        rest = max(0.0, demand - small * hosts.cap[low] * ceiling)
        large = int(np.ceil(rest / (hosts.cap[high] * ceiling) - 1e-9))
        for count in (large, large + 1):
            watts = small * hosts.ptab[low][0] + count * hosts.ptab[high][0]
            left = demand
            for slope, size in sorted(
                    (s, n * size) for h, n in ((low, small), (high, count))
                    for s, size in _hull(hosts, h, ceiling)):
                watts += slope * min(left, size)
                left -= min(left, size)
            best = min(best, watts) if left <= 1e-6 else best
    return float(best)


def _hull(hosts: Any, h: int, ceiling: float) -> list[tuple[float, float]]:
    """The lower hull of a host's power table: watts per MIPS, and MIPS, by part."""
    parts: list[tuple[float, float]] = []
    at, last = 0, round(ceiling * 10)
    while at < last:
        slope, to = min(((hosts.ptab[h][i] - hosts.ptab[h][at]) / (i - at), -i)
                        for i in range(at + 1, last + 1))
        parts.append((float(slope) * 10 / hosts.cap[h], (-to - at) / 10 * hosts.cap[h]))
        at = -to
    return parts


# Not bounds on everybody: our knowledge of the past, without the cost of moving.

#: Means, variances and capacities -> the host of each instance, and how many hosts.
Placing = Callable[[Any, Any, Any], tuple[Any, int]]


def afresh(sim: Any, day: Day, placing: Placing) -> dict[str, float]:
    """All instances placed anew, for nothing, before every step.

    Then the next sample tells who is over: for at least as long as the fastest
    migration takes.

    :returns: kWh from the second step on, and overload as a percentage of the
        time that hosts run.
    """
    order = np.argsort(-day.hosts.cap, kind='stable')
    quickest = float(day.trace.ram.min()) / referee.COPIED
    joules = over = running = surprised = 0.0
    steps = day.trace.u.shape[1] - 1
    for k in range(1, steps):
        mean, deviation = _forecast(day, k - 1)
        capacity = day.hosts.cap[order]
        place, count = placing(mean, deviation ** 2, capacity)
        now = np.bincount(place, day.asked[:, k], count)
        later = np.bincount(place, day.asked[:, k + 1], count)
        table = sim.Hosts(pe=day.hosts.pe[order][:count], cap=capacity[:count],
                          ram=day.hosts.ram[order][:count], ptab=day.hosts.ptab[order][:count])
        watts = (table.power(now / table.cap) + table.power(later / table.cap)) / 2
        joules += float(watts[now > 0].sum()) * STEP
        hot = int((now > table.cap + 1e-6).sum())
        surprised += hot
        over += hot * quickest
        running += float((now > 0).sum()) * STEP
    return {'kWh': joules / JOULES, 'overload_percent': 100 * over / running,
            'hosts_surprised': surprised, 'hosts': running / STEP / (steps - 1)}


def levelled(target: float, deviations: float = 1.65) -> Placing:
    """As few hosts as the mean fills to ``target``, each instance, the largest
    first, where the foreseen peak (mean and ``deviations`` times the deviation)
    is lowest."""
    def place(mean: Any, variance: Any, capacity: Any) -> tuple[Any, int]:
        need = max(float(mean.sum()) / target, 1.0)
        count = int(np.searchsorted(np.cumsum(capacity), need)) + 1
        return _levelled(mean, variance, capacity[:count], deviations), count

    return place


def gathered(deviations: float) -> Placing:
    """Hosts filled to their foreseen peak, instances that vary alike together.

    A host keeps ``deviations`` times the root of its instances' variances free,
    and the sum of such roots is the lower, the more the variances differ. The
    most varying first, each to the host whose peak it raises least.
    """
    def place(mean: Any, variance: Any, capacity: Any) -> tuple[Any, int]:
        found = np.zeros(len(mean), dtype=int)
        held, spread = np.zeros(len(capacity)), np.zeros(len(capacity))
        opened = 1
        for v in np.argsort(-variance / np.maximum(mean, 1e-9), kind='stable'):
            after = np.sqrt(spread[:opened] + variance[v])
            fits = held[:opened] + mean[v] + deviations * after <= capacity[:opened]
            more = np.where(fits, after - np.sqrt(spread[:opened]), np.inf)
            h = int(np.argmin(more)) if fits.any() else opened
            opened = max(opened, h + 1)
            held[h] += mean[v]
            spread[h] += variance[v]
            found[v] = h
        return found, opened

    return place


def _forecast(day: Day, k: int) -> tuple[Any, Any]:
    """Means of two hours and deviations of six, of samples up to k, MIPS."""
    past = day.asked[:, max(0, k - 71):k + 1]
    here = day.alive[:, k]
    return past[:, -24:].mean(axis=1) * here, past.std(axis=1) * here


def _levelled(mean: Any, variance: Any, capacity: Any, deviations: float) -> Any:
    """Hosts of the instances: the largest first, each where the peak stays lowest."""
    held, spread = np.zeros(len(capacity)), np.zeros(len(capacity))
    place = np.zeros(len(mean), dtype=int)
    for v in np.argsort(-(mean + deviations * np.sqrt(variance)), kind='stable'):
        level = (held + mean[v] + deviations * np.sqrt(spread + variance[v])) / capacity
        h = int(np.argmin(level))
        held[h] += mean[v]
        spread[h] += variance[v]
        place[v] = h
    return place


def level(sim: Any, day: Day, count: int = 60, moves_each: int = 2) -> dict[str, float]:
    """Spread on so many hosts, all placed anew before every step, for nothing.

    Levelled by the mean of the last hour; then the next sample comes, and
    ``moves_each`` moves that know it, each the one that narrows most, from the
    highest host.

    :returns: mean max - min before and after those moves, the same with any
        number of them, and overload if it lasted for the fastest migration.
    """
    hosts = sim.Hosts.planetlab(count)
    quickest = float(day.trace.ram.min()) / referee.COPIED
    rows = []
    for k in range(1, day.trace.u.shape[1] - 1):
        past = day.asked[:, max(0, k - 12):k]
        place = _levelled(past.mean(axis=1), np.zeros(len(past)), hosts.cap, 0.0)
        asked = day.asked[:, k]
        load = np.bincount(place, asked, count) / hosts.cap
        before = float(np.ptp(load))
        hot = int((load > 1.0 + 1e-9).sum())
        for _ in range(moves_each):
            _narrow(load, place, asked, hosts.cap)
        after = float(np.ptp(load))
        best = _levelled(asked, np.zeros(len(asked)), hosts.cap, 0.0)
        known = float(np.ptp(np.bincount(best, asked, count) / hosts.cap))
        rows.append((before, after, known, 100 * hot * quickest / STEP / count))
    mean = np.mean(rows, axis=0)
    return dict(zip(('before', 'after', 'known', 'overload_percent'), mean.tolist(), strict=True))


def _narrow(load: Any, place: Any, asked: Any, capacity: Any) -> None:
    """The move between the highest and any host, or any and the lowest, that
    leaves max - min the least; in place."""
    best: tuple[float, int, int] | None = None
    high, low = int(np.argmax(load)), int(np.argmin(load))
    pairs = [(int(v), h) for v in np.flatnonzero(place == high) for h in range(len(load))]
    pairs += [(int(v), low) for v in np.flatnonzero(place != low)]
    for v, h in pairs:
        if h == place[v] or not asked[v]:
            continue
        trial = load.copy()
        trial[place[v]] -= asked[v] / capacity[place[v]]
        trial[h] += asked[v] / capacity[h]
        width = float(np.ptp(trial))
        if best is None or width < best[0] - 1e-12:
            best = width, v, h
    if best is not None and best[0] < float(np.ptp(load)):
        _, v, h = best
        load[place[v]] -= asked[v] / capacity[place[v]]
        load[h] += asked[v] / capacity[h]
        place[v] = h


# Our planner beside itself with the future.

class Foretold(referee.Cloud):
    """NOT a policy: queries of the past are answered with the future, those of
    the present with the higher of now and the next sample."""

    def __init__(self, state: Any, memory_counts: bool, day: Day) -> None:
        super().__init__(state, memory_counts)
        self._day = day

    def _since(self, steps: int) -> Any:
        k = self._build_host_state.k
        return self._day.asked[:, k:k + min(steps, 24)].astype(float)

    def look(self, state: Any) -> Any:
        """As the real one, of a state whose demand is that of both samples."""
        asked = np.maximum(state.req, self._day.asked[:, state.k + 1])
        return super().look(dataclasses.replace(state, req=asked))


def curve(sim: Any, day: Day, target: float, deviations: float | None = None,
          foretold: bool = False) -> dict[str, float]:
    """One run of our planner with another ``fill_target``."""
    options = {} if deviations is None else {'peak_deviations': deviations}
    planned = referee.make_policy('pack', fill_target=target, **options)

    def oracle(state: Any) -> list[tuple[int, int]]:
        if 'cloud' not in state.mem:
            state.mem['cloud'] = Foretold(state, state.ram, day)
        return planned(state)

    found = sim.simulate(day.trace, day.hosts, day.place, compat=day.table == 'A',
                         ram=day.table == 'B', policy=oracle if foretold else planned)
    return {'kWh': found['energy'], 'migrations': found['migrations'],
            'late': sum(s[2] for s in found['series'][12:]), 'overload_percent':
            found['real_OTF'], 'unserved_percent': found['short'], 'ESV_e3': found['ESV'] * 1e3}


# The command.

def _moves(sim: Any, day: Day, arguments: Any) -> dict[str, Any]:
    lp = energy(day, 0.8)['divisible']
    found: dict[str, Any] = {'lp_kWh': lp, 'aim': AIMS[day.table]}
    for ceiling in (0.8, 1.0):
        found[f'ceiling_{ceiling}'] = moves(day, AIMS[day.table] * lp, ceiling)
    return found


def _energy(sim: Any, day: Day, arguments: Any) -> dict[str, Any]:
    found = energy(day, 0.8)
    return {**found, 'begun_by_divisible': found['begun'] / found['divisible']}


def _afresh(sim: Any, day: Day, arguments: Any) -> dict[str, Any]:
    lp = energy(day, 0.8)
    start = (lp['begun'] - lp['whole']) / lp['divisible']
    rows = {}
    placings = {f'levelled_{t}': levelled(t) for t in arguments.targets}
    placings |= {f'gathered_{d}': gathered(d) for d in (2.0, 2.5, 3.0)}
    for name, placing in placings.items():
        found = afresh(sim, day, placing)
        rows[name] = {**found, 'kWh_by_lp': found['kWh'] / lp['divisible'] + start}
    return {'lp_kWh': lp['divisible'], **rows}


def _curve(sim: Any, day: Day, arguments: Any) -> dict[str, Any]:
    lp = energy(day, 0.8)['divisible']
    rows = {}
    for name, foretold in (('ours', False), ('foretold', True)):
        for target in arguments.targets:
            found = curve(sim, day, target, foretold=foretold)
            rows[f'{name}_{target}'] = {**found, 'kWh_by_lp': found['kWh'] / lp}
    return {'lp_kWh': lp, **rows}


def _level(sim: Any, day: Day, arguments: Any) -> dict[str, Any]:
    return {str(n): level(sim, day, moves_each=n) for n in (1, 2)}


WHAT: dict[str, Callable[[Any, Day, Any], dict[str, Any]]] = {
    'moves': _moves, 'energy': _energy, 'afresh': _afresh, 'curve': _curve, 'level': _level}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('what', nargs='+', choices=sorted(WHAT))
    parser.add_argument('--traces', type=pathlib.Path, required=True)
    parser.add_argument('--table', choices=sorted(AIMS), default='B')
    parser.add_argument('--days', nargs='+', default=['20110303', '20110306', '20110322'])
    parser.add_argument('--targets', nargs='+', type=float, default=[0.7, 0.75, 0.8],
                        help='mean fills of the hosts in use, for afresh and curve')
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.traces))
    sys.dont_write_bytecode = True
    sim = importlib.import_module('sim')
    for name in arguments.days:
        day = load(sim, arguments.traces, name, arguments.table)
        for what in arguments.what:
            print(json.dumps({'day': name, 'table': arguments.table, 'what': what,
                              **WHAT[what](sim, day, arguments)}, default=float), flush=True)


if __name__ == '__main__':
    main()
