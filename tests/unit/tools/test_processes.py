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

"""A process is ours by pid, start time and mark; nothing else is ever stopped."""

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from tools.cloud import errors
from tools.cloud import layout
from tools.cloud import processes
from tools.cloud import run as run_module
from tools.cloud import state

STUBBORN = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)'


@pytest.fixture
def sleeper(tmp_path):
    environment = {**os.environ, processes.MARK: str(tmp_path)}
    child = subprocess.Popen(['sleep', '60'], env=environment)
    yield processes.Process('sleeper', child.pid, processes.start_time(child.pid))
    child.kill()
    child.wait()


def found(directory):
    """Marked processes, once there are some: a new one has no environment at first."""
    deadline = time.monotonic() + 30
    while not processes.marked(directory) and time.monotonic() < deadline:
        time.sleep(0.01)
    return processes.marked(directory)


def test_a_running_process_is_alive(sleeper):
    assert processes.is_alive(sleeper)


def test_another_process_with_the_same_pid_is_not_ours(sleeper):
    other = dataclasses.replace(sleeper, start=sleeper.start - 1)
    assert not processes.is_alive(other)
    assert processes.stop([other], grace=0.1) == []
    assert processes.is_alive(sleeper)


def test_processes_are_found_by_their_mark(sleeper, tmp_path):
    assert [p.pid for p in found(tmp_path)] == [sleeper.pid]
    assert processes.marked(tmp_path / 'other') == []


def test_a_zombie_is_not_alive():
    child = subprocess.Popen(['true'])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_time(child.pid) is None
    child.wait()


def test_stop_ends_a_process(sleeper):
    assert processes.stop([sleeper], grace=5) == []
    assert not processes.is_alive(sleeper)


def test_stop_kills_what_ignores_sigterm(tmp_path):
    with run_module.private(tmp_path / 'run', ('a',)) as run:
        run.spawn('stubborn', [sys.executable, '-c', STUBBORN])
        [process] = run.state.processes
        time.sleep(0.2)
        assert run.stop() == []
        assert not processes.is_alive(process)


def test_processes_of_an_earlier_boot_are_not_ours(tmp_path, sleeper):
    with run_module.private(tmp_path / 'run', ('a',)) as run:
        run.state.processes.append(sleeper)
        run.state.boot = 'another'
        assert run.stop() == []
        assert processes.is_alive(sleeper)


def test_a_private_run_leaves_nothing(tmp_path):
    directory = tmp_path / 'run'
    with run_module.private(directory, ('a',)) as run:
        run.spawn('sleeper', ['sleep', '60'])
        assert found(directory)
    assert processes.marked(directory) == []
    assert [p.name for p in directory.iterdir()] == ['cache']


def test_a_dead_service_is_reported_with_the_end_of_its_log(tmp_path):
    with run_module.private(tmp_path / 'run', ('a',)) as run:
        run.spawn('failing', [sys.executable, '-c', 'import sys; sys.exit("no such thing")'])
        with pytest.raises(errors.ServiceDied, match='(?s)failing ended with code 1.*no such th'):
            run.wait('never so', lambda: 'not ready', timeout=30)


def test_error_about_an_expired_wait_names_the_missing_part(tmp_path):
    with (run_module.private(tmp_path / 'run', ('a',)) as run,
          pytest.raises(errors.ServiceDied, match='everything: not so after 0 s: the rest')):
        run.wait('everything', lambda: 'the rest', timeout=0)


def test_services_get_nothing_of_the_callers_environment(tmp_path, monkeypatch):
    monkeypatch.setenv('OS_PASSWORD', 'secret')
    monkeypatch.setenv('http_proxy', 'http://proxy.example:3128')
    with run_module.private(tmp_path / 'run', ('a',)) as run:
        assert not {'OS_PASSWORD', 'http_proxy'} & set(run.environment())


def test_the_state_survives_a_round_trip(tmp_path):
    before = state.State({'nova': 1}, ['h'], 1.5, True, False,
                         processes=[processes.Process('a', 2, 3)])
    before.save(tmp_path / 'state.json')
    assert state.load(tmp_path / 'state.json') == before
    assert (tmp_path / 'state.json').stat().st_mode & 0o777 == 0o600


def test_a_missing_state_file_gives_none(tmp_path):
    assert state.load(tmp_path / 'state.json') is None


@pytest.mark.parametrize('text', ['', '[]', '{"processes": []}', '{"processes": 1}'])
def test_a_damaged_state_file_is_named(tmp_path, text):
    file = tmp_path / 'state.json'
    file.write_text(text)
    with pytest.raises(errors.AlreadyThere, match='state.json'):
        state.load(file)


def test_down_deletes_the_sandboxs_files_alone(tmp_path):
    place = layout.Layout(tmp_path)
    place.create()
    (tmp_path / 'mine.txt').write_text('keep')
    (place.data / 'x').write_text('gone')
    place.clean(keep_logs=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ['cache', 'log', 'mine.txt']


def test_a_directory_too_deep_for_a_socket_is_refused(tmp_path):
    with pytest.raises(errors.NotPossibleHere, match='shorter --dir'):
        layout.Layout(tmp_path / ('x' * 100)).create()


def test_processes_of_a_host_are_found_by_their_temporary_directory(tmp_path):
    environment = {'PATH': os.environ['PATH'], 'TMPDIR': f'{tmp_path}/data/hosts/compute-01/tmp'}
    child = subprocess.Popen(['sleep', '60'], env=environment)
    try:
        assert [process.pid for process in found(tmp_path)] == [child.pid]
        assert [process.pid for process in processes.list_with_variable(
            'TMPDIR', environment['TMPDIR'])] == [child.pid]
        # Another sandbox may lie in this one's directory.
        assert processes.marked(tmp_path / 'data') == []
    finally:
        child.kill()
        child.wait()


def test_a_killed_process_starts_again_as_before(tmp_path):
    with run_module.private(tmp_path, names=()) as run:
        run.spawn('sleeper', ['sh', '-c', 'sleep 60 & wait'], env={'KRONOS_WORD': 'kept'})
        [before] = run.state.processes
        run.kill('sleeper')
        assert run.state.processes == [] and not processes.is_alive(before)
        run.restart('sleeper')
        [after] = run.state.processes
        assert after.pid != before.pid
        assert b'KRONOS_WORD=kept' in run_module.pathlib.Path(
            f'/proc/{after.pid}/environ').read_bytes()
