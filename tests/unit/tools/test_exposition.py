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

"""The exporter's text is what Prometheus' own parsers accept, under the real exporters' names."""

import subprocess

from prometheus_client.parser import text_string_to_metric_families
import pytest

from tests import ci
from tools.cloud import exposition
from tools.cloud import load


@pytest.fixture
def counters():
    host = load.HostCounters(cores=4, memory_total=8e9, boot_time=100.0, busy=40.0, idle=120.0,
                             disk_busy=3.0, cpu_waiting=0.5, memory_used=2e9)
    hostile = load.Guest(uuid='11111111-2222-3333-4444-555555555555', host='compute-01',
                         domain='instance-0000000a', name='a"} 1\nup 0\\', flavor='large',
                         vcpus=4, memory_mb=8192, project_id='p', user_id='u')
    return host, load.GuestCounters(hostile, cpu_time=12.5, memory=1e9)


@pytest.fixture
def texts(counters):
    host, guest = counters
    return {
        'node': exposition.node('compute-01', host, now=200.0).decode(),
        'libvirt': exposition.libvirt([guest]).decode(),
        'libvirt without guests': exposition.libvirt([]).decode(),
    }


def samples(text):
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_cpu_seconds_are_spread_over_the_cores_and_sum_up(texts):
    cpu = {dict(labels)['cpu'] + dict(labels)['mode']: value
           for (name, labels), value in samples(texts['node']).items()
           if name == 'node_cpu_seconds_total'}
    assert len(cpu) == 4 * len(exposition.MODES)
    assert (cpu['0user'], cpu['3idle']) == (10.0, 30.0)
    assert sum(cpu.values()) == 160.0


@pytest.mark.parametrize(('name', 'value'), [
    ('node_memory_MemTotal_bytes', 8e9),
    ('node_memory_MemAvailable_bytes', 6e9),
    ('node_pressure_cpu_waiting_seconds_total', 0.5),
    ('node_pressure_io_waiting_seconds_total', 0.0),
    ('node_pressure_memory_stalled_seconds_total', 0.0),
    ('node_boot_time_seconds', 100.0),
    ('node_time_seconds', 200.0),
])
def test_node_metrics_have_the_names_of_node_exporter(texts, name, value):
    assert samples(texts['node'])[name, ()] == value


def test_the_disk_and_the_host_name_are_labels(texts):
    found = samples(texts['node'])
    assert found['node_disk_io_time_seconds_total', (('device', 'sda'),)] == 3.0
    [uname] = [dict(labels) for name, labels in found if name == 'node_uname_info']
    assert uname['nodename'] == 'compute-01'


def test_guest_metrics_join_to_the_server_uuid_by_domain(texts):
    found = samples(texts['libvirt'])
    domain = (('domain', 'instance-0000000a'),)
    assert found['libvirt_domain_info_cpu_time_seconds_total', domain] == 12.5
    assert found['libvirt_domain_memory_stats_rss_bytes', domain] == 1e9
    [info] = [dict(labels) for name, labels in found if name == 'libvirt_domain_openstack_info']
    assert info['domain'] == 'instance-0000000a'
    assert info['instance_id'] == '11111111-2222-3333-4444-555555555555'


def test_a_tenants_server_name_cannot_inject_series(texts):
    found = samples(texts['libvirt'])
    assert not [name for name, _ in found if name == 'up']
    [info] = [dict(labels) for name, labels in found if name == 'libvirt_domain_openstack_info']
    assert info['instance_name'] == 'a"} 1\nup 0\\'


def test_no_series_appears_twice(texts):
    for text in texts.values():
        lines = [line.rsplit(' ', 1)[0] for line in text.splitlines() if line[:1] != '#']
        assert len(lines) == len(set(lines))


@pytest.mark.parametrize('kind', ['node', 'libvirt', 'libvirt without guests'])
def test_promtool_parses_the_text(texts, kind):
    done = subprocess.run([ci.program('promtool', 'prometheus'), 'check', 'metrics'],
                          input=texts[kind], capture_output=True, text=True)
    # code 3 is style alone, of which the real exporters have some too; 1 is a parse error
    assert done.returncode in (0, 3), done.stderr
