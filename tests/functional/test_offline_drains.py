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

"""A drain shuts an instance down whose live migration was too late, on a real Nova."""

from kronos_nova import model
from kronos_nova.model import TaskState
from tests import marks
from tests.functional import test_first_light


class OfflineDrainTestCase(test_first_light.RebalancedTestCase):

    @marks.turns(3)
    def test_instance_leaves_offline_after_a_late_live_migration(self) -> None:
        server = self.boot(host='host1')
        for name, value in {'evacuate_disabled_hosts': True, 'drain_offline': 'allow',
                            'instance_cooldown': 0}.items():
            self.conf.set_override(name, value, 'engine')
        self.load({'host1': 0.2, 'host2': 0.2, 'host3': 0.1}, {server['id']: 0.2})
        with self.disabled('host1'):
            self.plan()
            self.end_as_late()
            self.assertEqual({server['id']}, self.history().quarantined.keys())
            self.assertEqual('host1', self.host_of(server))
            (move,) = self.plan()['moves']
            self.assertEqual((server['id'], 'offline'), (move['instance_uuid'], move['method']))
            self.work()
            self.assertEqual(('host3', 'ACTIVE'), (
                self.host_of(server), self.api.get_server(server['id'])['status']))
            migration = self.migrations(server)[0]
            self.assertEqual(('migration', 'confirmed'),
                             (migration['migration_type'], migration['status']))
            plan = self.store.plans.list_plans()[0]
            (row,) = self.store.tasks.list_plan_tasks(plan.plan_id)
            self.assertEqual((TaskState.COMPLETED, model.MoveMethod.OFFLINE),
                             (row.task.state, row.task.method), row.error)
            self.assertEqual({}, self.history().late_drains, 'once')

    def end_as_late(self) -> None:
        """End the planned task as an executor ends one whose migration it has aborted."""
        now = self.worker._clock()
        row = self.store.tasks.claim_task('gone', None, now, per_scope=9, total=9, claim_seconds=60)
        self.store.tasks.update_state(row.task.task_id, 'gone', [TaskState.CLAIMED],
                                      TaskState.SUBMITTED, now, submitted_at=now)
        task = row.task
        result = model.TaskResult(
            task.task_id, task.plan_id, task.aggregate, task.instance_uuid, task.from_host,
            task.to_host, False, 'it took longer', 'MigrationTimeout')
        self.assertEqual([], self.store.tasks.finish_task(
            task, result, TaskState.FAILED, now, worker='gone', instance_cooldown=0,
            quarantine_seconds=3600.0))

    def history(self) -> model.MoveHistory:
        return self.store.history.read_history(model.UNASSIGNED, self.worker._clock())
