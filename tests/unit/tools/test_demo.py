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

"""The demo's stage: which servers, which loads, which policies."""

import pytest
import yaml

from kronos_nova import policy
from kronos_nova import presets
from tools.cloud import exporter
from tools.cloud import load
from tools.cloud import policies
from tools.cloud import scenario

HOSTS = [f'compute-{i:02d}' for i in range(1, 7)]


@pytest.fixture(params=policies.PRESETS)
def hypervisor(request):
    return request.param


@pytest.fixture
def text(hypervisor):
    return policies.shortened(presets.read_preset(policies.PRESETS[hypervisor]), budget=4,
                              seconds=policies.RANGES[hypervisor])


def test_the_sandbox_runs_the_preset_with_another_range_and_budget_only(hypervisor, text):
    preset = yaml.safe_load(presets.read_preset(policies.PRESETS[hypervisor]))
    ours = yaml.safe_load(text)
    for theirs, mine in zip(preset['policies'], ours['policies'], strict=True):
        assert mine.pop('max_migrations_per_cycle') == 4
        theirs.pop('max_migrations_per_cycle', None)
        ours_range = f'[{policies.RANGES[hypervisor]}s]'
        back = {k: v.replace(ours_range, '[5m]') if isinstance(v, str) else v
                for k, v in mine.items()}
        assert back == theirs
    assert policies.PRESET_RANGE not in text


def test_the_shortened_preset_is_a_valid_policy_file(text):
    found = policy.parse_policies(yaml.safe_load(text), 'policies.yaml')
    assert {p.name for p in found.enabled_policies} == {'cpu', 'memory'}


def test_a_preset_without_the_known_range_is_refused():
    with pytest.raises(ValueError, match='no range'):
        policies.shortened('policies: []', 3, 6)


def test_the_query_of_a_policy_comes_with_its_host_label(hypervisor, text):
    expression, label = policies.query(text, 'cpu')
    assert f'[{policies.RANGES[hypervisor]}s]' in expression
    assert label == 'nodename'


def placed():
    flavors, guests = {}, []
    for server in scenario.servers(HOSTS):
        flavors[server.name] = server.flavor
        guests.append(load.Guest(server.name, server.host, 'd', server.name, server.flavor.name,
                                 server.flavor.vcpus, server.flavor.ram_mb, 'p', 'u'))
    return flavors, guests


def cpu(uses):
    flavors, guests = placed()
    return scenario.expected_cpu(16, HOSTS, guests, scenario.loads(flavors, uses))


def test_at_first_the_first_half_is_busy():
    scores = cpu(scenario.FIRST)
    busy, idle = scenario.halves(HOSTS)
    assert min(scores[h] for h in busy) > 0.4
    assert max(scores[h] for h in idle) < 0.1


def test_the_flip_makes_the_other_half_busy():
    scores = cpu(scenario.FLIPPED)
    busy, idle = scenario.halves(HOSTS)
    assert min(scores[h] for h in idle) > 0.7
    assert max(scores[h] for h in busy) < 0.1
    assert scenario.imbalance(scores) > 0.6


def test_stock_nova_sees_more_room_on_the_hosts_that_are_busy_at_first():
    _, guests = placed()
    for field in ('vcpus', 'memory_mb'):
        reserved = {h: sum(getattr(g, field) for g in guests if g.host == h) for h in HOSTS}
        busy, idle = scenario.halves(HOSTS)
        assert max(reserved[h] for h in busy) < min(reserved[h] for h in idle)


def test_an_odd_host_is_left_alone():
    assert scenario.halves(['a', 'b', 'c']) == (['a'], ['b'])


def test_expected_scores_are_what_the_exporter_integrates():
    flavors, guests = placed()
    raw = scenario.loads(flavors, scenario.FLIPPED)
    integrator = load.Integrator(HOSTS, 16, 64 * scenario.GIB, now=0)
    integrator.set(guests, load.parse(raw), now=0)
    integrator.advance(10)
    measured = {name: host.busy / 160 for name, host in integrator.hosts.items()}
    assert measured == pytest.approx(scenario.expected_cpu(16, HOSTS, guests, raw))


def test_servers_without_a_load_of_their_own_idle():
    flavors = {'a': scenario.WEB}
    assert scenario.loads(flavors, scenario.FIRST) == {'instances': {}}
    assert exporter.guests([]) == []
