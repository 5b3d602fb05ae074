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

from concurrent import futures
import contextlib

import pytest

from tests.integration import servers
from tests.integration.crash import harness
from tests.integration.crash import processes
from tests.integration.crash.processes import Fall


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    """Everything that outlives a run; it starts at the same time."""
    with contextlib.ExitStack() as stack:
        def begin(kind, name):
            made = kind(tmp_path_factory.mktemp(name))
            stack.callback(made.close)
            made.start()
            return made

        cloud, nursery = (stack.enter_context(contextlib.closing(
            processes.Process(name, tmp_path_factory.mktemp(name)))) for name in ('cloud', 'child'))
        with futures.ThreadPoolExecutor() as pool:
            kinds = {'broker': servers.RabbitMQ, 'mariadb': servers.MariaDB,
                     'postgresql': servers.PostgreSQL}
            begun = {name: pool.submit(begin, kind, name) for name, kind in kinds.items()}
        yield harness.World(
            cloud=cloud, nursery=nursery, broker=begun.pop('broker').result(),
            databases={name: server.result() for name, server in begun.items()})


@pytest.fixture
def run(world, tmp_path):
    return lambda database, **falls: harness.Run(world, database, tmp_path, **falls).go()


def test_killed_on_mariadb(run):
    run('mariadb', engines=(Fall('in-plan', 'kill'),),
        executors=(Fall('post-sent', 'kill'), Fall('in-end', 'kill')))


def test_frozen_on_postgresql(run):
    run('postgresql', engines=(Fall('before-plan', 'stop'),),
        executors=(Fall('in-claim', 'stop'), Fall('after-submitting', 'stop')))


def test_restarted(run):
    run('mariadb', engines=(Fall('after-plan', 'stop', meanwhile='restart_broker'),),
        executors=(Fall('after-post', 'stop', meanwhile='restart_database'),))
