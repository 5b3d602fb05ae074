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

"""The page on policies: its commands print the shown output, and it has every name."""

import os
import re
import shutil

import pytest

from kronos_nova import presets
from kronos_nova.checks import promql
from kronos_nova.checks import units
from tests import commands
from tests.docs import shown
from tests.fixtures import watched_cloud

TOP = shown.TOP
PAGE = (TOP / 'doc/source/admin/policies.rst').read_text()
EXAMPLES = TOP / 'doc/examples/policies'
#: Of the commands that find something wrong.
STATUS = {'policy lint broken.yaml': 1}


def _commands():
    """Return (command, shown output) of each command of ``kronos policy`` on the page."""
    for _, block in shown.BLOCK.findall(PAGE):
        for part in re.split(r'^ *\$ kronos ', block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition('\n')
            yield command, _normalised(printed)


def _normalised(text):
    """Return lines without surrounding space and without the age of a sample."""
    lines = [line.strip() for line in text.splitlines()]
    return re.sub(r'\d+ s old', 'N s old', '\n'.join(line for line in lines if line))


COMMANDS = list(_commands())


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
    """Where the page's commands are typed: broken.yaml, and kronos.conf of a small cloud."""
    path = tmp_path_factory.mktemp('policies')
    shutil.copy(EXAMPLES / 'broken.yaml', path)
    told = watched_cloud.cloud()
    with watched_cloud.apis(told) as (nova, placement), \
            watched_cloud.prometheus(path, told) as prometheus:
        (path / 'kronos.conf').write_text(f'''
[prometheus]
url = {prometheus}
[nova]
auth_type = admin_token
endpoint = {nova}
token = any
endpoint_override = {nova}
placement_endpoint_override = {placement}
''')
        yield path


@pytest.fixture(scope='module')
def printed(directory):
    """What each command prints; one after the other, as the next may read what one writes."""
    found = {}
    for command, _ in COMMANDS:
        words, _, file = command.partition(' > ')
        # The page checks files where no Prometheus is known, and asks one afterwards.
        home = directory if command.startswith('policy test') else directory / 'none'
        done = commands.main('kronos_nova.cli.app', *words.split(), cwd=directory,
                             env={**os.environ, 'HOME': str(home)})
        expected = next((s for begin, s in STATUS.items() if command.startswith(begin)), 0)
        assert (done.returncode, done.stderr) == (expected, ''), (command, done.stdout)
        if file:
            (directory / file).write_text(done.stdout)
        found[command] = '' if file else _normalised(done.stdout)
    return found


def test_each_command_prints_documented_output(printed):
    assert [command for command, text in COMMANDS if text] == [
        command for command, text in printed.items() if text]
    for command, text in COMMANDS:
        assert printed[command] == text, command


def test_every_shown_policy_command_is_run():
    assert [c.split(' -')[0] for c, _ in COMMANDS] == [
        'policy preset list', 'policy preset show spread-inovex > policies.yaml',
        'policy lint broken.yaml', 'policy test policies.yaml']
    assert {command.removeprefix('kronos ') for _page, command in shown.blocks()
            if command.startswith('kronos policy ')} == {command for command, _ in COMMANDS}


def test_text_matches_output_of_policy_test(printed):
    text = next(out for command, out in printed.items() if command.startswith('policy test'))
    assert '2 of 6 instances have no value' in text and 'of 3 of 4 hosts' in text


def test_every_preset_is_explained():
    text = PAGE.split('\nPresets\n')[1].split('\nCookbook\n')[0]
    assert all(f'``{name}``' in text for name in presets.list_presets())


def test_every_check_of_policy_test_is_explained():
    text = PAGE.split('What test looks at')[1].split('Ceilometer, sg-core')[0]
    for name in ('series', 'labels', 'missing', 'duplicates', 'range', 'sample age', 'coverage'):
        assert f'\n``{name}``\n' in text
    assert (units.LEAST, units.scoring.HIGH_COVERAGE, units.scoring.MAX_COVERAGE) == (0.1, 1.5, 3)
    assert all(f'{share} %' in text for share in (10, 150, 300))
    assert (units.OFTEN, units.ONCE) == (2, 16)
    assert 'no score is above 16 and half are not above 2' in text
    lint = PAGE.split('What lint looks at')[1].split('What test looks at')[0]
    assert f'more than {promql.MOST_OPERATORS} operators' in lint
