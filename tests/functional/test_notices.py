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

"""Notices to the owners of instances, whose metadata in a real Nova ask for them."""

import datetime
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.engine import engine
from kronos_nova.sources import prometheus
from tests import marks
from tests.functional import test_first_light


class OwnerNoticesTestCase(test_first_light.RebalancedTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('strongest_for_tenants', 'never', 'contracts')
        self.conf.set_override('evacuate_disabled_hosts', True, 'engine')
        self.announced: list[tuple[str, str]] = []
        self.shutdowns: list[bool] = []
        self.engine = engine.Engine(
            self.conf, collector=collector.CloudCollector(self.conf, self.connection),
            source=prometheus.PrometheusSource(self.conf), store=self.store,
            listeners=[self.listen])
        self.server = self.boot(host='host1')
        self.set_metadata('kronos:notify', '1h')

    def listen(self, event: str, scope: str, payload: dict[str, Any]) -> None:
        if event == 'move.announced':
            self.announced.append((payload['instance_uuid'], payload['reason']))
            self.shutdowns.append(payload['may_shut_down'])

    def set_metadata(self, key: str, value: str) -> None:
        self.api.api_post(f'/servers/{self.server["id"]}/metadata', {'metadata': {key: value}})

    def assert_moved_after_release(self, reason: str, phase: str) -> None:
        """Plan and work before and after the owner releases the instance."""
        uuid = self.server['id']
        self.assertEqual([], self.plan()['moves'])
        self.work()
        self.assertEqual(([(uuid, reason)], []), (self.announced, self.migrations(self.server)))
        (notice,) = self.store.notices.read_notices(self.store.now()).values()
        self.assertEqual((uuid, 3600.0), (notice.instance_uuid,
                                          notice.movable_from - notice.noticed_at))

        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
        self.set_metadata('kronos:release', until.strftime('%Y-%m-%dT%H:%M:%SZ'))
        self.assertEqual([(uuid, phase, 'host3')], [
            (m['instance_uuid'], m['phase'], m['to_host']) for m in self.plan()['moves']])
        self.work()
        self.assertEqual('host3', self.host_of(self.server))
        self.assertEqual([(uuid, reason)], self.announced)
        self.assertEqual({}, self.store.notices.read_notices(self.store.now()), 'it is used up')
        self.assertEqual(['migration.completed'], [event for event, _result in self.results])

    @marks.turns(3)
    def test_drain_waits_for_notice_until_owner_releases_instance(self) -> None:
        self.load({'host1': 0.2, 'host2': 0.2, 'host3': 0.1}, {self.server['id']: 0.2})
        with self.disabled('host1'):
            self.assert_moved_after_release(model.NoticeReason.DRAIN, 'evacuate')

    def test_drain_names_the_shutdown_that_its_option_allows(self) -> None:
        self.conf.set_override('drain_offline', 'allow', 'engine')
        self.load({'host1': 0.2, 'host2': 0.2, 'host3': 0.1}, {self.server['id']: 0.2})
        with self.disabled('host1'):
            self.plan()
        (notice,) = self.store.notices.read_notices(self.store.now()).values()
        self.assertTrue(notice.may_shut_down)
        self.assertEqual([True], self.shutdowns)

    @marks.turns(12)
    def test_balance_waits_for_notice_until_owner_releases_instance(self) -> None:
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {self.server['id']: 0.35})
        self.assert_moved_after_release(model.NoticeReason.BALANCE, 'spread')
