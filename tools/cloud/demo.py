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

"""``demo``: boots that follow the load, and live migrations when the load has changed."""

import collections
import datetime
import json
import pathlib
import time
from typing import Any

from kronos_nova.text import move_effects
from tools.cloud import config
from tools.cloud import down
from tools.cloud import errors
from tools.cloud import processes
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

AGGREGATE = 'demo-without-weigher'
TERMINAL = ('completed', 'failed', 'cancelled')


def demo(layout: Layout, size: up.Size, keep: bool, progress: Progress) -> bool:
    """Run it, on the sandbox that is up or on one for the purpose.

    :returns: whether everything that the demo shows truly happened
    :raises errors.SandboxError: it could not be shown
    """
    current = state.load(layout.state)
    found = current is not None and current.complete
    if found and current is not None:
        if not all(map(processes.is_alive, current.processes)):
            raise errors.NotUp('the sandbox has lost processes: tools/sandbox down, then demo')
        run = Run(layout, current)
    else:
        run = up.up(layout, size, progress)
    try:
        return Demo(run, progress).show()
    except TimeoutError as e:
        raise errors.ServiceDied(f'{e}; logs: {layout.log}') from e
    finally:
        # an interrupted demo leaves no executor behind that would go on unattended
        if rebalancer.is_running(run):
            rebalancer.stop_executor(run)
        if not found and not keep:
            down.down(layout, keep_logs=True, progress=progress)
        elif rebalancer.API in run.ports:
            progress.say(f'Live page, as user admin in project admin: {rebalancer.find_page(run)}\n'
                         f'The password is in {layout.openrc}.')


class Demo:
    """The acts of the demo, in their order, and the facts that it confirmed."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._stage = stage.Stage(run)
        self._cloud = self._stage.cloud
        self._checks: list[tuple[str, bool]] = []
        self._flavors: dict[scenario.Flavor, str] = {}
        self._uuids: dict[str, scenario.Flavor] = {}

    def show(self) -> bool:
        """All acts; returns whether all checks hold."""
        self._prepare()
        busy, idle = scenario.halves(self._run.state.hosts)
        scores = self._load('busy at first', scenario.FIRST)
        self._boots(scores, busy, idle)
        old = {m['uuid'] for m in self._cloud.migrations()}
        # it has no task yet, and is ready when there are some
        rebalancer.start_executor(self._run)
        before = self._load('the load flips', scenario.FLIPPED)
        report = self._plan()
        self._migrate(report['moves'], old)
        place = self._place(report)
        snapshot = rebalancer.record(self._run, place)
        self._compare(before, self._stage.settled())
        snapshot()
        self._look(place, next(iter(report['moves']))['instance_uuid'])
        self._ask_api(report['moves'])
        self._forge_task(next(iter(report['moves']))['instance_uuid'])
        self._check('kronos-record wrote a snapshot', len(list(place.glob('*/meta.json'))) == 1)
        self._progress.say('\nSeen to be true')
        self._progress.say(tables.table(
            ('result', 'what'), [('ok' if ok else 'NOT SO', text) for text, ok in self._checks]))
        self._progress.say(f'\nReport and snapshot  {place}\n'
                           f'Logs                 {self._run.layout.log}')
        return all(ok for _, ok in self._checks)

    def _check(self, text: str, ok: bool) -> None:
        self._checks.append((text, ok))

    # -- the stage -----------------------------------------------------------

    def _prepare(self) -> None:
        if not self._run.state.kronos or len(self._run.state.hosts) < 2:
            raise errors.AlreadyThere(
                'the sandbox that is up has a stock scheduler or a single host: take it down '
                'first (tools/sandbox down)'
            )
        if rebalancer.is_running(self._run):
            raise errors.AlreadyThere('a kronos-executor runs already: tools/sandbox down first')
        foreign = [s['id'] for s in self._cloud.servers()
                   if not s['name'].startswith(scenario.PREFIX)]
        if foreign:
            raise errors.AlreadyThere(
                f'the sandbox has {len(foreign)} servers of its own: delete them, or take it '
                'down first (tools/sandbox down)'
            )
        self._delete([s['id'] for s in self._cloud.servers()])
        for flavor in (scenario.BUSY, scenario.LARGE, scenario.WEB):
            self._flavors[flavor] = self._stage.flavor(flavor)
        wanted = scenario.servers(self._run.state.hosts)
        for server in wanted:
            uuid = self._cloud.boot(
                server.name, self._flavors[server.flavor], self._stage.image, host=server.host)
            self._uuids[uuid] = server.flavor
        self._stage.wait_active(list(self._uuids))
        self._progress.step(f'{len(wanted)} servers run, placed by name of host')

    def _delete(self, uuids: list[str]) -> None:
        self._stage.delete(uuids)
        for uuid in uuids:
            self._uuids.pop(uuid, None)

    # -- load ----------------------------------------------------------------

    def _load(self, what: str, uses: dict[scenario.Flavor, Any]) -> dict[str, float]:
        scores = self._stage.load(scenario.loads(self._uuids, uses))
        self._progress.step(f'{what}: Prometheus shows an imbalance of '
                            f'{scenario.imbalance(scores):.2f}')
        return scores

    # -- boots ---------------------------------------------------------------

    def _boots(self, scores: dict[str, float], busy: list[str], idle: list[str]) -> None:
        without = self._boots_without()
        self._progress.step(f'{scenario.BOOTS} boots without the weigher')
        chosen = self._boot_some('with')
        self._progress.step(f'{scenario.BOOTS} boots with the weigher')
        counts = [collections.Counter(hosts) for hosts in (without, chosen)]
        self._progress.say('\nWhere nova-scheduler booted servers')
        self._progress.say(tables.table(
            ('host', 'CPU', '', 'without weigher', 'with weigher'),
            [(host, f'{scores[host]:4.0%}', tables.bar(scores[host]),
              *('*' * count[host] for count in counts)) for host in self._run.state.hosts]) + '\n')
        self._check('without the weigher boots went to busy hosts', bool(set(without) & set(busy)))
        self._check('with the weigher every boot went to an idle host',
                    set(chosen) <= set(idle))
        log = self._run.log('nova-scheduler').read_text(errors='replace')
        self._check("nova-scheduler's log names our filters and our weigher",
                    'KronosWeigher: ' in log and all(
                        f'Filter {name} returned' in log for name in config.KRONOS_FILTERS))

    def _boot_some(self, kind: str) -> list[str]:
        """Boot one after another; the hosts that were chosen."""
        hosts = []
        for i in range(scenario.BOOTS):
            uuid = self._cloud.boot(f'{scenario.PREFIX}{kind}-{i}',
                                    self._flavors[scenario.WEB], self._stage.image)
            self._uuids[uuid] = scenario.WEB
            self._stage.wait_active([uuid])
            hosts.append(str(self._cloud.server(uuid)['OS-EXT-SRV-ATTR:host']))
        return hosts

    def _boots_without(self) -> list[str]:
        """Boots while an aggregate of all hosts sets our weigher's multiplier to 0."""
        known = set(self._uuids)
        aggregate = self._cloud.create_aggregate(
            AGGREGATE, self._run.state.hosts, {'kronos_weight_multiplier': '0'})
        try:
            hosts = self._boot_some('without')
        finally:
            self._cloud.delete_aggregate(aggregate, self._run.state.hosts)
        self._delete([uuid for uuid in self._uuids if uuid not in known])
        return hosts

    # -- rebalancing ---------------------------------------------------------

    def _plan(self) -> dict[str, Any]:
        report = rebalancer.plan_once(self._run)
        moves = report['moves']
        self._progress.step(f'kronos-engine planned {len(moves)} moves')
        if not moves:
            raise errors.ServiceDied(f'the engine planned no move: {report["reason"]}')
        self._progress.say('\nPlan')
        self._progress.say(tables.table(
            ('instance', 'from', 'to', 'phase', 'wave', 'effect'),
            [(m['instance_uuid'], m['from_host'], m['to_host'], m['phase'], m['wave'],
              move_effects.describe_effects(m)) for m in moves]) + '\n')
        return report

    def _migrate(self, moves: list[dict[str, Any]], old: set[str]) -> None:
        wanted = {m['instance_uuid']: m for m in moves}
        said: dict[str, str] = {}

        def ready() -> bool:
            self._run.check_alive()
            for migration in reversed(self._cloud.migrations()):
                uuid = migration['uuid']
                if uuid not in old and said.get(uuid) != migration['status']:
                    said[uuid] = migration['status']
                    self._progress.step(
                        f'{migration["instance_uuid"]}  {migration["source_compute"]} -> '
                        f'{migration["dest_compute"] or "?"}  {migration["status"]}')
            rows = [t for t in rebalancer.tasks(self._run) if t['instance'] in wanted]
            return len(rows) == len(wanted) and all(t['state'] in TERMINAL for t in rows)

        poll(ready, 'every task has ended', timeout=300)
        code = rebalancer.stop_executor(self._run)
        self._progress.step('every task has ended; kronos-executor is stopped')
        self._judge(wanted, old)
        self._check('kronos-executor ended by itself at SIGTERM', code == 0)

    def _judge(self, wanted: dict[str, dict[str, Any]], old: set[str]) -> None:
        """What Nova and the store say about the planned moves."""
        done = {m['instance_uuid']: m for m in self._cloud.migrations()
                if m['uuid'] not in old and m['status'] == 'completed'
                and m['migration_type'] == 'live-migration'}
        servers = {s['id']: s for s in self._cloud.servers()}
        states = {t['instance']: t['state'] for t in rebalancer.tasks(self._run)}
        self._check('Nova completed a live migration for each move', set(wanted) == set(done))
        self._check('each instance is ACTIVE where the plan wanted it', all(
            servers[u]['status'] == 'ACTIVE'
            and servers[u]['OS-EXT-SRV-ATTR:host'] == m['to_host'] for u, m in wanted.items()))
        self._check('each task of the store is completed',
                    all(states.get(u) == 'completed' for u in wanted))

    def _compare(self, before: dict[str, float], after: dict[str, float]) -> None:
        self._progress.say('\nCPU by Prometheus')
        self._progress.say(tables.table(
            ('host', 'before', '', 'after', ''),
            [(h, f'{before[h]:4.0%}', tables.bar(before[h]), f'{after[h]:4.0%}',
              tables.bar(after[h])) for h in self._run.state.hosts]))
        first, last = scenario.imbalance(before), scenario.imbalance(after)
        self._progress.say(f'\n  imbalance  {first:.2f} -> {last:.2f}')
        self._check(f'the imbalance fell from {first:.2f} to {last:.2f}', last < first / 2)

    def _look(self, place: pathlib.Path, uuid: str) -> None:
        """What an operator asks afterwards; the answers are kept beside the report."""
        host = self._run.state.hosts[0]
        answers = {}
        for name, arguments in {
                'status': ('status',), 'plan-list': ('plan', 'list'),
                'host-list': ('host', 'list'), 'instance-show': ('instance', 'show', uuid),
                'why-nothing': ('why-nothing',), 'drain-check': ('drain', 'check', host),
                'report': ('report', '-o', str(place / 'report.html'))}.items():
            status, said = rebalancer.ask(self._run, *arguments)
            (place / f'{name}.txt').write_text(said)
            answers[name] = status
        self._progress.say('\nkronos host list')
        self._progress.say((place / 'host-list.txt').read_text())
        # Whether the other hosts have room for all of a host is the load's matter: 0 or 1.
        self._check('kronos answers what an operator asks of it', all(
            status == 0 or (name == 'drain-check' and status == 1)
            for name, status in answers.items()))
        self._check('kronos drain check comes to a conclusion',
                    'conclusion' in (place / 'drain-check.txt').read_text())
        page = place / 'report.html'
        self._check('kronos report wrote a page',
                    page.is_file() and page.stat().st_size > 10_000)

    def _ask_api(self, moves: list[dict[str, Any]]) -> None:
        """Ask kronos-api with a token of Keystone, at the address in its catalog."""
        answer = self._cloud.session.get('/v1/tasks?state=completed', endpoint_filter={
            'service_type': 'rebalance', 'interface': 'public'}).json()
        self._check('kronos-api lists the completed task of each move', {
            task['instance_id'] for task in answer['tasks']} >= {
            move['instance_uuid'] for move in moves})

    def _forge_task(self, uuid: str) -> None:
        """Queue a task by hand, with the signature of another: the executor must not begin it."""
        before = len(self._cloud.migrations())
        here = str(self._cloud.server(uuid)['OS-EXT-SRV-ATTR:host'])
        there = next(host for host in self._run.state.hosts if host != here)
        task_id = rebalancer.queue_task_by_hand(self._run, uuid, here, there)
        rebalancer.start_executor(self._run)

        def has_ended() -> bool:
            return any(task['task'] == task_id and task['state'] in TERMINAL
                       for task in rebalancer.tasks(self._run))

        poll(has_ended, 'the task that was written by hand has ended', timeout=60)
        rebalancer.stop_executor(self._run)
        status, shown = rebalancer.ask(self._run, 'task', 'show', task_id)
        self._check('a task that was written into the database by hand moves nothing',
                    status == 0 and 'the task is not authorized' in ' '.join(shown.split())
                    and len(self._cloud.migrations()) == before)

    def _place(self, report: dict[str, Any]) -> pathlib.Path:
        """A directory that outlives the sandbox, with the engine's report in it."""
        stamp = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
        place = self._run.layout.root / 'demo' / f'{stamp:%Y%m%dT%H%M%SZ}'
        place.mkdir(mode=0o700, parents=True)
        (place / 'report.json').write_text(json.dumps(report, indent=2))
        return place
