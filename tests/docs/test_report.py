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

"""The page about kronos report: its command works, and its parts are the file's."""

from pathlib import Path
import re

from kronos_nova.cli import report
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import meanings
from kronos_nova.rebalancer.report import rendering
from tests import commands
from tests.docs import test_rules
from tests.unit.rebalancer.report import parsed

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/admin/report.rst').read_text()
COMMAND = re.compile(r'^   \$ cd (?P<cwd>\S+)\n   \$ kronos (?P<arguments>report .*)$',
                     re.MULTILINE)


def test_command_writes_every_documented_part(tmp_path):
    found = COMMAND.search(PAGE)
    assert found is not None
    path = tmp_path / 'report.html'
    done = commands.main('kronos_nova.cli.app', *found['arguments'].replace(
        'report.html', str(path)).split(), cwd=TOP / found['cwd'])
    assert done.returncode == 0, done.stderr
    text = parsed.parse(path.read_text()).text.lower()
    reading = PAGE.split('Reading it\n')[1].split('\nThe file\n')[0]
    titles = re.findall(r'^(\w.*)\n    ', reading, re.MULTILINE)
    assert len(titles) == 6
    for title in titles:
        assert title.lower() in text


def test_numbers_on_page_match_code():
    assert f'more than {heat.FEW} hosts' in PAGE and f'the {heat.FIRST} hottest' in PAGE
    assert f'folded away by {heat.PART}' in PAGE
    assert f'the first {rendering.NAMED} instances' in PAGE
    from kronos_nova.rebalancer.operations import report_pages

    assert PAGE.count(f'up to {report_pages.PLANS} stored plans') == 2


def test_every_named_option_exists():
    parser = report.WriteReport(None, None).get_parser('kronos report')
    known = set(parser._option_string_actions)
    named = set(re.findall(r'(?<![\w-])--?[a-z][a-z-]*', PAGE))
    assert {'--snapshot', '--plan', '--scope', '--force', '-o'} <= named
    assert named - {'-m', '--hosts', '--instances'} <= known


def test_rule_meaning_in_report_matches_reference():
    """Less the marks, and what leads elsewhere."""
    def plain(text):
        text = re.sub(r'\s+', ' ', text).replace('``', '')
        text = re.sub(r'\s*\((?:see )?:(?:ref|doc):`[^`]*`\)', '', text)
        return re.sub(r': :(?:ref|doc):`[^`]*`', '', text)

    rows = re.findall(r'^   \* - ``([a-z-]+)``\n     - (\S.*(?:\n       \S.*)*)',
                      test_rules.PAGE.read_text(), re.MULTILINE)
    assert {name: plain(text) for name, text in rows} == meanings.MEANINGS
