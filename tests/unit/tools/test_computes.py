# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The process that forks nova-computes, and starts those again that have ended."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

TOP = Path(__file__).resolve().parents[3]
#: Nova's place is taken by a program that sleeps until a signal ends it.
PROGRAM = '''
import signal, sys, types
from tools.cloud import computes
computes.preload = lambda config_file: types.SimpleNamespace(main=signal.pause)
sys.exit(computes.main())
'''


@pytest.fixture
def parent(tmp_path):
    process = subprocess.Popen([sys.executable, '-c', PROGRAM, str(tmp_path), str(tmp_path),
                                'compute-01', 'compute-02'], cwd=TOP)
    yield process
    process.kill()
    process.wait()


def list_children(parent):
    """Return the processes of hosts by name."""
    found = {}
    for text in Path(f'/proc/{parent.pid}/task/{parent.pid}/children').read_text().split():
        found[Path(f'/proc/{text}/comm').read_text().strip()] = int(text)
    return found


def wait_for(ready):
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_host_whose_process_ended_is_started_again_when_asked(parent):
    wait_for(lambda: set(list_children(parent)) == {'compute-01', 'compute-02'})
    before = list_children(parent)
    os.kill(before['compute-01'], signal.SIGKILL)
    wait_for(lambda: set(list_children(parent)) == {'compute-02'})
    parent.send_signal(signal.SIGHUP)
    wait_for(lambda: set(list_children(parent)) == {'compute-01', 'compute-02'})
    after = list_children(parent)
    assert after['compute-02'] == before['compute-02']
    assert after['compute-01'] != before['compute-01']
    parent.terminate()
    assert parent.wait(30) == 0
    assert not Path(f'/proc/{after["compute-01"]}').exists()


def test_parent_ends_with_its_last_host(parent):
    wait_for(lambda: set(list_children(parent)) == {'compute-01', 'compute-02'})
    for pid in list_children(parent).values():
        os.kill(pid, signal.SIGTERM)
    assert parent.wait(30) == 0
