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

"""Drains that a user orders through kronos-api: a real Keystone knows the user, and a real Nova
decides by its own policy what the token allows."""

from collections.abc import Callable
import json
import os
from typing import Any

import fixtures
import openstack
from openstack import service_description
from oslo_config import cfg
import werkzeug.test

from kronos_nova.api import application
from kronos_nova.conf import opts
from kronos_nova.model import TaskState
from tests import marks
from tests.fixtures import keystone_server
from tests.functional import test_first_light

# Nova's fixtures replace it, as Placement needs no catalogue there.
_MAKE_PROXY = service_description.ServiceDescription._make_proxy
#: User -> role in the project of operators.
USERS = {'alice': 'admin', 'mallory': 'manager'}


class DrainsOfUsersTestCase(test_first_light.RebalancedTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'openstack.service_description.ServiceDescription._make_proxy', _MAKE_PROXY))
        self.keystone = self.useFixture(keystone_server.Keystone())
        admin = self.log_in(keystone_server.USER, 'admin')
        self.keystone.register(admin, 'compute', internal=self.nova_api.url,
                               public=self.closed_port(), admin=self.closed_port())
        project = self.make_accounts(admin)
        self.tokens = {name: self.log_in(name, 'operators').auth_token for name in USERS}
        # Nova has no Keystone here: it gets the roles of each token from the test.
        self.nova_api.door._app = self.trust_tokens(self.nova_api.door._app)
        self.nova_api.door._headers.pop('HTTP_X_ROLES')
        for name, value in {'evacuate_disabled_hosts': True, 'publish_interval': 5,
                            'mode': 'approve'}.items():
            self.conf.set_override(name, value, 'engine')
        self.client = werkzeug.test.Client(
            application.make_application(self.configure_api(project)))
        self.server = self.boot(host='host1')
        self.load({'host1': 0.2, 'host2': 0.2, 'host3': 0.1}, {self.server['id']: 0.05})
        self.plan()

    def log_in(self, user: str, project: str) -> Any:
        return openstack.connect(
            auth_url=self.keystone.url, username=user, password=keystone_server.PASSWORD,
            project_name=project, user_domain_id='default', project_domain_id='default',
            region_name=keystone_server.REGION)

    def make_accounts(self, admin: Any) -> str:
        """Make the users, and kronos-api's own with the role service; return their project."""
        identity = admin.identity
        roles = {role.name: role for role in identity.roles()}
        projects = {name: identity.create_project(name=name, domain_id='default')
                    for name in ('operators', 'service')}
        for name, role, project in (*((n, r, 'operators') for n, r in USERS.items()),
                                    ('kronos', 'service', 'service')):
            user = identity.create_user(name=name, password=keystone_server.PASSWORD,
                                        domain_id='default')
            identity.assign_project_role_to_user(projects[project], user, roles[role])
        return str(projects['operators'].id)

    def trust_tokens(self, app: Callable[..., Any]) -> Callable[..., Any]:
        """Return Nova's API with the roles of each user's token; other tokens are admin's."""
        roles = {self.tokens[name]: role for name, role in USERS.items()}
        self.asked: list[tuple[str, str, str | None]] = []

        def call_app(environ: dict[str, Any], start_response: Any) -> Any:
            token = environ.get('HTTP_X_AUTH_TOKEN', '')
            role = roles.get(token, 'admin')
            environ['HTTP_X_ROLES'] = f'reader,member,{role}'
            # Nova's fixture takes a user of this name for an administrator, whatever the roles.
            environ['HTTP_X_AUTH_USER'] = 'admin' if role == 'admin' else 'mallory'
            if token in roles:
                self.asked.append((environ['REQUEST_METHOD'], environ['PATH_INFO'],
                                   environ.get('HTTP_X_SERVICE_TOKEN')))
            return app(environ, start_response)

        return call_app

    def configure_api(self, project: str) -> cfg.ConfigOpts:
        """The configuration of kronos-api, whose account Nova does not know."""
        path = os.path.join(self.useFixture(fixtures.TempDir()).path, 'kronos.conf')
        with open(path, 'w') as f:
            f.write(
                f'[database]\nconnection = {self.store.engine.url}\n'
                f'[engine]\nmode = approve\n[kronos_api]\noperator_projects = {project}\n'
                f'[keystone_authtoken]\nauth_type = password\nauth_url = {self.keystone.url}\n'
                f'username = kronos\npassword = {keystone_server.PASSWORD}\n'
                'project_name = service\nuser_domain_id = default\nproject_domain_id = default\n'
                f'region_name = {keystone_server.REGION}\nservice_token_roles_required = true\n')
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf([], project='kronos', default_config_files=[path])
        return conf

    def send(self, method: str, user: str, path: str = '/v1/drains',
             **more: Any) -> tuple[int, dict[str, Any]]:
        answer = self.client.open(path, method=method, headers={
            'X-Auth-Token': self.tokens[user]}, **more)
        return answer.status_code, json.loads(answer.data)

    def start(self, user: str, **more: Any) -> tuple[int, dict[str, Any]]:
        return self.send('POST', user, json={'host': 'host1', 'reason': 'new memory', **more})

    def service(self) -> tuple[str, str | None]:
        found = next(s for s in self.admin_api.get_services(binary='nova-compute')
                     if s['host'] == 'host1')
        return found['status'], found.get('disabled_reason')

    def test_campaign_needs_the_right_of_the_user_at_nova(self) -> None:
        def order(user: str, verb: str = '', **body: Any) -> tuple[int, Any]:
            path = f'/v1/campaigns/{campaign_id}/{verb}' if verb else '/v1/campaigns'
            status, document = self.send('POST', user, path, json={'reason': 'new memory', **body})
            return status, document['errors'][0]['detail'] if status >= 400 else document

        campaign_id = ''
        status, detail = order('mallory', hosts=['host1'])
        self.assertEqual(403, status, detail)
        self.assertIn('os_compute_api:os-services:update', detail)
        self.assertEqual([], self.store.campaigns.list_live_campaigns())

        status, started = order('alice', hosts=['host1'])
        self.assertEqual(200, status, started)
        self.assertEqual(1, started['migration_count'])
        self.assertEqual([], [s for s in self.admin_api.get_services(binary='nova-compute')
                              if s['status'] != 'enabled'])
        campaign_id = started['campaign']['id']
        self.assertEqual(200, order('mallory', 'pause')[0])
        for verb, body in (('resume', {}), ('skip', {'host': 'host1'}), ('abort', {})):
            self.assertEqual(403, order('mallory', verb, **body)[0], verb)
        self.assertEqual('running', order('alice', 'resume')[1]['state'])
        self.assertEqual('aborting', order('alice', 'abort')[1]['state'])
        self.assertEqual({None}, {asked[2] for asked in self.asked})

    def test_token_of_the_user_decides_what_nova_does(self) -> None:
        status, document = self.start('mallory')
        error = document['errors'][0]
        self.assertEqual((403, 'kronos.nova.forbidden'), (status, error['code']), error)
        self.assertIn('os_compute_api:os-services:', error['detail'])
        self.assertEqual(('enabled', None), self.service())
        self.assertEqual([], [asked for asked in self.asked if asked[0] != 'GET'])

        status, drain = self.start('alice', approve=True)
        self.assertEqual((200, True), (status, drain.get('changed')), drain)
        self.assertEqual(('disabled', 'new memory'), self.service())
        self.assertIn('PUT', [method for method, _path, _token in self.asked])
        self.assertEqual({None}, {token for _method, _path, token in self.asked},
                         'Nova sees no token of another account')
        (entry,) = [row for row in self.store.audit.list_newest_entries(9)
                    if row.command == 'drain started']
        self.assertIn(' roles admin', entry.by)
        self.assertIn('(alice)', entry.by)

        (plan_id,) = drain['plan_ids']
        (row,) = self.store.tasks.list_plan_tasks(plan_id)
        self.assertEqual(TaskState.QUEUED, row.task.state)
        self.work()
        self.assertNotEqual('host1', self.host_of(self.server))

        status, document = self.send('DELETE', 'mallory', query_string={'host': 'host1'})
        self.assertEqual(403, status, document)
        self.assertEqual(('disabled', 'new memory'), self.service())
        status, stopped = self.send('DELETE', 'alice', query_string={'host': 'host1'})
        self.assertEqual((200, True, []), (status, stopped.get('changed'),
                                           stopped.get('cancelled_task_ids')), stopped)
        self.assertEqual(('enabled', None), self.service())

    @marks.long
    def test_failures_of_nova_and_stop_of_a_drain_that_has_not_begun(self) -> None:
        door = self.nova_api.door
        door.answers.append((lambda method, path: path.endswith('/os-services'),
                             '503 Service Unavailable', b''))
        status, document = self.start('alice')
        self.assertEqual((503, 'kronos.nova.unavailable'),
                         (status, document['errors'][0]['code']), document)
        self.assertEqual(('enabled', None), self.service())
        door.answers.clear()

        door.lose_answer_of = lambda method, path: method == 'PUT'
        status, drain = self.start('alice', approve=True)
        self.assertEqual((200, True), (status, drain.get('changed')), drain)
        self.assertEqual(('disabled', 'new memory'), self.service())

        status, stopped = self.send('DELETE', 'alice', query_string={'host': 'host1'})
        self.assertEqual(200, status, stopped)
        (row,) = self.store.tasks.list_plan_tasks(drain['plan_ids'][0])
        self.assertEqual(([row.task.task_id], TaskState.CANCELLED),
                         (stopped['cancelled_task_ids'], row.task.state))
        self.work()
        self.assertEqual([], self.migrations(self.server))
