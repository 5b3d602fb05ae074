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

"""The session of an operator: each part is opened once, when it is first used, and closed once."""

import getpass
from pathlib import Path
import subprocess
import sys
import threading
import time
import types

import pytest

from kronos_nova import exception
from kronos_nova.conf import config_sessions
from kronos_nova.model import TaskState
from kronos_nova.rebalancer import operations
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import instance_swaps
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import plan_repository
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases

EXAMPLE = Path(__file__).resolve().parents[4] / 'doc/examples/replay'


@pytest.fixture
def path(tmp_path):
    """Return the path of a kronos.conf, whose database file does not exist yet."""
    found = tmp_path / 'kronos.conf'
    found.write_text(
        f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n'
        f'[engine]\naggregates = blue\ndry_run = false\npolicies_file = {EXAMPLE}/policies.yaml\n')
    return found


@pytest.fixture
def store(tmp_path):
    found = stores.in_file(tmp_path / 'kronos.sqlite')
    yield found
    found.close()


def test_a_session_opens_nothing_before_its_first_use():
    with operations.Session('/does/not/exist.conf', snapshot='/neither') as session:
        assert session.snapshot == '/neither'


def test_commands_of_the_database_load_neither_clients_nor_planner():
    """They have to begin fast."""
    code = ('import sys; from kronos_nova.cli import pause, plan, quarantine, status, task; '
            'print([name for name in ("openstack", "oslo_messaging", "numpy") '
            'if name in sys.modules])')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True,
                          text=True, check=True)
    assert done.stdout == '[]\n'


def test_each_part_is_opened_once_and_closed_once(path, store, monkeypatch):
    opened, closed = [], []
    monkeypatch.setattr(
        config_sessions.plugins, 'load_plugin', lambda kind, name: lambda conf: opened.append(name)
        or types.SimpleNamespace(close=lambda: closed.append(name)))
    close = api.Store.close
    monkeypatch.setattr(api.Store, 'close', lambda self: closed.append('store') or close(self))
    session = operations.Session(str(path))
    with session:
        assert session.store is session.existing_store is session.store
        assert session.metrics_source is session.metrics_source
        assert session.conf is session.conf and session.policies is session.policies
    session.close()
    assert (opened, closed) == (['prometheus'], ['prometheus', 'store'])


def test_a_configuration_that_cannot_be_read_names_file_and_remedy(tmp_path):
    path = tmp_path / 'missing.conf'
    with pytest.raises(exception.ConfigError, match=f'{path}: .*Correct the file'):
        _ = operations.Session(str(path)).conf


def test_a_wrong_value_names_its_option(path):
    path.write_text(path.read_text() + 'evaluation_interval = never\n')
    with pytest.raises(exception.ConfigError, match='evaluation_interval'):
        _ = operations.Session(str(path)).conf


def test_policies_that_do_not_exist_are_named(path):
    path.write_text(path.read_text().replace('policies.yaml', 'missing.yaml'))
    with pytest.raises(exception.PolicyFileError, match=r'missing\.yaml'):
        _ = operations.Session(str(path)).policies


def test_a_missing_database_is_shown_empty_and_is_not_made(path, tmp_path):
    notices = []
    with operations.Session(str(path), notify=notices.append) as session:
        assert session.store.plans.list_plans() == []
        # It is no database to write to, also when it has been read.
        with pytest.raises(exception.StoreError, match='does not exist'):
            _ = session.existing_store
    assert not (tmp_path / 'kronos.sqlite').exists()
    assert len(notices) == 1 and 'is shown as an empty database' in notices[0]


def test_a_session_without_configuration_says_so(tmp_path):
    def configure(conf, files):
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('connection', f'sqlite:///{tmp_path}/none.sqlite', 'database')

    notices = []
    with operations.Session(configure=configure, notify=notices.append) as session:
        assert session.store.plans.list_plans() == []
    assert notices[0].startswith('No configuration file was found: name one by --config-file')


def test_a_database_of_an_earlier_release_is_refused_and_closed(path, tmp_path, monkeypatch):
    database.from_url(f'sqlite:///{tmp_path}/kronos.sqlite').connect().close()
    closed = []
    monkeypatch.setattr(api.Store, 'close', lambda self: closed.append(self))
    with operations.Session(str(path)) as session, pytest.raises(exception.StoreError):
        _ = session.store
    assert len(closed) == 1


def test_a_connection_without_credentials_names_the_option(path):
    with pytest.raises(exception.ConfigError, match='auth_type'):
        _ = operations.Session(str(path)).connection


def test_a_snapshot_is_read_once_and_needs_no_database(monkeypatch):
    monkeypatch.chdir(EXAMPLE)
    reads = []
    read = cloud_state.read_snapshot
    monkeypatch.setattr(cloud_state, 'read_snapshot', lambda *args: reads.append(1) or read(*args))
    with operations.Session('kronos.conf', snapshot='snapshot') as session:
        first = drain_checks.check_drain(session, 'compute-12')
        assert first == drain_checks.check_drain(session, 'compute-12')
        assert len(operations.list_hosts(session)) == 2
        assert 'store' not in vars(session)
    assert reads == [1]


@pytest.mark.parametrize('slow', [True, False])
def test_a_session_that_reads_for_long_says_so(path, store, monkeypatch, slow):
    notices, said = [], threading.Event()

    def notify(text):
        notices.append(text)
        said.set()

    def read(*args):
        assert not slow or said.wait(60)
        return 'cloud'

    monkeypatch.setattr(cloud_state, 'NOTICE_AFTER', 0.01 if slow else 3600.0)
    monkeypatch.setattr(cloud_state, 'read_cloud', read)
    with operations.Session(str(path), notify=notify) as session:
        session.collector = session.metrics_source = None
        assert session.cloud_for_requests == 'cloud'
    assert notices == [cloud_state.READING] * slow


def test_a_person_who_sees_the_line_of_work_gets_no_notice(path, store, monkeypatch):
    notices, works = [], []

    def show_work(what):
        works.append(what)
        return True

    def read(*args):
        time.sleep(0.2)
        return 'cloud'

    monkeypatch.setattr(cloud_state, 'NOTICE_AFTER', 0.01)
    monkeypatch.setattr(cloud_state, 'read_cloud', read)
    with operations.Session(str(path), notify=notices.append, show_work=show_work) as session:
        session.collector = session.metrics_source = None
        assert session.cloud_for_requests == 'cloud'
    assert notices == [] and works[-1] == '' and len(works) == 3


def test_a_requested_plan_marks_the_database_before_reading_the_cloud(path, store, monkeypatch):
    """Or nothing would show that an engine has stored a plan in between."""
    uuid, _tasks, _plan = cases.save(store)
    reads = []
    read = plan_repository.PlanRepository.read_live_work
    monkeypatch.setattr(plan_repository.PlanRepository, 'read_live_work',
                        lambda self: reads.append('mark') or read(self))
    monkeypatch.setattr(operations.Session, 'read_cloud', lambda self, policies: reads.append(
        'cloud'))
    with operations.Session(str(path)) as session:
        with pytest.raises(exception.ConfigError, match='no move of which that could be asked'):
            plan_requests.retry_plan(session, uuid, reason='again')
        with pytest.raises(AttributeError):  # no cloud
            instance_swaps.swap_instances(session, ('a', 'b'), reason='closer')
    assert reads == ['mark', 'cloud', 'mark', 'cloud']


def test_a_decision_keeps_the_operator_of_the_session(path, store):
    uuid, tasks, _plan = cases.save(store, 2)
    with operations.Session(str(path), operator='alice') as session:
        assert [task.state for task in operations.cancel_plan(
            session, uuid, reason='not today')] == [TaskState.CANCELLED] * 2
        decision, = operations.read_plan(session, uuid).decisions
    assert (decision.decided_by, decision.reason, len(tasks)) == ('alice', 'not today', 2)


def test_every_name_of_the_api_is_a_documented_function_or_class():
    assert operations.Session is cloud_state.Session
    for name in operations.__all__:
        assert getattr(operations, name).__doc__, name
    with pytest.raises(AttributeError, match='has no attribute .nothing.'):
        _ = operations.nothing


def test_a_decision_goes_to_a_database_created_after_the_first_reading(path, tmp_path):
    url = f'sqlite:///{tmp_path}/kronos.sqlite'
    with operations.Session(str(path), notify=lambda text: None) as session:
        assert session.store.plans.list_plans() == []
        made = api.Store.from_url(url)
        made.upgrade()
        operations.pause_scope(session, None, reason='a repair', seconds=60)
        assert [pause.reason for pause in made.pauses.list_pauses(time.time())] == ['a repair']
        made.close()


def test_a_part_that_fails_to_close_leaves_no_other_part_open(path, store, monkeypatch, caplog):
    def fail():
        raise OSError('the socket is gone')

    closed = []
    monkeypatch.setattr(config_sessions.plugins, 'load_plugin',
                        lambda kind, name: lambda conf: types.SimpleNamespace(close=fail))
    close = api.Store.close
    monkeypatch.setattr(api.Store, 'close', lambda self: closed.append('store') or close(self))
    with operations.Session(str(path)) as session:
        assert session.store.plans.list_plans() == [] and session.metrics_source
    assert closed == ['store']
    assert 'OSError: the socket is gone' in caplog.text


def test_a_snapshot_orders_neither_moves_nor_a_drain(path, store):
    uuid, _tasks, _plan = cases.save(store)
    for order in (
            lambda session: operations.retry_plan(session, uuid, reason='again'),
            lambda session: operations.swap_instances(session, ('a', 'b'), reason='closer'),
            lambda session: operations.start_drain(session, 'compute-05', reason='maintenance')):
        with operations.Session(str(path), snapshot=str(EXAMPLE / 'snapshot')) as session, \
                pytest.raises(exception.ConfigError, match='Ask without the snapshot'):
            order(session)
    assert store.audit.list_newest_entries(9) == [] and len(store.plans.list_plans()) == 1


@pytest.mark.parametrize(('names', 'person'), [
    ({'operator': 'alice', 'person': 'keystone:1'}, 'keystone:1'), ({'operator': 'alice'}, 'alice'),
    ({}, f'local:{getpass.getuser()}')])
def test_a_named_operator_is_never_taken_for_the_user_of_the_process(path, names, person):
    with operations.Session(str(path), **names) as session:
        assert session.person == person
