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

"""Run the commands of ``kronos`` that blocks of the documentation show.

Commands that read a cloud run on the recorded cloud of the example, others on an unused database.
Commands that need more run in other tests; ``ELSEWHERE`` names these tests.
"""

import ast
import os
import re
import shlex

import pytest

from kronos_nova.cli import database_command
from tests import commands
from tests.docs import shown
from tests.fixtures import stores

EXAMPLE = shown.TOP / 'doc/examples/replay'
CLOUD = {
    'UUID': 'a2710295-df07-5b63-b4cb-6f9ff2de5c55', 'DIR': 'snapshot', 'ssd': 'fast-storage',
    'lazy.yaml': 'policies.yaml', 'rack-12': 'fast-storage'}
#: Commands that exit with 1 for a verdict, and the verdict on standard output.
VERDICTS = {'drain check': 'stays', 'campaign plan': 'blocked', 'failover check': 'unsafe'}
_TOOLS = 'tests/functional/test_tools.py'
#: By which test they are run as the documentation shows them.
ELSEWHERE = {
    'simulate': _TOOLS, 'weigh tune': _TOOLS, 'drain start': _TOOLS, 'drain watch': _TOOLS,
    'drain stop': _TOOLS, 'campaign start': 'tests/functional/test_campaigns.py',
    'plan revert': _TOOLS, 'plan retry': _TOOLS, 'explain move': _TOOLS,
    'swap': 'tests/functional/test_swaps.py',
    'weigh explain': 'tests/functional/test_weigh_explain.py',
    'policy test': 'tests/docs/test_policies.py', 'policy lint': 'tests/docs/test_policies.py',
    'policy preset list': 'tests/docs/test_policies.py',
    'policy preset show': 'tests/docs/test_policies.py',
    'snapshot anonymise': 'tests/docs/test_replay.py'}


def uses(name):
    """``database`` or ``cloud``: what the subcommand reads; None for neither."""
    factory, _, _ = shown.manager().find_command(name.split())
    if '--snapshot' in shown.parser(name)._option_string_actions:
        return 'cloud'
    return 'database' if issubclass(factory, database_command.DatabaseCommand) else None


def shown_commands():
    found = set()
    for _page, command in shown.blocks():
        name, _ = shown.split(command) if command.startswith('kronos ') else ('', [])
        if name and name not in ELSEWHERE and uses(name):
            found.add((name, command))
    return sorted(found)


COMMANDS = shown_commands()
OF_CLOUD = [command for name, command in COMMANDS if uses(name) == 'cloud']
OF_DATABASE = [command for name, command in COMMANDS if uses(name) == 'database']


def run(command, words, cwd, report):
    """Run the command of a user whose home is the parent directory of the report."""
    words = [report if word.endswith('.html') else word for word in words]
    done = commands.main('kronos_nova.cli.app', *words, cwd=cwd,
                         env={**os.environ, 'HOME': str(report.parent)})
    assert 'defect of ours' not in done.stderr and 'Traceback' not in done.stderr, done.stderr
    return done


@pytest.mark.turns(3)
@pytest.mark.parametrize('command', OF_CLOUD)
def test_command_that_reads_cloud_runs_on_example(command, tmp_path):
    words = [CLOUD.get(word, word) for word in shlex.split(command)[1:]]
    if 'snapshot' not in words:
        words += ['--snapshot', 'snapshot']
    if '--config-file' not in words:
        words += ['--config-file', 'kronos.conf']
    done = run(command, words, EXAMPLE, tmp_path / 'page.html')
    if '--domain' in words:
        assert 'no aggregate names a failure domain' in done.stderr, 'the example has none'
        return
    verdict = VERDICTS.get(' '.join(words[:2]))
    assert done.returncode == 0 or (verdict is not None and verdict in done.stdout), done.stderr


@pytest.fixture
def installation(tmp_path):
    """Create the configuration that commands read by default, and the database."""
    path = tmp_path / '.kronos/kronos.conf'
    path.parent.mkdir()
    path.write_text(
        f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n'
        f'[engine]\naggregates = ssd, compute\npolicies_file = {EXAMPLE}/policies.yaml\n')
    stores.in_file(tmp_path / 'kronos.sqlite').close()


@pytest.mark.turns(3)
@pytest.mark.parametrize('command', OF_DATABASE)
def test_command_that_reads_database_runs_or_reports_missing_object(
        command, installation, tmp_path):
    words = ['00000000-0000-4000-8000-000000000000' if word == 'UUID' else word
             for word in shlex.split(command)[1:]]
    done = run(command, words, tmp_path, tmp_path / 'page.html')
    is_order = words[0] == 'campaign' and words[1] != 'status'
    about_something = 'UUID' in command.split() or words[0] == 'resume' or is_order
    assert done.returncode == int(about_something), done.stderr
    if about_something:
        assert done.stderr.startswith('kronos ') and done.stderr.count('\n') == 1


def test_every_omitted_command_names_its_test():
    named = {name for _page, command in shown.blocks() if command.startswith('kronos ')
             for name, _ in [shown.split(command)] if name}
    run_here = {name for name, _ in COMMANDS}
    assert named - run_here == set(ELSEWHERE)
    for name, path in ELSEWHERE.items():
        assert runs((shown.TOP / path).read_text(), name), (name, path)


#: What a test takes the commands of a page from.
SHOWN = re.compile(r'\.blocks\(\)|\.documented\(|\bPAGE\b')


def runs(text, name):
    """Whether a test function of a file has the whole name, and takes commands as they are
    shown."""
    tests = (ast.get_source_segment(text, node) for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.FunctionDef) and node.name.startswith('test_'))
    named = re.compile(rf"(?:['\"]|kronos \(?){re.escape(name)}(?=['\" ])")
    return any(named.search(test) and SHOWN.search(test) for test in tests)


@pytest.mark.parametrize(('text', 'run'), [
    ("def test_it():\n    documented(['revert'])\n    docs.blocks()", False),
    ("def test_it():\n    ask('plan revert')", False),
    ("# 'plan revert' of docs.blocks()\ndef test_it():\n    pass", False),
    ("def test_it():\n    ask('plan revert')\n\ndef test_more():\n    docs.blocks()", False),
    ("def blocks():\n    'plan revert' in docs.blocks()", False),
    ("def test_it():\n    'plan reverts' in docs.blocks()", False),
    ("def test_it():\n    'kronos plan revert ' in docs.blocks()", True),
    ("def test_it():\n    self.documented(['plan revert'])", True),
    ("def test_it():\n    re.search('kronos (plan revert .*)', PAGE)", True)])
def test_runs_requires_whole_name_taken_from_page(text, run):
    assert runs(text, 'plan revert') is run


def test_blocks_have_commands_to_run():
    assert len(OF_CLOUD) > 12 and len(OF_DATABASE) > 15
