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

"""The phases of our devstack plugin, run by DevStack's own functions.

Real are DevStack's ``run_phase``, its lists of services, ``iniset``, its units of systemd, its
packages, its URLs of database and broker, and its calls of Keystone up to the command. Programs
that would change the machine (``stand_in.sh``) record their calls: apt-get, systemctl, pip, git,
mysql, openstack, kronos-manage, curl, uwsgi. sudo runs what handles files of the test's directory.
"""

import configparser
import os
from pathlib import Path
import shlex
import subprocess
import sys

from keystonemiddleware import opts as middleware_opts
from oslo_config import cfg
import pytest
import yaml

from kronos_nova.conf import nova
from kronos_nova.conf import opts
from tests.gate import sources

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
STACK = ('stack pre-install', 'stack install', 'stack post-config', 'stack extra',
         'stack test-config')
CONTROLLER = 'n-api,n-sch,n-cpu,placement-api,key,mysql,rabbit'
RECORDED = ('sudo', 'apt-get', 'systemctl', 'service', 'mysql', 'openstack', 'git', 'curl', 'uwsgi')
#: Of DevStack's and the requirements' virtual environments.
INSTALLED = ('venv/bin/pip', 'venv/bin/kronos-manage', 'requirements/.venv/bin/edit-constraints')


class StackedNode:
    """A node with DevStack's functions, and what the phases of our plugin did there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.devstack = sources.find_checkout('openstack/devstack')
        for name in ('nova', 'placement', 'prometheus', 'data', 'apache'):
            (home / name).mkdir()
        for name in (*(f'bin/{program}' for program in RECORDED), *INSTALLED):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(HERE / 'stand_in.sh')

    def run_phases(self, *phases: str, services: str = CONTROLLER, disabled: str = '',
                   **settings: str) -> None:
        done = subprocess.run(
            ['bash', str(HERE / 'devstack_phases.sh'), *phases], cwd=self.home, text=True,
            capture_output=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
            env={'HOME': str(self.home), 'TERM': 'dumb', 'LANG': 'C.UTF-8',
                 'PATH': f'{self.home}/bin:{os.environ["PATH"]}',
                 'CALLS': str(self.home / 'calls'), 'STACK_HOME': str(self.home),
                 'DEVSTACK': str(self.devstack), 'KRONOS_DIR': str(TOP),
                 'STACK_SERVICES': services, 'STACK_DISABLED': disabled,
                 'KRONOS_CONF_DIR': str(self.home / 'kronos'),
                 'KRONOS_PROMETHEUS_CONF': str(self.home / 'prometheus/prometheus.yml'),
                 **settings})
        assert done.returncode == 0, done.stdout + done.stderr
        assert 'line ' not in done.stderr, done.stderr

    def list_calls(self, *beginning: str) -> list[list[str]]:
        """Return the recorded calls that begin so, without that beginning."""
        calls = [line.split('\t') for line in (self.home / 'calls').read_text().splitlines()]
        return [call[len(beginning):] for call in calls
                if call[:len(beginning)] == list(beginning)]

    def list_services(self, verb: str) -> list[str]:
        """Return the distribution's services that were given a verb; DevStack calls ``service``
        on a machine that has no systemctl."""
        calls = [line.split('\t')[1:] for line in (self.home / 'calls').read_text().splitlines()
                 if line.startswith('sudo\t')]
        return [call[2] if call[0] == '/bin/systemctl' else call[1] for call in calls
                if call[:2] == ['/bin/systemctl', verb]
                or (call[0] == 'service' and call[2] == verb)]

    def read_unit(self, service: str) -> configparser.SectionProxy:
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[method-assign,assignment]
        assert unit.read(self.home / f'systemd/devstack@{service}.service')
        return unit['Service']

    def load_daemon(self, role: str) -> cfg.ConfigOpts:
        """Return the options as a daemon reads them from the files that its unit names."""
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf.register_opts(nova.auth_opts(), group='nova')
        conf(shlex.split(self.read_unit(f'kronos-{role}')['ExecStart'])[1:])
        return conf


@pytest.fixture
def node(tmp_path):
    return StackedNode(tmp_path)


@pytest.fixture
def stacked(node):
    node.run_phases(*STACK)
    return node


def test_packages_and_our_tree_are_installed(stacked):
    installed = [call[-1] for call in stacked.list_calls('apt-get') if 'install' in call]
    assert installed == ['prometheus', 'prometheus-node-exporter']
    constraints = str(stacked.home / 'requirements/upper-constraints.txt')
    # DevStack reads our name from setup.cfg; a further argument would become a line there.
    assert stacked.list_calls('edit-constraints') == [[constraints, '--', 'kronos-nova']]
    assert stacked.list_calls('pip') == [
        ['install', '-c', constraints, '-e', f'{TOP}[rebalancer,mysql,api]']]
    assert stacked.list_calls('git') == []


def test_units_start_our_commands_with_files_that_they_accept(stacked):
    for role in ('engine', 'executor'):
        unit = stacked.read_unit(f'kronos-{role}')
        assert shlex.split(unit['ExecStart'])[0] == str(stacked.home / f'venv/bin/kronos-{role}')
        assert unit['KillMode'] == 'process'
        conf = stacked.load_daemon(role)
        assert opts.wrong_values(conf) == []
        assert conf.database.connection == (
            'mysql+pymysql://root:secret@127.0.0.1/kronos?charset=utf8&plugin=dbcounter')
        assert (conf.nova.username, conf.nova.password) == (f'kronos-{role}', 'pass word')
        assert conf.nova.auth_url == 'http://192.0.2.10/identity'
        assert conf.engine.dry_run is True
    assert 'transport_url = rabbit://stackrabbit:secret@192.0.2.10:5672/' in (
        stacked.home / 'kronos/kronos.conf').read_text().splitlines()
    started = [call[-1] for call in stacked.list_calls('sudo', 'systemctl', 'start')]
    assert started == ['devstack@kronos-engine.service', 'devstack@kronos-executor.service',
                       'devstack@kronos-api.service']


def test_unit_of_the_api_runs_uwsgi_with_the_file_of_devstack(stacked):
    unit = stacked.read_unit('kronos-api')
    ini = stacked.home / 'kronos/kronos-api-uwsgi.ini'
    assert shlex.split(unit['ExecStart']) == [
        str(stacked.home / 'bin/uwsgi'), '--procname-prefix', 'kronos-api', '--ini', str(ini),
        '--venv', str(stacked.home / 'venv')]
    assert unit['Type'] == 'notify'
    uwsgi = configparser.ConfigParser(interpolation=None)
    uwsgi.read(ini)
    assert uwsgi['uwsgi']['module'] == 'kronos_nova.api.wsgi:application'
    socket = '/var/run/uwsgi/kronos-api.socket'
    assert uwsgi['uwsgi']['socket'] == socket
    assert (stacked.home / 'apache/kronos-api.conf').read_text().startswith(
        f'ProxyPass "/rebalance" "unix:{socket}|uwsgi://')
    assert ['a2ensite', 'kronos-api'] in stacked.list_calls('sudo')


def test_api_accepts_the_files_that_its_uwsgi_names(stacked):
    uwsgi = configparser.ConfigParser(interpolation=None)
    uwsgi.read(stacked.home / 'kronos/kronos-api-uwsgi.ini')
    name, _sign, files = uwsgi['uwsgi']['env'].partition('=')
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-m', 'kronos_nova.api.wsgi'], cwd=TOP,
        capture_output=True, text=True, check=False, env={**os.environ, name: files})
    assert done.returncode == 0, done.stderr
    conf = cfg.ConfigOpts()
    opts.register(conf)
    for _group, options in middleware_opts.list_auth_token_opts():
        conf.register_opts(options, 'keystone_authtoken')
    conf([part for file in files.split(';') for part in ('--config-file', file)])
    assert opts.wrong_values(conf) == []
    tokens = conf.keystone_authtoken
    assert (tokens.service_type, tokens.www_authenticate_uri) == (
        'rebalance', 'http://192.0.2.10/identity')
    assert not tokens.memcached_servers
    assert conf.kronos_api.operator_projects == ['0123456789abcdef0123456789abcdef']


def test_keystone_gets_account_and_address_of_the_api(stacked):
    cloud = ('openstack', '--os-cloud', 'devstack-system-admin')
    assert ['rebalance', '-f', 'value', '-c', 'id'] in stacked.list_calls(
        *cloud, 'service', 'show')
    url = 'http://192.0.2.10/rebalance'
    assert [call[:5] for call in stacked.list_calls(*cloud, 'endpoint', 'create')] == [
        ['rebalance', 'public', url, '--region', 'RegionOne']]
    assert stacked.list_calls('curl')[0][-1] == f'{url}/healthcheck'


def test_database_is_made_before_its_schema(stacked):
    lines = (stacked.home / 'calls').read_text().splitlines()
    created, = (i for i, line in enumerate(lines) if 'CREATE DATABASE kronos ' in line)
    synced, keyed = (i for i, line in enumerate(lines) if line.startswith('kronos-manage\t'))
    started = min(i for i, line in enumerate(lines) if 'systemctl\tstart' in line)
    assert created < synced < keyed < started
    assert stacked.list_calls('kronos-manage') == [
        ['--config-file', str(stacked.home / 'kronos/kronos.conf'), *action]
        for action in (('db', 'sync'), ('signing-key', 'create'))]


def test_each_daemon_gets_user_with_its_role(stacked):
    cloud = ('openstack', '--os-cloud', 'devstack-system-admin')
    assert [call[0] for call in stacked.list_calls(*cloud, 'role', 'create')] == [
        'kronos_engine', 'kronos_executor']
    assert [call[:4] for call in stacked.list_calls(*cloud, 'user', 'create')] == [
        [f'kronos-{role}', '--password', 'pass word', '--domain=Default']
        for role in ('engine', 'executor', 'api')]
    assert stacked.list_calls(*cloud, 'role', 'add') == [
        [role, '--user', f'kronos-{name}', '--project', 'service', '--user-domain',
         'Default', '--project-domain', 'Default'] for role, name in (
            ('kronos_engine', 'engine'), ('kronos_executor', 'executor'), ('service', 'api'))]


def test_nova_conf_has_our_filters_beside_those_of_devstack(stacked):
    lines = (stacked.home / 'nova/nova.conf').read_text().splitlines()
    assert [line for line in lines if line.startswith('available_filters')] == [
        'available_filters = nova.scheduler.filters.all_filters',
        'available_filters = kronos_nova.filters.all_filters']
    (enabled,) = (line for line in lines if line.startswith('enabled_filters'))
    assert 'ComputeFilter,' in enabled
    assert enabled.endswith(',KronosPlacementFilter,KronosCapacityFilter')
    assert f'policies_file = {stacked.home}/kronos/policies.yaml' in lines
    for folder in ('nova', 'placement'):
        assert (stacked.home / folder / 'policy.d/kronos.yaml').exists()


def test_second_stack_replaces_values_and_repeats_none(stacked):
    before = (stacked.home / 'nova/nova.conf').read_text().splitlines()
    stacked.run_phases('stack post-config', KRONOS_WEIGHT_MULTIPLIER='7.5')
    after = (stacked.home / 'nova/nova.conf').read_text().splitlines()
    assert 'kronos_weight_multiplier = 7.5' in after
    assert len(after) == len(before)


def test_node_that_disables_daemons_gets_exporter_alone(node):
    node.run_phases(*STACK, services='n-cpu',
                    disabled='kronos-engine,kronos-executor,kronos-api,kronos-prometheus')
    assert [call[-1] for call in node.list_calls('apt-get')] == ['prometheus-node-exporter']
    assert node.list_services('restart') == ['prometheus-node-exporter']
    assert len(node.list_calls('sudo')) == 1
    assert not (node.home / 'kronos').exists()


def test_enabled_mqtt_requests_add_broker_and_daemon(node):
    node.run_phases(*STACK, services=f'{CONTROLLER},kronos-migfra,kronos-mosquitto',
                    KRONOS_MQTT_USERNAME='kronos', KRONOS_MQTT_PASSWORD='pass word')
    assert 'mosquitto' in [call[-1] for call in node.list_calls('apt-get')]
    assert node.list_calls('pip')[0][-1] == f'{TOP}[rebalancer,mysql,mqtt,api]'
    conf = node.load_daemon('migfra')
    assert opts.wrong_values(conf) == []
    assert (conf.mqtt.host, conf.mqtt.password) == ('127.0.0.1', 'pass word')
    targets = yaml.safe_load((node.home / 'prometheus/prometheus.yml').read_text())
    assert [job['job_name'] for job in targets['scrape_configs']] == [
        'node', 'kronos-engine', 'kronos-executor', 'kronos-migfra']


def test_unstack_stops_daemons_and_clean_removes_files(stacked):
    (stacked.home / 'calls').unlink()
    stacked.run_phases('unstack', 'clean')
    for verb in ('stop', 'disable'):
        assert stacked.list_calls('sudo', 'systemctl', verb) == [
            ['devstack@kronos-api.service'], ['devstack@kronos-engine.service'],
            ['devstack@kronos-executor.service']]
    assert ['a2dissite', 'kronos-api'] in stacked.list_calls('sudo')
    assert stacked.list_services('stop') == ['prometheus', 'prometheus-node-exporter']
    for left in ('kronos', 'data/kronos', 'nova/policy.d/kronos.yaml',
                 'placement/policy.d/kronos.yaml', 'apache/kronos-api.conf'):
        assert not (stacked.home / left).exists(), left


def test_stand_in_of_sudo_refuses_files_outside_the_test(node):
    done = subprocess.run(
        [node.home / 'bin/sudo', 'rm', '-f', '/etc/kronos-nova-absent'], text=True, check=False,
        capture_output=True, env={'PATH': os.environ['PATH'], 'STACK_HOME': str(node.home),
                                  'CALLS': str(node.home / 'calls')})
    assert done.returncode == 9 and 'not below' in done.stderr
