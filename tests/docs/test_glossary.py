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

"""The glossary of contributors is sorted, and each module that it names has the word."""

import ast
from pathlib import Path
import re

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/contributor/glossary.rst').read_text()


def read_rows(title: str) -> dict[str, list[str]]:
    """Return the modules of each word in the table below a title."""
    section = PAGE.partition(f'\n{title}\n=')[2].partition('\n====')[0]
    rows = [[' '.join(cell.split()) for cell in row.split('\n     - ')]
            for row in section.split('\n   * - ')[2:]]
    assert len({word for word, _, _ in rows}) == len(rows) > 40
    return {word.strip('`'): re.findall(r'``([\w.]+)``', modules) for word, _, modules in rows}


def read_module(name: str) -> str:
    """Return the source of a module below kronos_nova; of a package, its __init__.py."""
    path = TOP / 'kronos_nova' / name.replace('.', '/')
    return (path / '__init__.py' if path.is_dir() else path.with_suffix('.py')).read_text()


@pytest.mark.parametrize('title', ['Nouns', 'Verbs'])
def test_words_are_sorted_and_their_modules_exist(title):
    rows = read_rows(title)
    assert list(rows) == sorted(rows)
    for word, modules in rows.items():
        assert modules, word
        for module in modules:
            assert read_module(module)


def test_each_verb_begins_a_function_of_its_module():
    missing = [
        (verb, module) for verb, modules in read_rows('Verbs').items() for module in modules
        if not any(isinstance(node, ast.FunctionDef) and node.name.lstrip('_').startswith(verb)
                   for node in ast.walk(ast.parse(read_module(module))))]
    assert not missing


def test_each_noun_occurs_in_its_module():
    missing = [
        (noun, module) for noun, modules in read_rows('Nouns').items() for module in modules
        if not re.search(re.sub(r'[\W_]+', r'[\\W_]*', noun),
                         f'{module}\n{read_module(module)}', re.IGNORECASE)]
    assert not missing
