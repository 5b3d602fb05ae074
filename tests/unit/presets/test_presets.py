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


"""The shipped queries, run by Prometheus's own promtool on series as the
exporters name them, and the files themselves."""

import json
import pathlib
import subprocess

import pytest
import yaml

from kronos_nova import policy
from kronos_nova import presets
from kronos_nova.conf import policies as policy_files
from tests import ci

ROOT = pathlib.Path(__file__).parents[3]
DIGITS = 0.0001

NODES = {'10.0.0.1:9100': 'cn1', '10.0.0.2:9100': 'cn2.example.org'}
A, B = 'cn1', 'cn2.example.org'
GIB = 2**30


def _load(name):
    return policy.parse(yaml.safe_load(presets.read(name)), name)


def _series():
    """One hour at one sample a minute: cn1 has 2 busy CPUs, cn2 4 idle ones."""
    out = []

    def add(name, labels, values):
        text = ','.join(f'{k}={json.dumps(str(v))}' for k, v in labels.items())
        out.append({'series': f'{name}{{{text}}}', 'values': values})

    for instance, nodename in NODES.items():
        node = {'instance': instance, 'job': 'node'}
        # A second uname series of the same host (other kernel release).
        for release in ('6.1', '6.12'):
            add('node_uname_info', {**node, 'nodename': nodename, 'release': release}, '1+0x60')
        busy = nodename == A
        for cpu in range(2 if busy else 4):
            # A second per second: user + idle + iowait + steal = 60 a minute.
            for mode, step in (('user', 42 if busy else 3), ('idle', 9 if busy else 57),
                               ('iowait', 6 if busy else 0), ('steal', 3 if busy else 0)):
                add('node_cpu_seconds_total', {**node, 'cpu': cpu, 'mode': mode}, f'0+{step}x60')
        add('node_memory_MemTotal_bytes', node, f'{(8 if busy else 16) * GIB}+0x60')
        add('node_memory_MemAvailable_bytes', node, f'{(2 if busy else 12) * GIB}+0x60')
        for device, step in (('sda', 30 if busy else 6), ('nvme0n1', 12), ('dm-0', 60),
                             ('sda1', 60)):
            add('node_disk_io_time_seconds_total', {**node, 'device': device}, f'0+{step}x60')
        for kind, step in (('cpu_waiting', 12), ('io_waiting', 6), ('memory_stalled', 3)):
            add(f'node_pressure_{kind}_seconds_total', node, f'0+{step if busy else 0}x60')
    # libvirt names domains per host: instance-00000001 is on both.
    for host, uuid, step, rss in (('10.0.0.1:9177', 'u-1', 90, 3), ('10.0.0.2:9177', 'u-2', 6, 1)):
        domain = {'domain': 'instance-00000001', 'instance': host, 'job': 'libvirt'}
        add('libvirt_domain_info_cpu_time_seconds_total', domain, f'0+{step}x60')
        add('libvirt_domain_memory_stats_rss_bytes', domain, f'{rss * GIB}+0x60')
        add('libvirt_domain_openstack_info', {
            **domain, 'instance_id': uuid, 'instance_name': 'web"1', 'flavor_name': 'm1'},
            '1+0x60')
        add('libvirt_domain_info_meta', {**domain, 'uuid': uuid, 'instance_name': 'web'}, '1+0x60')
    return out


#: By policy and field: what the queries must say of the series above.
HOSTS = {
    'cpu': {A: 0.75, B: 0.05}, 'memory': {A: 0.75, B: 0.25}, 'steal': {A: 0.05, B: 0.0},
    'disk': {A: 0.5, B: 0.2}, 'pressure_cpu': {A: 0.2, B: 0.0},
    'pressure_io': {A: 0.1, B: 0.0}, 'pressure_memory': {A: 0.05, B: 0.0},
}
PROFILES = {'cpu': {'u-1': 1.5, 'u-2': 0.1}, 'memory': {'u-1': 3 * GIB, 'u-2': 1 * GIB}}
CAPACITY = {'cpu': {A: 2, B: 4}, 'memory': {A: 8 * GIB, B: 16 * GIB}}


def _expected(entry):
    return {'imbalance_query': HOSTS[entry.name], 'capacity_query': HOSTS[entry.name],
            'vm_profile_query': PROFILES.get(entry.name),
            'vm_mean_query': PROFILES.get(entry.name),
            'vm_deviation_query': dict.fromkeys(PROFILES.get(entry.name, ()), 0.0),
            'host_capacity_query': CAPACITY.get(entry.name),
            # The last sample was taken 30 s before the time of the question.
            'age_query': {A: 30, B: 30}}


def _label(entry, field):
    return entry.vm_profile_label if field.startswith('vm_') else entry.host_label


@pytest.mark.parametrize('name', presets.names())
def test_every_query_says_what_it_promises(name, tmp_path):
    promtool = ci.program('promtool', 'prometheus')
    tests = []
    for entry in _load(name).policies:
        for field, query in entry.queries.items():
            label = _label(entry, field)
            tests.append({'expr': f'round(({query}), {DIGITS})', 'eval_time': '60m30s',
                          'exp_samples': [{'labels': f'{{{label}="{key}"}}', 'value': value}
                                          for key, value in _expected(entry)[field].items()]})
    file = tmp_path / 'test.yaml'
    file.write_text(yaml.safe_dump({'evaluation_interval': '1m', 'tests': [
        {'interval': '1m', 'input_series': _series(), 'promql_expr_test': tests}]}))
    done = subprocess.run([promtool, 'test', 'rules', str(file)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('name', presets.names())
def test_a_host_that_is_gone_has_no_score_and_no_age(name, tmp_path):
    """A failed scrape ends a target's series; rate() alone would go on."""
    promtool = ci.program('promtool', 'prometheus')
    series = _series()
    for entry in series:
        if '10.0.0.2' in entry['series']:
            entry['values'] = entry['values'].replace('x60', 'x57 stale')
    tests = [{'expr': f'count({query})', 'eval_time': '60m30s',
              'exp_samples': [{'labels': '{}', 'value': 1}]}
             for policy_ in _load(name).policies
             for query in (policy_.imbalance_query, policy_.age_query)]
    file = tmp_path / 'test.yaml'
    file.write_text(yaml.safe_dump({'evaluation_interval': '1m', 'tests': [
        {'interval': '1m', 'input_series': series, 'promql_expr_test': tests}]}))
    done = subprocess.run([promtool, 'test', 'rules', str(file)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('name', presets.names())
def test_every_policy_of_a_preset_has_an_age_query(name):
    for entry in _load(name).policies:
        assert entry.age_query, entry.name


@pytest.mark.parametrize('name', presets.names())
def test_a_preset_loads_as_an_operators_file(name, tmp_path):
    file = tmp_path / 'policies.yaml'
    file.write_text(presets.read(name))
    assert policy_files.load(str(file)) == _load(name)


def test_a_preset_of_another_name_is_a_key_error():
    with pytest.raises(KeyError):
        presets.read('../policy')


def test_the_sample_is_the_preset():
    sample = policy_files.load(str(ROOT / 'etc/kronos/policies.yaml'))
    assert sample.enabled == _load('spread-inovex').enabled
