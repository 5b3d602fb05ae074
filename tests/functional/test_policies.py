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


"""The policy files we ship, under Nova's and Placement's own enforcement.

Roles come from the headers that keystonemiddleware sets, and is_admin from the
policy, as in production. The executor's user is a member of no tenant project.
"""

import copy
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import fixtures
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint
from nova import policies as nova_policies
import nova.api.auth
import nova.context
import nova.policy
from openstack import connection
from placement import context as placement_context
from placement import deploy
from placement import policies as placement_policies
from placement import policy as placement_policy
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import allocation_request
from kronos_nova.rebalancer.clients import api as client_api
from kronos_nova.rebalancer.clients import candidates_api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import power
from kronos_nova.rebalancer.executors import base as executors
from kronos_nova.rebalancer.executors import nova as nova_executor
from tests import marks
from tests.functional import api
from tests.functional import placement_writer

TOP = pathlib.Path(__file__).resolve().parents[2]
NOVA_FILE = TOP / 'etc/kronos/nova-policy.yaml'
PLACEMENT_FILE = TOP / 'etc/kronos/placement-policy.yaml'

ENGINE, EXECUTOR, MIGFRA = 'kronos_engine', 'kronos_executor', 'kronos_migfra'
NEITHER, MEMBER = 'nobody', 'member,reader'
OURS = '11111111111111111111111111111111'

#: What only other tests do: an abort, a completion by force, another zone's scheduling,
#: whole lists.
NOT_HERE = {'os_compute_api:servers:migrations:delete',
            'os_compute_api:servers:migrations:force_complete',
            'os_compute_api:servers:migrations:index',
            'os_compute_api:os-server-groups:index',
            'os_compute_api:os-server-groups:index:all_projects',
            'os_compute_api:servers:detail', 'os_compute_api:servers:detail:get_all_tenants',
            'os_compute_api:servers:allow_all_filters'}

#: Before Nova's fixtures replace it by one that takes is_admin from the name.
_REAL = 'tests.functional.test_policies'
_CREATE_CONTEXT = nova.api.auth.NovaKeystoneContext.__dict__['_create_context'].__func__


def grants(path: pathlib.Path, role: str) -> set[str]:
    """The API rules that a file gives to a role by its name."""
    rules = yaml.safe_load(path.read_text())
    return {name for name, text in rules.items()
            if f'role:{role}' in text.split(' or ') and ':' in name}


class Case(api.ApiTestCase):
    """Both files are loaded; nothing is put over them."""

    new_defaults = True

    def setUp(self) -> None:
        super().setUp()
        stub = nova.api.auth.NovaKeystoneContext._create_context

        def create(env: dict[str, Any], **kwargs: Any) -> Any:
            return (_CREATE_CONTEXT if _REAL in env else stub)(env, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.api.auth.NovaKeystoneContext._create_context', staticmethod(create)))
        self.load(str(NOVA_FILE))
        self.load_placement(str(PLACEMENT_FILE))
        self.addCleanup(placement_policy.reset)
        #: (rule, granted) of every decision about our user.
        self.decisions: set[tuple[str, bool]] = set()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.policy.authorize', self.recorded(nova.policy.authorize)))
        self.useFixture(fixtures.MonkeyPatch(
            'placement.policy.authorize', self.recorded(placement_policy.authorize)))

    def load(self, path: str) -> None:
        # Nova's own fixtures turn off what is the default in production.
        self.flags(enforce_new_defaults=self.new_defaults, group='oslo_policy')
        self.flags(policy_file=path, group='oslo_policy')
        nova.policy.reset()
        nova.policy.init(suppress_deprecation_warnings=True)

    def load_placement(self, path: str) -> None:
        found = self.placement.fixture.conf_fixture
        found.config(group='oslo_policy', policy_file=path)
        placement_policy.reset()
        placement_policy.init(found.conf, suppress_deprecation_warnings=True,
                              rules=copy.deepcopy(placement_policies.list_rules()))

    def recorded(self, authorize: Any) -> Any:
        @functools.wraps(authorize)
        def call(context: Any, action: str, *args: Any, **kwargs: Any) -> Any:
            granted = False
            try:
                answer = authorize(context, action, *args, **kwargs)
                granted = bool(answer)
                return answer
            finally:
                if context.project_id == OURS:
                    self.decisions.add((action, granted))
        return call

    def as_role(self, roles: str, project: str = OURS) -> connection.Connection:
        """A connection whose user has these roles in a project and no others."""
        identity = {_REAL: 'yes', 'HTTP_X_IDENTITY_STATUS': 'Confirmed',
                    'HTTP_X_USER_ID': 'kronos', 'HTTP_X_PROJECT_ID': project,
                    'HTTP_X_ROLES': roles}
        compute = self.useFixture(api.Api(self.api_fixture.app(), identity, '/v2.1'))
        placement = self.useFixture(api.Api(
            deploy.deploy(self.placement.fixture.conf_fixture.conf),
            {**identity, 'HTTP_X_AUTH_TOKEN': f'kronos:{project}'}))
        return connection.Connection(
            session=ks_session.Session(auth=token_endpoint.Token(compute.url, 'token')),
            compute_endpoint_override=compute.url, placement_endpoint_override=placement.url)

    def assert_refused(self, found: connection.Connection, method: str, path: str,
                       body: Any = None, service: str = 'compute',
                       statuses: tuple[int, ...] = (403,)) -> None:
        proxy = getattr(found, service)
        version = '2.96' if service == 'compute' else '1.31'
        try:
            answer = proxy.request(path, method, json=body, microversion=version,
                                   raise_exc=False)
        except ks_exceptions.HttpError as exc:
            answer = exc.response
        self.assertIn(answer.status_code, statuses, f'{method} {path} {answer.text}')

    def assert_only_named_rules(self, role: str) -> None:
        """Assert that the file names every granted rule, also those with defaults in code."""
        named = grants(NOVA_FILE, role) | grants(PLACEMENT_FILE, role)
        granted = {rule for rule, ok in self.decisions if ok}
        self.assertEqual(set(), granted - named - {'context_is_admin'})

    def cloud(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Two servers of two projects, a group, an aggregate, a past migration."""
        self.aggregate('rack1', 'host1', 'host2')
        group = self.server_group('g', 'soft-anti-affinity')
        server = self.boot(host='host1', hints={'group': group['id']})
        self.api.project_id, project = '22222222222222222222222222222222', self.api.project_id
        self.addCleanup(setattr, self.api, 'project_id', project)
        other = self._wait_for_state_change(self.api.post_server({'server': self._build_server(
            flavor_id=self.flavor['id'], networks='none')}), 'ACTIVE')
        return server, other

    def share(self) -> None:
        """host1 uses a provider of storage."""
        writer = placement_writer.Writer(self.connection)
        shared = writer.create('nfs', DISK_GB=100)
        writer.tell(shared, placement_api.SHARES)
        for uuid in (shared, self._get_provider_uuid_by_host('host1')):
            writer.join(uuid, '33333333-3333-4333-8333-333333333333')

    def task(self, server: dict[str, Any], to_host: str = 'host2') -> model.Task:
        return model.Task(
            task_id='t1', plan_id='p1', aggregate='rack1', instance_uuid=server['id'],
            from_host='host1', to_host=to_host, phase=model.Phase.SPREAD)


class EngineTestCase(Case):

    def test_engine_role_reads_as_administrator_and_writes_nothing(self) -> None:
        server, other = self.cloud()
        self.live_migrate(server, 'host2')
        self.share()
        now = time.time()
        engine = self.as_role(ENGINE)
        found = collector.CloudCollector(self.conf, engine).collect_cluster(now)
        self.assertEqual(collector.CloudCollector(self.conf, self.connection).collect_cluster(now),
                         found)
        self.assertLessEqual({server['id'], other['id']}, set(found.instances))
        self.assertEqual((1, 1), (len(found.groups), len(found.sharing)))
        root = found.hosts['host2'].provider
        assert root is not None
        asked = allocation_request.build_candidates_query(found.instances[server['id']], root.uuid)
        assert asked is not None, 'the flavor is shown with its extra specs'
        self.assertIsNone(candidates_api.CandidatesApi(engine).find_refusal(asked))
        for other_role in (EXECUTOR, NEITHER):
            self.assertRaisesRegex(
                client_api.ApiError, candidates_api.POLICY,
                candidates_api.CandidatesApi(self.as_role(other_role)).find_refusal, asked)
        self.decisions = {(rule, ok) for rule, ok in self.decisions
                          if ok or rule != candidates_api.POLICY}
        self.assert_only_named_rules(ENGINE)
        self.assertEqual(set(), (grants(NOVA_FILE, ENGINE) | grants(PLACEMENT_FILE, ENGINE))
                         - {rule for rule, ok in self.decisions if ok}, 'every right is used')

        for action in ({'os-migrateLive': {'host': 'host3', 'block_migration': 'auto'}},
                       {'migrate': None}, {'migrate': {'host': 'host3'}},
                       {'confirmResize': None}, {'revertResize': None}, {'os-stop': None},
                       {'lock': None}, {'unlock': None}, {'os-resetState': {'state': 'error'}},
                       {'evacuate': {}}, {'reboot': {'type': 'HARD'}}, {'forceDelete': None}):
            self.assert_refused(engine, 'POST', f'/servers/{server["id"]}/action', action)
        service = self.admin_api.get_services(host='host1', binary='nova-compute')[0]['id']
        provider = self._get_provider_uuid_by_host('host1')
        for method, path, body in (
                ('DELETE', f'/servers/{server["id"]}', None),
                ('DELETE', f'/servers/{server["id"]}/migrations/1', None),
                ('PUT', f'/os-services/{service}', {'status': 'disabled'}),
                ('POST', '/servers', {'server': self._build_server(
                    flavor_id=self.flavor['id'], networks='none')}),
                ('POST', '/os-aggregates', {'aggregate': {'name': 'a'}})):
            self.assert_refused(engine, method, path, body)
        for method, path, body in (
                ('DELETE', f'/allocations/{server["id"]}', None),
                ('DELETE', f'/resource_providers/{provider}', None),
                ('POST', '/resource_providers', {'name': 'mine'})):
            self.assert_refused(engine, method, path, body, 'placement')
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual('enabled', self.admin_api.get_services(
            host='host1', binary='nova-compute')[0]['status'])
        driver = nova_executor.NovaExecutor(self.conf, engine)
        error = self.assertRaises(exception.NovaClientError, driver.submit, self.task(other))
        self.assertIn(nova_executor.POLICY, str(error))
        self.assertEqual([], self.migrations(other))


class ExecutorTestCase(Case):

    def test_executor_role_allows_only_migration_requests(self) -> None:
        server, _other = self.cloud()
        self.share()
        found = self.as_role(EXECUTOR)
        with self.subTest('a live migration, from its first look to its last'):
            bodies = self.sent(found)
            driver = nova_executor.NovaExecutor(self.conf, found)
            task = self.task(server)
            marker = driver.pre_flight(task, executors.StoredFacts(now=time.time()))
            request_id = driver.submit(task)
            self.wait_for(
                lambda: (driver.read_progress(task, marker).stage
                         is executors.MigrationStage.COMPLETED), 'the migration')
            driver.post_flight(task)
            self.assertEqual('host2', self.host_of(server))
            self.assertEqual([{'os-migrateLive': {'host': 'host2', 'block_migration': False}}],
                             bodies, 'never forced')
        with self.subTest('why one failed'):
            compute = nova_api.NovaApi(found)
            self.assertIn('live-migration',
                          [a['action'] for a in compute.list_actions(server['id'])])
            assert request_id is not None
            events = compute.action_events(server['id'], request_id)
            self.assertLessEqual({'host', 'details'}, set(events[0]), 'nothing is hidden')
        self.assert_only_named_rules(EXECUTOR)
        with self.subTest('a cold migration, and its confirmation'):
            self.move_cold(server, found)
        with self.subTest('the pause of a warm migration'):
            self.pause(server, found)
        self.assert_only_named_rules(EXECUTOR)
        self.assertEqual(set(), grants(NOVA_FILE, EXECUTOR) - {r for r, ok in self.decisions if ok}
                         - NOT_HERE, 'every right is used')

        for action in ({'os-stop': None}, {'lock': None}, {'unlock': None},
                       {'os-resetState': {'state': 'error'}}, {'evacuate': {}},
                       {'resize': {'flavorRef': self.flavor['id']}}, {'rescue': {}},
                       {'reboot': {'type': 'HARD'}}, {'forceDelete': None},
                       {'shelve': None}, {'os-getConsoleOutput': {}}, {'migrate': None},
                       {'os-migrateLive': {'host': None, 'block_migration': 'auto'}},
                       {'revertResize': None}):
            self.assert_refused(found, 'POST', f'/servers/{server["id"]}/action', action)
        service = self.admin_api.get_services(host='host1', binary='nova-compute')[0]['id']
        for method, path, body in (
                ('DELETE', f'/servers/{server["id"]}', None),
                ('PUT', f'/os-services/{service}', {'status': 'disabled'}),
                ('GET', f'/servers/{server["id"]}/diagnostics', None)):
            self.assert_refused(found, method, path, body)
        self.assert_refused(found, 'DELETE', f'/allocations/{server["id"]}', None, 'placement')

    def pause(self, server: dict[str, Any], found: connection.Connection) -> None:
        self.admin_api.post_server_action(server['id'], {'os-start': None})
        self._wait_for_state_change(server, 'ACTIVE')
        for action in (power.PAUSE, power.UNPAUSE):
            self.assertTrue(power.request_action(nova_api.NovaApi(found), server['id'], action))
            self._wait_for_state_change(server, action.wanted)

    def move_cold(self, server: dict[str, Any], found: connection.Connection) -> None:
        """A drain of a disabled host, by the driver, to its confirmation."""
        self.conf.set_override('cold_migrate_stopped', True, 'engine')
        self.admin_api.post_server_action(server['id'], {'os-stop': None})
        self._wait_for_state_change(server, 'SHUTOFF')
        driver = nova_executor.NovaExecutor(self.conf, found)
        task = dataclasses.replace(self.task(server), from_host='host2', to_host='host1',
                                   phase=model.Phase.EVACUATE, method=model.MoveMethod.COLD)
        with self.disabled('host2'):
            marker = driver.pre_flight(task, executors.StoredFacts(
                now=time.time(), draining=frozenset({'host2'})))
            driver.submit(task)
            for stage in (executors.MigrationStage.UNCONFIRMED, executors.MigrationStage.COMPLETED):
                self.wait_for(functools.partial(self.reached, driver, task, marker, stage), stage)
                if stage is executors.MigrationStage.UNCONFIRMED:
                    driver.confirm(task, marker)
            self.wait_for(functools.partial(self.settled, driver, task), 'an empty source')
        self.assertEqual('host1', self.host_of(server))

    @staticmethod
    def settled(driver: nova_executor.NovaExecutor, task: model.Task) -> bool:
        """Return whether Nova has freed the source, which it does after "confirmed"."""
        try:
            driver.post_flight(task)
        except exception.MigrationFailed:
            return False
        return True

    @staticmethod
    def reached(driver: nova_executor.NovaExecutor, task: model.Task, marker: str,
                stage: executors.MigrationStage) -> bool:
        return driver.read_progress(task, marker).stage is stage

    def sent(self, found: connection.Connection) -> list[Any]:
        """The JSON of every POST from now on."""
        bodies: list[Any] = []
        request = found.session.request

        def recorded(url: str, method: str, **kwargs: Any) -> Any:
            if method == 'POST':
                bodies.append(json.loads(json.dumps(kwargs['json'])))
            return request(url, method, **kwargs)

        self.useFixture(fixtures.MockPatchObject(found.session, 'request', recorded))
        return bodies


@marks.long
class MigfraTestCase(Case):

    def test_migfra_role_allows_only_power_actions(self) -> None:
        server, other = self.cloud()
        self.share()
        found = self.as_role(MIGFRA)
        collector.CloudCollector(self.conf, found).collect_cluster(time.time())
        compute = nova_api.NovaApi(found)
        for action in (power.STOP, power.START, power.PAUSE, power.UNPAUSE):
            for one in (server, other):
                self.assertTrue(power.request_action(compute, one['id'], action))
                self._wait_for_state_change(one, action.wanted)
        self.assertEqual([other['id']], [
            i.uuid for i in compute.servers_named(other['name']) if i.uuid == other['id']])
        self.assertEqual({server['id']}, {
            uuid for uuid in compute.list_servers_on(self.host_of(server)) if uuid == server['id']})
        self.assert_only_named_rules(MIGFRA)
        self.assertEqual(set(), (grants(NOVA_FILE, MIGFRA) | grants(PLACEMENT_FILE, MIGFRA))
                         - {rule for rule, ok in self.decisions if ok}, 'every right is used')
        for action in ({'os-migrateLive': {'host': 'host3', 'block_migration': 'auto'}},
                       {'migrate': {'host': 'host3'}}, {'confirmResize': None}, {'lock': None},
                       {'os-resetState': {'state': 'error'}}, {'reboot': {'type': 'HARD'}},
                       {'forceDelete': None}, {'suspend': None}, {'shelve': None}):
            self.assert_refused(found, 'POST', f'/servers/{server["id"]}/action', action)
        self.assert_refused(found, 'DELETE', f'/servers/{server["id"]}', None)
        for role in (ENGINE, NEITHER):
            self.assertRaises((power.PowerRefused, client_api.ApiError), power.request_action,
                              nova_api.NovaApi(self.as_role(role)), server['id'], power.STOP)
        self.assertRaisesRegex(power.PowerRefused, power.STOP.policy, power.request_action,
                               nova_api.NovaApi(self.as_role(EXECUTOR)), server['id'], power.STOP)
        self.assertEqual('ACTIVE', self.admin_api.get_server(server['id'])['status'])


@marks.long
class DrainTestCase(Case):
    """``kronos drain``, as a process, with the rights of either role."""

    def kronos(self, role: str, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        found = self.as_role(role)
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'policies.yaml').write_text(
            'policies: [{name: cpu, weight: 1.0, imbalance_query: cpu, host_label: host}]\n')
        (directory / 'kronos.conf').write_text(f'''
[engine]
dry_run = false
evacuate_disabled_hosts = true
policies_file = {directory}/policies.yaml
hypervisor_types = fake
[prometheus]
url = {self.closed_port()}
max_retries = 0
[database]
connection = {self.store.engine.url.render_as_string(hide_password=False)}
[nova]
auth_type = admin_token
endpoint = {found.compute.get_endpoint()}
token = token
endpoint_override = {found.compute.get_endpoint()}
placement_endpoint_override = {found.placement.get_endpoint()}
''')
        return subprocess.run(
            [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                                   'sys.exit(app.main(sys.argv[1:]))',
             'drain', *arguments, '--config-file', str(directory / 'kronos.conf')],
            capture_output=True, text=True, timeout=180, check=False)

    def service(self) -> tuple[str, str | None]:
        found = self.admin_api.get_services(host='host1', binary='nova-compute')[0]
        return found['status'], found['disabled_reason']

    def test_only_granted_role_disables_host_and_both_watch_drain(self) -> None:
        self.store = self.new_store()
        server = self.boot(host='host1')
        start = ('start', 'host1', '--reason', "the owner's wish")
        with self.subTest('as the file is shipped'):
            for role in (ENGINE, EXECUTOR):
                done = self.kronos(role, *start)
                self.assertEqual((1, ''), (done.returncode, done.stdout))
                self.assertIn('HTTP 403', done.stderr)
                self.assertIn('the user of [nova] needs a role that policy '
                              'os_compute_api:os-services:update allows. Nothing is changed. Or '
                              'disable it yourself: openstack compute service set --disable '
                              "--disable-reason 'the owner'\"'\"'s wish' host1 nova-compute\n",
                              done.stderr)
                self.assertEqual(1, done.stderr.count('\n'), done.stderr)
        self.assertEqual(('enabled', None), self.service())
        with self.subTest('with the line that it has for that'):
            self.load(self.granted())
            done = self.kronos(ENGINE, *start)
            self.assertEqual(1, done.returncode)
            done = self.kronos(EXECUTOR, *start)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(('disabled', "the owner's wish"), self.service())
        self.load(str(NOVA_FILE))
        with self.subTest('to watch it, what a cycle may read is enough'):
            for role in (ENGINE, EXECUTOR):
                done = self.kronos(role, 'watch', 'host1', '--timeout', '0.1', '-f', 'json')
                self.assertEqual(1, done.returncode)
                self.assertIn('Host host1 is not empty yet.', done.stderr)
                self.assertEqual([server['id']],
                                 [row['Instance'] for row in json.loads(done.stdout)])
        done = self.kronos(NEITHER, 'watch', 'host1')
        self.assertIn('policy os_compute_api:os-services:list allows', done.stderr)

    def granted(self) -> str:
        """The file, with the second line of its last two in the place of the first."""
        *lines, one, other = NOVA_FILE.read_text().splitlines()
        self.assertTrue(other.startswith('# "os_compute_api:os-services:update"'), other)
        self.assertTrue(one.startswith('"os_compute_api:os-services:update"'), one)
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).join('policy.yaml'))
        path.write_text('\n'.join([*lines, other.removeprefix('# '), '']))
        return str(path)


class AbortTestCase(Case):
    compute_driver = 'fake.FakeLiveMigrateDriver'
    hosts = ('host1', 'host2')

    def begin_migration(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a server and its live migration, which runs until it is aborted or forced."""
        server = self.boot(host='host1')
        self.admin_api.post_server_action(
            server['id'], {'os-migrateLive': {'host': 'host2', 'block_migration': 'auto'}})
        return server, self.wait_for(
            lambda: [m for m in self.migrations(server) if m['status'] == 'running'],
            'a running migration')[0]

    @marks.turns(12)
    def test_only_executor_role_aborts_migration(self) -> None:
        server, running = self.begin_migration()
        path = f'/servers/{server["id"]}/migrations/{running["id"]}'
        for roles in (ENGINE, NEITHER, MEMBER):
            self.assert_refused(self.as_role(roles), 'DELETE', path, statuses=(403, 404))
        driver = nova_executor.NovaExecutor(self.conf, self.as_role(EXECUTOR))
        marker = json.dumps({'migration_id': 0, 'time': 0})
        self.assertTrue(driver.abort(self.task(server), marker))
        self.wait_for(lambda: [m for m in self.migrations(server) if m['status'] == 'cancelled'],
                      'the abort')
        self.assertIn(('os_compute_api:servers:migrations:delete', True), self.decisions)

    def test_executor_alone_completes_by_force(self) -> None:
        server, running = self.begin_migration()
        path = f'/servers/{server["id"]}/migrations'
        for roles in (ENGINE, NEITHER, MEMBER):
            self.assert_refused(self.as_role(roles), 'GET', path, statuses=(403, 404))
            self.assert_refused(self.as_role(roles), 'POST', f'{path}/{running["id"]}/action',
                                {'force_complete': None}, statuses=(403, 404))
        driver = nova_executor.NovaExecutor(self.conf, self.as_role(EXECUTOR))
        marker = json.dumps({'migration_id': 0, 'time': 0, 'migration_uuid': running['uuid']})
        self.assertIsNone(driver.force_completion(self.task(server), marker, lambda: True))
        self.wait_for(lambda: [m for m in self.migrations(server) if m['status'] == 'completed'],
                      'the completion')
        for rule in ('index', 'force_complete'):
            self.assertIn((f'os_compute_api:servers:migrations:{rule}', True), self.decisions)


class OthersTestCase(Case):

    def test_other_roles_read_and_move_nothing(self) -> None:
        server, _other = self.cloud()
        for roles in (NEITHER, MEMBER, 'service'):
            with self.subTest(roles):
                found = self.as_role(roles)
                self.assertRaises(exception.CollectError, collector.CloudCollector(
                    self.conf, found).collect_cluster, time.time())
                driver = nova_executor.NovaExecutor(self.conf, found)
                self.assertRaises(exception.MigrationError, driver.pre_flight, self.task(server),
                                  executors.StoredFacts(now=time.time()))
                self.assertRaises(exception.MigrationError, driver.submit, self.task(server))
        self.assertEqual([], self.migrations(server))
        self.assertEqual(set(), {r for r, ok in self.decisions if ok} & (
            grants(NOVA_FILE, ENGINE) - {'os_compute_api:servers:detail',
                                         'os_compute_api:os-server-groups:index',
                                         'os_compute_api:servers:show'}))

        self.a_member_does_what_a_member_did(server)

    def a_member_does_what_a_member_did(self, server: dict[str, Any]) -> None:
        found = self.as_role(MEMBER, self.api_fixture.project_id)
        compute = nova_api.NovaApi(found)
        error = self.assertRaises(client_api.ApiError, compute.read_server, server['id'])
        self.assertIn('its host is not shown', str(error))
        answer = found.compute.post(f'/servers/{server["id"]}/action', json={'os-stop': None},
                                    microversion='2.72', raise_exc=False)
        self.assertEqual(202, answer.status_code)
        self._wait_for_state_change(server, 'SHUTOFF')
        for action in ({'os-migrateLive': {'host': 'host2', 'block_migration': 'auto'}},
                       {'migrate': None}, {'migrate': {'host': 'host2'}}):
            self.assert_refused(found, 'POST', f'/servers/{server["id"]}/action', action)


class DecisionsTestCase(Case):
    """Every rule that Nova and Placement register, not only those asked for."""

    def decided(self, roles: str, project: str) -> set[str]:
        context = nova.context.RequestContext(
            user_id='kronos', project_id=OURS, roles=roles.split(','))
        target = {'project_id': project, 'user_id': 'kronos' if project == OURS else 'other'}
        return {rule.name for rule in nova_policies.list_rules() if ':' in rule.name
                and context.can(rule.name, target=target, fatal=False)}

    def test_policy_files_grant_named_rules_to_our_roles_only(self) -> None:
        others = ('admin,manager,member,reader', 'manager,member,reader', 'member,reader',
                  'reader', 'service', NEITHER)
        empty = self.empty()
        for new_defaults in (True, False):
            self.new_defaults = new_defaults
            self.load(empty)
            before = {(roles, project): self.decided(roles, project)
                      for roles in (*others, ENGINE) for project in (OURS, 'other')}
            self.load(str(NOVA_FILE))
            for project in (OURS, 'other'):
                for roles in others:
                    with self.subTest(roles, project=project, new_defaults=new_defaults):
                        self.assertEqual(before[roles, project] if new_defaults else
                                         before[roles, project] & self.decided(roles, project),
                                         self.decided(roles, project))
                for role in (ENGINE, EXECUTOR):
                    # A role that means nothing may do what anybody may.
                    anybody = before[ENGINE, project]
                    self.assertEqual(grants(NOVA_FILE, role) - anybody,
                                     self.decided(role, project) - anybody)

        self.placement_decides_as_well()

    def placement_decides_as_well(self) -> None:
        def decided(role: str) -> set[str]:
            context = placement_context.RequestContext(
                user_id='kronos', project_id=OURS, roles=[role])
            return {rule.name for rule in placement_policies.list_rules() if ':' in rule.name
                    and placement_policy.authorize(context, rule.name, {'project_id': 'other'},
                                                   do_raise=False)}

        others = ('admin', 'service', 'member', 'reader', NEITHER)
        after = {role: decided(role) for role in (*others, ENGINE, EXECUTOR)}
        self.load_placement(self.empty())
        self.assertEqual({role: decided(role) for role in others},
                         {role: after[role] for role in others})
        for role in (ENGINE, EXECUTOR):
            self.assertEqual(set(), decided(role))
            self.assertEqual(grants(PLACEMENT_FILE, role), after[role])

    def empty(self) -> str:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).join('policy.yaml'))
        path.write_text('{}\n')
        return str(path)
