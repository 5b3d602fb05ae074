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

"""The loop of a soak, which lets everything happen, and its end."""

import argparse
import functools
import heapq
import json
import pathlib
import shutil
import time
from typing import Any

from tools.cloud import down
from tools.cloud import exporter
from tools.cloud import scheduler
from tools.cloud import up
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.layout import Layout
from tools.cloud.progress import Progress
from tools.cloud.run import Run
from tools.cloud.soak import daemons
from tools.cloud.soak import faults
from tools.cloud.soak import instance_load
from tools.cloud.soak import moves
from tools.cloud.soak import paces
from tools.cloud.soak import people
from tools.cloud.soak import picture
from tools.cloud.soak import releases
from tools.cloud.soak import samples
from tools.cloud.soak import takeovers
from tools.cloud.soak import upgrade
from tools.cloud.soak import verdict

#: Cores and MiB of a host for each of its instances, with room for those of another host.
CORES_PER_INSTANCE, MEMORY_PER_INSTANCE = 1.2, 12288
#: Moves of a plan.
BUDGET = 10
SCRAPE_SECONDS = 15
#: Seconds between two writes of the load.
LOAD_SECONDS = 30.0


class Soak:
    """A sandbox in which a day passes."""

    def __init__(self, run: Run, pace: paces.Pace, seed: int, place: pathlib.Path,
                 progress: Progress) -> None:
        self._run, self._pace, self._place, self._progress = run, pace, place, progress
        self._load = instance_load.TraceLoad()
        self._people = people.People(run, pace.hosts * pace.instances_per_host, seed)
        self._daemons = daemons.Daemons(run, pace)
        self._watch = takeovers.TakeoverWatch(run)
        self._faults = faults.Faults(run, self._daemons, self._watch, seed)
        self._sampler = samples.Sampler(run, self._daemons, place / 'samples.jsonl')
        self._timetable = paces.build_timetable(
            pace, self._faults.ours, self._faults.others, self._people.actions, seed)
        self._upgrade: upgrade.RollingUpgrade | None = None
        self._struck: list[tuple[float, str]] = []
        self._given_up: dict[str, int] = {}
        self._agenda: list[tuple[float, int, str, people.Actor]] = []
        self._number = 0

    def plan_upgrade(self, old: pathlib.Path | None, new: pathlib.Path | None) -> None:
        """Replace the faults by a rolling upgrade.

        :param old: directory of the old release; None: this checkout.
        :param new: directory of the new release; None: this checkout.
        """
        self._upgrade = upgrade.RollingUpgrade(
            self._run, self._daemons, self._watch, self._progress, old, new)
        self._upgrade.prepare()
        if old is not None:
            self._daemons.stop_signing()
        self._timetable = [entry for entry in self._timetable
                           if entry.name not in (*self._faults.ours, *self._faults.others)]

    def go(self) -> verdict.Verdict:
        """Let the day pass, wait until all tasks ended, and judge."""
        scheduler.write_policies(self._run, BUDGET)
        self._people.fill()
        self._progress.step('every instance is ACTIVE')
        self._daemons.create_database()
        self._write_load(0.0)
        self._daemons.start_all()
        self._watch.start()
        self._progress.step(f'the day begins: {len(self._timetable)} entries in '
                            f'{self._pace.seconds / 60:.0f} minutes')
        began = time.monotonic()
        if self._upgrade is not None:
            self._schedule(0.0, 'upgrade', self._upgrade.act())
        self._pass_day(began)
        self._progress.step('the day is over: waiting for open tasks')
        self._wait_for_end()
        self._watch.stop()
        return self._judge()

    # -- the loop ------------------------------------------------------------------

    def _pass_day(self, began: float) -> None:
        entries = list(self._timetable)
        next_sample = next_load = 0.0
        while (elapsed := time.monotonic() - began) < self._pace.seconds or self._agenda:
            while entries and entries[0].at <= elapsed:
                self._begin(entries.pop(0).name, elapsed)
            self._resume(elapsed)
            if elapsed >= next_load:
                next_load = elapsed + LOAD_SECONDS
                self._write_load(elapsed)
            if elapsed >= next_sample:
                next_sample = elapsed + self._pace.sample_seconds
                self._sampler.take()
            time.sleep(0.2)

    def _begin(self, name: str, elapsed: float) -> None:
        if name == 'drain':
            # It ends with the day, at the latest.
            actor = self._people.drain(min(
                0.9 * self._pace.drain_seconds, self._pace.seconds - elapsed))
        elif name in self._people.actions:
            actor = self._people.begin(name)
        else:
            actor = self._faults.begin(name)
            self._struck.append((time.time(), name))
            self._progress.step(f'{elapsed / 60:6.1f} min: {name}')
        self._schedule(elapsed, name, actor)

    def _schedule(self, elapsed: float, name: str, actor: people.Actor) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (elapsed, self._number, name, actor))

    def _resume(self, elapsed: float) -> None:
        while self._agenda and self._agenda[0][0] <= elapsed:
            _, number, name, actor = heapq.heappop(self._agenda)
            try:
                seconds = next(actor, None)
            except (*people.REFUSALS, TimeoutError) as e:
                # Nova refuses what a user may ask at the wrong time, and services die.
                self._given_up[name] = self._given_up.get(name, 0) + 1
                print(f'{name}: given up: {e!r}', flush=True)
                continue
            if seconds is not None:
                heapq.heappush(self._agenda, (elapsed + seconds, number, name, actor))

    def _write_load(self, elapsed: float) -> None:
        try:
            guests = exporter.guests(self._people.list_servers())
        except people.REFUSALS:
            return
        new = self._run.layout.load.with_suffix('.new')
        new.write_text(json.dumps(
            self._load.build_document(guests, elapsed * self._pace.trace_speed)))
        new.replace(self._run.layout.load)

    # -- the end -------------------------------------------------------------------

    def _wait_for_end(self) -> None:
        for host in self._run.state.hosts:
            for seconds in self._people.insist(functools.partial(
                    self._people.cloud.set_service, host, 'enabled')):
                time.sleep(seconds)
        # No engine plans any more; executors end the tasks that are open.
        for name in daemons.ENGINES:
            self._daemons.stop_in_order(name)
        deadline = time.monotonic() + self._pace.grace_seconds
        while time.monotonic() < deadline:
            self._sampler.take()
            if not moves.count_open_tasks(self._run) and not self._list_busy():
                break
            time.sleep(self._pace.sample_seconds)
        for seconds in self._people.repair_instances():
            time.sleep(seconds)

    def _list_busy(self) -> list[Any]:
        """Return the servers that Nova works on; those without a host wait for a lost request."""
        try:
            return [s for s in self._people.list_servers()
                    if s['OS-EXT-STS:task_state'] is not None and s['OS-EXT-SRV-ATTR:host']]
        except people.REFUSALS as e:
            return [e]

    def _judge(self) -> verdict.Verdict:
        cloud = self._people.cloud
        account, servers = moves.find_account(cloud), self._people.list_servers()
        asked = moves.read_migrations(self._run, account)
        wrong = moves.judge_moves(moves.read_tasks(self._run), asked)
        failed_for_users = moves.list_failed_for_users(cloud, servers, account)
        wrong += moves.judge_places(servers, moves.read_allocations(cloud), failed_for_users)
        if self._upgrade is not None:
            wrong += self._upgrade.failures
        found = verdict.judge(
            self._sampler.samples, self._watch.record.all, self._people.drains, wrong,
            [name for name in self._daemons.names
             if 'Traceback' in self._run.log(name).read_text(errors='replace')])
        found.numbers['migrations'] = len(asked)
        found.numbers['failed_for_users'] = failed_for_users
        found.numbers['repaired'] = self._people.repaired
        found.numbers['faults'] = _count(name for _, name in self._struck)
        found.numbers['given_up'] = self._given_up
        if self._upgrade is not None:
            found.numbers['steps_of_upgrade'] = self._upgrade.steps
        (self._place / 'soak.svg').write_text(picture.draw(self._sampler.samples, self._struck))
        (self._place / 'verdict.json').write_text(json.dumps(
            {'failures': found.failures, **found.numbers}, indent=1) + '\n')
        return found


def _count(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def soak(arguments: argparse.Namespace, progress: Progress) -> bool:
    """Run a soak and print its verdict; return whether all is well."""
    pace = (paces.build_real_pace(arguments.hours) if arguments.hours
            else paces.build_compressed_pace(arguments.day_in_minutes))
    layout = Layout(arguments.dir.absolute())
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    size = up.Size(
        hosts=pace.hosts, scrape_seconds=SCRAPE_SECONDS, refresh_seconds=30,
        host=HostSize(
            vcpus=round(CORES_PER_INSTANCE * pace.instances_per_host),
            memory_mb=MEMORY_PER_INSTANCE * pace.instances_per_host, disk_gb=10000,
            migration_seconds=pace.migration_seconds))
    run = up.up(layout, size, progress)
    try:
        day = Soak(run, pace, arguments.seed, arguments.out, progress)
        if arguments.upgrade is not None:
            installed = releases.Releases(run)
            day.plan_upgrade(*((None, installed.install_next()) if arguments.upgrade == 'next'
                               else (installed.install_commit(arguments.upgrade), None)))
        found = day.go()
    finally:
        down.down(layout, keep_logs=True, progress=progress)
    print(json.dumps(found.numbers, indent=1))
    for failure in found.failures:
        print(f'NOT SO: {failure}')
    print(f'Logs and pictures: {layout.log}, {arguments.out}')
    return not found.failures
