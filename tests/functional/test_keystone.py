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


"""Logging in to a real Keystone, and finding Nova and Placement by its catalogue."""

from collections.abc import Callable
import os
import time

import fixtures
from openstack import service_description
from oslo_config import cfg

from kronos_nova import exception
from kronos_nova.checks import base as checks
from kronos_nova.checks import keystone as keystone_check
from kronos_nova.checks import migfra as migfra_check
from kronos_nova.conf import opts
from kronos_nova.conf import permits
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import connection
from tests import marks
from tests.fixtures import keystone_server
from tests.functional import api

# Nova's fixtures replace it, as Placement needs no catalogue there.
_MAKE_PROXY = service_description.ServiceDescription._make_proxy


class KeystoneTestCase(api.ApiTestCase):
    """Internal endpoints are Nova's and Placement's; the public ones are dead."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'openstack.service_description.ServiceDescription._make_proxy', _MAKE_PROXY))
        self.keystone = self.useFixture(keystone_server.Keystone())
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.dead = self.closed_port()
        self.register('compute', self.nova_api.url)

    def register(self, kind: str, url: str) -> None:
        self.keystone.register(connection.make_connection(self.configured()), kind, internal=url,
                               public=self.dead, admin=self.dead)

    def configured(self, **changes: str) -> cfg.ConfigOpts:
        """kronos.conf with these options of [nova] changed."""
        path = os.path.join(self.directory, 'kronos.conf')
        options = {**self.keystone.nova, **changes}
        with open(path, 'w') as f:
            f.write('[engine]\nhypervisor_types = fake\n[nova]\n' + ''.join(
                f'{name} = {value}\n' for name, value in options.items()))
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf([], default_config_files=[path])
        return conf

    def reader(self, **changes: str) -> collector.CloudCollector:
        conf = self.configured(**changes)
        return collector.CloudCollector(conf, connection.make_connection(conf))

    def test_client_finds_services_by_catalogue(self) -> None:
        server = self.boot(host='host1')
        early = self.reader()
        error = self.assertRaises(exception.CollectError, early.collect_cluster, time.time())
        self.assertRegex(str(error), 'Placement: the service catalogue has no endpoint for it')
        self.register('placement', self.placement_api.url)
        self.assertIn(server['id'], early.collect_cluster(time.time()).instances, 'it looks again')

        for changes in ({}, {'valid_interfaces': 'internal,public', 'interface': 'admin'},
                        {'timeout': '30'}):
            with self.subTest(changes):
                cluster = self.reader(**changes).collect_cluster(time.time())
                self.assertEqual(set(self.hosts), set(cluster.hosts))
                self.assertEqual({server['id']}, set(cluster.instances))
                self.assertTrue(cluster.placement_known)

        context = checks.CheckContext(self.configured())
        item, = keystone_check.check(context)
        self.assertEqual((checks.CheckStatus.OK, True),
                         (item.status, item.text.startswith(self.keystone.url)))

    @marks.long
    def test_check_looks_up_allowed_projects(self) -> None:
        conf = self.configured()
        context = checks.CheckContext(conf, connection=connection.make_connection(conf))
        project = context.connection.identity.find_project('admin').id
        for allowed, status, words in (
                (project, checks.CheckStatus.OK, ''),
                ('admin', checks.CheckStatus.FAILED, project),
                ('0' * 32, checks.CheckStatus.FAILED, 'project list')):
            conf.set_override('allow', [permits.PermitType()(f'stop-vm:{allowed}:*')], 'migfra')
            items = {i.name: i for i in migfra_check.check(context)}
            item = items['migfra: allow 1']
            self.assertEqual((status, True), (item.status, words in item.remedy), item)
            if status is checks.CheckStatus.OK:
                self.assertNotIn('does not tell', item.text)

    @marks.long
    def test_refused_token_is_replaced(self) -> None:
        self.boot(host='host1')
        self.register('placement', self.placement_api.url)
        reader = self.reader()
        reader.collect_cluster(time.time())
        self.nova_api.door.answers.append((
            once(lambda method, path: path.endswith('/os-services')), '401 Unauthorized',
            b'{"error": {"code": 401, "message": "expired", "title": "Unauthorized"}}'))
        self.assertEqual(1, len(reader.collect_cluster(time.time()).instances))

    @marks.long
    def test_login_problem_is_one_error_line(self) -> None:
        for changes, words in (
                ({'password': 'wr0ng-canary'}, 'Keystone refused the credentials'),
                ({'region_name': 'south'}, 'no endpoint for it; check .* region_name'),
                ({'interface': 'public'}, 'cannot be reached'),
                ({'auth_url': self.dead}, 'cannot be reached')):
            with self.subTest(changes):
                error = self.assertRaises(exception.CollectError,
                                          self.reader(**changes).collect_cluster, time.time())
                self.assertRegex(str(error), words)
                self.assertNotIn('\n', str(error))
                for secret in ('wr0ng-canary', keystone_server.PASSWORD):
                    self.assertNotIn(secret, str(error))

        item, = keystone_check.check(checks.CheckContext(self.configured(password='wr0ng-canary')))
        self.assertIs(checks.CheckStatus.FAILED, item.status)
        self.assertNotIn('wr0ng-canary', item.text + item.remedy)


def once(matches: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    """True for the first request that matches, and never again."""
    left = [True]

    def found(method: str, path: str) -> bool:
        return bool(left and matches(method, path) and left.pop())

    return found
