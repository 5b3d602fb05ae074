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

"""One seeded run of the whole rebalancer."""

import collections
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import gc
import logging
import os
import random
from typing import Any

from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.store import swaps
from tests.fixtures import stores
from tests.simulation.world import approval
from tests.simulation.world import broker
from tests.simulation.world import campaign_invariants
from tests.simulation.world import campaigns as maintenance
from tests.simulation.world import cloud
from tests.simulation.world import contracts as tenants
from tests.simulation.world import database
from tests.simulation.world import faults
from tests.simulation.world import hooks
from tests.simulation.world import invariants
from tests.simulation.world import nova
from tests.simulation.world import outages
from tests.simulation.world import patches
from tests.simulation.world import people
from tests.simulation.world import processes
from tests.simulation.world import records
from tests.simulation.world import settings
from tests.simulation.world import standstills

#: Seconds of troubles, and seconds within which the last task must then end: less
#: than a task is kept that nobody begins.
TROUBLED = 120.0
#: And in runs with more faults at their requests.
TROUBLED_LONG = 300.0
QUIET = 900.0
#: The number of the people's connection to the database; processes have smaller ones.
PEOPLE = 9
LOG = logging.getLogger('kronos_nova')


class Broken(AssertionError):
    """An invariant does not hold; ``name`` says which."""

    def __init__(self, seed: int, name: str, what: str) -> None:
        super().__init__(f'seed {seed}: {name}: {what}')
        self.name = name


class _Said(logging.Handler):
    """Keeps the warnings that operators would read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.defects: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.texts.append(text)
        if 'defect of ours' in text or 'failed unexpectedly' in text:
            why = record.exc_info[1] if record.exc_info else None
            self.defects.append(f'{text} {why!r}')


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """A run is too short for it, and its looking costs a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Run:
    """Two engines and two or three executors on one database, in one cloud.

    :param only: the faults that it has; None draws some.
    :param days: the load changes from time to time, and a host is to be drained.
    :param contracts: tenants have contracts.
    :param campaign: an operator starts a campaign.
    """

    def __init__(self, seed: int, *, only: frozenset[str] | None = None,
                 engines: int = 2,
                 days: bool = True, contracts: bool = False,
                 campaign: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = database.START
        self.counts: collections.Counter[str] = collections.Counter()
        self.checks: collections.Counter[str] = collections.Counter()
        self.faults = faults.Faults(self.rng, self.counts, only, seed, crowds=not campaign)
        self.outage = outages.Outage(self)
        self.cloud = cloud.Cloud(self.rng)
        if campaign:
            self.cloud.add_spare_host()
        for instance in self.cloud.instances.values():
            if self.faults.hit('instance is stopped from the beginning'):
                instance.status = 'SHUTOFF'
        self.raw = database.fresh(tuple(self.cloud.scopes()))
        self.store = stores.Store(engine=database.engine(PEOPLE), clock=lambda: self.now)
        #: Of its own chance: what else happens does not hang on it.
        self.reads_committed = random.Random(f'isolation {seed}').random() < 0.5
        self.confs = [settings.conf(n) for n in range(2)]
        objective = self.rng.choice(['kronos', 'kronos', 'balanced'])
        #: Of its own chance, as caps.
        self.cold_migrates = self.faults.cold or random.Random(f'cold {seed}').random() < 0.8
        # Of its own chance: what else happens does not hang on it.
        caps = random.Random(f'caps {seed}').choice([
            (2, 3, 1, 1), (1, 3, 2, 2), (2, 1, 2, 2), (2, 3, 2, 1), (2, 3, 1, 2)])
        self.tenants = tenants.Tenants(self) if contracts else None
        self.campaigns = maintenance.Campaigns(self, only) if campaign else None
        for conf in self.confs:
            conf.clear_override('strongest_for_tenants', 'contracts')
            for name in ('max_drain_fraction', 'include_unassigned_hosts'):
                conf.set_override(name, settings.OPTIONS['engine'][name], 'engine')
            conf.set_override('objective', objective, 'engine')
            conf.set_override('cold_migrate_stopped', self.cold_migrates, 'engine')
            for name, value in zip(settings.CAPS, caps, strict=True):
                conf.set_override(name, value, 'executor')
        if self.tenants is not None:
            self.tenants.configure()
        if self.campaigns is not None:
            self.campaigns.configure()
            self.outage.shorten()
        for number in range(engines):
            self._write_first_policies(number)
        self.nova = nova.Nova(self)
        self.broker = broker.Broker(self)
        self.people = people.People(self, days and not self.faults.cold)
        if self.faults.cold:
            self.people.drain_one()
        self.approver = approval.Approver(self, only)
        self.hooks = hooks.Hooks(self, only)
        self.standstills = standstills.Standstills(self, only)
        self.current: processes.Process | None = None
        #: An hour passes in which nothing else goes wrong: there are fewer looks at it.
        self.idle = False
        self.engines = [processes.EngineProcess(self, n) for n in range(engines)]
        self.executors = [processes.ExecutorProcess(self, n)
                          for n in range(self.rng.choice([2, 2, 3]))]
        # What invariants look at.
        self.tasks: dict[str, records.Task] = {}
        self.steps: dict[str, tuple[str | None, str]] = {}
        #: When a task came into the database.
        self.made: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        #: How many warnings there were when a task last changed its state.
        self._warnings_before: dict[str, int] = {}
        self.attempts: dict[str, list[dict[str, Any]]] = {}
        self.new_plans: list[records.Plan] = []
        self.writer: processes.Process | approval.Approver | None = None
        self.request: tuple[str, str, processes.Process] = ('', '', self.executors[0])
        #: The status that an instance must have for what is asked for.
        self.requested_status = 'ACTIVE'
        self.looked: dict[str, int] = {}
        self.requests: collections.Counter[str] = collections.Counter()
        #: Instances of whose actions Nova would not tell: 403 is an answer for good.
        self.untold: set[str] = set()
        #: Instances that others took to another host without a migration between two hosts.
        self.displaced: set[str] = set()
        #: When each task of an instance was planned, and when its last migration ended.
        self.planned: dict[str, dict[str, float]] = collections.defaultdict(dict)
        self.migrated: dict[str, float] = {}
        #: When each plan of a scope that followed scores was made.
        self.balanced: dict[str, dict[str, float]] = collections.defaultdict(dict)
        self.moves: collections.Counter[str] = collections.Counter()
        self._last_plan = 0
        self._changes = database.version(self.raw)
        self._broken: Broken | None = None
        self._log = _Said()

    # Time.

    def time(self) -> float:
        """The clock of the process at work."""
        return self.now if self.current is None else self.current.time()

    def go(self) -> 'Run':
        """:raises Broken: an invariant does not hold."""
        with patches.around(self), self._listening(), _without_gc():
            end = self.now + (maintenance.TROUBLED if self.campaigns is not None else
                              TROUBLED_LONG if self.faults.crowded else TROUBLED)
            while self.now < end:
                self.step()
            self.faults.active = False
            if self.campaigns is not None:
                self._end_campaign(self.campaigns)
            self._clean_up()
            self.idle = True
            while self.now < self.outage.ends and not self._over():
                self.step(quiet=True)
            self.idle = False
            self._wait(self.now + QUIET)
            if self.standstills.since > float('-inf'):
                # Nobody sees during an outage that a record does not change.
                end = max(self.standstills.since, self.outage.ends) + standstills.SLOT
                self.idle = True
                self._wait(end)
                self.idle = False
                self._wait(end + QUIET)
                self._judge_by(invariants.no_slot_is_held_for_ever)
                self.standstills.resolve()
                self._wait(self.now + QUIET)
            for rule in invariants.AT_END:
                self._judge_by(rule)
            for rule in campaign_invariants.AT_END if self.campaigns is not None else ():
                self._judge_by(rule)
            self._raise()
        return self

    def _end_campaign(self, campaigns: maintenance.Campaigns) -> None:
        """Let engines and operators bring the campaign to its end, without other troubles."""
        self.people.enable()
        for number in range(len(self.engines)):
            self._write_first_policies(number)
        end = max(self.now, self.outage.ends) + maintenance.ENDING
        while self.now < end and campaigns.is_live:
            self.step(quiet=True)
            self.approver.act()
        end = self.now + maintenance.LATE
        while self.now < end:
            self.step(quiet=True)

    def _wait(self, end: float) -> None:
        while self.now < end and not (self._over() or self.standstills.last()):
            self.step(quiet=True)

    def go_on(self, seconds: float) -> None:
        """Some more time, without an end."""
        with patches.around(self), self._listening():
            end = self.now + seconds
            while self.now < end:
                self.step()

    def _clean_up(self) -> None:
        """Operators put things right, and plan no more."""
        self.people.enable()
        for host in self.cloud.hosts.values():
            host.up = True
        for process in self.engines:
            process.starts_at = float('inf')
        for executor in self.executors:
            executor.put_clock_right()

    def _over(self) -> bool:
        return not (self.nova.waits or self.standstills.waits or self.live
                    or self.standstills.find_unsaid()
                    or any(not m.endless for m in self.cloud.active())
                    or records.owed(self.raw) or any(
                        state in swaps.OPEN for _, state, _ in records.swaps(self.raw)))

    def step(self, quiet: bool = False) -> None:
        """A few seconds, in which whoever's turn has come acts."""
        wait = min([p.due for p in self._free()], default=self.now) - self.now
        self.now += max(self.rng.uniform(0.5, 4), min(wait, 30.0 if self.idle else 8.0))
        self.nova.advance()
        self.standstills.advance()
        self.broker.advance()
        if self.campaigns is not None:
            self.campaigns.advance()
        if not quiet:
            self.people.act()
            self.approver.act()
        due = [p for p in self._free() if p.due <= self.now]
        if due:
            self._turn(self.rng.choice(due))
        self._raise()

    def _free(self) -> list[processes.Process]:
        return [p for p in (*self.engines, *self.executors) if not p.inside]

    def _turn(self, process: processes.Process) -> None:
        before, self.current = self.current, process
        process.inside, process.stood = True, 0.0
        try:
            process.act()
        finally:
            process.inside = False
            self.current = before

    def can_stand_still(self) -> bool:
        """Return whether others can go on meanwhile."""
        return len(self._free()) >= 3

    def stand_still(self, process: processes.Process, seconds: float,
                    meanwhile: Callable[[], None] = lambda: None) -> None:
        """The process does; the others go on."""
        if not self.can_stand_still():
            return
        began, end = self.now, self.now + seconds
        self.current = None
        try:
            while self.now < end:
                self.step()
                meanwhile()
        finally:
            self.current = process
            process.stood += self.now - began

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        active, self.faults.active = self.faults.active, False
        try:
            yield
        finally:
            self.faults.active = active

    def _write_first_policies(self, number: int) -> None:
        self.write_policies(number, settings.CALM if self.campaigns is not None and (
            self.campaigns.is_calm) else settings.POLICIES[2])

    def write_policies(self, number: int, text: str) -> None:
        path = settings.policies_file(number)
        with open(f'{path}.new', 'w') as f:
            f.write(text)
        os.replace(f'{path}.new', path)

    def number_of(self, process: processes.Process) -> int:
        """Return the number of a process's connection to the database."""
        return process.number + (2 if process.kind == 'executor' else 0)

    # What is looked at, and when.

    def judge(self, name: str, holds: bool, what: str) -> None:
        """Count a check of an invariant, and remember the first that fails."""
        self.checks[name] += 1
        if not holds and self._broken is None:
            self._broken = Broken(self.seed, name, what)

    def _judge_by(self, rule: Callable[..., str | None], *args: object) -> None:
        problem = rule(self, *args)
        self.judge(rule.__name__, problem is None, problem or '')

    def accepted(self) -> None:
        """Nova has said 202 to a request of ours."""
        for rule in invariants.AT_ACCEPTANCE:
            self._judge_by(rule)

    def _raise(self) -> None:
        if self._log.defects:
            self.judge('no_defect', False, self._log.defects[0])
        else:
            self.checks['no_defect'] += 1
        if self._broken is not None:
            raise self._broken

    def committed(self, process: processes.Process | approval.Approver) -> None:
        """Look at the database; called after each transaction that may write."""
        version = database.version(self.raw)
        if version == self._changes:
            return
        self._changes = version
        self.writer = process
        if self.campaigns is not None:
            self.campaigns.note_commit()
        before, self.tasks = self.tasks, records.tasks(self.raw)
        self.attempts = {task_id: task.attempts for task_id, task in before.items()}
        self.steps = {
            task_id: (before[task_id].state if task_id in before else None, task.state)
            for task_id, task in self.tasks.items()
            if task_id not in before or before[task_id].state != task.state}
        self._last_plan, self.new_plans = records.plans(self.raw, self._last_plan, self.tasks)
        for rule in invariants.AFTER_COMMIT:
            self._judge_by(rule)
        # What follows from how a swap went is planned by no engine, and cools afterwards.
        following = [plan for plan in self.new_plans if not plan.epoch]
        self.new_plans = [plan for plan in self.new_plans if plan.epoch]
        for rule in invariants.AFTER_PLAN if self.new_plans else ():
            self._judge_by(rule)
        if self.campaigns is not None and self.campaigns.is_live and self.new_plans:
            for rule in campaign_invariants.AFTER_PLAN:
                self._judge_by(rule)
        self.counts['swaps undone'] += len(following)
        for plan in self.new_plans:
            # Whoever stood still since it looked at its clock counts from then.
            began = self.now - process.stood
            for task in plan.tasks:
                self.planned[task.instance][task.task_id] = began
                self.counts[f'{task.phase} tasks'] += 1
            if any(t.phase in invariants.IMBALANCE for t in plan.tasks):
                self.balanced[plan.scope][plan.plan_id] = began
        for task_id, (_before, after) in self.steps.items():
            self._warnings_before[task_id] = len(self._log.texts)
            self.made.setdefault(task_id, self.now)
            self.counts[f'{after} tasks'] += 1
            self.approver.saw(task_id, _before, after)
            if after in invariants.TERMINAL:
                self.ended.setdefault(task_id, self.now)
            if after in invariants.TERMINAL and _before not in (
                    'pending', 'queued', 'claimed'):
                self.migrated[self.tasks[task_id].instance] = self.now - process.stood
        for task in invariants.list_yielding_tasks(self):
            self._forget_planning(task)

    def _forget_planning(self, task: records.Task) -> None:
        """Let a task that gave way to a drain cool nothing: it has moved nothing."""
        self.counts['tasks that gave way to a drain'] += 1
        self.planned[task.instance].pop(task.task_id, None)
        if not any(other.plan_id == task.plan_id and other.task_id in self.approver.approved
                   for other in self.tasks.values()):
            self.balanced[task.scope].pop(task.plan_id, None)

    @property
    def live(self) -> bool:
        """Whether any task is not over."""
        return any(t.state not in invariants.TERMINAL for t in self.tasks.values())

    def live_task(self, instance: str) -> records.Task | None:
        return next((t for t in records.tasks(self.raw).values() if t.instance == instance
                     and t.state not in invariants.TERMINAL), None)

    def asked(self, uuid: str, host: str, process: processes.Process, kind: str) -> None:
        """A request for a migration leaves the process."""
        self.counts['requests'] += 1
        self.counts['requests for cold migrations'] += kind == cloud.COLD
        self.requests[self.task_of(uuid)[0]] += 1
        self.request = uuid, host, process
        self.requested_status = 'SHUTOFF' if kind == cloud.COLD else 'ACTIVE'
        for rule in invariants.AT_REQUEST:
            self._judge_by(rule)
        if self.tenants is not None:
            self._judge_by(invariants.contract_is_kept)

    def judge_told(self) -> None:
        """A notification was sent."""
        self._judge_by(invariants.told_once)

    def hook_called(self, when: str, call: base.HookCall, called: hooks.Called,
                    process: processes.Process) -> None:
        for rule in invariants.AT_HOOK:
            self._judge_by(rule, when, call, called, process)

    def task_of(self, instance: str) -> tuple[str, str, int]:
        """Whose request it is: task, scope, and what of the cloud it knew."""
        task = self.live_task(instance)
        if task is None:
            return '?', '?', -1
        return task.task_id, task.scope, self.looked.get(task.task_id, -1)

    def scheduled(self, migration: cloud.Migration, wrong: str | None) -> None:
        """Nova finds room for a migration of ours, or something wrong with it."""
        self._judge_by(invariants.destination_is_legal, migration, wrong)

    def moved(self, migration: cloud.Migration) -> None:
        self.counts['moves'] += 1
        if migration.task_id:
            self.moves[migration.task_id] += 1
            self._judge_by(invariants.once_moved, migration)

    def unmoved(self, migration: cloud.Migration) -> None:
        """A user or an operator has reverted a cold migration."""
        if migration.task_id:
            self.moves[migration.task_id] -= 1

    def disturbed(self, task: records.Task, name: str) -> bool:
        """Others had a hand in the instance after its task was made.

        Each time that this keeps an invariant from judging is counted under its name.
        """
        is_disturbed = any(m.instance_uuid == task.instance and m.task_id != task.task_id
                           and m.changed_at >= self.made[task.task_id]
                           for m in self.cloud.migrations) or (
                   self.cloud.instances[task.instance].host
                   not in (task.from_host, task.to_host)) or (
                   self.cloud.instances[task.instance].status != (
                       'SHUTOFF' if any(m.task_id == task.task_id and m.type == cloud.COLD
                                        for m in self.cloud.migrations) else 'ACTIVE'))
        self.counts[f'{name} did not judge'] += is_disturbed
        return is_disturbed

    def mistakable(self, task: records.Task) -> set[str]:
        """How migrations ended that others asked for, of the same instance between
        the same hosts: Nova does not tell whose one is when the answer to ours was
        lost."""
        said = {'error': 'failed', 'confirmed': 'completed', 'done': 'completed'}
        return {said.get(m.status, m.status) for m in self.cloud.migrations
                if m.instance_uuid == task.instance and m.task_id != task.task_id
                and m.to_host == task.to_host and (
                    m.from_host == task.from_host or m.status in (
                        'completed', 'confirmed', 'done'))}

    def is_named(self, task_id: str) -> bool:
        """Return whether a warning has named a task since its last change of state."""
        return any(task_id in text
                   for text in self._log.texts[self._warnings_before.get(task_id, 0):])

    def was_said_late(self, task_id: str) -> bool:
        """Return whether an operator can read that a request of a task came too late."""
        return any('came too late' in text and task_id in text for text in self._log.texts)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        level, propagate = LOG.level, LOG.propagate
        LOG.addHandler(self._log)
        LOG.setLevel(logging.WARNING)
        LOG.propagate = False
        try:
            yield
        finally:
            LOG.removeHandler(self._log)
            LOG.setLevel(level)
            LOG.propagate = propagate
