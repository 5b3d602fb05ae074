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

"""The devstack plugin: its phases run among stubs of devstack's functions.

Nova and kronos-nova read the files that the phases write. devstack itself does not run here."""

import configparser
import getpass
import json
import os
from pathlib import Path
import re
import subprocess
import sys
import textwrap

from keystonemiddleware import opts as middleware_opts
from oslo_config import cfg
import pytest
import yaml

from kronos_nova.conf import nova
from kronos_nova.conf import opts
from kronos_nova.conf import policies
from tests.deploy import checkers

TOP = Path(__file__).resolve().parents[2]
PLUGIN = TOP / 'devstack'
PHASES = ('stack pre-install', 'stack install', 'stack post-config', 'stack extra',
          'stack test-config')
CONTROLLER = 'n-api n-sch n-cpu'


class Devstack:
    """A tree that a devstack would have, and what the plugin did in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.calls: list[list[str]] = []
        for folder in ('nova', 'placement', 'prometheus', 'bin', 'data', 'apache'):
            (home / folder).mkdir()
        # kronos-manage must be called by its whole path.
        for name in ('kronos-manage', 'uwsgi'):
            program = home / 'bin' / name
            program.write_text('#!/bin/sh\nprintf "%s\\t" ran "$0" "$@" >> $CALLS\n'
                               'echo >> $CALLS\n')
            program.chmod(0o755)

    def run(self, *phases: str, services: str = CONTROLLER, **settings: str) -> None:
        environment = {
            'PATH': f'{self.home}/bin:{os.environ["PATH"]}',
            'CALLS': str(self.home / 'calls'), 'PLUGIN': str(PLUGIN),
            'BIN': str(self.home / 'bin'), 'DEST': str(self.home), 'KRONOS_DIR': str(TOP),
            'DATA_DIR': str(self.home / 'data'), 'KRONOS_CONF_DIR': str(self.home / 'kronos'),
            'NOVA_CONF_DIR': str(self.home / 'nova'),
            'NOVA_CONF': str(self.home / 'nova/nova.conf'),
            'PLACEMENT_CONF_DIR': str(self.home / 'placement'),
            'KRONOS_PROMETHEUS_CONF': str(self.home / 'prometheus/prometheus.yml'),
            'STACK_USER': getpass.getuser(), 'SERVICE_HOST': '192.0.2.10',
            'HOST_IP': '192.0.2.10', 'SERVICE_PASSWORD': 'pass word',
            'SERVICE_PROJECT_NAME': 'service', 'SERVICE_DOMAIN_NAME': 'Default',
            'KEYSTONE_SERVICE_URI': 'http://192.0.2.10/identity', 'REGION_NAME': 'RegionOne',
            'SERVICE_PROTOCOL': 'http', 'SERVICE_TIMEOUT': '60',
            'ENABLE_DEBUG_LOG_LEVEL': 'True', 'ENABLED_SERVICES': services, **settings}
        done = subprocess.run(['bash', str(Path(__file__).with_name('devstack_stubs.sh')), *phases],
                              env=environment, capture_output=True, text=True, check=False,
                              cwd=self.home)
        assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
        self.calls = [line.split('\t') for line in
                      (self.home / 'calls').read_text().splitlines()]

    def names(self) -> list[str]:
        """The functions called, in order, without what only records and tells."""
        return [call[0] for call in self.calls
                if call[0] not in ('define_plugin', 'enable_service', 'echo_summary', 'sudo')]

    def of(self, name: str) -> list[list[str]]:
        return [call[1:] for call in self.calls if call[0] == name]

    def _deleted(self, path: Path) -> set[tuple[str, str, str]]:
        """The options that inidelete has removed; they are not written again in these tests."""
        return {('iniset', section, option) for file, section, option in self.of('inidelete')
                if Path(file) == path}

    def ini(self, path: Path) -> Path:
        """Write a file from the calls of iniset, as devstack does: a later value of an option
        replaces an earlier one.
        """
        found: dict[str, dict[str, list[str]]] = {}
        for name, file, section, option, *values in (
                call for call in self.calls if call[0].startswith('iniset')):
            if Path(file) == path and (name, section, option) not in self._deleted(path):
                assert len(values) == 1 or name == 'iniset_multiline', values
                found.setdefault(section, {})[option] = values
        assert found, path
        path.write_text(''.join(
            f'[{section}]\n' + ''.join(f'{option} = {value}\n' for option, values in items.items()
                                       for value in values)
            for section, items in found.items()))
        return path


@pytest.fixture
def devstack(tmp_path):
    return Devstack(tmp_path)


@pytest.fixture
def stacked(devstack):
    devstack.run(*PHASES)
    return devstack


def test_controller_phases_run_in_order(stacked):
    started = [i for i, call in enumerate(stacked.calls) if call[0] == 'run_process']
    (database,) = (i for i, call in enumerate(stacked.calls) if call[0] == 'recreate_database')
    synced, keyed = (i for i, call in enumerate(stacked.calls) if call[0] == 'ran')
    phases = {call[1]: i for i, call in enumerate(stacked.calls) if call[0] == 'phase'}
    assert phases['stack post-config'] < database < synced < keyed
    assert keyed < phases['stack extra'] < started[0]
    assert stacked.of('install_package') == [['prometheus'], ['prometheus-node-exporter']]
    assert stacked.of('setup_develop') == [[str(TOP), 'rebalancer,mysql,api']]
    assert stacked.of('recreate_database') == [['kronos']]
    assert stacked.of('restart_service') == [['prometheus-node-exporter'], ['prometheus']]


def test_every_started_command_is_console_script(stacked):
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(TOP / 'setup.cfg')
    scripts = {line.split('=')[0].strip()
               for line in setup['entry_points']['console_scripts'].strip().splitlines()}
    started = {service: command.split() for service, command in stacked.of('run_process')}
    assert set(started) == {'kronos-engine', 'kronos-executor', 'kronos-api'}
    assert started.pop('kronos-api') == [
        str(stacked.home / 'bin/uwsgi'), '--procname-prefix', 'kronos-api', '--ini',
        str(stacked.home / 'kronos/kronos-api-uwsgi.ini')]
    for service, command in started.items():
        assert Path(command[0]).name == service and service in scripts
        assert Path(command[0]).parent == stacked.home / 'bin'
    for (program, *arguments), action in zip(
            stacked.of('ran'), (['db', 'sync'], ['signing-key', 'create']), strict=True):
        assert Path(program).name in scripts
        assert arguments[:-1] == [
            '--config-file', str(stacked.home / 'kronos/kronos.conf'), *action]


def test_keys_of_an_earlier_stack_are_kept(devstack):
    keys = devstack.home / 'kronos/signing-keys'
    keys.mkdir(parents=True)
    (keys / '0.pem').touch()
    devstack.run(*PHASES)
    assert [call[3:-1] for call in devstack.of('ran')] == [['db', 'sync']]


def test_accounts_have_roles_of_policy_files(stacked):
    roles = [name for (name,) in stacked.of('get_or_create_role')]
    assert roles == ['kronos_engine', 'kronos_executor']
    for role, (user, password, domain), given in zip(
            roles, stacked.of('get_or_create_user'), stacked.of('get_or_add_user_project_role'),
            strict=True):
        assert (password, domain) == ('pass word', 'Default')
        assert given == [role, user, 'service', 'Default', 'Default']
    for folder, ours in (('nova', 'nova-policy.yaml'), ('placement', 'placement-policy.yaml')):
        copied = stacked.home / folder / 'policy.d/kronos.yaml'
        assert copied.read_text() == (TOP / 'etc/kronos' / ours).read_text()
        assert all(f'role:{role}' in copied.read_text() for role in roles)


def test_api_has_an_account_and_an_address_behind_apache(stacked):
    # DevStack's function gives the role service, and the second argument another one.
    assert stacked.of('create_service_user') == [['kronos-api']]
    assert stacked.of('get_or_create_service') == [['kronos', 'rebalance', 'Rebalancer']]
    url = 'http://192.0.2.10/rebalance'
    assert stacked.of('get_or_create_endpoint') == [['rebalance', 'RegionOne', url]]
    ini = str(stacked.home / 'kronos/kronos-api-uwsgi.ini')
    assert stacked.of('write_uwsgi_config') == [
        [ini, 'kronos_nova.api.wsgi:application', '/rebalance', '', 'kronos-api']]
    assert stacked.of('wait_for_service') == [['60', f'{url}/healthcheck']]


def test_api_has_tls_where_devstack_has(devstack):
    devstack.run(*PHASES, services=f'{CONTROLLER} tls-proxy')
    ((_service, _region, url),) = devstack.of('get_or_create_endpoint')
    assert url == 'https://192.0.2.10/rebalance'
    assert devstack.of('wait_for_service') == [['60', f'{url}/healthcheck']]


def test_api_reads_files_that_say_how_it_checks_tokens(stacked):
    home = stacked.home / 'kronos'
    uwsgi = configparser.ConfigParser(interpolation=None)
    uwsgi.read(stacked.ini(home / 'kronos-api-uwsgi.ini'))
    assert uwsgi['uwsgi']['env'] == (
        f'OS_KRONOS_CONFIG_FILES={home}/kronos.conf;{home}/kronos-api.conf')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    for _group, options in middleware_opts.list_auth_token_opts():
        conf.register_opts(options, 'keystone_authtoken')
    conf([part for name in ('kronos', 'kronos-api')
          for part in ('--config-file', str(stacked.ini(home / f'{name}.conf')))])
    assert opts.wrong_values(conf) == []
    assert conf.kronos_api.operator_projects == ['id-of-admin-in-default']
    tokens = conf.keystone_authtoken
    assert (tokens.service_type, tokens.service_token_roles_required) == ('rebalance', True)
    assert not tokens.memcached_servers, 'python-memcached unpickles'
    assert (home / 'kronos-api.conf').stat().st_mode & 0o777 == 0o640, 'passwords'


def test_disabled_api_leaves_no_trace(devstack):
    devstack.run(*PHASES, services=f'{CONTROLLER} -kronos-api')
    assert devstack.of('setup_develop') == [[str(TOP), 'rebalancer,mysql']]
    assert [call for call in devstack.calls if call[0] != 'enable_service' and any(
        'kronos-api' in word or 'rebalance' == word for word in call)] == []


def test_kronos_conf_has_only_known_options_and_values(stacked):
    home = stacked.home / 'kronos'
    for role in ('engine', 'executor'):
        files = [stacked.ini(home / 'kronos.conf'), stacked.ini(home / f'kronos-{role}.conf')]
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf.register_opts(nova.auth_opts(), group='nova')
        conf(['--config-file', str(files[0]), '--config-file', str(files[1])])
        assert opts.wrong_values(conf) == []
        assert (conf.nova.username, conf.nova.password) == (f'kronos-{role}', 'pass word')
        assert conf.nova.auth_url == 'http://192.0.2.10/identity'
        assert conf.nova.valid_interfaces == ['public']
        assert conf.engine.dry_run is True
        # The command that makes the keys reads the first file alone.
        assert conf.signing.key_repository == str(home / 'signing-keys')
        assert conf.database.connection.startswith('mysql+pymysql://')
        assert conf.prometheus.url == 'http://192.0.2.10:9090'
        policies.load_policies(conf.engine.policies_file)
        ours = {section: set(conf[section]) for section in ('engine', 'prometheus', 'nova',
                                                            'database', 'monitoring')}
        for file in files:
            written = configparser.ConfigParser(interpolation=None)
            written.read(file)
            for section in set(written.sections()) & set(ours):
                assert set(written[section]) - set(written.defaults()) <= ours[section]
        for file in files:
            assert file.stat().st_mode & 0o777 == 0o640, 'passwords'


def test_nova_scheduler_accepts_nova_conf(stacked):
    """In a process of its own: Nova's configuration is global."""
    path = stacked.ini(stacked.home / 'nova/nova.conf')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', textwrap.dedent("""
        import json, sys
        from nova import config, weights
        import nova.conf
        config.parse_args(['nova-scheduler', '--config-file', sys.argv[1]])
        CONF = nova.conf.CONF
        from nova.scheduler import filters, weights as scheduler_weights
        from kronos_nova.conf import scheduler
        scheduler.register(CONF)
        group = CONF.filter_scheduler
        known = [c.__name__ for c in filters.HostFilterHandler().get_matching_classes(
            group.available_filters)]
        weighers = [c.__name__ for c in
                    scheduler_weights.HostWeightHandler().get_matching_classes(
                        group.weight_classes)]
        print(json.dumps({
            'available': group.available_filters, 'enabled': group.enabled_filters,
            'weights': group.weight_classes, 'known': known, 'weighers': weighers,
            'defaults': nova.conf.scheduler.filter_scheduler_group.name and next(
                o.default for o in nova.conf.scheduler.filter_scheduler_opts
                if o.name == 'enabled_filters'),
            'policies': CONF.kronos.policies_file, 'url': CONF.prometheus.url,
            'refresh': CONF.kronos.refresh_interval, 'settle': CONF.kronos.settle_seconds,
            'multiplier': group.kronos_weight_multiplier,
            'problems': [str(e) for e in scheduler.check_policy_files(CONF)]}))
        """), str(path)], capture_output=True, text=True, check=False, cwd=TOP,
        env={**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['available'] == ['nova.scheduler.filters.all_filters',
                                  'kronos_nova.filters.all_filters']
    assert set(found['defaults']) <= set(found['enabled']) <= set(found['known'])
    assert found['enabled'][-2:] == ['KronosPlacementFilter', 'KronosCapacityFilter']
    assert found['weights'][0] == 'nova.scheduler.weights.all_weighers'
    assert {'KronosWeigher', 'RAMWeigher'} <= set(found['weighers'])
    assert found['policies'] == [str(stacked.home / 'kronos/policies.yaml')]
    assert found['url'] == 'http://192.0.2.10:9090'
    assert (found['refresh'], found['settle'], found['multiplier']) == (10, 60, 1)
    assert found['problems'] == ['[]', '[]']


@pytest.fixture
def asked(devstack):
    """With requests over MQTT."""
    devstack.run(*PHASES, services=f'{CONTROLLER} kronos-migfra kronos-mosquitto',
                 KRONOS_MQTT_USERNAME='kronos', KRONOS_MQTT_PASSWORD='pass word')
    return devstack


def test_mqtt_requests_are_off_by_default(stacked):
    assert not [call for call in stacked.calls if any(
        'migfra' in word or 'mosquitto' in word for word in call)]
    assert not (stacked.home / 'kronos/kronos-migfra.conf').exists()


def test_enabled_mqtt_requests_add_broker_user_and_daemon(asked):
    assert asked.of('setup_develop') == [[str(TOP), 'rebalancer,mysql,mqtt,api']]
    assert ['mosquitto'] in asked.of('install_package')
    assert asked.of('restart_service')[0] == ['mosquitto']
    assert asked.of('get_or_create_role')[-1] == ['kronos_migfra']
    assert asked.of('get_or_create_user')[-1] == ['kronos-migfra', 'pass word', 'Default']
    assert asked.of('get_or_add_user_project_role')[-1][:2] == ['kronos_migfra', 'kronos-migfra']
    service, command = asked.of('run_process')[-2]
    files = [str(asked.home / f'kronos/{name}.conf') for name in ('kronos', 'kronos-migfra')]
    assert service == 'kronos-migfra'
    assert command.split() == [str(asked.home / 'bin/kronos-migfra'), '--config-file', files[0],
                               '--config-file', files[1]]
    assert Path(files[1]).stat().st_mode & 0o777 == 0o640, 'passwords'
    for file in files:
        asked.ini(Path(file))
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf.register_opts(nova.auth_opts(), group='nova')
    conf([part for file in files for part in ('--config-file', file)])
    assert opts.wrong_values(conf) == []
    assert (conf.mqtt.host, conf.mqtt.port) == ('127.0.0.1', 1883)
    assert (conf.mqtt.username, conf.mqtt.password) == ('kronos', 'pass word')
    assert [permit.scopes for permit in conf.migfra.allow] == [None]
    assert (conf.nova.username, conf.monitoring.migfra_port) == ('kronos-migfra', 9587)
    config = yaml.safe_load((asked.home / 'prometheus/prometheus.yml').read_text())
    assert {'job_name': 'kronos-migfra', 'static_configs': [{'targets': ['127.0.0.1:9587']}]} in (
        config['scrape_configs'])


def test_unstack_stops_migfra_before_executor_and_broker(asked):
    (asked.home / 'calls').unlink()
    asked.run('unstack', services=f'{CONTROLLER} kronos-migfra kronos-mosquitto')
    assert asked.of('stop_process') == [['kronos-api'], ['kronos-engine'], ['kronos-migfra'],
                                        ['kronos-executor']]
    assert asked.of('stop_service')[0] == ['mosquitto']


def test_prometheus_scrapes_every_named_exporter(devstack):
    devstack.run(*PHASES, KRONOS_NODE_EXPORTERS='192.0.2.10:9100,192.0.2.11:9100')
    config = yaml.safe_load((devstack.home / 'prometheus/prometheus.yml').read_text())
    assert {job['job_name']: job['static_configs'] for job in config['scrape_configs']} == {
        'node': [{'targets': ['192.0.2.10:9100', '192.0.2.11:9100']}],
        'kronos-engine': [{'targets': ['127.0.0.1:9585']}],
        'kronos-executor': [{'targets': ['127.0.0.1:9586']}]}
    assert config['global'] == {'scrape_interval': '10s'}


def test_compute_node_gets_only_node_exporter(devstack):
    devstack.run(*PHASES, services=(
        'n-cpu -kronos-engine -kronos-executor -kronos-api -kronos-prometheus'))
    assert [name for name in devstack.names() if name != 'phase'] == [
        'install_package', 'restart_service']
    assert devstack.of('install_package') == [['prometheus-node-exporter']]
    assert not (devstack.home / 'kronos').exists()


def test_unstack_stops_all_services_and_clean_removes_files(stacked):
    (stacked.home / 'calls').unlink()
    site = stacked.home / 'apache/kronos-api.conf'
    site.write_text('')
    stacked.run('unstack', 'clean')
    assert stacked.of('stop_process') == [['kronos-api'], ['kronos-engine'], ['kronos-executor']]
    assert stacked.of('remove_uwsgi_config') == [
        [str(stacked.home / 'kronos/kronos-api-uwsgi.ini'), 'kronos-api']]
    assert not site.exists()
    assert stacked.of('stop_service') == [['prometheus'], ['prometheus-node-exporter']]
    for left in ('kronos', 'data/kronos', 'nova/policy.d/kronos.yaml',
                 'placement/policy.d/kronos.yaml'):
        assert not (stacked.home / left).exists(), left


def test_setup_cfg_has_one_name_for_devstack():
    """DevStack's setup_develop reads ``awk '/^name.*=/ {print $3}'`` of setup.cfg. A further name
    there becomes a line of upper-constraints.txt, which pip refuses."""
    names = [line for line in (TOP / 'setup.cfg').read_text().splitlines()
             if re.match(r'name.*=', line)]
    assert names == ['name = kronos-nova']


def test_policy_file_queries_hosts_only_and_moves_by_vcpus():
    (policy,) = policies.load_policies(str(PLUGIN / 'files/policies.yaml')).policies
    assert policy.vm_profile_fallback == 'flavor_vcpu_ratio'
    assert '[1m]' in policy.imbalance_query


def test_every_setting_is_documented():
    text = (TOP / 'doc/source/contributor/devstack.rst').read_text()
    names = {line.split('=')[0] for line in (PLUGIN / 'settings').read_text().splitlines()
             if line.startswith('KRONOS_') and ':-' in line}
    assert len(names) > 10
    assert {name for name in names if f'``{name}``' not in text} == set()


def test_bashate_passes():
    done = subprocess.run(
        [checkers.program('bashate'), '-i', 'E006', '-e', 'E005,E042', *map(str, (
            PLUGIN / 'settings', PLUGIN / 'plugin.sh',
            Path(__file__).with_name('devstack_stubs.sh')))],
        capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
