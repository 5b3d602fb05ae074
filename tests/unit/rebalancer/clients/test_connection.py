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

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.conf import nova
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import connection


def conf(tmp_path: object, text: str) -> cfg.ConfigOpts:
    path = f'{tmp_path}/kronos.conf'
    with open(path, 'w') as file:
        file.write(text)
    out = cfg.ConfigOpts()
    opts.register(out)
    out([], default_config_files=[path])
    return out


def test_a_password_login_is_made_of_the_options(tmp_path: object) -> None:
    found = connection.connect(conf(tmp_path, '''
[nova]
auth_type = password
auth_url = http://127.0.0.1:5/v3
username = kronos
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = north
interface = public
endpoint_override = http://127.0.0.1:6/v2.1
'''))
    assert found.config.get_region_name() == 'north'
    assert found.config.get_interface('placement') == 'public'
    assert found.config.get_endpoint('compute') == 'http://127.0.0.1:6/v2.1'
    assert found.session.timeout == nova.REQUEST_TIMEOUT


def test_interfaces_are_given_as_to_keystoneauth_too(tmp_path: object) -> None:
    found = connection.connect(conf(tmp_path, '''
[nova]
auth_type = none
endpoint_override = http://127.0.0.1:6/v2.1
interface = admin
valid_interfaces = internal, public
'''))
    assert found.config.get_interface('compute') == ['internal', 'public']


def test_interfaces_may_have_the_older_names(tmp_path: object) -> None:
    """``internalURL``, as files of Kronos 0.2.0 and keystoneauth's examples have it."""
    login = '[nova]\nauth_type = none\nendpoint_override = http://127.0.0.1:6/v2.1\n'
    found = connection.connect(conf(tmp_path, f'{login}interface = publicURL\n'))
    assert found.config.get_interface('compute') == 'public'
    found = connection.connect(conf(tmp_path, f'{login}valid_interfaces = internalURL, adminURL\n'))
    assert found.config.get_interface('compute') == ['internal', 'admin']


@pytest.mark.parametrize('text', ['', '[nova]\nauth_type = nonsense\n'])
def test_no_way_to_log_in_is_one_clear_error(tmp_path: object, text: str) -> None:
    with pytest.raises(exception.ConfigError, match=r'\[nova\]: auth_type: ') as caught:
        connection.connect(conf(tmp_path, text))
    assert '\n' not in str(caught.value)
