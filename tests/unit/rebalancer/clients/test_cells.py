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

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import cells
from kronos_nova.rebalancer.clients import nova_api

KEY = 'kronos:cell'


def aggregate(cell: str | None, *hosts: str, key: str = KEY) -> nova_api.Aggregate:
    return nova_api.Aggregate(hosts, {} if cell is None else {key: cell})


AGGREGATES = {'near': aggregate('cell1', 'a', 'b'), 'far': aggregate(' cell2 ', 'c', 'ironic'),
              'ssd': aggregate(None, 'a', 'c', 'd'), 'empty': aggregate('', 'd')}


def test_a_host_is_in_the_cell_that_any_of_its_aggregates_names() -> None:
    assert cells.map_cells(AGGREGATES, KEY, 'abcd') == {'a': 'cell1', 'b': 'cell1', 'c': 'cell2'}


def test_another_key_or_none_names_nothing() -> None:
    for key in ('cell', ''):
        assert cells.map_cells(AGGREGATES, key, 'abcd') == {}
    assert cells.map_cells({'x': aggregate('cell1', 'a', key='')}, '', 'a') == {}


def test_two_aggregates_of_a_host_may_name_the_same_cell() -> None:
    assert cells.map_cells({'rack1': aggregate('cell1', 'a'), 'rack2': aggregate('cell1', 'a')},
                           KEY, 'a') == {'a': 'cell1'}


def test_error_about_two_cells_names_host_aggregates_and_remedy() -> None:
    wrong = {**AGGREGATES, 'wrong\n': aggregate('cell2', 'b')}
    with pytest.raises(api.ApiError) as error:
        cells.map_cells(wrong, KEY, 'ab')
    assert error.value.what == 'the cell of host b'
    assert error.value.problem == (
        'a host is in one cell, but in metadata kronos:cell aggregate near says cell1, aggregate '
        'wrong says cell2. Correct the metadata (openstack aggregate set --property), or take '
        'the host out of one of the aggregates')
    assert cells.map_cells(wrong, KEY, 'a') == {'a': 'cell1'}, 'who is not planned is no matter'


def test_hosts_without_a_cell_are_named_where_others_have_one() -> None:
    named, missing = model.Host('a', cell='cell1'), [model.Host(h) for h in 'bcdefg']
    assert cells.list_cell_warnings([named], KEY) == cells.list_cell_warnings(missing, KEY) == []
    note, = cells.list_cell_warnings([*reversed(missing), named], KEY)
    assert 'not of 6 (b, c, d, e, f, ...)' in note and KEY in note
    assert '(b):' in cells.list_cell_warnings([missing[0], named], KEY)[0]


def services(silent: str) -> dict[str, model.Service]:
    return {host: model.Service(host, status=model.UNKNOWN if host in silent else 'enabled')
            for host in 'abcd'}


@pytest.mark.parametrize(('first', 'last', 'expected'), [
    ('', '', {}), ('a', '', {'a': 'cell1', 'b': 'cell1', 'd': ''}),
    ('', 'c', {'c': 'cell2', 'd': ''}),
    ('a', 'c', {'a': 'cell1', 'b': 'cell1', 'c': 'cell2', 'd': ''})])
def test_a_cell_is_away_with_all_its_hosts_and_those_of_no_named_cell(
        first: str, last: str, expected: dict[str, str]) -> None:
    """Whether it was away before servers were read or after."""
    assert cells.find_unreadable_hosts((services(first), services(last)), AGGREGATES,
                                       KEY) == expected


def test_a_silent_host_whose_cell_is_not_named_is_an_error_with_a_remedy() -> None:
    for aggregates, silent, name in ((AGGREGATES, 'd', 'd'), ({}, 'ca', 'a')):
        with pytest.raises(api.ApiError, match=f'service on {name}: its cell does not answer.*'
                                               'cell_metadata_key'):
            cells.find_unreadable_hosts((services(silent),), aggregates, KEY)
