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

"""tools/check_words.py finds each phrase with its line, and allows only the listed ones."""

import pytest

from tools import check_words

SOURCE = '''"""Return the hosts.

Nobody calls it.
"""

# The first line, and what
# has another one.
LEVEL = f'{1}: whoever ' 'reads'


def test_a_move_is_told(self):
    """Reads the task; whatever
    it says."""
    return 'of it'  # this is None
'''
PAGE = 'A title\n=======\n\nThere is\nno plan.\n\nThe end, by itself.\n'


@pytest.mark.parametrize(('path', 'expected'), [
    ('kronos_nova/one.py', [(3, 'nobody'), (6, 'what has'), (8, 'whoever'), (12, 'whatever'),
                            (14, 'of it')]),
    ('tools/one.py', [(3, 'nobody'), (6, 'what has'), (12, 'whatever')]),
    ('tests/unit/test_one.py', [(3, 'nobody'), (11, 'is told'), (12, 'whatever')])])
def test_texts_of_python_files_by_directory(path, expected):
    assert sorted(check_words.find_phrases(path, SOURCE)) == expected


@pytest.mark.parametrize('path', ['doc/source/page.rst', 'releasenotes/notes/note-1.yaml'])
def test_pages_and_notes_are_read_across_lines(path):
    assert list(check_words.find_phrases(path, PAGE)) == [(4, 'there is no'), (7, 'by itself')]


def test_python_none_is_no_finding():
    assert not list(check_words.find_phrases('doc/page.rst', 'It is None, and None stays.'))
    assert [p for _, p in check_words.find_phrases('doc/page.rst', 'Here is none.')] == ['is none']


def test_statements_of_a_template_are_code():
    text = '{% if whoever is none %}\n\n<p>There is none.</p>{% endif %}'
    assert list(check_words.find_phrases('one.html', text)) == [(3, 'is none')]


@pytest.fixture
def top(tmp_path, monkeypatch):
    """Directory of a page with two findings."""
    (tmp_path / 'doc').mkdir()
    (tmp_path / 'doc/page.rst').write_text('Whoever reads it anew.\n')
    monkeypatch.setattr(check_words, 'TOP', tmp_path)
    return tmp_path


FIRST = 'doc/page.rst:1: "whoever": name the actor'
SECOND = 'doc/page.rst:1: "anew": use the usual word'


@pytest.mark.parametrize(('allowances', 'expected'), [
    ({}, [FIRST, SECOND]),
    ({'doc/*': {'reason': 'old', 'phrases': ['anew']}}, [FIRST]),
    ({'doc/*': {'reason': 'old', 'most': 2}}, []),
    ({'doc/*': {'reason': 'old', 'most': 1}},
     ['doc/*: 2 findings, and words-allowed.yaml allows 1; show them with check_words.py FILE and '
      'rewrite the new ones']),
    ({'doc/*': {'most': 2}}, ['words-allowed.yaml: doc/* has no reason']),
    ({'doc/*': {'reason': 'old', 'most': 2}, 'tests/*': {'reason': 'old', 'most': 2}},
     ['words-allowed.yaml: tests/* finds nothing; remove it'])])
def test_allowances_excuse_their_own_findings_alone(top, allowances, expected):
    assert check_words.check_files(['doc/page.rst'], allowances) == expected
