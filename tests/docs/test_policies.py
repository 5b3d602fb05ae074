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

"""The page on policies: its commands print what it shows, its names are all there are."""

from pathlib import Path
import re

import pytest

from kronos_nova import presets
from kronos_nova.cmd.checks import units
from tests import commands

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/admin/policies.rst').read_text()
EXAMPLES = TOP / 'doc/examples/policies'
BLOCK = re.compile(r'^( *)\.\. code-block:: console\n\n((?:\1   .*\n|\n)+)', re.MULTILINE)


def _commands():
    """(arguments, what is printed) of each command on the page."""
    for indent, block in BLOCK.findall(PAGE):
        lines = [line.removeprefix(indent + '   ') for line in block.rstrip().split('\n')]
        for part in '\n'.join(lines).split('$ kronos ')[1:]:
            command, _, printed = part.partition('\n')
            yield command, printed.strip()


@pytest.mark.parametrize(('command', 'printed'), [
    (c, p) for c, p in _commands() if p])
def test_commands_print_what_the_page_shows(command, printed):
    done = commands.main('kronos_nova.cli.app', *command.split(), cwd=EXAMPLES)
    assert done.stdout.strip() == printed and not done.stderr


def test_the_pages_commands_are_ones():
    found = [command for command, _ in _commands()]
    assert [c.split(' -')[0] for c in found] == [
        'policy preset list', 'policy preset show spread-inovex > policies.yaml',
        'policy lint broken.yaml', 'policy test']
    for command in found:
        done = commands.main('kronos_nova.cli.app', *command.split()[:2], '--help') \
            if 'preset' not in command else commands.main(
                'kronos_nova.cli.app', *command.split()[:3], '--help')
        assert done.returncode == 0
        for option in re.findall(r' (--[\w-]+)', command):
            assert option in done.stdout


def test_every_preset_is_explained():
    text = PAGE.split('\nPresets\n')[1].split('\nCookbook\n')[0]
    assert all(f'``{name}``' in text for name in presets.names())


def test_every_check_of_policy_test_is_explained():
    text = PAGE.split('What test looks at')[1].split('Ceilometer, sg-core')[0]
    for name in ('series', 'labels', 'missing', 'duplicates', 'range', 'sample age', 'coverage'):
        assert f'\n``{name}``\n' in text
    assert (units.LEAST, units.scoring.HIGH_COVERAGE, units.scoring.MAX_COVERAGE) == (0.1, 1.5, 3)
    assert all(f'{share} %' in text for share in (10, 150, 300))
