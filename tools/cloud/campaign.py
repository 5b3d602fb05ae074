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

"""``campaign``: six hosts are emptied, "rebooted" and enabled again, up to three at a time.

A reboot restarts the host's nova-compute; see :mod:`tools.cloud.host_reboots`.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import time
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.store import api as store_api
from tools.cloud import config
from tools.cloud import down
from tools.cloud import errors
from tools.cloud import host_reboots
from tools.cloud import processes
from tools.cloud import rebalancer
from tools.cloud import scenario
from tools.cloud import stage
from tools.cloud import state
from tools.cloud import tables
from tools.cloud import up
from tools.cloud.client import parse_time
from tools.cloud.client import poll
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import Run

PREFIX = 'campaign-'
FLAVOR = scenario.Flavor('campaign-small', 1, 2048, 5)
#: Servers of each host: the emptiest hosts come first, as their servers move twice.
SERVERS = (2, 4, 3, 5, 3, 1)
#: Hosts that are emptied at a time, and seconds within which the campaign ends.
TOGETHER, PATIENCE = 3, 2400


def build_options(run: Run) -> config.Sections:
    """Return the options of engines that carry campaigns out, and reboot hosts."""
    command, check_command = host_reboots.write_programs(run)
    return {
        'engine': {
            'evacuate_disabled_hosts': 'true',
            'evaluation_interval': 5,
            'max_drain_fraction': 0.5,
            'max_down_fraction': 0.5,
        },
        'campaign': {
            'command': command,
            'command_timeout': 300,
            'check_command': check_command,
            'return_timeout': 300,
        },
    }


def find_campaign(url: str) -> model.Campaign | None:
    """Return the campaign that began last.

    :param url: of the database.
    """
    store = store_api.Store.from_url(url)
    try:
        return next(iter(store.campaigns.list_newest_campaigns(1)), None)
    finally:
        store.close()


def campaign(layout: Layout, size: up.Size, keep: bool, progress: Progress) -> bool:
    """Run it, on the sandbox that is up or on one for the purpose.

    :returns: whether everything happened as it should
    :raises errors.SandboxError: it could not be shown
    """
    current = state.load(layout.state)
    found = current is not None and current.complete
    if found and current is not None:
        if not all(map(processes.is_alive, current.processes)):
            raise errors.NotUp('the sandbox has lost processes: tools/sandbox down, then campaign')
        run = Run(layout, current)
        refuse_unfit(run)
    else:
        run = up.up(layout, size, progress)
    try:
        with contextlib.closing(CampaignDemo(run, progress)) as demo:
            return demo.show()
    except TimeoutError as e:
        raise errors.ServiceDied(f'{e}; logs: {layout.log}') from e
    finally:
        if not found and not keep:
            down.down(layout, keep_logs=True, progress=progress)


def refuse_unfit(run: Run) -> None:
    """Refuse a sandbox in which the campaign cannot be shown.

    :raises errors.AlreadyThere: it is one.
    """
    problem = None
    if not run.state.kronos or run.state.hypervisor != state.HYPERVISORS[0]:
        problem = 'has a stock scheduler, or hosts of libvirt'
    elif len(run.state.hosts) < 2:
        problem = 'has a single host'
    elif any(process.name in (rebalancer.ENGINE, rebalancer.EXECUTOR)
             for process in run.state.processes):
        problem = 'has an engine and an executor already'
    elif any(not server['name'].startswith(PREFIX) for server in stage.Stage(run).cloud.servers()):
        problem = 'has servers of its own'
    if problem is not None:
        raise errors.AlreadyThere(
            f'the sandbox that is up {problem}: take it down first (tools/sandbox down)')


class CampaignDemo:
    """The acts of the demo, in their order, and the facts that it confirmed."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._stage = stage.Stage(run)
        self._cloud = self._stage.cloud
        self._checks: list[tuple[str, bool]] = []
        self._hosts = run.state.hosts[:len(SERVERS)]

    def show(self) -> bool:
        """All acts; returns whether all checks hold."""
        servers = self._prepare()
        before = self._map_processes()
        old = {migration['uuid'] for migration in self._cloud.migrations()}
        rebalancer.start_executor(self._run)
        self._plan()
        began = self._start()
        rebalancer.start_engine(self._run)
        ended = self._follow(began)
        migrations = [m for m in self._cloud.migrations() if m['uuid'] not in old]
        self._show_hosts(ended, before)
        self._show_servers(servers, migrations, ended)
        self._check_hosts(ended, before)
        self._check_servers(servers, migrations)
        self._progress.say('\nSeen to be true')
        self._progress.say(tables.table(
            ('result', 'what'), [('ok' if ok else 'NOT SO', text) for text, ok in self._checks]))
        self._progress.say(f'\nLogs  {self._run.layout.log}')
        return all(ok for _, ok in self._checks)

    def close(self) -> None:
        """Stop our daemons, delete the servers and restore the configuration."""
        for process in list(self._run.state.processes):
            if process.name in (rebalancer.ENGINE, rebalancer.EXECUTOR):
                self._run.stop_one(process.name, grace=30)
        with contextlib.suppress(TimeoutError):
            self._delete_servers()
        rebalancer.write_configuration(self._run)

    def _check(self, text: str, ok: bool) -> None:
        self._checks.append((text, ok))

    # -- before ----------------------------------------------------------------

    def _prepare(self) -> list[str]:
        """Boot servers, and write the configuration; return the servers."""
        self._delete_servers()
        self._load_nothing()
        flavor = self._stage.flavor(FLAVOR)
        uuids = [self._cloud.boot(f'{PREFIX}{host}-{number}', flavor, self._stage.image, host=host)
                 for host, count in zip(self._hosts, SERVERS, strict=False)
                 for number in range(count)]
        self._stage.wait_active(uuids)
        self._stage.settled()
        self._progress.step(f'{len(uuids)} servers run on {len(self._hosts)} hosts')
        rebalancer.write_configuration(self._run, build_options(self._run))
        self._run.task('kronos-manage', rebalancer.command(
            self._run, 'kronos-manage', 'db', 'sync'))()
        return uuids

    def _load_nothing(self) -> None:
        self._run.layout.load.write_text('{}')

    def _delete_servers(self) -> None:
        self._stage.delete([server['id'] for server in self._cloud.servers()
                            if server['name'].startswith(PREFIX)])

    def _map_processes(self) -> dict[str, processes.Process]:
        """Return the nova-compute of each host."""
        found = {host: host_reboots.find_compute(self._run.layout, host) for host in self._hosts}
        return {host: process for host, process in found.items() if process is not None}

    # -- the campaign ----------------------------------------------------------

    def _plan(self) -> None:
        _status, said = rebalancer.ask(self._run, 'campaign', 'plan', *self._hosts,
                                       '--together', str(self._count_together()))
        self._progress.say(f'\nkronos campaign plan\n{said}')

    def _count_together(self) -> int:
        return max(1, min(TOGETHER, len(self._hosts) // 2))

    def _start(self) -> float:
        began = time.time()
        status, said = rebalancer.ask(
            self._run, 'campaign', 'start', *self._hosts, '--together',
            str(self._count_together()), '--reason', 'new firmware')
        if status:
            raise errors.ServiceDied(f'kronos campaign start ended with code {status}:\n{said}')
        self._progress.step(said.splitlines()[-1])
        return began

    def _follow(self, began: float) -> model.Campaign:
        """Report each change of the campaign, and each reboot, until it ends or pauses.

        :raises TimeoutError: it does neither.
        """
        watch = CampaignWatch(self._run, began)
        last: list[model.Campaign] = []

        def is_over() -> bool:
            self._run.check_alive()
            for line in watch.list_news():
                self._progress.step(line)
            last[:] = [watch.campaign] if watch.campaign is not None else []
            return bool(last) and last[0].state is not model.CampaignState.RUNNING

        poll(is_over, 'the campaign has ended', PATIENCE)
        [ended] = last
        self._progress.step(f'the campaign is {ended.state} {ended.held_because}'.rstrip())
        self._check('the campaign ended by itself', ended.state is model.CampaignState.DONE)
        return ended

    # -- after -----------------------------------------------------------------

    def _list_reboots(self, ended: model.Campaign) -> list[host_reboots.Reboot]:
        return [reboot for reboot in host_reboots.read_record(self._run.layout)
                if reboot.campaign == ended.campaign_id]

    def _show_hosts(self, ended: model.Campaign, before: dict[str, processes.Process]) -> None:
        after, reboots = self._map_processes(), self._list_reboots(ended)
        rows = []
        for host in self._hosts:
            began = [reboot for reboot in reboots if reboot.host == host and not reboot.ended]
            rows.append((
                host, str(before[host].pid), str(after[host].pid) if host in after else '-',
                len(began), sum(len(reboot.servers) for reboot in began),
                host_reboots.find_service(self._cloud, host)['status']))
        self._progress.say('\nHosts')
        self._progress.say(tables.table(
            ('host', 'process before', 'process now', 'restarts', 'servers then', 'Nova says'),
            rows))

    def _show_servers(self, servers: Sequence[str], migrations: Sequence[dict[str, Any]],
                      ended: model.Campaign) -> None:
        counts = count_migrations(migrations)
        present = {server['id']: server for server in self._cloud.servers()}
        self._progress.say('\nServers')
        self._progress.say(tables.table(
            ('server', 'status', 'host', 'migrations'),
            [(present[uuid]['name'], present[uuid]['status'],
              present[uuid]['OS-EXT-SRV-ATTR:host'], counts[uuid])
             for uuid in servers if uuid in present]))
        done, seconds = sum(counts.values()), (ended.ended_at or time.time()) - ended.created_at
        self._progress.say('\nForecast and fact')
        self._progress.say(tables.table(('', 'forecast', 'fact'), [
            ('migrations', str(ended.migrations), str(done)),
            ('for each server', f'{ended.migrations / len(servers):.2f}',
             f'{done / len(servers):.2f}'),
            ('seconds of migrations', describe_seconds(ended.seconds),
             describe_seconds(sum_seconds(migrations))),
            ('seconds in all', '', f'{seconds:.0f}')]))

    def _check_hosts(self, ended: model.Campaign, before: dict[str, processes.Process]) -> None:
        after, reboots = self._map_processes(), self._list_reboots(ended)
        began = collections.Counter(r.host for r in reboots if not r.ended)
        self._check('each host has another nova-compute than before', all(
            host in after and after[host] != before[host] for host in self._hosts))
        self._check('each host was empty in Nova at its restart',
                    not any(reboot.servers for reboot in reboots))
        self._check('each host restarted once, and no other host', began == dict.fromkeys(
            self._hosts, 1) and sum(r.ended for r in reboots) == len(self._hosts))
        self._check('Nova has enabled every host', all(
            service['status'] == 'enabled' and service['state'] == 'up'
            for service in self._cloud.compute_services('nova-compute')))

    def _check_servers(self, servers: Sequence[str],
                       migrations: Sequence[dict[str, Any]]) -> None:
        present = {server['id']: server for server in self._cloud.servers()}
        self._check('every server is there and ACTIVE', all(
            uuid in present and present[uuid]['status'] == 'ACTIVE' for uuid in servers))
        self._check('Nova completed each migration',
                    all(migration['status'] == 'completed' for migration in migrations))


def count_migrations(migrations: Sequence[dict[str, Any]]) -> collections.Counter[str]:
    """Return how many migrations of each server were completed."""
    return collections.Counter(migration['instance_uuid'] for migration in migrations
                               if migration['status'] == 'completed')


def sum_seconds(migrations: Sequence[dict[str, Any]]) -> float:
    """Return the seconds in which at least one migration was under way, by Nova's record."""
    total, until = 0.0, 0.0
    for begin, end in sorted((parse_time(m['created_at']), parse_time(m['updated_at']))
                             for m in migrations):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def describe_seconds(seconds: float | None) -> str:
    return 'not known' if seconds is None else f'{seconds:.0f}'


class CampaignWatch:
    """The news of the campaign that began last: changes of its hosts, and reboots."""

    def __init__(self, run: Run, since: float) -> None:
        self._run = run
        self._since = since
        self._states: dict[str, model.CampaignHostState] = {}
        self._reboots = 0
        self._waits = ''
        self.campaign: model.Campaign | None = None

    def list_news(self) -> Iterator[str]:
        """Yield a line for each change since the last call."""
        self.campaign = find_campaign(rebalancer.database(self._run))
        if self.campaign is None:
            return
        for host in self.campaign.hosts:
            if self._states.get(host.host, model.CampaignHostState.TO_COME) is not host.state:
                yield f'{host.host}  {host.state}'
            self._states[host.host] = host.state
        record = [r for r in host_reboots.read_record(self._run.layout) if r.at >= self._since]
        for reboot in record[self._reboots:]:
            yield (f'{reboot.host}  nova-compute is a new process, {reboot.pid}, and has reported'
                   if reboot.ended else
                   f'{reboot.host}  nova-compute (process {reboot.pid}) restarts; Nova shows '
                   f'{len(reboot.servers)} servers there')
        self._reboots = len(record)
        if self.campaign.waits not in ('', self._waits):
            yield f'it waits: {self.campaign.waits}'
        self._waits = self.campaign.waits
