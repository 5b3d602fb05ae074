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


"""One run: a drain of three instances while daemons, database and broker fall.

Engines and executors are real processes, each started when its predecessor has
fallen; the last of each is well. A stopped one thaws when the last one has
taken over. Then a host that has received them is disabled: it would be drained
at once, which only the cooldown of the instances forbids.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import time
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import tables
from tests.integration.crash import child
from tests.integration.crash import processes
from tests.integration.crash.processes import Fall
from tests.integration.crash.processes import PATIENCE

COUNT = 3
#: Cycles of the last engine in which it could move something twice.
MORE_CYCLES = 2

POLICIES = """policies:
- name: cpu
  weight: 1.0
  imbalance_query: cpu
  vm_profile_query: vm
  vm_profile_label: host
  vm_profile_label_type: nova_instance_uuid
  max_migrations_per_cycle: 5
"""


class Cloud:
    """The process :mod:`cloud`, once it has booted an instance.

    On a busy machine Nova's fixtures have been seen to hang in their first boot,
    before any daemon of ours runs: then another process is begun.
    """

    tries = 3
    patience = 75.0

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._process = processes.Process('cloud', directory)
        self._urls: dict[str, str] = {}

    def urls(self) -> dict[str, str]:
        """Of Nova, Placement and Prometheus."""
        for left in reversed(range(self.tries)):
            if self._urls:
                break
            try:
                heard_urls = self._process.hear(self.patience)
                self._process.ask(self.patience, do='begin', count=1)
                self._urls = heard_urls
            except AssertionError:
                if not left:
                    raise
                self._process.close(0)
                self._process = processes.Process('cloud', self._directory)
        return self._urls

    def do(self, what: str, **arguments: Any) -> Any:
        assert self.urls()
        answer = self._process.ask(do=what, **arguments)
        assert 'error' not in (answer or ()), answer['error']
        return answer

    def close(self) -> None:
        self._process.close()


@dataclasses.dataclass(frozen=True)
class World:
    """What outlives a run: a cloud, the process :mod:`child`, a RabbitMQ, and
    database servers by name."""

    cloud: Cloud
    nursery: processes.Process
    broker: Any
    databases: dict[str, Any]


class Run:
    """One drain.

    :param database: its server, by name.
    :param engines: how they fall, one after the other; ``executors`` too.
    """

    number = 0

    def __init__(self, world: World, database: str, directory: pathlib.Path, *,
                 engines: tuple[Fall, ...] = (), executors: tuple[Fall, ...] = (),
                 instance_cooldown: int = 900) -> None:
        Run.number += 1
        self._world = world
        self._database = world.databases[database]
        self._url = self._database.create(f'kronos_{os.getpid()}_{Run.number}')
        self.store = api.Store.from_url(self._url)
        self._cooldown = instance_cooldown
        self._directory = directory
        (directory / 'kronos.conf').write_text(self._config())
        (directory / 'policies.yaml').write_text(POLICIES)
        self.daemons = {
            role: [processes.Daemon(world.nursery, f'{role}-{n}', role, fall, directory,
                                    one_lock=database == 'sqlite')
                   for n, fall in enumerate(_with_heir(falls))]
            for role, falls in (('engine', engines), ('executor', executors))}
        self.uuids = world.cloud.do('begin', count=COUNT)
        world.cloud.do('load', hosts={'host1': 0.5, 'host2': 0.1, 'host3': 0.1},
                 instances=dict.fromkeys(self.uuids, 0.1))

    def _config(self) -> str:
        urls = self._world.cloud.urls()
        return f"""[DEFAULT]
debug = true
transport_url = {self._world.broker.url}
[engine]
dry_run = false
policies_file = {self._directory}/policies.yaml
evaluation_interval = {child.INTERVAL}
hypervisor_types = fake
evacuate_disabled_hosts = true
settle_seconds = 0
cooldown = 0
instance_cooldown = {self._cooldown}
[executor]
poll_interval = 1
migration_poll_interval = 1
claim_seconds = {child.CLAIM}
stagger_seconds = 0
retry_backoff = 1
[prometheus]
url = {urls['prometheus']}
[database]
connection = {self._url}
[nova]
auth_type = admin_token
endpoint = {urls['nova']}
token = fake
endpoint_override = {urls['nova']}
placement_endpoint_override = {urls['placement']}
"""

    @property
    def everyone(self) -> list[processes.Daemon]:
        return [d for chain in self.daemons.values() for d in chain]

    # What happens.

    def go(self) -> dict[str, Any]:
        """Execute the whole run and return its counts.

        :raises AssertionError: something was lost, or done twice.
        """
        started = time.monotonic()
        try:
            for chain in self.daemons.values():
                chain[0].begin()
            self.wait(self._drained, 'every instance to leave host1 and every fall to happen')
            for daemon in self.everyone:
                daemon.thaw()
            self._turn()
            self.verdict()
            for daemon in self.everyone:
                text = daemon.text()
                assert 'Traceback' not in text and 'defect of ours' not in text, (
                    f'{daemon.name}: {text[-6000:]}')
            return {'runs': 1, 'seconds': time.monotonic() - started, **self.counted,
                    'killed': self._fallen('kill'), 'stopped': self._fallen('stop')}
        except BaseException:
            for daemon in self.everyone:
                print(f'--- {daemon.name}\n{daemon.text()[-8000:]}')
            raise
        finally:
            for daemon in self.everyone:
                daemon.close()
            self.store.close()

    def wait(self, holds: Any, what: str) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            self._advance()
            # It has been killed, or has no tables yet.
            with contextlib.suppress(exception.StoreError):
                if holds():
                    return
            assert time.monotonic() < until, f'waited {PATIENCE} s in vain for {what}'
            time.sleep(0.1)

    def _advance(self) -> None:
        """Who has fallen is followed by the next."""
        for chain in self.daemons.values():
            for one, after in zip(chain, [*chain[1:], None], strict=True):
                one.look()
                if one.fell and one.fall.meanwhile and not one.thawed:
                    getattr(self, one.fall.meanwhile)()
                    one.thaw()
                elif one.fell and after is not None and not after.begun:
                    after.begin()
            last = chain[-1]
            if last.begun and any(d.fell and not d.thawed for d in chain):
                with contextlib.suppress(exception.StoreError):
                    if self._has_taken_over(last):
                        for daemon in chain:
                            if daemon.fell and not daemon.fall.late:
                                daemon.thaw()

    def _has_taken_over(self, last: processes.Daemon) -> bool:
        if 'engine' in last.name:
            return any(last.owns(lease.owner) for lease in self.leases()) and bool(self.tasks())
        return any(last.owns(row.worker) for row in self.tasks())

    def _drained(self) -> bool:
        rows = self.tasks()
        return (all(d.fell or d.fall is None for d in self.everyone)
                and all(chain[-1].begun for chain in self.daemons.values())
                and {row.task.instance_uuid for row in rows} >= set(self.uuids)
                and all(row.task.state.is_terminal for row in rows))

    def _turn(self) -> None:
        """Request moves to other hosts, for some cycles of a healthy engine."""
        self._world.cloud.do('disable', host=self.tasks()[0].task.to_host)
        for _ in range(MORE_CYCLES):
            before = [lease.planned_at for lease in self.leases()]
            self.wait(lambda b=before: [lease.planned_at for lease in self.leases()] != b,
                      'another cycle')
        self.wait(lambda: not self.store.tasks.list_in_flight_moves(), 'the last tasks to end')

    def restart_database(self) -> None:
        self._database.stop(signal.SIGKILL)
        time.sleep(2)
        self._database.start()

    def restart_broker(self) -> None:
        self._world.broker.stop(signal.SIGKILL)
        time.sleep(2)
        self._world.broker.start()

    # What is seen.

    def leases(self) -> list[Any]:
        # To read takes no lock: on SQLite somebody may be frozen who holds the only one.
        with self.store.engine.connect().execution_options(kronos_begin='') as connection:
            return list(connection.execute(sa.select(tables.lease)))

    def tasks(self) -> list[Any]:
        return [row for plan in self.store.plans.list_plans(1000)
                for row in self.store.tasks.list_plan_tasks(plan.plan_id)]

    def verdict(self) -> None:
        """Each instance migrated exactly once, none lost, every task ended in a
        known state, no second plan in the cooldown."""
        rows = self.tasks()
        seen = self._world.cloud.do('look')
        story = json.dumps({'nova': seen, 'tasks': [str(row) for row in rows]}, indent=1)
        assert sorted(row.task.instance_uuid for row in rows) == sorted(self.uuids), (
            f'an instance was planned twice, or never: {story}')
        assert {row.task.state for row in rows} == {TaskState.COMPLETED}, story
        assert not self.store.tasks.list_in_flight_moves(), story
        assert sorted(seen) == sorted(self.uuids), f'an instance is lost: {story}'
        for row in rows:
            one = seen[row.task.instance_uuid]
            assert (one['host'], one['status'], one['task_state']) == (
                row.task.to_host, 'ACTIVE', None), story
            assert one['migrations'].count(
                ['live-migration', 'completed', row.task.to_host]) == 1, story
            # What a thawed executor has asked for again, Nova has refused.
            others = [m for m in one['migrations'] if m[1] != 'error']
            assert len(others) == 1, story
            assert 1 <= one['posts'] <= 1 + self._asked_again(), story
            assert len(one['migrations']) <= one['posts'], story
        held = self.store.history.read_history('_unassigned_', time.time()).cooling
        assert self._cooldown == 0 or set(held) >= set(self.uuids), story
        self.counted = {
            'migrations': sum(len(one['migrations']) for one in seen.values()),
            'posts': sum(one['posts'] for one in seen.values()),
            'epochs': max(lease.epoch for lease in self.leases()),
            'plans': len(self.store.plans.list_plans(1000))}

    def _fallen(self, how: str) -> int:
        return sum(1 for d in self.everyone if d.fell and d.fall.how == how)

    def _asked_again(self) -> int:
        """What cannot be fenced: a freeze between the last look and the request."""
        return sum(1 for d in self.daemons['executor'] if d.fall is not None
                   and (d.fall.point, d.fall.how) == ('before-post', 'stop'))


def _with_heir(falls: tuple[Fall, ...]) -> tuple[Fall | None, ...]:
    return falls if falls and falls[-1].meanwhile else (*falls, None)
