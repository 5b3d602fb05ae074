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
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tools.cloud import client as clients
from tools.cloud import config
from tools.cloud import down
from tools.cloud import mariadb
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

HOST = HostSize(vcpus=16, memory_mb=131072, disk_gb=1000)
#: Every so many hosts change between two cycles.
CHANGED = 100
HEARTBEAT_SECONDS = 10
SERVERS = ('keystone', 'nova', 'placement', 'mariadb', 'prometheus', 'memcached')


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1800)
    parser.add_argument('--instances', type=int, default=48000)
    parser.add_argument('--children', type=int, default=2,
                        help='nested providers of each host (default: 2)')
    parser.add_argument('--cycles', type=int, default=3, help='warm cycles of each kind')
    parser.add_argument('--scrape-seconds', type=int, default=60)
    parser.add_argument('--dir', type=pathlib.Path, default=CHECKOUT / '.sandbox-region')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    region = shape.Shape(args.hosts, args.instances, args.children)
    progress = Progress()
    layout = Layout(args.dir.absolute())
    run = up.up(layout, up.Size(hosts=1, host=HOST), progress)
    try:
        with contextlib.ExitStack() as stack:
            prepare_region(run, region, args.scrape_seconds, progress)
            stack.enter_context(beating_hearts(run))
            progress.step('Nova, Placement and Prometheus know the region')
            found = measure(run, region, args.cycles, progress)
    finally:
        down.down(layout, keep_logs=True, progress=progress)
    if args.json:
        print(json.dumps({**vars(region), **found}))
    else:
        print_cycles(found)


def prepare_region(run: Run, region: shape.Shape, scrape_seconds: int,
                   progress: Progress) -> None:
    """Fill the databases, and let Prometheus scrape every host twice."""
    cloud = clients.Cloud(run.ports)
    image = cloud.find_image(up.IMAGE)
    templates = {
        flavor: cloud.boot(f'template-{flavor}', cloud.ensure_flavor(flavor, vcpus, memory, 10),
                           str(image))
        for flavor, vcpus, memory, _share in shape.FLAVORS}
    clients.poll(lambda: all(cloud.server(uuid)['status'] == 'ACTIVE'
                             for uuid in templates.values()), 'the templates are ACTIVE')
    for name in ('nova-computes', 'exporter', 'prometheus'):
        run.stop_one(name, grace=10)
    targets = [config.ScrapeTarget(job, host, run.ports['exporter'], f'/{host}/{job}')
               for job in config.EXPORTER_PORTS for host in region.list_hosts()]
    run.spawn('exporter', [
        sys.executable, '-m', 'tools.cloud.region.exporter', str(run.ports['exporter']),
        str(region.hosts), str(region.instances), str(HOST.vcpus), str(HOST.memory_mb)])
    run.wait_http('exporter', f'/{shape.TEMPLATE_HOST}/node')
    prometheus.start(run, config.prometheus(targets, scrape_seconds))
    progress.step('the templates are ACTIVE')
    started = time.monotonic()
    rows.fill_databases(run, region, templates)
    rows.beat_hearts(run)
    progress.step('the databases are filled')
    mariadb.execute(run, ['CREATE DATABASE kronos CHARACTER SET utf8mb4'])
    write_configuration(run)
    # A rate needs two scrapes, and these begin at any time within the interval.
    time.sleep(max(0.0, started + 2.5 * scrape_seconds - time.monotonic()))


def write_configuration(run: Run) -> None:
    """Write kronos.conf: a preset as shipped, everything else as in production."""
    from kronos_nova import presets

    run.layout.policies.write_text(presets.read_preset('spread-inovex'))
    rebalancer.write_configuration(run, {
        'engine': {'dry_run': 'true', 'evaluation_interval': 60, 'settle_seconds': 300,
                   'planning_deadline': 60},
        'prometheus': {'url': run.url('prometheus'), 'staleness_threshold': 180, 'timeout': 300},
        'nova': {**config.password_auth(run.ports, 'admin', 'admin'),
                 'collect_timeout': 700},
        'database': {'connection': mariadb.url(run, 'kronos')},
    })


@contextlib.contextmanager
def beating_hearts(run: Run) -> Iterator[None]:
    """Keep every nova-compute alive in Nova's eyes."""
    stopping = threading.Event()

    def beat() -> None:
        while not stopping.wait(HEARTBEAT_SECONDS):
            rows.beat_hearts(run)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def measure(run: Run, region: shape.Shape, cycles: int, progress: Progress) -> dict[str, Any]:
    """Return the measured cycles by name."""
    engine = Program(run, [sys.executable, '-m', 'tools.cloud.region.cycles', '--config-file',
                           str(run.layout.kronos_conf)], run.log('cycles'))
    found: dict[str, Any] = {}
    with engine:
        found['cold'] = engine.measure()
        progress.step('the cold cycle has ended')
        found['nothing has changed'] = [engine.measure() for _ in range(cycles)]
        found['a hundredth has changed'] = []
        for _ in range(cycles):
            rows.change_providers(run, region, CHANGED)
            found['a hundredth has changed'].append(engine.measure())
        progress.step('the warm cycles have ended')
    return found


class Program:
    """A program that does one piece of work for each line of its stdin."""

    def __init__(self, run: Run, command: list[str], log: pathlib.Path) -> None:
        self._run = run
        self._command = command
        self._log = log

    def __enter__(self) -> 'Program':
        with self._log.open('ab') as log:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=self._run.environment(), cwd=self._run.layout.data)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._child.kill()
        self._child.communicate()

    def measure(self) -> dict[str, Any]:
        """Let it work once; return its result with processor seconds of every server."""
        assert self._child.stdin is not None and self._child.stdout is not None
        before = read_processor_seconds(self._run)
        self._child.stdin.write('\n')
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f'{self._command[0]} ended; its log is {self._log}')
        after = read_processor_seconds(self._run)
        return json.loads(line) | {
            'servers': {name: after[name] - before[name] for name in before}}


def read_processor_seconds(run: Run) -> dict[str, float]:
    """Return the processor seconds of each server so far."""
    found = {}
    for process in run.state.processes:
        if process.name in SERVERS:
            stat = pathlib.Path(f'/proc/{process.pid}/stat').read_text()
            fields = stat[stat.rindex(')') + 2:].split()
            found[process.name] = (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
    return found


def print_cycles(found: dict[str, Any]) -> None:
    """Print each cycle by phase, server and request; of several cycles, the shortest."""
    for name, measured in found.items():
        cycles = measured if isinstance(measured, list) else [measured]
        shortest = min(cycles, key=lambda cycle: cycle['seconds'])
        print(f'{name}: {shortest["seconds"]:.1f} s by the clock, '
              f'{shortest["cpu_seconds"]:.1f} s of its own, memory {shortest["memory"]}')
        for phase, seconds in shortest.get('phases', {}).items():
            print(f'  {phase:12} {seconds:8.2f} s {shortest["cpu_phases"][phase]:8.2f} s of ours')
        for server, seconds in shortest['servers'].items():
            print(f'  {server:12} {seconds:8.2f} s of its own')
        for kind, (number, seconds) in sorted(shortest.get('requests', {}).items()):
            print(f'  {number:6} x {kind:60} {seconds:8.2f} s')
        for scope in shortest.get('scopes', ()):
            print(f'  {scope}')


if __name__ == '__main__':
    main()
