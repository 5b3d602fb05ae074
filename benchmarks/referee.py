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

"""The real planner and the real scoring before the trace referee.

``make_policy`` and ``make_placer`` are what the referee's ``sim.simulate``
calls; they see its state's present and past, nothing else. As a command::

    python benchmarks/referee.py --traces DIR --table A --days 20110303 --json

runs a table and prints our rows beside those of the referee's README and its
LP bound. DIR holds the referee (sim.py, boot.py, README.md) and its traces;
nothing of it is imported by the package.

The referee plays Nova, Placement and Prometheus: hosts and instances become a
Cluster, a policy file's queries (``host_cpu_utilisation``, ``host_cpu_mips``,
``vm_cpu_mips`` and ``avg_``, ``stddev_``, ``stdvar_``, ``max_`` or
``min_over_time`` of them, summed by host, and the root of such a sum) are
answered from the samples so far. A host's past is what it held then; an
instance's past follows it, as it does by UUID in Prometheus.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import datetime
import importlib
import json
import pathlib
import re
import sys
import tempfile
import time
from typing import Any

import numpy as np
from oslo_config import cfg
import yaml

from kronos_nova import model
from kronos_nova import plugins
from kronos_nova.conf import policies as policy_files
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.sources import base

HERE = pathlib.Path(__file__).resolve().parent
#: Seconds of a referee's step, and its epoch.
STEP = 300.0
EPOCH = 1_299_110_400.0
#: MB a migration copies per second in the referee: bandwidth / 16000.
COPIED = 62.5
SCOPE = 'referee'
#: Seconds since the last scrape when a step's instances boot.
SCRAPED = 15.0
#: Placement custom class that stands for one core's speed.
CORE = 'CUSTOM_CORE_MIPS'

QUERY = re.compile(r'(sqrt\()?(sum by \(host\) \()?(?:(\w+)_over_time\()?(\w+?)'
                   r'(?:\[(\d+)([mh]):5m\]\))?(?(1)\))(?(2)\) / host_cpu_mips)')
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    'avg': lambda x: np.nanmean(x, axis=1), 'stddev': lambda x: np.nanstd(x, axis=1),
    'stdvar': lambda x: np.nanvar(x, axis=1),
    'max': lambda x: np.nanmax(x, axis=1), 'min': lambda x: np.nanmin(x, axis=1)}


def instance_uuid(v: int) -> str:
    """Row v of the trace as a UUID that sorts like v."""
    return f'{v:08d}-0000-4000-8000-000000000000'


def host_name(h: int) -> str:
    """Host number h; names sort like numbers."""
    return f'host-{h:04d}'


class Cloud:
    """The referee's state as Nova, Placement and Prometheus would tell it.

    :param memory_counts: instances must fit into their hosts' memory.
    """

    def __init__(self, state: Any, memory_counts: bool) -> None:
        self._memory_counts = memory_counts
        self._cap = state.hosts.cap
        self._host_past: list[Any] = []
        self._names = [host_name(h) for h in range(len(self._cap))]
        self._uuids = [instance_uuid(v) for v in range(len(state.place))]
        self._instances: dict[int, model.Instance] = {}
        self._services = {n: model.Service(host=n) for n in self._names}

    def look(self, state: Any) -> model.Cluster:
        """Everything as it is now; the hosts' load is remembered."""
        self._state = state
        live = np.flatnonzero((state.place >= 0) & state.alive)
        self._live = live
        load = np.bincount(state.place[live], state.req[live], len(self._cap))
        while len(self._host_past) <= state.k:
            self._host_past.append(load / self._cap)
        self._host_past[state.k] = load / self._cap
        used = np.bincount(state.place[live], state.trace.ram[live], len(self._cap))
        speed = np.bincount(state.place[live], state.trace.mips[live], len(self._cap))
        for v in live.tolist():
            here = self._names[state.place[v]]
            known = self._instances.get(v)
            if known is None:
                claims = {CORE: int(state.trace.mips[v])}
                if self._memory_counts:
                    claims['MEMORY_MB'] = int(state.trace.ram[v])
                self._instances[v] = model.Instance(
                    uuid=self._uuids[v], host=here, vcpus=1, claims=claims,
                    memory_mb=int(state.trace.ram[v]))
            elif known.host != here:
                self._instances[v] = dataclasses.replace(known, host=here)
        hosts = {}
        for h, name in enumerate(self._names):
            inventories = {CORE: model.Inventory(10**9, max_unit=int(state.hosts.pe[h]))}
            if self._memory_counts:
                inventories['MEMORY_MB'] = model.Inventory(int(state.hosts.ram[h]))
            hosts[name] = model.Host(name=name, provider=model.Provider(
                uuid=name, inventories=inventories,
                used={CORE: int(speed[h]), 'MEMORY_MB': int(used[h])}))
        return model.Cluster(
            hosts=hosts, instances={self._uuids[v]: self._instances[v] for v in live.tolist()},
            services=self._services, aggregates={SCOPE: tuple(self._names)}, scope=SCOPE,
            scope_hosts=frozenset(self._names), taken_at=EPOCH + STEP * state.k)

    def samples(self, policies: Iterable[Any]) -> dict[str, model.PolicySamples]:
        """What each policy's queries would be answered now."""
        now = EPOCH + STEP * self._state.k
        return {p.name: model.PolicySamples(
            policy=p.name, imbalance=self._must(p.imbalance_query),
            profile=self._ask(p.vm_profile_query), capacity=self._ask(p.capacity_query),
            host_capacity=self._ask(p.host_capacity_query), mean=self._ask(p.vm_mean_query),
            deviation=self._ask(p.vm_deviation_query), age=0.0, taken_at=now) for p in policies}

    def _since(self, steps: int) -> Any:
        """The last samples of every instance; of one that booted later, none
        from before (NaN)."""
        past = self._state.hist(steps).astype(float)
        arrive = getattr(self._state.trace, 'arrive', None)
        if arrive is not None:
            first = self._state.k - past.shape[1] + 1
            early = arrive[:, None] > first + np.arange(past.shape[1])[None, :]
            past = np.where(early, np.nan, past)
        return past

    def _must(self, query: str) -> model.QueryResult:
        found = self._ask(query)
        assert found is not None
        return found

    def _ask(self, query: str | None) -> model.QueryResult | None:
        if query is None:
            return None
        match = QUERY.fullmatch(query.strip())
        if match is None:
            raise ValueError(f'the referee cannot answer {query!r}')
        root, by_host, function, metric, amount, unit = match.groups()
        steps = 1 if amount is None else int(amount) * (12 if unit == 'h' else 1) // (
            1 if unit == 'h' else 5)
        if metric == 'vm_cpu_mips':
            names = [self._uuids[v] for v in self._live.tolist()]
            past = (self._state.req[:, None] if steps == 1 else self._since(steps))[self._live]
        elif metric == 'host_cpu_utilisation':
            names = self._names
            past = np.minimum(np.array(self._host_past[-steps:]).T, 1.0)
        elif metric == 'host_cpu_mips':
            names, past = self._names, self._cap[:, None]
        else:
            raise ValueError(f'the referee has no metric {metric!r}')
        values = FUNCTIONS[function](past) if function else past[:, -1]
        if by_host:
            loads = np.bincount(self._state.place[self._live], values, len(self._cap))
            loads = np.sqrt(loads) if root else loads
            names, values = self._names, np.minimum(loads / self._cap, 1.0)
        return model.QueryResult(query, model.SourceHealth.HEALTHY,
                                 dict(zip(names, values.tolist(), strict=True)))


def build_settings(mode: str, path: str | None,
              options: dict[str, Any]) -> planning_pipeline.PassSettings:
    """The policy file with ``options`` over its fields, and model.PlanningOptions."""
    found = policy_files.load_policies(path or str(HERE / 'referee_policies' / f'{mode}.yaml'))
    fields = type(found.policies[0]).model_fields
    changed = {k: options.pop(k) for k in list(options) if k in fields}
    if changed:
        found = type(found).model_validate({'policies': [
            {**p.model_dump(), **changed} for p in found.policies]})
    planning = {'dry_run': False, 'max_alternates': 0, 'settle_seconds': 0.0} | options
    return planning_pipeline.PassSettings(
        policies=found, options=model.PlanningOptions(**planning),
        strategies=[plugins.load_plugin(plugins.STRATEGIES, name)() for name in planner.ORDER],
        deadline=600.0)


def make_policy(mode: str = 'pack', *, policies: str | None = None,
                instance_cooldown: float = 0.0, scope_cooldown: float = 0.0,
                **options: Any) -> Callable[[Any], list[tuple[int, int]]]:
    """A ``policy`` for the referee: one cycle of the rebalancer per step.

    The referee's samples have no lag, so scores need not settle.

    :param mode: ``pack`` or ``spread``, or the name of another of our policy
        files. ``pack`` is the quiet file where memory is a claim (table B) and
        ``pack-tight`` where it is none (table A, CloudSim's accounting).
    :param policies: another policy file.
    :param instance_cooldown: seconds, as is ``scope_cooldown``.
    :param options: fields of the policies or of ``model.PlanningOptions``.
    """
    tight = 'pack-tight' if mode == 'pack' else mode
    by_memory = {True: build_settings(mode, policies, dict(options)),
                 False: build_settings(tight, policies, dict(options))}

    def policy(state: Any) -> list[tuple[int, int]]:
        mem, settings = state.mem, by_memory[bool(state.ram)]
        cloud = mem.setdefault('cloud', Cloud(state, state.ram))
        now = EPOCH + STEP * state.k
        cluster = cloud.look(state)
        mem['cooling'] = {u: t for u, t in mem.get('cooling', {}).items() if t > now}
        mem['completed'] = [m for m in mem.get('completed', []) if now - m[1] < 3600.0]
        history = model.MoveHistory(
            cooling={u: t - now for u, t in mem['cooling'].items()},
            scope_cooling=max(0.0, mem.get('scope_cooling', 0.0) - now),
            draining=mem.get('draining', frozenset()), completed=tuple(mem['completed']))
        plan = planning_pipeline.plan_scope(
            cluster, cloud.samples(settings.policies.enabled_policies), history,
            settings,
            now=now, clock=time.monotonic, seed=state.k).plan
        mem['draining'] = plan.draining
        moves = []
        for move in plan.moves:
            v, h = int(move.instance_uuid[:8]), int(move.to_host[5:])
            moves.append((v, h))
            done = now + float(state.trace.ram[v]) / COPIED
            mem['completed'].append((move, done))
            if instance_cooldown:
                mem['cooling'][move.instance_uuid] = done + instance_cooldown
        if moves and scope_cooldown:
            mem['scope_cooling'] = now + scope_cooldown
        return moves

    return policy


def make_placer(*, policies: str | None = None, multiplier: float = 32.0,
                cpu_multiplier: float = 1.0, ram_multiplier: float = 1.0,
                cpu_allocation_ratio: float = 16.0, settle_seconds: int = 0,
                weigh_request: bool = True,
                **options: Any) -> Callable[[Any, int], int | None]:
    """A ``placer`` for the referee: Nova's allocation weighers and ours.

    KronosWeigher's value comes from the package's own scorecard, which is asked
    once a step, and from its ledger of what has been allocated since.

    :param multiplier: of KronosWeigher.
    :param settle_seconds: of nova.conf's [kronos]; the referee's samples have
        no lag.
    :param weigh_request: of nova.conf's [kronos].
    :param options: fields of the policies; with ``boot_ceiling`` hosts above
        it are left out as KronosCapacityFilter does.
    """
    path = policies or str(HERE / 'referee_policies' / 'boot.yaml')

    def placer(state: Any, v: int) -> int | None:
        hosts, trace = state.hosts, state.trace
        count = len(hosts.cap)
        placed = state.place >= 0
        free_ram = hosts.ram - np.bincount(state.place[placed], trace.ram[placed], count)
        taken = np.bincount(state.place[placed], trace.mips[placed], count)
        free_cpu = cpu_allocation_ratio * hosts.cap - taken
        fits = ((free_ram >= trace.ram[v]) & (free_cpu >= trace.mips[v])
                & (hosts.pe >= min(trace.mips[v], hosts.pe.min())))
        if not fits.any():
            return None
        if 'scheduler' not in state.mem:
            state.mem['scheduler'] = _Scheduler(state, path, settle_seconds, dict(options))
        scheduler = state.mem['scheduler']
        request = (float(trace.mips[v]), float(trace.ram[v]))
        ours = scheduler.weigh(state, taken, free_ram, request if weigh_request else (0.0, 0.0))
        below = fits & scheduler.below(request)
        fits = below if below.any() else fits
        weight = (cpu_multiplier * _normalised(free_cpu, fits)
                  + ram_multiplier * _normalised(free_ram, fits) + multiplier * ours)
        return scheduler.placed(state, int(np.argmax(np.where(fits, weight, -np.inf))))

    return placer


def _normalised(values: Any, fits: Any) -> Any:
    """Nova's own: (x - min) / (max - min) over the hosts that pass."""
    low, high = values[fits].min(), values[fits].max()
    return np.zeros(len(values)) if low == high else (values - low) / (high - low)


@dataclasses.dataclass
class _Before:
    """The state as the last scrape saw it: one step ago."""

    k: int
    hosts: Any
    trace: Any
    place: Any
    req: Any
    alive: Any
    past: Any

    def hist(self, n: int) -> Any:
        return self.past[:, -n:]


@dataclasses.dataclass
class _HostState:
    """What the ledger reads of Nova's; a MIPS stands for a vCPU."""

    host: str
    hypervisor_hostname: str
    vcpus_total: float
    vcpus_used: float
    total_usable_ram_mb: float
    free_ram_mb: float
    updated: datetime.datetime


class _Scheduler(base.MetricsSource):
    """The scheduler's side of the package in simulated time, and its source."""

    def __init__(self, state: Any, path: str, settle_seconds: int,
                 options: dict[str, Any]) -> None:
        conf = cfg.ConfigOpts()
        scheduler_conf.register(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('settle_seconds', settle_seconds, 'kronos')
        self._work = tempfile.TemporaryDirectory(prefix='kronos-referee-')
        if options:
            found = policy_files.load_policies(path).model_dump(mode='json', exclude_unset=True)
            for policy in found['policies']:
                policy.update(options)
            path = f'{self._work.name}/boot.yaml'
            pathlib.Path(path).write_text(yaml.safe_dump(found))
        self._now = EPOCH + STEP * state.k
        self._cloud = Cloud(state, True)
        self._ledger = allocation_history.AllocationLedger()
        self._card = policy_scores.PolicyScorecard(conf, path, clock=lambda: self._now)
        self._asked = -1
        self._changed = np.full(len(state.hosts.cap), EPOCH)

    def weigh(self, state: Any, taken: Any, free_ram: Any,
              request: tuple[float, float] = (0.0, 0.0)) -> Any:
        """KronosWeigher's value of each host; 0 without scores.

        :param request: MIPS and MiB that the new instance adds.
        """
        self._now = EPOCH + STEP * state.k
        states = [_HostState(
            host_name(h), host_name(h), float(state.hosts.cap[h]), float(taken[h]),
            float(state.hosts.ram[h]), float(free_ram[h]),
            datetime.datetime.fromtimestamp(self._changed[h], datetime.UTC))
            for h in range(len(taken))]
        self._ledger.record_allocations(states, self._now, self._now)
        if state.k and self._asked != state.k and (state.place >= 0).any():
            self._asked = state.k
            past = state.hist(37)[:, :-1]
            self._cloud.look(_Before(state.k - 1, state.hosts, state.trace, state.place.copy(),
                                     past[:, -1], state.alive, past))
            self._card.refresh_scores(lambda: self)
            self._card.replace_reading(self._ledger.copy_tracks())
        self._states = states
        loads = depletion.project_loads(states, self._card.snapshot.loads, *request)
        return np.array([0.0 if load is None else 0.5 - min(1.0, max(0.0, load))
                         for load in loads])

    def below(self, request: tuple[float, float]) -> Any:
        """Which hosts KronosCapacityFilter passes, of those weighed last."""
        passing = np.ones(len(self._states), bool)
        for ceiling in self._card.snapshot.ceilings:
            loads = depletion.project_loads(self._states, ceiling.loads, *request)
            passing &= np.array([load is None or load <= ceiling.limit for load in loads])
        return passing

    def placed(self, state: Any, host: int) -> int:
        """An instance boots there now."""
        self._changed[host] = EPOCH + STEP * state.k
        return host

    def fetch(self, policy: Any, *, profile: bool = True) -> model.PolicySamples:
        """What the last scrape saw."""
        return dataclasses.replace(self._cloud.samples([policy])[policy.name], age=SCRAPED)

    def health(self) -> tuple[model.SourceHealth, str]:
        return model.SourceHealth.HEALTHY, ''


# The command.

def _table_a(sim: Any, boot: Any, day: str, directory: pathlib.Path,
             options: dict[str, Any]) -> dict[str, Any]:
    trace, hosts = sim.Trace.planetlab(str(directory / f'planetlab_{day}.npz')), _hosts(sim)
    return dict(sim.simulate(trace, hosts, sim.pabfd_boot(trace, hosts),
                             policy=make_policy('pack', **options), compat=True))


def _table_b(sim: Any, boot: Any, day: str, directory: pathlib.Path,
             options: dict[str, Any]) -> dict[str, Any]:
    trace, hosts = sim.Trace.planetlab(str(directory / f'planetlab_{day}.npz')), _hosts(sim)
    place = sim.pabfd_boot(trace, hosts)
    hosts.ram = np.full(len(hosts.cap), 32768.0)
    return dict(sim.simulate(trace, hosts, place, policy=make_policy('pack', **options),
                             compat=False, ram=True))


def _spread(sim: Any, boot: Any, day: str, directory: pathlib.Path,
            options: dict[str, Any]) -> dict[str, Any]:
    """60 hosts of 32 GiB, every instance placed by Nova's weighers at step 0."""
    trace, hosts = sim.Trace.planetlab(str(directory / f'planetlab_{day}.npz')), _hosts(sim, 60)
    hosts.ram = np.full(60, 32768.0)
    trace.arrive = np.zeros(len(trace.mips), int)
    policy = None if options.pop('off', False) else make_policy('spread', **options)
    return dict(sim.simulate(trace, hosts, np.full(len(trace.mips), -1), policy=policy,
                             compat=False, ram=True, placer=boot.nova(16, 1, 1)))


def _boot(sim: Any, boot: Any, day: str, directory: pathlib.Path,
          options: dict[str, Any]) -> dict[str, Any]:
    """Ours beside Nova's default weighers, no migrations."""
    run = _runs(sim, boot, day, options)
    foresight = bool(options.pop('foresight', False))
    ours, nova = _means({
        'ours': run(lambda: (_foresees(**options) if foresight else make_placer(**options), None)),
        'nova': run(lambda: (boot.nova(16, 1, 1), None))})
    return {**ours, 'nova_real_OTF': nova['real_OTF'], 'nova_imb': nova['imb'],
            'overload_change': ours['real_OTF'] / nova['real_OTF'] - 1.0}


def _both(sim: Any, boot: Any, day: str, directory: pathlib.Path,
          options: dict[str, Any]) -> dict[str, Any]:
    """Boots and rebalancer together, beside Nova's default weighers and the
    referee's repairer of hosts above 80 %.

    Options are make_policy's, or with ``boot_`` before them make_placer's.
    """
    run = _runs(sim, boot, day, options)
    boots = {k[5:]: options.pop(k) for k in list(options) if k.startswith('boot_')}
    ours, repair = _means({
        'ours': run(lambda: (make_placer(**boots),
                             make_policy(**{'mode': 'both', **options}))),
        'repair': run(lambda: (boot.nova(16, 1, 1), boot.Repair(0.8)))})
    return {**ours, **{f'repair_{k}': v for k, v in repair.items()},
            'moves_by_repair': ours['migrations'] / repair['migrations'],
            'overload_by_repair': ours['real_OTF'] / repair['real_OTF']}


def _runs(sim: Any, boot: Any, day: str, options: dict[str, Any]) -> Callable[..., list[Any]]:
    """A function that runs boot.py's setup for each seed.

    Takes from the options ``hosts``; ``burst``, instances arrive only at each
    so-manieth step; and ``seeds``, whose mean is shown.
    """
    count, burst = int(options.pop('hosts', 60)), int(options.pop('burst', 1))
    seeds = int(options.pop('seeds', 3))

    def run(make: Callable[[], tuple[Any, Any]]) -> list[Any]:
        found = []
        for seed in range(seeds):
            trace, hosts = boot.setup(day, count, seed)
            trace.arrive = -(-trace.arrive // burst) * burst
            placer, policy = make()
            found.append(sim.simulate(trace, hosts, np.full(len(trace.mips), -1), policy,
                                      compat=False, ram=True, placer=placer))
        return found

    return run


def _means(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    keys = ('real_OTF', 'hot', 'imb', 'sd', 'short', 'wait', 'energy', 'migrations')
    return [{**{k: float(np.mean([r[k] for r in rs])) for k in keys}, 'series': []}
            for rs in rows.values()]


def _foresees(multiplier: float = 1000.0, deviations: float = 1.0) -> Callable[..., int | None]:
    """A placer that knows what every instance will use for the rest of the day.

    Not ours and not possible: the host that is emptiest by mean plus deviations
    from now on, the new instance among them. What metrics could tell at best.
    """
    def placer(state: Any, v: int) -> int | None:
        hosts, trace, placed = state.hosts, state.trace, state.place >= 0
        count = len(hosts.cap)
        free = hosts.ram - np.bincount(state.place[placed], trace.ram[placed], count)
        fits = (free >= trace.ram[v]) & (hosts.pe >= min(trace.mips[v], hosts.pe.min()))
        if not fits.any():
            return None
        if state.mem.get('at') != state.k:
            use = trace.u[:, state.k:] * trace.mips[:, None]
            state.mem.update(at=state.k, mean=use.mean(axis=1), variance=use.var(axis=1))
        load, variance = (np.bincount(state.place[placed], x[placed], count) + x[v]
                          for x in (state.mem['mean'], state.mem['variance']))
        weight = (_normalised(free, fits)
                  - multiplier * (load + deviations * np.sqrt(variance)) / hosts.cap)
        return int(np.argmax(np.where(fits, weight, -np.inf)))

    return placer


TABLES = {'A': _table_a, 'B': _table_b, 'spread': _spread, 'boot': _boot,
          'both': _both}


def _hosts(sim: Any, count: int = 800) -> Any:
    return sim.Hosts.planetlab(count)


def _readme_rows(directory: pathlib.Path, table: str, day: str) -> list[str]:
    """The lines of the README's table that speak of the day."""
    lines = (directory / 'README.md').read_text().splitlines()
    try:
        start = next(i for i, line in enumerate(lines) if line.startswith(f'Table {table},'))
    except StopIteration:
        return []
    found, current = [], ''
    for line in lines[start + 2:]:
        if not line.startswith('|'):
            break
        current = line.split('|')[1].strip() or current
        if current in ('day', day):
            found.append(line)
    return found


def _bound(directory: pathlib.Path, table: str, day: str) -> float | None:
    """bound.py's LP with u <= 0.8; None without SciPy or for other tables."""
    if table not in ('A', 'B'):
        return None
    arguments, sys.argv = sys.argv, ['bound.py', '--none--']
    try:
        source = (directory / 'bound.py').read_text().split('\nfor day in ')[0]
        space: dict[str, Any] = {'__file__': str(directory / 'bound.py')}
        exec(compile(source, 'bound.py', 'exec'), space)  # its end runs every day
        trace = space['Trace'].planetlab(str(directory / f'planetlab_{day}.npz'))
        return float(space['bound'](trace, space['Hosts'].planetlab(), umax=0.8,
                                    compat=table == 'A'))
    except ImportError:
        return None
    finally:
        sys.argv = arguments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--traces', type=pathlib.Path, required=True)
    parser.add_argument('--table', choices=sorted(TABLES), default='B')
    parser.add_argument('--days', nargs='+', default=['20110303', '20110306', '20110322'])
    parser.add_argument('--option', action='append', default=[], metavar='NAME=JSON',
                        help='an option of make_policy or make_placer')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.traces))
    sys.dont_write_bytecode = True
    sim, boot = importlib.import_module('sim'), importlib.import_module('boot')
    rows = []
    for day in arguments.days:
        options = {k: json.loads(v) for k, v in (o.split('=', 1) for o in arguments.option)}
        started = time.process_time()
        found = TABLES[arguments.table](sim, boot, day, arguments.traces, options)
        series = found.pop('series')
        found.pop('place', None)
        found['after_first_hour'] = sum(s[2] for s in series[12:])
        bound = _bound(arguments.traces, arguments.table, day)
        row = {'table': arguments.table, 'day': day,
               'cpu_seconds': round(time.process_time() - started, 1), 'lp': bound,
               **({'energy_by_lp': found['energy'] / bound} if bound else {}), **found}
        rows.append(row)
        if not arguments.json:
            for line in _readme_rows(arguments.traces, arguments.table, day):
                print(line)
            print('  ours: ' + ' '.join(f'{k}={v:.4g}' if isinstance(v, float) else f'{k}={v}'
                                        for k, v in row.items()), flush=True)
    if arguments.json:
        print(json.dumps(rows, default=float))


if __name__ == '__main__':
    main()
