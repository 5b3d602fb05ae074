# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``up``: from nothing to a cloud whose own service list says that it works."""

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import signal
import sys
import time

from tools.cloud import checks
from tools.cloud import config
from tools.cloud import errors
from tools.cloud import hypervisors
from tools.cloud import mariadb
from tools.cloud import memcached
from tools.cloud import ports
from tools.cloud import processes
from tools.cloud import prometheus
from tools.cloud import rabbitmq
from tools.cloud import rebalancer
from tools.cloud import scheduler
from tools.cloud import seed
from tools.cloud import state
from tools.cloud.client import ApiError
from tools.cloud.client import Cloud
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.hypervisors.base import Hypervisor
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import interrupts_ignored
from tools.cloud.run import Run

IMAGE = 'tiny'
#: name, vCPUs, MiB, GiB
FLAVORS = (('small', 1, 2048, 10), ('medium', 2, 4096, 20), ('large', 4, 8192, 40))


@dataclasses.dataclass(frozen=True)
class Size:
    """How big a cloud is wanted."""

    hosts: int = 6
    host: HostSize = HostSize()
    base_port: int | None = None
    kronos: bool = True
    #: Whether kronos-api is started, on the database of kronos.conf.
    api: bool = False
    hypervisor: str = 'fake'
    disks: str = 'shared'
    #: Worker processes of nova-scheduler, and how often each asks Prometheus.
    schedulers: int = 1
    refresh_seconds: int = 1
    #: How often Prometheus scrapes, and its exporter asks Nova where guests are.
    scrape_seconds: int = 1


def host_names(count: int) -> list[str]:
    return [f'compute-{i:02d}' for i in range(1, count + 1)]


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Keep a second ``up`` or ``down`` of the same directory out.

    :raises errors.AlreadyThere: another one is at work
    """
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(layout.lock, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise errors.AlreadyThere(
                f'another tools/sandbox is at work in {layout.root}: let it finish'
            ) from e
        yield


def refuse_second(layout: Layout) -> None:
    """Raise when the directory is in use.

    :raises errors.AlreadyThere: a sandbox is up there, or a crashed one left something
    """
    current = state.load(layout.state)
    alive = processes.marked(layout.root)
    if current and current.complete and any(map(processes.is_alive, current.processes)):
        raise errors.AlreadyThere(
            f'a sandbox is already up in {layout.root}: tools/sandbox down takes it down'
        )
    if current or alive:
        raise errors.AlreadyThere(
            f'a run in {layout.root} ended without cleaning up ({len(alive)} of its processes '
            'still run): tools/sandbox down removes them and their data'
        )


def up(layout: Layout, size: Size, progress: Progress) -> Run:
    """Bring the cloud up; on any failure nothing is left running, and the logs stay.

    :raises errors.SandboxError: says what stood in the way
    """
    with locked(layout):
        refuse_second(layout)
        hypervisor = hypervisors.get_hypervisor(size.hypervisor)
        checks.machine(layout.root, size.hosts, hypervisor)
        if size.kronos:
            scheduler.check()
        hosts = host_names(size.hosts)
        chosen = ports.choose((*ports.NAMES, *hypervisor.list_ports(hosts)), size.base_port)
        layout.create()
        run = Run(layout, state.State(chosen, hosts, time.time(), kronos=size.kronos,
                                      hypervisor=size.hypervisor, disks=size.disks,
                                      scrape_seconds=size.scrape_seconds))
        run.state.save(layout.state)
        terminate = signal.signal(signal.SIGTERM, _raise_interrupt)
        try:
            _start(run, size, hypervisor, progress)
            run.state.complete = True
            run.state.save(layout.state)
        except BaseException as e:
            with interrupts_ignored():
                progress.step('not up: stopping what was started')
                left = run.stop()
                layout.clean(keep_logs=True)
            if left:
                progress.step(f'could not be stopped: {left}')
            if isinstance(e, ApiError):
                raise errors.ServiceDied(f'an API refused: {e}; logs: {layout.log}') from e
            raise
        finally:
            signal.signal(signal.SIGTERM, terminate)
        return run


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def describe(run: Run, size: Size) -> config.Cloud:
    """What the configuration files depend on."""
    return config.Cloud(
        ports=run.ports,
        database={name: mariadb.url(run, name) for name in seed.DATABASES},
        venv=pathlib.Path(sys.prefix),
        etc=run.layout.etc,
        data=run.layout.data,
        schedulers=size.schedulers,
    )


def _start(run: Run, size: Size, hypervisor: Hypervisor, progress: Progress) -> None:
    cloud = describe(run, size)
    write_files(run, cloud, size, hypervisor)
    rabbitmq.start(run)
    memcached.start(run)
    mariadb.start(run)
    progress.step('MariaDB serves')
    _databases(run, progress)
    rabbitmq.wait(run)
    progress.step('RabbitMQ serves')
    _nova(run, hypervisor)
    prometheus.start(run, config.prometheus(
        hypervisor.start_exporters(run, size.host), size.scrape_seconds))
    client = Cloud(run.ports)
    for name in ('placement', 'glance', 'neutron', 'nova'):
        run.wait_http(name)
    progress.step('every API answers')
    wait_services(run, client, progress)
    prometheus.wait_targets(run, run.state.hosts)
    progress.step(f'Prometheus scrapes {2 * len(run.state.hosts)} targets')
    hypervisor.ensure_image(client, run, IMAGE)
    for flavor in FLAVORS:
        client.ensure_flavor(*flavor)
    if size.kronos and size.api:
        rebalancer.start_api(run)
        progress.step('kronos-api answers')
    run.check_alive()
    progress.step('image and flavors are there: UP')


def write_files(run: Run, cloud: config.Cloud, size: Size, hypervisor: Hypervisor) -> None:
    """Every configuration file, and the directories that the services expect."""
    etc, data, hosts = run.layout.etc, run.layout.data, run.state.hosts
    for directory in ('locks', 'images/staging', 'images/tasks', 'state/controller'):
        (data / directory).mkdir(parents=True)
    kronos = None
    if size.kronos:
        kronos = scheduler.sections(run, size.refresh_seconds)
        scheduler.write_policies(run)
        rebalancer.write_configuration(run)
    files = {
        'keystone.conf': config.keystone(cloud),
        'placement.conf': config.placement(cloud),
        'glance-api.conf': config.glance(cloud),
        'nova.conf': config.nova(cloud, kronos),
        'nova-compute.conf': config.computes(
            cloud, hypervisor.build_compute_options(size.host)),
    }
    for host in hosts:
        (data / 'state' / host).mkdir()
        files[f'{host}.conf'] = config.compute(
            cloud, host, hypervisor.build_host_options(run, host))
    for name, text in files.items():
        (etc / name).write_text(text)
    run.layout.openrc.touch(mode=0o600)
    run.layout.openrc.write_text(config.openrc(cloud))


def _api(run: Run, name: str, module: str, **environment: str) -> None:
    run.spawn(
        name,
        [sys.executable, '-m', 'tools.cloud.wsgi', str(run.ports[name]), module],
        env=environment,
    )


def _databases(run: Run, progress: Progress) -> None:
    """Databases and the services that need nothing else."""
    etc = str(run.layout.etc)
    seed.write_keys(run)
    stored = seed.file(run)
    fresh = not stored.exists()
    if fresh:
        seed.create_databases(run)
        progress.step('no databases of an earlier start: migrating')
        seed.migrate_keystone(run)
    _api(run, 'keystone', 'keystone.wsgi.api',
         OS_KEYSTONE_CONFIG_FILES=f'{etc}/keystone.conf')
    _api(run, 'neutron', 'tools.cloud.neutron')
    if fresh:
        seed.migrate_others(run)
        run.wait_http('keystone')
        seed.create_accounts(run)
    else:
        try:
            mariadb.restore(run, stored)
        except errors.ServiceDied as e:
            stored.unlink()
            raise errors.ServiceDied(
                f'{e}\nThe kept databases are broken and now deleted: start again'
            ) from e
    seed.point_to(run)
    progress.step('databases are migrated' if fresh else 'databases are restored')
    _api(run, 'placement', 'placement.wsgi.api', OS_PLACEMENT_CONFIG_DIR=etc)
    _api(run, 'glance', 'glance.wsgi.api', OS_GLANCE_CONFIG_DIR=etc)
    run.wait_http('keystone')


def _nova(run: Run, hypervisor: Hypervisor) -> None:
    etc, bin_directory = run.layout.etc, pathlib.Path(sys.prefix, 'bin')
    conf = ['--config-file', str(etc / 'nova.conf')]
    run.spawn('nova-conductor', [f'{bin_directory}/nova-conductor', *conf])
    hypervisor.start_computes(run)
    # its debug lines name each filter and weigher, and their answers for each host
    run.spawn('nova-scheduler', [f'{bin_directory}/nova-scheduler', *conf, '--debug'])
    # Nova hands the first file to Paste, so the second is the one it reads options from
    (etc / 'api-paste.ini').write_text(
        pathlib.Path(sys.prefix, 'etc/nova/api-paste.ini').read_text()
    )
    _api(run, 'nova', 'nova.wsgi.osapi_compute', OS_NOVA_CONFIG_DIR=str(etc),
         OS_NOVA_CONFIG_FILES='api-paste.ini;nova.conf')


def wait_services(run: Run, client: Cloud, progress: Progress) -> None:
    """Believe Nova's and Placement's own lists, not that processes were started."""
    wanted = {('nova-compute', host) for host in run.state.hosts}
    wanted |= {('nova-scheduler', 'controller'), ('nova-conductor', 'controller')}

    def services() -> str | None:
        try:
            found = client.compute_services()
        except ApiError as e:
            return str(e)
        living = {(s['binary'], s['host']) for s in found
                  if s['state'] == 'up' and s['status'] == 'enabled'}
        missing = sorted(wanted - living)
        return f'not up: {missing}' if missing else None

    names = set(run.state.hosts)

    def stored(table: str) -> set[str]:
        return {str(host) for [host] in mariadb.execute(run, [f'SELECT host FROM {table}'])}

    def registered() -> str | None:
        missing = sorted(names - stored('nova.compute_nodes'))
        return f'without a compute node: {missing}' if missing else None

    def hosts() -> str | None:
        try:
            providers = {p['name'] for p in client.resource_providers()}
            hypervisors = {h['hypervisor_hostname'] for h in client.hypervisors()}
        except ApiError as e:
            return str(e)
        for what, there in (
            ('mapped to the cell', stored('nova_api.host_mappings')),
            ('known to Placement', providers),
            ('hypervisors', hypervisors),
        ):
            if names - there:
                return f'not {what}: {sorted(names - there)}'
        return None

    run.wait('Nova lists its services as up', services)
    progress.step(f'Nova lists {len(wanted)} services as up')
    run.wait('Every host has a compute node', registered)
    if names - stored('nova_api.host_mappings'):
        # nova-scheduler looks once at its start, perhaps too early, then once a minute
        _discover_hosts(run)
    run.wait('Nova and Placement know every host', hosts)
    progress.step(f'{len(run.state.hosts)} hosts are discovered')


def _discover_hosts(run: Run) -> None:
    run.task(
        'discover-hosts',
        [f'{sys.prefix}/bin/nova-manage', '--config-file', f'{run.layout.etc}/nova.conf',
         'cell_v2', 'discover_hosts', '--verbose'],
        env={'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'},
    )()
