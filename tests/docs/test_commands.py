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

"""Every command in the documentation exists and accepts the shown arguments; the reference has each
option, and the table each command."""

import configparser
import re
import shlex
import subprocess
import sys

import pytest

from kronos_nova.conf import opts
from kronos_nova.conf import scheduler
from tests.docs import shown

TOP = shown.TOP
TABLE = TOP / 'doc/source/admin/commands.rst'
REFERENCE = TOP / 'doc/source/reference/commands.rst'
CLIENT = TOP / 'doc/source/reference/osc.rst'
#: Of other projects and of the system.
FOREIGN = {
    'ansible-playbook', 'cat', 'cd', 'cp', 'curl', 'docker', 'git', 'kolla-ansible',
    'install', 'kolla-build', 'kolla-genpwd', 'less', 'ln', 'ls', 'mkdir', 'mv', 'nova-manage',
    'openssl', 'openstack', 'pip', 'podman', 'systemctl', 'systemd-sysusers',
    'systemd-tmpfiles', 'tail'}

sys.path.insert(0, str(TOP / 'doc/ext'))
import program_help  # noqa: E402 (it is an extension of Sphinx, in no package)


def scripts():
    found = configparser.ConfigParser(interpolation=None)
    found.read(TOP / 'setup.cfg')
    return found['entry_points']


def named(section):
    return [line.partition('=')[0].strip() for line in scripts()[section].strip().splitlines()]


#: Programs with actions, whose options stand behind or before these.
ACTIONS = {'kronos-manage': 'db', 'kronos-status': 'upgrade'}


def program_takes(words):
    """Whether a daemon or tool has these actions, and these options where they stand."""
    prog, *arguments = words
    before, action = arguments, []
    if (first := ACTIONS.get(prog)) in arguments:
        at = arguments.index(first)
        before, action = arguments[:at], arguments[at:]
    named = [word for word in action if not word.startswith('-')][:2]
    known = [program_help.help_of(prog), program_help.help_of(prog, *named) if named else '']
    return all(re.search(rf'(?<![\w-]){re.escape(word.partition("=")[0])}(?![\w-])', text)
               for part, text in zip((before, action), known, strict=True)
               for word in part if word.startswith('-'))


def script_takes(words):
    """Whether one of our Python programs has these options, as far as its text tells."""
    path = words[1].replace('.', '/') + '.py' if words[0] == '-m' else words[0]
    files = [TOP / path, *(TOP / path).parent.glob('*.py')]
    assert files[0].is_file(), path
    texts = [file.read_text() for file in files]
    return all(any(f"'{word}'" in text for text in texts)
               for word in words if word.startswith('--'))


BLOCKS = sorted({command for _page, command in shown.blocks()})


@pytest.mark.parametrize('command', BLOCKS)
def test_command_in_block_exists_and_accepts_its_arguments(command):
    if re.match(r'\w+=["$]', command):
        return  # a variable of the shell
    script = 'deploy/containers/run.sh'
    if command == f'{script} kronos-api':
        # No command, but a word that this script replaces by uWSGI's.
        assert re.search(r'^ +kronos-api\)$', (TOP / script).read_text(), re.MULTILINE)
        return
    # As another user, or in a container, a command is the same command.
    command = command.removeprefix('sudo -u kronos ').removeprefix(f'{script} ')
    words = shlex.split(command)
    if words[0] == 'kronos':
        name, arguments = shown.split(command)
        assert name, 'no such subcommand'
        shown.parser(name).parse_args(arguments)
    elif words[0] == 'openstack' and 'rebalance' in words and words[1] not in (
            'service', 'endpoint'):
        name, arguments = shown.split_client(command)
        assert name, 'no such command'
        shown.client_parser(name).parse_args(arguments)
    elif words[0] in program_help.programs():
        assert program_takes(words)
    elif words[0].startswith('tools/'):
        assert (TOP / words[0]).is_file()
    elif words[0].endswith('python'):
        assert script_takes(words[2:] if words[1] == '-W' else words[1:])
    else:
        assert words[0] in FOREIGN


def test_command_in_text_exists():
    wrong = []
    for page, command in shown.literals():
        words = command.split()
        if words[0] != 'kronos':
            right = words[0] in program_help.programs() and program_takes(words)
        else:
            name, _ = shown.split(command)
            right = len(words) == 1 or words[1] == 'help' or name and all(
                word.partition('=')[0] in shown.parser(name)._option_string_actions
                for word in words if word.startswith('-') and word != '-')
        if not right:
            wrong.append(f'{page.relative_to(TOP)}: {command}')
    assert not wrong


def test_commands_are_found_in_pages():
    """Or a change of how pages are written would leave nothing to look at."""
    assert len(BLOCKS) > 100
    assert len(list(shown.literals())) > 80


def test_first_hour_with_kolla_needs_no_shell_in_a_container():
    words = {tuple(command.split()[:2]) for page, command in shown.blocks()
             if page.name == 'kolla-first-hour.rst'}
    assert words == {
        *(('kolla-ansible', action) for action in (
            'prechecks', 'pull', 'deploy', 'check', 'validate-config', 'reconfigure')),
        ('pip', 'install'), ('openstack', 'project'), ('openstack', 'role'),
        ('openstack', 'endpoint'), ('openstack', '--os-cloud')}


def test_table_has_every_command_once():
    told = [name for cell in re.findall(r'^   \* - (``kronos.*)$', TABLE.read_text(), re.MULTILINE)
            for name in re.findall(r'``([^`]+)``', cell)]
    assert sorted(told) == sorted([*(name for name in named('console_scripts')
                                     if name != 'kronos'),
                                   *(f'kronos {name}' for name in shown.names()
                                     if name not in ('help', 'complete'))])


def built(page, path):
    """Text of a page, built alone, by title of a section."""
    (path / 'source').mkdir()
    (path / 'source/index.rst').write_text(page.read_text())
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-m', 'sphinx', '-Q', '-b', 'text', '-c',
         TOP / 'doc/source', path / 'source', path / 'built'],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = re.split(r'^(\S.*)\n[-=*]{3,}\n', (path / 'built/index.txt').read_text(),
                     flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
    return built(REFERENCE, tmp_path_factory.mktemp('reference'))


def test_reference_has_every_argument_of_every_subcommand(reference):
    common = reference['kronos']
    for line in scripts()['kronos_nova.cli'].strip().splitlines():
        name = line.partition('=')[0].strip().replace('_', ' ')
        for action in shown.parser(name)._actions:
            for option in action.option_strings or [str(action.metavar or action.dest)]:
                if option in ('-h', '--help'):
                    continue
                assert option in reference[name] or option in common, (name, option)
        assert shown.parser(name).description.split('.')[0].split() == (
            reference[name].strip().split('.')[0].split())


def test_reference_has_every_argument_of_openstack_rebalance(tmp_path):
    text = built(CLIENT, tmp_path)
    common = shown.TOP.joinpath('doc/source/reference/commands.rst').read_text()
    for name in shown.client_manager().commands:
        for action in shown.client_parser(name)._actions:
            for option in action.option_strings or [str(action.metavar or action.dest)]:
                if option in ('-h', '--help'):
                    continue
                assert option in text[name] or option in common, (name, option)
        assert shown.client_parser(name).description.split('.')[0].split() == (
            text[name].strip().split('.')[0].split())


def test_reference_has_every_option_of_every_program(reference):
    assert set(program_help.programs()) <= set(reference)
    common = reference['Daemons and tools']
    for prog in program_help.programs():
        assert f'usage: {prog}' in reference[prog]
        for option in re.findall(r'--[a-z][\w-]*', program_help.help_of(prog)):
            assert option in reference[prog] or option in common, (prog, option)
    assert '--older-than' in reference['kronos-manage']
    assert '--json' in reference['kronos-status']
    assert '--config-file' not in reference['kronos-engine']


@pytest.mark.parametrize(('name', 'groups'), [
    ('options', opts.list_opts()), ('options-nova', scheduler.list_opts())])
def test_reference_has_every_configuration_option(name, groups, tmp_path):
    text = built(TOP / f'doc/source/reference/{name}.rst', tmp_path)
    for group, options in groups:
        for option in options:
            assert re.search(rf'^{option.dest}$', text[str(group or 'DEFAULT')], re.MULTILINE), (
                group, option.dest)
