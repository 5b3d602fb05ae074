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

"""Programs at hosts: they get the name of the host, and the engine does not wait for them."""

import pathlib
import signal
import time

from oslo_config import cfg
import pytest

from kronos_nova.checks import base
from kronos_nova.checks import campaigns as campaign_check
from kronos_nova.conf import opts
from kronos_nova.rebalancer.engine import host_programs
from kronos_nova.rebalancer.planning import campaign_steps

COMMAND = campaign_steps.Command


@pytest.fixture
def write(tmp_path):
    """Write a program; return its path."""
    def write(*lines, mode=0o755, shell='/bin/sh'):
        path = tmp_path / 'program'
        path.write_text('\n'.join((f'#!{shell}', *lines)) + '\n')
        path.chmod(mode)
        return str(path)
    return write


def wait_for_end(programs, key='key'):
    for _look in range(600):
        found = programs.poll_program(key)
        if found is not COMMAND.RUNNING:
            return found
        time.sleep(0.05)
    raise AssertionError('it does not end')


def test_a_program_gets_the_host_and_the_campaign_and_no_secret(write, tmp_path, monkeypatch):
    monkeypatch.setenv('OS_PASSWORD', 'hunter2')
    programs = host_programs.HostPrograms()
    log = tmp_path / 'log'
    path = write(f'echo "$#|$1|$KRONOS_CAMPAIGN|$OS_PASSWORD" > {log}')
    assert programs.start_program('key', path, 'h 1;$(id)', 60, KRONOS_CAMPAIGN='c1') is None
    assert wait_for_end(programs) is COMMAND.SUCCEEDED
    assert log.read_text() == '1|h 1;$(id)|c1|\n'
    assert programs.poll_program('key') is COMMAND.SUCCEEDED, 'until it is forgotten'
    programs.forget_program('key')
    assert programs.poll_program('key') is COMMAND.UNKNOWN


def test_a_failure_has_the_status_and_the_end_of_the_output(write):
    programs = host_programs.HostPrograms()
    path = write('seq 1000', 'printf "no\\033[31m power"', 'exit 3')
    programs.start_program('key', path, 'h', 60)
    found = wait_for_end(programs)
    assert found.startswith('exit status 3: ') and found.endswith('no[31m power')
    assert len(found) < host_programs.OUTPUT + 30


def test_a_program_that_does_not_end_is_killed_with_its_children(write, tmp_path):
    clock = [0.0]
    programs = host_programs.HostPrograms(lambda: clock[0])
    child = tmp_path / 'child'
    programs.start_program('key', write('sleep 600 &', f'echo $! > {child}', 'wait'), 'h', 60)
    while not (child.exists() and child.read_text().endswith('\n')):
        assert programs.poll_program('key') is COMMAND.RUNNING
        time.sleep(0.05)
    clock[0] = 61.0
    assert programs.poll_program('key') == 'it was killed, since it did not end in time'
    state = pathlib.Path(f'/proc/{child.read_text().strip()}/stat')
    for _look in range(200):
        if not state.exists() or ') Z ' in state.read_text():
            return
        time.sleep(0.05)
    raise AssertionError('the child lives on')


def test_a_program_blocks_no_signal_although_the_engine_does(write, tmp_path):
    """Else timeout, Ansible and other parents could not end their children."""
    log = tmp_path / 'log'
    # Debian's sh unblocks all signals itself.
    path = write(f'grep -E "SigBlk|SigIgn" /proc/self/status > {log}', shell='/bin/bash')
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    programs = host_programs.HostPrograms()
    try:
        programs.start_program('key', path, 'h', 60)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert wait_for_end(programs) is COMMAND.SUCCEEDED
    masks = dict(line.split() for line in log.read_text().splitlines())
    assert int(masks['SigBlk:'], 16) == 0
    assert not int(masks['SigIgn:'], 16) & 1 << signal.SIGPIPE - 1


def test_a_full_disk_is_why_a_program_was_not_started(write, monkeypatch):
    def fail():
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(host_programs.tempfile, 'TemporaryFile', fail)
    assert host_programs.HostPrograms().start_program('key', write('exit 0'), 'h', 60).endswith(
        'its output has no place: No space left on device')


@pytest.mark.parametrize('host', ['-h', '--reboot-all'])
def test_a_host_that_looks_like_an_option_runs_nothing(write, host):
    programs = host_programs.HostPrograms()
    assert 'would be an option' in programs.start_program('key', write('exit 0'), host, 60)
    assert programs.poll_program('key') is COMMAND.UNKNOWN


def test_a_program_that_cannot_be_run_is_named(write, tmp_path):
    programs = host_programs.HostPrograms()
    assert programs.start_program('key', str(tmp_path / 'ghost'), 'h', 60).endswith(
        'ghost was not started: No such file or directory')
    assert programs.start_program('key', write(mode=0o644), 'h', 60).endswith('Permission denied')


@pytest.mark.parametrize(('name', 'problem'), [
    ('program', None), ('ghost', 'is no file on this machine'), ('', None)])
def test_the_check_of_the_configuration_runs_no_program(write, tmp_path, name, problem):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    write(f'touch {tmp_path}/ran')
    conf.set_override('command', name and str(tmp_path / name), 'campaign')
    conf.set_override('check_command', name and 'relative', 'campaign')
    found = {item.name: item.text for item in campaign_check.check(base.CheckContext(conf))}
    assert not (tmp_path / 'ran').exists()
    if not name:
        assert found == {}
        return
    assert (problem or 'can be run; it was not run') in found['campaign: command']
    assert found['campaign: check_command'] == 'relative is no absolute path'


def test_the_check_warns_of_a_command_without_signing_keys():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])

    def find_warnings():
        return [item.name for item in campaign_check.check(base.CheckContext(conf))
                if item.status is base.CheckStatus.WARNING]

    assert find_warnings() == []
    conf.set_override('command', '/bin/true', 'campaign')
    assert find_warnings() == ['campaign: signatures']
    conf.set_override('key_repository', '/keys', 'signing')
    assert find_warnings() == []
