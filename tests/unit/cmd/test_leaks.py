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


"""Canaries: every secret of kronos.conf, every command, every kind of fault; the
tests search output, logs at DEBUG and written files for them."""

import base64
import contextlib
import json
import logging as stdlib_logging
import re
import socket

from oslo_config import cfg
from oslo_log import log as logging
import pytest
import requests

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import opts
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.rebalancer.store import database
from kronos_nova.sources import prometheus
from tests import commands
from tests.fixtures import prometheus_api

#: Each is found whole, and so is what is left of it where it is cut in two.
CANARY = 'c4n4ry'
POLICIES = '''
policies:
  - {name: cpu, weight: 1.0, imbalance_query: cpu, vm_profile_query: vm}
'''
COMMANDS = {
    'test-config': ('kronos_nova.cmd.test_config', [
        '--debug', '--format', 'json', '--config-file', 'CONF']),
    'engine': ('kronos_nova.cmd.engine', ['--debug', '--once', '--config-file', 'CONF']),
    'executor': ('kronos_nova.cmd.executor', ['--debug', '--config-file', 'CONF']),
    'record': ('kronos_nova.cmd.record', ['--debug', '--config-file', 'CONF', 'OUT']),
    'replay': ('kronos_nova.cmd.replay', [
        '--debug', '--config-file', 'CONF', 'doc/examples/replay/snapshot']),
    'manage': ('kronos_nova.cmd.manage', ['--debug', '--config-file', 'CONF', 'db', 'sync']),
    'status': ('kronos_nova.cmd.status', ['--debug', '--config-file', 'CONF', 'upgrade', 'check']),
    'pause': ('kronos_nova.cli.app', ['--debug', 'pause', 'list', '--config-file', 'CONF'])}


@pytest.fixture(scope='module')
def closed_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        yield sock.getsockname()[1]


def options(port):
    """Return options whose secrets hold the canary and whose ports are all closed."""
    where = f'127.0.0.1:{port}'
    return {
        'DEFAULT': {'transport_url': f'rabbit://kronos:{CANARY}-1@{where}/'},
        'engine': {'dry_run': 'false'},
        'prometheus': {'url': f'http://u:{CANARY}-2@{where}', 'bearer_token': f'{CANARY}-3',
                       'username': 'u', 'password': f'{CANARY}-4', 'timeout': 3,
                       'max_retries': 0},
        'database': {'connection': f'mysql+pymysql://kronos:{CANARY}-5@{where}/kronos'},
        'nova': {'auth_type': 'password', 'auth_url': f'http://u:{CANARY}-6@{where}/v3',
                 'username': 'nova', 'password': f'{CANARY}-7', 'project_name': 'service',
                 'user_domain_name': 'Default', 'project_domain_name': 'Default'},
        'cache': {'enabled': 'true', 'backend': 'dogpile.cache.redis',
                  'backend_argument': f'url:redis://:{CANARY}-8@{where}/0'},
        'kronos_channel': {'servers': where, 'hmac_keys': f'{CANARY}-9-of-at-least-32-characters'}}


#: What is changed, and the commands that look at it.
FAULTS = {
    'everything refuses the connection': ({}, tuple(COMMANDS)),
    'the URL of Prometheus has a slash in its password': (
        {'prometheus': {'url': f'http://u:{CANARY}/x@h:9090'}},
        ('test-config', 'engine', 'record', 'replay')),
    'the URL of Prometheus is of another scheme': (
        {'prometheus': {'url': f'ftp://u:{CANARY}@h'}}, ('test-config', 'engine')),
    'the URL of Prometheus has no number as its port': (
        {'prometheus': {'url': f'http://u@h:{CANARY}/'}}, ('test-config', 'engine')),
    'the token has a line break': (
        {'prometheus': {'bearer_token': f'{CANARY}\n a'}}, ('test-config',)),
    'the URL of the database has an @ in its password': (
        {'database': {'connection': f'mysql+pymysql://kronos:x@{CANARY}@h/kronos'}},
        ('test-config', 'engine', 'executor', 'manage', 'status', 'pause', 'record')),
    'the URL of the database has no number as its port': (
        {'database': {'connection': f'mysql+pymysql://kronos@h:{CANARY}/kronos'}},
        ('test-config', 'manage', 'status', 'pause')),
    'the URL of the database is of no known kind': (
        {'database': {'connection': f'nonsense://kronos:{CANARY}@h/kronos'}},
        ('test-config', 'manage', 'status')),
    'the database has a password among its parameters': (
        {'database': {'connection': f'mysql+pymysql://kronos@h/kronos?password={CANARY}'}},
        ('test-config', 'manage')),
    'the URL of the broker has a slash in its password': (
        {'DEFAULT': {'transport_url': f'rabbit://kronos:{CANARY}/x@h:5672/'},
         'database': {'connection': 'sqlite:///SQLITE'}},
        ('test-config', 'engine', 'executor')),
    'the URL of the broker is of no known kind': (
        {'DEFAULT': {'transport_url': f'nonsense://kronos:{CANARY}@h/'},
         'database': {'connection': 'sqlite:///SQLITE'}},
        ('test-config', 'engine', 'executor')),
    'a line of the file is broken off': (
        {'database': {'connection': f'sqlite://\n{CANARY}'}}, tuple(COMMANDS)),
    'the login plug-in does not exist': (
        {'nova': {'auth_type': 'nonsense', 'password': CANARY},
         'database': {'connection': 'sqlite:///SQLITE'}}, ('test-config', 'engine', 'record'))}


@pytest.mark.parametrize('fault', FAULTS)
def test_no_command_shows_a_secret_on_any_fault(fault, tmp_path, closed_port):
    changes, names = FAULTS[fault]
    found = options(closed_port)
    (tmp_path / 'policies.yaml').write_text(POLICIES)
    found['engine']['policies_file'] = tmp_path / 'policies.yaml'
    for group, values in changes.items():
        found[group] |= values
    path = tmp_path / 'kronos.conf'
    path.write_text(''.join(f'[{group}]\n' + ''.join(
        f'{name} = {value}\n' for name, value in values.items())
        for group, values in found.items()).replace('SQLITE', f'{tmp_path}/kronos.sqlite'))
    for name in names:
        module, arguments = COMMANDS[name]
        done = commands.main(module, *(
            {'CONF': path, 'OUT': tmp_path / 'out'}.get(a, a) for a in arguments))
        text = done.stdout + done.stderr
        assert CANARY not in text, name
        assert 'Traceback' not in re.sub(r'(?s)DEBUG .*?(?=\n\d{4}-|\Z)', '', text), name
        assert len(text) > 40 and 'usage:' not in text, f'{name}: {text}'
    assert b'c4n4ry' not in b''.join(
        p.read_bytes() for p in tmp_path.rglob('*') if p.is_file() and p.suffix != '.conf')


def test_options_logged_at_debug_hide_secrets(caplog, closed_port):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    found = options(closed_port)
    for group in ('prometheus', 'database'):
        for name, value in found[group].items():
            conf.set_override(name, value, group)
    conf.set_override('password', f'{CANARY}-9', 'messaging')
    with caplog.at_level('DEBUG'):
        conf.log_opt_values(stdlib_logging.getLogger('x'), stdlib_logging.DEBUG)
    assert 'prometheus.url' in caplog.text and 'database.connection' in caplog.text
    assert CANARY not in caplog.text


def echo(handler, form):
    """What a proxy with a debug page does."""
    prometheus_api.PrometheusAPI.send(handler, 400, {
        'status': 'error', 'errorType': 'x',
        'error': f'bad request: {dict(handler.headers)}'})


def warn(handler, form):
    prometheus_api.PrometheusAPI.send(handler, 200, {
        'status': 'success', 'warnings': [str(dict(handler.headers))],
        'data': {'resultType': 'vector', 'result': []}})


def odd_series(handler, form):
    prometheus_api.PrometheusAPI.send(handler, 200, {
        'status': 'success', 'data': {'resultType': 'vector', 'result': [
            {'metric': {'seen': handler.headers['Authorization']}, 'value': [0, '1']},
            {'metric': {'host': 'a'}, 'value': [0, '1']}]}})


def answered(status, document, content_type='application/json', **headers):
    return lambda handler, form: prometheus_api.PrometheusAPI.send(
        handler, status, document, content_type, **headers)


ANSWERS = {
    'it repeats the header in an error': echo,
    'it repeats the header in a warning': warn,
    'it repeats the header in a label': odd_series,
    '401': answered(401, b'go away'), '403': answered(403, b'go away'),
    'redirect': answered(302, b'', Location=f'http://u:{CANARY}@127.0.0.1/'),
    'no JSON': answered(200, b'<html>', 'text/html'),
    'broken JSON': answered(200, b'{"status":'),
    '500': answered(500, {'status': 'error', 'error': 'x'}),
    'no answer in time': lambda handler, form: handler.rfile.read(1)}
LOGINS = {
    'bearer': {'bearer_token': f'{CANARY}-token'},
    'basic': {'username': 'u', 'password': f'{CANARY}-word'},
    'url': {}}


@pytest.mark.parametrize('login', LOGINS)
def test_faults_of_prometheus_never_show_our_login(login, caplog, tmp_path):
    given = policy.parse_policies({'policies': [{
        'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'vm_profile_query': 'vm'}]})
    for name, respond in ANSWERS.items():
        with prometheus_api.running() as server, caplog.at_level('DEBUG'):
            server.respond = respond
            conf = cfg.ConfigOpts()
            opts.register_planning(conf)
            conf([], default_config_files=[])
            url = server.url
            if login == 'url':
                url = url.replace('//', f'//u:{CANARY}-w%40rd@')
            for option, value in {'url': url, 'max_retries': 0,
                                  'timeout': 0.5, **LOGINS[login]}.items():
                conf.set_override(option, value, 'prometheus')
            source = prometheus.PrometheusSource(conf)
            samples = {'cpu': source.fetch(given.enabled_policies[0])}
            health = source.health()
            ranged = source.query_range('cpu', 'host', '', prometheus.ranges.QueryWindow(0, 60, 2))
            source.close()
            assert server.requests, name
        path = writer.write_snapshot(str(tmp_path), writer.SnapshotContent(
            now=1.0, scopes=(), policies=given, samples=samples, cluster='x', histories='x'))
        recorded = ''.join(p.read_text() for p in tmp_path.rglob('*.json'))
        seen = f'{samples}{health}{ranged}{recorded}{caplog.text}{path}'
        encoded = base64.b64encode(f'u:{CANARY}'.encode()).decode()[:9]
        shown = [s for s in (CANARY, encoded, *secret_mask.find_secrets(conf)) if s in seen]
        assert not shown, name


def test_tls_that_fails_shows_nothing(caplog):
    with prometheus_api.running() as server, caplog.at_level('DEBUG'):
        conf = cfg.ConfigOpts()
        opts.register_planning(conf)
        conf([], default_config_files=[])
        url = server.url.replace('http://', f'https://u:{CANARY}@')
        conf.set_override('url', url, 'prometheus')
        conf.set_override('max_retries', 0, 'prometheus')
        source = prometheus.PrometheusSource(conf)
        result = source.fetch_query('up', 'host')
        source.close()
    assert 'TLS failed' in result.error
    assert CANARY not in caplog.text + str(result)


@pytest.mark.parametrize('url', [
    f'ftp://u:{CANARY}@h', f'http://u:{CANARY}/x@h:1', f'http://[{CANARY}'])
def test_error_about_an_invalid_prometheus_url_omits_the_url(url, tmp_path):
    path = tmp_path / 'nova.conf'
    path.write_text(f'[prometheus]\nurl = {url}\n')
    conf = cfg.ConfigOpts()
    opts.register_planning(conf)
    conf([], default_config_files=[str(path)])
    with pytest.raises(exception.ConfigError) as error:
        prometheus.PrometheusSource(conf)
    assert CANARY not in str(error.value)
    assert CANARY not in str(opts.wrong_values(conf))


class Response:
    status_code = 403

    def __init__(self, text):
        self._text = text

    def json(self):
        return {'forbidden': {'message': self._text}}


@pytest.mark.parametrize('text', [
    'X-Auth-Token: c4n4ry-token-value', "{'Authorization': 'Bearer c4n4ry-token'}",
    'authorization=Basic c4n4ry', "Header part ('Bearer c4n4ry\\n') from ('Authorization', ...)",
    'the credentials Basic dTpjNG40cnk= are not valid', 'BEARER c4n4ry',
    'token gAAAAABc4n4ryc4n4ryc4n4ryc4n4ry-_x== is bad', 'see http://u:c4n4ry@h/v3'])
def test_secrets_that_nova_echoes_are_hidden(text):
    """Such a message goes into tasks, notifications and logs."""
    said = api.ServiceApi(None, 'Nova', 'compute').describe_refusal(Response(text), 'rule')
    assert CANARY not in said and 'dTpj' not in said and '***' in said


def test_error_of_requests_about_an_invalid_header_hides_the_token():
    with pytest.raises(requests.exceptions.InvalidHeader) as error:
        requests.Request('GET', 'http://h/', {
            'Authorization': f'Bearer {CANARY}-token\n'}).prepare()
    assert CANARY in str(error.value) and CANARY not in secret_mask.mask_text(str(error.value))


@pytest.mark.parametrize('text', [
    'Basic authentication failed', 'bearer token expected', 'neither bearer nor basic',
    'the Bearer authentication/login is missing', 'Basic: 2024'])
def test_text_about_credentials_without_secrets_stays_unchanged(text):
    assert secret_mask.mask_text(text) == text


def test_a_database_is_shown_without_password_and_parameters():
    url = f'postgresql://kronos:{CANARY}@db:5432/kronos?sslpassword={CANARY}'
    assert database.redact_url(database.sa.engine.make_url(url)) == (
        'postgresql://kronos:***@db:5432/kronos')


@pytest.mark.parametrize(('text', 'words'), [
    ('rabbit://u:one@a:1,u2:tw%6F@b:2/',
     {'one', 'tw%6F', 'two', 'one@a:1,u2:tw%6F', 'one@a:1,u2:two'}),
    ('http://u:a/b@h', {'a/b'}), ('http://h/@x', set()), ('http://h', set()),
    ('url:redis://:pw@h/0', {'pw'}), ('just text', set())])
def test_the_passwords_of_urls_are_found(text, words):
    assert set(secret_mask.find_passwords(text)) == words


def test_options_named_after_tokens_that_hold_no_secret_are_not_masked():
    conf = cfg.ConfigOpts()
    conf.register_opts([
        cfg.ListOpt('service_token_roles', default=['service']),
        cfg.StrOpt('enforce_token_bind', default='permissive'),
        cfg.StrOpt('memcache_secret_key', default=f'{CANARY}-key'),
        cfg.StrOpt('admin_token', default=f'{CANARY}-token'),
        cfg.StrOpt('sasl_password', default=f'{CANARY}-word')], 'keystone_authtoken')
    conf([], default_config_files=[])
    assert secret_mask.find_secrets(conf) == {
        f'{CANARY}-{end}' for end in ('key', 'token', 'word')}


@contextlib.contextmanager
def logged(conf, path):
    """The root logger writes to a file as a daemon's does, through our guard."""
    root = stdlib_logging.getLogger()
    before = root.handlers[:], root.level
    logging.register_options(conf)
    conf([], default_config_files=[])
    conf.set_override('log_file', str(path))
    conf.set_override('debug', True)
    logging.setup(conf, 'kronos')
    secret_mask.install_mask(conf)
    try:
        yield logging.getLogger('test')
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:], level = before
        root.setLevel(level)
        secret_mask.install_mask(cfg.ConfigOpts())


def test_the_log_hides_what_libraries_say_also_in_tracebacks(tmp_path):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    path = tmp_path / 'kronos.log'
    with logged(conf, path) as log:
        conf.set_override('password', f'{CANARY}-word', 'prometheus')
        conf.set_override('connection', f'mysql://k:{CANARY}-%2F@h/', 'database')
        conf.register_opt(cfg.StrOpt('late'), group='nova')  # as keystoneauth does
        log.debug('connecting to %s', f'mysql://k:{CANARY}-%2F@h/')
        log.info('password %s-/', CANARY)
        try:
            raise ValueError(f'no {CANARY}-word for you')
        except ValueError:
            log.warning('in an except block')
            log.exception('it failed')
    text = path.read_text()
    assert 'it failed' in text and 'Traceback' in text and 'ValueError: no *** for you' in text
    assert CANARY not in text


def test_a_snapshot_of_what_failed_holds_no_secret(tmp_path, closed_port):
    """What the recorder writes of a database and a Nova that are away."""
    class Collector:
        def collect_cluster(self, now):
            raise exception.CollectError(
                what='servers', service='Nova',
                problem=api.format_printable(f'see http://u:{CANARY}@h'))

    class Store:
        @property
        def history(self):
            return self

        tasks = history

        def read_history(self, scope, now, remembered):
            engine = database.from_url(
                f'mysql+pymysql://k:{CANARY}@127.0.0.1:{closed_port}/kronos')
            with database.explain_errors(engine), engine.connect():
                raise AssertionError('nobody listens')

        def list_in_flight_moves(self):
            return self.read_history('', 0.0, 0.0)

    class Source:
        def fetch(self, policy):
            unread = model.QueryResult('q', model.SourceHealth.UNREACHABLE, error='x')
            return model.PolicySamples('cpu', unread, taken_at=1.0)

    given = policy.parse_policies({'policies': [{
        'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'q', 'vm_profile_query': 'q'}]})
    recording = recorder.read_recording(Collector(), Source(), Store(), given, ('_unassigned_',),
                                        lambda: 1.0)
    path = writer.write_snapshot(str(tmp_path), recording)
    texts = json.dumps(recorder.list_unknown_parts(recording)) + ''.join(
        p.read_text() for p in tmp_path.rglob('*.json'))
    assert '127.0.0.1' in texts and path in str(tmp_path / path)
    assert CANARY not in texts
