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

"""The images of kolla are built, and kolla-ansible deploys them against the sandbox."""

import datetime
import json
import shutil
import time

import pytest

from tests.containers import cloud as clouds
from tests.containers import deployment
from tests.containers import kolla_images
from tests.deploy import kolla_env
from tools.cloud import scenario
from tools.cloud.client import poll

#: A fixture that builds images counts for the first test that asks for it.
pytestmark = [pytest.mark.long, pytest.mark.timeout(45 * 60)]
SCHEDULER = {
    'command': 'nova-scheduler',
    'config_files': [{'source': '/var/lib/kolla/config_files/nova.conf',
                      'dest': '/etc/nova/nova.conf', 'owner': 'nova', 'perm': '0600'}]}
#: For a nova.conf of the sandbox, in a container of nova-scheduler.
IN_CONTAINER = '''
[DEFAULT]
# The weigher says what it does.
debug = true
state_path = /var/lib/nova
[oslo_concurrency]
lock_path = /var/lib/nova/tmp
[kronos]
policies_file = /etc/kronos/policies/policies.yaml
'''


@pytest.fixture(scope='module')
def api(podman):
    with kolla_images.serve_api(podman) as address:
        yield address


@pytest.fixture(scope='module')
def images(podman, api, make_base, place, measure):
    """All images, by kolla-build."""
    kolla_env.prepared()
    directory = place / 'kolla'
    directory.mkdir()
    seconds = kolla_images.read_seconds(
        kolla_images.build(podman, api, make_base('trixie'), directory))
    for image in kolla_images.IMAGES:
        measure(f'{kolla_images.name_image(image)}: built in {seconds[image]:.0f} s, '
                f'{podman.read_size(kolla_images.name_image(image)) / 1e6:.0f} MB with its base')
    return kolla_images.IMAGES


@pytest.fixture(scope='module')
def deployed(images, podman, api, cloud, place):
    """An operator's directory, and the dry run that the page begins with."""
    directory = place / 'operator'
    directory.mkdir()
    policies = cloud.run.layout.etc / 'policy.d'
    shutil.rmtree(policies, ignore_errors=True)
    policies.mkdir()
    for name in ('nova-policy.yaml', 'placement-policy.yaml'):
        shutil.copy(deployment.TOP / 'etc/kronos' / name, policies)
    made = deployment.Deployment(directory, cloud, api)
    made.prepare(kronos_tag=kolla_images.TAG)
    made.act('prechecks')
    made.act('deploy')
    yield made
    made.attempt('stop', made.top / 'playbooks/kronos.yml', '--yes-i-really-really-mean-it')


def name_container(daemon):
    return daemon.replace('-', '_')


def ask_kronos(podman):
    """Return a function that asks a command of the engine's container."""
    return lambda *words: podman.call('exec', 'kronos_engine', 'kronos', *words, '--config-file',
                                      '/etc/kronos/kronos.conf')


@pytest.mark.parametrize('daemon', clouds.DAEMONS)
def test_daemon_image_runs_as_kronos(images, podman, daemon):
    image = kolla_images.name_image(daemon)
    (described,) = json.loads(podman.call('image', 'inspect', image))
    assert described['Config']['User'] == 'kronos'
    said = podman.call('run', '--rm', '--entrypoint', '', image, 'sh', '-c',
                       f'id -u; command -v {daemon}')
    assert said.split() == ['42900', f'/var/lib/kolla/venv/bin/{daemon}']


def test_scheduler_in_container_boots_by_our_plugins(images, podman, cloud, place, measure):
    directory = place / 'scheduler'
    directory.mkdir()
    (directory / 'config.json').write_text(json.dumps(SCHEDULER))
    (directory / 'nova.conf').write_text(
        (cloud.run.layout.etc / 'nova.conf').read_text() + IN_CONTAINER)
    policies = place / 'scheduler-policies'
    policies.mkdir()
    shutil.copy(cloud.run.layout.policies, policies / 'policies.yaml')
    cloud.run.stop_one('nova-scheduler', grace=20)
    began = time.monotonic()
    podman.call('run', '--detach', '--name', 'nova_scheduler', '--network', 'host',
                '--env', 'KOLLA_CONFIG_STRATEGY=COPY_ALWAYS',
                '--volume', f'{directory}:/var/lib/kolla/config_files:ro',
                '--volume', f'{policies}:/etc/kronos/policies:ro',
                '--health-cmd', f'healthcheck_port nova-scheduler {cloud.run.ports["rabbitmq"]}',
                kolla_images.name_image('nova-scheduler'))
    podman.wait_healthy('nova_scheduler')
    measure(f'nova_scheduler: healthy after {time.monotonic() - began:.1f} s')
    assert podman.call('exec', 'nova_scheduler', 'id', '-un').strip() == 'nova'
    busy = cloud.make_imbalance()
    flavor = cloud.stage.flavor(scenario.WEB)
    (uuid,) = [cloud.client.boot('by-container', flavor, cloud.stage.image)]
    cloud.stage.wait_active([uuid])
    assert cloud.read_hosts([uuid])[uuid] != cloud.run.state.hosts[0]
    assert 'KronosWeigher' in podman.call('logs', 'nova_scheduler')
    cloud.delete(busy)
    cloud.stage.delete([uuid])


def test_deployed_daemons_are_healthy_and_dry(deployed, podman, cloud, measure):
    for daemon in clouds.DAEMONS:
        podman.wait_healthy(name_container(daemon))
        described = podman.inspect(name_container(daemon))
        assert podman.call('exec', name_container(daemon), 'id', '-un').strip() == 'kronos'
        assert described['Config']['Image'].endswith(f'kolla/{daemon}:{kolla_images.TAG}')
        assert (deployed.units / f'kolla-{name_container(daemon)}-container.service').exists()
    deployed.act('check')
    deployed.act('validate-config')


def test_reconfigured_daemons_move_instance(deployed, podman, cloud, measure):
    uuids = cloud.make_imbalance()
    time.sleep(25)
    assert cloud.read_live_migrations(uuids) == {}
    began = time.monotonic()
    deployed.act('reconfigure', '-e', 'kronos_dry_run=false')
    measure(f'reconfigure by kolla-ansible: {time.monotonic() - began:.0f} s')
    cloud.wait_tasks(ask_kronos(podman), uuids)
    cloud.delete(uuids)


def test_upgrade_during_migration_loses_nothing(deployed, podman, cloud, measure):
    for daemon in clouds.DAEMONS:
        podman.call('tag', kolla_images.name_image(daemon),
                    kolla_images.name_image(daemon, 'kronos-2'))
    uuids = cloud.make_imbalance()
    poll(lambda: bool(cloud.read_live_migrations(uuids)), 'a migration has begun')
    began = time.monotonic()
    deployed.act('upgrade', '-e', 'kronos_dry_run=false', '-e', 'kronos_tag=kronos-2')
    measure(f'upgrade by kolla-ansible: {time.monotonic() - began:.0f} s')
    for daemon in clouds.DAEMONS:
        podman.wait_healthy(name_container(daemon))
        assert podman.inspect(name_container(daemon))['Config']['Image'].endswith(':kronos-2')
    cloud.wait_tasks(ask_kronos(podman), uuids)
    # Ansible takes as long as the machine lets it: whether one was still running is measured.
    restarted = datetime.datetime.fromisoformat(
        podman.inspect('kronos_executor')['State']['StartedAt']).astimezone(datetime.UTC)
    measure(f'{cloud.count_migrations_at(restarted)} live migrations ran when the upgrade '
            'restarted kronos-executor')
    cloud.delete(uuids)


def test_stop_ends_all_containers(deployed, podman):
    deployed.act('stop', '--yes-i-really-really-mean-it')
    for daemon in clouds.DAEMONS:
        assert podman.inspect(name_container(daemon))['State']['Status'] == 'exited'
