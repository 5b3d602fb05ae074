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

import ast
import configparser
import fcntl
import importlib.util
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import time
import tomllib
import unittest

import psutil
import pytest

from tests import ci
from tests import marks
from tests.simulation import test_world

TOP = Path(__file__).resolve().parents[3]
RUNNER = TOP / 'tools/run_tests.py'
# Runs parts of its own through the real runner: sys.argv[1] is their source.
DRIVER = '''
import importlib.util, pathlib, sys, tempfile
spec = importlib.util.spec_from_file_location('run_tests', sys.argv[1])
runner = importlib.util.module_from_spec(spec)
sys.modules['run_tests'] = runner
spec.loader.exec_module(runner)
# The run that has this test in it holds the lock of the checkout's own.
directory = tempfile.TemporaryDirectory()
runner.RESULTS = pathlib.Path(directory.name)
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


def _indented(body: str) -> str:
    return '\n'.join(f'    {line}' for line in body.strip().splitlines())


def _start(body: str) -> subprocess.Popen[str]:
    driver = DRIVER.format(body=_indented(body))
    return subprocess.Popen([sys.executable, '-c', driver, str(RUNNER)],
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


def test_process_that_outlived_its_parent_goes_as_soon_as_it_ends():
    status, output = _run('''
script = ('pid=$(setsid sh -c "sleep 0.3 & echo \\\\$!"); n=0; '
          'while kill -0 $pid 2>&1; do n=$((n+1)); [ $n -lt 100 ] || exit 3; sleep 0.1; done')
runner.check(tally, 'orphan', ['sh', '-c', script])
''')
    assert status == 0, output


def test_preparation_for_a_later_part_outlives_earlier_parts():
    status, output = _run('''
commands = [['sh', '-c', 'sleep 3; echo made in passing'], ['echo', 'made again']]
runner.making_pythons = lambda found, stage='': commands.pop(0)
runner.other_pythons = dict
runner.prepare_pythons()
runner.check(tally, 'daemon', ['sh', '-c', 'setsid sleep 600 & echo pid=$!'])
runner.end_descendants()
print('in between', flush=True)
assert runner.make_pythons({}) == 0 and not runner.PREPARING
''')
    assert status == 0, output
    said = [line for line in output.splitlines() if line.startswith(('in between', 'made'))]
    assert said == ['in between', 'made in passing', 'made again']
    (pid,) = (line.removeprefix('pid=') for line in output.splitlines() if line.startswith('pid='))
    assert not psutil.pid_exists(int(pid))


def test_preparation_for_a_skipped_part_is_ended():
    status, output = _run('''
runner.making_pythons = lambda found, stage='': ['sleep', '600']
runner.other_pythons = dict
runner.prepare_pythons()
print(f'pid={runner.PREPARING["pythons"].pid}', flush=True)
raise ValueError('a defect')
''')
    assert status == 1 and 'ValueError: a defect' in output
    (pid,) = (line.removeprefix('pid=') for line in output.splitlines() if line.startswith('pid='))
    assert not psutil.pid_exists(int(pid))


BESIDE = '''
import importlib.util, os, pathlib, sys, time
spec = importlib.util.spec_from_file_location('run_tests', {runner!r})
runner = importlib.util.module_from_spec(spec)
sys.modules['run_tests'] = runner
spec.loader.exec_module(runner)
runner.RESULTS = pathlib.Path({results!r})
begun = runner.RESULTS / 'begun'
def waiting(tally):
    """it waits for the other"""
    runner.check(tally, 'wait', ['sh', '-c', f'until [ -e {{begun}} ]; do sleep 0.05; done'], 1)
    runner.check(tally, 'daemon', ['sh', '-c', 'setsid sleep 600 & echo pid=$!'])
def busy(tally):
    """it outlives the end of the other's processes"""
    begun.touch()
    runner.check(tally, 'busy', ['sh', '-c', 'sleep 2; echo said by busy'])
    runner.check(tally, 'bad', ['false'])
    tally.durations.append((7.0, 'test_slow'))
    {busy}
runner.PARTS = {{'waiting': waiting, 'busy': busy}}
runner.BESIDE = {{'waiting': 'busy'}}
runner.__file__ = __file__
sys.exit(runner.main())
'''


def _run_beside(directory, *parts, busy='pass', stderr=None):
    script = directory / 'driver.py'
    script.write_text(BESIDE.format(runner=str(RUNNER), results=str(directory), busy=busy))
    done = subprocess.run([sys.executable, script, *parts], stdout=subprocess.PIPE, stderr=stderr,
                          text=True, check=False, timeout=180)
    return done.returncode, done.stdout


def test_a_later_part_runs_beside_one_that_waits_and_is_counted(tmp_path):
    status, output = _run_beside(tmp_path, 'waiting', 'busy')
    assert status == 1
    assert output.index('=== waiting: 0.') < output.index('said by busy')
    assert 'busy: bad: exit status 1\n' in output
    assert '     7.0  busy: test_slow\n' in output
    assert output.endswith('\n3 passed, 1 failed, 0 skipped\n')


def test_a_part_alone_runs_without_another_beside_it(tmp_path):
    status, output = _run_beside(tmp_path, 'busy')
    assert status == 1 and output.endswith('\n1 passed, 1 failed, 0 skipped\n')
    assert not list(tmp_path.glob('*.json'))


def test_a_part_that_dies_beside_another_has_failed(tmp_path):
    status, output = _run_beside(tmp_path, 'waiting', 'busy', busy='os._exit(0)')
    assert status == 1 and 'busy: busy: ended without a result\n' in output
    assert output.endswith('\n2 passed, 1 failed, 0 skipped\n')


@pytest.mark.parametrize(('command', 'counts', 'remarks'), [
    ('echo said by check', (1, 0), []),
    ('echo said by check; exit 3', (0, 1), ['types: exit status 3']),
    ('echo said by check; sleep 600', (0, 1), ['types: exit status 124'])])
def test_a_check_beside_others_is_shown_and_counted(
        runner, tmp_path, monkeypatch, capsys, command, counts, remarks):
    monkeypatch.setattr(runner, 'RESULTS', tmp_path)
    tally = runner.Tally()
    runner.begin_check('types', ['sh', '-c', command])
    process = runner.PREPARING['types']
    runner.check(tally, 'other', ['true'])
    runner.end_check(tally, 'types', minutes=0.05)
    assert process.poll() is not None and not runner.PREPARING
    assert (tally.passed - 1, tally.failed) == counts and tally.remarks == remarks
    shown = capsys.readouterr().out
    assert shown.index('$ true') < shown.index(f'$ sh -c {command}') < shown.index('\nsaid by')


def test_the_environments_of_other_pythons_are_begun_when_they_come_later(runner, monkeypatch):
    begun = []
    monkeypatch.setattr(runner, 'prepare_pythons', lambda: begun.append(True))
    monkeypatch.setattr(runner, 'end_descendants', lambda: None)
    monkeypatch.setattr(runner, 'PARTS', {name: lambda tally: tally.add(1, 0, 0)
                                          for name in ('lint', 'pythons')})
    runner.run(['pythons'], {})
    runner.run(['lint'], {})
    assert not begun
    runner.run(['lint', 'pythons'], {})
    assert begun


def test_processor_minutes_are_shown_beside_clock_minutes(runner):
    tally = runner.Tally(passed=3, seconds=120.0, processor_seconds=90.0)
    head, row, together, *_ = (line.split() for line in runner.summary({'unit': tally}))
    assert head == ['part', 'minutes', 'of', 'cpu', 'passed', 'failed', 'skipped']
    assert row == ['unit', '2.0', '1.5', '3', '0', '0']
    assert together == ['together', '2.0', '1.5']


def test_processor_time_of_a_command_and_its_children_is_counted(runner):
    before = runner.processor_seconds()
    subprocess.run(['sh', '-c', f'{sys.executable} -c "import time\nwhile time.process_time() '
                    '< 0.6: pass"; true'], check=True)
    assert runner.processor_seconds() - before >= 0.5


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_reports_it_and_ends_its_processes(signum):
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


def test_failed_tests_are_repeated_at_the_end(tmp_path):
    tests = tmp_path / 'test_two.py'
    tests.write_text('def test_good(): pass\ndef test_bad(): assert 1 == 2, "one is not two"\n')
    status, output = _run(
        f'runner.pytest(tally, "-p", "no:cacheprovider", "--rootdir", "{tmp_path}", "-c", '
        f'"/dev/null", "{tests}", name="self-test")')
    assert status == 1
    again = output[output.index('\n=== part: '):output.index('\nslowest tests')]
    assert '--- part: failed: test_two::test_bad\n' in again
    assert 'one is not two' in again and 'test_good' not in again


@pytest.mark.needs_nova
def test_a_failed_test_of_stestr_is_shown_with_its_output(runner, tmp_path, monkeypatch):
    (tmp_path / 'test_two.py').write_text(
        'import unittest\nclass Case(unittest.TestCase):\n    def test_good(self): pass\n'
        '    def test_bad(self): self.fail("one is not two")\n')
    (tmp_path / '.stestr.conf').write_text('[DEFAULT]\ntest_path=.\n')
    monkeypatch.setattr(runner, 'TOP', tmp_path)
    tally = runner.Tally()
    runner.stestr(tally, name='self-test', minutes=1)
    assert {name for _seconds, name in tally.durations} == {
        'test_two.Case.test_good', 'test_two.Case.test_bad'}
    assert (tally.passed, tally.failed) == (1, 1)
    ((test, said),) = tally.failures
    assert test == 'test_two.Case.test_bad'
    assert 'one is not two' in said


@pytest.fixture
def executed(runner, monkeypatch):
    """Runs a part with nothing behind it; the commands and variables that it hands over."""
    def executed(part):
        found = []

        def execute(command, minutes, **variables):
            if 'tools/stestr_times.py' not in command:
                found.append((command[1:], variables))
            return 0, 'Totals\n - Passed: 1\n'

        monkeypatch.setattr(runner, 'execute', execute)
        monkeypatch.setattr(runner, 'junit_counts', lambda report: (1, 0, 0))
        monkeypatch.setattr(runner, 'junit_failures', lambda report: ())
        monkeypatch.setattr(runner, 'junit_durations', lambda report: ())
        monkeypatch.setattr(runner, 'stestr_tests', lambda binaries: [])
        monkeypatch.setattr(runner, 'find_python', lambda version: f'/python{version}')
        monkeypatch.setattr(runner, 'OLDER_NOVAS', dict.fromkeys(
            runner.OLDER_NOVAS, (sys.version_info[:2],)))
        monkeypatch.setenv('KRONOS_ANCESTOR', '/ancestor/bin')
        # Set, and so put back whatever a part makes of it.
        monkeypatch.setenv('KRONOS_TEST_EXAMPLES', '1')
        tally = runner.Tally()
        runner.PARTS[part](tally)
        assert tally.failed == 0, tally.remarks
        return found

    return executed


def words(found):
    """Each command as one text."""
    return [' '.join(command) for command, _variables in found]


def test_default_is_every_part_that_a_gate_has_no_other_job_for(runner):
    assert runner.DEFAULT == ('lint', 'unit', 'functional', 'integration', 'docs', 'package',
                              'deploy', 'pythons')
    assert set(runner.PARTS) == {*runner.DEFAULT, 'novas', 'libvirt', 'containers', 'gate', 'long'}


def test_functional_runs_all_on_native_threads_and_both_doors_on_eventlet(runner, executed):
    native, eventlet = executed('functional')
    assert [each[1]['OS_NOVA_DISABLE_EVENTLET_PATCHING'] for each in (native, eventlet)] == [
        '1', '0']
    assert native[0] == ['run', '--concurrency', '4', '--exclude-regex', runner.LONG_FUNCTIONAL]
    assert eventlet[0][:3] == ['run', '--concurrency', '2'], 'few tests, and each loads Nova'
    (pattern,) = eventlet[0][3:]
    for name in ('test_base.', 'test_filters.CeilingTestCase.test_host_above_ceiling',
                 'test_weigher.FollowScoresTestCase.test_boots_follow'):
        assert re.search(pattern, f'tests.functional.{name}'), name


def test_tox_on_eventlet_has_as_many_workers(executed):
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOP / 'tox.ini')
    section = tox['testenv:functional-eventlet']
    assert 'OS_NOVA_DISABLE_EVENTLET_PATCHING=0' in section['setenv'].split()
    (native, _variables), *_ = executed('functional')
    assert section['commands'].split()[:4] == ['stestr', *native[:3]]


@pytest.mark.parametrize(('part', 'directories'), [
    ('unit', ['tests/unit', 'tests/scenarios', 'tests/simulation']),
    ('integration', ['tests/integration']), ('docs', ['tests/docs']),
    ('package', ['tests/package']), ('deploy', ['tests/deploy'])])
def test_a_part_runs_the_whole_of_its_directories(executed, part, directories):
    (command,) = (command for command, _ in executed(part) if command[:2] == ['-m', 'pytest'])
    assert [word for word in command if word.startswith('tests/')] == directories
    assert not {'-k', '--deselect', '--ignore'} & {word.partition('=')[0] for word in command}
    assert command.count('-m') == 1


def test_unit_runs_another_range_of_seeds_with_each_commit(runner, executed, monkeypatch):
    monkeypatch.delenv('KRONOS_WORLD_FIRST', raising=False)
    monkeypatch.delenv('KRONOS_TURN', raising=False)
    monkeypatch.setattr(runner, 'read_commit', lambda: '1e')
    ((_command, variables),) = executed('unit')
    assert variables == {'KRONOS_WORLD_FIRST': '1500', 'KRONOS_TURN': '0',
                         'KRONOS_TEST_EXAMPLES': '1'}
    assert {runner.choose_first_seed(f'{number:040x}') for number in range(80)} == set(
        range(0, 2000, 50))
    monkeypatch.setenv('KRONOS_WORLD_FIRST', '3000')
    ((_command, variables),) = executed('unit')
    assert variables['KRONOS_WORLD_FIRST'] == '3000'


def test_unit_tries_half_of_the_random_examples_and_the_long_run_all(
        runner, executed, monkeypatch):
    monkeypatch.setenv('KRONOS_LONG', 'fuzz')
    (examples,) = (variables for command, variables in executed('long')
                   if command[-2:] == list(runner.UNIT_TESTS))
    assert examples['KRONOS_TEST_EXAMPLES'] == '1'
    handed = []
    monkeypatch.setattr(runner, 'pytest', lambda *_arguments, **variables: handed.append(variables))
    monkeypatch.delenv('KRONOS_TEST_EXAMPLES')
    runner.unit(runner.Tally())
    assert handed[0]['KRONOS_TEST_EXAMPLES'] == runner.UNIT_EXAMPLES == '0.5'


def test_another_share_of_the_tests_that_take_turns_runs_with_each_commit(
        runner, executed, monkeypatch):
    monkeypatch.delenv('KRONOS_TURN', raising=False)
    monkeypatch.setattr(runner, 'read_commit', lambda: '1ff')
    for part in ('unit', 'functional', 'deploy'):
        assert {variables['KRONOS_TURN'] for _command, variables in executed(part)} == {'7'}
    assert {runner.choose_turn(f'{64 * number:x}') for number in range(100)} == {
        str(turn) for turn in range(runner.TURNS)}
    monkeypatch.setenv('KRONOS_TURN', '3')
    ((_command, variables),) = executed('unit')
    assert variables['KRONOS_TURN'] == '3'


@pytest.mark.parametrize('checkout', [True, False])
def test_commit_is_that_of_the_checkout(runner, tmp_path, monkeypatch, checkout):
    monkeypatch.setattr(runner, 'TOP', tmp_path)
    if checkout:
        git = ['git', '-C', str(tmp_path), '-c', 'user.name=a', '-c', 'user.email=a@b']
        subprocess.run([*git, 'init', '-q'], check=True)
        subprocess.run([*git, 'commit', '-q', '--allow-empty', '-m', 'First'], check=True)
    assert re.fullmatch('[0-9a-f]{40}' if checkout else '0', runner.read_commit())


def test_long_runs_every_range_of_seeds_that_a_commit_may_have(runner):
    assert test_world.DEFAULT_SEEDS == runner.WORLD_SEEDS
    assert runner.WORLD_SEEDS * runner.WORLD_RANGES <= test_world.LONG_SEEDS
    assert runner.WORLD_SEEDS % test_world.CHUNK == test_world.LONG_SEEDS % test_world.CHUNK == 0


@pytest.mark.parametrize(('commit', 'chosen', 'named'), [
    ('0', 0, None), ('7', 0, None), ('8', 1, None), ('10', 0, None), ('0', 1, '3.13')])
def test_pythons_makes_one_in_turns_imports_all_and_runs_pure_tests_on_it(
        runner, executed, monkeypatch, commit, chosen, named):
    monkeypatch.setattr(runner, 'read_commit', lambda: commit)
    monkeypatch.delenv('KRONOS_PYTHON', raising=False)
    if named:
        monkeypatch.setenv('KRONOS_PYTHON', named)
    made, (command, _variables) = executed('pythons')
    assert [word for word in made[0] if word.startswith('/python')] == [
        ('/python3.12', '/python3.13')[chosen]]
    assert tuple(word for word in command if word.startswith('tests/')) == runner.PURE_TESTS
    assert runner.IMPORT_TEST in runner.PURE_TESTS
    for path in runner.PURE_TESTS:
        file, _, test = path.partition('::')
        assert (TOP / file).exists() and test in (TOP / file).read_text() if test else True, path


def test_pure_tests_run_on_no_python_that_is_not_there(runner, monkeypatch):
    monkeypatch.setenv('KRONOS_PYTHON', '3.13')
    assert runner.choose_python('0', ['3.12']) == '3.12'
    assert runner.choose_python('0', []) is None


def test_long_runs_the_tests_that_the_default_leaves_out(runner, executed, monkeypatch):
    monkeypatch.delenv('KRONOS_NOVAS', raising=False)
    long = [command for command, _variables in executed('long')]
    by_mark = [command for command in long if command[5:7] == ['-m', 'long or mutant or turns']]
    # By the marker: in all directories, of which one has a run of its own.
    everywhere, ignored = next(
        (command, [word.partition('=')[2] for word in command if word.startswith('--ignore=')])
        for command in by_mark if 'tests' in command)
    assert not {'-k', '--deselect'} & {word.partition('=')[0] for word in everywhere}
    assert ignored == [runner.SIMULATION, runner.FUNCTIONAL, runner.HYPERVISORS,
                       runner.CONTAINER_TESTS]
    for directory in (runner.HYPERVISORS, runner.CONTAINER_TESTS, runner.GATE_TESTS):
        assert any(command[-1] == directory for command in long)
    assert any(command[-1] == runner.SIMULATION for command in by_mark)
    # By the name: stestr leaves out by default what it selects in the long run.
    (functional, _variables), *_ = executed('functional')
    (left_out,) = functional[functional.index('--exclude-regex') + 1:]
    ((*_, selected),) = (command for command in long if command[:3] == ['run', '--concurrency', '4']
                         and command[3].endswith('$'))
    assert [[re.search(pattern, f'Case.test{mark}') is not None for mark in (
        '', '[turn]', '[long]')] for pattern in (left_out, selected)] == [
            [False, False, True], [False, True, True]]
    # All of the unit tests on other Pythons, and here with all of their random examples.
    assert len([command for command in long if list(runner.UNIT_TESTS) == command[-2:]]) == len(
        runner.OTHER_PYTHONS) + 1


def test_a_test_of_each_mark_runs_in_the_long_run_alone(runner, tmp_path):
    (tmp_path / 'pyproject.toml').write_text((TOP / 'pyproject.toml').read_text())
    (tmp_path / 'test_marks.py').write_text(
        'import pytest\ndef test_plain(): pass\n' + ''.join(
            f'@pytest.mark.{mark}\ndef test_{mark}(): pass\n' for mark in ('long', 'mutant')))

    def selected(*arguments):
        done = subprocess.run(
            [sys.executable, '-m', 'pytest', '-q', '--collect-only', *arguments, 'test_marks.py'],
            cwd=tmp_path, capture_output=True, text=True, check=True)
        return re.findall('::(test_[a-z]+)', done.stdout)

    assert selected() == ['test_plain']
    assert selected(*runner.LEFT_OUT) == ['test_long', 'test_mutant']
    mutmut = tomllib.loads((TOP / 'pyproject.toml').read_text())['tool']['mutmut']
    words = mutmut['pytest_add_cli_args']
    assert selected('-m', words[words.index('-m') + 1]) == ['test_plain', 'test_mutant']


def select_turn(directory, turn, *arguments):
    """Return the names of the tests that take turns and run in one turn."""
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '--collect-only', '-p', 'turns_plugin', *arguments],
        cwd=directory, capture_output=True, text=True, check=True,
        env={**os.environ, 'KRONOS_TURN': turn, 'PYTHONPATH': f'{TOP}{os.pathsep}{directory}'})
    return re.findall(r'::(test_\w+)', done.stdout)


def test_each_test_that_takes_turns_runs_in_one_turn_and_in_the_long_run(runner, tmp_path):
    (tmp_path / 'pyproject.toml').write_text((TOP / 'pyproject.toml').read_text())
    (tmp_path / 'turns_plugin.py').write_text(
        'from tests.conftest import pytest_collection_modifyitems\n')
    (tmp_path / 'test_marks.py').write_text('import pytest\ndef test_plain(): pass\n' + ''.join(
        f'@pytest.mark.turns({shares})\ndef test_{name}(): pass\n'
        for name, shares in (('a', 2), ('b', 2), ('c', 2), ('d', 3), ('e', 3), ('f', 3),
                             ('g', '2, 1'))))
    file = 'test_marks.py'
    assert select_turn(tmp_path, '0', file) == ['test_plain', 'test_a', 'test_c', 'test_d']
    assert select_turn(tmp_path, '5', file) == ['test_plain', 'test_b', 'test_f', 'test_g']
    assert select_turn(tmp_path, 'all', file) == [
        'test_plain', *(f'test_{name}' for name in 'abcdefg')]
    assert select_turn(tmp_path, '5', *runner.LEFT_OUT, file) == [
        f'test_{name}' for name in 'abcdefg']
    # A run by hand is turn 0, in which one test alone is the first.
    assert select_turn(tmp_path, '0', f'{file}::test_f') == ['test_f']


@pytest.mark.parametrize('turn', ['0', '1', '2', 'all'])
def test_a_functional_test_takes_turns_by_its_name(runner, monkeypatch, turn):
    class Case(marks.MarkedTestCase, unittest.TestCase):
        for number in range(30):
            locals()[f'test_{number}'] = marks.turns(3)(lambda self: None)
        test_long = marks.long(marks.turns(3)(lambda self: None))

    monkeypatch.setattr(marks, 'TURN', turn)
    names = [Case(f'test_{number}').id() for number in range(30)]
    assert {name.rpartition('[')[2] for name in names} <= {'turn]', 'long]'}
    in_turn = [name for name in names if not re.search(runner.LONG_FUNCTIONAL, name)]
    assert len(in_turn) == 30 if turn == 'all' else 5 <= len(in_turn) <= 15
    assert all(re.search(runner.LEFT_OUT_FUNCTIONAL, name) for name in names)
    assert Case('test_long').id().endswith('[long]')


def test_the_shares_of_each_mark_divide_the_turns(runner):
    """Else some shares would run with fewer commits than others."""
    marked = [int(shares) for path in sorted((TOP / 'tests').rglob('test_*.py'))
              for shares in re.findall(r'\b(?:mark|marks)\.turns\((\d+)[,)]', path.read_text())]
    assert marked and not [shares for shares in marked if runner.TURNS % shares]


def test_long_runs_the_steps_that_kronos_long_names(runner, executed, monkeypatch):
    monkeypatch.setenv('KRONOS_LONG', 'plans simulation')
    first, second = words(executed('long'))
    assert 'random_plans.py' in first and 'tests/simulation' in second
    monkeypatch.setenv('KRONOS_LONG', 'plan')
    tally = runner.Tally()
    runner.long(tally)
    assert tally.failed == 1 and "'plan'" in tally.remarks[0]


def test_a_functional_test_that_is_marked_long_says_so_in_its_name(runner):
    class Case(marks.MarkedTestCase, unittest.TestCase):
        @marks.long
        def test_long(self):
            pass

        def test_short(self):
            pass

    class Derived(Case):
        pass

    @marks.long
    class LongCase(Derived):
        pass

    names = {case: [re.search(runner.LONG_FUNCTIONAL, case(test).id()) is not None
                    for test in ('test_long', 'test_short')]
             for case in (Case, Derived, LongCase)}
    assert names == {Case: [True, False], Derived: [True, False], LongCase: [True, True]}
    assert LongCase('test_short').id().endswith('LongCase.test_short[long]')


def test_each_case_of_the_functional_tests_can_tell_that_it_is_long():
    """The mark has no effect on a class whose names do not tell it."""
    bare = []
    for path in sorted((TOP / 'tests/functional').glob('test_*.py')):
        for case in ast.parse(path.read_text()).body:
            if isinstance(case, ast.ClassDef) and re.search(r'@marks\.(long|turns)', ''.join(
                    f'@{ast.unparse(mark)}' for node in ast.walk(case)
                    for mark in getattr(node, 'decorator_list', ()))):
                bases = [ast.unparse(base) for base in case.bases]
                if bases in (['unittest.TestCase'], ['testtools.TestCase']):
                    bare.append(f'{path.name}: {case.name}')
    assert not bare


def test_the_ten_slowest_tests_of_all_parts_stand_before_the_table(runner):
    tallies = {'unit': runner.Tally(durations=[(float(n), f'test_{n}') for n in range(30)]),
               'functional': runner.Tally(durations=[(25.5, 'test_boot'), (0.1, 'test_quick')])}
    lines = list(runner.summary(tallies))
    assert lines[0] == 'slowest tests, seconds:'
    assert [line.split() for line in lines[1:7]] == [
        ['29.0', 'unit:', 'test_29'], ['28.0', 'unit:', 'test_28'], ['27.0', 'unit:', 'test_27'],
        ['26.0', 'unit:', 'test_26'], ['25.5', 'functional:', 'test_boot'],
        ['25.0', 'unit:', 'test_25']]
    assert lines[11] == '' and lines[12].startswith('part ')


def test_durations_are_read_from_a_report(runner, tmp_path):
    report = tmp_path / 'report.xml'
    assert list(runner.junit_durations(report)) == []
    report.write_text('<testsuites><testsuite><testcase classname="tests.a" name="test_b" '
                      'time="1.5"/></testsuite></testsuites>')
    assert list(runner.junit_durations(report)) == [(1.5, 'tests.a::test_b')]


def test_long_runs_marked_tests_every_nova_and_both_tox_environments(
        runner, executed, monkeypatch):
    monkeypatch.delenv('KRONOS_NOVAS', raising=False)
    found = executed('long')
    assert [variables['KRONOS_KOLLA'] for _command, variables in found
            if 'KRONOS_KOLLA' in variables] == ['22', '20']
    texts = words(found)
    assert [text.rpartition(' ')[2] for text in texts
            if text.startswith('-m tests.deploy.checkers tox -e ')] == [
        'lower-constraints', 'sbom', 'audit']
    left_out = '-m long or mutant or turns'
    for wanted in (f'{left_out} tests --ignore=tests/simulation --ignore=tests/functional',
                   f'{left_out} {" ".join(runner.WORKERS)} tests/simulation',
                   'tests/unit/fuzz', 'tools/random_plans.py --plans 500',
                   '--concurrency 4 test_bursts', 'tests/unit tests/scenarios'):
        assert any(wanted in text for text in texts), wanted
    assert 'tools/novas.py 32 33' in texts
    assert not any('--ignore' in text for text in texts if 'tests/scenarios' in text), (
        'commands too, on each Python')


@pytest.mark.parametrize('value', [None, '', '0', 'false', 'no', '1', 'true', 'True', 'yes'])
def test_tests_read_CI_as_the_runner_does(monkeypatch, value):
    monkeypatch.delenv('CI', raising=False)
    if value is not None:
        monkeypatch.setenv('CI', value)
    spec = importlib.util.spec_from_file_location('run_tests_again', RUNNER)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    strict = value in ('1', 'true', 'True', 'yes')
    assert module.CONTINUOUS_INTEGRATION is strict
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as raised:
        ci.program('no-such-program', 'its-package')
    assert raised.type is (pytest.fail.Exception if strict else pytest.skip.Exception)
    assert str(raised.value) == 'no-such-program is missing: install its-package (bindep.txt)'


def test_report_that_was_never_written_counts_nothing(runner, tmp_path):
    assert runner.junit_counts(tmp_path / 'report.xml') == (0, 0, 0)


def test_stestr_totals_are_counted(runner):
    output = (' - Passed: 1\nTotals\n - Passed: 12\n - Skipped: 2\n - Expected Fail: 1\n'
              ' - Unexpected Success: 3\n - Failed: 4\n')
    assert runner.stestr_counts(output) == (13, 7, 2)


@pytest.mark.parametrize(('gate', 'status', 'output', 'counted'), [
    (False, 0, '', (1, 0, 0)), (False, 1, 'audit: a.txt: Found 1 known vulnerability', (0, 1, 0)),
    (False, 1, 'audit: not done: a.txt: no answer', (0, 0, 1)),
    (True, 1, 'audit: not done: a.txt: no answer', (0, 1, 0)),
    (False, 1, 'audit: not done: a.txt: x\naudit: b.txt: Found 2 known vulnerabilities', (0, 1, 0)),
    (False, 1, 'tox: no such environment', (0, 1, 0))])
def test_an_unanswered_audit_is_skipped_outside_a_gate_only(
        runner, monkeypatch, gate, status, output, counted):
    monkeypatch.setattr(runner, 'execute', lambda command, minutes: (status, output))
    monkeypatch.setattr(runner, 'CONTINUOUS_INTEGRATION', gate)
    tally = runner.Tally()
    runner.audit(tally)
    assert (tally.passed, tally.failed, tally.skipped) == counted


def test_long_runs_every_test_that_starts_the_ancestor(runner, executed):
    (variables,) = (variables for command, variables in executed('long')
                    if set(runner.ANCESTOR_TESTS) <= set(command))
    assert variables['KRONOS_ANCESTOR'] == '/ancestor/bin'
    found = {str(path.relative_to(runner.TOP)) for path in (runner.TOP / 'tests').rglob('test_*.py')
             if 'KRONOS_ANCESTOR' in path.read_text() and path != Path(__file__).resolve()}
    assert found == set(runner.ANCESTOR_TESTS)


@pytest.mark.parametrize(('python', 'gate', 'status', 'counted'), [
    (None, False, 0, (0, 0, 1)), (None, True, 0, (0, 1, 0)), ('/python', False, 1, (0, 0, 1)),
    ('/python', True, 1, (0, 1, 0)), ('/python', False, 0, (1, 0, 0))])
def test_ancestor_that_cannot_be_installed_is_skipped_outside_a_gate_only(
        runner, monkeypatch, tmp_path, python, gate, status, counted):
    commands = []
    monkeypatch.delenv('KRONOS_ANCESTOR', raising=False)
    monkeypatch.setattr(runner, 'TOP', tmp_path)
    monkeypatch.setattr(runner, 'CONTINUOUS_INTEGRATION', gate)
    monkeypatch.setattr(runner, 'find_python', lambda version: python)
    monkeypatch.setattr(runner, 'execute', lambda command, minutes, **variables: (
        commands.append((command, variables)), (status, ''))[1])
    monkeypatch.setattr(runner, 'junit_counts', lambda report: (1, 0, 0))
    monkeypatch.setattr(runner, 'junit_failures', lambda report: ())
    tally = runner.Tally()
    runner.try_beside_ancestor(tally)
    assert (tally.passed, tally.failed, tally.skipped) == counted
    if counted[0]:
        assert commands[1][0][1:] == ['install', '-q', runner.ANCESTOR]
        assert commands[-1][1]['KRONOS_ANCESTOR'] == str(tmp_path / '.pythons/ancestor/bin')
        before = len(commands)
        runner.try_beside_ancestor(tally)
        assert len(commands) == before + 1, 'installed once'


def test_a_second_run_in_one_checkout_ends_at_once_and_says_why(tmp_path):
    with (tmp_path / 'lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, output = _run_beside(tmp_path, 'busy', stderr=subprocess.STDOUT)
    assert status == 1 and not (tmp_path / 'begun').exists()
    assert output == (f'tools/test: another run of tools/test uses {tmp_path}; wait for its end, '
                      f'or run this one in a clone of its own.\n')
