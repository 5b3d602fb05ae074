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

"""kronos-api by its uWSGI file, with tokens of a real Keystone."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import openstack
import pytest
import sqlalchemy as sa

from kronos_nova.api import endpoints
from kronos_nova.api import handlers
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import tables
from tests.fixtures import free_ports
from tests.fixtures import keystone_server
from tests.fixtures import stores
from tests.unit.api import published
from tests.unit.api import test_access
from tests.unit.api import test_requests
from tests.unit.api import test_verdicts

ROOT = pathlib.Path(__file__).parents[2]
FIRST_HOUR = ROOT / 'doc/source/install/kolla-first-hour.rst'
PATIENCE = 120
PASSWORD = keystone_server.PASSWORD
#: User -> (role, project, the accesses that it has by the default rules).
USERS = {
    'reader': ('reader', 'operators', {'reader'}),
    'member': ('member', 'operators', {'reader'}),
    'manager': ('manager', 'operators', {'reader', 'manager'}),
    'admin-of-operators': ('admin', 'operators', {'reader', 'manager', 'admin'}),
    'tenant-manager': ('manager', 'tenant', set()),
    'tenant-admin': ('admin', 'tenant', {'reader', 'manager', 'admin'})}


class Service:
    """The service, its database, its Keystone, and a token for each user.

    :param ini: of uWSGI.
    :param conf: kronos.conf.
    """

    def __init__(self, url, store, publisher, keystone, tokens, log, ini, conf):
        self.url, self.store, self.publisher, self.keystone = url, store, publisher, keystone
        self.tokens, self.log, self._ini, self._conf = tokens, log, ini, conf

    def start(self):
        """Start the processes of kronos-api, and wait until they answer."""
        with open(self.log, 'ab') as log:
            self._process = subprocess.Popen(
                [pathlib.Path(sys.executable).with_name('uwsgi'), '--ini', str(self._ini)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, 'OS_KRONOS_CONFIG_FILES': str(self._conf)})
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.send('GET', '/healthcheck', headers={'Accept': 'application/json'})
            except (OSError, ValueError):
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(self.log.read_text()[-3000:]) from None
                time.sleep(0.1)

    def stop(self, number=signal.SIGTERM):
        """End the processes of kronos-api by a signal: SIGQUIT answers no request that waits."""
        self._process.send_signal(number)
        self._process.wait(60)

    def send(self, method, path, user=None, body=None, headers=None):
        """Return (status, document, headers) of the answer."""
        request = urllib.request.Request(
            f'{self.url}{path}', None if body is None else json.dumps(body).encode(), {
                'Content-Type': 'application/json',
                **({} if user is None else {'X-Auth-Token': self.tokens[user]}),
                **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b'null'), answer.headers
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read()), e.headers


def connect_as_admin(keystone):
    """Return openstacksdk's connection."""
    return openstack.connect(
        auth_url=keystone.url, username=keystone_server.USER, password=PASSWORD,
        project_name='admin', user_domain_id='default', project_domain_id='default',
        region_name=keystone_server.REGION)


def make_accounts(keystone):
    """Make projects and users; return (ID of the operators' project, token by user)."""
    admin = connect_as_admin(keystone).identity
    projects = {name: admin.create_project(name=name, domain_id='default')
                for name in ('operators', 'tenant', 'service')}
    roles = {role.name: role for role in admin.roles()}
    tokens = {}
    for name, (role, project, _accesses) in USERS.items():
        user = admin.create_user(name=name, password=PASSWORD, domain_id='default')
        admin.assign_project_role_to_user(projects[project], user, roles[role])
        tokens[name] = openstack.connect(
            auth_url=keystone.url, username=name, password=PASSWORD, project_name=project,
            user_domain_id='default', project_domain_id='default').auth_token
    # The account of kronos-api has no role but this one.
    account = admin.create_user(name='kronos', password=PASSWORD, domain_id='default')
    admin.assign_project_role_to_user(projects['service'], account, roles['service'])
    return projects['operators'].id, tokens


@pytest.fixture(scope='module')
def service(tmp_path_factory):
    with run_service(tmp_path_factory.mktemp('api')) as service:
        yield service


@contextlib.contextmanager
def run_service(directory, **more):
    """Run kronos-api and Keystone on a database with a published cloud.

    :param more: for the publisher.
    """
    store = stores.in_file(directory / 'kronos.sqlite')
    publisher = published.Publisher(store, directory, **more)
    publisher.run_cycle()
    with keystone_server.Keystone() as keystone:
        operators, tokens = make_accounts(keystone)
        conf = directory / 'kronos.conf'
        conf.write_text(
            f'[database]\nconnection = sqlite:///{directory}/kronos.sqlite\n'
            f'[kronos_api]\noperator_projects = {operators}\n[cors]\nallowed_origin = https://ui.example\n'
            f'[keystone_authtoken]\nauth_type = password\nauth_url = {keystone.url}\n'
            f'www_authenticate_uri = {keystone.url}\nusername = kronos\n'
            f'password = {PASSWORD}\nproject_name = service\nuser_domain_id = default\n'
            'project_domain_id = default\nservice_token_roles_required = true\n')
        port = free_ports.reserve_port()
        shipped = (ROOT / 'etc/kronos/kronos-api.ini').read_text()
        ini = directory / 'kronos-api.ini'
        ini.write_text(shipped.replace('127.0.0.1:9588', f'127.0.0.1:{port}'))
        url = f'http://127.0.0.1:{port}'
        keystone.register(connect_as_admin(keystone), 'rebalance', public=url, internal=url)
        made = Service(url, store, publisher, keystone, tokens, directory / 'api.log', ini, conf)
        try:
            made.start()
            yield made
        finally:
            # A request for events that waits would take up to 30 s.
            made.stop(signal.SIGQUIT)
            store.close()


def test_each_role_of_keystone_has_its_verbs_and_no_other(service):
    handlers.load_handlers()
    granted = {}
    for name, (_role, _project, accesses) in USERS.items():
        for endpoint in endpoints.ENDPOINTS:
            body = {} if endpoint.body is not None else None
            status, _document, _headers = service.send(
                endpoint.method, endpoint.path.format_map(test_access.ADDRESS), name, body)
            assert status < 500
            granted[name, endpoint.rule] = status not in (401, 403)
            assert granted[name, endpoint.rule] is (endpoint.access.value in accesses), (
                name, endpoint.rule, status)
    assert len(granted) == 42 * 6


@pytest.fixture(autouse=True)
def emptied(service):
    """The rows of the test before are gone, but for the published cloud.

    While a scope has a lease, an engine in a dry run publishes nothing for it.
    """
    with service.store.engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            if table.name not in ('gate', 'executor') and not table.name.startswith(
                    'reading'):
                connection.execute(sa.delete(table))


@pytest.mark.parametrize('headers', [
    {}, {'X-Auth-Token': 'x'},
    {'X-Identity-Status': 'Confirmed', 'X-Roles': 'admin', 'X-User-Id': 'u', 'X-Project-Id': 'p'}])
def test_request_without_a_valid_token_is_401(service, headers):
    for endpoint in endpoints.ENDPOINTS:
        status, document, answered = service.send(
            endpoint.method, endpoint.path.format_map(test_access.ADDRESS), headers=headers)
        assert status == 401 and document['errors'][0]['code'] == 'kronos.api.unauthenticated'
        assert 'WWW-Authenticate' in answered
        assert document['errors'][0]['request_id'] == answered['X-Openstack-Request-Id']


def test_log_of_a_refused_token_names_no_user_of_another_request(service):
    # More than the threads of all processes, so that each of them has served a user.
    for headers in ({'X-Auth-Token': service.tokens['reader']}, {'X-Auth-Token': 'x'}):
        for _number in range(24):
            service.send('GET', '/v1/pauses', headers=headers)
    lines = [line for line in service.log.read_text().splitlines()
             if 'Authorization failed for token' in line]
    assert len(lines) >= 24
    named = [line for line in lines if re.search('req-[0-9a-f-]{36} [0-9a-f]{32}', line)]
    assert not named


def test_decision_names_the_user_of_the_token(service):
    plan_id, tasks = test_requests.save_waiting_plan(service.store)
    status, approved, _headers = service.send(
        'POST', f'/v1/plans/{plan_id}/approve', 'manager', {'reason': 'night shift'})
    assert status == 200 and len(approved['tasks']) == len(tasks)
    (decision,) = service.send('GET', f'/v1/plans/{plan_id}', 'reader')[1]['decisions']
    assert decision['decided_by'].startswith('keystone:')
    assert decision['decided_by'].endswith(' roles manager,member,reader (manager)')


def test_each_process_shows_the_cloud_and_its_next_version(service):
    """Requests of several threads; each process decodes the reading once."""
    def read_hosts(_number):
        for _try in range(20):
            status, page, _headers = service.send('GET', '/v1/hosts', 'reader')
            # This Keystone does not answer many requests at a time.
            if status != 503 or page['errors'][0]['code'] != 'kronos.api.unavailable':
                break
        assert status == 200, page
        return {host['read_at'] for host in page['hosts']}.pop()

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        (before,) = set(threads.map(read_hosts, range(24)))
        service.publisher.run_cycle()
        end = time.monotonic() + PATIENCE
        while before in (shown := set(threads.map(read_hosts, range(24)))):
            assert time.monotonic() < end
    assert len(shown) == 1 and shown.pop() > before
    uuid = published.TWINS[0]
    status, verdict, _headers = service.send(
        'GET', f'/v1/instances/{uuid}/why-not?host=b', 'reader')
    assert status == 200 and not verdict['allowed']


@pytest.mark.turns(3)
def test_request_waits_for_an_event_of_another_process(service):
    marker = service.send('GET', '/v1/events', 'reader')[1]['marker']
    plan_id, _tasks = test_requests.save_waiting_plan(service.store, 1)
    _status, page, _headers = service.send(
        'GET', f'/v1/events?since={marker}&wait_seconds=20', 'reader')
    assert plan_id in {event['plan']['id'] for event in page['events'] if event['plan']}


def test_another_origin_may_read_only_where_the_operator_allows_it(service):
    for origin, allowed in (('https://ui.example', 'https://ui.example'),
                            ('https://evil.example', None)):
        headers = service.send('GET', '/v1/pauses', 'reader', headers={'Origin': origin})[2]
        assert headers['Access-Control-Allow-Origin'] == allowed
        headers = service.send('OPTIONS', '/v1/pauses', headers={
            'Origin': origin, 'Access-Control-Request-Method': 'POST',
            'Access-Control-Request-Headers': 'X-Auth-Token'})[2]
        assert headers['Access-Control-Allow-Headers'] == (allowed and 'X-Auth-Token')


class Shell:
    """``openstack`` as a process, with a clouds.yaml that has a cloud for each user."""

    def __init__(self, service, directory):
        clouds = {name: {
            'auth': {'auth_url': service.keystone.url, 'username': name, 'password': PASSWORD,
                     'project_name': project, 'user_domain_id': 'default',
                     'project_domain_id': 'default'}, 'region_name': keystone_server.REGION}
            for name, (_role, project, _accesses) in USERS.items()}
        clouds['south'] = {**clouds['reader'], 'region_name': 'south'}
        clouds['addressed'] = {**clouds['south'], 'rebalance_endpoint_override': service.url}
        clouds['mistyped'] = {**clouds['reader'],
                              'auth': {**clouds['reader']['auth'], 'password': 'wrong'}}
        self._clouds = directory / 'clouds.yaml'
        self._clouds.write_text(json.dumps({'clouds': clouds}))
        self._directory = directory

    def run(self, cloud, *arguments):
        """Return (status, standard output, standard error) of ``openstack rebalance``."""
        done = subprocess.run(
            [pathlib.Path(sys.executable).with_name('openstack'), '--os-cloud', cloud, 'rebalance',
             *arguments], cwd=self._directory, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=PATIENCE,
            env={**{name: value for name, value in os.environ.items()
                    if not name.startswith('OS_')}, 'OS_CLIENT_CONFIG_FILE': str(self._clouds),
                 'PYTHONWARNINGS': 'ignore', 'PYTHONPATH': str(ROOT)})
        assert 'Traceback' not in done.stderr
        return done.returncode, done.stdout, done.stderr

    def fail(self, cloud, *arguments):
        """Return the one line of a command that must fail."""
        status, output, error = self.run(cloud, *arguments)
        assert (status, output) == (1, ''), error
        (line,) = error.splitlines()
        return line


@pytest.fixture(scope='module')
def shell(service, tmp_path_factory):
    return Shell(service, tmp_path_factory.mktemp('client'))


@pytest.mark.turns(3)
def test_openstack_rebalance_shows_and_approves_by_role(service, shell):
    plan_id, tasks = test_requests.save_waiting_plan(service.store)
    status, output, error = shell.run('reader', 'plan', 'list', '-f', 'json')
    assert status == 0, error
    assert plan_id in [row['ID'] for row in json.loads(output)]
    line = shell.fail('reader', 'plan', 'approve', plan_id)
    assert 'kronos:plan:approve' in line and 'kronos.api.forbidden, HTTP 403' in line
    assert re.search('request req-[0-9a-f-]{36}', line)
    line = shell.fail('tenant-manager', 'plan', 'list')
    assert 'kronos:plan:list' in line and 'HTTP 403' in line
    status, output, error = shell.run('manager', 'plan', 'approve', plan_id[:13], '--reason',
                                      'night shift', '-f', 'value', '-c', 'State')
    assert (status, output) == (0, 'queued\n' * len(tasks)), error
    status, output, _error = shell.run('addressed', 'plan', 'show', plan_id, '-f', 'json')
    (decision,) = json.loads(output)['decisions']
    assert decision['decided_by'].endswith(' roles manager,member,reader (manager)')
    assert decision['reason'] == 'night shift'


@pytest.mark.turns(3)
def test_openstack_rebalance_shows_the_cloud_and_judges_a_move(shell):
    status, output, error = shell.run('reader', 'host', 'list', '-f', 'json')
    assert status == 0, error
    assert [row['Name'] for row in json.loads(output)] == list(published.HOSTS)
    status, output, error = shell.run('reader', 'why', 'not', published.TWINS[0], 'b', '-f', 'json')
    assert status == 0 and json.loads(output)['allowed'] is False, error
    line = shell.fail('manager', 'instance', 'show', published.NAME)
    assert all(uuid in line for uuid in published.TWINS)
    line = shell.fail('tenant-manager', 'host', 'list')
    assert 'kronos:host:list' in line and 'HTTP 403' in line


@pytest.mark.turns(3)
def test_openstack_rebalance_retries_and_watches_by_role(service, shell):
    uuid = test_verdicts.A1
    plan_id = published.end_move(service.store, uuid, 'a', 'b', TaskState.FAILED)
    arguments = ('plan', 'retry', plan_id[:13], '--reason', 'repaired', '--dry-run', '-f', 'json')
    line = shell.fail('reader', *arguments)
    assert 'kronos:plan:retry' in line and 'HTTP 403' in line
    status, output, error = shell.run('manager', *arguments)
    assert status == 0, error
    assert [row['Instance ID'] for row in json.loads(output)] == [uuid]
    timer = threading.Timer(8.0, test_requests.save_waiting_plan, (service.store, 1))
    timer.start()
    status, output, error = shell.run('reader', 'event', 'list', '--watch', '--limit', '2',
                                      '--timeout', '60', '-f', 'json')
    timer.join(60)
    assert status == 0, error
    assert {row['Kind'] for row in json.loads(output)} == {'plan', 'task'}


def test_commands_of_the_first_hour_work_in_their_order(service, shell):
    plan_id, tasks = test_requests.save_waiting_plan(service.store, moves=1)
    (task,) = tasks
    with service.store.engine.begin() as connection:
        quarantine.begin_quarantine(connection, 'instance', task.instance_uuid,
                                    service.store.now(), 600, 'MigrationFailed')
    words = {'PLAN': plan_id, 'INSTANCE': task.instance_uuid}
    shown = re.findall(r'^   \$ openstack --os-cloud operators rebalance (.*)$',
                       FIRST_HOUR.read_text(), re.MULTILINE)
    # No executor runs here.
    commands = [command for command in shown if '--watch' not in command]
    said = {}
    for command in commands:
        status, said[command], error = shell.run(
            'manager', *(words.get(word, word) for word in shlex.split(command)))
        assert status == 0, f'{command}: {error}'
    assert len(commands) >= 10
    assert plan_id[:8] in said['plan list'] and plan_id in said['plan show PLAN']
    (state,) = [line for line in said['task list --all --plan PLAN'].splitlines()
                if task.task_id[:8] in line]
    assert 'queued' in state
    assert 'first move' in said['pause list']
    assert task.instance_uuid[:8] in said['quarantine list']
    pauses = service.send('GET', '/v1/pauses', 'reader')[1]['pauses']
    assert None not in [pause['scope'] for pause in pauses]
    assert task.instance_uuid not in [entry['name'] for entry in service.send(
        'GET', '/v1/quarantines', 'reader')[1]['quarantines']]


@pytest.mark.turns(3)
@pytest.mark.parametrize(('cloud', 'words'), [
    ('nowhere', ('nowhere',)), ('mistyped', ('HTTP 401',)),
    ('south', ('rebalance', 'south', 'openstack catalog list', 'rebalance_endpoint_override'))])
def test_wrong_cloud_is_one_line(shell, cloud, words):
    line = shell.fail(cloud, 'plan', 'list')
    assert all(word in line for word in words), line
