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


"""One run: a drain of four instances while daemons, database and broker fall.

Engines and executors are real processes, each started when its predecessor has
fallen; the last of each is well. A stopped one thaws when the last one has
taken over. Then the load turns so that the cloud would be balanced the other
way at once, which only the cooldown of the instances forbids.
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import tables
from tests.integration.crash import child

TOP = pathlib.Path(__file__).resolve().parents[3]
COUNT = 4
#: Seconds for anything that takes a few.
PATIENCE = 180
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


@dataclasses.dataclass(frozen=True)
class Fall:
    """A daemon's end at a point; ``how`` is ``kill`` or ``stop``.

    A stop inside ``meanwhile`` (a method of :class:`Run`) is no fall: the
    process goes on when that has returned.
    """

    point: str
    how: str
    nth: int = 0
    meanwhile: str = ''

    def __str__(self) -> str:
        return f'{self.point}-{self.how}{self.meanwhile and "-" + self.meanwhile}'


class Process:
    """A process of ours; its log is kept."""

    def __init__(self, name: str, arguments: list[str], directory: pathlib.Path) -> None:
        self.name = name
        self.log = directory / f'{name}.log'
        with open(self.log, 'ab') as out:
            self.popen = subprocess.Popen(
                [sys.executable, '-W', 'ignore', '-m', *arguments], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=out, text=True, cwd=TOP,
                env={**os.environ, 'PYTHONPATH': str(TOP), 'OPENBLAS_NUM_THREADS': '1',
                     'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'})

    def tell(self, text: str) -> None:
        self.popen.stdin.write(text + '\n')
        self.popen.stdin.flush()

    def hear(self) -> str:
        line = self.popen.stdout.readline()
        assert line, f'{self.name} has ended: {self.text()[-3000:]}'
        return line

    def text(self) -> str:
        return self.log.read_text(errors='replace')

    def signal(self, number: int) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    @property
    def stopped(self) -> bool:
        try:
            stat = pathlib.Path(f'/proc/{self.popen.pid}/stat').read_text()
        except OSError:
            return False
        return stat.rpartition(')')[2].split()[0] in 'Tt'

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self.popen.wait(60)
        for pipe in (self.popen.stdin, self.popen.stdout):
            pipe.close()


class Daemon(Process):
    """An engine or executor of a run, and how it falls."""

    def __init__(self, name: str, role: str, fall: Fall | None, config: pathlib.Path,
                 directory: pathlib.Path) -> None:
        self.fall = fall
        self.begun = self.fell = self.thawed = False
        crash = []
        if fall is not None:
            point = child.POINTS[role][fall.point]
            crash = [fall.point, str(fall.nth or point.nth), fall.how]
        super().__init__(name, ['tests.integration.crash.child', role, *crash, '--',
                                '--config-file', str(config)], directory)

    def begin(self) -> None:
        assert self.hear() == 'ready\n'
        self.tell('go')
        self.begun = True

    def look(self) -> None:
        """Whether it has fallen by now; a wrong end is an error."""
        status = self.popen.poll()
        if self.fall is None or self.fell:
            assert status is None or (self.fell and self.fall.how == 'kill'), (
                f'{self.name} has ended by itself ({status}): {self.text()[-3000:]}')
        elif status is not None:
            assert (self.fall.how, status) == ('kill', -signal.SIGKILL), self.text()[-3000:]
            self.fell = True
        elif self.stopped:
            assert self.fall.how == 'stop'
            self.fell = True

    def thaw(self) -> None:
        if self.fall is not None and self.fall.how == 'stop' and not self.thawed:
            self.signal(signal.SIGCONT)
            self.thawed = True

    def leave(self) -> None:
        """SIGTERM ends it well, also what had been frozen."""
        if self.begun and self.popen.poll() is None:
            self.signal(signal.SIGTERM)
            assert self.popen.wait(PATIENCE) == 0, f'{self.name}: {self.text()[-3000:]}'

    def owns(self, name: str | None) -> bool:
        """Whether it is the owner or worker of that name (see store.owners)."""
        return name is not None and name.split(':')[-2] == str(self.popen.pid)


class Cloud(Process):
    """The process of :mod:`cloud`."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__('cloud', ['tests.integration.crash.cloud'], directory)
        self._urls: dict[str, str] = {}

    @property
    def urls(self) -> dict[str, str]:
        if not self._urls:
            self._urls = json.loads(self.hear())
        return self._urls

    def do(self, what: str, **arguments: Any) -> Any:
        assert self.urls
        self.tell(json.dumps({'do': what, **arguments}))
        return json.loads(self.hear())


class Run:
    """One drain.

    :param database: a server with ``create(name)``, ``stop`` and ``start``.
    :param broker: a RabbitMQ.
    """

    number = 0

    def __init__(self, cloud: Cloud, database: Any, broker: Any, directory: pathlib.Path, *,
                 engines: tuple[Fall, ...] = (), executors: tuple[Fall, ...] = (),
                 instance_cooldown: int = 900) -> None:
        Run.number += 1
        self.cloud, self.database, self.broker = cloud, database, broker
        self.url = database.create(f'kronos_{os.getpid()}_{Run.number}')
        self.store = api.Store.from_url(self.url)
        self._cooldown = instance_cooldown
        self._directory = directory
        config = directory / 'kronos.conf'
        config.write_text(self._config())
        (directory / 'policies.yaml').write_text(POLICIES)
        self.daemons = {
            role: [Daemon(f'{role}-{n}', role, fall, config, directory)
                   for n, fall in enumerate((*falls, None))]
            for role, falls in (('engine', engines), ('executor', executors))}
        self.uuids = cloud.do('begin', count=COUNT)
        self._load(host1=0.5, host2=0.1, host3=0.1)

    def _config(self) -> str:
        urls = self.cloud.urls
        return f"""[DEFAULT]
debug = true
transport_url = {self.broker.url}
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
connection = {self.url}
[nova]
auth_type = admin_token
endpoint = {urls['nova']}
token = fake
endpoint_override = {urls['nova']}
placement_endpoint_override = {urls['placement']}
"""

    def _load(self, **hosts: float) -> None:
        self.cloud.do('load', hosts=hosts, instances=dict.fromkeys(self.uuids, 0.2))

    @property
    def everyone(self) -> list[Daemon]:
        return [d for chain in self.daemons.values() for d in chain]

    # What happens.

    def go(self) -> dict[str, Any]:
        """The whole run; returns what was counted.

        :raises AssertionError: something was lost, or done twice.
        """
        started = time.monotonic()
        try:
            for chain in self.daemons.values():
                chain[0].begin()
            self.wait(self._drained, 'every instance to leave host1 and every fall to happen')
            for daemon in self.everyone:
                daemon.thaw()
            # In whatever order the last ones went, both must still be at work.
            self._turn()
            self.verdict()
            for daemon in self.everyone:
                daemon.leave()
            self.verdict()
            for daemon in self.everyone:
                text = daemon.text()
                assert 'Traceback' not in text and 'defect of ours' not in text, (
                    f'{daemon.name}: {text[-6000:]}')
            return {'seconds': time.monotonic() - started, **self.counted}
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
            try:
                if holds():
                    return
            except exception.StoreError:
                pass  # it has been killed, or has no tables yet
            assert time.monotonic() < until, f'waited {PATIENCE} s in vain for {what}'
            time.sleep(0.1)

    def _advance(self) -> None:
        """Who has fallen is followed by the next."""
        for chain in self.daemons.values():
            for one, after in zip(chain, [*chain[1:], None], strict=True):
                one.look()
                if one.fell and one.fall.meanwhile:
                    if not one.thawed:
                        getattr(self, one.fall.meanwhile)()
                        one.thaw()
                    if after is not None and not after.begun:
                        after.begin()
                elif one.fell and after is not None and not after.begun:
                    after.begin()
            last = chain[-1]
            if last.begun and any(d.fell and not d.thawed for d in chain):
                try:
                    taken = self._has_taken_over(last)
                except exception.StoreError:
                    taken = False
                if taken:
                    for daemon in chain:
                        if daemon.fell:
                            daemon.thaw()

    def _has_taken_over(self, last: Daemon) -> bool:
        if 'engine' in last.name:
            return any(last.owns(lease.owner) for lease in self.leases()) and bool(self.tasks())
        return any(last.owns(row.worker) for row in self.tasks())

    def _drained(self) -> bool:
        rows = self.tasks()
        return (all(d.fell or d.fall is None for d in self.everyone)
                and all(chain[-1].begun for chain in self.daemons.values())
                and {row.task.instance_uuid for row in rows} >= set(self.uuids)
                and all(row.task.state.terminal for row in rows))

    def _turn(self) -> None:
        """Let the load wish them elsewhere, for some cycles of a well engine."""
        self._load(host1=0.0, host2=0.9, host3=0.1)
        for _ in range(MORE_CYCLES):
            before = [lease.planned_at for lease in self.leases()]
            self.wait(lambda b=before: [lease.planned_at for lease in self.leases()] != b,
                      'another cycle')
        self.wait(lambda: not self.store.flights(), 'the last tasks to end')

    def restart_database(self) -> None:
        self.database.stop(signal.SIGKILL)
        time.sleep(2)
        self.database.start()

    def restart_broker(self) -> None:
        self.broker.stop(signal.SIGKILL)
        time.sleep(2)
        self.broker.start()

    # What is seen.

    def leases(self) -> list[Any]:
        with self.store.engine.connect() as connection:
            return list(connection.execute(sa.select(tables.lease)))

    def tasks(self) -> list[Any]:
        return [row for plan in self.store.plans(1000)
                for row in self.store.tasks(plan.plan_id)]

    def verdict(self) -> None:
        """Each instance migrated exactly once, none lost, every task ended in a
        known state, no second plan in the cooldown."""
        rows = self.tasks()
        seen = self.cloud.do('look')
        story = json.dumps({'nova': seen, 'tasks': [str(row) for row in rows]}, indent=1)
        assert sorted(row.task.instance_uuid for row in rows) == sorted(self.uuids), (
            f'an instance was planned twice, or never: {story}')
        assert {row.task.state for row in rows} == {TaskState.COMPLETED}, story
        assert not self.store.flights(), story
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
        held = self.store.history('_unassigned_', time.time()).cooling
        assert self._cooldown == 0 or set(held) >= set(self.uuids), story
        self.counted = {
            'migrations': sum(len(one['migrations']) for one in seen.values()),
            'posts': sum(one['posts'] for one in seen.values()),
            'epochs': max(lease.epoch for lease in self.leases()),
            'plans': len(self.store.plans(1000))}

    def _asked_again(self) -> int:
        """What cannot be fenced: a freeze between the last look and the request."""
        return sum(1 for d in self.daemons['executor'] if d.fall is not None
                   and (d.fall.point, d.fall.how) == ('before-post', 'stop'))


def skip_without(fall: Fall, role: str, dialect: str) -> None:
    if (dialect == 'sqlite' and fall.how == 'stop'
            and child.POINTS[role][fall.point].in_transaction):
        pytest.skip('whoever freezes in a transaction holds the only write lock of SQLite')
