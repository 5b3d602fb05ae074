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

"""A whole cycle of the engine against a region behind real services.

Keystone, Nova's API, Placement, MariaDB and Prometheus are those of the sandbox; their databases
hold generated rows of a whole region, and Prometheus scrapes an exporter of all its hosts. Printed
are a cold cycle, cycles in which nothing and a hundredth of the hosts have changed, each by phase,
with the processor time of every process, and the engine's memory::

    python benchmarks/region.py --hosts 1800 --instances 48000 --json

Needs what ``tools/sandbox`` needs, 6 GiB of memory and 10 of disk.
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import pathlib
import subprocess
import sys
import threading
from typing import Any

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tools.cloud import client as clients
from tools.cloud import config
from tools.cloud import down
from tools.cloud import mariadb
from tools.cloud import policies
from tools.cloud import processes
from tools.cloud import prometheus
from tools.cloud import rebalancer
from tools.cloud import up
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.region import rows
from tools.cloud.region import shape
from tools.cloud.run import Run
from tools.cloud.run import tail

HOST = HostSize(vcpus=16, memory_mb=131072, disk_gb=1000)
#: Every so many hosts change between two cycles.
CHANGED = 100
REPORT_SECONDS = 10
SERVERS = ('keystone', 'nova', 'placement', 'mariadb', 'prometheus', 'memcached')


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1800)
    parser.add_argument('--instances', type=int, default=48000)
    parser.add_argument('--children', type=int, default=2,
                        help='nested providers of each host (default: 2)')
    parser.add_argument('--cycles', type=int, default=3, help='warm cycles of each kind')
    parser.add_argument('--list-interval', type=int, default=900,
                        help='[nova] full_list_interval (default: 900)')
    parser.add_argument('--scrape-seconds', type=int, default=60)
    parser.add_argument('--dir', type=pathlib.Path, default=CHECKOUT / '.sandbox-region')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    region = shape.Shape(args.hosts, args.instances, args.children)
    progress = Progress()
    layout = Layout(args.dir.absolute())
    run = up.up(layout, up.Size(hosts=1, host=HOST), progress)
    try:
        prepare_region(run, region, args, progress)
        with keep_services_up(run):
            measured = measure_cycles(run, region, args.cycles, progress)
    finally:
        down.down(layout, keep_logs=True, progress=progress)
    if args.json:
        print(json.dumps({**vars(region), **measured}))
    else:
        print_cycles(measured)


def prepare_region(run: Run, region: shape.Shape, args: argparse.Namespace,
                   progress: Progress) -> None:
    """Fill the databases, and let Prometheus scrape every host twice."""
    scrape_seconds = args.scrape_seconds
    cloud = clients.Cloud(run.ports)
    image = cloud.find_image(up.IMAGE)
    templates = {
        flavor: cloud.boot(f'template-{flavor}', cloud.ensure_flavor(flavor, vcpus, memory, 10),
                           str(image))
        for flavor, vcpus, memory, _share in shape.FLAVORS}
    clients.poll(lambda: all(cloud.server(uuid)['status'] == 'ACTIVE'
                             for uuid in templates.values()), 'the template servers are ACTIVE')
    for name in ('nova-computes', 'exporter', 'prometheus'):
        run.stop_one(name, grace=10)
    targets = [config.ScrapeTarget(job, host, run.ports['exporter'], f'/{host}/{job}')
               for job in config.EXPORTER_PORTS for host in region.list_hosts()]
    run.spawn('exporter', [
        sys.executable, '-m', 'tools.cloud.region.exporter', str(run.ports['exporter']),
        str(region.hosts), str(region.instances), str(HOST.vcpus), str(HOST.memory_mb)])
    run.wait_http('exporter', f'/{shape.TEMPLATE_HOST}/node')
    prometheus.start(run, config.prometheus(targets, scrape_seconds))
    progress.step('the template servers are ACTIVE')
    rows.fill_databases(run, region, templates)
    progress.step('the databases are filled')
    mariadb.execute(run, ['CREATE DATABASE kronos CHARACTER SET utf8mb4'])
    write_configuration(run, args.list_interval)
    clients.poll(lambda: count_scored_hosts(run) == region.hosts,
                 'Prometheus has a score of every host', timeout=60 + 5 * scrape_seconds,
                 interval=scrape_seconds / 4)
    progress.step('Nova, Placement and Prometheus know the region')


def count_scored_hosts(run: Run) -> int:
    """Return how many hosts have a CPU score; 0 while Prometheus does not answer in time."""
    query, label = policies.query(run.layout.policies.read_text(), 'cpu')
    try:
        return len(prometheus.query(run, query, label))
    except OSError:
        return 0


def write_configuration(run: Run, list_interval: int) -> None:
    """Write kronos.conf: a preset as shipped, everything else as in production."""
    from kronos_nova import presets

    run.layout.policies.write_text(presets.read_preset('spread-inovex'))
    rebalancer.write_configuration(run, {
        'engine': {'dry_run': 'true', 'evaluation_interval': 60, 'settle_seconds': 300,
                   'planning_deadline': 60},
        'prometheus': {'url': run.url('prometheus'), 'staleness_threshold': 180, 'timeout': 300},
        'nova': {**config.password_auth(run.ports, 'admin', 'admin'),
                 'collect_timeout': 700, 'full_list_interval': list_interval},
        'database': {'connection': mariadb.url(run, 'kronos')},
    })


@contextlib.contextmanager
def keep_services_up(run: Run) -> Iterator[None]:
    """Report every nova-compute as up, again and again."""
    stopping = threading.Event()

    def report() -> None:
        while not stopping.wait(REPORT_SECONDS):
            rows.report_services(run)

    rows.report_services(run)
    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def measure_cycles(run: Run, region: shape.Shape, number: int,
                   progress: Progress) -> dict[str, list[dict[str, Any]]]:
    """Return the measured cycles by name: one cold one, and so many of each other kind."""
    measured: dict[str, list[dict[str, Any]]] = {}
    with CycleProgram(run) as engine:
        measured['cold'] = [engine.measure_cycle()]
        progress.step('the cold cycle has ended')
        measured['nothing has changed'] = [engine.measure_cycle() for _ in range(number)]
        measured['a hundredth has changed'] = []
        for _ in range(number):
            rows.change_hosts(run, region, CHANGED)
            measured['a hundredth has changed'].append(engine.measure_cycle())
        progress.step('the warm cycles have ended')
    return measured


class CycleProgram:
    """The program of :mod:`tools.cloud.region.cycles`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._log = run.log('cycles')

    def __enter__(self) -> 'CycleProgram':
        command = [sys.executable, '-m', 'tools.cloud.region.cycles', '--config-file',
                   str(self._run.layout.kronos_conf)]
        with self._log.open('ab') as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=self._run.environment(), cwd=self._run.layout.data)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._child.kill()
        self._child.communicate()

    def measure_cycle(self) -> dict[str, Any]:
        """Run one cycle; return its measures with processor seconds of every server.

        :raises SystemExit: the cycle failed.
        """
        assert self._child.stdin is not None and self._child.stdout is not None
        before = read_processor_seconds(self._run)
        self._child.stdin.write('\n')
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f'A cycle failed; the end of {self._log}:\n{tail(self._log)}')
        after = read_processor_seconds(self._run)
        return json.loads(line) | {
            'servers': {name: after[name] - before[name] for name in before}}


def read_processor_seconds(run: Run) -> dict[str, float]:
    """Return the processor seconds of each server so far."""
    return {process.name: measured['cpu'] for process in run.state.processes
            if process.name in SERVERS
            and (measured := processes.measure_process(process.pid)) is not None}


def print_cycles(measured: dict[str, list[dict[str, Any]]]) -> None:
    """Print the shortest cycle of each kind by phase, server and path."""
    for name, cycles in measured.items():
        shortest = min(cycles, key=lambda cycle: cycle['seconds'])
        print(f'{name}: {shortest["seconds"]:.1f} s by the clock, '
              f'{shortest["cpu_seconds"]:.1f} s of the engine, '
              f'{shortest["memory"]["now"]:.0f} MiB, at most {shortest["memory"]["highest"]:.0f}')
        for phase, seconds in shortest['phases'].items():
            print(f'  {phase:12} {seconds:8.2f} s {shortest["cpu_phases"][phase]:8.2f} s of the '
                  'engine')
        for server, seconds in shortest['servers'].items():
            print(f'  {server:12} {"":10} {seconds:8.2f} s of the server')
        for path, (number, seconds) in sorted(shortest['requests'].items()):
            print(f'  {number:6} x {path:60} {seconds:8.2f} s')
        for scope in shortest['scopes']:
            print(f'  {scope}')


if __name__ == '__main__':
    main()
