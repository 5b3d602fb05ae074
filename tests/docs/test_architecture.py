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


"""The architecture page shows the layers of the contract, the imports, and names that exist."""

import configparser
import importlib
from pathlib import Path
import re

import pytest

from tools import generate_rooms

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/contributor/architecture.rst').read_text()


def lines(text):
    return [' '.join(line.split()) for line in text.strip().splitlines()]


def test_page_shows_layers_of_import_contract():
    contracts = configparser.ConfigParser(interpolation=None)
    contracts.read(TOP / 'setup.cfg')
    blocks = re.findall(r'::\n\n((?:    .+\n)+)', PAGE.partition('Where a new part goes\n')[0])
    assert [lines(block) for block in blocks] == [
        lines(contracts[f'importlinter:contract:{name}']['layers'])
        for name in ('layers', 'rebalancer-layers')]


def test_picture_shows_current_imports():
    assert generate_rooms.PICTURE.read_text() == generate_rooms.draw(), (
        'run python tools/generate_rooms.py')


def test_implied_arrows_are_dropped():
    assert generate_rooms.drop_implied_arrows(
        {'a': {'b', 'c', 'd'}, 'b': {'c'}, 'c': set(), 'd': set()}) == {
        'a': {'b', 'd'}, 'b': {'c'}, 'c': set(), 'd': set()}


WALKS = re.findall(r'^(.+)\n-+\n((?:(?!^-+$).*\n)+?)(?=^.+\n[-=]+\n)',
                   PAGE.partition('Six walks\n')[2], re.MULTILINE)
#: Rooms, in which the names of a walk begin.
ROOMS = sorted(path.stem for path in (TOP / 'kronos_nova').iterdir() if path.name[0] != '_')
NAME = re.compile(rf'``((?:{"|".join(ROOMS)})(?:\.\w+)+)``')


def find(name):
    """The module, class or function with this dotted name below kronos_nova."""
    parts = name.split('.')
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module('.'.join(['kronos_nova', *parts[:n]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n:]:
            found = getattr(found, attribute)
        return found
    raise AttributeError(name)


def test_page_has_ten_walks():
    assert [(title, len(re.findall('^#\\. ', text, re.MULTILINE))) for title, text in WALKS] == [
        ('From a score to a boot', 10), ('From a score to a migration', 10),
        ('A task through the executor', 10), ("An operator's command", 10),
        ('A request to kronos-api', 10), ('The cloud in kronos-api', 5),
        ('A drain in kronos-api', 5), ('A campaign', 5), ('The live page', 6),
        ('A request over MQTT', 10)]


FAILED = PAGE.partition('Follow a failed migration\n')[2].partition('One truth for rules\n')[0]


@pytest.mark.parametrize('text', [*(text for _, text in WALKS), FAILED],
                         ids=[*(title for title, _ in WALKS), 'Follow a failed migration'])
def test_every_name_of_walk_exists(text):
    missing = []
    names = NAME.findall(text)
    assert len(names) >= 5
    for name in names:
        try:
            find(name)
        except AttributeError:
            missing.append(name)
    assert not missing
