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

"""The plug-ins of the page on extending load like other plug-ins, and do what the page says."""

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
#: Calls a function of tests/docs/extensions.py.
USE = ('import json, sys; from tests.docs import extensions; '
       'print(json.dumps(getattr(extensions, sys.argv[1])(*sys.argv[2:])))')
#: In the order of the page.
RULES = ('same_rack', 'huge_memory')
#: Plans a scenario with all installed strategies, and lets the checker judge the plan.
PLAN = ('import json, sys; from tests.docs import extensions; '
        'print(json.dumps(extensions.plan(sys.argv[1])))')
PLUGINS = 'from kronos_nova.cli.app import main; import sys; sys.exit(main(sys.argv[1:]))'


def run(program, *arguments, first, cwd=None):
    """Run in an interpreter of its own, which finds ``first`` before installed packages."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', program, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd or first,
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
    for module in setup['options']['py_modules'].split(', '):
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


def test_strategy_is_installed_and_loads(installed):
    rows = run(PLUGINS, 'plugin', 'list', '-f', 'json', first=installed)
    row = next(row for row in rows if row['Name'] == 'even')
    assert row['Namespace'] == 'kronos_nova.strategies'
    assert (row['Distribution'], row['Loads']) == ('kronos-examples', 'yes')


def test_strategy_gives_moves_of_scenario_and_passes_checker(installed):
    result = run(PLAN, EXAMPLE / 'even.yaml', first=installed)
    assert result['moves'] == result['expected'] != []
    assert result['wrong'] == []


def test_no_move_is_planned_without_strategy(tmp_path):
    assert run(PLAN, EXAMPLE / 'even.yaml', first=tmp_path)['moves'] == []


@pytest.mark.turns(3)
@pytest.mark.parametrize('name', RULES)
def test_rule_gives_moves_of_scenario_and_passes_checker(changed, name):
    result = run(PLAN, EXAMPLE / f'{name}.yaml', first=changed)
    assert result['moves'] == result['expected'] != []
    assert result['wrong'] == []


def test_drain_moves_instances_that_rule_holds(changed):
    result = run(PLAN, EXAMPLE / 'huge_memory_drain.yaml', first=changed)
    assert result['moves'] == result['expected'] != []
    assert result['wrong'] == []


@pytest.mark.turns(3)
@pytest.mark.parametrize('name', RULES)
def test_other_move_is_planned_without_rule(tmp_path, name):
    result = run(PLAN, EXAMPLE / f'{name}.yaml', first=tmp_path)
    assert result['moves'] != result['expected']


def test_files_named_on_page_exist():
    named = re.findall(r'``((?:kronos_nova|tests)/[\w/]+\.py)``', PAGE)
    assert len(named) > 8
    assert [name for name in named if not (TOP / name).is_file()] == [
        'kronos_nova/api/handlers/instance_tasks.py',
        *(f'kronos_nova/constraints/{name}.py' for name in RULES)]


def test_page_shows_every_file_of_example():
    shown = set(re.findall(r'^\.\. literalinclude:: \.\./\.\./examples/extend/(\S+)$', PAGE,
                           re.MULTILINE))
    assert shown == {path.name for path in EXAMPLE.iterdir() if path.is_file()}


def test_every_example_is_installed_and_loads(installed):
    rows = run(PLUGINS, 'plugin', 'list', '-f', 'json', first=installed)
    assert {(row['Namespace'].removeprefix('kronos_nova.'), row['Name'], row['Loads'])
            for row in rows if row['Distribution'] == 'kronos-examples'} >= {
        ('filters', 'SpareHostFilter', 'yes'), ('weighers', 'CrowdWeigher', 'yes'),
        ('sources', 'json_file', 'yes'), ('executors', 'by_hand', 'yes'),
        ('hooks', 'backup_lock', 'yes')}


@pytest.mark.turns(3)
@pytest.mark.parametrize(('moving', 'hosts'), [((), ['h1']), (('moving',), ['spare1', 'h1'])])
def test_filter_keeps_only_boots_off_spare_hosts(installed, moving, hosts):
    assert run(USE, 'filter_hosts', *moving, first=installed) == hosts


@pytest.mark.turns(3)
@pytest.mark.parametrize(('multiplier', 'hosts'), [
    ('1', ['empty', 'full']), ('-1', ['full', 'empty'])])
def test_nova_orders_hosts_by_weigher(installed, multiplier, hosts):
    assert run(USE, 'weigh_hosts', multiplier, first=installed) == hosts


@pytest.mark.turns(3)
@pytest.mark.parametrize(('content', 'age', 'hosts', 'untrusted'), [
    ('{"cpu": {"a": 0.5, "b": 0.2}}', 10, {'a': 0.5, 'b': 0.2}, ''),
    ('{"cpu": {"a": 0.5, "b": 0.2}}', 1000, {'a': 0.5, 'b': 0.2}, 'samples are 100'),
    ('{"cpu": {"a": NaN, "b": 0.2}}', 10, {}, 'a value is no finite number'),
    ('{"ram": {"a": 0.5}}', 10, {}, "KeyError: 'cpu'"),
    ('{"cpu": {"a": 0.', 10, {}, 'JSONDecodeError')])
def test_source_returns_fresh_scores_or_reason(installed, tmp_path, content, age, hosts, untrusted):
    found = run(USE, 'score_from_file', content, age, first=installed, cwd=tmp_path)
    assert found['hosts'] == hosts
    assert untrusted in found['untrusted'] if untrusted else found['untrusted'] is None


@pytest.mark.turns(3)
@pytest.mark.parametrize(('hosts', 'states', 'error_type'), [
    (['h1', 'h1', 'h2'], ['submitted', 'submitted', 'completed'], None),
    (['h1', 'h7'], ['submitted', 'queued'], 'MigrationFailed'),
    (['h7'], ['failed'], 'PreFlightError')])
def test_executor_completes_task_when_nova_shows_new_host(installed, hosts, states, error_type):
    found = run(USE, 'carry_out_by_hand', *hosts, first=installed)
    assert found == {'states': states, 'error_type': error_type, 'asked': ['GET']}


def test_hook_keeps_file_during_migration(installed, tmp_path):
    found = run(USE, 'call_hook', first=installed, cwd=tmp_path)
    assert found['during'] == [found['instance']]
    assert (found['after'], found['state']) == ([], 'failed')


def test_command_counts_tasks_of_database(installed, tmp_path):
    conf = run(USE, 'fill_database', first=installed, cwd=tmp_path)
    rows = run(PLUGINS, 'task', 'count', '--config-file', conf, '-f', 'json', first=installed)
    assert rows == [{'Scope': 'blue', 'State': 'queued', 'Tasks': 2}]


@pytest.fixture(scope='module', params=['option', 'metric', 'notification_field'])
def patched(request, tmp_path_factory):
    """The name of a diff, and a copy of our package to which git has applied it."""
    path = tmp_path_factory.mktemp(request.param)
    shutil.copytree(TOP / 'kronos_nova', path / 'kronos_nova',
                    ignore=shutil.ignore_patterns('__pycache__'))
    done = subprocess.run(['git', 'apply', EXAMPLE / f'{request.param}.diff'], cwd=path,
                          capture_output=True, text=True, check=False,
                          env={**os.environ, 'GIT_CEILING_DIRECTORIES': str(path.parent)})
    assert done.returncode == 0, f'{request.param}.diff does not fit the code: {done.stderr}'
    return request.param, path


@pytest.mark.turns(3)
def test_each_diff_works_as_documented(patched, tmp_path):
    name, path = patched
    if name == 'option':
        balanced = TOP / 'tests/scenarios/defect_02_tied_extremes_still_move.yaml'
        with_it, without = (run(USE, 'plan', balanced, '[engine]', f'spread = {value}',
                                first=path, cwd=tmp_path)['moves'] for value in ('true', 'false'))
        assert with_it and not without
    elif name == 'metric':
        assert 'kronos_executors 1.0' in run(USE, 'read_metrics', first=path, cwd=tmp_path)
    else:
        assert run(USE, 'hear_of_plan', first=path, cwd=tmp_path)['truncated'] is True


ROWS = re.findall(r'^   \* - ([a-z ]+)\n((?:     .*\n)+)',
                  (TOP / 'CONTRIBUTING.rst').read_text(), re.MULTILINE)
EXAMPLES = {kind: re.findall('``(.*?)``', text.rpartition('     - ')[2]) for kind, text in ROWS}


def files_of(text):
    """The files of a row of CONTRIBUTING.rst, without those that the example does not need."""
    return re.findall(r'``(kronos_nova/[\w/]+\.py)``', text)


def test_contributing_names_example_of_every_kind():
    assert list(EXAMPLES) == [
        'filter', 'weigher', 'score source', 'rule', 'strategy', 'executor', 'hook', 'command',
        'option', 'metric', 'notification field']
    assert all(EXAMPLES.values())
    assert [name for names in EXAMPLES.values() for name in names
            if not (EXAMPLE / name).is_file()] == []


def test_contributing_names_existing_files():
    named = {name for _, text in ROWS for name in files_of(text)
             if not name.endswith(('/NAME.py', '/GROUP.py'))}
    assert len(named) >= 8
    assert [name for name in named if not (TOP / name).is_file()] == []


@pytest.mark.parametrize('kind', ['option', 'metric', 'notification field'])
def test_diff_touches_three_files_at_most(kind):
    text = (EXAMPLE / EXAMPLES[kind][0]).read_text()
    touched = re.findall(r'^\+\+\+ b/(.*)$', text, re.MULTILINE)
    assert 1 <= len(touched) <= 3
    named = [re.sub('(NAME|GROUP)', r'\\w+', name) for name in files_of(dict(ROWS)[kind])]
    if kind != 'option':  # the file that reads it is any
        assert all(any(re.fullmatch(name, one) for name in named) for one in touched)


def test_client_command_lists_what_the_api_has(installed):
    answer = run(USE, 'run_client', 'failure', 'list', '-f', 'json', first=installed)
    (row,) = json.loads(answer['output'])
    assert answer['status'] == 0
    assert (row['Instance'], row['To'], row['Error']) == ('web-1', 'h2', 'because')


def test_endpoint_answers_and_is_in_the_document(tmp_path):
    shutil.copy(EXAMPLE / 'instance_tasks.py', tmp_path)
    answers = run("""
import json
import instance_tasks
from tests.docs import extensions
print(json.dumps(extensions.ask_api('/v1/instances/%s/tasks?limit=5' % extensions.INSTANCE)))
""", first=tmp_path)
    assert answers['status'] == 200 and len(answers['document']['tasks']) == 1
    assert '/v1/instances/{instance_id}/tasks' in answers['paths']
    assert 'kronos:instance:list_tasks' in answers['rules']
