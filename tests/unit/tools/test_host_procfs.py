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

"""The counters of a host's /proc follow its QEMU processes and never fall."""

import os
import subprocess
import sys

import pytest

from tools.cloud.hypervisors import host_procfs


@pytest.fixture
def usage(tmp_path):
    return host_procfs.HostUsage(tmp_path)


def burn(seconds):
    """Run a process that uses the processor and waits for its end."""
    return subprocess.Popen(
        [sys.executable, '-c', 'import sys, time\n'
         f'while time.process_time() < {seconds}: pass\n'
         'print("burnt", flush=True)\nsys.stdin.read()'],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_processor_time_of_a_process_counts_and_stays_after_its_end(usage, tmp_path):
    process = burn(0.3)
    assert process.stdout.readline() == b'burnt\n'
    (tmp_path / 'instance-1.pid').write_text(str(process.pid))
    usage.update()
    busy = usage.busy
    assert 0.2 * host_procfs.TICKS < busy < 10 * host_procfs.TICKS
    assert usage.memory_kb > 1000
    process.communicate()
    usage.update()
    assert (usage.busy, usage.memory_kb) == (busy, 0)


def test_a_file_without_a_process_counts_nothing(usage, tmp_path):
    (tmp_path / 'broken.pid').write_text('no number')
    (tmp_path / 'ended.pid').write_text(str(2**22 + 1))
    usage.update()
    assert (usage.busy, usage.memory_kb) == (0, 0)


def test_a_second_process_of_the_same_number_begins_at_its_own_time(usage, tmp_path, monkeypatch):
    (tmp_path / 'instance-1.pid').write_text(str(os.getpid()))
    for start, ticks, busy in ((1, 100, 100), (1, 130, 130), (2, 10, 140), (2, 15, 145)):
        monkeypatch.setattr(host_procfs, 'read_usage', lambda pid, at=(start, ticks): (*at, 5))
        usage.update()
        assert usage.busy == busy


def test_stat_has_the_host_and_each_of_its_processors():
    lines = host_procfs.format_stat(busy=50, idle=150).splitlines()
    assert lines[0] == 'cpu  50 0 0 150 0 0 0 0 0 0'
    assert [line for line in lines if line.startswith('cpu')][1:] == ['cpu0 50 0 0 150 0 0 0 0 0 0']


def test_a_host_that_uses_more_than_it_has_is_full_and_not_negative():
    assert 'MemAvailable: 0 kB' in host_procfs.format_meminfo(2 * host_procfs.MEMORY_KB)
