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


"""The layers that the architecture page shows are those of the contract."""

import configparser
from pathlib import Path
import re

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / 'doc/source/contributor/architecture.rst').read_text()


def lines(text):
    return [' '.join(line.split()) for line in text.strip().splitlines()]


def test_the_page_shows_the_layers_of_the_contract():
    contracts = configparser.ConfigParser(interpolation=None)
    contracts.read(TOP / 'setup.cfg')
    blocks = re.findall(r'::\n\n((?:    .+\n)+)', PAGE.partition('What flows\n')[0])
    assert [lines(block) for block in blocks] == [
        lines(contracts[f'importlinter:contract:{name}']['layers'])
        for name in ('layers', 'rebalancer-layers')]
