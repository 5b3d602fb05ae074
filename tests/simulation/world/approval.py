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

"""An operator whose word plans wait for, in some runs."""

import random
from typing import TYPE_CHECKING

from kronos_nova import exception
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.store import plan_decisions
from tests.unit.rebalancer.store import cases

if TYPE_CHECKING:
    from tests.simulation.world import run as runs

NAME = 'plans need approval'
#: A run needs approval with this chance.
PRESENT = 0.15
#: At each step, where something waits: some of it is decided.
DECIDES = 0.2


class Approver:
    """Of its own chance: what else happens does not hang on it."""

    name = 'operator'
    stood = 0.0

    def __init__(self, run: 'runs.Run', only: frozenset[str] | None) -> None:
        self.run, self.rng = run, random.Random(f'approval {run.seed}')
        self.present = self.rng.random() < PRESENT if only is None else NAME in only
        seconds = self.rng.choice([60, 600])
        for conf in run.confs:
            conf.set_override('mode', 'approve' if self.present else 'auto', 'engine')
            conf.set_override('approval_seconds', seconds, 'engine')
        #: Tasks that began to wait, and those of them that were let go.
        self.waited: set[str] = set()
        self.approved: set[str] = set()

    def act(self) -> None:
        """One step's worth."""
        if not self.present or self.rng.random() >= DECIDES:
            return
        try:
            for plan in self.run.store.approvals.list_waiting_plans(self.run.now):
                self._decide(plan.plan_id)
        except exception.StoreError:
            self.run.counts['commands that the database refused'] += 1
        self.run.committed(self)

    def _decide(self, plan_id: str) -> None:
        store, now, conf = self.run.store, self.run.now, self.run.confs[0].engine
        waiting = [row.task.instance_uuid for row in store.tasks.list_plan_tasks(plan_id)]
        some = None if self.rng.random() < 0.6 else [self.rng.choice(waiting)]
        said = plan_decisions.OperatorDecision(self.name, 'so be it', some)
        if self.rng.random() < 0.25:
            self.run.counts['rejected tasks'] += len(
                store.approvals.reject_plan(plan_id, now, said, conf.instance_cooldown))
            return
        try:
            approved_tasks = store.approvals.approve_plan(
                plan_id, now, said, begin_within=tasks.begin_within(conf.cooldown),
                cooldown=conf.cooldown, instance_cooldown=conf.instance_cooldown,
                approve_task=cases.count_one_approval).tasks
        except exception.StoreError:
            return  # it requires another one, which may come first next time
        self.approved.update(task.task_id for task in approved_tasks)
        self.run.counts['approved tasks'] += len(approved_tasks)

    def saw(self, task_id: str, before: str | None, after: str) -> None:
        """A step of a task."""
        if before is None and after == 'pending':
            self.waited.add(task_id)
