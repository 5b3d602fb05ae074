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


"""What a plan really comes to, counted by hand and not by the planner."""

import itertools

FAR = 1e-9


class Real:
    """The cluster with a plan carried out: every instance's usage divided by
    the capacity of the host that it is on now."""

    def __init__(self, case, moves=()):
        self.case = case
        cluster = case.cluster
        self.hosts = sorted(cluster.scope_hosts)
        self.open = {h for h in self.hosts if cluster.services[h].available}
        self.place = {u: i.host for u, i in cluster.instances.items()}
        self.scores = {n: dict(s.hosts) for n, s in case.scores.policies.items()}
        self.used = {h: dict(cluster.hosts[h].provider.used) for h in self.hosts}
        self.groups = {}
        for group in cluster.groups:
            for u in group.members:
                self.groups.setdefault(u, []).append(group)
        for u, to in moves:
            self.move(u, to)

    def move(self, u, to):
        source = self.place[u]
        for n, s in self.case.scores.policies.items():
            self.scores[n][source] -= s.usages[u] / s.capacity[source]
            self.scores[n][to] += s.usages[u] / s.capacity[to]
        for c, amount in self.case.cluster.instances[u].claims.items():
            self.used[source][c] -= amount
            self.used[to][c] += amount
        self.place[u] = to

    def imbalances(self):
        found = {}
        for n, scores in self.scores.items():
            values = [scores[h] for h in self.hosts if h in self.open]
            found[n] = max(values) - min(values)
        return found

    def combined(self):
        values = self.imbalances()
        return sum(p.weight * values[p.name] for p in self.case.policies.enabled_policies)

    def excess(self):
        values = self.imbalances()
        return sum(p.weight * max(0.0, values[p.name] - p.threshold)
                   for p in self.case.policies.enabled_policies)

    def over(self):
        values = self.imbalances()
        return any(values[p.name] > p.threshold + FAR for p in self.case.policies.enabled_policies)

    def legal(self, u, to):
        """Claims, open destination, and hard anti-affinity."""
        if to == self.place[u] or to not in self.open:
            return False
        inventories = self.case.cluster.hosts[to].provider.inventories
        for c, amount in self.case.cluster.instances[u].claims.items():
            if c != 'DISK_GB' and amount and (
                    self.used[to][c] + amount > inventories[c].capacity):
                return False
        for group in self.groups.get(u, ()):
            if group.policy == 'anti-affinity':
                others = sum(self.place.get(o) == to for o in group.members if o != u)
                if others >= group.max_server_per_host:
                    return False
        return True

    def below(self, u, to):
        """The host stays a host: no score above 1."""
        return all(self.scores[n][to] + s.usages[u] / s.capacity[to] <= 1.0
                   for n, s in self.case.scores.policies.items())

    def broken(self):
        """Hard groups with too many members on a host."""
        count = 0
        for group in self.case.cluster.groups:
            if group.policy != 'anti-affinity':
                continue
            homes = [self.place[u] for u in group.members]
            count += any(homes.count(h) > group.max_server_per_host for h in homes)
        return count

    def missed(self, moved, least, left):
        """An improving legal move, or swap if two are ``left``, of instances not ``moved``: its
        fall in combined imbalance beyond ``least`` per GiB, or None.

        Improving: what is above the thresholds falls too, and no policy ends
        worse and above its threshold.
        """
        above = self.excess()
        before, limits = self.combined(), self.imbalances()
        limits = {p.name: max(limits[p.name], p.threshold) + FAR
                  for p in self.case.policies.enabled_policies}
        free = [u for u in sorted(self.place) if u not in moved]

        def gain(*pairs):
            memory, back = 0.0, []
            good = True
            for u, to in pairs:
                if not self.legal(u, to):
                    good = False
                    break
                back.append((u, self.place[u]))
                memory += self.case.cluster.instances[u].memory_mb / 1024.0
                self.move(u, to)
            fall = before - self.combined() - least * memory
            after = self.imbalances()
            good = (good and self.excess() < above - FAR
                    and all(after[n] <= limits[n] for n in after))
            for u, to in reversed(back):
                self.move(u, to)
            return fall if good else 0.0

        extreme = set()
        for scores in self.scores.values():
            known = [h for h in self.hosts if h in self.open]
            extreme |= {max(known, key=scores.get), min(known, key=scores.get)}
        for u in free:
            for to in self.hosts:
                if extreme & {to, self.place[u]} and (fall := gain((u, to))) > FAR:
                    return fall
        for u, v in itertools.combinations(free, 2) if left > 1 else ():
            a, b = self.place[u], self.place[v]
            if a != b and extreme & {a, b}:
                fall = max(gain((u, b), (v, a)), gain((v, a), (u, b)))
                if fall > FAR:
                    return fall
        return None
