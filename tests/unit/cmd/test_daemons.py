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


"""The daemons as processes, as far as they can be seen without Nova.

A broker is a listening socket that counts who comes; tasks are rows.
"""

import contextlib
import os
from pathlib import Path
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import task_authorization
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases

TOP = Path(__file__).resolve().parents[3]
PATIENCE = 180.0
#: A claim that is fresh for so long is not taken over meanwhile.
LONG = 10000.0
POLICIES = '''
policies:
  - {name: cpu, weight: 1.0, imbalance_query: cpu, vm_profile_query: vm}
'''


def until(holds, process):
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert process.poll() is None, 'the daemon ended'
        assert time.monotonic() < end, 'waited in vain'
        time.sleep(0.05)
    return found


class Broker:
    """Takes connections and says nothing."""

    def __init__(self):
        self._socket = socket.create_server(('127.0.0.1', 0))
        self.port = self._socket.getsockname()[1]
        self.visitors = queue.Queue()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self.visitors.put(self._socket.accept()[0])

    def close(self):
        # A blocked accept() keeps the socket open; this ends it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        while not self.visitors.empty():
            self.visitors.get().close()


@pytest.fixture
def broker():
    found = Broker()
    yield found
    found.close()


class Place:
    """A database, a configuration, and daemons on them."""

    def __init__(self, directory, broker):
        self.directory = directory
        self.store = stores.in_file(directory / 'kronos.sqlite')
        (directory / 'policies.yaml').write_text(POLICIES)
        self._broker = broker

    def task(self, **fields):
        now = time.time()
        _, (task,), _ = cases.save(self.store, [lambda p, s: cases.make_task(
            p, s, **{'not_before': now - 1} | fields)], now=now)
        return task

    def expired(self):
        """A task that the next pass of an executor cancels."""
        task = self.task(deadline=time.time() - 1)
        return lambda: self.state(task) is TaskState.CANCELLED

    def state(self, task):
        return self.store.tasks.find_task(task.task_id).task.state

    @contextlib.contextmanager
    def daemon(self, name, *, dry_run, cap=8, stderr=None, keys=''):
        path, log = self.directory / 'kronos.conf', self.directory / f'{name}.log'
        path.write_text(f'''[DEFAULT]
{f'log_file = {log}' if stderr else ''}
transport_url = rabbit://u:c4n4ry@127.0.0.1:{self._broker.port}/
[engine]
dry_run = {str(dry_run).lower()}
executor = dry_run
policies_file = {self.directory}/policies.yaml
[executor]
poll_interval = 0.1
max_concurrent_migrations = 10
max_concurrent_migrations_total = {cap}
[database]
connection = {self.store.engine.url.render_as_string(hide_password=False)}
[nova]
auth_type = none
endpoint_override = http://u:c4n4ry@127.0.0.1:1
placement_endpoint_override = http://127.0.0.1:1
[prometheus]
url = http://u:c4n4ry@127.0.0.1:1
max_retries = 0
bearer_token = c4n4ry-token
[signing]
key_repository = {keys}
[cache]
backend_argument = url:redis://:c4n4ry@127.0.0.1:1/0
''')
        log.touch()
        with open(stderr or log, 'w') as out:
            process = subprocess.Popen(
                [sys.executable, '-W', 'ignore', '-c',
                 f'import sys; from kronos_nova.cmd import {name}; sys.exit({name}.main())',
                 '--config-file', str(path)], stdout=out, stderr=out,
                env={**os.environ, 'PYTHONPATH': str(TOP)})
        process.log = log
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()[-3000:]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def place(tmp_path, broker):
    found = Place(tmp_path, broker)
    yield found
    found.store.close()


def test_the_cap_of_the_whole_cloud_reaches_the_executor(place, broker):
    broker.close()  # it refuses, and no announcement waits for it
    first = place.task()
    busy = cases.claim(place.store, 'another executor', now=time.time() + LONG)
    assert busy.task.task_id == first.task_id
    second = place.task(from_host='h4')
    with place.daemon('executor', dry_run=False, cap=1) as process:
        # Each shows a pass, and a pass ends with claiming.
        until(place.expired(), process)
        until(place.expired(), process)
        assert place.state(second) is TaskState.QUEUED
        cases.end(place.store, busy, worker='another executor', now=time.time())
        # Completed ten seconds later, when it looks at its migrations again.
        until(lambda: place.state(second) in (TaskState.SUBMITTED, TaskState.COMPLETED), process)


@pytest.mark.long
def test_with_room_under_the_cap_the_executor_begins(place, broker):
    broker.close()  # it refuses, and no announcement waits for it
    place.task()
    assert cases.claim(place.store, 'another executor', now=time.time() + LONG)
    second = place.task(from_host='h4')
    with place.daemon('executor', dry_run=False, cap=2) as process:
        until(lambda: place.state(second) is TaskState.COMPLETED, process)


def test_an_executor_with_keys_begins_signed_tasks_alone(place, broker, tmp_path):
    broker.close()  # it refuses, and no announcement waits for it
    keys = str(tmp_path / 'keys')
    key_repository.create_keys(keys)
    forged = place.task()
    signer = task_authorization.TaskSigner(key_repository.KeyRepository(keys))
    now = time.time()
    _, (signed,), _ = cases.save(place.store, [lambda p, s: signer.grant_tasks(
        [cases.make_task(p, s, not_before=now - 1, from_host='h4', to_host='h5')], (),
        'kronos-engine', now, begin_within=LONG)[0]], now=now)
    with place.daemon('executor', dry_run=False, keys=keys) as process:
        until(lambda: place.state(forged) is TaskState.FAILED, process)
        until(lambda: place.state(signed) is TaskState.COMPLETED, process)
    assert 'it has no signature' in place.store.tasks.find_task(forged.task_id).error
    assert 'carries out only tasks that one of 2 keys has signed' in process.log.read_text()


def test_an_executor_warns_of_an_engine_with_other_contracts(place, broker):
    broker.close()  # it refuses, and no announcement waits for it
    place.store.leases.acquire_lease('ssd', 'engine', LONG, 'p' * 64 + 'c' * 64)
    with place.daemon('executor', dry_run=False) as process:
        until(place.expired(), process)
    assert 'Engines of ssd have other options of [contracts]' in process.log.read_text()


def test_an_engine_that_cannot_sign_does_not_start(place, tmp_path):
    with pytest.raises(AssertionError) as ended, place.daemon(
            'engine', dry_run=False, keys=str(tmp_path / 'none')) as process:
        process.wait(PATIENCE)
    log = process.log.read_text()
    assert process.returncode == 1 and str(ended.value)
    assert log.splitlines()[-1].startswith(
        f'kronos-engine: {tmp_path}/none: [signing] key_repository: No such file')
    assert 'Traceback' not in log and place.store.leases.is_empty()


def test_in_a_dry_run_an_executor_begins_nothing_and_calls_no_broker(place, broker):
    queued = place.task()
    with place.daemon('executor', dry_run=True) as process:
        until(place.expired(), process)
        until(place.expired(), process)
        assert place.state(queued) is TaskState.QUEUED
    assert broker.visitors.empty()


@pytest.mark.turns(4)
def test_in_a_dry_run_an_engine_calls_no_broker(place, broker):
    with place.daemon('engine', dry_run=True) as process:
        until(lambda: 'Nothing is moved this cycle' in process.log.read_text(), process)
    assert broker.visitors.empty()


@pytest.mark.turns(4)
@pytest.mark.parametrize('name', ['engine', 'executor'])
def test_otherwise_both_call_it(place, broker, name):
    with place.daemon(name, dry_run=False) as process:
        broker.visitors.get(timeout=PATIENCE).close()
        broker.close()
        assert unblocked(process) == []


@pytest.mark.parametrize('name, loop', [
    ('engine', 'engine/daemon.py'), ('executor', 'executors/worker.py')])
@pytest.mark.turns(2)
def test_sigusr2_prints_the_stacks_of_a_running_daemon(place, name, loop):
    """The output has no secret, not even one from an option that is not secret."""
    with place.daemon(name, dry_run=True) as process:
        until(lambda: '(dry run' in process.log.read_text(), process)
        for number in (1, 2):
            process.send_signal(signal.SIGUSR2)
            until(lambda number=number: process.log.read_text().count(
                'policies_file = ') == number, process)
        text = process.log.read_text()
    assert f'product = kronos-{name}' in text and 'Threads' in text
    assert f'kronos_nova/rebalancer/{loop}' in text
    assert 'kronos_nova/wiring/heap.py' in text, 'its heap has no limits'
    assert 'endpoint_override = http://***@127.0.0.1:1' in text
    assert 'c4n4ry' not in text
    assert 'Traceback (most' not in text


@pytest.mark.parametrize('name', ['engine', 'executor'])
@pytest.mark.turns(2)
def test_a_report_that_cannot_be_written_ends_no_daemon(place, name, monkeypatch):
    """Standard error is on a disk that is full."""
    # Else Python tries again at the end of the process, and has 120 for its exit status.
    monkeypatch.setenv('PYTHONUNBUFFERED', '1')
    with place.daemon(name, dry_run=True, stderr='/dev/full') as process:
        until(lambda: '(dry run' in process.log.read_text(), process)
        for number in (1, 2):
            process.send_signal(signal.SIGUSR2)
            until(lambda number=number: process.log.read_text().count(
                'No Guru Meditation Report') == number, process)


def unblocked(process):
    """Return all threads through which a SIGTERM could end the process."""
    masks = {}
    for status in Path(f'/proc/{process.pid}/task').glob('*/status'):
        fields = dict(line.split(':\t', 1) for line in status.read_text().splitlines())
        masks[status.parent.name] = int(fields['SigBlk'], 16)
    # The main thread takes it while it waits for it.
    return [thread for thread, mask in masks.items()
            if thread != str(process.pid) and not mask & 1 << signal.SIGTERM - 1]
