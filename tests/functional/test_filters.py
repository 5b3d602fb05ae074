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


"""Ceilings and the rebalancer's hosts bind boots, and never a rescue."""

import time

import fixtures
from nova import context

from kronos_nova import model
from kronos_nova.feed import feed_channel
from kronos_nova.feed import worker_records
from kronos_nova.scheduler import runtime
from tests import marks
from tests.functional import base
from tests.functional import scores


class CeilingTestCase(scores.ScoredTestCase):
    fields = {'boot_ceiling': 0.7}

    def configure(self):
        super().configure()
        self.flags(kronos_weight_multiplier=0.0, group='filter_scheduler')

    def test_host_above_ceiling_is_filtered_unless_all_are(self):
        self.occupy()
        self.wait_for_scores(**self.scores)
        # host3 is stock Nova's choice and at 0.9; host2 comes next.
        self.assertEqual('host2', self.chosen())
        self.prometheus.series['cpu'] = dict.fromkeys(self.hosts, 0.8)
        self.wait_for_scores(host1=0.8, host2=0.8, host3=0.8)
        self.assertEqual(self.stock_choice, self.chosen())

    @marks.turns(12)
    def test_host_without_score_passes(self):
        self.prometheus.series['cpu'] = {'host1': 0.1, 'host2': 0.9}
        self.occupy()
        self.wait_for_scores(host1=0.1, host2=0.9)
        self.assertEqual('host3', self.chosen())


class HardCeilingTestCase(scores.ScoredTestCase):
    fields = {'boot_ceiling': 0.7}
    scores = {'host1': 0.9, 'host2': 0.9, 'host3': 0.9}

    def configure(self):
        super().configure()
        self.flags(hard_ceiling=True, group='kronos')

    def test_hard_ceiling_refuses_boots_but_not_moves(self):
        server = self.boot(host='host1')
        self.wait_for_scores(**self.scores)
        self.boot(expected_state='ERROR')
        self.live_migrate(server, 'host2')
        self.assertEqual('host2', self.host_of(server))
        self.live_migrate(server)
        self.assertNotEqual('host2', self.host_of(server))
        self._rebuild_server(server, self.glance.auto_disk_config_enabled_image['id'])
        # The fake hypervisor forgets no instance that has left it, so that a
        # server which never moved is the one to evacuate.
        lost = self.boot(host='host3')
        self.computes['host3'].stop()
        service = self.admin_api.get_services(host='host3', binary='nova-compute')[0]
        self.admin_api.put_service(service['id'], {'forced_down': True})
        self._evacuate_server(lost)
        self.assertNotEqual('host3', self.host_of(lost))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))


class FailClosedTestCase(scores.ScoredTestCase):

    @marks.turns(12)
    def test_fail_closed_refuses_boots_without_scores(self):
        self.prometheus.stop()
        server = self.boot()
        self.wait_for_no_scores('cannot be reached')
        self.flags(fail_closed=True, group='kronos')
        self.boot(expected_state='ERROR')
        self.live_migrate(server)
        self.prometheus.restart()
        self.wait_for_scores(**self.scores)
        self.boot()


class WorkerRecordTestCase(scores.ScoredTestCase):
    """The record of nova-scheduler, as kronos-engine reads it."""

    fields = {'boot_ceiling': 0.7}

    def configure(self):
        super().configure()
        for name in ('NOTICE_INTERVAL', 'RECORD_INTERVAL'):
            self.useFixture(fixtures.MonkeyPatch(f'kronos_nova.scheduler.runtime.{name}', 0.1))
        self.flags(directory=self.useFixture(fixtures.TempDir()).path, group='kronos_channel')
        self.reader = worker_records.RecordReader(base.CONF)

    def wait_for_record(self, holds, what):
        def there():
            found = list(self.reader.read().records.values())
            return len(found) == 1 and holds(found[0])

        self.wait_for(there, f'a record with {what}')

    @marks.turns(12)
    def test_worker_record_has_scores_work_and_faults(self):
        self.boot()
        self.wait_for_scores(**self.scores)
        self.boot()
        self.wait_for_record(lambda record: [f.hosts for f in record.files] == [3]
                             and record.plugins['KronosWeigher'].requests >= 2
                             and record.plugins['KronosCapacityFilter'].refused_hosts >= 1
                             and not record.faults, 'scores and work')
        self.useFixture(fixtures.MonkeyPatch(
            'kronos_nova.weighers.headroom.compute_group_weights', lambda *arguments: 1 // 0))
        self.boot()
        self.wait_for_record(lambda record: list(record.faults) == [
            ('KronosWeigher', 'ZeroDivisionError')], 'the fault')
        self.prometheus.stop()
        self.write_policies(name='other')
        self.wait_for_no_scores('cannot be reached')
        self.wait_for_record(lambda record: record.files[0].hosts == 0
                             and 'cannot be reached' in record.files[0].reason, 'the reason')


class PlacementFilterTestCase(base.NovaTestCase):
    """The engine publishes through a real cache backend, a file."""

    def configure(self):
        super().configure()
        self.useFixture(fixtures.MonkeyPatch('kronos_nova.scheduler.runtime.NOTICE_INTERVAL', 0.1))
        runtime.close()
        self.addCleanup(runtime.close)
        self.flags(enabled_filters=[*base.CONF.filter_scheduler.enabled_filters,
                                    'DifferentHostFilter', 'SameHostFilter'],
                   group='filter_scheduler')
        self.flags(directory=self.useFixture(fixtures.TempDir()).path, group='kronos_channel')
        self.channel = feed_channel.FeedChannel(base.CONF)

    def publish(self, **fields):
        now = time.time()
        notice = feed_channel.PublishedState(written_at=now, expires_at=now + 600, **fields)
        self.channel.write(notice)
        self.wait_for(lambda: runtime.get_runtime().notices.read_publication() == notice,
                      'the notice to arrive')

    def force_away(self, server, host):
        """Break a group's policy: neither the scheduler nor nova-compute judges the move."""
        self.flags(disable_group_policy_check_upcall=True, group='workarounds')
        self.admin_api.microversion = '2.67'
        self.admin_api.post_server_action(server['id'], {'os-migrateLive': {
            'host': host, 'block_migration': 'auto', 'force': True}})
        self.admin_api.microversion = self.microversion
        self.wait_for(lambda: [m['status'] for m in self.migrations(server)] == ['completed'],
                      f'{server["id"]} on {host}')
        # The source has told the scheduler that it has the instance still. The scheduler learns
        # better by this periodic task.
        for compute in self.computes.values():
            compute.manager._sync_scheduler_instance_info(context.get_admin_context())

        def known():
            states = self.scheduler_service.manager.host_manager.get_host_states_by_uuids(
                context.get_admin_context(), None, None)
            return [host] == [s.host for s in states if server['id'] in s.instances]

        self.wait_for(known, f'{server["id"]} on {host}, as the scheduler sees it')

    def hosts_of_boots(self, count=3, **kwargs):
        return {self.host_of(self.boot(**kwargs)) for _ in range(count)}

    @marks.turns(12)
    def test_draining_and_quarantined_hosts_get_boots_as_last_resort(self):
        self.publish(draining=frozenset({'host1'}), quarantined=frozenset({'host2'}))
        self.assertEqual({'host3'}, self.hosts_of_boots())
        server = self.boot(host='host1')
        self.live_migrate(server, 'host2')
        self.publish(draining=frozenset(self.hosts))
        # Not host3, which has had every boot so far: stock Nova's choice.
        self.assertLess(self.hosts_of_boots(1), {'host1', 'host2'})

    @marks.turns(3)
    def test_migrating_group_member_counts_at_destination(self):
        group = self.server_group('g', 'anti-affinity', max_server_per_host=1)
        hints = {'group': group['id']}
        first = self.boot(hints=hints)
        source = self.host_of(first)
        free = sorted(set(self.hosts) - {source})
        self.publish(flights=(model.InFlightMove(first['id'], source, free[0], 'kronos'),))
        second = self.boot(hints=hints)
        self.assertEqual(free[1], self.host_of(second))
        self.boot(hints=hints, expected_state='ERROR')
        # Its own flight does not stand in a member's way.
        self.live_migrate(first, free[0])
        self.assertEqual(free[0], self.host_of(first))

    @marks.turns(3)
    def test_boot_avoids_host_that_affinity_repair_leaves(self):
        group = self.server_group('g', 'affinity')
        hints = {'group': group['id']}
        leaving = self.boot(hints=hints, host='host1')
        # What a repair finds: somebody has forced a member apart.
        staying = self.boot(hints=hints)
        self.assertEqual('host1', self.host_of(staying))
        self.force_away(staying, 'host2')
        self.publish(flights=(model.InFlightMove(leaving['id'], 'host1', 'host2', 'kronos'),))
        self.assertEqual({'host2'}, self.hosts_of_boots(hints=hints))

    @marks.turns(12)
    def test_scheduler_hints_consider_migrating_partners(self):
        partner, settled = self.boot(host='host1'), self.boot(host='host2')
        apart = {'different_host': partner['id']}
        beside = {'same_host': [partner['id'], settled['id']]}
        self.publish(flights=(model.InFlightMove(partner['id'], 'host1', 'host2', 'kronos'),))
        self.assertEqual({'host3'}, self.hosts_of_boots(hints=apart))
        self.assertEqual({'host2'}, self.hosts_of_boots(hints=beside))
