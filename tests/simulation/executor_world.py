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


"""A simulated Nova with faults, and executors that crash, freeze and compete.

One seed is one run: time only passes when the run says so. The store and
the worker are the real ones.
"""

import dataclasses
import random
from typing import Any
import uuid

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import transactions
from tests.fixtures import stores

HOSTS = ('h1', 'h2', 'h3', 'h4')
SCOPES = ('blue', 'green')
SETTINGS = retry.RetrySettings(per_scope=2, total=3, look_interval=5.0, claim_seconds=60.0,
                               migration_timeout=120.0, retry_backoff=10.0)


DAY = 86400.0
#: Steps of every pass; each other step crashes in 2 % of the cases.
CRASH_RATES = {'read_todo': 0.002, 'list_tasks_in_states': 0.002, 'claim_task': 0.005,
               'renew_claim': 0.002, 'read_history': 0.005, 'list_draining_hosts': 0.005}


class Crash(BaseException):
    """The process is gone: nothing after it runs."""


@dataclasses.dataclass
class Migration:
    number: int
    task: model.Task
    ends_at: float
    end: base.MigrationStage
    stage: base.MigrationStage = base.MigrationStage.RUNNING


class Nova:
    """Where instances are, and their migrations; refuses what Nova refuses."""

    def __init__(self, run: 'Run') -> None:
        self.run = run
        self.host: dict[str, str] = {}
        self.migrations: list[Migration] = []
        self.late: list[tuple[float, model.Task]] = []

    def active(self) -> list[Migration]:
        return [m for m in self.migrations if not m.stage.is_terminal]

    def request(self, task: model.Task) -> None:
        if any(m.task.instance_uuid == task.instance_uuid for m in self.active()):
            raise exception.MigrationFailed(instance_uuid=task.instance_uuid, problem='409 busy')
        if self.host[task.instance_uuid] != task.from_host:
            raise exception.PreFlightError(instance_uuid=task.instance_uuid, problem='moved')
        rng = self.run.rng
        slow = self.run.faulty and rng.random() < 0.05
        end = (rng.choice([base.MigrationStage.FAILED, base.MigrationStage.CANCELLED])
               if self.run.faulty and rng.random() < 0.2 else base.MigrationStage.COMPLETED)
        self.migrations.append(Migration(
            len(self.migrations) + 1, task,
            self.run.now + (rng.uniform(130, 300) if slow else rng.uniform(0, 60)), end))
        self.run.check_caps()

    def advance(self) -> None:
        for at, task in list(self.late):
            if at <= self.run.now:
                self.late.remove((at, task))
                try:
                    self.request(task)
                except exception.MigrationError:
                    self.run.count('late request refused')
        for migration in self.active():
            if migration.ends_at <= self.run.now:
                migration.stage = migration.end
                if migration.end is base.MigrationStage.COMPLETED:
                    self.host[migration.task.instance_uuid] = migration.task.to_host
                    self.run.moved(migration.task)


class Driver(base.Executor):
    """Asks the simulated Nova, on a network that loses things."""

    def __init__(self, run: 'Run', name: str) -> None:
        self.run = run
        self.name = name

    def _network(self, task: model.Task, rate: float = 0.1) -> None:
        if self.run.chance(rate, 'network'):
            raise exception.NovaClientError(instance_uuid=task.instance_uuid, problem='503')

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        self._network(task)
        nova = self.run.nova
        if self.run.chance(0.03, 'refused for good') or (
                nova.host[task.instance_uuid] != task.from_host):
            raise exception.PreFlightError(instance_uuid=task.instance_uuid, problem='rule')
        if self.run.chance(0.05, 'no room'):
            raise exception.PlacementRejected(instance_uuid=task.instance_uuid, problem='full')
        return str(len(nova.migrations))

    def submit(self, task: model.Task, *_may_send: Any) -> str | None:
        self.run.check_committed(task, self.name)
        self._network(task, 0.05)
        if self.run.chance(0.05, 'refused'):
            raise exception.MigrationFailed(instance_uuid=task.instance_uuid, problem='400')
        if self.run.chance(0.1, 'lost before'):
            raise exception.AmbiguousSubmit(instance_uuid=task.instance_uuid, problem='reset')
        if self.run.chance(0.1, 'delayed'):
            self.run.nova.late.append((self.run.now + self.run.rng.uniform(1, 40), task))
            raise exception.AmbiguousSubmit(instance_uuid=task.instance_uuid, problem='timeout')
        self.run.nova.request(task)
        if self.run.chance(0.1, 'lost after'):
            raise exception.AmbiguousSubmit(instance_uuid=task.instance_uuid, problem='reset')
        if self.run.chance(0.05, 'driver bug'):
            raise KeyError('id')
        return f'req-{task.task_id}'

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        self._network(task)
        own_migrations = [m for m in self.run.nova.migrations
                          if m.task.instance_uuid == task.instance_uuid and m.number > int(marker)]
        if not own_migrations:
            return base.MigrationProgress(base.MigrationStage.ABSENT)
        return base.MigrationProgress(own_migrations[-1].stage, 'as Nova says',
                                      str(own_migrations[-1].number))

    def post_flight(self, task: model.Task) -> None:
        self._network(task)
        if self.run.nova.host[task.instance_uuid] != task.to_host:
            raise exception.MigrationFailed(instance_uuid=task.instance_uuid, problem='elsewhere')


class SlowDriver(Driver):
    """Nova answers each pre-flight late, and time passes for all others."""

    def __init__(self, run: 'Run', name: str, seconds: float, hangs: str) -> None:
        super().__init__(run, name)
        self.seconds, self.hangs = seconds, hangs

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        self.run.count('pre-flight')
        if self.hangs in ('', self.name):
            self.hangs = self.hangs and 'no more'
            end = self.run.now + self.seconds
            while self.run.now < end:
                self.run.slow_step()
        return super().pre_flight(task, known)

    def submit(self, task: model.Task, *_may_send: Any) -> str | None:
        self.run.count('request')
        return super().submit(task)


class Unreliable:
    """Any method of the wrapped object may be the last thing, before or after."""

    def __init__(self, run: 'Run', wrapped: Any) -> None:
        self._run, self._wrapped = run, wrapped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._wrapped, name)
        if isinstance(method, transactions.Repository):
            return Unreliable(self._run, method)

        def call(*args: Any, **kw: Any) -> Any:
            rate = CRASH_RATES.get(name, 0.02)
            if self._run.chance(rate, f'crash before {name}'):
                raise Crash
            try:
                result = method(*args, **kw)
            finally:
                if self._run.chance(rate, f'crash after {name}'):
                    raise Crash
            if name in ('update_state', 'claim_task', 'pre_flight') and self._run.chance(
                    0.03, 'freeze'):
                self._run.freeze()
            return result
        return call


class Run:
    """One seeded run; :meth:`go` raises AssertionError when a rule is broken."""

    settings = SETTINGS
    phase = model.Phase.SPREAD
    draining: frozenset[str] = frozenset()
    nova_class, driver_class = Nova, Driver

    def __init__(self, seed: int, store: api.Store | None = None) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000.0
        self.faulty = True
        self.counts: dict[str, int] = {}
        self.moves: dict[str, int] = {}
        self.frozen = 0
        self.broken: list[str] = []
        #: Seconds by which the clock of an executor's machine is ahead. Drawn by a chance of
        #: its own: what else happens does not depend on it.
        self.skews: dict[str, float] = {}
        self.clock_chance = random.Random(f'clock {seed}')
        self.store = store or stores.in_memory(lambda: self.now)
        self.nova = self.nova_class(self)
        self.plan_ids: list[str] = []
        self.told: list[tuple[str, model.TaskResult]] = []
        self.workers = [self.worker() for _ in range(3)]

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def chance(self, rate: float, what: str) -> bool:
        if self.faulty and self.rng.random() < rate:
            self.count(what)
            return True
        return False

    def worker(self, name: str = '', driver: base.Executor | None = None) -> worker.Worker:
        name = name or self.uuid()
        return worker.Worker(
            Unreliable(self, self.store),  # type: ignore[arg-type]
            driver or Unreliable(  # type: ignore[arg-type]
                self, self.driver_class(self, name)),
            self.settings, lambda event, result: self.told.append((event, result)),
            clock=database_clock.DatabaseClock(
                lambda: self.now, lambda: self.now + self.skews.get(name, 0.0), lambda: self.now),
            monotonic=lambda: self.now, name=name)

    # Rules that hold at every step. The worker survives exceptions of its
    # driver, so a broken rule is noted here and raised by step().

    def must(self, holds: bool, rule: str) -> None:
        if not holds:
            self.broken.append(rule)

    def check_caps(self) -> None:
        active = self.nova.active()
        self.must(len(active) <= SETTINGS.total, 'cloud-wide cap')
        for scope in SCOPES:
            flying = [m for m in active if m.task.aggregate == scope]
            self.must(len(flying) <= SETTINGS.per_scope, f'cap of {scope}')
        for host in HOSTS:
            self.must(sum(m.task.from_host == host for m in active) <= SETTINGS.per_source,
                      f'cap of the source {host}')
            self.must(sum(m.task.to_host == host for m in active) <= SETTINGS.per_destination,
                      f'cap of the destination {host}')

    def check_committed(self, task: model.Task, name: str) -> None:
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.must(row.task.state is TaskState.SUBMITTING and row.worker == name,
                  'a request without its committed submitting')
        self.must(abs(self.skews.get(name, 0.0)) <= database_clock.SKEW_SECONDS,
                  'a request by an executor with a wrong clock')
        by_instance = {r.task.instance_uuid: r.task
                       for r in self.store.tasks.list_plan_tasks(task.plan_id)}
        for required in task.requires:
            self.must(by_instance[required].state is TaskState.COMPLETED, 'out of order')

    def moved(self, task: model.Task) -> None:
        self.moves[task.task_id] = self.moves.get(task.task_id, 0) + 1
        self.must(self.moves[task.task_id] == 1, f'{task.instance_uuid} moved twice')

    # What happens.

    def freeze(self) -> None:
        """This executor stands still; the others go on."""
        if self.frozen >= len(self.workers) - 1:
            return
        self.frozen += 1
        for _ in range(self.rng.randint(8, 16)):
            self.step()
        self.frozen -= 1

    def step(self) -> None:
        self.now += self.rng.uniform(1, 8) if self.faulty else self.rng.uniform(5, 25)
        self.nova.advance()
        index = self.rng.randrange(len(self.workers))
        victim = self.workers[index]
        if getattr(victim, 'inside', False):
            return
        victim.inside = True  # type: ignore[attr-defined]
        try:
            self.turn_clock(victim.name)
            victim.run_once(victim.read_clock())
        except Crash:
            self.workers[index] = self.worker()
        finally:
            victim.inside = False  # type: ignore[attr-defined]
        assert not self.broken, self.broken

    def turn_clock(self, name: str) -> None:
        """The clock of the executor's machine steps, drifts or is put right."""
        if not self.faulty:
            self.skews.clear()
        elif self.clock_chance.random() < 0.03:
            self.skews[name] = self.clock_chance.choice([
                0.0, self.clock_chance.uniform(-DAY, DAY), self.clock_chance.uniform(-60, 60)])
            self.count('clock steps')
        elif name in self.skews and self.clock_chance.random() < 0.3:
            self.skews[name] += self.clock_chance.uniform(-20, 20)
            self.count('clock drifts')

    def slow_pre_flight(self, seconds: float, hangs: str = '') -> None:
        """Two executors whose pre-flights take so long; nothing else is wrong.

        :param hangs: only the first pre-flight of this executor does.
        """
        self.faulty = False
        self.workers = [
            self.worker(each.name, SlowDriver(self, each.name, seconds, hangs))
            for each in self.workers[:2]]
        self.plan(SCOPES[0])
        for _ in range(600):
            self.slow_step()
            if not self.store.tasks.list_tasks_in_states(rows.LIVE):
                break

    def slow_step(self) -> None:
        """Five seconds: claims are renewed, and each executor that waits for nothing acts."""
        self.now += 5
        self.nova.advance()
        for each in self.workers:
            each.keeper.renew_task_claims()
        for each in self.workers:
            if not getattr(each, 'inside', False):
                each.inside = True  # type: ignore[attr-defined]
                each.run_once(each.read_clock())
                each.inside = False  # type: ignore[attr-defined]

    def complete_task(self, task: model.Task) -> model.Task:
        """Return a planned task as its engine stores it."""
        return task

    def plan(self, scope: str) -> None:
        lease = self.store.leases.acquire_lease(scope, 'engine', 30, 'same')
        assert lease is not None
        plan_id = self.uuid()
        tasks: list[model.Task] = []
        for number in range(self.rng.randint(2, 5)):
            instance = self.uuid()
            chosen = self.rng.sample(HOSTS, 3)
            self.nova.host[instance] = chosen[0]
            earlier = [t.instance_uuid for t in tasks]
            tasks.append(self.complete_task(model.Task(
                task_id=self.uuid(), plan_id=plan_id, aggregate=scope, instance_uuid=instance,
                from_host=chosen[0], to_host=chosen[1], alternates=(chosen[2],),
                phase=self.phase, wave=number, not_before=self.now + 3 * number,
                max_retries=2, requires=tuple(
                    self.rng.sample(earlier, 1)) if earlier and self.rng.random() < 0.4 else ())))
        self.store.plans.save_plan(
            lease, model.Plan(scope, draining=self.draining, moves=tuple(
                model.Move(t.instance_uuid, t.from_host, t.to_host, t.phase) for t in tasks)),
            tasks, plan_id=plan_id, now=self.now, dry_run=False, cooldown=600,
            instance_cooldown=900)
        self.plan_ids.append(plan_id)

    def rows(self) -> list[rows.TaskRow]:
        return [row for plan_id in self.plan_ids
                for row in self.store.tasks.list_plan_tasks(plan_id)]

    def go(self, steps: int = 60, quiet_steps: int = 600) -> None:
        for scope in SCOPES:
            self.plan(scope)
        for _ in range(steps):
            self.step()
        self.faulty = False
        for _ in range(quiet_steps):
            self.step()
            if not self.store.tasks.list_tasks_in_states(rows.LIVE):
                break
        self.check_end()

    def check_end(self) -> None:
        """Every task has ended, as Nova says, and left its cooldown."""
        assert not self.broken and not self.nova.active() and not self.nova.late
        for row in self.rows():
            task = row.task
            assert task.state.is_terminal, f'{task.task_id} is {task.state}: {row.error}'
            done = task.state is TaskState.COMPLETED
            assert done == (self.moves.get(task.task_id, 0) == 1), 'the row contradicts Nova'
            assert self.nova.host[task.instance_uuid] == (
                task.to_host if done else task.from_host)
            assert row.completed_at is not None
            assert row.error_type != 'TaskExpired', 'cancelled by a wrong clock'
            assert row.error_type != 'MigrationTimeout' or self.moves.get(task.task_id) is None
            history = self.store.history.read_history(task.aggregate, row.completed_at)
            cooled = history.cooling.get(task.instance_uuid, 0.0)
            assert (cooled >= SETTINGS.instance_cooldown - 1e-6
                    or row.error_type == 'RequirementFailed'), 'no cooldown at completion'
            punished = task.state is TaskState.FAILED and row.error_type not in (
                'NovaClientError', 'PlacementRejected')
            assert (task.instance_uuid in history.quarantined) == punished
        assert self.store.tasks.list_in_flight_moves() == ()
