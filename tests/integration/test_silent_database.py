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


"""Real databases that stop answering in mid-connection: daemons give up, and say so."""

from http import client as http_client
import selectors
import socket
import threading

from oslo_config import cfg
import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.engine import daemon
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import http_server
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.wiring import daemons
from tests.fixtures import free_ports
from tests.integration import servers

#: Nothing here takes so long (seconds), unless it hangs.
PATIENCE = 60


class Proxy:
    """Passes bytes to a server; when silent it takes them, and connections, and that is all."""

    def __init__(self, port):
        self._port, self.silent = port, False
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._pass_on(key.fileobj, key.data)

    def _accept(self):
        ours, _ = self._listener.accept()
        theirs = socket.create_connection(('127.0.0.1', self._port))
        self._selector.register(ours, selectors.EVENT_READ, theirs)
        self._selector.register(theirs, selectors.EVENT_READ, ours)

    def _pass_on(self, one, other):
        if one.fileno() == -1:
            return
        try:
            found = one.recv(65536)
            if not self.silent and found:
                other.sendall(found)
        except OSError:
            found = b''
        if not found:
            for each in (one, other):
                if each.fileno() != -1:
                    self._selector.unregister(each)
                    each.close()

    def close(self):
        self._ended.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()


@pytest.fixture(scope='module', params=['mariadb', 'postgresql'])
def server(request, tmp_path_factory):
    with getattr(servers, request.param)(tmp_path_factory.mktemp(request.param)) as url:
        api.Store.from_url(url).upgrade()
        yield sa.engine.make_url(url)


@pytest.fixture
def proxy(server):
    found = Proxy(server.port)
    yield found
    found.close()


@pytest.fixture
def conf(server, proxy, monkeypatch):
    monkeypatch.setattr(database, 'ANSWER_SECONDS', 2)
    monkeypatch.setattr(database, 'IMPATIENCE', 1)
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', server.set(port=proxy.port).render_as_string(
        hide_password=False), 'database')
    conf.set_override('executor', 'dry_run', 'engine')
    return conf


@pytest.fixture
def store(conf):
    found = daemons.open_store(conf)
    yield found
    found.close()


def given_up(ask):
    """How a question ended that must not hang."""
    found = []

    def run():
        try:
            found.append(ask())
        except exception.StoreError as e:
            found.append(e)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, 'it hangs'
    return found[0]


STEPS = {
    'claim': lambda store: store.tasks.claim_task('w1', None, 1e9, per_scope=9, total=9,
                                                  claim_seconds=60),
    'renew_claim': lambda store: store.tasks.renew_task_claim('w1', 1e9),
    'lease': lambda store: store.leases.acquire_lease('blue', 'one', 30, 'hash'),
    'clock': lambda store: store.now(),
    'purge': lambda store: store.history.purge_records(0.0)}


@pytest.mark.parametrize('step', STEPS)
@pytest.mark.turns(2)
def test_step_fails_while_database_is_silent_and_then_recovers(store, proxy, step):
    STEPS[step](store)
    proxy.silent = True
    said = given_up(lambda: STEPS[step](store))
    assert isinstance(said, exception.StoreError) and 'cannot be reached' in str(said)
    proxy.silent = False
    assert not isinstance(given_up(lambda: STEPS[step](store)), exception.StoreError)


def test_daemon_start_fails_on_silent_database(conf, proxy):
    proxy.silent = True
    said = given_up(lambda: daemons.open_store(conf))
    assert 'cannot be reached' in str(said)


def test_statement_fails_when_database_falls_silent(store, proxy):
    def step(connection):
        connection.execute(sa.text('SELECT 1'))
        proxy.silent = True
        connection.execute(sa.text('SELECT 1'))
    assert 'cannot be reached' in str(given_up(lambda: store.run_transaction(step)))


def _sleep(store, connection):
    name = 'pg_sleep' if store.engine.dialect.name == 'postgresql' else 'SLEEP'
    connection.execute(sa.text(f'SELECT {name}(5)'))


def test_purge_and_schema_migration_have_longer_timeout(store):
    said = given_up(lambda: store.run_transaction(lambda c: _sleep(store, c)))
    assert isinstance(said, exception.StoreError)
    with store._long_engine() as engine, engine.begin() as connection:
        _sleep(store, connection)
    assert engine is not store.engine


def _get(monitor, path):
    connection = http_client.HTTPConnection('127.0.0.1', monitor.port, timeout=PATIENCE)
    connection.request('GET', path)
    response = connection.getresponse()
    return response.status, response.read().decode()


class Engine:
    """Its leases are real, and that is all that it does."""

    def __init__(self, store):
        self._store, self._lease = store, store.leases.acquire_lease('red', 'one', 30, 'hash')

    def run_safe_cycle(self):
        return {}

    def keep_leases(self):
        self._store.leases.renew_lease(self._lease, 30)
        return False

    def stop(self):
        """Nothing goes on in a cycle."""


@pytest.mark.parametrize('kind', ['engine', 'executor'])
@pytest.mark.turns(2)
def test_daemons_serve_health_while_database_is_silent(conf, store, proxy, kind):
    health, tally = healths.DaemonHealth(daemon=f'kronos-{kind}',
                                         dry_run=False), tallies.DaemonTally()
    option = f'{kind}_port'
    conf.set_override(option, free_ports.reserve_port(), 'monitoring')
    monitor = http_server.start_monitor(conf, health, option,
                                        daemons.make_metrics_page(conf, health, tally, option))
    if kind == 'engine':
        running = daemon.EngineDaemon(Engine(store), 3600, beat=0.2, health=health)
        running.start()
        end = running.stop
    else:
        running = worker.Worker(store, dry_run.DryRunExecutor(), retry.RetrySettings(
            poll_interval=0.2, claim_seconds=60), tally=tally)
        running.set_health_registry(health)
        thread = threading.Thread(target=running.run)
        thread.start()

        def end():
            running.stop()
            thread.join()
    try:
        wait_for(lambda: not health.find_unready_reason())
        proxy.silent = True
        wait_for(lambda: any('cannot be reached' in text for text in health.find_unready_reason()))
        assert health.find_restart_reason() == []
        assert _get(monitor, '/healthz')[0] == 200
        status, text = _get(monitor, '/metrics')
        assert status == 200 and 'kronos_store_up 0.0' in text
        proxy.silent = False
        wait_for(lambda: not health.find_unready_reason())
        wait_for(lambda: 'kronos_store_up 1.0' in _get(monitor, '/metrics')[1])
    finally:
        proxy.silent = False
        end()
        monitor.stop()


def wait_for(holds):
    """Until it does, which it does soon."""
    for _ in range(PATIENCE * 10):
        if holds():
            return
        threading.Event().wait(0.1)
    raise AssertionError('never')
