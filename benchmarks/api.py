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
"""Measure readings of a large cloud: their publication by an engine, and kronos-api on them.

MariaDB, Keystone, memcached and uWSGI with the configuration that is shipped are real, and run on
this machine beside the clients. The cloud is generated, and the part of an engine that publishes
writes it. Printed are the publication (a first one, and later ones when nothing and a hundredth of
the hosts have changed), the times of each address under clients that do not pause and under a mix
of addresses with pauses while new versions come, the processor time of the workers for each
request, and their memory. Beside them stands the alternative: to decode the reading in each
request::

    python benchmarks/api.py --hosts 1800 --instances 48000

A client waits for its answer before it sends the next request.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any
import urllib.parse

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import openstack

from benchmarks import clusters
from kronos_nova import model
from kronos_nova.rebalancer.snapshots import readings
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import readings as stored_readings
from tests.fixtures import free_ports
from tests.fixtures import keystone_server
from tests.integration import servers

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCOPE = 'scope'
FLAVORS = 40
PROJECTS = 400
#: Every so many hosts change between two versions.
CHANGED = 100
PATIENCE = 120.0
TICKS = os.sysconf('SC_CLK_TCK')


def build_reading(hosts: int, instances: int) -> readings.CloudReading:
    """Return a reading of a generated cloud, whose instances have all fields that Nova shows."""
    case = clusters.build(clusters.Spec('api', hosts, instances, policies=2, room=1.3), 1)
    draw = random.Random(1)
    specs = [({'hw:cpu_policy': 'shared', 'hw:mem_page_size': 'large', 'quota:cpu_shares': str(n)},
              {'hw_disk_bus': 'virtio', 'hw_qemu_guest_agent': 'yes', 'os_distro': f'linux{n}'})
             for n in range(FLAVORS)]
    made = {}
    for number, instance in enumerate(case.cluster.instances.values()):
        extra_specs, properties = draw.choice(specs)
        provider = case.cluster.hosts[instance.host].provider
        assert provider is not None
        made[instance.uuid] = dataclasses.replace(
            instance, name=f'web-{number}-production', internal_name=f'instance-{number:08x}',
            project_id=f'{number % PROJECTS:032x}', launched_at=1.6e9 + number, power_state=1,
            extra_specs=dict(extra_specs), image_properties=dict(properties), local_disk_gb=20,
            allocations={provider.uuid: dict(instance.claims)})
    scores = {name: dataclasses.replace(
        scores, means={uuid: 0.9 * usage for uuid, usage in scores.usages.items()},
        deviations={uuid: 0.1 * usage for uuid, usage in scores.usages.items()})
        for name, scores in case.scores.policies.items()}
    cluster = dataclasses.replace(
        case.cluster, instances=made, scope=model.UNASSIGNED, scope_hosts=frozenset())
    now = time.time()
    return readings.CloudReading(
        now, dataclasses.replace(cluster, taken_at=now), (SCOPE,), case.policies,
        model.PlanningOptions(dry_run=False, evacuate_disabled_hosts=True),
        {SCOPE: readings.ScopeReading(model.ClusterScores(scores, now), model.MoveHistory())})


def change_hosts(reading: readings.CloudReading, state: str | None) -> readings.CloudReading:
    """Return the next reading, in which instances of a hundredth of the hosts have changed."""
    hosts = set(sorted(reading.cluster.hosts)[::CHANGED])
    now = time.time()
    return dataclasses.replace(reading, taken_at=now, cluster=dataclasses.replace(
        reading.cluster, taken_at=now, instances={
            uuid: dataclasses.replace(
                instance, task_state=state if instance.host in hosts else instance.task_state)
            for uuid, instance in reading.cluster.instances.items()}))


class Publisher:
    """The part of an engine that encodes and writes a reading."""

    def __init__(self, store: api.Store, database: int) -> None:
        self._store, self._database = store, database
        self._encoder, self._version = readings.ReadingEncoder(), 0

    def publish(self, reading: readings.CloudReading) -> dict[str, float]:
        """Publish a version; return its costs."""
        before, served = time.process_time(), read_cpu_seconds(self._database)
        encoded = self._encoder.encode_reading(reading)
        packed = time.process_time()
        self._version += 1
        written = self._store.readings.publish_reading(stored_readings.Publication(
            'b' * 36, 'benchmark', self._version, readings.FORMAT, reading.taken_at,
            encoded.names, encoded.changed, [SCOPE]))
        assert written
        return {'encode_cpu_s': packed - before, 'write_cpu_s': time.process_time() - packed,
                'database_cpu_s': read_cpu_seconds(self._database) - served,
                'megabytes': sum(map(len, encoded.changed.values())) / 1e6,
                'parts': len(encoded.changed)}


def read_cpu_seconds(process: int) -> float:
    """Return the processor time of a process."""
    fields = pathlib.Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run_clients(port: int, token: str, paths: list[str], clients: int, seconds: float,
                pause: float) -> list[float]:
    """Send requests from so many threads; return the seconds of each, sorted.

    :param pause: seconds between an answer and the next request, about.
    """
    latencies: list[list[float]] = [[] for _ in range(clients)]
    end = time.monotonic() + seconds

    def send_requests(number: int) -> None:
        draw = random.Random(number)
        if pause:
            time.sleep(draw.uniform(0, pause))
        while time.monotonic() < end:
            begun = time.monotonic()
            connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
            connection.request('GET', draw.choice(paths), headers={'X-Auth-Token': token})
            answer = connection.getresponse()
            answer.read()
            connection.close()
            if answer.status != 200:
                raise RuntimeError(f'status {answer.status}')
            latencies[number].append(time.monotonic() - begun)
            if pause:
                time.sleep(draw.uniform(0.5 * pause, 1.5 * pause))

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(send_requests, number) for number in range(clients)]:
            done.result()
    return sorted(latency for of_client in latencies for latency in of_client)


def summarise(latencies: list[float]) -> dict[str, float]:
    def percentile(share: float) -> float:
        return 1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))]

    return {'requests': len(latencies), 'p50_ms': percentile(0.5), 'p99_ms': percentile(0.99),
            'max_ms': 1000 * latencies[-1]}


def read_workers_cpu_seconds(process: int) -> float:
    """Return the processor time of the workers of uWSGI."""
    return sum(read_cpu_seconds(int(child)) for child in list_workers(process))


def list_workers(process: int) -> list[str]:
    return pathlib.Path(f'/proc/{process}/task/{process}/children').read_text().split()


def make_account(keystone: Any) -> tuple[str, str]:
    """Make a reader and the account of the service; return (ID of the project, token)."""
    admin = openstack.connect(
        auth_url=keystone.url, username=keystone_server.USER, password=keystone_server.PASSWORD,
        project_name='admin', user_domain_id='default', project_domain_id='default',
        region_name=keystone_server.REGION).identity
    roles = {role.name: role for role in admin.roles()}
    for name, role in (('operators', 'reader'), ('service', 'service')):
        project = admin.create_project(name=name, domain_id='default')
        user = admin.create_user(name=name, password=keystone_server.PASSWORD,
                                 domain_id='default')
        admin.assign_project_role_to_user(project, user, roles[role])
    reader = openstack.connect(
        auth_url=keystone.url, username='operators', password=keystone_server.PASSWORD,
        project_name='operators', user_domain_id='default', project_domain_id='default')
    return str(reader.current_project_id), str(reader.auth_token)


@contextlib.contextmanager
def run_service(directory: pathlib.Path, database: str, keystone_url: str, project: str,
                memcached: int) -> Any:
    """Run kronos-api under uWSGI with the shipped configuration; yield (port, the process)."""
    conf = directory / 'kronos.conf'
    conf.write_text(
        f'[DEFAULT]\nlog_file = {directory}/kronos-api.log\n[database]\nconnection = {database}\n'
        f'[kronos_api]\noperator_projects = {project}\n[engine]\naggregates = {SCOPE}\n'
        'dry_run = false\nevacuate_disabled_hosts = true\n'
        f'[keystone_authtoken]\nauth_type = password\nauth_url = {keystone_url}\n'
        f'username = service\npassword = {keystone_server.PASSWORD}\nproject_name = service\n'
        'user_domain_id = default\nproject_domain_id = default\n'
        f'memcached_servers = 127.0.0.1:{memcached}\nservice_token_roles_required = true\n')
    port = free_ports.reserve_port()
    ini = directory / 'kronos-api.ini'
    ini.write_text((ROOT / 'etc/kronos/kronos-api.ini').read_text().replace(
        '127.0.0.1:9588', f'127.0.0.1:{port}'))
    with open(directory / 'uwsgi.log', 'wb') as log:
        process = subprocess.Popen(
            [pathlib.Path(sys.executable).with_name('uwsgi'), '--ini', str(ini)], cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, 'OS_KRONOS_CONFIG_FILES': str(conf)})
    try:
        yield port, process
    finally:
        process.terminate()
        process.wait(60)


def read_memory(process: int) -> dict[str, list[float]]:
    """Return the MiB of each worker of uWSGI, now and at most."""
    memory: dict[str, list[float]] = {'rss_mib': [], 'highest_mib': []}
    for child in list_workers(process):
        status = dict(line.split(':', 1) for line in pathlib.Path(
            f'/proc/{child}/status').read_text().splitlines() if ':' in line)
        for name, field in (('rss_mib', 'VmRSS'), ('highest_mib', 'VmHWM')):
            memory[name].append(round(int(status[field].split()[0]) / 1024, 1))
    return memory


def wait_until_it_answers(port: int, token: str) -> None:
    """Send requests until each worker has decoded the reading."""
    end = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError, RuntimeError):
            run_clients(port, token, ['/v1/hosts?limit=1'], 20, 5.0, 0.0)
            return
        if time.monotonic() > end:
            raise SystemExit('kronos-api does not answer')
        time.sleep(0.5)


def measure_alternative(store: api.Store, runs: int = 3) -> dict[str, float]:
    """Return the costs of a request that decodes the reading by itself."""
    begun, used = time.monotonic(), time.process_time()
    for _run in range(runs):
        stored = store.readings.load_reading('b' * 36)
        assert stored is not None
        readings.ReadingDecoder().decode_reading(stored.format, stored.versions, stored.parts)
    return {'seconds': (time.monotonic() - begun) / runs,
            'cpu_s': (time.process_time() - used) / runs}


def measure(args: argparse.Namespace, directory: pathlib.Path,
            clients: concurrent.futures.Executor, stack: contextlib.ExitStack) -> dict[str, Any]:
    url = stack.enter_context(servers.mariadb(directory))
    keystone = stack.enter_context(keystone_server.Keystone())
    memcached = stack.enter_context(servers.memcached(directory))
    project, token = make_account(keystone)
    store = api.Store.from_url(url)
    stack.callback(store.close)
    store.upgrade()
    reading = build_reading(args.hosts, args.instances)
    publisher = Publisher(store, int((directory / 'mariadb/pid').read_text()))
    measured: dict[str, Any] = {'publication': {
        'first': publisher.publish(reading),
        'nothing has changed': publisher.publish(change_hosts(reading, None)),
        'a hundredth has changed': publisher.publish(change_hosts(reading, 'migrating'))}}
    measured['alternative'] = {'decoded in each request': measure_alternative(store)}
    port, service = stack.enter_context(run_service(
        directory, url, keystone.url, project, memcached))
    wait_until_it_answers(port, token)
    measured['memory at first'] = read_memory(service.pid)
    uuid = min(reading.cluster.instances)
    host = max(reading.cluster.hosts)
    addresses = {
        'scopes': '/v1/scopes', 'hosts': '/v1/hosts', 'hosts, 500': '/v1/hosts?limit=500',
        'instances': '/v1/instances', 'instances of a host': f'/v1/instances?host={host}',
        'instances by name': '/v1/instances?' + urllib.parse.urlencode(
            {'name': reading.cluster.instances[uuid].name}),
        'instance': f'/v1/instances/{uuid}', 'policies': '/v1/policies', 'plans': '/v1/plans'}

    def send(paths: list[str], number: int, seconds: float, pause: float) -> dict[str, float]:
        used = read_workers_cpu_seconds(service.pid)
        summary = summarise(clients.submit(
            run_clients, port, token, paths, number, seconds, pause).result())
        used = read_workers_cpu_seconds(service.pid) - used
        return {**summary, 'cpu_ms': 1000 * used / summary['requests']}

    measured['no pause'] = {name: send([path], args.clients, args.seconds, 0.0)
                            for name, path in addresses.items()}
    measured['one client, no pause'] = {
        name: send([path], 1, args.seconds / 2, 0.0)
        for name, path in {**addresses, 'why not': f'/v1/instances/{uuid}/why-not?host={host}',
                           'drain check': f'/v1/drains/check?host={host}'}.items()}
    stop = threading.Event()

    def publish_versions() -> None:
        number = 0
        while not stop.wait(args.publish_seconds):
            number += 1
            publisher.publish(change_hosts(reading, f'state {number}'))

    thread = threading.Thread(target=publish_versions)
    thread.start()
    try:
        # The first row shows how much of the times the machine and the clients take.
        measured['mixed, with pauses'] = {
            'health check': send(['/healthcheck'], args.clients, args.mixed_seconds, args.pause),
            'all': send(list(addresses.values()), args.clients, args.mixed_seconds, args.pause)}
    finally:
        stop.set()
        thread.join()
    measured['memory at the end'] = read_memory(service.pid)
    return measured


def print_measured(measured: dict[str, Any]) -> None:
    for part, rows in measured.items():
        print(part)
        for name, row in rows.items():
            text = '  '.join(f'{key} {value:.3g}' for key, value in row.items()) if isinstance(
                row, dict) else str(row)
            print(f'  {name:25} {text}')


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1800)
    parser.add_argument('--instances', type=int, default=48000)
    parser.add_argument('--clients', type=int, default=20)
    parser.add_argument('--seconds', type=float, default=10.0, help='for each address')
    parser.add_argument('--mixed-seconds', type=float, default=120.0)
    parser.add_argument('--pause', type=float, default=0.5,
                        help='seconds between two requests of a client in the mix')
    parser.add_argument('--publish-seconds', type=float, default=60.0,
                        help='seconds between two versions in the mix')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    # A process of its own, made before this one has a large memory.
    with (concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context('fork')) as clients,
            tempfile.TemporaryDirectory(prefix='kronos-api-') as directory,
            contextlib.ExitStack() as stack):
        clients.submit(time.time).result()
        measured = measure(args, pathlib.Path(directory), clients, stack)
    if args.json:
        print(json.dumps(measured))
    else:
        print_measured(measured)


if __name__ == '__main__':
    main()
