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

import logging

import pytest

from kronos_nova.rebalancer.executors import contract_agreement
from kronos_nova.rebalancer.store import rows

SAME, OTHER, OLD = (rows.EngineSettings('p', contracts) for contracts in ('ours', 'theirs', ''))


@pytest.fixture
def compare(caplog):
    """Compare settings; return the level and the text of each line of the log."""
    agreement = contract_agreement.ContractAgreement('ours')

    def compare(**settings):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            agreement.compare_settings(settings)
        return [(r.levelname, r.getMessage().partition(' other')[0]) for r in caplog.records]
    return compare


def test_difference_is_logged_when_it_begins_and_when_it_ends(compare):
    assert compare(blue=SAME, red=OLD) == []
    assert compare(blue=OTHER, red=OTHER) == [('WARNING', 'Engines of blue, red have')]
    assert compare(blue=OTHER, red=OTHER) == []
    [(level, text)] = compare(blue=OTHER, red=SAME)
    assert (level, text) == ('INFO', 'Engines of red have the contracts of this executor again')


def test_engine_that_has_stopped_neither_differs_nor_agrees(compare):
    assert len(compare(blue=OTHER)) == 1
    assert compare() == []
    assert compare(blue=OTHER) == []
    assert [level for level, _text in compare(blue=SAME)] == ['INFO']
