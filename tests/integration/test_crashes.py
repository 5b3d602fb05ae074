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

import collections
from concurrent import futures
import contextlib
import dataclasses
import os
import types

import pytest

from tests.integration import servers
from tests.integration import test_legacy_broker
from tests.integration.crash import child
from tests.integration.crash import harness
from tests.integration.crash import processes
from tests.integration.crash.processes import Fall

pytestmark = pytest.mark.timeout(1500)

#: Of all runs.
COUNTED = collections.Counter()


class SQLite:
    """A database that needs no server."""

    def __init__(self, directory):
        self._directory = directory

    def create(self, name):
        return f'sqlite:///{self._directory}/{name}.sqlite'


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    """Everything that outlives a run; it starts at the same time."""
    with contextlib.ExitStack() as stack:
        def begin(kind, name):
            made = kind(tmp_path_factory.mktemp(name))
            stack.callback(made.close)
            made.start()
            return made

        cloud, nursery = (
            stack.enter_context(contextlib.closing(made)) for made in (
                harness.Cloud(tmp_path_factory.mktemp('cloud')),
                processes.Process('child', tmp_path_factory.mktemp('child'))))
        with futures.ThreadPoolExecutor() as pool:
            kinds = {'broker': servers.RabbitMQ, 'mariadb': servers.MariaDB,
                     'postgresql': servers.PostgreSQL}
            begun = {name: pool.submit(begin, kind, name) for name, kind in kinds.items()}
        yield harness.World(
            cloud=cloud, nursery=nursery, broker=begun.pop('broker').result(),
            databases={'sqlite': SQLite(tmp_path_factory.mktemp('sqlite')),
                       **{name: server.result() for name, server in begun.items()}})


@pytest.fixture
def run(world, tmp_path):
    def run(database, **falls):
        COUNTED.update(harness.Run(world, database, tmp_path, **falls).go())
    return run


def test_tasks_complete_when_daemons_are_killed_on_mariadb(run):
    run('mariadb', engines=(Fall('in-plan', 'kill'),),
        executors=(Fall('post-sent', 'kill'), Fall('in-end', 'kill')))


@pytest.mark.long
def test_tasks_complete_when_daemons_freeze_on_postgresql(run):
    run('postgresql', engines=(Fall('before-plan', 'stop'),),
        executors=(Fall('in-claim', 'stop'), Fall('after-submitting', 'stop')))


@pytest.mark.parametrize('database', ['mariadb'])
def test_tasks_complete_when_broker_and_database_restart(run, database):
    run(database, engines=(Fall('after-plan', 'stop', meanwhile='restart_broker'),),
        executors=(Fall('after-post', 'stop', meanwhile='restart_database'),))


@pytest.mark.turns(3)
def test_daemons_poll_on_virtual_host_that_ancestor_used(world, tmp_path):
    """Each writes one error, and every task is carried out."""
    url = test_legacy_broker.add_virtual_host(world.broker, 'ancestor')
    test_legacy_broker.leave_topology(url)
    run = harness.Run(dataclasses.replace(world, broker=types.SimpleNamespace(url=url)),
                      'sqlite', tmp_path)
    run.go()
    for daemon in run.everyone:
        errors = [line for line in daemon.text().splitlines() if ' ERROR ' in line]
        assert len(errors) == 1 and 'Another program has declared the exchange openstack' in (
            errors[0]), errors


# The long run. What falls first, falls again in the hands of the next.

ENGINE, EXECUTOR = list(child.ENGINE), list(child.EXECUTOR)
#: Where a restart of the database leaves something to pick up.
RESTARTS = ['before-claim', 'in-claim', 'after-claim', 'in-submitting', 'after-submitting',
            'after-post', 'after-submitted', 'before-post-flight', 'in-end', 'after-end']


@pytest.mark.long
@pytest.mark.parametrize('repeat', range(int(os.environ.get('KRONOS_CRASH_REPEATS', '1'))))
@pytest.mark.parametrize('how', ['kill', 'stop'])
@pytest.mark.parametrize('number', range(len(EXECUTOR)), ids=EXECUTOR)
@pytest.mark.parametrize('database', ['mariadb', 'postgresql', 'sqlite'])
def test_tasks_complete_when_daemons_fall_at_any_point(run, database, number, how, repeat):
    engine = ENGINE[(number + repeat) % len(ENGINE)]
    if database == 'sqlite' and how == 'stop':
        # Whoever freezes in a transaction holds its only lock; see the docs.
        if child.EXECUTOR[EXECUTOR[number]].in_transaction:
            pytest.skip('SQLite has one lock')
        if child.ENGINE[engine].in_transaction:
            engine = 'before-plan'
    # With repeats, another of the three tasks each time.
    run(database, engines=(Fall(engine, how),),
        executors=(Fall(EXECUTOR[number], how, nth=1 + repeat % 3),))


@pytest.mark.long
@pytest.mark.parametrize('number', range(len(RESTARTS)), ids=RESTARTS)
@pytest.mark.parametrize('database', ['mariadb', 'postgresql'])
def test_tasks_complete_when_servers_restart_at_any_point(run, database, number):
    engine = ('before-plan', 'after-plan')[number % 2]
    run(database, engines=(Fall(engine, 'stop', meanwhile='restart_broker'),),
        executors=(Fall(RESTARTS[number], 'stop', meanwhile='restart_database'),))


@pytest.mark.long
@pytest.mark.parametrize('database', ['mariadb', 'postgresql', 'sqlite'])
def test_late_request_does_not_move_already_moved_instance(run, database):
    run(database, executors=(Fall('before-post', 'stop', late=True),))


@pytest.mark.long
def test_harness_detects_second_move_without_cooldown(run):
    with pytest.raises(AssertionError, match='planned twice'):
        run('postgresql', instance_cooldown=0)


@pytest.mark.long
def test_harness_counts_a_post_for_each_migration(capsys):
    with capsys.disabled():
        print(f'\n{dict(COUNTED)}')
    assert COUNTED['runs'] > 0
    assert COUNTED['posts'] >= COUNTED['migrations'] >= harness.COUNT * COUNTED['runs']
