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


"""Nested and shared providers from boot to live migration, on a real Nova and Placement.

Nova makes every allocation. Its nova-computes report trees and reshape them with POST
/reshaper when they are restarted, between plan and execution; and others write to
Placement while Nova claims for our migrations.
"""

import dataclasses
import json
from typing import Any
from unittest import mock

import fixtures

from kronos_nova import model
from kronos_nova.conf import policies
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.engine import placement_check
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import writer as snapshots
from kronos_nova.rebalancer.store import rows
from tests import marks
from tests.functional import nested_cloud
from tests.functional import placement_writer
from tests.functional import test_tools

#: What Nova is to ask for; a group of its own may be served by a sharing provider.
SPECS = {'resources:VGPU': '1', 'resources:CUSTOM_FPGA': '1',
         'resources_LICENSE:CUSTOM_LICENSE': '1'}
AMOUNTS = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1, 'VGPU': 1, 'CUSTOM_FPGA': 1}
#: Another tree: of each class but DISK_GB nothing is left on the root.
NUMA = {'VGPU': 'card0', 'CUSTOM_FPGA': 'fpga0', 'VCPU': 'numa0', 'MEMORY_MB': 'numa0'}

#: Nothing at all is.
HOLLOW = {**NUMA, 'DISK_GB': 'disk0'}


class NestedCase(test_tools.ToolsCase):
    """Each host has its vGPUs on a child of its root; licences are shared by all."""

    hosts = ('host1', 'host2')

    def configure(self) -> None:
        super().configure()
        # It is Nova's own, and takes longer than the answers do.
        self.flags(response_validation='ignore', group='api')
        self.layouts: dict[str, dict[str, str]] = {}
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.fake.MediumFakeDriver', nested_cloud.TreeDriver))
        self.useFixture(fixtures.MockPatchObject(
            nested_cloud.TreeDriver, 'layouts', self.layouts))
        self.useFixture(fixtures.MonkeyPatch(
            'nova.scheduler.client.report.SchedulerReportClient._set_up_and_do_reshape',
            nested_cloud.reshape_one_tree))

    def setUp(self) -> None:
        super().setUp()
        self.engine._scopes.confirming = placement_check.PlanConfirmation(
            self.conf, self.connection)
        # What was moved, or was not, is to be planned again at once.
        settings = dataclasses.replace(retry.build_settings(self.conf), retry_backoff=0.0)
        self.worker = worker.Worker(
            self.store, nova_executor.NovaExecutor(self.conf, self.connection), settings,
            lambda event, result: self.results.append((event, result)))
        self.writer = placement_writer.Writer(self.connection)
        self.writer.done('PUT', '/resource_classes/CUSTOM_LICENSE')
        self.licences = self.writer.create('licences', CUSTOM_LICENSE=10)
        self.writer.tell(self.licences, placement_api.SHARES)
        self.writer.join(self.licences, nested_cloud.EVERYWHERE)
        self.flavor = {'id': self._create_flavor(
            vcpu=1, memory_mb=512, disk=1, ephemeral=0, extra_spec=SPECS)}
        self.contention = self.useFixture(nested_cloud.Contention())
        self.placement.fixture.conf_fixture.conf.set_override(
            'allocation_conflict_retry_count', 2, 'placement')

    def new(self, host: str) -> str:
        return str(self.boot(host=host, flavor=self.flavor)['id'])

    def held(self, uuid: str) -> dict[str, dict[str, int]]:
        """What a consumer has, by the names of providers."""
        names = {p['uuid']: p['name'] for p in self.writer.done(
            'GET', '/resource_providers')['resource_providers']}
        return {names[provider]: found['resources'] for provider, found in
                self.writer.consumer(uuid)['allocations'].items()}

    def expected(self, host: str) -> dict[str, dict[str, int]]:
        """What an instance is to have on a host, by the host's layout of now."""
        layout = self.layouts.get(host, nested_cloud.CARD)
        found: dict[str, dict[str, int]] = {'licences': {'CUSTOM_LICENSE': 1}}
        for name, amount in AMOUNTS.items():
            owner = f'{host}_{layout[name]}' if name in layout else host
            found.setdefault(owner, {})[name] = amount
        return found

    def assert_at(self, host: str, *uuids: str) -> None:
        """Assert that the host has the instances, with exactly the expected allocations."""
        for uuid in uuids:
            self.assertEqual(host, self.host_of({'id': uuid}))
            self.assertEqual(self.expected(host), self.held(uuid))
            self.assertEqual([{}] * len(self.migrations({'id': uuid})),
                             [self.held(m['uuid']) for m in self.migrations({'id': uuid})])

    def reshape(self, host: str, layout: dict[str, str]) -> None:
        """Nova does, when a nova-compute starts."""
        self.layouts[host] = layout
        # As Nova's fixtures have it; our own clients are not at work meanwhile.
        with mock.patch('openstack.proxy.Proxy.get_endpoint', autospec=True,
                        return_value='http://nowhere'):
            self.computes[host] = self.restart_compute_service(self.computes[host])

    def heat(self, hot: str, cold: str, *uuids: str) -> None:
        """Set loads that only a move of each instance from the hot to the cold host can level."""
        self.load({**dict.fromkeys(self.hosts, 0.45), hot: 0.8, cold: 0.1},
                  dict.fromkeys(uuids, 0.35))

    def planned(self) -> list[tuple[str, str, str]]:
        return [(m['instance_uuid'], m['from_host'], m['to_host']) for m in self.plan()['moves']]

    def carried_out(self) -> rows.TaskRow:
        """The row of the newest plan's only task, when nothing is live any more."""
        self.work()
        task, = self.store.tasks.list_plan_tasks(self.store.plans.list_plans()[0].plan_id)
        return task

    def assert_completed(self, task: rows.TaskRow) -> None:
        self.assertIs(model.TaskState.COMPLETED, task.task.state, task.error)

    def assert_no_host_is_blamed(self) -> None:
        history = self.store.history.read_history(model.UNASSIGNED, self.worker._clock())
        self.assertEqual(({}, frozenset()),
                         (dict(history.quarantined), frozenset(history.quarantined_hosts)))


class NestedTestCase(NestedCase):

    @marks.turns(12)
    def test_nested_instances_move_despite_reshapes(self) -> None:
        one, two = self.new('host1'), self.new('host2')
        self.assert_at('host1', one)
        self.assert_at('host2', two)
        self.heat('host1', 'host2', one)
        self.assertEqual([(one, 'host1', 'host2')], self.planned())
        # Of the destination, between plan and execution, with what the other has there.
        self.reshape('host2', NUMA)
        self.assert_at('host2', two)
        self.assertIn('tree-reshaped', str(self.carried_out().error))
        self.assertEqual([], self.migrations({'id': one}))
        self.assert_no_host_is_blamed()
        self.assertEqual([(one, 'host1', 'host2')], self.planned())
        self.assert_completed(self.carried_out())
        self.assert_at('host2', one, two)

        # Of the source, with what both have there.
        self.heat('host2', 'host1', one)
        self.assertEqual([(one, 'host2', 'host1')], self.planned())
        self.reshape('host2', {**NUMA, 'VGPU': 'card1'})
        self.assert_at('host2', one, two)
        self.assertIn('source-reshaped', str(self.carried_out().error))
        self.assert_no_host_is_blamed()
        snapshot = self.recorded()
        live = self.plan()
        self.assertEqual(live, {**self.replayed(snapshot), 'timings': live['timings']})
        self.assert_completed(self.carried_out())
        self.assert_at('host1', one)
        self.assert_at('host2', two)

        # Of the source, while Nova is at work on it: who reshapes has to try again.
        self.heat('host1', 'host2', one)
        self.assertEqual([(one, 'host1', 'host2')], self.planned())
        answers = self.reshaped_on_the_way('host1', one)
        self.assert_completed(self.carried_out())
        self.assertEqual([409, 204], answers)
        self.assert_at('host2', one)
        self.assert_no_host_is_blamed()

        # Where Nova could not: its scheduler finds no host by an allocation that has
        # nothing on its root, and from such a source it would leave all of it behind.
        self.reshape('host1', HOLLOW)
        self.heat('host2', 'host1', one)
        row = self.plan()
        self.assertEqual(([], {'no-inventory'}), (row['moves'], set(row['rejections'])))
        self.reshape('host2', HOLLOW)
        found = self.engine._collector.collect_cluster(self.engine._clock()).instances
        for uuid in (one, two):
            self.assertIn('no allocation on the root resource provider', str(found[uuid].pinned))

    def recorded(self) -> str:
        """A snapshot of now, by the engine's own collector and source."""
        policy_set = policies.load_policies(self.policies_file)
        return snapshots.write_snapshot(self.directory, recorder.read_recording(
            self.engine._collector, self.engine._source, self.store, policy_set,
            [model.UNASSIGNED], self.engine._clock))

    def replayed(self, snapshot: str) -> dict[str, Any]:
        """What kronos-replay, a process of its own, plans on it."""
        done = self.run_tool('replay', snapshot, '--format', 'json')
        self.assertEqual(0, done.returncode, done.stderr)
        row, = json.loads(done.stdout)['aggregates']
        return dict(row)

    def reshaped_on_the_way(self, host: str, uuid: str) -> list[int]:
        """The FPGAs of a host go to the child that has its vGPUs, by one who has read all
        before the migration; returns what Placement will have answered."""
        root = self._get_provider_uuid_by_host(host)
        child, = (p['uuid'] for p in self.writer.done(
            'GET', f'/resource_providers?in_tree={root}')['resource_providers']
            if p['uuid'] != root)
        answers: list[int] = []

        def body(consumer: str) -> dict[str, Any]:
            found = self.writer.consumer(consumer)['allocations']
            held = {u: dict(found[u]['resources']) for u in found}
            held[child]['CUSTOM_FPGA'] = held[root].pop('CUSTOM_FPGA')
            return self.writer.reshaping(
                {root: dict.fromkeys(('VCPU', 'MEMORY_MB', 'DISK_GB'), 1),
                 child: nested_cloud.DEVICES}, {consumer: held})

        stale = body(uuid)
        driver = self.computes[host].driver
        really = driver.live_migration

        def live_migration(*args: Any, **kwargs: Any) -> Any:
            # From now on it is the migration that has what is on the source.
            answers.append(self.writer.call('POST', '/reshaper', stale).status_code)
            running = max(self.migrations({'id': uuid}), key=lambda m: int(m['id']))
            answers.append(self.writer.call(
                'POST', '/reshaper', body(running['uuid'])).status_code)
            self.layouts[host] = {**nested_cloud.CARD, 'CUSTOM_FPGA': 'gpu'}
            # As it does when it starts, nova-compute reads the tree of now.
            self.computes[host].manager.reportclient.clear_provider_cache()
            return really(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(driver, 'live_migration', live_migration))
        return answers


@marks.long
class ContentionTestCase(NestedCase):
    """Generations rise just when Nova claims for a migration of ours."""

    def go(self, uuid: str, source: str, destination: str) -> None:
        self.heat(source, destination, uuid)
        self.assertEqual([(uuid, source, destination)], self.planned())
        self.contention.answers.clear()

    def conflicts(self) -> list[str]:
        return [method for method, status in self.contention.answers if status == 409]

    def test_generation_conflicts_are_retried_by_nova_and_executor(self) -> None:
        uuid = self.new('host1')
        self.go(uuid, 'host1', 'host2')
        # Nova tries four times to hand the allocation to the migration, and as often to
        # claim; of that it says what it says of a host that is full.
        self.contention.provider = {'post': 5, 'put': 5}
        task = self.carried_out()
        self.assert_completed(task)
        self.assertEqual(['post'] * 5 + ['put'] * 5, self.conflicts())
        self.assertEqual(
            [('host2', 'NovaClientError'), ('host2', 'MigrationFailed'), ('host2', None)],
            [(a.to_host, a.error_type) for a in task.attempts])
        for attempt, text in zip(task.attempts, (
                'Unable to replace instance claim', 'No valid host'), strict=False):
            self.assertIn(text, str(attempt.error))
        self.assert_at('host2', uuid)
        self.assert_no_host_is_blamed()

        # A claim of another's for the same instance: Nova takes its records for broken.
        self.go(uuid, 'host2', 'host1')
        self.contention.before['put'] = lambda: self.writer.allocate(
            uuid, {self.licences: {'CUSTOM_LICENSE': 1}})
        self.assertIs(model.TaskState.FAILED, self.carried_out().task.state)
        self.assertEqual(['put'], self.conflicts())
        self.assertEqual('ERROR', self.admin_api.get_server(uuid)['status'])
        history = self.store.history.read_history(model.UNASSIGNED, self.worker._clock())
        self.assertEqual(({uuid}, frozenset()),
                         (set(history.quarantined), frozenset(history.quarantined_hosts)))
