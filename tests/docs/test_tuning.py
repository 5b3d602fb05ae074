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



"""The page on tuning: its options exist, its keys are all there are."""

import os
from pathlib import Path
import re
import subprocess
import sys

from kronos_nova.cli import explanation_columns
from kronos_nova.cli import weigh
from kronos_nova.weighing import findings

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/admin/tuning.rst').read_text()


def documented(title):
    """The keys in the first column of one table of the page."""
    table = re.split(r'\n\n\S', PAGE.split(f'.. list-table:: {title}\n')[1])[0]
    return {key for line in re.findall(r'^   \* - (``.*)$', table, re.MULTILINE)
            for key in re.findall(r'``(\w+)``', line)}


def options(command):
    return {option for line in re.findall(rf'^   \$ kronos weigh {command} (.*)$', PAGE,
                                          re.MULTILINE)
            for option in re.findall(r'--[\w-]+', line)}


def test_every_option_of_explain_example_exists():
    known = set(weigh.ExplainWeights(None, None).get_parser('x')._option_string_actions)
    assert {'--flavor', '--set', '--num'} <= options('explain') <= known


def test_every_key_of_a_host_is_documented():
    some = findings.ChoiceExplanation((), (), (), ())
    names = explanation_columns.HostColumns(some, some, None, 'json', False).list_column_names()
    assert set(names) == documented('A host in the explanation')
    for key in ('raw', 'normalised', 'multiplier', 'aggregates', 'product'):
        assert f'``{key}``' in PAGE


def test_sums_of_table_match_its_products():
    """The command has printed the example; its numbers are unedited."""
    rows = [[cell.strip() for cell in line.strip(' |').split('|')]
            for line in PAGE.splitlines() if line.startswith('   | ')]
    heads, ranked = rows[0], [row for row in rows[1:] if row[0] != '-']
    assert len(ranked) == 3
    for row in ranked:
        products = [float(cell.split('= ')[1].split(' ')[0]) for cell in row if ' = ' in cell]
        assert abs(sum(products) - float(row[heads.index('Sum with --set')])) < 0.002


COMMAND = re.compile(r'^   \$ cd (\S+)\n   \$ kronos (weigh tune .*)$', re.MULTILINE)


def run(directory, program, *arguments):
    return subprocess.run(
        [sys.executable, *program, *arguments], cwd=TOP / directory, capture_output=True,
        text=True, check=False, env={**os.environ, 'PYTHONPATH': str(TOP)})


def test_command_of_tune_prints_table_of_page():
    directory, arguments = COMMAND.search(PAGE).groups()
    done = run(directory, ('-c', 'import sys; from kronos_nova.cli import app; '
                                 'sys.exit(app.main(sys.argv[1:]))'), *arguments.split())
    assert done.returncode == 0, done.stderr
    assert f'{done.stdout.rstrip()}\n{done.stderr}' == (
        TOP / directory / 'output.txt').read_text(), (
        'boots are placed otherwise now: run python tools/generate_example_tune.py')


def test_example_trace_matches_its_generator():
    done = run('.', ('tools/generate_example_tune.py', '--check'))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_option_of_tune_example_exists():
    known = set(weigh.TuneMultipliers(None, None).get_parser('x')._option_string_actions)
    assert {'--trace', '--multiplier', '--record'} <= options('tune') <= known


def test_every_key_of_a_multiplier_is_documented():
    names, _rows = weigh._build_table('json', [], [], None)
    assert set(names) == documented('A multiplier in -f json')
