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


"""Imbalance moves copy no disks: planned where it is known, enforced by Nova.

The computes here keep disks to themselves, as libvirt does with local
storage: what Nova's fake driver takes for granted is judged as libvirt's
check_can_live_migrate_source judges it.
"""

from typing import Any

import fixtures
from nova import exception as nova_exception
from nova.virt import fake

from kronos_nova import model
from tests import marks
from tests.functional import test_first_light

LOADS = {'host1': 0.8, 'host2': 0.5, 'host3': 0.1}


def _judge(asked: list[bool | None]) -> Any:
    def check(_driver: Any, _context: Any, instance: Any, data: Any, _block: Any = None) -> Any:
        wanted = data.block_migration if 'block_migration' in data else None
        asked.append(wanted)
        if wanted is False:
            raise nova_exception.InvalidSharedStorage(
                path='host1', reason='Shared storage live-migration requires either shared '
                                     'storage or boot-from-volume with no local disks.')
        data.block_migration = True
        return data
    return check


class LocalDisksTestCase(test_first_light.RebalancedTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.asked: list[bool | None] = []
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.fake.FakeDriver.check_can_live_migrate_source', _judge(self.asked)))
        self.assertIs(fake.FakeDriver.check_can_live_migrate_source,
                      fake.MediumFakeDriver.check_can_live_migrate_source)

    def hot(self) -> dict[str, Any]:
        """A server on host1 that ought to move by load."""
        server: dict[str, Any] = self.boot(host='host1')
        self.load(LOADS, {server['id']: 0.35})
        return server

    @marks.turns(12)
    def test_planner_remembers_refused_disk_copy(self) -> None:
        server = self.hot()
        self.assertEqual(1, len(self.plan()['moves']))
        self.work()
        self.assertEqual([False], self.asked)
        self.assertEqual('host1', self.host_of(server))
        self.assertEqual('ACTIVE', self.admin_api.get_server(server['id'])['status'])
        (event, result), = self.results
        self.assertEqual('migration.failed', event)
        self.assertIn(f'Instance {server["id"]}: it has disks on host1 itself', result.error)
        self.assertIn('[engine] allow_disk_copy', result.error)

        history = self.store.history.read_history(model.UNASSIGNED, self.worker._clock())
        self.assertEqual(frozenset({'host1'}), history.local_disk_hosts)
        self.assertEqual({}, history.quarantined)
        self.conf.set_override('instance_cooldown', 0, 'engine')
        self.store.quarantine.lift_quarantine('instance', server['id'], self.worker._clock())
        another = self.boot(host='host1')
        self.load(LOADS, {another['id']: 0.35})
        row = self.plan()
        self.assertEqual([], row['moves'])
        self.assertIn('copies-disk', row['rejections'])
        self.assertEqual([False], self.asked)

    @marks.turns(3)
    def test_allow_disk_copy_permits_move(self) -> None:
        server = self.hot()
        self.conf.set_override('allow_disk_copy', True, 'engine')
        self.plan()
        self.work()
        self.assertEqual([None], self.asked)
        self.assertEqual('host3', self.host_of(server))

    @marks.turns(12)
    def test_local_storage_option_plans_no_disk_copy(self) -> None:
        self.hot()
        self.conf.set_override('instance_storage', 'local', 'engine')
        row = self.plan()
        self.assertEqual([], row['moves'])
        self.assertIn('copies-disk', row['rejections'])

    @marks.turns(12)
    def test_drain_copies_disks(self) -> None:
        server = self.boot(host='host1')
        self.conf.set_override('evacuate_disabled_hosts', True, 'engine')
        self.conf.set_override('instance_storage', 'local', 'engine')
        self.load({'host1': 0.2, 'host2': 0.2, 'host3': 0.1}, {server['id']: 0.2})
        with self.disabled('host1'):
            self.plan()
            self.work()
        self.assertEqual([None], self.asked)
        self.assertEqual('host3', self.host_of(server))
