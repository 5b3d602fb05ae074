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

"""The role: what kolla-ansible renders with it is what the daemons and Nova take."""

import configparser
import json
import os
import re
import shutil
import stat
import subprocess
import sys

import bcrypt
from keystoneauth1 import loading
from oslo_cache import _opts as cache_opts
from oslo_concurrency import opts as concurrency_opts
from oslo_messaging import opts as messaging_opts
import pytest
import sqlalchemy
import yaml

from kronos_nova.checks import base as checks
from kronos_nova.checks import options
from kronos_nova.checks import policies
from kronos_nova.conf import opts
from kronos_nova.feed import raw_cache
from kronos_nova.rebalancer.messaging import transport
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import http_server
from tests.deploy import container_setup
from tests.deploy import kolla_cloud
from tests.deploy import kolla_env
from tests.deploy import kolla_page
from tests.deploy import rendered_conf

ROLE = kolla_env.TOP / 'deploy/kolla-ansible/ansible/roles/kronos'
CACERT = '/etc/ssl/certs/ca-certificates.crt'

#: tests.functional has to come first: it chooses the threads of Nova.
NOVA = '''
import sys, tests.functional
from testtools import run
run.main(['run', 'tests.deploy.rendered_scheduler'], sys.stdout)
'''


@pytest.fixture(scope='module')
def cloud(tmp_path_factory) -> kolla_cloud.Cloud:
    kolla_env.prepared()
    made = kolla_cloud.Cloud(tmp_path_factory.mktemp('cloud'))
    made.write({**kolla_cloud.TLS, **kolla_cloud.MIGFRA})
    authorities = made.config / 'certificates/ca'
    authorities.mkdir(parents=True)
    (authorities / 'root.crt').write_text('a certificate')
    policies = made.config / 'config/kronos/policies/policies.yaml'
    assert policies.read_bytes() == (kolla_cloud.ETC / 'policies.yaml').read_bytes()
    policies.write_text(kolla_cloud.POLICIES)
    made.genconfig(made.playbook(kolla_cloud.PROMETHEUS))
    return made


@pytest.mark.turns(4, 0)
def test_second_rendering_changes_nothing(cloud):
    output = cloud.type([*kolla_page.commands('Install', 'share='), *kolla_page.commands(
        'Look, then deploy', r'kronos=|kolla-ansible genconfig')])
    (found,) = re.findall(r'^localhost .*ok=(\d+).*changed=(\d+).*failed=(\d+)', output,
                          re.MULTILINE)
    assert int(found[0]) >= 10 and found[1:] == ('0', '0')


def test_untyped_commands_of_page_need_cloud_or_registry(cloud):
    """By its first words; test_kolla.py runs kolla-build, test_kolla_actions.py the actions."""
    others = {' '.join(command.split()[:2]) for commands in kolla_page.sections().values()
              for command in commands if command not in cloud.typed}
    actions = ('prechecks', 'pull', 'deploy', 'reconfigure', 'check', 'validate-config',
               'upgrade', 'stop', 'destroy')
    assert others - {'kolla-ansible genconfig', 'kronos="-i multinode'} == {
        'pip install', 'pip download', 'mkdir -p', 'mv /opt/kronos/kronos_nova-*.tar.gz',
        'kolla-build --base', 'less /etc/kolla/kronos-engine/kronos.conf', 'docker logs',
        'openstack endpoint',
        *(f'kolla-ansible {action}' for action in actions),
        *(['ln -sf'] if kolla_env.SERIES != '20' else [])}


def test_every_option_accepts_its_value(rendered, cloud):
    assert opts.wrong_values(rendered) == []
    volumes = cloud.json('kronos-services.json')['kronos-engine']['volumes']
    file = rendered_conf.mounted(rendered.engine.policies_file, volumes)
    rendered.set_override('policies_file', file, 'engine')
    context = checks.CheckContext(rendered)
    items = [*options.check(context), *policies.check(context)]
    assert items and {item.status for item in items} <= {checks.CheckStatus.OK,
                                                         checks.CheckStatus.WARNING}, items
    assert context.policy_set is not None
    assert [policy.name for policy in context.policy_set.policies] == ['cpu']


def test_every_option_exists(cloud, daemon):
    known = rendered_conf.known(
        *messaging_opts.list_opts(), *concurrency_opts.list_opts(), *cache_opts.list_opts(),
        *opts.list_opts())
    known |= {('DEFAULT', name) for name in ('debug', 'log_file')}
    known |= {('nova', name) for name in (
        'auth_url', 'username', 'password', 'project_name', 'project_domain_id',
        'user_domain_id')}
    given = rendered_conf.given(cloud.node / daemon / 'kronos.conf')
    assert len(given) > 30 and given - known == set()


def test_default_engine_plans_but_moves_nothing(rendered):
    assert rendered.engine.dry_run is True
    assert rendered.engine.include_unassigned_hosts is True
    assert rendered.engine.aggregates == []
    assert rendered.engine.evacuate_disabled_hosts is False


def test_each_daemon_has_own_user(cloud, rendered, daemon):
    plugin = loading.load_auth_from_conf_options(rendered, 'nova')
    name = daemon.replace('-', '_')
    assert (plugin._username, plugin._password, plugin.auth_url) == (
        daemon, cloud.passwords[f'{name}_keystone_password'], 'https://192.0.2.10:5000')
    assert rendered.nova.cafile == rendered.prometheus.ca_cert == CACERT


def test_generated_passwords_differ(cloud):
    made = {cloud.passwords[name] for name in kolla_cloud.OUR_PASSWORDS}
    assert len(made) == len(kolla_cloud.OUR_PASSWORDS)
    assert all(len(password) >= 40 for password in made)


def test_only_migfra_has_mqtt_broker_password(cloud, rendered, daemon):
    file = (cloud.node / daemon / 'kronos.conf').read_text()
    password = cloud.passwords['kronos_mqtt_password']
    if daemon != 'kronos-migfra':
        assert password not in file and rendered.mqtt.host == '' and not rendered.migfra.allow
        return
    mqtt = rendered.mqtt
    assert (mqtt.host, mqtt.port, mqtt.tls, mqtt.ca_file) == (
        'broker.example.org', 8883, True, CACERT)
    assert (mqtt.username, mqtt.password, mqtt.prefix) == ('kronos', password, 'fast')
    assert [str(permit) for permit in rendered.migfra.allow] == [
        'evacuate-node,migrate-vm:*:rack-1', str(rendered.migfra.allow[1])]
    assert rendered.migfra.allow[1].permits_operation('start-vm', 'anywhere')


def test_broker_has_tls_quorum_queues_and_a_queue_manager(rendered):
    url = transport.parse_broker_url(rendered)
    assert [(host.hostname, host.port) for host in url.hosts] == [('127.0.0.1', 5671)]
    assert transport.choose_queue_type(rendered) == 'quorum'
    rabbit = rendered.oslo_messaging_rabbit
    assert rabbit.ssl is True and rabbit.ssl_ca_file == CACERT
    assert rabbit.use_queue_manager is True and rabbit.rabbit_transient_quorum_queue is True
    rendered.register_opts(concurrency_opts.list_opts()[0][1], 'oslo_concurrency')
    assert rendered.oslo_concurrency.lock_path == '/var/lib/kronos/tmp'


def test_database_uses_tls_through_proxysql_with_our_user(cloud, rendered):
    url = sqlalchemy.make_url(rendered.database.connection)
    assert (url.drivername, url.host, url.database) == ('mysql+pymysql', '192.0.2.10', 'kronos')
    assert url.query == {'ssl_ca': CACERT}
    (user,) = yaml.safe_load((cloud.node / 'proxysql/users/kronos.yaml').read_text())[
        'mysql_users']
    assert (user['username'], user['password']) == (url.username, url.password)
    rules = yaml.safe_load((cloud.node / 'proxysql/rules/kronos.yaml').read_text())
    assert any(rule.get('schemaname') == 'kronos' for rule in rules['mysql_query_rules'])


def test_prometheus_knows_our_user(cloud, rendered):
    users = yaml.safe_load((cloud.node / 'web.yml').read_text())['basic_auth_users']
    assert rendered.prometheus.url == 'https://192.0.2.10:9091'
    assert bcrypt.checkpw(rendered.prometheus.password.encode(),
                          users[rendered.prometheus.username].encode())


def scraped(cloud, name):
    """Job -> targets, of a rendered configuration of Prometheus."""
    return {job['job_name']: [target for found in job.get('static_configs') or ()
                              for target in found['targets']]
            for job in yaml.safe_load((cloud.node / name).read_text())['scrape_configs']}


def test_prometheus_scrapes_port_of_each_daemon(cloud, rendered, daemon):
    """The network interface of this cloud is the loopback."""
    port = rendered.monitoring[f'{daemon.partition("-")[2]}_port']
    found = scraped(cloud, 'prometheus.yml')
    assert found[daemon] == [f'127.0.0.1:{port}']
    alone = scraped(cloud, 'prometheus-alone.yml')
    assert 'prometheus' in alone and found.keys() - alone.keys() == set(rendered_conf.DAEMONS)


def test_promtool_accepts_configuration_with_our_rules(cloud, tmp_path):
    promtool = shutil.which('promtool')
    if promtool is None:
        kolla_env.missing('promtool')
    file = tmp_path / 'prometheus.yml'
    file.write_text((cloud.node / 'prometheus.yml').read_text().replace(
        '/etc/prometheus/', f'{cloud.config}/config/prometheus/'))
    done = subprocess.run([promtool, 'check', 'config', str(file)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = yaml.safe_load((cloud.config / 'config/prometheus/kronos.rules').read_text())
    count = sum(len(group['rules']) for group in rules['groups'])
    assert re.search(rf'kronos\.rules\n  SUCCESS: {count} rules found', done.stdout)


def test_engine_and_scheduler_share_a_cache(cloud, rendered):
    parser = configparser.RawConfigParser(strict=False)
    parser.read(cloud.node / 'nova-scheduler/nova.conf')
    assert rendered.cache.enabled is True
    assert rendered.cache.backend == parser['cache']['backend']
    assert rendered.cache.memcache_servers == parser['cache']['memcache_servers'].split(',')
    assert rendered.kronos_channel.hmac_keys == [parser['kronos_channel']['hmac_keys']]
    assert rendered.kronos_channel.hmac_keys == [cloud.passwords['kronos_channel_key']]
    assert len(cloud.passwords['kronos_channel_key']) >= raw_cache.MIN_KEY_LENGTH


def test_operator_policies_are_copied_unchanged_and_mounted(cloud):
    copied = cloud.node / 'kronos-policies/policies.yaml'
    assert copied.read_text() == kolla_cloud.POLICIES
    assert stat.S_IMODE(copied.stat().st_mode) == 0o644
    assert stat.S_IMODE(copied.parent.stat().st_mode) == 0o755
    volume = f'{cloud.node}/kronos-policies/:/etc/kronos/policies/:ro'
    assert volume in cloud.json('nova-scheduler-volumes.json')
    services = cloud.json('kronos-services.json')
    assert set(services) == {*rendered_conf.DAEMONS, 'kronos-api'}
    for name, service in services.items():
        # The API reads no policies, and has no broker.
        wanted = name != 'kronos-api'
        assert (volume in service['volumes']) is wanted
        assert ('/dev/shm:/dev/shm' in service['volumes']) is wanted


def test_role_rules_reach_nova_api_unchanged(cloud):
    ours = yaml.safe_load((kolla_cloud.ETC / 'nova-policy.yaml').read_text())
    assert yaml.safe_load((cloud.node / 'nova-api/policy.yaml').read_text()) == ours
    assert 'policy_file = policy.yaml' in (cloud.node / 'nova-api/nova.conf').read_text()


def test_only_nova_scheduler_has_our_filters(cloud):
    assert 'kronos_nova.filters' in (cloud.node / 'nova-scheduler/nova.conf').read_text()
    assert 'kronos' not in (cloud.node / 'nova-api/nova.conf').read_text()


class TestNovaScheduler(rendered_conf.NovaScheduler):
    """Its nova.conf, without a nova-scheduler; with one: see rendered_scheduler.py."""

    def test_scheduler_trusts_authorities_of_cloud(self, cloud):
        assert rendered_conf.nova(cloud, 'nova-scheduler').prometheus.ca_cert == CACERT


def test_kolla_sets_up_container_by_config_json(cloud, daemon, tmp_path):
    if os.geteuid():
        pytest.skip('only root can chroot and chown; the next test is for everybody')
    container_setup.set_up(cloud.node / daemon, tmp_path)
    assert (tmp_path / 'run_command').read_text() == (
        f'{daemon} --config-file /etc/kronos/kronos.conf')
    assert container_setup.read_owner(tmp_path / 'etc/kronos/kronos.conf') == (42900, 42900, 0o600)
    made = {'var/log/kolla/kronos': (42900, 42400, 0o2775),
            'var/lib/kronos/tmp': (42900, 42900, 0o700)}
    if kolla_env.SERIES == '20':
        # Its set_configs.py knows no directories: the image makes them when it starts.
        extend = kolla_env.TOP / 'deploy/kolla/docker/kronos/kronos-base/extend_start.sh'
        assert all(f' /{directory}\n' in extend.read_text() for directory in made)
    else:
        assert {directory: container_setup.read_owner(tmp_path / directory)
                for directory in made} == made
    assert (tmp_path / 'var/lib/kolla/share/ca-certificates/root.crt').exists()


def test_kolla_validates_config_json(cloud, daemon):
    """Which needs no right to chroot and chown."""
    assert container_setup.validate(cloud.node / daemon) == {
        'command': f'{daemon} --config-file /etc/kronos/kronos.conf', 'missing': [],
        'mistake found': True}


def test_container_is_healthy_while_daemon_is(cloud, rendered, daemon, tmp_path):
    if shutil.which('curl') is None:
        kolla_env.missing('curl')
    script = kolla_env.find_base_image()
    shutil.copy(script / 'healthcheck_curl', tmp_path)
    (tmp_path / 'healthcheck_curl').chmod(0o755)
    kind, command = cloud.json('kronos-services.json')[daemon]['healthcheck']['test']
    assert kind == 'CMD-SHELL'

    def healthy() -> bool:
        return subprocess.run(
            ['sh', '-c', command], check=False, capture_output=True,
            env={'PATH': f'{tmp_path}:/usr/bin:/bin'}).returncode == 0

    now = 1000.0
    health = healths.DaemonHealth(lambda: now, daemon=daemon, dry_run=True)
    pulse = health.add_pulse('loop', 60.0)
    assert not healthy()
    monitor = http_server.start_monitor(rendered, health, f'{daemon.partition("-")[2]}_port')
    assert monitor is not None
    try:
        assert healthy()
        now += 61
        assert not healthy()
        pulse.record_beat()
        health.record_part('cycle', {'': 'Nova is away'})
        assert healthy()
    finally:
        monitor.stop()


def test_nova_scheduler_starts_with_rendered_file(cloud):
    done = subprocess.run(
        [sys.executable, '-c', NOVA],
        cwd=kolla_env.TOP, capture_output=True, text=True, check=False,
        env={**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1',
             'KRONOS_RENDERED': str(cloud.node)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'Ran 2 tests' in done.stdout + done.stderr


@pytest.mark.turns(4, 2)
def test_prechecks_name_missing_policies_of_the_scheduler(cloud):
    status, output = cloud.attempt('prechecks', kolla_env.ANSIBLE / 'kronos.yml',
                                   '-e', json.dumps({'nova_scheduler_extra_volumes': []}))
    assert status != 0
    assert 'nova-scheduler would not find its policies' in ' '.join(output.split())


def test_each_container_has_restart_handler(cloud):
    handlers = {handler['name']
                for handler in yaml.safe_load((ROLE / 'handlers/main.yml').read_text())}
    assert handlers == {f'Restart {name} container'
                        for name in cloud.json('kronos-services.json')}


def test_role_has_each_action_of_kolla_ansible():
    kolla_env.prepared()
    theirs = {path.name for path in (kolla_env.ANSIBLE / 'roles/watcher/tasks').iterdir()}
    ours = {path.name for path in (ROLE / 'tasks').iterdir()}
    # clone.yml: kolla's development mode.
    assert theirs - ours == {'clone.yml'}
