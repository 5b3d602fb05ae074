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

"""A cloud with constant load whose metrics trail behind, cycle after cycle.

Real is the whole pass (:mod:`kronos_nova.rebalancer.planning.planning_pipeline`); simulated are
migrations, which take their time, and a source that answers as Prometheus
would: the mean over a range that ended ``lag`` seconds ago. Under maintenance
an operator disables one host after another, each until it is empty.
"""

import collections
import dataclasses
import random

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.strategies import evacuate
from kronos_nova.rebalancer.strategies import pack
from kronos_nova.rebalancer.strategies import spread
from tests.unit import clouds

START = clouds.NOW


@dataclasses.dataclass(frozen=True)
class Weather:
    """``lag`` and ``window`` in seconds. ``hidden``: the range is in a
    recording rule, where only ``settle_seconds`` can tell. ``measured``: the
    policy has an age_query."""

    seed: int
    mode: str = 'spread'
    objective: str = 'balanced'
    lag: float = 300.0
    window: float = 300.0
    interval: float = 60.0
    hidden: bool = False
    measured: bool = True
    settle_seconds: float = 60.0
    maintenance: bool = dataclasses.field(default=False, repr=False)
    cooldown: float = dataclasses.field(default=0.0, repr=False)


class LaggingCloud:
    """:param weather: the drawn conditions; equal weather, equal run."""

    def __init__(self, weather):
        self.weather = weather
        self.rng = rng = random.Random(repr(weather))
        request = clouds.request(clouds.Knobs(
            seed=weather.seed, hosts=rng.randint(2, 6), instances=rng.randint(4, 24),
            policies=rng.randint(1, 2), mode=weather.mode, budget=rng.randint(1, 5)))
        self.cluster = request.cluster
        self.scores = request.scores.policies
        self.history = model.MoveHistory()
        self.now = START
        self.flights = {}  # instance -> (move, when it ends)
        self.waiting = []
        self.done = set()
        #: (since, host) of each instance, newest last.
        self.places = {u: [(0.0, i.host)] for u, i in self.cluster.instances.items()}
        self.moves = []
        #: (time, real measure before, real measure after) of each plan that spreads.
        self.spreads = []
        self.cooled = 0.0
        self.emptied = 0
        #: In whole seconds, as the query says it: what is drawn must be what is told.
        self.window = round(weather.window)
        query = 'load' if weather.hidden else f'avg_over_time(load[{self.window}s])'
        self.policies = policy.PolicySet(policies=tuple(
            p.model_copy(update={
                'imbalance_query': query, 'vm_profile_query': 'usage',
                'vm_profile_label_type': 'nova_instance_uuid',
                'capacity_query': query if weather.mode == 'pack' else None})
            for p in request.policies.policies))
        self.settings = planning_pipeline.PassSettings(
            policies=self.policies, strategies=(evacuate.Evacuate(), spread.Spread(), pack.Pack()),
            options=dataclasses.replace(
                request.options, settle_seconds=weather.settle_seconds,
                objective=weather.objective, evacuate_disabled_hosts=True),
            staleness=600.0)

    def run(self, hours):
        """Cycles until ``hours`` have passed; one history of moves."""
        while self.now < START + hours * 3600:
            self._migrate()
            if self.weather.maintenance:
                self._maintain()
            if not self.waiting:
                self._cycle()
            self.now += self.weather.interval * self.rng.uniform(0.9, 1.1)

    def _cycle(self):
        history = dataclasses.replace(self.history, completed=tuple(
            (m, at) for m, at in self.history.completed if at > self.now - 3600.0),
            scope_cooling=max(0.0, self.cooled - self.now))
        flights = tuple(model.InFlightMove(m.instance_uuid, m.from_host, m.to_host, 'task')
                        for m, _ in self.flights.values())
        outcome = planning_pipeline.plan_scope(
            dataclasses.replace(self.cluster, flights=flights),
            {p.name: self._samples(p) for p in self.policies.enabled_policies}, history,
            self.settings, now=self.now, clock=lambda: 0.0, busy=len(flights))
        self.waiting = list(outcome.plan.moves)
        self.done = set()
        self.history = dataclasses.replace(self.history, draining=outcome.plan.draining)
        self.moves += [(self.now, m) for m in outcome.plan.moves]
        if any(m.phase in metrics.IMBALANCE for m in outcome.plan.moves):
            self.cooled = self.now + self.weather.cooldown
        levelling = [m for m in outcome.plan.moves if m.phase is model.Phase.SPREAD]
        others = [m for m in outcome.plan.moves if m.phase is not model.Phase.SPREAD]
        if levelling:
            self.spreads.append((self.now, self.real(others), self.real([*others, *levelling])))
        self._migrate()

    def _maintain(self):
        """The next host, when the last one is empty."""
        services = self.cluster.services
        disabled = [h for h, s in services.items() if not s.enabled]
        if any(i.host in disabled for i in self.cluster.instances.values()):
            return
        self.emptied += len(disabled)
        chosen = self.rng.choice(sorted(set(services) - set(disabled)))
        self.cluster = dataclasses.replace(self.cluster, services={
            h: dataclasses.replace(s, status='disabled' if h == chosen else 'enabled')
            for h, s in services.items()})

    def _migrate(self):
        """End the migrations whose time is over; begin those that may begin."""
        for uuid, (move, end) in sorted(self.flights.items(), key=lambda f: f[1][1]):
            if end <= self.now:
                del self.flights[uuid]
                self._arrive(move, end)
        for move in list(self.waiting):
            if self.done.issuperset(move.requires):
                self.waiting.remove(move)
                self.flights[move.instance_uuid] = move, self.now + self.rng.uniform(10, 400)

    def _arrive(self, move, at):
        uuid = move.instance_uuid
        self.done.add(uuid)
        self.places[uuid].append((at, move.to_host))
        request = clouds.moved(
            clouds.planner.PlanningInput(self.cluster, model.ClusterScores({}), self.policies, (),
                                   model.MoveHistory(), self.settings.options, 1),
            model.Plan('scope', (move,)))
        self.cluster = request.cluster
        self.history = dataclasses.replace(
            self.history, completed=(*self.history.completed, (move, at)))

    # Metrics.

    def share(self, uuid):
        """By host, the part of the metrics' range that the instance spent there."""
        end = self.now - self.weather.lag
        start = end - self.window
        parts = collections.Counter()
        places = self.places[uuid]
        for (since, host), (until, _) in zip(places, [*places[1:], (float('inf'), None)],
                                             strict=True):
            parts[host] += max(0.0, min(end, until) - max(start, since)) / self.window
        return parts

    def _samples(self, p):
        scores = self.scores[p.name]
        here = {u: i.host for u, i in self.cluster.instances.items()}
        start = {u: places[0][1] for u, places in self.places.items()}
        load = dict(scores.hosts)
        for u, usage in scores.usages.items():
            load[start[u]] -= usage / scores.capacity[start[u]]
            for host, part in self.share(u).items():
                load[host] += part * usage / scores.capacity[host]
        hosts = model.QueryResult('load', model.SourceHealth.HEALTHY,
                                  {h: min(1.0, max(0.0, v)) for h, v in load.items()})
        usages = model.QueryResult('usage', model.SourceHealth.HEALTHY,
                                   {u: scores.usages[u] for u in here})
        return model.PolicySamples(
            policy=p.name, imbalance=hosts, profile=usages,
            capacity=hosts if p.capacity_query else None,
            age=self.weather.lag if self.weather.measured else None, taken_at=self.now)

    # What came of it.

    def real(self, moves=()):
        """Return the combined imbalance, its part above the thresholds, and the convex measure,
        after all running migrations and the given moves have arrived.
        """
        goal = {m.instance_uuid: m.to_host for m, _ in self.flights.values()}
        goal.update({m.instance_uuid: m.to_host for m in moves})
        usable = [h for h in self.cluster.scope_hosts if self.cluster.services[h].available]
        combined = excess = convex = 0.0
        for p in self.policies.enabled_policies:
            scores = self.scores[p.name]
            load = dict(scores.hosts)
            for u, usage in scores.usages.items():
                start, here = self.places[u][0][1], self.cluster.instances[u].host
                load[start] -= usage / scores.capacity[start]
                end = goal.get(u, here)
                load[end] += usage / scores.capacity[end]
            values = [load[h] for h in usable]
            imbalance = max(values) - min(values)
            combined += p.weight * imbalance
            excess += p.weight * max(0.0, imbalance - p.threshold)
            convex += p.weight * sum(v * v for v in load.values())
        return combined, excess, convex

    def cut_short(self):
        """Whether a plan used up its budget."""
        return self.policies.move_budget in collections.Counter(at for at, _ in self.moves).values()

    def worsened(self):
        """Plans after which the real loads are no better by their objective."""
        measures = slice(0, 1) if self.weather.objective == 'kronos' else slice(1, 3)
        return [(at - START, before, after) for at, before, after in self.spreads
                if not any(a < b - 1e-9 for a, b in zip(after[measures], before[measures],
                                                       strict=True))]

    def returned(self):
        """Moves that took an instance back to a host which it had left."""
        seen = collections.defaultdict(set)
        returns = []
        for at, move in self.moves:
            if move.to_host in seen[move.instance_uuid]:
                returns.append((at - START, move))
            seen[move.instance_uuid].add(move.from_host)
        return returns
