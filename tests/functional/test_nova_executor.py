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

"""The nova executor against a real Nova and a real Placement."""

import dataclasses
import json
import time
from typing import Any
from unittest import mock

import fixtures
from nova import context
from nova.compute import utils
from placement.objects import allocation

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import base as executors
from kronos_nova.rebalancer.executors import nova
from kronos_nova.rebalancer.executors import stale_scheduler_view
from tests import marks
from tests.functional import api
from tests.functional import base
from tests.functional import test_collector

Stage = executors.MigrationStage


class ExecutorCase(api.ApiTestCase):
    """Tasks of instances booted on host1, bound for host2."""

    def setUp(self) -> None:
        super().setUp()
        self.executor = nova.NovaExecutor(self.conf, self.connection)
        self.known = executors.StoredFacts(now=time.time())

    def task(self, server: dict[str, Any], to_host: str = 'host2',
             phase: model.Phase = model.Phase.SPREAD,
             aggregate: str = model.UNASSIGNED) -> model.Task:
        return model.Task(
            task_id='t1', plan_id='p1', aggregate=aggregate, instance_uuid=server['id'],
            from_host='host1', to_host=to_host, phase=phase)

    def pre_flight(self, task: model.Task) -> str:
        return self.executor.pre_flight(task, self.known)

    def watched(self, task: model.Task, marker: str) -> executors.MigrationProgress:
        """What looking comes to in the end."""
        def ended() -> executors.MigrationProgress | None:
            progress = self.executor.read_progress(task, marker)
            self.assertIsNot(Stage.ABSENT, progress.stage, 'once asked for, it is never absent')
            return progress if progress.stage.is_terminal else None
        found: executors.MigrationProgress = self.wait_for(ended, 'a terminal stage')
        return found

    def assert_refused(self, rule: str, task: model.Task,
                       kind: type[exception.MigrationError] = exception.PreFlightError) -> None:
        error = self.assertRaises(kind, self.pre_flight, task)
        self.assertEqual(rule, error.kwargs['rule'], str(error))
        self.assertIn(task.instance_uuid, str(error))

    def service_id(self, host: str) -> str:
        return str(self.admin_api.get_services(host=host, binary='nova-compute')[0]['id'])


class MoveTestCase(ExecutorCase):

    def test_instance_is_moved_and_verified(self) -> None:
        server = self.boot(host='host1')
        self.admin_api.put_server(server['id'], {'server': {'name': test_collector.HOSTILE}})
        task = self.task(server)
        marker = self.pre_flight(task)
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage)
        self.assertRegex(str(self.executor.submit(task)), '^req-')
        progress = self.watched(task, marker)
        self.assertIs(Stage.COMPLETED, progress.stage, progress)
        self.assertEqual(self.migrations(server)[0]['uuid'], progress.reference)
        self.executor.post_flight(task)
        measured = self.executor.read_phase_seconds(task, str(progress.reference))
        self.assertEqual(['pre_check', 'preparing', 'running', 'post_migrating'], list(measured))
        self.assertLess(sum(measured.values()), 120, 'by one clock, in whole seconds')
        self.assertEqual('host2', self.host_of(server))
        self.assertIs(Stage.COMPLETED, self.executor.read_progress(task, marker).stage,
                      'one who looks late sees it as well')
        self.assert_refused('moved-away', task)

        # Back and forth again: the marker keeps the old migrations out.
        self.live_migrate(server, 'host1')
        marker = self.pre_flight(task)
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage)

        self.live_migrate(server, 'host3')
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage,
                      'somebody else moved it, elsewhere')
        self.executor.post_flight(task)
        never = self.task(self.boot(host='host1'))
        error = self.assertRaises(exception.MigrationFailed, self.executor.post_flight, never)
        self.assertIn('it is on host1 and not on host2', str(error))

    @marks.turns(12)
    def test_refused_destination_fails_migration(self) -> None:
        server = self.boot(host='host1')
        unknown = self.task(server, to_host='host9')
        error = self.assertRaises(exception.MigrationFailed, self.executor.submit, unknown)
        self.assertIn('HTTP 400', str(error))
        self.assertIn('host9', str(error))

        task = self.task(server)
        marker = self.pre_flight(task)
        self.admin_api.put_service(self.service_id('host2'), {'status': 'disabled'})
        self.executor.submit(task)
        progress = self.watched(task, marker)
        self.assertIs(Stage.FAILED, progress.stage, progress)
        self.assertEqual(self.migrations(server)[0]['uuid'], progress.reference)
        self.assertIn('No valid host', progress.detail)
        self.assertEqual('host1', self.host_of(server))

    @marks.long
    def test_look_waits_until_nova_writes_failure_reason(self) -> None:
        """nova-conductor saves the migration's error first."""
        looked: list[executors.MigrationProgress] = []
        really = utils.EventReporter.__exit__

        def leave(reporter: Any, *raised: Any) -> Any:
            ours = reporter.event_name == 'conductor_live_migrate_instance'
            if ours:
                looked.append(self.executor.read_progress(task, marker))
            result = really(reporter, *raised)
            if ours:
                looked.append(self.executor.read_progress(task, marker))
            return result
        self.useFixture(fixtures.MockPatchObject(utils.EventReporter, '__exit__', leave))
        server = self.boot(host='host1')
        task = self.task(server)
        marker = self.pre_flight(task)
        self.admin_api.put_service(self.service_id('host2'), {'status': 'disabled'})
        self.executor.submit(task)
        self.wait_for(lambda: len(looked) > 1, 'what the refusal looked like')
        self.assertEqual([Stage.UNTOLD, Stage.FAILED], [found.stage for found in looked])
        self.assertIn('No valid host', looked[1].detail)

    @marks.long
    def test_failure_distinguishes_instance_in_error(self) -> None:
        def broken(server: dict[str, Any]) -> None:
            self.admin_api.post_server_action(
                server['id'], {'os-resetState': {'state': 'error'}})

        server = self.boot(host='host1')
        task = self.task(server)
        marker = self.pre_flight(task)
        self.admin_api.put_service(self.service_id('host2'), {'status': 'disabled'})
        self.executor.submit(task)
        self.assertFalse(self.watched(task, marker).broken)
        broken(server)
        self.assertTrue(self.watched(task, marker).broken)

        self.admin_api.put_service(self.service_id('host2'), {'status': 'enabled'})
        server = self.boot(host='host1')
        task = self.task(server)
        marker = self.pre_flight(task)
        self.executor.submit(task)
        self.assertIs(Stage.COMPLETED, self.watched(task, marker).stage)
        broken(server)
        error = self.assertRaises(exception.InstanceInError, self.executor.post_flight, task)
        self.assertIn(server['id'], str(error))
        self.assertIn('on host2', str(error))

    @marks.turns(12)
    def test_deleted_instance_cancels_task(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        marker = self.pre_flight(task)
        self._delete_server(server)
        self.assert_refused('no-such-instance', task)
        error = self.assertRaises(exception.PreFlightError, self.executor.submit, task)
        self.assertIn('deleted', str(error))
        self.assertIs(Stage.CANCELLED, self.executor.read_progress(task, marker).stage)
        error = self.assertRaises(exception.PreFlightError, self.executor.post_flight, task)
        self.assertEqual('no-such-instance', error.kwargs['rule'])

    def test_lost_answer_is_ambiguous_and_looked_up(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        marker = self.pre_flight(task)
        posts = lambda: [r for r in self.nova_api.door.requests if r[0] == 'POST']  # noqa: E731
        self.nova_api.door.lose_answer_of = lambda method, path: path.endswith('/action')
        error = self.assertRaises(exception.AmbiguousSubmit, self.executor.submit, task)
        self.assertIn('the connection broke', str(error))
        self.assertEqual(1, len(posts()), 'a POST is never repeated by itself')
        self.assertIs(Stage.COMPLETED, self.watched(task, marker).stage)
        self.executor.post_flight(task)

    def test_submit_distinguishes_refused_from_ambiguous_request(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        marker = self.pre_flight(task)
        for status, kind, said in (
                ('500 Internal Server Error', exception.AmbiguousSubmit, 'HTTP 500'),
                ('503 Service Unavailable', exception.AmbiguousSubmit, 'HTTP 503'),
                ('429 Too Many Requests', exception.NovaClientError, 'HTTP 429')):
            self.nova_api.door.answers = [
                (lambda method, path: path.endswith('/action'), status, b'{}')]
            error = self.assertRaises(kind, self.executor.submit, task)
            self.assertIn(said, str(error))
        self.nova_api.door.answers.clear()
        self.policy.set_rules({nova.POLICY: '!'}, overwrite=False)
        error = self.assertRaises(exception.NovaClientError, self.executor.submit, task)
        self.assertRegex(str(error), f'HTTP 403.*{nova.POLICY}')
        self.nova_api.httpd.shutdown()
        self.nova_api.httpd.server_close()
        for call in (lambda: self.executor.submit(task), lambda: self.pre_flight(task),
                     lambda: self.executor.read_progress(task, marker),
                     lambda: self.executor.post_flight(task)):
            error = self.assertRaises(exception.NovaClientError, call)
            self.assertIn('the endpoint cannot be reached', str(error))
        self.assertEqual([], self.migrations(server), 'nothing of it took effect')


class RightsTestCase(ExecutorCase):
    """A user with every right that the executor needs, who is no administrator."""

    user = 'kronos'
    roles = 'reader,kronos'
    project = '11111111111111111111111111111111'

    def test_denied_server_does_not_count_as_deleted(self) -> None:
        group = self.server_group('g', 'anti-affinity')
        server = self.boot(host='host1', hints={'group': group['id']})
        task = self.task(server)
        self.assertRaises(exception.NovaClientError, self.pre_flight, task)
        self.policy.set_rules({f'os_compute_api:{right}': 'role:kronos or role:admin' for right in (
            'os-services:list', 'os-hypervisors:list-detail', 'os-aggregates:index',
            'os-server-groups:index:all_projects', 'os-migrations:index',
            'os-migrations:index:all_projects', 'os-migrations:index:host', 'servers:detail',
            'servers:detail:get_all_tenants', 'os-extended-server-attributes', 'servers:show',
            'os-server-groups:show', 'os-migrate-server:migrate_live:host')}, overwrite=False)
        for error in (
                self.assertRaises(exception.NovaClientError, self.pre_flight, task),
                self.assertRaises(exception.NovaClientError, self.executor.post_flight, task),
                self.assertRaises(exception.CollectError, collector.CloudCollector(
                    self.conf, self.connection).collect_cluster, time.time())):
            self.assertIn('policy context_is_admin', str(error))


class PreFlightTestCase(ExecutorCase):

    @marks.turns(12)
    def test_pre_flight_refuses_changed_instance_state(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        self.pre_flight(task)
        self.admin_api.post_server_action(server['id'], {'lock': {}})
        self.assert_refused('locked', task)
        self.admin_api.post_server_action(server['id'], {'unlock': {}})
        self.pre_flight(task)
        self.assert_refused('moved-away', dataclasses.replace(task, from_host='host3'))
        self.conf.set_override('pinned_instances', [server['id']], 'engine')
        self.assert_refused('opted-out', task)
        self.conf.clear_override('pinned_instances', 'engine')
        self.placement.delete(f'/allocations/{server["id"]}')
        self.assert_refused('pinned', task)
        self.admin_api.post_server_action(server['id'], {'os-stop': None})
        self._wait_for_state_change(server, 'SHUTOFF')
        self.assert_refused('not-active', task)
        self.flags(shelved_offload_time=0)
        self.admin_api.post_server_action(server['id'], {'shelve': {}})
        self._wait_for_state_change(server, 'SHELVED_OFFLOADED')
        self.assert_refused('moved-away', task)

    @marks.long
    def test_pre_flight_refuses_disabled_or_down_services(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        drain = self.task(server, phase=model.Phase.EVACUATE)
        with self.disabled('host1'):
            self.assert_refused('source-disabled', task)
            self.pre_flight(drain)
        with self.disabled('host2'):
            self.assert_refused('service-disabled', task)
            self.assert_refused('service-disabled', drain)
        for host in ('host1', 'host2'):
            self.admin_api.put_service_force_down(self.service_id(host), True)
            self.assert_refused('service-down', drain)
            self.admin_api.put_service_force_down(self.service_id(host), False)
        self.pre_flight(task)

    @marks.turns(12)
    def test_pre_flight_refuses_destination_out_of_scope(self) -> None:
        server = self.boot(host='host1')
        self.assert_refused('out-of-scope', self.task(server, to_host='host9'))
        self.assert_refused('out-of-scope', self.task(server, aggregate='gone'))
        self.aggregate('rack1', 'host1')
        self.assert_refused('out-of-scope', self.task(server, aggregate='rack1'))
        self.assert_refused('out-of-scope', self.task(server))
        self.aggregate('rack2', 'host1', 'host2')
        self.pre_flight(self.task(server, aggregate='rack2'))
        self.aggregate('zone3', 'host3', availability_zone='az3')
        self.aggregate('rack3', 'host1', 'host3')
        across = self.task(server, to_host='host3', aggregate='rack3')
        self.pre_flight(across)
        self.conf.set_override('restrict_to_az', True, 'engine')
        self.assert_refused('az-differs', across)

    @marks.turns(12)
    def test_pre_flight_refuses_destination_without_room(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        uuid = self._get_provider_uuid_by_host('host2')
        self.pre_flight(task)
        now = self.placement.get(f'/resource_providers/{uuid}/inventories').body
        tight = {**now['inventories'], 'MEMORY_MB': {
            **now['inventories']['MEMORY_MB'], 'total': 500, 'max_unit': 500,
            'allocation_ratio': 1.0, 'reserved': 0}}
        self._update_inventory(uuid, now | {'inventories': tight})
        self.assert_refused('claim-unit', task, exception.PlacementRejected)
        now = self.placement.get(f'/resource_providers/{uuid}/inventories').body
        now['inventories']['MEMORY_MB'].update(total=1000, max_unit=1000, reserved=500)
        self._update_inventory(uuid, now)
        self.assert_refused('no-room', task, exception.PlacementRejected)
        self.assertEqual(204, self.placement.delete(f'/resource_providers/{uuid}').status)
        self.assert_refused('no-provider', task, exception.PlacementRejected)
        self.conf.set_override('enforce_placement_claims', False, 'engine')
        self.pre_flight(task)

    @marks.long
    def test_overcommitted_source_fails_on_placement_before_14(self) -> None:
        """Placement before 14.0 did not consider what a consumer of the write had before."""
        server = self.boot(host='host1')
        task = self.task(server)
        uuid = self._get_provider_uuid_by_host('host1')
        now = self.placement.get(f'/resource_providers/{uuid}/inventories').body
        now['inventories']['MEMORY_MB'].update(total=1000, reserved=500, allocation_ratio=1.0)
        self._update_inventory(uuid, now)
        real = allocation._check_capacity_exceeded
        with mock.patch.object(allocation, '_check_capacity_exceeded', autospec=True,
                               side_effect=lambda ctx, allocs, _before: real(ctx, allocs, {})):
            marker = self.pre_flight(task)
            self.executor.submit(task)
            progress = self.watched(task, marker)
        self.assertEqual((Stage.FAILED, 'source-overcommitted'), (progress.stage, progress.rule))
        self.assertRegex(progress.detail, f'{uuid} of host1 uses [0-9]+ MEMORY_MB of 500')

        # Placement of today lets it go.
        marker = self.pre_flight(task)
        self.executor.submit(task)
        self.assertIs(Stage.COMPLETED, self.watched(task, marker).stage)

    def test_pre_flight_refuses_group_changed_after_planning(self) -> None:
        group = self.server_group('g', 'anti-affinity')
        one = self.boot(host='host1', hints={'group': group['id']})
        task = self.task(one)
        self.pre_flight(task)
        two = self.boot(host='host2', hints={'group': group['id']})
        self.assert_refused('anti-affinity', task)
        self.pre_flight(self.task(one, to_host='host3'))
        self._delete_server(two)
        self.pre_flight(task)

        self.server_group('other', 'affinity')
        together = self.server_group('t', 'affinity')
        alone = self.boot(host='host1', hints={'group': together['id']})
        self.assert_refused('affinity-unmovable', self.task(alone))


    @marks.long
    def test_pre_flight_refuses_by_newer_stored_facts(self) -> None:
        group = self.server_group('g', 'soft-anti-affinity')
        one = self.boot(host='host1', hints={'group': group['id']})
        two = self.boot(host='host1', hints={'group': group['id']})
        task = self.task(one)
        self.pre_flight(task)
        for rule, facts in {
                'host-quarantined': {
                    'history': model.MoveHistory(quarantined_hosts=frozenset({'host2'}))},
                'host-draining': {'draining': frozenset({'host2'})},
                'quarantined': {'history': model.MoveHistory(quarantined={one['id']: 60.0})},
                'copies-disk': {
                    'history': model.MoveHistory(local_disk_hosts=frozenset({'host1'}))},
                # Claimed by another executor; Nova knows nothing of it yet.
                'group-in-flight': {'flights': (
                    model.InFlightMove(two['id'], 'host1', 'host3', 'task'),)}}.items():
            self.known = executors.StoredFacts(now=time.time(), **facts)
            self.assert_refused(rule, task)
        self.known = executors.StoredFacts(
            now=time.time(),
            history=model.MoveHistory(quarantined_hosts=frozenset({'host1', 'host3'})),
            draining=frozenset({'host1', 'host3'}))
        self.pre_flight(task)


class UnlearntTestCase(ExecutorCase):
    """What nova-scheduler does not know yet, and refuses."""

    def configure(self) -> None:
        super().configure()
        enabled = base.CONF.filter_scheduler.enabled_filters
        self.flags(enabled_filters=[*enabled, 'DifferentHostFilter', 'SameHostFilter'],
                   group='filter_scheduler')

    def synced(self) -> None:
        """What every nova-compute does each scheduler_instance_sync_interval."""
        for compute in self.computes.values():
            compute.manager._sync_scheduler_instance_info(context.get_admin_context())

    def asked(self, task: model.Task) -> executors.MigrationProgress:
        """Return the end of the migration in Nova, without the wait of the pre-flight check."""
        self.conf.set_override('scheduler_instance_sync_interval', 0, 'executor')
        marker = self.pre_flight(task)
        self.executor.submit(task)
        return self.watched(task, marker)

    def assert_waits_until_nova_knows(self, task: model.Task, rule: str = 'just-left') -> None:
        self.assert_refused(rule, task)
        progress = self.asked(task)
        self.assertIs(Stage.FAILED, progress.stage, 'else there is nothing to wait for')
        self.assertIn('No valid host', progress.detail)
        self.synced()
        self.assertIs(Stage.COMPLETED, self.asked(task).stage)
        self.conf.clear_override('scheduler_instance_sync_interval', 'executor')

    @marks.turns(12)
    def test_group_member_waits_for_freed_place(self) -> None:
        group = self.server_group('g', 'anti-affinity')
        one = self.boot(host='host1', hints={'group': group['id']})
        two = self.boot(host='host2', hints={'group': group['id']})
        alone = self.boot(host='host1')
        self.live_migrate(two, 'host3')
        self.pre_flight(self.task(alone))
        self.assert_waits_until_nova_knows(self.task(one))

    @marks.long
    def test_group_member_does_not_wait_below_group_limit(self) -> None:
        group = self.server_group('g', 'anti-affinity', max_server_per_host=2)
        one = self.boot(host='host1', hints={'group': group['id']})
        two = self.boot(host='host2', hints={'group': group['id']})
        self.live_migrate(two, 'host3')
        self.assertIs(Stage.COMPLETED, self.asked(self.task(one)).stage)

    @marks.long
    def test_different_host_instance_waits_for_freed_place(self) -> None:
        two = self.boot(host='host2')
        one = self.boot(host='host1', hints={'different_host': [two['id']]})
        self.conf.set_override('nova_enabled_filters', ['DifferentHostFilter'], 'engine')
        self.live_migrate(two, 'host3')
        self.assert_waits_until_nova_knows(self.task(one))

    @marks.long
    def test_same_host_instance_waits_for_arrival_of_partner(self) -> None:
        two = self.boot(host='host1')
        one = self.boot(host='host1', hints={'same_host': [two['id']]})
        self.conf.set_override('nova_enabled_filters', ['SameHostFilter'], 'engine')
        for _ in range(3):
            self.synced()  # until then the scheduler knows no host and reads the database
        self.live_migrate(two, 'host2')
        self.assert_waits_until_nova_knows(self.task(one), 'just-came')

    @marks.long
    def test_old_migration_causes_no_wait(self) -> None:
        group = self.server_group('g', 'anti-affinity')
        one = self.boot(host='host1', hints={'group': group['id']})
        two = self.boot(host='host2', hints={'group': group['id']})
        self.live_migrate(two, 'host3')
        later = time.time() + 120 + stale_scheduler_view.MARGIN + 5
        self.known = executors.StoredFacts(now=later)
        self.pre_flight(self.task(one))


class UnderWayTestCase(ExecutorCase):
    compute_driver = 'fake.FakeLiveMigrateDriver'

    def running(self, server: dict[str, Any]) -> None:
        self.wait_for(lambda: [m for m in self.migrations(server) if m['status'] == 'running'],
                      'a running migration')

    @marks.turns(12)
    def test_foreign_migrations_take_slots_at_both_ends(self) -> None:
        one, two = self.boot(host='host1'), self.boot(host='host1')
        self.executor.submit(self.task(one))
        self.running(one)
        self.assert_refused('no-slot', self.task(two))
        self.assert_refused('no-slot', self.task(two, to_host='host3'))
        self.conf.set_override('max_concurrent_per_source', 2, 'executor')
        self.pre_flight(self.task(two))
        self.conf.set_override('max_concurrent_per_destination', 1, 'executor')
        self.assert_refused('no-slot', self.task(two))
        self.pre_flight(self.task(two, to_host='host3'))
        # Ours were counted when the task was claimed.
        self.known = executors.StoredFacts(now=time.time(), flights=(
            model.InFlightMove(one['id'], 'host1', 'host2', 'task'),))
        self.pre_flight(self.task(two))
        self.abort(one)

    @marks.turns(12)
    def test_migration_from_other_source_host_is_watched(self) -> None:
        """As after an evacuation between our pre-flight and the arrival of our request."""
        server = self.boot(host='host3')
        task = self.task(server)
        marker = json.dumps({'migration_id': 0, 'time': 0.0})
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage)
        self.executor.submit(task)
        self.running(server)
        auth = self.connection.session.auth
        asked = self.admin_api.api_get(
            f'/servers/{server["id"]}/os-instance-actions').body['instanceActions'][0]
        auth.get_user_id = lambda session, **kw: 'another'
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage,
                      'an operator may make the same move by hand')
        auth.get_user_id = lambda session, **kw: asked['user_id']
        progress = self.executor.read_progress(task, marker)
        self.assertEqual((Stage.RUNNING, 'host3'), (progress.stage, progress.source))
        self.assertEqual(self.migrations(server)[0]['uuid'], progress.reference)
        self.abort(server)
        progress = self.executor.read_progress(task, json.dumps(
            {**json.loads(marker), 'migration_uuid': progress.reference}))
        self.assertIs(Stage.CANCELLED, progress.stage)

    @marks.turns(12)
    def test_aborted_migration_is_cancelled(self) -> None:
        group = self.server_group('g', 'soft-anti-affinity')
        server = self.boot(host='host1', hints={'group': group['id']})
        sibling = self.boot(host='host1', hints={'group': group['id']})
        task = self.task(server)
        marker = self.pre_flight(task)
        self.executor.submit(task)
        self.running(server)
        progress = self.executor.read_progress(task, marker)
        self.assertEqual((Stage.RUNNING, 'running'), (progress.stage, progress.detail))
        self.assert_refused('not-active', task)
        self.assert_refused('group-in-flight', self.task(sibling))
        second = self.assertRaises(exception.AmbiguousSubmit, self.executor.submit, task)
        self.assertIn('migrating already', str(second))
        self.assertEqual(1, len(self.migrations(server)))
        self.abort(server)
        progress = self.executor.read_progress(task, marker)
        self.assertIs(Stage.CANCELLED, progress.stage)
        error = self.assertRaises(exception.MigrationFailed, self.executor.post_flight, task)
        self.assertIn('it is on host1 and not on host2', str(error))
        self.pre_flight(self.task(sibling))
