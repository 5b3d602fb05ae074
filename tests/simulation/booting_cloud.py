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


"""A cloud at rest, instances that the real scoreboard and weigher place in it,
and the rebalancer's cycles that follow.

As :mod:`tests.simulation.lagging_cloud`; Nova's part is a HostState for each
host and the choice of the one that weighs most and has room.
"""

import dataclasses
import os
import tempfile
from unittest import mock

from oslo_config import cfg
import yaml

from kronos_nova import model
from kronos_nova import plugins
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import periodic
from kronos_nova.scheduler import score_cache
from kronos_nova.weighers import headroom
from tests.simulation import lagging_cloud
from tests.unit import clouds
from tests.unit import nova_fakes

COOLDOWN = 900.0


class BootingCloud(lagging_cloud.LaggingCloud):
    """:param surprise: instances use up to so many times their expected load."""

    def __init__(self, weather, surprise=1.0, cooldown=COOLDOWN):
        super().__init__(weather)
        self.surprise = surprise
        self.settings = dataclasses.replace(self.settings, instance_cooldown=cooldown)
        #: uuid -> (when, usage by policy)
        self.booted = {}

    def at_rest(self):
        """Return whether nothing moves and a cycle would plan no move; execute no plan."""
        if self.flights or self.waiting:
            return False
        samples = {p.name: self._samples(p) for p in self.policies.enabled_policies}
        return not lagging_cloud.planning_pipeline.plan_scope(
            self.cluster, samples, self.history, self.settings, now=self.now,
            clock=lambda: 0.0).plan.moves

    def settle(self, hours):
        """The rebalancer has been at work before."""
        self.run(hours)
        self.history = dataclasses.replace(self.history, completed=())

    def go_on(self, seconds):
        self.run((self.now - START + seconds) / 3600)

    def boot(self, count):
        """One after the other, within one refresh; how many found room."""
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(periodic.BackgroundRefresher, 'ensure_running', autospec=True), \
                mock.patch.object(plugins, 'load_plugin', autospec=True,
                                  return_value=lambda conf: self):
            board = self._board(directory)
            board.group_scored_hosts(list(self._states().values()))
            board.refresh_scores()
            assert not board.missing_score_reason, board.missing_score_reason
            return sum(self._boot(board, n) for n in range(count))

    def fetch(self, policy, *, profile=True):
        return self._samples(policy)

    def moves_of_booted(self):
        return [(at - START, m) for at, m in self.moves if m.instance_uuid in self.booted]

    def _board(self, directory):
        path = os.path.join(directory, 'policies.yaml')
        with open(path, 'w') as f:
            yaml.safe_dump({'policies': [
                p.model_dump(exclude_none=True, exclude_defaults=True)
                for p in self.policies.policies]}, f)
        conf = cfg.ConfigOpts()
        scheduler_conf.register(conf)
        conf([])
        for name, value in (('policies_file', [path]),
                            ('settle_seconds', int(self.weather.window))):
            conf.set_override(name, value, 'kronos')
        conf.set_override('staleness_threshold', 601, 'prometheus')
        return score_cache.ScoreCache(conf, periodic.FaultCounters())

    def _boot(self, board, number):
        vcpus, memory_mb = self.rng.choice([1, 2, 4]), 1024 * self.rng.choice([1, 2, 4])
        states = self._states()
        candidates = [s for h, s in states.items() if self._room(h, vcpus, memory_mb)]
        if not candidates:
            return False
        [group] = board.group_scored_hosts(candidates)
        weights = headroom.compute_raw_weights(group)
        chosen = candidates[weights.index(max(weights))].host
        uuid = clouds.uuid_of(f'booted{number}')
        usage = {}
        for name, scores in self.scores.items():
            allocated = sum(i.vcpus for i in self.cluster.instances.values())
            unit = sum(scores.hosts[h] * scores.capacity[h] for h in scores.hosts) / max(
                1, allocated)
            drawn = self.rng.uniform(0, self.surprise) if self.surprise > 1 else 1.0
            usage[name] = min(vcpus * unit * drawn, 0.5 * scores.capacity[chosen])
        self.booted[uuid] = self.now, usage
        self.places[uuid] = [(self.now, chosen)]
        claims = {'VCPU': vcpus, 'MEMORY_MB': memory_mb, 'DISK_GB': 1}
        host = self.cluster.hosts[chosen]
        used = {c: host.provider.used.get(c, 0) + claims[c] for c in claims}
        self.cluster = dataclasses.replace(
            self.cluster,
            hosts={**self.cluster.hosts, chosen: dataclasses.replace(
                host, provider=dataclasses.replace(host.provider, used=used))},
            instances={**self.cluster.instances, uuid: model.Instance(
                uuid, chosen, vcpus=vcpus, memory_mb=memory_mb, disk_gb=1, claims=claims,
                local_disk_gb=0, launched_at=self.now)})
        return True

    def _room(self, host, vcpus, memory_mb):
        provider = self.cluster.hosts[host].provider
        return all(provider.used.get(c, 0) + more <= provider.inventories[c].capacity
                   for c, more in (('VCPU', vcpus), ('MEMORY_MB', memory_mb), ('DISK_GB', 1)))

    def _states(self):
        states = {}
        for name in sorted(self.cluster.scope_hosts):
            provider = self.cluster.hosts[name].provider
            total = provider.inventories['MEMORY_MB'].total
            states[name] = nova_fakes.HostState(
                name, f'{name}.example.org',
                vcpus_total=provider.inventories['VCPU'].total,
                vcpus_used=provider.used.get('VCPU', 0), total_usable_ram_mb=total,
                free_ram_mb=total - provider.used.get('MEMORY_MB', 0))
        return states

    # Metrics.

    def _samples(self, p):
        booted = {u: places for u, places in self.places.items() if u in self.booted}
        everything, here = self.places, self.cluster
        self.places = {u: places for u, places in self.places.items() if u not in booted}
        self.cluster = dataclasses.replace(here, instances={
            u: i for u, i in here.instances.items() if u not in booted})
        try:
            samples = super()._samples(p)
        finally:
            self.places, self.cluster = everything, here
        load = dict(samples.imbalance.series)
        for uuid in booted:
            for host, part in self.share(uuid).items():
                load[host] = min(1.0, load[host] + part * self.booted[uuid][1][p.name]
                                 / self.scores[p.name].capacity[host])
        hosts = dataclasses.replace(samples.imbalance, series=load)
        return dataclasses.replace(
            samples, imbalance=hosts, capacity=hosts if samples.capacity else None,
            profile=dataclasses.replace(samples.profile, series={
                **samples.profile.series,
                **{u: usage[p.name] for u, (_, usage) in self.booted.items()}}))


START = lagging_cloud.START
