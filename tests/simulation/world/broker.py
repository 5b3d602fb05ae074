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

"""Messages between engines and executors, which may be lost, late or lies."""

import collections
from typing import Any, TYPE_CHECKING

import oslo_messaging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.messaging import listeners
from kronos_nova.rebalancer.messaging import messages
from tests.simulation.world import database

if TYPE_CHECKING:
    from tests.simulation.world import run as runs

#: What nobody but a fool or a foe would send.
MALFORMED: tuple[Any, ...] = (
    None, [], 'task', {}, {'task_id': 1}, {'version': '9.9'}, {'to_host': 'x' * 300})


class Broker:
    """Delivers wake-ups to any executor, results to every engine."""

    def __init__(self, run: 'runs.Run') -> None:
        self.run = run
        self._queue: list[tuple[float, str, Any]] = []
        #: How often was told: (task, event, retry).
        self.told: collections.Counter[tuple[str, str, int]] = collections.Counter()

    def cast(self, task: model.Task) -> None:
        if not self.run.outage.meet_broker():
            self._send('wake', messages.to_wire(task))

    def announce(self, event: str, scope: str, payload: dict[str, Any]) -> None:
        self._deliver()
        self.run.outage.announced(payload['service'])
        self.run.judge_told()

    def _deliver(self) -> None:
        if self.run.outage.meet_broker():
            raise oslo_messaging.MessageDeliveryFailure('the broker is away')

    def notify(self, event: str, result: model.TaskResult) -> None:
        self._deliver()
        self.told[result.task_id, event, result.retry_count] += 1
        self.run.judge_told()
        self._send(event, messages.to_payload(result))

    def _send(self, kind: str, payload: dict[str, Any]) -> None:
        hit, rng = self.run.faults.hit, self.run.rng
        if hit('message is dropped'):
            return
        at = self.run.now
        if hit('message is delayed'):
            at += rng.uniform(30, 1500)
        if hit('message is forged'):
            payload = {**payload, 'to_host': rng.choice(list(self.run.cloud.hosts)),
                       'instance_uuid': rng.choice(list(self.run.cloud.instances)),
                       'task_id': self.run.cloud.uuid()}
        elif hit('message is malformed'):
            payload = rng.choice(MALFORMED)
        where = len(self._queue)
        if self._queue and hit('message is reordered'):
            where = rng.randrange(where)
        self._queue.insert(where, (at, kind, payload))
        if hit('message is duplicated'):
            self._queue.append((at + rng.uniform(0, 60), kind, payload))

    def advance(self) -> None:
        due = [m for m in self._queue if m[0] <= self.run.now]
        if not due:
            return
        self._queue = [m for m in self._queue if m[0] > self.run.now]
        before = database.version(self.run.raw)
        for _at, kind, payload in due:
            if kind == 'wake':
                self._wake(payload)
            else:
                self._tell(kind, payload)
        self.run.judge('messages_change_nothing', database.version(self.run.raw) == before,
                       'a message changed the database')

    def _wake(self, payload: Any) -> None:
        process = self.run.rng.choice(self.run.executors)
        scope = payload.get('aggregate', '') if isinstance(payload, dict) else ''
        listeners._WakeUp(scope, process.wake, self._doubt).execute_migration({}, payload)

    def _doubt(self, task: model.Task) -> str | None:
        """As the executor's wiring asks the table."""
        try:
            return self.run.store.tasks.validate_cast(task)
        except exception.StoreError:
            return None

    def _tell(self, event: str, payload: Any) -> None:
        for process in self.run.engines:
            if process.engine is not None:
                listeners._NotificationEndpoint(process.engine.log_result).info({}, 'p', event,
                                                                                payload, {})
