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


"""One scoring, two doors: scheduler and rebalancer say the same of a host."""

import random
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.conf import policy_watch
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.rebalancer import simulation
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import score_cache
from kronos_nova.scheduler.allocation_history import AllocationLedger
from kronos_nova.sources import base
from kronos_nova.weighers import headroom
from tests.unit import clouds
from tests.unit import nova_fakes

NOW = 1000.0
STALENESS = 300.0


class Answers(base.MetricsSource):
    def __init__(self, samples):
        self.samples = samples

    def fetch(self, policy, *, profile=True):
        return self.samples[policy.name]

    def health(self):
        return model.SourceHealth.HEALTHY, 'fake'


def label_of(rng, name, hypervisor):
    """What an exporter may call a host."""
    return rng.choice([name, hypervisor, name.split('.')[0], hypervisor.upper(), f'{name}:9100',
                       'stranger', hypervisor.split('.')[0]])


def drawn(seed):
    """Policies, hosts of random names and sizes, and samples with gaps."""
    rng = random.Random(seed)
    names = ['cpu', 'memory', 'net'][:rng.randint(1, 3)]
    parts = [rng.randint(1, 5) for _ in names]
    regex = rng.choice([None, r'^([^:]+):[0-9]+$'])
    found = policies.parse_policies({'policies': [
        {'name': name, 'weight': part / sum(parts), 'imbalance_query': name, 'boot_ceiling': 0.8,
         'capacity_query': rng.choice([None, f'{name}-peak']), 'host_capacity': 'VCPU',
         **({'host_regex': regex} if regex else {}), 'threshold': rng.choice([0.0, 0.1])}
        for name, part in zip(names, parts, strict=True)]})
    hosts, services = {}, {}
    for n in range(rng.randint(1, 8)):
        domain = rng.choice(['', '.a.org', '.b.org'])
        name = f'cn{rng.choice([n, n, 1])}{domain}'
        hypervisor = rng.choice([name, f'cn{n}.a.org', f'hv{n}.c.org'])
        hosts[name] = model.Host(name, hypervisor_hostname=hypervisor, provider=model.Provider(
            clouds.uuid_of(name), inventories={
                'VCPU': model.Inventory(rng.choice([8, 16, 64])),
                'MEMORY_MB': model.Inventory(65536)}))
        services[name] = model.Service(name)
    cluster = model.Cluster(hosts=hosts, instances={}, services=services,
                            scope_hosts=frozenset(hosts), taken_at=NOW)
    samples = {}
    for p in found.policies:
        def answer(query):
            series = {label_of(rng, h.name, h.hypervisor_hostname):
                      rng.choice([rng.random(), rng.random(), 1.0 + 5e-10, -5e-10])
                      for h in hosts.values() if rng.random() < 0.9}
            if rng.random() < 0.03:
                series[rng.choice(sorted(hosts))] = 1.5
            return model.QueryResult(query, model.SourceHealth.HEALTHY, series=series)
        samples[p.name] = model.PolicySamples(
            p.name, answer(p.imbalance_query), taken_at=NOW,
            capacity=answer(p.capacity_query) if p.capacity_query else None,
            age=rng.choice([None, 10.0, 400.0 if rng.random() < 0.1 else 20.0]))
    return found, cluster, samples


def door(found, cluster, samples):
    """The scheduler's snapshot, and its HostStates."""
    conf = cfg.ConfigOpts()
    scheduler_conf.register(conf)
    conf([])
    states = [nova_fakes.HostState(
        h.name, h.hypervisor_hostname, total_usable_ram_mb=65536, free_ram_mb=32768,
        vcpus_total=h.provider.inventories['VCPU'].total, vcpus_used=4)
        for h in cluster.hosts.values()]
    ledger = AllocationLedger()
    ledger.record_allocations(states, 0.0, 0.0)
    card = policy_scores.PolicyScorecard(conf, 'policies.yaml', clock=lambda: 0.0)
    with mock.patch.object(policy_watch, 'PolicyWatch', autospec=True) as watch:
        watch.return_value.refresh.return_value = found
        card.refresh_scores(lambda: Answers(samples))
    card.replace_reading(ledger.copy_tracks())
    return card.snapshot, states


def scored(found, cluster, samples):
    """The rebalancer's scores of each policy."""
    return {p.name: scoring.score_policy(p, samples[p.name], cluster, now=NOW, staleness=STALENESS,
                                         max_missing_hosts=len(cluster.hosts))
            for p in found.enabled_policies}


@clouds.examples(400)
@given(st.integers(0, 2**20))
def test_a_host_has_the_same_score_at_both_doors(seed):
    found, cluster, samples = drawn(seed)
    snapshot, states = door(found, cluster, samples)
    scores = scored(found, cluster, samples)
    if any(s.untrusted for s in scores.values()):
        assert snapshot.reason
        return
    weights = {p.name: p.weight for p in found.enabled_policies}
    whole = set.intersection(*(set(s.hosts) for s in scores.values()))
    expected = {h: scoring.sum_weighted({name: s.hosts[h] for name, s in scores.items()}, weights)
                for h in whole}
    assert snapshot.reason is None
    assert {h: 1.0 - v for h, v in snapshot.headroom.items()} == pytest.approx(expected)
    assert {h: load.score for h, load in snapshot.loads.items()} == pytest.approx(expected)
    # Nothing was allocated since: that is what the weigher says, to five places.
    raw = headroom.compute_raw_weights(score_cache.ScoredHosts(states, snapshot))
    for state, weight in zip(states, raw, strict=True):
        if state.host in expected:
            assert weight == pytest.approx(0.5 - expected[state.host], abs=1.1e-5)
    for ceiling in snapshot.ceilings:
        assert {h: load.score for h, load in ceiling.loads.items()} == pytest.approx(
            dict(scores[ceiling.policy].fill))


@clouds.examples(150)
@given(st.integers(0, 2**20))
def test_the_planners_combined_imbalance_uses_these_scores_and_weights(seed):
    found, cluster, samples = drawn(seed)
    snapshot, _ = door(found, cluster, samples)
    scores = scored(found, cluster, samples)
    if snapshot.reason or any(s.missing for s in scores.values()):
        return
    planned = simulation.Simulation(cluster, model.ClusterScores(scores, NOW), found,
                                    model.MoveHistory(),
                                    model.PlanningOptions(), lambda: False)
    assert planned.compute_combined() == pytest.approx(sum(
        p.weight * (max(hosts) - min(hosts))
        for p in found.enabled_policies if (hosts := scores[p.name].hosts.values())))


def test_enough_of_the_clouds_can_be_compared():
    trusted = 0
    for seed in range(100):
        found, cluster, samples = drawn(seed)
        trusted += not any(s.untrusted for s in scored(found, cluster, samples).values())
    assert trusted >= 25
