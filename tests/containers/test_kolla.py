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

"""The images of kolla are built, and kolla-ansible deploys them against the sandbox.

From deployment to destruction the tests build on each other, in their order.
"""

import contextlib
import datetime
import json
from pathlib import Path
import shutil
import threading
import time

import pytest

from kronos_nova.rebalancer.store import schema
from tests.containers import cloud as clouds
from tests.containers import deployment
from tests.containers import kolla_images
from tests.deploy import kolla_env
from tests.fixtures import free_ports
from tools.cloud import scenario
from tools.cloud.client import poll
from tools.cloud.soak import moves
from tools.cloud.soak import releases

#: A fixture that builds images counts for the first test that asks for it.
pytestmark = [pytest.mark.long, pytest.mark.timeout(45 * 60)]
SCHEDULER = {
    'command': 'nova-scheduler',
    'config_files': [{'source': '/var/lib/kolla/config_files/nova.conf',
                      'dest': '/etc/nova/nova.conf', 'owner': 'nova', 'perm': '0600'}]}
CONTAINERS = (*clouds.DAEMONS, clouds.API)
#: Variables of the second build, which goes on to move instances.
NEXT = ('-e', 'kronos_dry_run=false', '-e', f'kronos_tag={kolla_images.NEXT_TAG}')
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
def base(make_base):
    return make_base('trixie')


@pytest.fixture(scope='module')
def sources(place):
    kolla_env.prepared()
    directory = place / 'kolla'
    directory.mkdir()
    return directory


def measure_images(podman, measure, tag, images, output):
    seconds = kolla_images.read_seconds(output)
    for image in images:
        size = podman.read_size(kolla_images.name_image(image, tag))
        measure(f'{kolla_images.name_image(image, tag)}: built in {seconds[image]:.0f} s, '
                f'{size / 1e6:.0f} MB with its base')


@pytest.fixture(scope='module')
def images(podman, api, base, sources, measure):
    """All images, by kolla-build."""
    output = kolla_images.build(api, base, sources)
    measure_images(podman, measure, kolla_images.TAG, kolla_images.IMAGES, output)


@pytest.fixture(scope='module')
def next_images(images, podman, api, base, sources, measure):
    """Our images of a next release, whose schema has one more revision."""
    output = kolla_images.build_next(podman, api, base, sources)
    measure_images(podman, measure, kolla_images.NEXT_TAG, kolla_images.OUR_IMAGES, output)


@pytest.fixture(scope='module')
def scheduler(images, podman, cloud, place, measure):
    """A container nova_scheduler in place of the sandbox' nova-scheduler."""
    directory = place / 'scheduler'
    directory.mkdir()
    (directory / 'config.json').write_text(json.dumps(SCHEDULER))
    (directory / 'nova.conf').write_text(
        (cloud.run.layout.etc / 'nova.conf').read_text() + IN_CONTAINER)
    policies = place / 'scheduler-policies'
    policies.mkdir()
    shutil.copy(cloud.run.layout.policies, policies / 'policies.yaml')
    cloud.run.stop_one('nova-scheduler', grace=20)
    podman.call('run', '--detach', '--name', 'nova_scheduler', '--network', 'host',
                '--env', 'KOLLA_CONFIG_STRATEGY=COPY_ALWAYS',
                '--volume', f'{directory}:/var/lib/kolla/config_files:ro',
                '--volume', f'{policies}:/etc/kronos/policies:ro',
                '--health-cmd', f'healthcheck_port nova-scheduler {cloud.run.ports["rabbitmq"]}',
                kolla_images.name_image('nova-scheduler'))
    measure(f'nova_scheduler: healthy after {podman.wait_healthy("nova_scheduler"):.1f} s')
    yield 'nova_scheduler'
    podman.call('rm', '--force', '--ignore', 'nova_scheduler')
    cloud.run.restart('nova-scheduler')


@pytest.fixture(scope='module')
def deployed(images, scheduler, podman, api, cloud, place, measure):
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
    measure_action(made, measure, 'deploy')
    yield made
    podman.call('rm', '--force', '--ignore', *map(name_container, CONTAINERS))


def name_container(daemon):
    return daemon.replace('-', '_')


def measure_action(deployed, measure, action, *arguments):
    began = time.monotonic()
    deployed.act(action, *arguments)
    measure(f'{action} by kolla-ansible: {time.monotonic() - began:.0f} s')


def measure_health(podman, measure):
    """Wait until each daemon is healthy, and write down how long each took from its start."""
    for daemon in CONTAINERS:
        name = name_container(daemon)
        measure(f'{name}: healthy after {podman.wait_healthy(name):.1f} s')


def ask_kronos(podman):
    """Return a function that asks a command of the engine's container."""
    return lambda *words: podman.call('exec', 'kronos_engine', 'kronos', *words, '--config-file',
                                      '/etc/kronos/kronos.conf')


@contextlib.contextmanager
def watch_revision(cloud, revision):
    """Look at the schema while the block runs; the list then has the moment of its upgrade."""
    moments, ended = [], threading.Event()

    def look():
        while not ended.wait(0.1):
            if cloud.read_revision() == revision:
                moments.append(datetime.datetime.now(datetime.UTC))
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield moments
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize('daemon', clouds.DAEMONS)
def test_daemon_image_runs_as_kronos(images, podman, daemon):
    image = kolla_images.name_image(daemon)
    (described,) = json.loads(podman.call('image', 'inspect', image))
    assert described['Config']['User'] == 'kronos'
    said = podman.call('run', '--rm', '--entrypoint', '', image, 'sh', '-c',
                       f'id -u; command -v {daemon}')
    assert said.split() == ['42900', f'/var/lib/kolla/venv/bin/{daemon}']


def test_api_image_runs_uwsgi_with_tls(images, podman):
    image = kolla_images.name_image(clouds.API)
    (described,) = json.loads(podman.call('image', 'inspect', image))
    assert described['Config']['User'] == 'kronos'
    said = podman.call('run', '--rm', '--entrypoint', '', image, 'sh', '-c',
                       'command -v uwsgi; uwsgi --help | grep -c -e --https; '
                       'python3 -c "import flask, keystonemiddleware"')
    program, count = said.split()
    assert program == '/var/lib/kolla/venv/bin/uwsgi' and int(count) > 0


def test_scheduler_in_container_boots_by_our_plugins(scheduler, podman, cloud):
    assert podman.call('exec', scheduler, 'id', '-un').strip() == 'nova'
    busy = cloud.make_imbalance()
    flavor = cloud.stage.flavor(scenario.WEB)
    uuid = cloud.client.boot('by-container', flavor, cloud.stage.image)
    cloud.stage.wait_active([uuid])
    assert cloud.read_hosts([uuid])[uuid] != cloud.run.state.hosts[0]
    assert 'KronosWeigher' in podman.call('logs', scheduler)
    cloud.delete(busy)
    cloud.stage.delete([uuid])


def test_deployed_daemons_are_healthy(deployed, podman, measure):
    measure_health(podman, measure)
    for daemon in clouds.DAEMONS:
        described = podman.inspect(name_container(daemon))
        assert podman.call('exec', name_container(daemon), 'id', '-un').strip() == 'kronos'
        assert described['Config']['Image'].endswith(f'kolla/{daemon}:{kolla_images.TAG}')
        assert (deployed.units / f'kolla-{name_container(daemon)}-container.service').exists()
        # The check of the health, where no daemon answers.
        status, _ = podman.attempt('podman', 'exec', name_container(daemon), 'healthcheck_curl',
                                   f'http://127.0.0.1:{free_ports.reserve_port()}/healthz')
        assert status != 0
        assert described['Config']['Healthcheck']['Test'] == [
            'CMD-SHELL', f'healthcheck_curl http://127.0.0.1:{deployed.ports[daemon]}/healthz']
    deployed.act('check')
    deployed.act('validate-config')


def test_deployed_api_checks_tokens_over_tls(deployed, podman, cloud):
    port = deployed.ports[clouds.API]
    address = f'https://127.0.0.1:{port}'
    described = podman.inspect('kronos_api')
    assert podman.call('exec', 'kronos_api', 'id', '-un').strip() == 'kronos'
    assert described['Config']['Image'].endswith(f'kolla/kronos-api:{kolla_images.TAG}')
    assert described['Config']['Healthcheck']['Test'] == [
        'CMD-SHELL', f'healthcheck_curl {address}/healthcheck']
    # HAProxy, which is not here, would speak to clients.
    assert cloud.list_endpoints()['internal'] == f'http://127.0.0.1:{port}'
    certificate = deployed.config / 'certificates/backend-cert.pem'
    status, document = cloud.ask_api(f'{address}/v1/plans', certificate)
    assert status == 200, document
    assert isinstance(document['plans'], list)
    # The files of the daemons are not in this container.
    assert podman.call('exec', 'kronos_api', 'ls', '/etc/kronos').split() == [
        'certs', 'kronos-api-uwsgi.ini', 'kronos.conf', 'policies', 'signing-keys']


def test_dry_run_plans_and_moves_nothing(deployed, cloud):
    uuids = cloud.make_imbalance()
    poll(lambda: cloud.ask_database(
        'SELECT COUNT(*) FROM kronos.plan WHERE dry_run AND moves > 0') >= 2,
        'two plans with moves are recorded')
    assert cloud.ask_database('SELECT COUNT(*) FROM kronos.task') == 0
    assert cloud.read_live_migrations(uuids) == {}
    cloud.delete(uuids)


def test_reconfigured_daemons_move_instance(deployed, podman, cloud, measure):
    measure_action(deployed, measure, 'reconfigure', '-e', 'kronos_dry_run=false')
    uuids = cloud.make_imbalance()
    cloud.wait_tasks(ask_kronos(podman), uuids)
    assert cloud.judge_moves() == []
    cloud.delete(uuids)


def test_upgrade_during_migration_loses_nothing(deployed, next_images, podman, cloud, measure):
    revision = releases.name_next_revision()
    assert cloud.read_revision() == schema.get_head_revision()
    uuids = cloud.make_imbalance()
    poll(lambda: bool(cloud.list_under_way()), 'a migration has begun')
    began = datetime.datetime.now(datetime.UTC)
    under_way = cloud.list_under_way()
    tasks = {task.task_id for task in moves.read_tasks(cloud.run)}
    with watch_revision(cloud, revision) as moments:
        measure_action(deployed, measure, 'upgrade', *NEXT)
    # A migration ran when the upgrade began.
    assert under_way
    measure_health(podman, measure)
    assert cloud.read_revision() == revision
    # The role's container has upgraded the schema, while the old daemons ran on.
    died = {event.container: event for event in podman.list_events(began, 'died')}
    assert set(died) == {'bootstrap_kronos', *map(name_container, CONTAINERS)}
    assert {event.exit_code for event in died.values()} == {0}
    assert died['bootstrap_kronos'].image == kolla_images.name_image(
        'kronos-engine', kolla_images.NEXT_TAG)
    for daemon in CONTAINERS:
        old = died[name_container(daemon)]
        assert old.image == kolla_images.name_image(daemon)
        assert moments[0] < old.at
    assert_next_build_runs(podman)
    cloud.wait_tasks(ask_kronos(podman), uuids)
    assert cloud.judge_moves() == []
    now = {task.task_id: task for task in moves.read_tasks(cloud.run)}
    assert tasks <= set(now)
    # Each migration that was under way has completed its task.
    owners = {uuid: task for task in now.values() for uuid in task.migrations}
    assert {owners[uuid].state for uuid in under_way} == {'completed'}
    # What both builds wrote has the default of the new column.
    assert cloud.ask_database('SELECT COUNT(*) FROM kronos.task WHERE added = 7') == len(now)
    assert {server['id'] for server in cloud.client.servers()} == set(uuids)
    count = cloud.count_migrations_at(died['kronos_executor'].at)
    # Ansible takes as long as the machine lets it: whether one was still running is measured.
    measure(f'{count} live migrations ran when the upgrade ended the old kronos-executor')
    cloud.delete(uuids)


def assert_next_build_runs(podman):
    for daemon in CONTAINERS:
        described = podman.inspect(name_container(daemon))
        image = kolla_images.name_image(daemon, kolla_images.NEXT_TAG)
        assert described['Config']['Image'] == image
        assert described['Image'] == json.loads(podman.call('image', 'inspect', image))[0]['Id']
        said = podman.call('exec', name_container(daemon), 'kronos', '--version')
        assert said.split()[-1] == kolla_images.NEXT_VERSION


def test_stop_ends_all_containers(deployed, podman, measure):
    measure_action(deployed, measure, 'stop', deployment.CONSENT)
    for daemon in CONTAINERS:
        state = podman.inspect(name_container(daemon))['State']
        assert (state['Status'], state['ExitCode']) == ('exited', 0)


def test_destroy_removes_kronos_alone(deployed, scheduler, podman, cloud, measure):
    tasks, images = moves.read_tasks(cloud.run), podman.call('images', '--quiet')
    assert tasks
    measure_action(deployed, measure, 'destroy', deployment.CONSENT)
    assert podman.call('ps', '--all', '--format', '{{.Names}}').split() == [scheduler]
    assert podman.inspect(scheduler)['State']['Status'] == 'running'
    assert list(deployed.units.iterdir()) == []
    assert [path.name for path in deployed.node.glob('kronos*')] == ['kronos-policies']
    # What the page names as left behind.
    assert (deployed.node / 'kronos-policies/policies.yaml').exists()
    logs = Path(podman.call('volume', 'inspect', '--format', '{{.Mountpoint}}',
                            'kolla_logs').strip(), 'kronos')
    assert {path.name for path in logs.iterdir()} >= {f'{name}.log' for name in CONTAINERS}
    assert podman.call('images', '--quiet') == images
    assert moves.read_tasks(cloud.run) == tasks
    assert [moves.find_account(cloud.client, daemon) for daemon in CONTAINERS]
    assert cloud.has_queue('kronos.migrations._unassigned_')
    # A second run finds nothing to remove.
    deployed.act('destroy', deployment.CONSENT)


def test_deploy_after_destroy_goes_on_with_database(deployed, podman, cloud, measure):
    tasks = moves.read_tasks(cloud.run)
    measure_action(deployed, measure, 'deploy', *NEXT)
    measure_health(podman, measure)
    assert_next_build_runs(podman)
    listed = json.loads(ask_kronos(podman)('task', 'list', '--all', '-f', 'json'))
    assert {row['Task'] for row in listed} == {task.task_id for task in tasks}
    assert moves.read_tasks(cloud.run) == tasks


def test_destruction_of_cloud_removes_kronos_as_well(deployed, scheduler, podman, cloud):
    images = podman.call('images', '--quiet')
    # What an operator has in /etc/kolla, where the deployment host is a host of the cloud.
    kept = {'certificates', 'config', 'globals.yml', 'passwords.yml', 'globals.d'}
    shutil.copytree(deployed.config, deployed.node, dirs_exist_ok=True)
    assert {path.name for path in deployed.node.iterdir()} > {*kept, 'kronos.ini'}
    deployed.destroy_cloud()
    assert podman.call('ps', '--all', '--quiet') == ''
    assert podman.call('volume', 'ls', '--quiet') == ''
    assert list(deployed.units.iterdir()) == []
    assert {path.name for path in deployed.node.iterdir()} == kept
    assert podman.call('images', '--quiet') == images
