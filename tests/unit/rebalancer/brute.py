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

"""Every state that a plan's moves can bring a cloud into, by enumeration.

A move has not begun (or failed: the cloud is the same), is under way to one
of its destinations, or has landed there. It may begin when its required
moves have landed. All combinations are visited and judged by counting; nothing here
uses kronos_nova.constraints.
"""

import dataclasses
import itertools
import random

from tests.unit import clouds

WAITING = ('waiting', None)


class Brute:
    """:param ceilings: highest fill by policy name."""

    def __init__(self, request, plan, ceilings):
        self.request = request
        self.cluster = request.cluster
        self.moves = plan.moves
        self.ceilings = ceilings
        flights = self.cluster.flights
        self.flying = {f.instance_uuid for f in flights}
        self.coming = {}
        for f in sorted(flights, key=lambda f: f.source != 'nova'):
            if f.to_host is not None and f.instance_uuid in self.cluster.instances:
                self.coming.setdefault(f.instance_uuid, f.to_host)
        self.scheduled = {f.instance_uuid for f in flights
                          if f.source == 'nova' and f.to_host is not None}

    def combinations(self):
        count = 1
        for m in self.moves:
            count *= 1 + 2 * (1 + len(m.alternates))
        return count

    def violation(self):
        """A rule that some order of events breaks, in words, or None."""
        if len({m.instance_uuid for m in self.moves}) < len(self.moves):
            return 'an instance is moved twice'
        for m in self.moves:
            if self.cluster.instances[m.instance_uuid].host != m.from_host:
                return 'it is not there'
        options = []
        for m in self.moves:
            ends = (m.to_host, *m.alternates)
            options.append([WAITING, *((kind, h) for kind in ('flying', 'landed') for h in ends)])
        for states in itertools.product(*options):
            state = {m.instance_uuid: s for m, s in zip(self.moves, states, strict=True)}
            if all(self._may(m, state) for m in self.moves
                   if state[m.instance_uuid] is not WAITING):
                for m in self.moves:
                    if state[m.instance_uuid] is WAITING and self._may(m, state):
                        for host in (m.to_host, *m.alternates):
                            why = self.illegal(m, host, state)
                            if why:
                                return f'{why}: {m} to {host} in {state}'
        return None

    @staticmethod
    def _may(move, state):
        return all(state.get(u, WAITING)[0] == 'landed' for u in move.requires)

    def _on(self, uuid, state):
        """Hosts where the instance counts now."""
        kind, host = state.get(uuid, WAITING)
        if kind == 'landed':
            return {host}
        at = {self.cluster.instances[uuid].host}
        if kind == 'flying':
            at.add(host)
        elif uuid in self.coming:
            at.add(self.coming[uuid])
        return at

    def illegal(self, move, to, state):
        """Why the move may not begin now.

        :param state: by instance UUID of the plan's movers.
        """
        uuid, cluster = move.instance_uuid, self.cluster
        instance, host = cluster.instances[uuid], cluster.hosts[to]
        service = cluster.services[to]
        under_way = self.flying | {u for u, s in state.items() if s[0] == 'flying'}
        if to == move.from_host or uuid in self.flying:
            return 'nowhere to go'
        if (service.status, service.state, service.forced_down) != ('enabled', 'up', False):
            return 'service'
        for group in cluster.groups:
            if uuid not in group.members:
                continue
            others = {u for u in group.members if u != uuid and u in cluster.instances}
            if others & under_way:
                return 'group in flight'
            there = {u for u in others if to in self._on(u, state)}
            if group.policy == 'anti-affinity' and len(there) >= group.max_server_per_host:
                return 'anti-affinity'
            if group.policy == 'affinity' and not there:
                return 'affinity'
        return self._no_room(instance, host, state) or self._too_full(move, to, state)

    def _no_room(self, instance, host, state):
        if not self.cluster.placement_known:
            return None
        if host.provider is None:
            return 'no provider'
        for c, amount in instance.claims.items():
            if c == 'DISK_GB' and not self.request.options.enforce_placement_disk:
                continue
            if c not in host.provider.inventories:
                return 'no inventory'
            used = host.provider.used.get(c, 0)
            for u, other in self.cluster.instances.items():
                counted = (other.host == host.name) or (
                    u in self.scheduled and self.coming.get(u) == host.name)
                used += ((host.name in self._on(u, state)) - counted) * other.claims.get(c, 0)
            if used + amount > host.provider.inventories[c].capacity:
                return 'no room'
        return None

    def _too_full(self, move, to, state):
        for name, limit in self.ceilings.items():
            scores = self.request.scores.policies[name]
            if scores.untrusted or to not in scores.fill or not scores.capacity.get(to):
                continue
            if move.phase == 'spread' and move.from_host in scores.fill:
                limit = max(limit, self._fill(scores, move.from_host, {}))
            added = scores.usages.get(move.instance_uuid, 0.0) / scores.capacity[to]
            if self._fill(scores, to, state) + added > limit + 1e-8:
                return 'ceiling'
        return None

    def _fill(self, scores, host, state):
        total = scores.fill[host]
        if not scores.capacity.get(host):
            return total
        for u in {*state, *self.coming}:
            was = self.cluster.instances[u].host == host
            total += (((host in self._on(u, state)) - was)
                      * scores.usages.get(u, 0.0) / scores.capacity[host])
        return total


def crowded(seed):
    """A small cloud without much room, with work to do."""
    rng = random.Random(seed)
    return without_history(clouds.request(clouds.Knobs(
        seed=seed, hosts=rng.randint(2, 4), instances=rng.randint(8, 22),
        groups=rng.randint(1, 5), policies=rng.randint(1, 2),
        mode=rng.choice(['spread', 'pack']), budget=6, drains=rng.random() < 0.5,
        hard_repairs=rng.random() < 0.7, soft_repairs=rng.random() < 0.3,
        clean=rng.random() < 0.7, tight=rng.random() < 0.8)))


def ceilings_of(request):
    pack = request.policies.mode == 'pack'
    return {p.name: p.capacity_threshold if pack else 1.0
            for p in request.policies.enabled_policies}


def without_history(request):
    """Return the request without completed moves: they shift the fill for a time,
    and brute force does not model that."""
    return dataclasses.replace(
        request, history=dataclasses.replace(request.history, completed=()))
