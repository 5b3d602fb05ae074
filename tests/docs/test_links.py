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

"""Every link leads somewhere, as far as can be told without a network.

Sphinx refuses what does not resolve inside the documentation, when it is built; here that
is looked at without a build, and what Sphinx does not look at.
"""

from pathlib import Path
import re
from urllib import parse

import pytest

TOP = Path(__file__).resolve().parents[2]
SOURCE = TOP / 'doc/source'
PAGES = sorted(SOURCE.rglob('*.rst'))
FILES = [*PAGES, *(TOP / name for name in ('README.rst', 'CONTRIBUTING.rst', 'HACKING.rst'))]
#: Whom we send a reader to.
KNOWN = {'docs.openstack.org', 'opendev.org'}
ROLE = re.compile(r':(doc|ref|term):`(?:[^`<]*<)?([^`<>]+)>?`')
LINK = re.compile(r'`[^`<]*<((?:https?|ftp|mailto):[^>]*)>`_|^\.\. _[^:]+: +(\w+:\S+)$',
                  re.MULTILINE)
DIRECTIVE = re.compile(r'^ *\.\. (?:literalinclude|include|image|figure):: (\S+)$', re.MULTILINE)
#: A path of the tree in the text.
PATH = re.compile(r'``((?:\.ci|benchmarks|deploy|devstack|doc|etc|kronos_nova|tools|tests)'
                  r'/[\w./-]*[\w])(?:/)?``')
#: Named as what there might be.
NOT_THERE = {'kronos_nova/api/handlers/instance_tasks.py',
             *(f'kronos_nova/constraints/{name}.py' for name in ('same_rack', 'huge_memory'))}
EXAMPLE = re.compile(r'(?:NAME|GROUP|SERIES)')


def ids(files):
    return [str(path.relative_to(TOP)) for path in files]


def labels():
    """Every label and every term."""
    text = '\n'.join(page.read_text() for page in PAGES)
    terms = re.findall(r'^   (\S.*)\n      \S', (SOURCE / 'user/concepts.rst').read_text(),
                       re.MULTILINE)
    return set(re.findall(r'^ *\.\. _([^:]+):$', text, re.MULTILINE)), set(terms)


def test_pages_have_links_to_check():
    texts = [path.read_text() for path in FILES]
    assert sum(len(ROLE.findall(text)) for text in texts) > 120
    assert sum(len(LINK.findall(text)) for text in texts) >= 4
    assert sum(len(PATH.findall(text)) for text in texts) > 60


@pytest.mark.parametrize('path', PAGES, ids=ids(PAGES))
def test_targets_of_page_exist(path):
    known, terms = labels()
    for role, target in ROLE.findall(path.read_text()):
        if role == 'doc':
            base = SOURCE if target.startswith('/') else path.parent
            assert (base / f'{target.lstrip("/")}.rst').is_file(), target
        else:
            assert ' '.join(target.split()) in (known if role == 'ref' else terms), target
    for target in DIRECTIVE.findall(path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize('path', FILES, ids=ids(FILES))
def test_external_link_is_valid(path):
    """Links use TLS and a known host, without a login, a port or a space."""
    for found in LINK.findall(path.read_text()):
        url = parse.urlsplit(found[0] or found[1])
        assert url.scheme == 'https', found
        assert url.netloc in KNOWN, found
        assert re.fullmatch(r'/[\w./~%+-]*', url.path) and '//' not in url.path, found
        assert not url.query, found


@pytest.mark.parametrize('path', FILES, ids=ids(FILES))
def test_named_path_exists(path):
    for name in PATH.findall(path.read_text()):
        if EXAMPLE.search(name) or name in NOT_THERE or name.startswith('doc/build'):
            continue
        assert (TOP / name).exists() or (SOURCE / name).exists(), name


def test_contents_list_every_page():
    listed = set()
    for page in PAGES:
        for block in re.findall(r'^\.\. toctree::\n((?:   .*\n|\n)+)', page.read_text(),
                                re.MULTILINE):
            listed |= {(page.parent / name).resolve().with_suffix('.rst')
                       for name in re.findall(r'^   ([\w./-]+)$', block, re.MULTILINE)}
    assert set(PAGES) - listed == {SOURCE / 'index.rst'}


@pytest.mark.parametrize('path', FILES[:-1], ids=ids(FILES[:-1]))
def test_programs_of_tools_are_called_with_python(path):
    """They are not executable."""
    assert re.findall(r'(?:^ *\$? *|``)tools/\w+\.py', path.read_text(), re.MULTILINE) == []


def test_checklist_of_a_filter_names_each_list_of_enabled_filters():
    checklist = (TOP / 'CONTRIBUTING.rst').read_text()
    named = set(PATH.findall(checklist.partition('* - filter\n')[2].partition('* - weigher\n')[0]))
    lists = {str(path.relative_to(TOP)) for place in (
        'devstack', 'deploy', 'tools', 'tests/functional', 'doc/source/install')
        for path in (TOP / place).rglob('*.*') if path.suffix in {'.sh', '.conf', '.py', '.rst'}
        and re.search(r"KronosPlacementFilter'?,\s*'?KronosCapacityFilter'?[\])\s\"]",
                      path.read_text()) and not path.name.startswith('test_')}
    assert len(lists) == 5 and lists <= named
