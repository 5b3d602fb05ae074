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

"""Engines and executors as processes: they crash, freeze and come again."""

from typing import Any, TYPE_CHECKING

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.engine import lease_keeper
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.store import database_clock
from tests.simulation.world import campaign_programs
from tests.simulation.world import database
from tests.simulation.world import nova
from tests.simulation.world import prometheus

if TYPE_CHECKING:
    from tests.simulation.world import run as runs

DAY = 86400.0
#: A clock is wrong by no more than this, either way (seconds).
WRONG = 10.0
#: Between two renewals of a lease: the most that Engine.keep_leases allows.
BEAT_SECONDS = lease_keeper.LEASE_SECONDS / 3


class Crash(BaseException):
    """The process is gone: nothing after it runs."""


class Process:
    kind = ''

    def __init__(self, run: 'runs.Run', number: int) -> None:
        self.run, self.number = run, number
        self.skew = 0.0
        #: Seconds for which it has not been scheduled in its present turn.
        self.stood = 0.0
        self.inside = False
        self.starts_at: float | None = run.now
        self.name = ''

    def time(self) -> float:
        return self.run.now + self.skew

    def put_clock_right(self) -> None:
        """Let NTP set it."""
        self.skew = max(-WRONG, min(WRONG, self.skew))

    def crash(self) -> None:
        raise Crash

    def wait(self, seconds: float) -> None:
        """Wait for an answer; the other processes go on."""
        if self.run.current is self:
            self.run.stand_still(self, seconds)

    def may_freeze(self) -> None:
        """Any moment may be the one in which it is not scheduled for long."""
        if self.run.faults.active and self.run.current is self:
            self._may_freeze()

    def _may_freeze(self) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        """A message came."""

    def saw_scopes(self) -> None:
        """It was told which hosts are in which scope."""

    @property
    def due(self) -> float:
        """When it does something next."""
        raise NotImplementedError

    def start(self) -> None:
        self.put_clock_right()
        self.name = f'{self.kind}-{self.number}-{self.run.cloud.uuid()}'
        self._start()
        self.starts_at = None

    def _start(self) -> None:
        raise NotImplementedError

    def _act(self) -> None:
        raise NotImplementedError

    def _stop(self) -> None:
        """In order, as at SIGTERM."""

    def act(self) -> None:
        """One turn, with all that may go wrong in it."""
        hit, rng = self.run.faults.hit, self.run.rng
        for name, sign in (('clock steps forward', 1), ('clock steps back', -1)):
            if hit(name):
                self.skew = sign * rng.uniform(0, WRONG)
        if self.kind == 'engine' and hit('clock of an engine steps far'):
            self.skew = rng.choice([-1, 1]) * rng.uniform(31, 5000)
        try:
            if self.starts_at is not None:
                self.start()
            elif hit('process is restarted in order'):
                self._stop()
                self.starts_at = self.run.now + rng.uniform(1, 20)
            else:
                self._act()
        except Crash:
            self.die()

    def die(self) -> None:
        """Be gone, and come again later."""
        self.starts_at = self.run.now + self.run.rng.uniform(1, 60)


class EngineProcess(Process):
    """kronos-engine: a cycle each interval, its leases renewed meanwhile."""

    kind = 'engine'

    def __init__(self, run: 'runs.Run', number: int) -> None:
        super().__init__(run, number)
        self.conf = run.confs[number]
        self.engine: engine.Engine | None = None
        self.source: prometheus.Source | None = None
        self.cycle_at = self.beat_at = run.now + run.rng.uniform(0, 20)
        #: What it last saw: the hosts that are up, by scope, and the cloud's
        #: count of changes.
        self.scope_hosts: dict[str, list[str]] = {}
        self.saw = -1
        self.programs: campaign_programs.Programs | None = None
        #: Whether it carries its campaign on at the moment.
        self.conducts = False

    def _start(self) -> None:
        self.engine = None
        self.source = prometheus.Source(self.conf, self.run, self)
        options: dict[str, Any] = {}
        if self.run.campaigns is not None:
            connection = nova.Connection(self.run, self)
            self.programs = campaign_programs.Programs(self.run.campaigns, self)
            options = {'find_service': lambda host: compute_service.ComputeService(
                           connection, host), 'programs': self.programs}
        try:
            self.engine = engine.Engine(
                self.conf, collector=collector.CloudCollector(
                    self.conf, nova.Connection(self.run, self)),
                source=self.source, store=database.Store(self.run, self),
                cast=self.run.broker.cast, owner=self.name, kept_alive=True, clock=self.time,
                monotonic=lambda: self.run.now, **options)
            self._watch_conductor()
        except exception.PolicyFileError:
            self.run.counts['engine does not start with a broken policy file'] += 1
            self.starts_at = self.run.now + 30
        self.cycle_at = self.run.now + self.run.rng.uniform(0, 10)

    def _watch_conductor(self) -> None:
        """Know when the engine carries its campaign on."""
        assert self.engine is not None
        if self.engine._campaigns is None:
            return
        real = self.engine._campaigns.conduct_campaign

        def conduct_campaign(*args: Any) -> None:
            self.conducts = True
            try:
                real(*args)
            finally:
                self.conducts = False
        self.engine._campaigns.conduct_campaign = conduct_campaign  # type: ignore[method-assign]

    def die(self) -> None:
        super().die()
        if self.run.campaigns is not None:
            self.run.counts[campaign_programs.KILLED] += self.run.campaigns.is_live
        if self.programs is not None:
            self.programs.lose_engine()
            self.programs = None

    def start(self) -> None:
        super().start()
        if self.engine is None:
            self.starts_at = self.run.now + 30

    def _stop(self) -> None:
        if self.engine is not None:
            self.engine.stop()
            self.engine.close()
            self.engine = None

    @property
    def budget(self) -> int:
        """Moves per cycle by the policies that the engine has loaded."""
        assert self.engine is not None
        [policy] = self.engine._watch.current.enabled_policies
        return policy.max_migrations_per_cycle

    @property
    def due(self) -> float:
        return self.starts_at if self.starts_at is not None else min(self.cycle_at, self.beat_at)

    def _act(self) -> None:
        assert self.engine is not None
        if self.beat_at <= self.run.now:
            self.beat()
        if self.cycle_at <= self.run.now:
            self.cycle_at = self.run.now + self.conf.engine.evaluation_interval
            self.run.counts['cycles'] += 1
            self.engine.run_safe_cycle()

    def saw_scopes(self) -> None:
        self.saw = self.run.cloud.foreign
        self.scope_hosts = {
            scope: [h for h in hosts if self.run.cloud.hosts[h].up]
            for scope, hosts in self.run.cloud.scopes().items()}

    def beat(self) -> None:
        """What the other thread of the daemon does."""
        assert self.engine is not None
        self.beat_at = self.run.now + BEAT_SECONDS
        try:
            if self.engine.keep_leases():
                self.cycle_at = min(self.cycle_at, self.run.now)
        except exception.StoreError:
            self.run.counts['leases not renewed'] += 1

    def wait(self, seconds: float) -> None:
        if self.run.current is self:
            self.run.stand_still(self, seconds, meanwhile=self.beat_if_due)

    def _may_freeze(self) -> None:
        if self.run.faults.hit('engine freezes beyond its lease'):
            self.run.stand_still(self, self.run.rng.uniform(31, 200))
        elif self.engine is not None and self.run.faults.hit('engine is slow but alive'):
            self.run.stand_still(self, self.run.rng.uniform(10, 60), meanwhile=self.beat_if_due)

    def beat_if_due(self) -> None:
        if self.beat_at <= self.run.now and self.engine is not None:
            # Its thread does not stop for the one that is slow.
            with self.run.undisturbed():
                self.beat()


class Driver(nova_executor.NovaExecutor):
    """The real one; remembers what the cloud was like when it looked."""

    def __init__(self, conf: Any, connection: Any, run: 'runs.Run') -> None:
        super().__init__(conf, connection)
        self._run = run

    def pre_flight(self, task: model.Task, known: base.StoredFacts) -> str:
        self._run.looked[task.task_id] = self._run.cloud.foreign
        return super().pre_flight(task, known)


class ExecutorProcess(Process):
    """kronos-executor: polls the table, or is woken."""

    kind = 'executor'

    def __init__(self, run: 'runs.Run', number: int) -> None:
        super().__init__(run, number)
        self.poll_at = run.now
        self.worker: worker.Worker | None = None

    def _start(self) -> None:
        conf = self.run.confs[0]
        self.worker = worker.Worker(
            database.Store(self.run, self),
            Driver(conf, nova.Connection(self.run, self), self.run), retry.build_settings(conf),
            self.run.broker.notify, name=self.name, monotonic=lambda: self.run.now,
            clock=database_clock.DatabaseClock(
                lambda: self.run.now, self.time, lambda: self.run.now),
            hooks=self.run.hooks.of(self), announce=self.run.broker.announce)

    @property
    def due(self) -> float:
        return self.starts_at if self.starts_at is not None else self.poll_at

    def _stop(self) -> None:
        if self.worker is not None:
            self.worker.close()

    def wake(self) -> None:
        self.poll_at = min(self.poll_at, self.run.now)

    def act(self) -> None:
        """The clock of its machine may be wrong by up to a day, also after a restart."""
        apart = self.run.faults.apart
        if self.run.faults.hit('clock of an executor steps far'):
            self.skew = apart.choice([-1, 1]) * apart.uniform(31, DAY)
        elif self.run.faults.hit('clock of an executor drifts'):
            self.skew += apart.choice([-1, 1]) * apart.uniform(0, 2 * WRONG)
        super().act()

    def _act(self) -> None:
        assert self.worker is not None
        # Whoever has nothing to wait for looks less often: an idle look costs as
        # much as a busy one, and is the same every time.
        self.poll_at = self.run.now + self.run.rng.uniform(
            *((8, 14) if self.run.live and not self.run.idle else (25, 38)
              if self.run.live else (25, 50)))
        try:
            if self.worker.run_once(self.worker.read_clock()):
                self.poll_at = self.run.now
        except exception.StoreError:
            self.run.counts['passes without a database'] += 1
        if self.worker._hooks.next_poll_time is not None:
            self.poll_at = min(self.poll_at, self.run.now + 1.0)

    def _may_freeze(self) -> None:
        if self.run.faults.hit('executor freezes beyond its claim'):
            self.run.stand_still(self, self.run.rng.uniform(25, 120))
