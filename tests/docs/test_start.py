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

"""The ten-minute start: its commands run one after the other and print the shown output."""

import re

import pytest

from tests import commands
from tests.docs import shown

PAGE = shown.TOP / 'doc/source/user/start.rst'
MODULES = {'kronos': 'kronos_nova.cli.app', 'kronos-replay': 'kronos_nova.cmd.replay'}
#: Of the commands that the page says exit with another status than 0.
STATUS = {'drain': 1}


def steps():
    """Return (directory, command, shown output) of each step that needs no own cloud."""
    directory = shown.TOP
    text = PAGE.read_text().partition('\nYour own cloud, dry\n')[0]
    for _, block in shown.BLOCK.findall(text):
        for part in re.split(r'^ *\$ ', block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition('\n')
            if command.startswith('cd '):
                directory = shown.TOP / command[3:]
            else:
                yield directory, command, '\n'.join(
                    line.strip() for line in output.splitlines() if line.strip())


STEPS = list(steps())


@pytest.fixture(scope='module')
def printed(tmp_path_factory):
    """What each command prints."""
    report = tmp_path_factory.mktemp('start') / 'report.html'
    found = {}
    for directory, command, _ in STEPS:
        prog, *arguments = command.replace('report.html', str(report)).split()
        done = commands.main(MODULES[prog], *arguments, cwd=directory)
        assert done.returncode == STATUS.get(arguments[0], 0), (command, done.stderr)
        found[command] = done.stdout
    assert '<html' in report.read_text()
    return found


def test_page_shows_all_promised_steps():
    assert [command.split()[1] for _, command, _ in STEPS] == [
        'host', '--config-file', 'why-nothing', 'why-not', 'drain', 'report']


def test_each_command_prints_documented_output(printed):
    told = [(command, output) for _, command, output in STEPS if output]
    assert len(told) == 2
    for command, output in told:
        assert output == printed[command].strip(), command


def test_text_about_plan_matches_output(printed):
    text = re.sub(r'\s+', ' ', PAGE.read_text())
    replayed = next(out for command, out in printed.items() if 'replay' in command.split()[0])
    cpu = re.search(r'^\| cpu +\| (\S+) +\| (\S+) +\| (\S+)', replayed, re.MULTILINE)
    before, after, threshold = cpu.groups()
    assert f'is {before}, of which {float(threshold):g} are allowed' in text
    assert f'Four moves bring it down to {after}' in text
    first = replayed.partition('Scope _unassigned_')[0]
    assert len(re.findall(r'^\| \d', first, re.MULTILINE)) == 4
    assert re.search(r'a2710295-\S+ +\| compute-02 +\| compute-03', first)
    for phase in ('evacuate', 'affinity', 'spread'):
        assert phase in replayed.partition('Scope _unassigned_')[2]


def test_text_about_answers_matches_output(printed):
    why = next(out for command, out in printed.items()
               if command.split()[1] == 'why-not')
    assert 'refused by out-of-scope, service-disabled' in why
    assert 'to allow out-of-scope' in why and 'to allow service-disabled' in why
    drain = next(out for command, out in printed.items() if 'drain' in command)
    assert 'stays' in drain and 'missing' in drain


def test_concepts_explain_words_of_design():
    """A plan cannot be read without them; Sphinx finds a term that is used and not there."""
    text = (shown.TOP / 'doc/source/user/concepts.rst').read_text()
    terms = re.findall(r'^   (\S.*)\n      \S', text, re.MULTILINE)
    assert len(terms) == len(set(terms))
    assert {'scope', 'score', 'usage', 'imbalance', 'plan', 'wave', 'task', 'drain', 'cooldown',
            'settling', 'trust', 'move', 'budget', 'coverage'} <= set(terms)
