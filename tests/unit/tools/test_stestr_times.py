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

"""stestr knows how long functional tests take before it has ever run one."""

import ast
from pathlib import Path
import subprocess

import pytest

from tools import run_tests
from tools import stestr_times

FUNCTIONAL = Path(__file__).resolve().parents[2] / 'functional'


def test_every_test_with_a_time_is_there():
    for name in stestr_times.read(stestr_times.TIMES.read_text()):
        *_, module, case, test = name.split('.')
        there = [node.name for node in ast.walk(ast.parse(
            (FUNCTIONAL / f'{module}.py').read_text()))
            if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        assert {case, test} <= set(there), f'{name} is gone: take it out of {stestr_times.TIMES}'


@pytest.mark.needs_nova
def test_long_tests_are_dealt_out_evenly_in_a_directory_without_a_run(tmp_path):
    times = {}
    for module, seconds in (('a', 40), ('b', 1), ('c', 30), ('d', 20)):
        (tmp_path / f'test_{module}.py').write_text(
            'import unittest\nclass Case(unittest.TestCase):\n    def test(self): pass\n')
        times[f'test_{module}.Case.test'] = seconds
    (tmp_path / '.stestr.conf').write_text('[DEFAULT]\ntest_path=.\n')
    stestr_times.teach(tmp_path, times)
    assert stestr_times.measured(tmp_path) == times
    done = subprocess.run([stestr_times.STESTR, 'run', '--concurrency', '2'], cwd=tmp_path,
                          capture_output=True, text=True, check=True)
    worker = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()
              if line.startswith('{')}
    assert worker['test_a.Case.test'] != worker['test_c.Case.test']
    assert worker['test_c.Case.test'] == worker['test_d.Case.test']
    assert run_tests.stestr_counts(done.stdout) == (4, 0, 0)
    assert all(took < 1 for took in stestr_times.measured(tmp_path).values())


def test_a_test_has_one_time_whether_it_is_its_turn_or_not():
    earlier = stestr_times.read('1.0 Case.test_a\n2.0 Case.test_b\n3.0 Case.test_c\n')
    known = {'Case.test_a[turn]': 1.5, 'Case.test_b[long]': 2.5}
    text = stestr_times.write(known, earlier)
    assert text == '1.5 Case.test_a\n2.5 Case.test_b\n3.0 Case.test_c\n'
    stream = stestr_times.stream(stestr_times.read(text))
    for mark in ('', '[turn]', '[long]'):
        assert f'Case.test_a{mark}'.encode() in stream


@pytest.mark.parametrize('known', [False, True])
def test_times_are_given_when_no_earlier_run_has_them(known, tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(run_tests, 'TOP', tmp_path)
    monkeypatch.setattr(run_tests, 'stestr_tests', lambda binaries: [])
    monkeypatch.setattr(run_tests, 'execute', lambda command, *_, **_kw: commands.append(
        command[1]) or (0, 'Totals\n - Passed: 1\n'))
    if known:
        (tmp_path / '.stestr').mkdir()
    run_tests.functional(run_tests.Tally())
    assert commands == ['tools/stestr_times.py'] * (not known) + ['run', 'run']
