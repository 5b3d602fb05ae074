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

"""The runner of tools/test counts honestly and leaves no process behind."""

import importlib.util
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import psutil
import pytest

TOP = Path(__file__).resolve().parents[3]
RUNNER = TOP / 'tools/run_tests.py'
# Runs parts of its own through the real runner: sys.argv[1] is their source.
DRIVER = '''
import importlib.util, sys
spec = importlib.util.spec_from_file_location('run_tests', sys.argv[1])
runner = importlib.util.module_from_spec(spec)
sys.modules['run_tests'] = runner
spec.loader.exec_module(runner)
PYTHON = sys.executable
def part(tally):
    """a part made for a test"""
{body}
runner.PARTS = {{'part': part}}
sys.argv = ['run_tests', 'part']
sys.exit(runner.main())
'''


@pytest.fixture(scope='module')
def runner():
    spec = importlib.util.spec_from_file_location('run_tests', RUNNER)
    module = importlib.util.module_from_spec(spec)
    sys.modules['run_tests'] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules['run_tests']


def _start(body: str) -> subprocess.Popen[str]:
    indented = '\n'.join(f'    {line}' for line in body.strip().splitlines())
    return subprocess.Popen([sys.executable, '-c', DRIVER.format(body=indented), str(RUNNER)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _run(body: str) -> tuple[int, str]:
    process = _start(body)
    output, _ = process.communicate(timeout=180)
    return process.returncode, output


def test_part_that_ran_no_test_has_failed():
    status, output = _run('pass')
    assert status == 1
    assert output.endswith('\n0 passed, 1 failed, 0 skipped\n')


def test_passed_and_failed_checks_are_counted():
    status, output = _run('''
runner.check(tally, 'good', ['true'])
runner.check(tally, 'bad', ['false'])
''')
    assert status == 1
    assert 'part: bad: exit status 1\n' in output
    assert output.endswith('\n1 passed, 1 failed, 0 skipped\n')


def test_skipped_check_alone_is_no_failure():
    status, output = _run("tally.skip('Python 3.99 is not installed')")
    assert status == 0
    assert 'part: Python 3.99 is not installed\n' in output
    assert output.endswith('\n0 passed, 0 failed, 1 skipped\n')


def test_command_that_takes_too_long_is_ended_and_has_failed():
    status, output = _run("runner.check(tally, 'slow', ['sleep', '600'], minutes=0.01)")
    assert status == 1
    assert 'slow: exit status 124' in output


def test_daemon_that_a_command_left_running_is_ended():
    status, output = _run('''
runner.check(tally, 'daemon', ['sh', '-c', 'setsid sleep 600 & echo pid=$!'])
''')
    assert status == 0
    (pid,) = (line.removeprefix('pid=') for line in output.splitlines() if line.startswith('pid='))
    assert not psutil.pid_exists(int(pid))


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_says_so_and_ends_what_it_started(signum):
    process = _start('''
runner.check(tally, 'sleeper', ['sh', '-c', 'echo pid=$$; exec sleep 600'])
''')
    for line in process.stdout:
        if line.startswith('pid='):
            break
    os.kill(process.pid, signum)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 130
    assert 'part: interrupted\n' in output
    deadline = time.monotonic() + 60
    while psutil.pid_exists(int(line.removeprefix('pid='))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(line.removeprefix('pid=')))


def test_junit_report_is_counted(runner, tmp_path):
    report = tmp_path / 'report.xml'
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/>'
                      '</testsuites>')
    assert runner.junit_counts(report) == (3, 3, 3)


def test_failed_tests_are_told_again_at_the_end(tmp_path):
    tests = tmp_path / 'test_two.py'
    tests.write_text('def test_good(): pass\ndef test_bad(): assert 1 == 2, "one is not two"\n')
    status, output = _run(
        f'runner.pytest(tally, "-p", "no:cacheprovider", "--rootdir", "{tmp_path}", "-c", '
        f'"/dev/null", "{tests}", name="self-test")')
    assert status == 1
    again = output[output.index('\n=== part: '):output.index('\npart  ')]
    assert '--- part: failed: test_two::test_bad\n' in again
    assert 'one is not two' in again and 'test_good' not in again


@pytest.mark.needs_nova
def test_failed_test_of_stestr_is_told_with_what_it_said(runner, tmp_path, monkeypatch):
    (tmp_path / 'test_two.py').write_text(
        'import unittest\nclass Case(unittest.TestCase):\n    def test_good(self): pass\n'
        '    def test_bad(self): self.fail("one is not two")\n')
    (tmp_path / '.stestr.conf').write_text('[DEFAULT]\ntest_path=.\n')
    monkeypatch.setattr(runner, 'TOP', tmp_path)
    tally = runner.Tally()
    runner.stestr(tally, name='self-test', minutes=1)
    assert (tally.passed, tally.failed) == (1, 1)
    ((test, said),) = tally.failures
    assert test == 'test_two.Case.test_bad'
    assert 'one is not two' in said


def test_report_that_was_never_written_counts_nothing(runner, tmp_path):
    assert runner.junit_counts(tmp_path / 'report.xml') == (0, 0, 0)


def test_stestr_totals_are_counted(runner):
    output = (' - Passed: 1\nTotals\n - Passed: 12\n - Skipped: 2\n - Expected Fail: 1\n'
              ' - Unexpected Success: 3\n - Failed: 4\n')
    assert runner.stestr_counts(output) == (13, 7, 2)
