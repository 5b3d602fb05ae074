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

"""What operators and users do while the rebalancer works."""

from typing import TYPE_CHECKING

from tests.simulation.world import cloud
from tests.simulation.world import settings

if TYPE_CHECKING:
    from tests.simulation.world import run as runs


class People:
    def __init__(self, run: 'runs.Run', days: bool) -> None:
        self.run, self.cloud, self.rng = run, run.cloud, run.rng
        self._up_again: dict[str, float] = {}
        self._day_ends = run.now + 60 if days else float('inf')

    def act(self) -> None:
        """One step's worth."""
        if self._day_ends <= self.run.now:
            self._next_day()
        for name, at in list(self._up_again.items()):
            if at <= self.run.now:
                del self._up_again[name]
                self.cloud.hosts[name].up = True
        for fault, action in (
                ('operator migrates an instance', self._migrate),
                ('operator disables a host', self._disable),
                ('operator enables a host', self.enable),
                ('operator cancels a migration', self._cancel),
                ('operator pauses a scope', self._pause),
                ('operator changes an aggregate', self._regroup),
                ('operator changes the policies', self._policies),
                ('operator breaks the policy file', self._break),
                ('user deletes an instance', self._delete),
                ('user locks an instance', self._lock),
                ('user stops an instance', self._stop),
                ('host goes down', self._down)):
            if self.run.faults.hit(fault):
                action()
                self.cloud.changed()

    def _next_day(self) -> None:
        """No fault: there is other load, and mostly another host to drain."""
        self._day_ends = self.run.now + self.rng.uniform(40, 90)
        self.cloud.shift()
        self.enable()
        if self.rng.random() < 0.6:
            self._disable()
        self.cloud.changed()

    def _idle(self) -> cloud.Instance | None:
        return self.cloud.one(lambda i: i.status == 'ACTIVE' and i.task_state is None)

    def _migrate(self) -> None:
        instance = self._idle()
        if instance is None:
            return
        hosts = [h for h in self.cloud.hosts if h != instance.host
                 and self.cloud.wrong(instance, h) is None]
        if hosts:
            self.run.nova.by_operator(instance.uuid, self.rng.choice(hosts))

    def _disable(self) -> None:
        host = self.cloud.hosts[self.rng.choice(list(self.cloud.hosts))]
        host.enabled, host.reason = False, 'maintenance'

    def enable(self) -> None:
        for host in self.cloud.hosts.values():
            host.enabled, host.reason = True, None

    def _cancel(self) -> None:
        running = [m for m in self.cloud.active() if m.status == 'running']
        if running:
            migration = self.rng.choice(running)
            migration.end, migration.ends_at = 'cancelled', self.run.now

    def _pause(self) -> None:
        self.run.store.pause(
            self.rng.choice([None, *self.cloud.scopes()]), self.run.now,
            seconds=self.rng.uniform(20, 90), paused_by='operator', reason='maintenance')

    def _regroup(self) -> None:
        inside = self.cloud.aggregates[cloud.AGGREGATE]
        host = self.rng.choice(list(self.cloud.hosts))
        if host in inside:
            if len(inside) > 1:
                inside.remove(host)
        elif len(inside) < len(self.cloud.hosts) - 1:
            inside.append(host)

    def _policies(self) -> None:
        """Of one engine first: what the other one says then is refused."""
        self.run.write_policies(self.rng.randrange(len(self.run.engines)),
                                self.rng.choice(list(settings.POLICIES.values())))

    def _break(self) -> None:
        self.run.write_policies(self.rng.randrange(len(self.run.engines)), 'policies: [')

    def _delete(self) -> None:
        if len(self.cloud.instances) > 2:
            uuid = self.rng.choice(list(self.cloud.instances))
            del self.cloud.instances[uuid]
            for migration in self.cloud.active():
                if migration.instance_uuid == uuid:
                    migration.status = 'error'

    def _lock(self) -> None:
        instance = self._idle()
        if instance is not None:
            instance.locked = not instance.locked

    def _stop(self) -> None:
        instance = self._idle()
        if instance is not None:
            instance.status = 'SHUTOFF'

    def _down(self) -> None:
        name = self.rng.choice(list(self.cloud.hosts))
        self.cloud.hosts[name].up = False
        self._up_again[name] = self.run.now + self.rng.uniform(30, 120)
