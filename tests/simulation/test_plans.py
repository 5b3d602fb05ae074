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

"""Plans carried out by real workers from a real store, while much fails.

Planner, tasks, store and worker are real; Nova is a state of each mover,
which is judged by counting whenever a migration begins: also on alternates,
also after failures, and without any help of a pre-flight check.
"""

import collections
import os
import random

import pytest

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import tasks
from tests.fixtures import stores
from tests.unit import clouds
from tests.unit.rebalancer import brute

SEEDS = int(os.environ.get('KRONOS_PLAN_SEEDS', '40'))
#: What `tools/test long` runs.
LONG_SEEDS = 90
SETTINGS = retry.RetrySettings(per_scope=99, total=99, per_source=99, per_destination=99,
                               look_interval=5.0, retry_backoff=20.0, migration_timeout=1e6)


class Nova(base.Executor):
    """A Nova that begins, and later ends or fails, the requested migrations."""

    def __init__(self, rng, judge, moves, failures):
        self.rng, self.judge, self.failures = rng, judge, failures
        self.moves = {m.instance_uuid: m for m in moves}
        self.state = dict.fromkeys(self.moves, brute.WAITING)
        self.begun = collections.Counter()
        self.elsewhere = 0
        self.broken = []

    def pre_flight(self, task, known):
        return 'marker'

    def submit(self, task, may_send=lambda: True):
        uuid = task.instance_uuid
        why = self.judge.illegal(self.moves[uuid], task.to_host, self.state)
        if why:
            self.broken.append((why, task.to_host, uuid, dict(self.state)))
        missing = [u for u in task.requires if self.state[u][0] != 'landed']
        if missing:
            self.broken.append(('begun before what it requires', uuid, missing))
        if self.rng.random() < self.failures:
            raise exception.MigrationFailed(instance_uuid=uuid, problem='no valid host')
        self.begun[uuid] += 1
        self.elsewhere += task.to_host != self.moves[uuid].to_host
        self.state[uuid] = 'flying', task.to_host
        return 'req'

    def read_progress(self, task, marker):
        roll = self.rng.random()
        if roll < 0.5:
            return base.MigrationProgress(base.MigrationStage.RUNNING)
        if roll < 0.5 + self.failures / 2:
            self.state[task.instance_uuid] = brute.WAITING
            return base.MigrationProgress(base.MigrationStage.FAILED)
        self.state[task.instance_uuid] = 'landed', task.to_host
        return base.MigrationProgress(base.MigrationStage.COMPLETED)

    def post_flight(self, task):
        assert self.state[task.instance_uuid] == ('landed', task.to_host)


class Run:
    """A plan from its planning to the end of its last task."""

    def __init__(self, seed, failures):
        rng = random.Random(seed)
        request = brute.crowded(seed)
        self.plan = planner.plan(request)
        judge = brute.Brute(request, self.plan, brute.ceilings_of(request))
        self.nova = Nova(rng, judge, self.plan.moves, failures)
        self.now = clouds.NOW
        self.store = stores.in_memory(lambda: self.now)
        ids = (clouds.uuid_of(f'task {n}') for n in range(1000))
        made = tasks.from_plan(self.plan, request.cluster, ('cpu',), plan_id='p', now=self.now,
                               stagger_seconds=0.0, max_retries=1, new_id=lambda: next(ids))
        self.task_ids = [t.task_id for t in made]
        lease = self.store.leases.acquire_lease('scope', 'engine', 30, 'hash')
        self.store.plans.save_plan(lease, self.plan, made, plan_id='p', now=self.now, dry_run=False,
                                   cooldown=600, instance_cooldown=900)
        self.workers = [worker.Worker(self.store, self.nova, SETTINGS, clock=lambda: self.now,
                                      name=f'w{n}') for n in range(2)]
        self.rng = rng

    def go(self):
        for _ in range(2000):
            if all(t.task.state.is_terminal for t in self.rows()):
                return self
            self.rng.choice(self.workers).run_once(self.now)
            self.now += 3.0
        raise AssertionError('some task never ends')

    def rows(self):
        return [self.store.tasks.find_task(t) for t in self.task_ids]


@pytest.mark.parametrize('seeds', [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.long)])
@pytest.mark.parametrize('failures', [0.0, 0.3, 0.7])
def test_no_hard_rule_is_broken_at_any_step_despite_failures(failures, seeds):
    seen = collections.Counter()
    for seed in range(seeds):
        run = Run(seed, failures)
        run.go()
        assert run.nova.broken == [], seed
        rows = {r.task.instance_uuid: r for r in run.rows()}
        for uuid, row in rows.items():
            needed = [rows[u].task.state for u in row.task.requires]
            seen[row.task.state] += 1
            if any(state is not TaskState.COMPLETED for state in needed):
                assert row.task.state is TaskState.CANCELLED, (seed, uuid)
                assert not run.nova.begun[uuid], 'it began although what it requires had failed'
                seen['cancelled with what it requires'] += 1
            if row.task.state is TaskState.CANCELLED:
                assert needed, 'what requires nothing is not cancelled'
        seen['fell back'] += run.nova.elsewhere
        run.store.close()
    assert seen[TaskState.COMPLETED] > min(20, seeds // 4)
    if failures:
        assert seen[TaskState.FAILED] and seen['cancelled with what it requires'], seen
        assert seen['fell back'] > 5, seen
    else:
        assert seen.keys() <= {TaskState.COMPLETED, 'fell back'} and not seen['fell back']
