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


"""kill -9 and SIGSTOP at named points, and restarts of database and broker."""

import pytest

from tests.integration import servers
from tests.integration.crash import harness
from tests.integration.crash.harness import Fall


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    cloud = harness.Cloud(tmp_path_factory.mktemp('cloud'))
    yield cloud
    cloud.close()


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    with servers.rabbitmq(tmp_path_factory.mktemp('rabbitmq')) as broker:
        yield broker


@pytest.fixture(scope='module')
def databases(tmp_path_factory):
    """The servers by name, each started when it is first asked for."""
    class Databases(dict):
        def __missing__(self, name):
            kind = {'mariadb': servers.MariaDB, 'postgresql': servers.PostgreSQL}[name]
            self[name] = server = kind(tmp_path_factory.mktemp(name))
            server.start()
            return server

    found = Databases()
    yield found
    for server in found.values():
        server.close()


@pytest.fixture
def run(cloud, broker, databases, tmp_path):
    def run(database, **falls):
        return harness.Run(cloud, databases[database], broker, tmp_path, **falls).go()
    return run


def test_killed_on_mariadb(run):
    run('mariadb', engines=(Fall('in-plan', 'kill'), Fall('after-plan', 'kill')),
        executors=(Fall('after-submitting', 'kill'), Fall('post-sent', 'kill'),
                   Fall('in-end', 'kill')))
