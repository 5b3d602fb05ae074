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

"""Bugs put into the real code on purpose: each is noticed by a run.

The seed that catches a bug is in the table, so that each costs one run; a seed
that no longer does (the world has changed) is looked for again with
``tools/simulate_faults.py --bugs``. A quarter of the invariants notice one bug each with each
commit, in turns, and all bugs in ``tools/test long``.
"""

import functools

import pytest

from tests.simulation.world import bugs
from tests.simulation.world import campaign_bugs
from tests.simulation.world import run as runs


@functools.cache
def unharmed(seed, only, campaign):
    """The code as it is passes the same run."""
    runs.Run(seed, only=only, campaign=campaign).go()


def mark_long_bugs(module):
    """Return each bug as a parameter; the first bugs of the invariants take turns."""
    noticed, parameters = set(), []
    for name, bug in module.BUGS.items():
        _seed, invariant = module.CAUGHT[name]
        marks = pytest.mark.long if invariant in noticed else pytest.mark.turns(4)
        noticed.add(invariant)
        parameters.append(pytest.param(bug, id=name, marks=marks))
    return parameters


def check_bug(module, bug, monkeypatch, *, campaign):
    """Check that the run of the table notices a bug, and passes without it."""
    seed, name = module.CAUGHT[bug.name]
    unharmed(seed, bug.only, campaign)
    bug.apply(monkeypatch)
    with pytest.raises(runs.Broken) as caught:
        runs.Run(seed, only=bug.only, campaign=campaign).go()
    assert caught.value.name == name


@pytest.mark.parametrize('bug', mark_long_bugs(bugs))
def test_seeded_bug_is_caught(bug, monkeypatch):
    check_bug(bugs, bug, monkeypatch, campaign=False)


@pytest.mark.parametrize('bug', mark_long_bugs(campaign_bugs))
def test_seeded_bug_of_campaigns_is_caught(bug, monkeypatch):
    check_bug(campaign_bugs, bug, monkeypatch, campaign=True)


def test_table_has_at_least_30_bugs():
    assert len(bugs.BUGS) >= 30 and len(campaign_bugs.BUGS) >= 5
