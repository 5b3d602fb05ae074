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

"""The page of invariants has all that a run can break, and each seeded bug as it is."""

from pathlib import Path
import re

from tests.simulation.world import bugs
from tests.simulation.world import campaign_bugs
from tests.simulation.world import campaign_invariants
from tests.simulation.world import invariants

PAGE = (Path(__file__).resolve().parents[2] / 'doc/source/contributor/invariants.rst').read_text()
BUG = re.compile(r'^   \* - (\S.*)\n     - ``(\w+)``\n     - (\d+)$', re.MULTILINE)


def test_table_lists_each_seeded_bug_with_its_invariant():
    rows = [(name, (int(seed), rule)) for name, rule, seed in BUG.findall(PAGE)]
    caught = bugs.CAUGHT | campaign_bugs.CAUGHT
    assert dict(rows) == caught and len(rows) == len(caught)


def test_each_invariant_is_explained():
    explained = list_explained(PAGE[:PAGE.index('What was counted')])
    assert len(explained) == len(set(explained))
    assert set(explained) == set(invariants.names())


def test_each_invariant_of_campaigns_is_explained():
    assert list_explained(PAGE[PAGE.index('\nCampaigns\n'):]) == campaign_invariants.names()


def list_explained(text):
    return re.findall(r'^   \* - ``(\w+)``$', text, re.MULTILINE)
