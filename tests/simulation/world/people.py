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

import random
from typing import TYPE_CHECKING

from kronos_nova import exception
from tests.simulation.world import cloud
from tests.simulation.world import invariants
from tests.simulation.world import records
from tests.simulation.world import settings

if TYPE_CHECKING:
    from tests.simulation.world import run as runs


class People:
    def __init__(self, run: 'runs.Run', days: bool) -> None:
        self.run, self.cloud, self.rng = run, run.cloud, run.rng
        self._up_again: dict[str, float] = {}
        #: When what a user asked for ends, the instance's status then, and its host.
        self._ends: dict[str, tuple[float, str, str | None]] = {}
        #: Of its own chance: what else happens does not hang on it.
        self.mid_move = random.Random(f'mid-move {run.seed}')
        self._day_ends = run.now + 60 if days else float('inf')

    def act(self) -> None:
        """One step's worth."""
        if self._day_ends <= self.run.now:
            self._next_day()
        for name, at in list(self._up_again.items()):
            if at <= self.run.now:
                del self._up_again[name]
                self.cloud.hosts[name].up = True
        self._end_actions()
        for migration in self._cold():
            if self.run.faults.hit('operator confirms a cold migration'):
                self.run.nova.confirm(migration.instance_uuid)
            elif self.run.faults.hit('operator reverts a cold migration'):
                self.run.nova.revert(migration.instance_uuid)
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
                ('user resizes an instance', self._resize),
                ('user rebuilds an instance', self._rebuild),
                ('user shelves an instance', self._shelve),
                ('operator migrates a stopped instance', self._migrate_stopped),
                ('host goes down', self._down)):
            if self.run.faults.hit(fault):
                try:
                    action()
                except exception.StoreError:
                    self.run.counts['commands that the database refused'] += 1
                self.cloud.changed()
        self._interfere()

    def _interfere(self) -> None:
        """Act on an instance that is to move or moves, as far as Nova lets us."""
        name = 'operator evacuates an instance in mid-move'
        for instance, task in self._in_mid_move():
            hosts = self._evacuation_hosts(instance) if instance.host == task.from_host else []
            if hosts and self.run.faults.hit(name):
                self._evacuate(instance, self.mid_move.choice(hosts))
                self.run.counts[f'evacuated from {task.state}'] += 1
                self.cloud.changed()
                break
        for fault, action in (('user resizes', self._resize), ('user rebuilds', self._rebuild),
                              ('user shelves', self._shelve)):
            idle = [i for i, _task in self._in_mid_move()
                    if i.status == 'ACTIVE' and i.task_state is None]
            if idle and self.run.faults.hit(f'{fault} an instance in mid-move'):
                action(self.mid_move.choice(idle))
                self.cloud.changed()
        moving = [i.uuid for i, _task in self._in_mid_move()]
        if len(self.cloud.instances) > 2 and moving and self.run.faults.hit(
                'user deletes an instance in mid-move'):
            self._delete(self.mid_move.choice(moving))
            self.cloud.changed()

    def _in_mid_move(self) -> list[tuple[cloud.Instance, records.Task]]:
        return [(self.cloud.instances[t.instance], t) for t in self.run.tasks.values()
                if t.state not in invariants.TERMINAL and t.instance in self.cloud.instances]

    def _evacuation_hosts(self, instance: cloud.Instance) -> list[str]:
        return [] if instance.status not in ('ACTIVE', 'SHUTOFF') else [
            h for h in self.cloud.hosts
            if h != instance.host and self.cloud.wrong(instance, h) is None]

    def _evacuate(self, instance: cloud.Instance, to_host: str) -> None:
        """Its host has died; the record of what it carried out stays as it is."""
        assert instance.host is not None
        if self.cloud.hosts[instance.host].up:
            self._down(instance.host)
        for migration in self.cloud.active():
            if migration.instance_uuid == instance.uuid:
                self.run.standstills.end(migration, instance)
        self.cloud.migrations.append(cloud.Migration(
            len(self.cloud.migrations) + 1, self.cloud.uuid(), instance.uuid, instance.host,
            to_host, '', '', 0, status='done', changed_at=self.run.now, type=cloud.EVACUATION))
        instance.host, instance.task_state = to_host, None

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

    def drain_one(self) -> None:
        """Disable the host that has most instances."""
        names = sorted(self.cloud.hosts, key=lambda name: sum(
            i.host == name for i in self.cloud.instances.values()))
        host = self.cloud.hosts[names[-1]]
        host.enabled, host.reason = False, 'maintenance'

    def enable(self) -> None:
        """Enable the hosts that people have disabled."""
        for host in self.cloud.hosts.values():
            if host.reason == 'maintenance':
                host.enabled, host.reason = True, None

    def _cancel(self) -> None:
        running = [m for m in self.cloud.active() if m.status == 'running']
        if running:
            migration = self.rng.choice(running)
            migration.end, migration.ends_at = 'cancelled', self.run.now

    def _pause(self) -> None:
        self.run.store.pauses.pause_scope(
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

    def _delete(self, uuid: str | None = None) -> None:
        if len(self.cloud.instances) > 2:
            if uuid is None:
                uuid = self.rng.choice(list(self.cloud.instances))
            self.cloud.delete(uuid)
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

    def _resize(self, instance: cloud.Instance | None = None) -> None:
        self._ask_for(cloud.RESIZE, instance or self._idle())

    def _migrate_stopped(self) -> None:
        self._ask_for(cloud.COLD, self.cloud.one(
            lambda i: i.status == 'SHUTOFF' and i.task_state is None))

    def _ask_for(self, kind: str, instance: cloud.Instance | None) -> None:
        hosts = [] if instance is None else [
            h for h in self.cloud.hosts if h != instance.host
            and self.cloud.wrong(instance, h) is None]
        if instance is not None and hosts:
            self.run.nova.by_operator(instance.uuid, self.rng.choice(hosts), kind)

    def _rebuild(self, instance: cloud.Instance | None = None) -> None:
        instance = instance or self._idle()
        if instance is not None:
            instance.status, instance.task_state = 'REBUILD', 'rebuilding'
            self._later(instance, 'ACTIVE', instance.host)

    def _shelve(self, instance: cloud.Instance | None = None) -> None:
        """It leaves its host; some time later it is on one again."""
        instance = instance or self._idle()
        if instance is not None:
            instance.task_state = 'shelving'
            self._later(instance, 'SHELVED_OFFLOADED', None)

    def _later(self, instance: cloud.Instance, status: str, host: str | None) -> None:
        self._ends[instance.uuid] = self.run.now + self.rng.uniform(5, 40), status, host

    def _end_actions(self) -> None:
        for uuid, (at, status, host) in list(self._ends.items()):
            instance = self.cloud.instances.get(uuid)
            if instance is None:
                del self._ends[uuid]
            elif at <= self.run.now:
                del self._ends[uuid]
                instance.status, instance.task_state, instance.host = status, None, host
                if host is None:
                    self.run.displaced.add(uuid)
                    self._unshelve(instance)
                self.cloud.changed()

    def _unshelve(self, instance: cloud.Instance) -> None:
        hosts = [h for h in self.cloud.hosts if self.cloud.wrong(instance, h) is None]
        if hosts and self.rng.random() < 0.5:
            self._later(instance, 'ACTIVE', self.rng.choice(hosts))

    def _cold(self) -> list[cloud.Migration]:
        """Cold migrations of ours that wait for their confirmation."""
        return [m for m in self.cloud.ours() if m.status == 'finished'
                and m.instance_uuid in self.cloud.instances]

    def _down(self, name: str | None = None) -> None:
        chance = self.rng if name is None else self.mid_move
        name = name or self.rng.choice(list(self.cloud.hosts))
        self.cloud.hosts[name].up = False
        self._up_again[name] = self.run.now + chance.uniform(30, 120)
