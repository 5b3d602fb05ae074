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


"""Every subcommand has help with working examples and refuses arguments that are not Unicode."""

from pathlib import Path
import shlex
import subprocess
import sys

from cliff import commandmanager
import pytest

from kronos_nova.cli import command
from tests import commands

MANAGER = commandmanager.CommandManager('kronos_nova.cli')
OURS = sorted(set(MANAGER.commands) - {'help', 'complete'})


def made(name):
    return MANAGER.find_command(name.split())[0](None, None)


@pytest.mark.parametrize('name', OURS)
def test_a_command_shows_examples_line_by_line_and_takes_them(name):
    shown = made(name)
    assert isinstance(shown, command.BaseCommand)
    parser = shown.get_parser(f'kronos {name}')
    _, _, told = parser.format_help().partition('\nExample')
    lines = [line.strip() for line in told.splitlines()[1:]]
    assert lines == [f'kronos {name} {example}'.strip() for example in shown.examples]
    assert lines
    for line in lines:
        words = shlex.split(line)[1 + len(name.split()):]
        parser.parse_args(words[:words.index('>')] if '>' in words else words)


def test_a_command_does_not_look_through_all_installed_packages():
    """Which takes longer than most commands."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', '''
from importlib import metadata
import sys
metadata.packages_distributions = lambda: sys.exit('looked')
from kronos_nova.cli import app
app.main(['policy', 'preset', 'list'])'''],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'spread' in done.stdout


@pytest.mark.parametrize(('arguments', 'field'), [
    (['plan', 'show', 'a\udcff'], 'UUID'),
    (['plan', 'list', '--scope', 'a\udcff'], 'NAME'),
    (['task', 'cancel', 'a', '--reason', 'a\udcff'], 'TEXT'),
    (['plan', 'approve', 'a', '--move', 'b', '--move', 'a\udcff'], 'INSTANCE'),
    (['why-not', 'a\udcff', 'b'], 'INSTANCE'),
    (['what-if', '--drain', 'a\udcff'], 'HOST'),
    (['what-if', '--add-host', '2=a\udcff'], 'N=HOST'),
    (['what-if', '--add-host', '1=b', '--add-host', '2=a\udcff'], 'N=HOST'),
    (['drain', 'watch', 'a\udcff'], 'HOST'),
    (['explain', 'move', 'a\udcff'], 'TASK'),
    (['report', '-o', 'r.html', '--plan', 'a\udcff'], 'UUID'),
    (['instance', 'show', 'a\udcff'], 'UUID'),
])
def test_a_name_that_is_no_unicode_is_refused_before_anything_is_read(arguments, field):
    done = commands.main('kronos_nova.cli.app', *arguments)
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr.endswith(f': {field}: a? is no UTF-8\n')


def test_the_name_of_a_file_may_be_any_bytes(tmp_path):
    done = commands.main('kronos_nova.cli.app', 'plan', 'list', '--config-file',
                         f'{tmp_path}/a\udcff')
    assert done.returncode == 1 and 'UTF-8' not in done.stderr


def test_no_module_of_the_commands_is_private():
    """Their siblings import them."""
    names = [path.name for path in Path(command.__file__).parent.glob('_*.py')]
    assert names == ['__init__.py']
