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

"""``burst``: many boots at once, placed by several workers of nova-scheduler.

What counts is the load that the booted instances really put on the hosts. The metrics
do not show it meanwhile: the workers ask Prometheus once, before.
"""

from collections.abc import Iterable
import concurrent.futures
import pathlib
import re
import sys
from typing import Any

from tools.cloud import config
from tools.cloud import down
from tools.cloud import errors
from tools.cloud import load
from tools.cloud import rebalancer
from tools.cloud import scenario
from tools.cloud import stage
from tools.cloud import state
from tools.cloud import tables
from tools.cloud import up
from tools.cloud.client import poll
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import Run

PREFIX = 'burst-'
AGGREGATE = 'burst-without-weigher'
#: The booted flavor: it is busy, and looks small to Nova's own weighers. And what
#: looks large to them, and is idle.
BUSY = scenario.Flavor('burst-busy', 2, 4096, 1)
IDLE = scenario.Flavor('burst-idle', 8, 16384, 1)
TINY = scenario.Flavor('burst-tiny', 1, 128, 1)
USES = {BUSY: load.Use(1.6, 1.0 * scenario.GIB), IDLE: load.Use(0.2, 2.0 * scenario.GIB),
        TINY: load.Use(0.0, 0.0)}
#: Servers of each host of the busy half before the burst (the engine measures
#: a flavor that five have at least), and of the idle half.
SETTLED = {BUSY: 3, IDLE: 2}
#: Requests at the same time, and minutes that scores stay as they are.
CLIENTS = 12
FROZEN_SECONDS = 3600
SCORES = re.compile(r'^\S+ \S+ (\d+) .*kronos: scores of \d+ hosts by ', re.MULTILINE)


def burst(layout: Layout, hosts: int, workers: int, boots: int, progress: Progress) -> bool:
    """Bring a sandbox up for it, boot twice, and take it down.

    :returns: whether the boots ended less than half as uneven as with Nova's weighers
    :raises errors.SandboxError: it could not be shown
    """
    if hosts < 2 or boots < 1:
        raise errors.NotPossibleHere('a burst needs 2 hosts and 1 boot at least')
    if (current := state.load(layout.state)) is not None and current.complete:
        raise errors.AlreadyThere(
            'a sandbox is up, and a burst needs one of its own: tools/sandbox down first')
    size = up.Size(hosts=hosts, schedulers=workers, refresh_seconds=FROZEN_SECONDS)
    run = up.up(layout, size, progress)
    try:
        return Burst(run, workers, boots, progress).show()
    except TimeoutError as e:
        raise errors.ServiceDied(f'{e}; logs: {layout.log}') from e
    finally:
        down.down(layout, keep_logs=True, progress=progress)


def cores(hosts: Iterable[str], guests: Iterable[tuple[str, scenario.Flavor]]) -> dict[str, float]:
    """What each host really does, of its cores (1.0: all cores).

    :param guests: host and flavor of each server.
    """
    used = dict.fromkeys(hosts, load.BASE.cpu)
    for host, flavor in guests:
        used[host] += USES[flavor].cpu
    return {host: value / up.Size.host.vcpus for host, value in used.items()}


class Burst:
    """The acts, in their order."""

    def __init__(self, run: Run, workers: int, boots: int, progress: Progress) -> None:
        self._run, self._progress = run, progress
        self._workers, self._boots = workers, boots
        self._stage = stage.Stage(run)
        self._cloud = self._stage.cloud
        self._flavors = {flavor: self._stage.flavor(flavor) for flavor in USES}
        self._settled: dict[str, scenario.Flavor] = {}

    def show(self) -> bool:
        """Run all bursts; return whether ours ended less than half as uneven."""
        self._settle()
        self._restart_scheduler()
        ours = self._burst('with')
        hosts = self._run.state.hosts
        aggregate = self._cloud.create_aggregate(
            AGGREGATE, hosts, {'kronos_weight_multiplier': '0'})
        stock = self._burst('without')
        self._cloud.delete_aggregate(aggregate, hosts)
        before = cores(hosts, self._guests(self._cloud.servers()))
        self._progress.say(f'\n{self._boots} boots at once, {self._workers} workers of '
                           'nova-scheduler: cores in use')
        self._progress.say(tables.table(
            ('host', 'before', 'without weigher', '', 'with weigher', ''),
            [(h, f'{before[h]:4.0%}', f'{stock[h]:4.0%}', tables.bar(stock[h]),
              f'{ours[h]:4.0%}', tables.bar(ours[h])) for h in hosts]))
        spreads = [scenario.imbalance(scores) for scores in (before, stock, ours)]
        self._progress.say('\n  max - min  before {:.2f}, without the weigher {:.2f}, '
                           'with it {:.2f}'.format(*spreads))
        return spreads[2] < 0.5 * spreads[1]

    def _guests(self, servers: Iterable[dict[str, Any]]) -> list[tuple[str, scenario.Flavor]]:
        by_name = {flavor.name: flavor for flavor in USES}
        return [(str(s['OS-EXT-SRV-ATTR:host']), by_name[s['flavor']['original_name']])
                for s in servers]

    def _settle(self) -> None:
        """What runs before, its load in Prometheus, and the flavors' use at the weighers."""
        halves = zip(scenario.halves(self._run.state.hosts), (BUSY, IDLE), strict=True)
        wanted = [(host, flavor) for hosts, flavor in halves for host in hosts
                  for _ in range(SETTLED[flavor])]
        for number, (host, flavor) in enumerate(wanted):
            self._settled[self._boot_settled(number, host, flavor)] = flavor
        self._stage.load(scenario.loads(self._settled, USES))
        override = self._run.layout.etc / 'kronos-burst.conf'
        override.write_text(config.render({
            'engine': {'dry_run': 'true', 'evaluation_interval': FROZEN_SECONDS}}))
        rebalancer.plan_once(self._run, '--config-file', str(override))
        self._progress.step(f'{len(wanted)} servers run, their load is in Prometheus, and what '
                            'their flavors use is published')

    def _boot_settled(self, number: int, host: str, flavor: scenario.Flavor) -> str:
        """Its UUID, once it is ACTIVE."""
        for _ in range(self._workers + 1):
            uuid = self._cloud.boot(f'{PREFIX}settled-{number}', self._flavors[flavor],
                                    self._stage.image, host=host)
            if not self._stage.ended([uuid]):
                return uuid
            # Forked workers share what their parent had open to Placement: the
            # first answer of one may be lost.
            self._stage.delete([uuid])
        raise errors.ServiceDied(f'a server does not start on {host} (logs: '
                                 f'{self._run.layout.log})')

    def _restart_scheduler(self) -> None:
        """So that its workers ask Prometheus now, and then not before the bursts are over."""
        self._run.stop_one('nova-scheduler', grace=30)
        log = self._run.log('nova-scheduler')
        offset = log.stat().st_size
        self._run.spawn('nova-scheduler', [
            str(pathlib.Path(sys.prefix, 'bin', 'nova-scheduler')), '--config-file',
            str(self._run.layout.etc / 'nova.conf'), '--debug'])
        up.wait_services(self._run, self._cloud, self._progress)

        def scored() -> int:
            return len(set(SCORES.findall(log.read_text(errors='replace')[offset:])))

        def warmed() -> bool:
            self._run.check_alive()
            warm = self._ask('warm', TINY, 4 * self._workers)
            self._stage.ended(warm)
            self._stage.delete(warm)
            return scored() >= self._workers
        poll(warmed, 'every worker of nova-scheduler has scores', timeout=300)
        # And a request each that sees them: allocations from then on count.
        self._stage.delete(self._boot_all('warm', TINY, 4 * self._workers))
        self._progress.step(f'{self._workers} workers of nova-scheduler have scores')

    def _burst(self, kind: str) -> dict[str, float]:
        """What the hosts do after it; its servers are deleted."""
        uuids = self._boot_all(kind, BUSY, self._boots)
        after = cores(self._run.state.hosts, self._guests(self._cloud.servers()))
        self._stage.delete(uuids)
        self._progress.step(f'{self._boots} boots at once {kind} the weigher')
        return after

    def _boot_all(self, kind: str, flavor: scenario.Flavor, count: int) -> set[str]:
        uuids = self._ask(kind, flavor, count)
        self._stage.wait_active(uuids)
        return uuids

    def _ask(self, kind: str, flavor: scenario.Flavor, count: int) -> set[str]:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            return set(pool.map(
                lambda number: self._cloud.boot(
                    f'{PREFIX}{kind}-{number}', self._flavors[flavor], self._stage.image),
                range(count)))
