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

"""The faults of a soak. Each is a generator that yields the seconds until it goes on.

The list follows that of the simulation (tests/simulation/world/faults.py), as far as processes,
users and operators can cause a fault from outside.
"""

from collections.abc import Callable
from collections.abc import Iterator
import os
import random
import signal
import sys

from tools.cloud import processes
from tools.cloud.run import Run
from tools.cloud.soak.daemons import Daemons
from tools.cloud.soak.daemons import ENGINES
from tools.cloud.soak.daemons import EXECUTORS
from tools.cloud.soak.takeovers import TakeoverWatch

Actor = Iterator[float]

#: Fault -> process of the sandbox that dies, and the seconds until it is started again.
DEATHS = {
    'MariaDB dies': ('mariadb', 10.0),
    'RabbitMQ dies': ('rabbitmq', 15.0),
    'memcached dies': ('memcached', 20.0),
    'Prometheus dies': ('prometheus', 40.0),
    'Keystone dies': ('keystone', 20.0),
    'Placement dies': ('placement', 30.0),
    'nova-api dies': ('nova', 30.0),
    'nova-conductor dies': ('nova-conductor', 20.0),
    'nova-scheduler dies': ('nova-scheduler', 20.0),
}
HOST_DIES = 'nova-compute dies'
BAD_POLICIES = 'operator breaks the policy file'
#: Seconds after which a daemon of ours that died is started again, as its service manager does.
RESTART_SECONDS = 20.0
#: Seconds that an engine stands still, and an executor: longer than a lease or a claim lasts.
ENGINE_FREEZE, EXECUTOR_FREEZE = 50.0, 100.0
HOST_AWAY = 60.0
BROKEN_SECONDS = 45.0


class Faults:
    """Causes faults by their names."""

    def __init__(self, run: Run, daemons: Daemons, watch: TakeoverWatch, seed: int) -> None:
        self._run, self._daemons, self._watch = run, daemons, watch
        self._draws = random.Random(seed)
        self._ours: dict[str, Callable[[], Actor]] = {
            'engine dies': lambda: self._kill(ENGINES),
            'engine freezes beyond its lease': lambda: self._freeze(ENGINES, ENGINE_FREEZE),
            'engine is restarted in order': lambda: self._restart(ENGINES),
            'executor dies': lambda: self._kill(EXECUTORS),
            'executor freezes beyond its claim': lambda: self._freeze(EXECUTORS, EXECUTOR_FREEZE),
            'executor is restarted in order': lambda: self._restart(EXECUTORS),
        }
        self.ours = tuple(self._ours)
        self.others = (*DEATHS, HOST_DIES, BAD_POLICIES)

    def begin(self, name: str) -> Actor:
        """Return the actor of a fault."""
        if name in self._ours:
            return self._ours[name]()
        if name in DEATHS:
            return self._kill_service(*DEATHS[name])
        return self._break_policies() if name == BAD_POLICIES else self._kill_host()

    def _choose(self, names: tuple[str, ...]) -> tuple[str, str | None]:
        """Return the daemon that holds most, and its name in the database; else any daemon."""
        owners: dict[str, list[str]] = {}
        for _, _, owner in self._watch.held:
            name = self._daemons.find_name(owner)
            if name in names:
                owners.setdefault(owner, []).append(name)
        if not owners:
            return self._draws.choice(names), None
        owner = max(owners, key=lambda one: len(owners[one]))
        return owners[owner][0], owner

    def _kill(self, names: tuple[str, ...]) -> Actor:
        name, owner = self._choose(names)
        if self._daemons.find_process(name) is None:
            return
        self._run.kill(name)
        if owner is not None:
            self._watch.note_fall(owner)
        yield RESTART_SECONDS
        self._daemons.start(name)

    def _freeze(self, names: tuple[str, ...], seconds: float) -> Actor:
        name, owner = self._choose(names)
        self._run.freeze(name)
        if owner is not None:
            self._watch.note_fall(owner)
        yield seconds
        if owner is not None:
            self._watch.note_return(owner)
        self._run.thaw(name)

    def _restart(self, names: tuple[str, ...]) -> Actor:
        name, _ = self._choose(names)
        if self._daemons.find_process(name) is None:
            return
        self._daemons.stop_in_order(name)
        yield 1.0
        self._daemons.start(name)

    def _kill_service(self, name: str, seconds: float) -> Actor:
        if not any(p.name == name for p in self._run.state.processes):
            return
        self._run.kill(name)
        yield seconds
        self._run.restart(name)

    def _kill_host(self) -> Actor:
        host = self._draws.choice(self._run.state.hosts)
        # Each nova-compute is a fork whose process title is its host.
        found = [p for p in processes.marked(self._run.layout.root) if p.name == host]
        for process in found:
            os.kill(process.pid, signal.SIGKILL)
        yield HOST_AWAY
        name = f'nova-compute-{host}'
        if any(p.name == name for p in self._run.state.processes):
            self._run.forget(name)
        self._run.spawn(name, [
            sys.executable, '-m', 'tools.cloud.computes', str(self._run.layout.etc),
            str(self._run.layout.log), host])

    def _break_policies(self) -> Actor:
        file = self._run.layout.policies
        good = file.read_text()
        file.write_text(good.replace('imbalance_query:', 'imbalance_querry:', 1))
        yield BROKEN_SECONDS
        file.write_text(good)
