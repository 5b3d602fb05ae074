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

"""The routes of kronos-api on a database of their own, with the headers that keystonemiddleware
sets."""

from oslo_config import cfg
import pytest

from kronos_nova.api import application
from kronos_nova.conf import opts
from tests.fixtures import stores

OPERATORS = 'b0' * 16
TENANT = 'c1' * 16


class Client:
    """Sends requests with a confirmed identity."""

    def __init__(self, routes):
        self._client = routes.test_client()

    def send(self, method, path, *, roles='admin', project=OPERATORS, headers=None, **body):
        """Return (status, document) of the answer; the document of an empty one is None."""
        answer = self._client.open(path, method=method, headers={
            'X-Identity-Status': 'Confirmed', 'X-User-Id': 'a' * 32, 'X-User-Name': 'alice',
            'X-Project-Id': project, 'X-Project-Name': 'operators', 'X-Roles': roles,
            **(headers or {})}, **body)
        return answer.status_code, answer.get_json() if answer.data else None

    def fail(self, method, path, **more):
        """Return (status, detail) of an answer that must be an error."""
        status, document = self.send(method, path, **more)
        (error,) = document['errors']
        assert status == error['status'] >= 400
        return status, error['detail']


@pytest.fixture
def store(tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    yield store
    store.close()


@pytest.fixture
def conf(tmp_path, store):
    file = tmp_path / 'kronos.conf'
    file.write_text(f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n'
                    f'[kronos_api]\noperator_projects = {OPERATORS}\nmax_limit = 200\n'
                    '[engine]\naggregates = blue\n')
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[str(file)])
    return conf


@pytest.fixture
def client(conf):
    return Client(application.make_routes(conf))
