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

import ast
from pathlib import Path
import re

import pytest

import kronos_nova
from kronos_nova import plurals

PACKAGE = Path(kronos_nova.__file__).parent
NOUNS = ('hosts|moves|tasks|instances|migrations|plans|policies|requests|attempts|scopes|cells|'
         'aggregates|orders|projects|days')


@pytest.mark.parametrize(('number', 'expected'), [
    (0, '0 moves'), (1, '1 move'), (2, '2 moves'), (2000, '2,000 moves')])
def test_a_number_has_its_noun(number, expected):
    assert plurals.count_noun(number, 'move') == expected


def test_a_noun_may_have_a_plural_of_its_own():
    assert plurals.count_noun(2, 'entry', 'entries') == '2 entries'


def test_the_verb_agrees_with_the_number():
    assert [plurals.choose_form(n, 'is', 'are') for n in (0, 1, 2)] == ['are', 'is', 'are']


def find_fixed_plurals(source):
    """Yield the texts that write a plural noun directly behind a number, such as ``%d hosts``.

    A number behind *of* or *last* is a total: ``1 of 3 hosts``. Behind *plan* stands an ID.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(rf'(?<!of )%d (?:{NOUNS})\b', node.value)
        elif isinstance(node, ast.JoinedStr):
            before = ''
            for part, after in zip(node.values, [*node.values[1:], ast.Constant('')], strict=True):
                if isinstance(part, ast.Constant):
                    before = part.value
                elif (isinstance(after, ast.Constant)
                      and not before.endswith(('of ', 'last ', 'plan '))
                      and re.match(rf' (?:{NOUNS})\b', after.value)):
                    yield ast.unparse(node)


@pytest.mark.parametrize(('source', 'number'), [
    ("LOG.info('%d hosts are down', n)", 1), ("f'{n} moves'", 1), ("f'a {n} hosts, {m} tasks'", 2),
    ("f'{m} of {n} hosts'", 0), ("f'{count_noun(n, 'host')} down'", 0), ("'%s hosts'", 0)])
def test_a_fixed_plural_behind_a_number_is_found(source, number):
    assert len(list(find_fixed_plurals(source.replace("(n, 'host')", '(n)')))) == number


def test_no_text_of_the_package_has_a_fixed_plural_behind_a_number():
    found = {str(path.relative_to(PACKAGE)): texts for path in sorted(PACKAGE.rglob('*.py'))
             if (texts := list(find_fixed_plurals(path.read_text())))}
    assert not found
