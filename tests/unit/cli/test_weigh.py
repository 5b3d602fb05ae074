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



"""Rows of kronos weigh explain, and what --set may name."""

import json

import pytest

from kronos_nova import exception
from kronos_nova.cli import explanation_columns
from kronos_nova.cli import weigh
from kronos_nova.weighing import findings

EVIL = 'ho\x1b[31mst\n%s'


def explanation(*, product=0.5, notes=(), multiplier=1.0):
    weights = {'RAMWeigher': findings.WeigherShare(100.0, product, multiplier, ()),
               'PCIWeigher': findings.WeigherShare(0.0, 0.0, 1.0, ())}
    lines = (
        findings.HostLine(EVIL, 'node', ('agg',), 1, product * multiplier, '', '',
                          findings.HostScores({'cpu': 0.25}, 0.75), weights),
        findings.HostLine('other', 'node', (), None, None, 'SomeFilter', 'w' * 99, None, {}))
    return findings.ChoiceExplanation(lines, ('RAMWeigher', 'PCIWeigher'), ((EVIL, 'node'),), notes)


def rows(form, *, whole=False, after=None, hosts=None, **fields):
    found = explanation_columns.HostColumns(explanation(**fields), after, hosts, form, whole)
    return [dict(zip(found.list_column_names(), row, strict=True))
            for row in found.render_host_rows()], found.list_notes()


def test_unprintable_characters_are_escaped_in_tables_and_csv():
    for form in ('table', 'csv', 'value'):
        assert rows(form)[0][0]['Host'] == r'ho\x1b[31mst\n%s'


def test_json_keeps_names_and_knows_no_infinity():
    found, _ = rows('json', multiplier=float('inf'))
    assert found[0]['host'] == EVIL
    assert found[0]['weighers']['RAMWeigher']['multiplier'] is None
    json.dumps(found, allow_nan=False)


def test_a_reason_is_cut_off_in_a_table_only():
    assert len(rows('table')[0][1]['Why']) == explanation_columns.REASON
    for found in (rows('table', whole=True), rows('csv')):
        assert found[0][1]['Why'] == 'w' * 99


def test_a_weigher_without_effect_has_no_column_but_a_note():
    found, notes = rows('table')
    assert 'PCI' not in found[0] and 'RAM' in found[0]
    assert notes == ['Weighers that add 0 to every host: PCIWeigher.']
    found, notes = rows('table', whole=True)
    assert 'PCI' in found[0] and not notes


def test_with_set_there_are_both_ranks_and_the_newer_products():
    after = explanation(multiplier=-2.0, notes=('new',))
    found, notes = rows('table', after=after, notes=('old',))
    assert found[0]['RAM'] == '0.500 x -2 = -1.000'
    assert (found[0]['Sum'], found[0]['Sum with --set']) == ('0.500', '-1.000')
    assert notes[0] == 'old' and 'With --set: new' in notes
    nested, _ = rows('json', after=after)
    assert nested[0]['with_set']['weighers']['RAMWeigher']['product'] == -1.0


def test_only_the_requested_hosts_are_shown():
    assert [row['Host'] for row in rows('table', hosts={'other'})[0]] == ['other']


@pytest.mark.parametrize('text', ['x', '=x', ''])
def test_a_hint_needs_a_key(text):
    with pytest.raises(exception.ConfigError, match='--hint'):
        weigh._parse_hint(text)
