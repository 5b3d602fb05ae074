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

SETTINGS = {**kolla_cloud.MIGFRA,
            'kronos_engine_image': 'registry.example.org/kolla/kronos-engine',
            'kronos_tag': 'kronos-1'}
IMAGES = {'kronos-engine': 'registry.example.org/kolla/kronos-engine:kronos-1',
          'kronos-executor': 'quay.io/openstack.kolla/kronos-executor:kronos-1',
          'kronos-migfra': 'quay.io/openstack.kolla/kronos-migfra:kronos-1'}

PROXYSQL = ['compare_container proxysql']
REGISTERED = [
    'project service', 'identity_user kronos-engine', 'identity_user kronos-executor',
    'identity_user kronos-migfra',
    'identity_role kronos_engine', 'identity_role kronos_executor', 'identity_role kronos_migfra',
    'role_assignment kronos-engine', 'role_assignment kronos-executor',
    'role_assignment kronos-migfra']
COMPARED = ['compare_container kronos_engine', 'compare_container kronos_executor',
            'compare_container kronos_migfra']
DATABASE = ['mysql_db kronos', 'mysql_user kronos']
BOOTSTRAPPED = ['start_container bootstrap_kronos']
#: As doc/source/admin/upgrades.rst has it.
RESTARTED = ['recreate_or_restart_container kronos_executor',
             'recreate_or_restart_container kronos_engine',
             'recreate_or_restart_container kronos_migfra']


@pytest.fixture(scope='module')
def cloud(tmp_path_factory) -> kolla_stubs.Cloud:
    kolla_env.prepared()
    made = kolla_stubs.Cloud(tmp_path_factory.mktemp('actions'))
    made.write(SETTINGS, ('Install', 'Tell kolla-ansible', 'Policies'))
    made.stub()
    return made


@pytest.fixture(scope='module')
def deployed(cloud) -> list[kolla_stubs.Asked]:
    return cloud.asked('deploy')


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
                       ('kronos-migfra', 'service', 'kronos_migfra')]
    named = {role for service in ('nova', 'placement') for role in re.findall(
        r'role:(kronos_\w+)', (kolla_cloud.ETC / f'{service}-policy.yaml').read_text())}
    assert {role for _, _, role in granted} == named


@pytest.mark.long
def test_disabled_mqtt_requests_leave_no_trace_of_migfra(cloud):
    """This is the default of kolla-ansible; an older inventory has no group for migfra either."""
    cloud.run_containers()
    inventory = cloud.config / 'kronos.ini'
    whole = inventory.read_text()
    inventory.write_text(whole.partition('# Runs where')[0])
    try:
        found = [one for action in ('deploy', 'pull', 'validate-config') for one in cloud.asked(
            action, '-e', 'enable_kronos_migfra=false', '-e', 'kronos_migfra_keystone_password=')]
        status, output = cloud.act('prechecks', '-e', 'enable_kronos_migfra=false',
                                   '-e', 'kronos_migfra_keystone_password=')
    finally:
        inventory.write_text(whole)
    assert 'start_container bootstrap_kronos' in steps(found)
    assert [str(one) for one in found if 'migfra' in str(one)] == []
    assert status == 0, output


@pytest.mark.parametrize(('given', 'message'), [
    ('kronos_mqtt_host=', 'the name of the MQTT broker in kronos_mqtt_host'),
    ('kronos_mqtt_password=', 'kronos_mqtt_password is not set'),
    ('kronos_migfra_keystone_password=', 'kronos_migfra_keystone_password is not set')])
def test_prechecks_name_missing_migfra_setting(cloud, given, message):
    status, output = cloud.act('prechecks', '-e', given)
    assert status != 0 and message in ' '.join(output.split())


def test_prechecks_warn_of_empty_allow_list_and_pass(cloud):
    cloud.run_containers()
    status, output = cloud.act('prechecks', '-e', '{"kronos_migfra_allow": []}')
    assert status == 0, output
    assert 'kronos-migfra refuses every request' in ' '.join(output.split())
    _status, output = cloud.act('prechecks')
    assert 'kronos-migfra refuses every request' not in ' '.join(output.split())


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
        '/etc/localtime:/etc/localtime:ro', 'kolla_logs:/var/log/kolla/', '/dev/shm:/dev/shm']
    assert started.mounted[f'{cloud.node}/{daemon}/'] == ['config.json', 'kronos.conf']
    assert started.mounted[f'{cloud.node}/kronos-policies/'] == ['policies.yaml']
    assert started.args['environment'] == {'KOLLA_CONFIG_STRATEGY': 'COPY_ALWAYS'}
    assert started.args['graceful_timeout'] == 150
    port = cloud.ports[daemon]
    assert started.args['healthcheck']['test'] == [
        'CMD-SHELL', f'healthcheck_curl http://127.0.0.1:{port}/healthz']


def test_container_comparison_uses_start_arguments(deployed, daemon):
    """Where they differ, each reconfigure is a restart."""
    compared, started = (only(deployed, f'{action} {container(daemon)}').args for action in (
        'compare_container', 'recreate_or_restart_container'))
    assert {**compared, 'action': started['action']} == started


def test_stop_gives_our_containers_time_to_end(cloud):
    asked = cloud.asked('stop', '--yes-i-really-really-mean-it')
    assert steps(asked) == ['stop_container kronos_engine', 'stop_container kronos_executor',
                            'stop_container kronos_migfra']
    assert [one.args['graceful_timeout'] for one in asked] == [150] * 3


def test_destroy_removes_our_containers_and_their_configuration(cloud, deployed):
    directories = [cloud.node / daemon for daemon in IMAGES]
    saved = cloud.top / 'saved'
    shutil.copytree(cloud.node, saved)
    try:
        asked = cloud.asked('destroy', '--yes-i-really-really-mean-it')
        assert steps(asked) == [f'stop_and_remove_container {container(daemon)}'
                                for daemon in IMAGES]
        assert [one.args['graceful_timeout'] for one in asked] == [150] * 3
        assert not any(directory.exists() for directory in directories)
        # nova-scheduler mounts it.
        assert (cloud.node / 'kronos-policies/policies.yaml').exists()
    finally:
        shutil.rmtree(cloud.node)
        saved.rename(cloud.node)


def test_pull_pulls_our_images(cloud):
    assert steps(cloud.asked('pull')) == [f'pull_image {image}' for image in IMAGES.values()]


def test_validate_config_runs_our_command_on_container_file(cloud, deployed):
    scripts = configparser.ConfigParser()
    scripts.read(kolla_env.TOP / 'setup.cfg')
    asked = cloud.asked('validate-config')
    assert steps(asked) == [f'docker exec {container(daemon)}' for daemon in IMAGES]
    for one, daemon in zip(asked, IMAGES, strict=True):
        command, option, file = one.args
        assert f'\n{command} = ' in scripts['entry_points']['console_scripts']
        assert option == '--config-file' and file in [
            placed['dest'] for placed in cloud.json(f'{daemon}/config.json')['config_files']]


def test_check_fails_with_unhealthy_container(cloud):
    cloud.run_containers(kronos_engine='Up 2 hours (healthy)',
                         kronos_executor='Up 2 hours (unhealthy)',
                         kronos_migfra='Up 2 hours (healthy)')
    status, output = cloud.act('check')
    assert status != 0 and 'kronos containers are unhealthy: kronos_executor' in output
    assert steps(cloud.log()) == ['get_containers kronos_engine kronos_executor '
                                  'kronos_migfra']


def test_prechecks_find_port_taken_by_other_program(cloud):
    cloud.run_containers(kronos_engine='Up 2 hours (healthy)')
    with (socket.create_server(('127.0.0.1', cloud.ports['kronos-engine'])),
          socket.create_server(('127.0.0.1', cloud.ports['kronos-executor']))):
        status, output = cloud.act('prechecks')
    assert status != 0
    assert set(re.findall(r'Timeout when waiting for 127.0.0.1:(\d+) to stop', output)) == {
        str(cloud.ports['kronos-executor'])}
