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
U1, U2 = (f'0000000{n}-5a1c-4d2e-8f00-123456789abc' for n in (1, 2))
GIB = 2**30


def _load(name):
    return policy.parse_policies(yaml.safe_load(presets.read_preset(name)), name)


def _counter(step, end='x60'):
    """A value a minute; the exporter is restarted three minutes before the end."""
    return f'0+{step}x57 {step}+{step}x2' if end == 'x60' else f'0+{step}{end}'


def _series(name=''):
    """One hour at one sample a minute: cn1 has 2 busy CPUs, cn2 4 idle ones.

    :param name: of the preset; kumina's exporter names its series as the others do, and labels
        each with the UUID.
    """
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
                add('node_cpu_seconds_total', {**node, 'cpu': cpu, 'mode': mode}, _counter(step))
        add('node_memory_MemTotal_bytes', node, f'{(8 if busy else 16) * GIB}+0x60')
        add('node_memory_MemAvailable_bytes', node, f'{(2 if busy else 12) * GIB}+0x60')
        for device, step in (('sda', 30 if busy else 6), ('nvme0n1', 12), ('dm-0', 60),
                             ('sda1', 60)):
            add('node_disk_io_time_seconds_total', {**node, 'device': device}, _counter(step))
        for kind, step in (('cpu_waiting', 12), ('io_waiting', 6), ('memory_stalled', 3)):
            add(f'node_pressure_{kind}_seconds_total', node, _counter(step if busy else 0))
        # Bytes a second, received and sent. Two ports tell no speed, a guest's is no port.
        for device, speed, received, sent in (
                ('eno1', 1_000, 100 if busy else 20, 600 if busy else 10),
                ('ens2f0', 2_000, 0, 40), ('enp9s0', -125_000, 900, 900),
                ('ib0', 0, 5, 5), ('tap0', 10, 10, 10)):
            port = {**node, 'device': device}
            add('node_network_speed_bytes', port, f'{speed}+0x60')
            add('node_network_receive_bytes_total', port, _counter(60 * received))
            add('node_network_transmit_bytes_total', port, _counter(60 * sent))
    # libvirt names domains per host: instance-00000001 is on both.
    for host, uuid, step, rss in (('10.0.0.1:9177', U1, 90, 3), ('10.0.0.2:9177', U2, 6, 1)):
        domain = {'domain': 'instance-00000001', 'instance': host, 'job': 'libvirt'}
        if name == 'spread-kumina':
            domain['uuid'] = uuid
            add('libvirt_domain_info_memory_usage_bytes', domain, f'{rss * GIB}+0x60')
        add('libvirt_domain_info_cpu_time_seconds_total', domain, _counter(step))
        add('libvirt_domain_memory_stats_rss_bytes', domain, f'{rss * GIB}+0x60')
        for device, received, sent in (('tap1', 1, 4), ('tap2', 1, 1)):
            port = {**domain, 'target_device': device}
            add('libvirt_domain_interface_stats_receive_bytes_total', port,
                _counter(step * received))
            add('libvirt_domain_interface_stats_transmit_bytes_total', port,
                _counter(step * sent))
        add('libvirt_domain_openstack_info', {
            **domain, 'instance_id': uuid, 'instance_name': 'web"1', 'flavor_name': 'm1'},
            '1+0x60')
        add('libvirt_domain_info_meta', {**domain, 'uuid': uuid, 'instance_name': 'web'}, '1+0x60')
        _add_ceilometer(add, uuid, step, rss)
    return out


def _add_ceilometer(add, uuid, step, rss):
    """As sg-core tells it: the label of the first part of the name, resource, no host. The
    second series is what the instance left on the host that it has come from."""
    for vm_instance, values in (('hash-here', _counter(step * 10**9)),
                                ('hash-there', _counter(step * 10**9, 'x50') + ' stale')):
        common = {'publisher': 'ctl', 'project': 'p', 'vm_instance': vm_instance, 'job': 'sg-core',
                  'instance': '10.0.0.9:3000', 'resource_name': 'web"1'}
        add('ceilometer_cpu', {**common, 'cpu': uuid, 'type': 'cpu', 'unit': 'ns',
                               'resource': uuid}, values)
        add('ceilometer_memory_usage', {**common, 'memory': uuid, 'type': 'usage', 'unit': 'MB',
                                        'resource': uuid},
            f'{rss * 1024}+0x60' if vm_instance == 'hash-here' else f'{rss * 1024}+0x50 stale')
    common = {'network': 'bytes', 'publisher': 'ctl', 'unit': 'B', 'job': 'sg-core',
              'instance': '10.0.0.9:3000'}
    for device, received, sent in (('tap1', 1, 4), ('tap2', 1, 1)):
        port = {**common, 'resource': f'instance-00000001-{uuid}-{device}'}
        add('ceilometer_network_incoming_bytes', {**port, 'type': 'incoming'},
            _counter(step * received))
        add('ceilometer_network_outgoing_bytes', {**port, 'type': 'outgoing'},
            _counter(step * sent))


#: By policy and field: what the queries must say of the series above.
HOSTS = {
    'cpu': {A: 0.75, B: 0.05}, 'memory': {A: 0.75, B: 0.25}, 'steal': {A: 0.05, B: 0.0},
    'disk': {A: 0.5, B: 0.2}, 'network': {A: 0.6, B: 0.02}, 'pressure_cpu': {A: 0.2, B: 0.0},
    'pressure_io': {A: 0.1, B: 0.0}, 'pressure_memory': {A: 0.05, B: 0.0},
}
PROFILES = {'cpu': {U1: 1.5, U2: 0.1}, 'memory': {U1: 3 * GIB, U2: 1 * GIB},
            'network': {U1: 7.5, U2: 0.5}}
CAPACITY = {'cpu': {A: 2, B: 4}, 'memory': {A: 8 * GIB, B: 16 * GIB},
            'network': {A: 2000, B: 2000}}


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


def _case(entry, field, query, expected):
    label = _label(entry, field)
    return {'expr': query, 'eval_time': '60m30s', 'exp_samples': [
        {'labels': f'{{{label}="{key}"}}', 'value': value} for key, value in expected.items()]}


def _promtool(directory, series, tests):
    file = directory / 'test.yaml'
    file.write_text(yaml.safe_dump({'evaluation_interval': '1m', 'tests': [
        {'interval': '1m', 'input_series': series, 'promql_expr_test': tests}]}))
    done = subprocess.run([ci.program('promtool', 'prometheus'), 'test', 'rules', str(file)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('name', presets.list_presets())
def test_every_query_returns_its_documented_values(name, tmp_path):
    _promtool(tmp_path, _series(name), [
        _case(entry, field, f'round(({query}), {DIGITS})', _expected(entry)[field])
        for entry in _load(name).policies for field, query in entry.queries.items()])


@pytest.mark.parametrize('name', presets.list_presets())
def test_a_host_that_is_gone_has_no_score_and_no_age(name, tmp_path):
    """A failed scrape ends a target's series; rate() alone would go on."""
    series = _series(name)
    for entry in series:
        if '10.0.0.2' in entry['series']:
            entry['values'] = entry['values'].replace('x57', 'x54').replace('x60', 'x57 stale')
            if not entry['values'].endswith('stale'):
                entry['values'] += ' stale'
    _promtool(tmp_path, series, [
        {'expr': f'count({query})', 'eval_time': '60m30s',
         'exp_samples': [{'labels': '{}', 'value': 1}]}
        for entry in _load(name).policies
        for query in (entry.imbalance_query, entry.age_query)])


@pytest.mark.parametrize('name', presets.list_presets())
def test_a_value_that_is_no_number_costs_its_own_host_or_instance_alone(name, tmp_path):
    """The source drops values that are not finite; they must not affect other values."""
    series = _series(name)
    for entry in series:
        names = ('node_uname_info', 'libvirt_domain_openstack_info', 'libvirt_domain_info_meta')
        if not entry['series'].startswith(names) and any(
                mark in entry['series'] for mark in ('10.0.0.1:', U1)):
            entry['values'] = 'NaN+0x60'
    _promtool(tmp_path, series, [
        _case(entry, field, f'round(({query}), {DIGITS}) > -Inf',
              {key: value for key, value in _expected(entry)[field].items()
               if key in (B, U2) or field == 'age_query' or (entry.name, field) in COUNTED})
        for entry in _load(name).policies for field, query in entry.queries.items()])


#: CPUs are counted, whatever their samples say.
COUNTED = {('cpu', 'host_capacity_query')}


@pytest.mark.parametrize('second', [0, 30, 90, 150, 210, 270])
def test_usages_that_are_polled_every_five_minutes_are_right_to_a_quarter(second, tmp_path):
    """sg-core shows the last poll until the next one: a staircase."""
    entry = _load('spread-ceilometer').find_policy('cpu')
    steps = ' '.join(f'{minute * 90 * 10**9}+0x4' for minute in range(0, 65, 5))
    series = [{'series': f'ceilometer_cpu{{resource="{U1}"}}', 'values': steps}]
    _promtool(tmp_path, series, [{
        'expr': f'abs({entry.vm_profile_query} / 1.5 - 1) < bool 0.25',
        'eval_time': f'{3600 - second}s',
        'exp_samples': [{'labels': f'{{resource="{U1}"}}', 'value': 1}]}])


@pytest.mark.parametrize('name', presets.list_presets())
def test_an_instance_that_left_no_series_has_no_usage(name, tmp_path):
    series = [entry for entry in _series(name) if U1 not in entry['series']]
    _promtool(tmp_path, series, [
        _case(entry, field, f'round(({query}), {DIGITS})',
              {key: value for key, value in _expected(entry)[field].items() if key != U1})
        for entry in _load(name).policies for field, query in entry.queries.items()
        if field.startswith('vm_')] or [
        {'expr': 'vector(1)', 'eval_time': '1m', 'exp_samples': [{'labels': '{}', 'value': 1}]}])


@pytest.mark.parametrize('name', presets.list_presets())
def test_every_policy_of_a_preset_has_an_age_query(name):
    for entry in _load(name).policies:
        assert entry.age_query, entry.name


@pytest.mark.parametrize('name', presets.list_presets())
def test_a_preset_loads_as_an_operators_file(name, tmp_path):
    file = tmp_path / 'policies.yaml'
    file.write_text(presets.read_preset(name))
    assert policy_files.load_policies(str(file)) == _load(name)


#: What no other exporter's metrics begin with.
EXPORTERS = {'node_exporter': 'node_', 'inovex/prometheus-libvirt-exporter': 'libvirt_domain_open',
             'Tinkoff/libvirt-exporter': 'libvirt_domain_info_meta', 'Ceilometer': 'ceilometer_',
             'kumina/libvirt_exporter': 'libvirt_domain_info_memory_usage_bytes'}


@pytest.mark.parametrize('name', presets.list_presets())
def test_the_head_of_a_preset_names_its_purpose_and_its_exporters(name):
    about = presets.describe_preset(name)
    assert about.purpose.endswith('.') and 'Licen' not in about.purpose
    queries = ' '.join(q for entry in _load(name).policies for q in entry.queries.values())
    assert [any(called.startswith(exporter) for called in about.exporters)
            for exporter in EXPORTERS] == [prefix in queries for prefix in EXPORTERS.values()]


def test_a_preset_of_another_name_is_a_key_error():
    with pytest.raises(KeyError):
        presets.read_preset('../policy')


def test_the_sample_is_the_preset():
    sample = policy_files.load_policies(str(ROOT / 'etc/kronos/policies.yaml'))
    assert sample.enabled_policies == _load('spread-inovex').enabled_policies
