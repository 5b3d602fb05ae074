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

import hypothesis
from hypothesis import strategies as st
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


@hypothesis.given(
    st.sampled_from(['* 13 * * *', '5-20 2,14 * * mon', '* * 29 2 *', '*/2 * * * *', '* * 31 2 *',
                     '30-45 1-3 25 10 *', '50-59,0-5 22-23 * * *']),
    # The last ones are days on which clocks of Berlin are set.
    st.floats(1.7e9, 1.8e9) | st.floats(1774652400, 1774749600) | st.floats(1792792800, 1792890000),
    st.sampled_from(['UTC', 'Europe/Berlin', 'Asia/Kathmandu']),
    st.sampled_from([0.0, 240.0]))
def test_the_next_opening_is_the_first_minute_that_is_open_long_enough(text, now, zone, seconds):
    hours = movement_hours.parse_hours(text)
    opening = hours.find_opening(now, zone, seconds)
    first = next((at for at in [now, *(now // 60 * 60 + 60 * n for n in range(1, 3000))]
                  if all(hours.is_open(at + later, zone) for later in range(0, int(seconds) + 1,
                                                                            60))), None)
    if first is not None:
        assert opening == first
    else:
        assert opening is None or opening > now + 2990 * 60


def test_hours_that_open_in_more_than_a_year_never_open():
    assert movement_hours.parse_hours('* * 31 2 *').find_opening(1.7e9, 'UTC') is None


@pytest.mark.parametrize(('text', 'enough'), [
    ('0 22 * * *', False), ('0-3 22 * * *', False), ('0-4 22 * * *', True), ('* 22 * * *', True),
    ('58-59,0-2 22-23 * * *', True), ('58-59,0-2 22 * * *', False), ('*/2 * * * *', False),
    ('58-59,0-2 0,23 * * *', True), ('0,1,2,3,4 * * * *', True),
    # Both days of midnight never match, or no day does.
    ('58-59,0-2 0,23 2-30/2 * *', False), ('58-59,0-2 0,23 * 2 mon', False),
    ('* * 31 2 *', False), ('* * 29 2 *', True)])
def test_hours_open_long_enough_for_a_plan_and_its_moves(text, enough):
    assert movement_hours.parse_hours(text).opens_long_enough() is enough
