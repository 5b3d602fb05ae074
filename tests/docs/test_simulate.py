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

"""The page about kronos simulate tells of every key, and its command works."""

import json
import os
from pathlib import Path
import re
import subprocess
import sys

import numpy as np
import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/admin/simulate.rst').read_text()
EXAMPLE = TOP / 'doc/examples/simulate'
COMMAND = re.compile(
    r'^   \$ cd (?P<cwd>\S+)\n   \$ kronos simulate (?P<arguments>.*)$', re.MULTILINE)


@pytest.fixture(scope='module')
def shown(tmp_path_factory):
    """What the page's own command prints, and its report."""
    report = tmp_path_factory.mktemp('simulated') / 'report.json'
    found = COMMAND.search(PAGE)
    assert found is not None
    done = subprocess.run(
        [sys.executable, '-c', 'import sys; from kronos_nova.cli import app; '
                               'sys.exit(app.main(sys.argv[1:]))', 'simulate',
         *found['arguments'].split(), '--report', str(report)],
        cwd=TOP / found['cwd'], capture_output=True, text=True, check=False,
        env={**os.environ, 'PYTHONPATH': str(TOP)})
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text())


def documented(title):
    """The keys of one table of the page."""
    table = re.split(r'\n\n\S', PAGE.split(f'.. list-table:: {title}\n')[1])[0]
    return {key for line in re.findall(r'^   \* - (``.*)$', table, re.MULTILINE)
            for key in re.findall(r'``(\w+)``', line)}


def test_command_prints_table_of_page(shown):
    out, _report = shown
    assert out.rstrip() == (EXAMPLE / 'output.txt').read_text().rstrip(), (
        'the planner plans otherwise now: run python tools/generate_example_trace.py')


def test_every_key_of_a_candidate_is_documented(shown):
    _out, report = shown
    for row in report['candidates']:
        assert set(row) == documented('A candidate in the report')
    for key in (*report, *report['candidates'][0]['over_time'],
                *report['candidates'][-1]['move_list'][0]):
        assert f'``{key}``' in PAGE, key


def test_every_field_of_a_trace_is_documented():
    with np.load(EXAMPLE / 'trace.npz') as found:
        fields = {re.sub(r'_\d+$', '_N', name) for name in found.files}
    assert fields == documented('Fields of a trace')


def test_example_trace_matches_its_generator():
    done = subprocess.run(
        [sys.executable, 'tools/generate_example_trace.py', '--check'], cwd=TOP,
        capture_output=True, text=True, check=False, env={**os.environ, 'PYTHONPATH': str(TOP)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_option_of_an_example_exists():
    from kronos_nova.cli import simulate

    parser = simulate.SimulatePolicies(None, None).get_parser('kronos simulate')
    known = set(parser._option_string_actions)
    shown_options = {option for line in re.findall(r'^   \$ kronos simulate (.*)$', PAGE,
                                                   re.MULTILINE)
                     for option in re.findall(r'--[\w-]+', line)}
    assert '--record' in shown_options and shown_options <= known
