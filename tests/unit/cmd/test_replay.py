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


"""kronos-replay as a person or a program runs it."""

import functools
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys

import pytest
import yaml

from tests import commands

TOP = Path(__file__).resolve().parents[3]
EXAMPLE = TOP / 'doc/examples/replay'
#: Any use of the network ends the program, before its own code runs.
OFFLINE = '''
import socket, sys
def refuse(*args, **kwargs):
    raise SystemExit('a socket was opened')
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from kronos_nova.cmd import replay
status = replay.main()
heavy = {'nova', 'openstack', 'sqlalchemy', 'requests', 'oslo_messaging', 'alembic'}
sys.stderr.write(f'loaded: {sorted(heavy & set(sys.modules))}\\n')
sys.exit(status)
'''


def run(*arguments, cwd=EXAMPLE):
    return commands.run(OFFLINE, *arguments, cwd=cwd)


def replayed(*arguments):
    return run('--config-file', 'kronos.conf', 'snapshot', *arguments)


@functools.cache
def start(seed='0'):
    """Replay the example in an interpreter of its own, and return the process that ended."""
    return subprocess.run(
        [sys.executable, '-c', OFFLINE, '--config-file', 'kronos.conf', 'snapshot', '--format',
         'json'], cwd=EXAMPLE, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, 'PYTHONHASHSEED': seed, 'PYTHONPATH': str(TOP)})


def test_json_alone_is_on_standard_output():
    done = start()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ['aggregates']
    assert all(row['moves'] for row in found['aggregates'])


def test_it_needs_neither_network_nor_what_a_database_and_a_cloud_need():
    done = start()
    assert done.returncode == 0
    assert 'loaded: []' in done.stderr


def test_two_runs_say_the_same_but_for_timings():
    def plain(seed):
        found = json.loads(start(seed).stdout)
        for row in found['aggregates']:
            assert set(row.pop('timings')) == {'collect', 'score', 'plan', 'check'}
        return found

    assert plain('0') == plain('2')


def test_yaml_says_what_json_says():
    def without_timings(text):
        rows = yaml.safe_load(text)['aggregates']
        return [{k: v for k, v in row.items() if k != 'timings'} for row in rows]

    assert (without_timings(replayed('--format', 'yaml').stdout)
            == without_timings(start().stdout))


def test_a_table_shows_every_move():
    rows = json.loads(start().stdout)['aggregates']
    text = replayed().stdout
    for row in rows:
        assert f'Scope {row["name"]}: {row["hosts"]} hosts' in text
        for move in row['moves']:
            assert move['instance_uuid'] in text


def test_time_tells_the_timings_on_standard_error():
    done = replayed('--format', 'json', '--time')
    json.loads(done.stdout)
    assert 'fast-storage: collect ' in done.stderr


def test_a_log_file_of_the_daemons_is_left_alone(tmp_path):
    for name in ('kronos.conf', 'policies.yaml'):
        shutil.copy(EXAMPLE / name, tmp_path)
    text = (tmp_path / 'kronos.conf').read_text()
    (tmp_path / 'kronos.conf').write_text(
        f'[DEFAULT]\nlog_file = {tmp_path}/kronos.log\ndebug = true\n' + text)
    done = run('--config-file', 'kronos.conf', EXAMPLE / 'snapshot', '--format', 'json',
               cwd=tmp_path)
    assert done.returncode == 0
    json.loads(done.stdout)
    assert not (tmp_path / 'kronos.log').exists()


def one_line(done):
    assert done.returncode == 1
    assert done.stdout == ''
    lines = [line for line in done.stderr.splitlines() if not line.startswith('loaded:')]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith('kronos-replay: ')
    return lines[0]


@pytest.mark.parametrize(('arguments', 'problem'), [
    (['--config-file', 'kronos.conf', '/nonexistent'], 'meta.json'),
    (['--config-file', 'kronos.conf', '.'], 'meta.json'),
    (['--config-file', '/nonexistent', 'snapshot'], '/nonexistent'),
    (['--config-file', 'policies.yaml', 'snapshot'], 'policies.yaml')])
def test_unusable_input_gives_one_clear_line(arguments, problem):
    assert problem in one_line(run(*arguments))


def test_a_wrong_policy_file_is_one_clear_line(tmp_path):
    (tmp_path / 'kronos.conf').write_text('[engine]\npolicies_file = policies.yaml\n')
    (tmp_path / 'policies.yaml').write_text(
        'policies: [{name: cpu, weight: 0.5, imbalance_query: up}]')
    line = one_line(run('--config-file', 'kronos.conf', EXAMPLE / 'snapshot', cwd=tmp_path))
    assert 'policies.yaml' in line and 'sum to 1.0' in line


def test_an_option_out_of_bounds_is_one_clear_line(tmp_path):
    (tmp_path / 'kronos.conf').write_text('[engine]\nmax_down_fraction = 2\n')
    line = one_line(run('--config-file', 'kronos.conf', EXAMPLE / 'snapshot', cwd=tmp_path))
    assert 'max_down_fraction' in line


def test_a_configuration_of_the_ancestor_is_read_unchanged(tmp_path):
    (tmp_path / 'kronos.conf').write_text('''
[engine]
evaluation_interval = 60
dry_run = true
policies_file = policies.yaml
instance_cooldown = 900
instance_quarantine_seconds = -1
cooldown = 600
availability_zone = nova
aggregates = fast-storage
include_unassigned_hosts = false
enforce_hard_affinity = true
enforce_soft_affinity = true
snapshot_dir =
evacuate_disabled_hosts = true
enforce_placement_claims = true
enforce_placement_disk = true
require_cpu_compatibility = true
[prometheus]
url = http://prometheus:9090
timeout = 30
max_retries = 3
retry_backoff = 1.0
staleness_threshold = 300
verify_ssl = false
[executor]
max_concurrent_migrations = 2
migration_timeout = 600
migration_poll_interval = 10
[messaging]
transport = rabbit
host = broker
password = p@ss/w:rd
[nova]
auth_type = password
auth_url = http://keystone:5000/v3
''')
    (tmp_path / 'policies.yaml').write_text('''
policies:
  - name: cpu
    mode: spread
    weight: 1.0
    imbalance_query: |
      up
    vm_profile_query: some_metric
    vm_profile_label: domain
    vm_profile_label_type: nova_internal_name
    vm_profile_fallback: flavor_vcpu_ratio
    host_label: instance
    threshold: 0.15
    max_migrations_per_cycle: 3
    enabled: true
''')
    done = run('--config-file', 'kronos.conf', EXAMPLE / 'snapshot', '--format', 'json',
               cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)['aggregates']
    assert 'not in the snapshot' in row['policies'][0]['reason']


def two_zones(directory):
    """Copy the example; hosts of each scope are in turn in zones east and west."""
    snapshot = directory / 'snapshot'
    shutil.copytree(EXAMPLE / 'snapshot', snapshot)
    zones = {}
    for name in ('services.json', 'hypervisors.json'):
        path = snapshot / 'nova' / name
        records = json.loads(path.read_text())
        for record in records:
            zone = 'east' if int(record['host'][-2:]) % 2 else 'west'
            zones[record['host']] = record['zone'] = zone
        path.write_text(json.dumps(records))
    return snapshot, zones


@pytest.mark.parametrize('zone', ['east', 'west', ''])
def test_an_engine_with_an_availability_zone_plans_its_hosts_alone(tmp_path, zone):
    snapshot, zones = two_zones(tmp_path)
    conf = tmp_path / 'kronos.conf'
    text = (EXAMPLE / 'kronos.conf').read_text()
    assert text.count('[engine]\n') == 1
    conf.write_text(text.replace('[engine]\n', f'[engine]\navailability_zone = {zone}\n'))
    done = run('--config-file', conf, snapshot, '--format', 'json')
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)['aggregates']
    ends = {(zones[m['from_host']], zones[m['to_host']]) for row in rows for m in row['moves']}
    if zone:
        assert ends == {(zone, zone)}
        assert sum(row['hosts'] for row in rows) == len(zones) / 2
    else:
        assert ('east', 'west') in ends or ('west', 'east') in ends
        assert sum(row['hosts'] for row in rows) == len(zones)


def test_a_zone_without_hosts_is_named_as_the_reason(tmp_path):
    snapshot, _zones = two_zones(tmp_path)
    conf = tmp_path / 'kronos.conf'
    conf.write_text((EXAMPLE / 'kronos.conf').read_text().replace(
        '[engine]\n', '[engine]\navailability_zone = north\n'))
    done = run('--config-file', conf, snapshot, '--format', 'json')
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)['aggregates']:
        assert row['reason'] == (f"scope {row['name']} has no hosts in availability zone "
                                 'north ([engine] availability_zone)')


def test_the_example_is_what_its_program_writes():
    done = subprocess.run([sys.executable, 'tools/generate_example_snapshot.py', '--check'],
                          cwd=TOP, capture_output=True, text=True, check=False,
                          env={**os.environ, 'PYTHONPATH': str(TOP)})
    assert done.returncode == 0, done.stdout + done.stderr
