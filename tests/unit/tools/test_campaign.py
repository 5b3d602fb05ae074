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

"""Reboots of the sandbox's hosts, and what the demo of campaigns counts."""

import dataclasses
import os
import subprocess

import pytest

from tools.cloud import campaign
from tools.cloud import host_reboots
from tools.cloud import main
from tools.cloud import processes
from tools.cloud import state
from tools.cloud.layout import Layout
from tools.cloud.run import Run

BEFORE = processes.Process('compute-01', 11, 100)
BEGUN = host_reboots.Reboot('c1', 'compute-01', 5.0, False, BEFORE.pid, BEFORE.start)


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    layout.create()
    return layout


@pytest.fixture
def run(layout):
    return Run(layout, state.State({}, ['compute-01'], 0.0))


def let_run(monkeypatch, process):
    monkeypatch.setattr(host_reboots, 'find_compute', lambda layout, host: process)


def test_record_keeps_reboots_in_order(layout):
    ended = dataclasses.replace(BEGUN, ended=True, pid=12, servers=('a', 'b'))
    assert host_reboots.read_record(layout) == []
    for reboot in (BEGUN, ended):
        host_reboots.add_to_record(layout, reboot)
    assert host_reboots.read_record(layout) == [BEGUN, ended]


@pytest.mark.parametrize(('recorded', 'process', 'problem'), [
    (None, BEFORE, 'no reboot of compute-01 is on record'),
    (dataclasses.replace(BEGUN, campaign='c0'), BEFORE, 'no reboot of compute-01 is on record'),
    (BEGUN, None, 'no nova-compute of compute-01 runs'),
    (BEGUN, BEFORE, 'nova-compute of compute-01 is the process of before (pid 11)'),
    # A process may have the same ID.
    (BEGUN, dataclasses.replace(BEFORE, start=101), None),
    (BEGUN, dataclasses.replace(BEFORE, pid=12), None),
])
def test_check_demands_another_process_than_before(layout, monkeypatch, recorded, process,
                                                   problem):
    if recorded is not None:
        host_reboots.add_to_record(layout, recorded)
    let_run(monkeypatch, process)
    assert host_reboots.check_host(layout, 'compute-01', 'c1') == problem


def test_host_without_a_process_is_not_rebooted(run, monkeypatch):
    run.state.save(run.layout.state)
    let_run(monkeypatch, None)
    assert host_reboots.reboot_host(run.layout, 'compute-01', 'c1') == (
        'no nova-compute of compute-01 runs')
    assert host_reboots.read_record(run.layout) == []


def test_servers_of_a_host_are_those_there_and_those_on_their_way():
    class Cloud:
        def servers(self):
            return [{'id': 'here', 'OS-EXT-SRV-ATTR:host': 'compute-01'},
                    {'id': 'there', 'OS-EXT-SRV-ATTR:host': 'compute-02'}]

        def migrations(self):
            return [{'instance_uuid': name, 'status': status, 'source_compute': source,
                     'dest_compute': destination} for name, status, source, destination in (
                         ('leaving', 'running', 'compute-01', 'compute-02'),
                         ('arriving', 'preparing', 'compute-02', 'compute-01'),
                         ('gone', 'completed', 'compute-01', 'compute-02'),
                         ('elsewhere', 'running', 'compute-02', 'compute-03'))]

    assert host_reboots.list_servers(Cloud(), 'compute-01') == ('arriving', 'here', 'leaving')


def test_written_programs_need_no_environment_of_the_caller(run):
    _reboot, check = host_reboots.write_programs(run)
    done = subprocess.run([check, 'compute-01'], env={}, cwd='/', capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (1, 'no reboot of compute-01 is on record\n')
    assert os.stat(check).st_mode & 0o077 == 0


def test_migrations_at_the_same_time_count_once():
    times = [('2026-01-01T00:00:00.000000', '2026-01-01T00:00:04.000000'),
             ('2026-01-01T00:00:02.000000', '2026-01-01T00:00:06.000000'),
             ('2026-01-01T00:00:03.000000', '2026-01-01T00:00:04.000000'),
             ('2026-01-01T00:00:09.000000', '2026-01-01T00:00:10.000000')]
    assert campaign.sum_seconds([
        {'created_at': begin, 'updated_at': end} for begin, end in reversed(times)]) == 7.0


def test_only_completed_migrations_of_a_server_count():
    assert campaign.count_migrations([
        {'instance_uuid': name, 'status': status} for name, status in (
            ('a', 'completed'), ('a', 'completed'), ('a', 'error'), ('b', 'completed'))]) == {
        'a': 2, 'b': 1}


def test_a_campaign_needs_a_host_to_move_to():
    assert main.main(['--dir', '/nonexistent', 'campaign', '--hosts', '1']) == 2
