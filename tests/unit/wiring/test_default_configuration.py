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

"""Without ``--config-file`` every command reads ``kronos.conf`` where oslo.config looks for it:
``/etc/kronos``, behind the home directory of the user."""

import configparser
import os
from pathlib import Path
import shlex
import shutil
import subprocess
import sys

from cliff import commandmanager
import pytest

from tests import commands

TOP = Path(__file__).resolve().parents[3]
#: Programs, each with an action that needs no service.
PROGRAMS = {
    'kronos-engine': '--once', 'kronos-executor': '', 'kronos-migfra': '',
    'kronos-manage': 'db version', 'kronos-record': '/nowhere', 'kronos-replay': '/nowhere',
    'kronos-status': 'upgrade check', 'kronos-test-config': ''}
#: Commands that read nova.conf, a file only for queries that no parser here can read, or none.
OTHERS = {'complete', 'help', 'plugin list', 'policy lint', 'policy preset list',
          'policy preset show', 'snapshot anonymise', 'weigh explain'}
BROKEN = 'this is no option\n'


def list_scripts():
    found = configparser.ConfigParser(interpolation=None)
    found.read(TOP / 'setup.cfg')
    return dict(line.split(' = ') for line in
                found['entry_points']['console_scripts'].strip().splitlines())


def list_commands():
    """Return ``kronos NAME EXAMPLE`` of each command, with the first example of its help."""
    manager = commandmanager.CommandManager('kronos_nova.cli')
    for name in sorted({*manager.commands} - OTHERS):
        factory, _, _ = manager.find_command(name.split())
        yield f'{name} {factory.examples[0]}'.strip().replace('UUID UUID', 'UUID1 UUID2')


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / '.kronos'
    folder.mkdir()
    (folder / 'kronos.conf').write_text(BROKEN)
    return tmp_path


def assert_file_was_read(done, path):
    assert done.returncode == 1, done.stdout + done.stderr
    assert str(path) in done.stderr and 'Traceback' not in done.stderr


def test_each_program_of_the_package_is_looked_at():
    assert {*PROGRAMS, 'kronos'} == {*list_scripts()}


@pytest.mark.parametrize('prog', PROGRAMS)
def test_program_reads_the_file_that_is_there(home, prog):
    module = list_scripts()[prog].partition(':')[0]
    done = commands.main(module, *PROGRAMS[prog].split(), cwd=home,
                         env={**os.environ, 'HOME': str(home)})
    assert_file_was_read(done, home / '.kronos/kronos.conf')


@pytest.mark.parametrize('command', [*list_commands()])
@pytest.mark.turns(4)
def test_command_reads_the_file_that_is_there(home, command):
    done = commands.main('kronos_nova.cli.app', *shlex.split(command), cwd=home,
                         env={**os.environ, 'HOME': str(home)})
    assert_file_was_read(done, home / '.kronos/kronos.conf')


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can lay a directory over /etc')
@pytest.mark.parametrize('arguments', [
    ('kronos_nova.cli.app', 'status'), ('kronos_nova.cmd.manage', 'db', 'version')])
def test_etc_kronos_is_read_without_an_argument(tmp_path, arguments):
    """Below a mount that this process alone sees."""
    (tmp_path / 'etc/kronos').mkdir(parents=True)
    (tmp_path / 'home').mkdir()
    (tmp_path / 'etc/kronos/kronos.conf').write_text(BROKEN)
    if shutil.which('unshare') is None or subprocess.run(
            ['unshare', '--mount', 'true'], capture_output=True, check=False).returncode:
        pytest.skip('this machine gives no process mounts of its own')
    module, *rest = arguments
    done = subprocess.run(
        ['unshare', '--mount', 'sh', '-c',
         f'mount -t overlay overlay -o lowerdir={tmp_path}/etc:/etc /etc && exec "$@"', 'sh',
         sys.executable, '-W', 'ignore', '-c',
         f'import sys; from {module} import main; sys.exit(main())', *rest],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, 'HOME': str(tmp_path / 'home'), 'PYTHONPATH': str(TOP)})
    if 'mount:' in done.stderr:
        pytest.skip(done.stderr)
    assert_file_was_read(done, '/etc/kronos/kronos.conf')
