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

"""kronos-api of the role: its files, HAProxy before it, and the way from one to the other.

One cloud has TLS at both addresses of HAProxy and to the containers, another one only at the
addresses. A real HAProxy and a real uWSGI run with the files of the second, as the uWSGI of this
environment speaks no TLS itself.
"""

import configparser
import csv
import io
import json
import os
from pathlib import Path
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

from keystoneauth1 import loading
from keystonemiddleware import opts as middleware_opts
from oslo_middleware import opts as http_opts
from oslo_policy import opts as policy_opts
import pytest
import sqlalchemy
import yaml

from kronos_nova.api import versions
from kronos_nova.conf import opts
from tests import ci
from tests.deploy import container_setup
from tests.deploy import kolla_cloud
from tests.deploy import kolla_env
from tests.deploy import rendered_conf
from tests.fixtures import certificates
from tests.fixtures import free_ports

#: With a quarter of the commits, in which the plain cloud has a rest.
pytestmark = pytest.mark.turns(4, 1)

PATIENCE = 60
INTERNAL, EXTERNAL = '192.0.2.10', '192.0.2.11'
#: Both addresses have TLS.
SETTINGS = {**kolla_cloud.TLS, **kolla_cloud.API, 'kolla_same_external_internal_vip': False,
            'kolla_external_vip_address': EXTERNAL, 'kolla_enable_tls_external': True}
SECTIONS = ('Install', 'Tell kolla-ansible', 'Policies')
RULES = {'kronos:plan:approve': 'rule:operator_admin'}
#: Every password that is not ours.
OTHERS = 'abcdefghijklmnopqrstuv'


def render(top: Path, **settings) -> kolla_cloud.Cloud:
    kolla_env.prepared()
    made = kolla_cloud.Cloud(top)
    made.write({**SETTINGS, **settings}, SECTIONS)
    certificates.write_certificate(made.config / 'certificates')
    (made.config / 'config/kronos/policy.yaml').write_text(yaml.safe_dump(RULES))
    made.genconfig(kolla_env.ANSIBLE / 'kronos.yml')
    return made


@pytest.fixture(scope='module')
def cloud(tmp_path_factory) -> kolla_cloud.Cloud:
    return render(tmp_path_factory.mktemp('api'), kolla_enable_tls_backend=True)


@pytest.fixture(scope='module')
def without_tls_inside(tmp_path_factory) -> kolla_cloud.Cloud:
    """A cloud whose HAProxy speaks to the containers without TLS, as kolla-ansible's default is."""
    return render(tmp_path_factory.mktemp('inside'))


@pytest.fixture
def conf(cloud):
    return rendered_conf.daemon(cloud, 'kronos-api')


def read_port(cloud: kolla_cloud.Cloud) -> int:
    return int(yaml.safe_load((cloud.config / 'globals.yml').read_text())['kronos_api_port'])


def read_uwsgi(cloud: kolla_cloud.Cloud) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser()
    assert parser.read(cloud.node / 'kronos-api/kronos-api-uwsgi.ini')
    return parser['uwsgi']


@pytest.mark.long
def test_second_rendering_changes_nothing(cloud):
    output = cloud.genconfig(kolla_env.ANSIBLE / 'kronos.yml')
    ((done, changed, failed),) = re.findall(
        r'^localhost .*ok=(\d+).*changed=(\d+).*failed=(\d+)', output, re.MULTILINE)
    assert int(done) >= 10 and (changed, failed) == ('0', '0')


def test_every_option_exists_and_accepts_its_value(cloud, conf):
    assert opts.wrong_values(conf) == []
    known = rendered_conf.known(
        *opts.list_opts(), *middleware_opts.list_auth_token_opts(),
        *http_opts.list_opts(), *policy_opts.list_opts())
    known |= {('DEFAULT', name) for name in ('debug', 'log_file')}
    known |= {('keystone_authtoken', name) for name in (
        'auth_url', 'username', 'password', 'project_name', 'project_domain_id',
        'user_domain_id')}
    given = rendered_conf.given(cloud.node / 'kronos-api/kronos.conf')
    assert len(given) > 20 and given - known == set()


def test_api_has_its_own_account_and_operator_projects(cloud, conf):
    assert conf.kronos_api.operator_projects == ['4f1c9a7e', '8b2d0c5e']
    for _group, options in middleware_opts.list_auth_token_opts():
        conf.register_opts(options, 'keystone_authtoken')
    plugin = loading.load_auth_from_conf_options(conf, 'keystone_authtoken')
    assert (plugin._username, plugin._password, plugin.auth_url) == (
        'kronos-api', cloud.passwords['kronos_api_keystone_password'],
        f'https://{INTERNAL}:5000')
    group = conf.keystone_authtoken
    assert group.www_authenticate_uri == 'https://cloud.example.org:5000'
    assert (group.service_type, group.service_token_roles_required) == (
        versions.SERVICE_TYPE, True)
    assert group.cafile == kolla_cloud.TLS['openstack_cacert']


def test_api_uses_the_database_of_the_engine(cloud, conf):
    engine = rendered_conf.daemon(cloud, 'kronos-engine')
    assert conf.database.connection == engine.database.connection
    assert sqlalchemy.make_url(conf.database.connection).database == 'kronos'
    assert dict(conf.engine) == dict(engine.engine)


def test_api_knows_no_secret_of_broker_cache_or_daemons(cloud):
    text = (cloud.node / 'kronos-api/kronos.conf').read_text()
    assert {name for name in kolla_cloud.OUR_PASSWORDS if cloud.passwords[name] in text} == {
        'kronos_database_password', 'kronos_api_keystone_password'}
    assert OTHERS not in text and OTHERS in (
        cloud.node / 'kronos-engine/kronos.conf').read_text()


def test_daemons_do_not_know_the_account_of_the_api(cloud):
    password = cloud.passwords['kronos_api_keystone_password']
    for daemon in rendered_conf.DAEMONS[:2]:
        assert password not in (cloud.node / daemon / 'kronos.conf').read_text()
        assert {path.name for path in (cloud.node / daemon).iterdir()} == {
            'ca-certificates', 'config.json', 'kronos.conf'}


def test_no_memcached_can_hand_objects_to_the_api(cloud):
    """python-memcached unpickles answers before keystonemiddleware checks a signature."""
    given = rendered_conf.given(cloud.node / 'kronos-api/kronos.conf')
    assert ('keystone_authtoken', 'auth_url') in given
    assert [name for section, name in given if 'memcache' in name] == []


def test_policy_rules_of_the_operator_reach_the_api(cloud, conf):
    conf.register_opts(policy_opts._options, 'oslo_policy')
    file = cloud.node / 'kronos-api' / conf.oslo_policy.policy_file
    assert yaml.safe_load(file.read_text()) == RULES
    assert f'/etc/kronos/{conf.oslo_policy.policy_file}' in [
        placed['dest'] for placed in cloud.json('kronos-api/config.json')['config_files']]


def test_kolla_sets_up_container_by_config_json(cloud, tmp_path):
    if os.geteuid():
        pytest.skip('only root can chroot and chown; the next test is for everybody')
    container_setup.set_up(cloud.node / 'kronos-api', tmp_path)
    assert (tmp_path / 'run_command').read_text() == 'uwsgi /etc/kronos/kronos-api-uwsgi.ini'
    place = tmp_path / 'etc/kronos'
    for name in ('kronos.conf', 'policy.yaml', 'certs/kronos-cert.pem', 'certs/kronos-key.pem',
                 'kronos-api-uwsgi.ini'):
        assert container_setup.read_owner(place / name) == (42900, 42900, 0o600)
    certificate, key = (f'{tmp_path}{name}' for name in read_uwsgi(cloud)['https'].split(',')[1:])
    # A pair, or it raises.
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)


def test_kolla_validates_config_json(cloud):
    assert container_setup.validate(cloud.node / 'kronos-api') == {
        'command': 'uwsgi /etc/kronos/kronos-api-uwsgi.ini', 'missing': [],
        'mistake found': True}


def test_uwsgi_speaks_tls_on_the_network_of_the_apis(cloud, without_tls_inside):
    uwsgi = read_uwsgi(cloud)
    assert uwsgi['https'].split(',')[0] == f'127.0.0.1:{read_port(cloud)}'
    assert 'http' not in uwsgi and 'socket' not in uwsgi
    plain = read_uwsgi(without_tls_inside)
    assert plain['http'] == f'127.0.0.1:{read_port(without_tls_inside)}' and 'https' not in plain
    for found in (uwsgi, plain):
        assert found['module'] == 'kronos_nova.api.wsgi:application'
        assert (found['uid'], found['processes']) == ('kronos', '2')
        assert found['logto2'] == '/var/log/kolla/kronos/kronos-api-uwsgi.log'
        assert int(found['buffer-size']) >= 65535


def read_haproxy(cloud: kolla_cloud.Cloud) -> dict[str, list[str]]:
    """Map sections of HAProxy's file for us to their lines."""
    lines_by_section: dict[str, list[str]] = {}
    for line in (cloud.node / 'haproxy/services.d/kronos-api.cfg').read_text().splitlines():
        if re.match(r'\S', line):
            section = lines_by_section.setdefault(line, [])
        elif line.strip():
            section.append(' '.join(line.split()))
    return lines_by_section


def test_haproxy_has_tls_at_both_addresses_and_to_the_container(cloud):
    sections = read_haproxy(cloud)
    port = read_port(cloud)
    assert set(sections) == {f'{kind} kronos_api{which}_{end}' for kind, end in (
        ('frontend', 'front'), ('backend', 'back')) for which in ('', '_external')}
    for which, address, file in (('', INTERNAL, 'haproxy-internal.pem'),
                                 ('_external', EXTERNAL, 'haproxy.pem')):
        front = sections[f'frontend kronos_api{which}_front']
        (bind,) = (line for line in front if line.startswith('bind '))
        assert bind.startswith(f'bind {address}:{port} ssl crt /etc/haproxy/certificates/{file}')
        assert 'http-request del-header X-Forwarded-Proto' in front
        (server,) = (line for line in sections[f'backend kronos_api{which}_back']
                     if line.startswith('server '))
        assert f' 127.0.0.1:{port} check check-ssl ' in f'{server} '
        assert 'ssl verify required' in server


def test_haproxy_asks_each_backend_for_its_health(cloud):
    for which in ('', '_external'):
        assert 'option httpchk GET /healthcheck' in read_haproxy(cloud)[
            f'backend kronos_api{which}_back']


class Chain:
    """uWSGI and HAProxy with rendered files; ``internal`` and ``external`` are HAProxy's ports."""

    def __init__(self, cloud: kolla_cloud.Cloud, directory: Path) -> None:
        self.directory = directory
        self.internal, self.external = (free_ports.reserve_port() for _number in range(2))
        self._context = ssl.create_default_context(
            cafile=str(cloud.config / 'certificates/backend-cert.pem'))
        self._write_api(cloud)
        self._write_haproxy(cloud)
        self._processes: list[subprocess.Popen[bytes]] = []

    def _write_api(self, cloud: kolla_cloud.Cloud) -> None:
        """Write the rendered files for a machine without a user kronos, database and folders."""
        text = (cloud.node / 'kronos-api/kronos.conf').read_text()
        text = text.replace('/var/log/kolla/kronos/', f'{self.directory}/')
        text = re.sub(r'^connection = .*', f'connection = sqlite:///{self.directory}/kronos.sqlite',
                      text, flags=re.MULTILINE)
        keys = cloud.config / 'config/kronos/signing-keys'
        assert keys.is_dir() and '\nkey_repository = /etc/kronos/signing-keys\n' in text
        text = text.replace('/etc/kronos/signing-keys', str(keys))
        (self.directory / 'kronos.conf').write_text(text)
        shutil.copy(cloud.node / 'kronos-api/policy.yaml', self.directory)
        text = (cloud.node / 'kronos-api/kronos-api-uwsgi.ini').read_text()
        text = text.replace('/var/log/kolla/kronos/', f'{self.directory}/')
        # The package for Python has its plug-in built in.
        text, count = re.subn(r'^(uid|plugins|plugins-dir) = .*\n', '', text, flags=re.MULTILINE)
        assert count == 3
        (self.directory / 'uwsgi.ini').write_text(text)

    def _write_haproxy(self, cloud: kolla_cloud.Cloud) -> None:
        place = self.directory / 'certificates'
        place.mkdir()
        pair = ''.join((cloud.config / f'certificates/backend-{part}.pem').read_text()
                       for part in ('cert', 'key'))
        for name in ('haproxy.pem', 'haproxy-internal.pem'):
            (place / name).write_text(pair)
        port = read_port(cloud)
        text = (cloud.node / 'haproxy/services.d/kronos-api.cfg').read_text()
        for given, made in ((f'{INTERNAL}:{port}', f'127.0.0.1:{self.internal}'),
                            (f'{EXTERNAL}:{port}', f'127.0.0.1:{self.external}'),
                            ('/etc/haproxy/certificates', str(place))):
            assert given in text
            text = text.replace(given, made)
        (self.directory / 'services.cfg').write_text(text)
        (self.directory / 'main.cfg').write_text(
            f'global\n    stats socket {self.directory}/stats mode 600\n'
            'defaults\n    timeout connect 10s\n    timeout client 1m\n    timeout server 1m\n'
            '    timeout check 10s\n')

    def start(self) -> None:
        haproxy = [ci.program('haproxy', 'haproxy'), '-f', str(self.directory / 'main.cfg'), '-f',
                   str(self.directory / 'services.cfg')]
        checked = subprocess.run([*haproxy, '-c'], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        for command in ([str(Path(sys.executable).with_name('uwsgi')), '--ini',
                         str(self.directory / 'uwsgi.ini')], [*haproxy, '-db']):
            with (self.directory / 'output').open('ab') as output:
                self._processes.append(subprocess.Popen(
                    command, cwd=kolla_env.TOP, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output, env={**os.environ, 'OS_KRONOS_CONFIG_FILES': str(
                        self.directory / 'kronos.conf')}))
        deadline = time.monotonic() + PATIENCE
        # A worker that still loads the application at SIGTERM would end worker-reload-mercy later.
        while set(self.read_checks()) != {'L7OK/200'} or self.count_workers() < 2:
            assert time.monotonic() < deadline, (self.directory / 'output').read_text()
            time.sleep(0.2)

    def count_workers(self) -> int:
        """Return how many workers have loaded the application."""
        return (self.directory / 'kronos-api-uwsgi.log').read_text().count(' ready in ')

    def read_checks(self) -> list[str]:
        """Return the results of HAProxy's checks of the servers."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(PATIENCE)
                asking.connect(str(self.directory / 'stats'))
                asking.sendall(b'show stat\n')
                with asking.makefile() as answer:
                    rows = list(csv.DictReader(io.StringIO(answer.read().removeprefix('# '))))
        except OSError:
            return []
        return [f'{row["check_status"]}/{row["check_code"]}' for row in rows
                if row['check_status']]

    def ask(self, port: int, path: str, **headers: str) -> tuple[int, str, str]:
        """Return status, body and WWW-Authenticate of an answer over TLS."""
        request = urllib.request.Request(f'https://localhost:{port}{path}', headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE, context=self._context) as answer:
                return answer.status, answer.read().decode(), ''
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.read().decode(), str(e.headers['WWW-Authenticate'])

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(PATIENCE)


@pytest.fixture(scope='module')
def chain(without_tls_inside, tmp_path_factory):
    made = Chain(without_tls_inside, tmp_path_factory.mktemp('chain'))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_addresses_in_answers_are_those_of_the_proxy(chain):
    """TLS ends at HAProxy: only a header tells the service about TLS."""
    for port in (chain.internal, chain.external):
        status, body, _challenge = chain.ask(port, '/')
        assert status in (200, 300)
        (version,) = json.loads(body)['versions']
        assert {link['href'].partition('/v1')[0] for link in version['links']} == {
            f'https://localhost:{port}'}


def test_sent_header_does_not_change_the_protocol(chain):
    _status, body, _challenge = chain.ask(chain.external, '/', **{'X-Forwarded-Proto': 'http'})
    assert 'http://' not in body and 'https://' in body


def test_request_without_a_token_is_refused_with_the_public_keystone(chain):
    status, body, challenge = chain.ask(chain.external, '/v1/plans')
    assert status == 401 and json.loads(body)['errors'][0]['code'] == 'kronos.api.unauthenticated'
    assert 'https://cloud.example.org:5000' in challenge


def test_daemon_and_uwsgi_log_where_kolla_expects(chain):
    chain.ask(chain.internal, '/healthcheck')
    assert (chain.directory / 'kronos-api-uwsgi.log').exists()
    assert (chain.directory / 'kronos-api.log').exists()
