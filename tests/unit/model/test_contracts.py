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

"""Values of contracts: grades in their order, and quotas of moves."""

import pytest

from kronos_nova.model import contracts
from kronos_nova.model import movement_hours


def test_grades_are_ordered_by_strictness():
    ranks = [contracts.Disruption(text).rank for text in (
        'poweroff-ok', 'cold-ok', 'live', 'drain-only', 'never')]
    assert ranks == sorted(ranks) == list(range(len(contracts.Disruption)))


@pytest.mark.parametrize(('text', 'moves', 'seconds', 'shown'), [
    ('2/7d', 2, 604800, '2/7d'), ('1:24h', 1, 86400, '1/1d'), (' 3/90m ', 3, 5400, '3/90m')])
def test_a_quota_is_a_number_of_moves_in_a_time(text, moves, seconds, shown):
    quota = contracts.parse_quota(text)
    assert (quota.moves, quota.seconds, str(quota)) == (moves, seconds, shown)
    assert contracts.parse_quota(str(quota)) == quota


@pytest.mark.parametrize('text', ['', '2', '0/7d', '2/0d', '-1/7d', '2/7', '2/7w', '99999/1d',
                                  '٣/7d', '2/7d\nx', '1e9/1d'])
def test_other_texts_are_no_quota(text):
    with pytest.raises(ValueError, match='it is no number of moves'):
        contracts.parse_quota(text)


def test_a_quota_counts_no_moves_that_are_forgotten():
    assert contracts.parse_quota('1/2d', 172800).seconds == 172800
    with pytest.raises(ValueError, match='keep_days keeps them: 1'):
        contracts.parse_quota('1/2d', 86400)


def test_a_contract_names_its_values_and_their_source():
    stated = contracts.Contract(
        contracts.ContractSource.TAG, contracts.Disruption.LIVE,
        movement_hours.parse_hours('* 1 * * *'),
        contracts.MoveQuota(2, 604800), ('hours',))
    assert str(stated) == ('disruption live, hours * 1 * * *, max_moves 2/7d, hours unreadable '
                           '(tag)')
