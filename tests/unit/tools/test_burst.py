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


"""The parts of a burst outside the cloud."""

import pytest

from tools.cloud import burst
from tools.cloud import main
from tools.cloud import scenario
from tools.cloud import up

HOSTS = up.host_names(6)


def guests():
    halves = zip(scenario.halves(HOSTS), (burst.BUSY, burst.IDLE), strict=True)
    return [(host, flavor) for hosts, flavor in halves for host in hosts
            for _ in range(burst.SETTLED[flavor])]


def test_true_load_of_hosts_is_their_own_and_their_servers_usage():
    found = burst.cores(HOSTS, guests())
    busy, idle = scenario.halves(HOSTS)
    assert [found[host] for host in busy] == pytest.approx([(0.4 + 3 * 1.6) / 16] * 3)
    assert [found[host] for host in idle] == pytest.approx([(0.4 + 2 * 0.2) / 16] * 3)


def test_stock_nova_sees_more_room_on_the_busy_hosts():
    for field in ('vcpus', 'ram_mb'):
        reserved = {host: sum(getattr(flavor, field) for at, flavor in guests() if at == host)
                    for host in HOSTS}
        busy, idle = scenario.halves(HOSTS)
        assert max(reserved[host] for host in busy) < min(reserved[host] for host in idle)


def test_the_engine_measures_what_the_burst_boots():
    assert sum(flavor is burst.BUSY for _, flavor in guests()) >= 5


def test_workers_with_scores_are_found_in_the_log():
    line = '2026-01-01 00:00:00.0 %d INFO kronos_nova.scheduler.policy_scores [-] kronos: ' \
        'scores of 6 hosts by f are in use\n'
    text = line % 11 + line % 12 + line % 11 + '2026-01-01 00:00:00.0 13 INFO nova [-] up\n'
    assert set(burst.SCORES.findall(text)) == {'11', '12'}


def test_a_burst_needs_hosts_to_choose_from():
    assert main.main(['--dir', '/nonexistent', 'burst', '--hosts', '1']) == 2
