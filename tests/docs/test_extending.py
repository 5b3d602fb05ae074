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

"""The plug-ins of the page on extending are loaded as anybody's are, and do what it says."""

import configparser
import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/contributor/extending.rst').read_text()
EXAMPLE = TOP / 'doc/examples/extend'
#: In the order of the page.
RULES = ('same_rack', 'huge_memory')
#: Plans a scenario with whatever strategies are installed, and has it checked.
PLAN = '''
import dataclasses, json, pathlib, sys
from kronos_nova import plugins
from kronos_nova.rebalancer import checker, simulation
from kronos_nova.rebalancer.planning import planner, planning_settings
from tests.scenarios import loader
scenario = loader.load(pathlib.Path(sys.argv[1]))
request = dataclasses.replace(scenario.request, strategies=[
    plugins.load(plugins.STRATEGIES, name)() for name in planning_settings.strategy_names()])
plan = planner.plan(request)
ceilings = simulation.Simulation(request.cluster, request.scores, request.policies,
                                 request.history, request.options).ceilings
wrong = checker.check(plan, request.cluster, request.options, request.history, request.scores,
                      ceilings, request.budget)
print(json.dumps({
    'moves': [f'{scenario.names[m.instance_uuid]} {m.from_host} -> {m.to_host}'
              for m in plan.moves],
    'expected': scenario.expect['moves'], 'wrong': [str(no) for no in wrong]}))
'''
PLUGINS = 'from kronos_nova.cli.app import main; import sys; sys.exit(main(sys.argv[1:]))'


def run(program, *arguments, first):
    """In an interpreter of its own, which finds ``first`` before what is installed."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', program, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=first,
        env={**os.environ, 'PYTHONPATH': f'{first}{os.pathsep}{TOP}'})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """A directory with the package of the example, as pip leaves it."""
    path = tmp_path_factory.mktemp('installed')
    setup = configparser.ConfigParser()
    setup.read(EXAMPLE / 'setup.cfg')
    name, version = setup['metadata']['name'], setup['metadata']['version']
    for module in setup['options']['py_modules'].split():
        shutil.copy(EXAMPLE / f'{module}.py', path)
    information = path / f'{name.replace("-", "_")}-{version}.dist-info'
    information.mkdir()
    (information / 'METADATA').write_text(
        f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n')
    points = setup['options.entry_points']
    (information / 'entry_points.txt').write_text(
        ''.join(f'[{group}]\n{points[group].strip()}\n' for group in points))
    return path


@pytest.fixture(scope='module')
def changed(tmp_path_factory):
    """A copy of our package with the files of the rules and the lines of the page."""
    path = tmp_path_factory.mktemp('changed')
    shutil.copytree(TOP / 'kronos_nova', path / 'kronos_nova',
                    ignore=shutil.ignore_patterns('__pycache__'))
    rules = path / 'kronos_nova/constraints'
    text = (rules / '__init__.py').read_text()
    lines = re.findall(r'^\.\. code-block:: python\n\n   (.*)$', PAGE, re.MULTILINE)
    for name, imported, listed in zip(RULES, lines[::2], lines[1::2], strict=True):
        shutil.copy(EXAMPLE / f'{name}.py', rules)
        head, end, rest = text.partition('    live.DEVICES_RULE,\n')
        assert rest
        text = head.replace('from kronos_nova.constraints import hypervisor\n',
                            f'{imported}\nfrom kronos_nova.constraints import hypervisor\n'
                            ) + f'{end}    {listed}\n{rest}'
    (rules / '__init__.py').write_text(text)
    return path


def test_the_strategy_is_installed_and_loads(installed):
    rows = run(PLUGINS, 'plugin', 'list', '-f', 'json', first=installed)
    row = next(row for row in rows if row['Name'] == 'even')
    assert row['Namespace'] == 'kronos_nova.strategies'
    assert (row['Distribution'], row['Loads']) == ('kronos-even', 'yes')


def test_the_strategy_moves_what_its_scenario_says_and_the_checker_agrees(installed):
    result = run(PLAN, EXAMPLE / 'even.yaml', first=installed)
    assert result['moves'] == result['expected'] != []
    assert result['wrong'] == []


def test_without_the_strategy_nothing_moves_there(tmp_path):
    assert run(PLAN, EXAMPLE / 'even.yaml', first=tmp_path)['moves'] == []


@pytest.mark.parametrize('name', RULES)
def test_the_rule_holds_what_its_scenario_says_and_the_checker_agrees(changed, name):
    result = run(PLAN, EXAMPLE / f'{name}.yaml', first=changed)
    assert result['moves'] == result['expected'] != []
    assert result['wrong'] == []


def test_a_drain_takes_what_the_rule_holds_for_balancing(changed):
    result = run(PLAN, EXAMPLE / 'huge_memory_drain.yaml', first=changed)
    assert result['moves'] == result['expected'] != []
    assert result['wrong'] == []


@pytest.mark.parametrize('name', RULES)
def test_without_the_rule_another_move_is_planned(tmp_path, name):
    result = run(PLAN, EXAMPLE / f'{name}.yaml', first=tmp_path)
    assert result['moves'] != result['expected']


def test_the_files_that_the_page_names_are_there():
    named = re.findall(r'``((?:kronos_nova|tests)/[\w/]+\.py)``', PAGE)
    assert len(named) > 8
    assert [name for name in named if not (TOP / name).is_file()] == [
        f'kronos_nova/constraints/{name}.py' for name in RULES]


def test_the_page_shows_every_file_of_the_example():
    shown = set(re.findall(r'^\.\. literalinclude:: \.\./\.\./examples/extend/(\S+)$', PAGE,
                           re.MULTILINE))
    assert shown == {path.name for path in EXAMPLE.iterdir() if path.is_file()}
