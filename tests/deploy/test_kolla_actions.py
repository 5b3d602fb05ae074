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

"""The role: what its actions ask of containers, of Keystone and of MariaDB, and in which order.

Nothing of that is there: see kolla_stubs.py.
"""

import configparser
import re
import shutil
import socket

import pytest

from tests.deploy import kolla_cloud
from tests.deploy import kolla_env
from tests.deploy import kolla_stubs
from tests.deploy import rendered_conf

pytestmark = pytest.mark.xdist_group(kolla_stubs.GROUP)

IMAGES = {'kronos-engine': 'registry.example.org/kolla/kronos-engine:kronos-1',
          'kronos-executor': 'quay.io/openstack.kolla/kronos-executor:kronos-1',
          'kronos-migfra': 'quay.io/openstack.kolla/kronos-migfra:kronos-1',
          'kronos-api': 'quay.io/openstack.kolla/kronos-api:kronos-1'}

#: Where the keys of a daemon are on the host.
KEYS = {'kronos-engine': 'kronos-signing-keys', 'kronos-executor': 'kronos-signing-public-keys',
        'kronos-migfra': 'kronos-signing-keys'}

PROXYSQL = ['compare_container proxysql']
REGISTERED = [
    'catalog_service kronos', 'endpoint internal', 'endpoint public',
    'project service', 'identity_user kronos-engine', 'identity_user kronos-executor',
    'identity_user kronos-migfra', 'identity_user kronos-api',
    'identity_role kronos_engine', 'identity_role kronos_executor', 'identity_role kronos_migfra',
    'identity_role service',
    'role_assignment kronos-engine', 'role_assignment kronos-executor',
    'role_assignment kronos-migfra', 'role_assignment kronos-api']
COMPARED = ['compare_container kronos_engine', 'compare_container kronos_executor',
            'compare_container kronos_migfra', 'compare_container kronos_api']
DATABASE = ['mysql_db kronos', 'mysql_user kronos']
BOOTSTRAPPED = ['start_container bootstrap_kronos']
#: As doc/source/admin/upgrades.rst has it.
RESTARTED = ['recreate_or_restart_container kronos_executor',
             'recreate_or_restart_container kronos_engine',
             'recreate_or_restart_container kronos_migfra',
             'recreate_or_restart_container kronos_api']


@pytest.fixture(scope='module')
def cloud(deployment) -> kolla_stubs.Cloud:
    return deployment.begin()


@pytest.fixture(scope='module')
def deployed(deployment) -> list[kolla_stubs.Asked]:
    return deployment.asked


def steps(asked: list[kolla_stubs.Asked]) -> list[str]:
    """Without what kolla-ansible runs beside ProxySQL."""
    return [str(one) for one in asked if one.what not in ('haproxy', 'keepalived')]


def only(asked: list[kolla_stubs.Asked], step: str) -> kolla_stubs.Asked:
    (found,) = [one for one in asked if str(one) == step]
    return found


def container(daemon: str) -> str:
    return daemon.replace('-', '_')


def test_deploy_creates_users_and_schema_before_daemons_start(deployed):
    assert steps(deployed) == [*PROXYSQL, *REGISTERED, *COMPARED, *DATABASE, *BOOTSTRAPPED,
                               *RESTARTED]


def test_upgrade_updates_schema_before_restarts(cloud):
    assert steps(cloud.asked('upgrade')) == [*PROXYSQL, *REGISTERED, *COMPARED, *BOOTSTRAPPED,
                                             *RESTARTED]


@pytest.mark.long
def test_reconfigure_keeps_preconfigured_database(cloud):
    asked = cloud.asked('reconfigure', '-e', 'use_preconfigured_databases=true',
                        '-e', 'enable_proxysql=false')
    assert steps(asked) == [*REGISTERED, *COMPARED, *BOOTSTRAPPED, *RESTARTED]


def test_each_daemon_user_has_one_role_of_policy_files(deployed):
    granted = [(one.args['user'], one.args['project'], one.args['role'])
               for one in deployed if one.kind == 'role_assignment']
    assert granted == [('kronos-engine', 'service', 'kronos_engine'),
                       ('kronos-executor', 'service', 'kronos_executor'),
                       ('kronos-migfra', 'service', 'kronos_migfra'),
                       ('kronos-api', 'service', 'service')]
    named = {role for service in ('nova', 'placement') for role in re.findall(
        r'role:(kronos_\w+)', (kolla_cloud.ETC / f'{service}-policy.yaml').read_text())}
    assert {role for _, _, role in granted} == {*named, 'service'}


@pytest.mark.long
def test_disabled_daemons_leave_no_trace(cloud):
    """This is the default of the role; an older inventory has no groups for them either."""
    disabled = ('-e', 'enable_kronos_migfra=false', '-e', 'kronos_migfra_keystone_password=',
                '-e', 'enable_kronos_api=false', '-e', 'kronos_api_keystone_password=')
    cloud.run_containers()
    inventory = cloud.config / 'kronos.ini'
    whole = inventory.read_text()
    inventory.write_text(whole.partition('# Runs where')[0])
    try:
        found = [one for action in ('deploy', 'pull', 'validate-config')
                 for one in cloud.asked(action, *disabled)]
        status, output = cloud.act('prechecks', *disabled)
    finally:
        inventory.write_text(whole)
    assert 'start_container bootstrap_kronos' in steps(found)
    assert [str(one) for one in found if re.search('migfra|api|endpoint|catalog', str(one))] == []
    assert status == 0, output


@pytest.mark.turns(4)
def test_prechecks_name_missing_broker(cloud):
    status, output = cloud.act('prechecks', '-e', 'kronos_mqtt_host=')
    assert status != 0
    assert 'the name of the MQTT broker in kronos_mqtt_host' in ' '.join(output.split())


def test_prechecks_name_each_missing_password(cloud):
    """All in one run: an operator need not repeat it for each."""
    passwords = ('kronos_mqtt_password', 'kronos_migfra_keystone_password',
                 'kronos_api_keystone_password', 'kronos_prometheus_password')
    status, output = cloud.act('prechecks', '-e', ' '.join(f'{name}=' for name in passwords))
    assert status != 0
    assert set(re.findall(r'(\w+) is not set\. Add it to passwords\.yml and run kolla-genpwd',
                          ' '.join(output.split()))) == set(passwords)


@pytest.mark.turns(4)
def test_prechecks_warn_of_empty_lists_of_the_admitted_and_pass(cloud):
    cloud.run_containers()
    warnings = ('kronos-migfra refuses every request', 'only the role admin may use the API')
    status, output = cloud.act(
        'prechecks', '-e', '{"kronos_migfra_allow": [], "kronos_api_operator_projects": []}')
    assert status == 0, output
    assert all(warning in ' '.join(output.split()) for warning in warnings)
    _status, output = cloud.act('prechecks')
    assert not any(warning in ' '.join(output.split()) for warning in warnings)


@pytest.mark.turns(4)
def test_prechecks_want_a_certificate_on_each_host_of_the_api(cloud):
    cloud.run_containers()
    whole = (cloud.config / 'kronos.ini').read_text()
    (cloud.config / 'kronos.ini').write_text(
        whole.replace('[kronos-api:children]\nkronos\n', '[kronos-api]\napi-host\n'))
    try:
        status, output = cloud.act('prechecks', '-e', 'kolla_enable_tls_backend=true')
    finally:
        (cloud.config / 'kronos.ini').write_text(whole)
    assert status != 0
    assert 'each host of the inventory group kronos-api in the group tls-backend' in (
        ' '.join(output.split()))


def test_keystone_and_database_get_passwords_of_daemon(cloud, deployed, daemon):
    parser = configparser.RawConfigParser(strict=False)
    parser.read(cloud.node / daemon / 'kronos.conf')
    user = only(deployed, f'identity_user {daemon}').args
    assert (parser['nova']['username'], parser['nova']['password']) == (
        user['name'], user['password'])
    database, owner = (only(deployed, step).args for step in DATABASE)
    assert owner['priv'] == f'{database["name"]}.*:ALL'
    assert parser['database']['connection'].startswith(
        f'mysql+pymysql://{owner["name"]}:{owner["password"]}@{owner["login_host"]}:'
        f'{owner["login_port"]}/{database["name"]}')


def test_keystone_gets_account_and_addresses_of_the_api(cloud, deployed):
    parser = configparser.RawConfigParser(strict=False)
    parser.read(cloud.node / 'kronos-api/kronos.conf')
    account, user = parser['keystone_authtoken'], only(deployed, 'identity_user kronos-api').args
    assert (account['username'], account['password']) == (user['name'], user['password'])
    service = only(deployed, 'catalog_service kronos').args
    assert (service['service_type'], account['service_type']) == ('rebalance', 'rebalance')
    port = cloud.ports['kronos-api']
    assert {one.what: one.args['url'] for one in deployed if one.kind == 'endpoint'} == {
        'internal': f'http://192.0.2.10:{port}', 'public': f'http://cloud.example.org:{port}'}
    assert {one.args['service'] for one in deployed if one.kind == 'endpoint'} == {'kronos'}


@pytest.mark.turns(4)
@pytest.mark.parametrize(('tls', 'external'), [
    ('false', False), pytest.param('true', True, marks=pytest.mark.long)])
def test_external_address_has_the_api_only_with_tls(cloud, deployed, tls, external):
    asked = cloud.asked(
        'deploy', '-e', 'kolla_external_vip_address=192.0.2.11', '-e',
        'kolla_same_external_internal_vip=false', '-e', f'kolla_enable_tls_external={tls}')
    assert [one.what for one in asked if one.kind == 'endpoint'] == [
        'internal', *(['public'] if external else [])]
    lines = (cloud.node / 'haproxy/services.d/kronos-api.cfg').read_text().splitlines()
    binds = [line.split()[1:3] for line in lines if line.split()[:1] == ['bind']]
    port = cloud.ports['kronos-api']
    assert binds == [[f'192.0.2.10:{port}'], *([[f'192.0.2.11:{port}', 'ssl']] if external else [])]


def test_bootstrap_runs_engine_image_and_is_waited_for(cloud, deployed):
    bootstrap, engine = (only(deployed, step) for step in (*BOOTSTRAPPED, RESTARTED[1]))
    assert 'KOLLA_BOOTSTRAP' in bootstrap.args['environment']
    assert bootstrap.args['detach'] is False and bootstrap.args['restart_policy'] == 'oneshot'
    for name in ('image', 'volumes'):
        assert bootstrap.args[name] == engine.args[name]
    assert bootstrap.mounted[f'{cloud.node}/kronos-engine/'] == ['config.json', 'kronos.conf']


def test_container_has_image_files_and_stop_timeout(cloud, deployed, daemon):
    started = only(deployed, f'recreate_or_restart_container {container(daemon)}')
    assert started.args['image'] == IMAGES[daemon]
    assert started.args['volumes'] == [
        f'{cloud.node}/{daemon}/:/var/lib/kolla/config_files/:ro',
        f'{cloud.node}/kronos-policies/:/etc/kronos/policies/:ro',
        f'{cloud.node}/{KEYS[daemon]}/:/etc/kronos/signing-keys/:ro',
        '/etc/localtime:/etc/localtime:ro', 'kolla_logs:/var/log/kolla/', '/dev/shm:/dev/shm']
    assert started.mounted[f'{cloud.node}/{daemon}/'] == ['config.json', 'kronos.conf']
    assert started.mounted[f'{cloud.node}/kronos-policies/'] == ['policies.yaml']
    assert started.args['environment'] == {'KOLLA_CONFIG_STRATEGY': 'COPY_ALWAYS'}
    assert started.args['graceful_timeout'] == 150
    port = cloud.ports[daemon]
    assert started.args['healthcheck']['test'] == [
        'CMD-SHELL', f'healthcheck_curl http://127.0.0.1:{port}/healthz']


def test_container_of_the_api_has_only_its_own_files(cloud, deployed):
    started = only(deployed, 'recreate_or_restart_container kronos_api')
    assert started.args['image'] == IMAGES['kronos-api']
    assert started.args['volumes'] == [
        f'{cloud.node}/kronos-api/:/var/lib/kolla/config_files/:ro',
        f'{cloud.node}/kronos-signing-keys/:/etc/kronos/signing-keys/:ro',
        '/etc/localtime:/etc/localtime:ro', 'kolla_logs:/var/log/kolla/']
    assert started.mounted[f'{cloud.node}/kronos-api/'] == [
        'config.json', 'kronos-api-uwsgi.ini', 'kronos.conf']
    assert started.args['graceful_timeout'] == 150
    assert started.args['healthcheck']['test'] == [
        'CMD-SHELL', f'healthcheck_curl http://127.0.0.1:{cloud.ports["kronos-api"]}/healthcheck']


@pytest.mark.parametrize('name', IMAGES)
def test_container_comparison_uses_start_arguments(deployed, name):
    """Where they differ, each reconfigure is a restart."""
    compared, started = (only(deployed, f'{action} {container(name)}').args for action in (
        'compare_container', 'recreate_or_restart_container'))
    assert {**compared, 'action': started['action']} == started


@pytest.mark.turns(4)
def test_stop_gives_our_containers_time_to_end(cloud):
    asked = cloud.asked('stop', '--yes-i-really-really-mean-it')
    assert steps(asked) == ['stop_container kronos_engine', 'stop_container kronos_executor',
                            'stop_container kronos_migfra', 'stop_container kronos_api']
    assert [one.args['graceful_timeout'] for one in asked] == [150] * 4


@pytest.mark.turns(4)
def test_destroy_removes_our_containers_and_their_configuration(cloud, deployed):
    directories = [cloud.node / daemon for daemon in (*IMAGES, *KEYS.values())]
    assert all(directory.exists() for directory in directories)
    saved = cloud.top / 'saved'
    shutil.copytree(cloud.node, saved)
    try:
        asked = cloud.asked('destroy', '--yes-i-really-really-mean-it')
        assert steps(asked) == [f'stop_and_remove_container {container(daemon)}'
                                for daemon in IMAGES]
        assert [one.args['graceful_timeout'] for one in asked] == [150] * 4
        assert not any(directory.exists() for directory in directories)
        # nova-scheduler mounts it.
        assert (cloud.node / 'kronos-policies/policies.yaml').exists()
        # The next deployment uses them again.
        assert (cloud.config / 'config/kronos/signing-keys/0.pem').exists()
    finally:
        shutil.rmtree(cloud.node)
        saved.rename(cloud.node)


@pytest.mark.turns(4)
def test_pull_pulls_our_images(cloud):
    assert steps(cloud.asked('pull')) == [f'pull_image {image}' for image in IMAGES.values()]


@pytest.mark.turns(4)
def test_validate_config_runs_our_command_on_container_file(cloud, deployed):
    scripts = configparser.ConfigParser()
    scripts.read(kolla_env.TOP / 'setup.cfg')
    asked = cloud.asked('validate-config')
    assert steps(asked) == [f'docker exec {container(daemon)}' for daemon in IMAGES]
    # Its module reads what uWSGI reads.
    assert asked.pop().args == ['python3', '-m', 'kronos_nova.api.wsgi']
    for one, daemon in zip(asked, rendered_conf.DAEMONS, strict=True):
        command, option, file = one.args
        assert f'\n{command} = ' in scripts['entry_points']['console_scripts']
        assert option == '--config-file' and file in [
            placed['dest'] for placed in cloud.json(f'{daemon}/config.json')['config_files']]


@pytest.mark.turns(4)
def test_check_fails_with_unhealthy_container(cloud):
    cloud.run_containers(kronos_engine='Up 2 hours (healthy)',
                         kronos_executor='Up 2 hours (unhealthy)',
                         kronos_migfra='Up 2 hours (healthy)',
                         kronos_api='Up 2 hours (healthy)')
    status, output = cloud.act('check')
    assert status != 0 and 'kronos containers are unhealthy: kronos_executor' in output
    assert steps(cloud.log()) == ['get_containers kronos_engine kronos_executor '
                                  'kronos_migfra kronos_api']


@pytest.mark.turns(4)
def test_prechecks_find_port_taken_by_other_program(cloud):
    cloud.run_containers(kronos_engine='Up 2 hours (healthy)')
    with (socket.create_server(('127.0.0.1', cloud.ports['kronos-engine'])),
          socket.create_server(('127.0.0.1', cloud.ports['kronos-executor']))):
        status, output = cloud.act('prechecks')
    assert status != 0
    assert set(re.findall(r'Timeout when waiting for 127.0.0.1:(\d+) to stop', output)) == {
        str(cloud.ports['kronos-executor'])}
    with socket.create_server(('127.0.0.1', cloud.ports['kronos-api'])):
        status, output = cloud.act('prechecks')
    assert status != 0 and f'127.0.0.1:{cloud.ports["kronos-api"]} to stop' in output
