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

"""The start of kronos-api: refused configurations, and answers while Keystone is silent."""

import os

import pytest

from tests import commands
from tests.fixtures import free_ports


def start(tmp_path, text, more=''):
    """Import the module of a WSGI server with a kronos.conf; return the finished process."""
    (tmp_path / 'kronos.conf').write_text(text)
    return commands.run(f'from kronos_nova.api import wsgi\n{more}', env={
        **os.environ, 'OS_KRONOS_CONFIG_FILES': str(tmp_path / 'kronos.conf')})


@pytest.mark.parametrize(('text', 'words'), [
    ('', '[keystone_authtoken] auth_type: it is not set'),
    ('[kronos_api]\nmax_limit = 0\n', '[kronos_api] max_limit'),
    ('[api\n', 'Correct the configuration file'),
    ('[oslo_policy]\npolicy_file = broken.yaml\n', 'broken.yaml: policy rules: ')])
def test_wrong_configuration_is_one_line_before_the_service_listens(tmp_path, text, words):
    (tmp_path / 'broken.yaml').write_text('- a list\n')
    done = start(tmp_path, text)
    assert done.returncode == 1 and 'Traceback' not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith('kronos-api: ')]
    assert words in line


def test_option_of_keystonemiddleware_opens_no_door(tmp_path):
    port = free_ports.reserve_port()
    done = start(tmp_path, (
        f'[keystone_authtoken]\nauth_type = password\nauth_url = http://127.0.0.1:{port}/v3\n'
        'username = a\npassword = b\nproject_name = c\ndelay_auth_decision = true\n'), """
import werkzeug.test
client = werkzeug.test.Client(wsgi.application)
spoofed = {'X-Identity-Status': 'Confirmed', 'X-Roles': 'admin', 'X-User-Id': 'u',
           'X-Project-Id': 'p'}
print(client.get('/v1/plans', headers=spoofed).status_code)
print(client.get('/v1/plans', headers={**spoofed, 'X-Auth-Token': 'x'}).status_code)
""")
    assert done.stdout.split() == ['401', '401'], done.stderr


def test_incomplete_login_is_one_line_at_the_first_token(tmp_path):
    port = free_ports.reserve_port()
    done = start(tmp_path, (
        f'[keystone_authtoken]\nauth_type = password\nauth_url = http://127.0.0.1:{port}/v3\n'
        ), """
import werkzeug.test
client = werkzeug.test.Client(wsgi.application)
print(client.get('/v1/plans', headers={'X-Auth-Token': 'x'}).status_code)
""")
    assert done.stdout.split() == ['503'] and 'Traceback' not in done.stderr
    assert 'Correct [keystone_authtoken] in kronos.conf' in done.stderr


def test_silent_keystone_is_503_and_versions_answer(tmp_path):
    port = free_ports.reserve_port()
    done = start(tmp_path, (
        f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n'
        f'[keystone_authtoken]\nauth_type = password\nauth_url = http://127.0.0.1:{port}/v3\n'
        'username = a\npassword = s3cret\nproject_name = c\nhttp_request_max_retries = 0\n'), """
import werkzeug.test
client = werkzeug.test.Client(wsgi.application)
for path in ('/', '/healthcheck', '/v1/plans'):
    answer = client.get(path, headers={'X-Auth-Token': 'a-token'})
    print(answer.status_code)
print(answer.get_json()['errors'][0]['code'])
print(client.get('/v1/plans').status_code)
""")
    assert done.stdout.split() == [
        '200', '200', '503', 'kronos.api.unavailable', '401'], done.stderr
    assert 's3cret' not in done.stderr and 'a-token' not in done.stderr
