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


"""Tables fit a width where they can, lose no text, and keep UUIDs in one piece."""

import argparse
import io
import uuid

from cliff.formatters import table
import hypothesis
from hypothesis import strategies as st
import wcwidth

from kronos_nova.text import table_layout

ARGS = argparse.Namespace(max_width=0, fit_width=False, print_empty=False)
UUID = '0f5a2b1c-9d3e-4c47-8a61-2b7e9c0d4f18'
TIME = '2026-11-28T14:35:01+00:00'
WORDS = st.text('abcxyz019-_.:\u00e4\u8a08\u7b97', max_size=30)
CELLS = st.one_of(st.just(UUID), st.just(TIME), st.just(f'instance {UUID}'), st.integers(0, 9999),
                  st.lists(WORDS, max_size=12).map(' '.join))


def render(heads, rows):
    stream = io.StringIO()
    table.TableFormatter().emit_list(heads, rows, stream, ARGS)
    return stream.getvalue().splitlines()


def measure(heads, rows):
    return max(map(wcwidth.wcswidth, render(heads, rows)))


@hypothesis.given(st.lists(st.tuples(*[CELLS] * 4), min_size=1, max_size=4), st.integers(40, 160))
@hypothesis.settings(max_examples=200, deadline=None)
def test_cells_keep_their_text_in_lines_that_fit(rows, width):
    heads = ('A', 'Some Head', 'C', 'D')
    fitted = table_layout.fit_rows(heads, rows, width)
    for row, shown in zip(rows, fitted, strict=True):
        for cell, text in zip(row, shown, strict=True):
            if isinstance(cell, int):
                assert text == cell
                continue
            whole = ''.join(str(cell).split())
            assert ''.join(text.split()) == (whole.replace('T', '') if cell == TIME
                                             and text != TIME else whole)
            assert UUID not in cell or UUID in text
    least = 13 + sum(max(9 if head == 'Some Head' else 8, *(
        36 if UUID in str(row[n]) else 14 if row[n] == TIME else 0 for row in rows))
        for n, head in enumerate(heads))
    assert measure(heads, fitted) <= max(width, least)


def test_table_that_fits_stays_as_it_is():
    rows = [(str(uuid.UUID(int=n)), TIME, 'some text', None) for n in range(3)]
    assert table_layout.fit_rows(('Task', 'At', 'Why', 'X'), rows, 100) == rows


def test_widest_column_is_wrapped_and_short_ones_stay():
    rows = [('host compute-01', 'no room', 'no valid host was found ' * 8)]
    (row,) = table_layout.fit_rows(('What', 'Verdict', 'Detail'), rows, 100)
    assert row[:2] == rows[0][:2] and max(map(len, row[2].split('\n'))) <= 100 - 15 - 7 - 10


def test_time_is_broken_before_the_time_of_day():
    heads = ('Task', 'Host', 'State', 'Since', 'Detail')
    rows = [(UUID, 'h' * 20, 'emptying', TIME, 'x' * 200)]
    (row,) = table_layout.fit_rows(heads, rows, 100)
    assert row[3] == '2026-11-28\n14:35:01+00:00'
    assert measure(heads, [row]) == 100


def test_sentences_give_their_uuids_up_before_the_table_grows():
    heads = ('Scope', 'What', 'Verdict', 'Detail')
    rows = [('fast-storage', f'instance {UUID}', 'no place', f'because {UUID} is there')]
    (row,) = table_layout.fit_rows(heads, rows, 100)
    assert UUID in row[1].split('\n') and measure(heads, [row]) <= 100
    assert row[0] == 'fast-storage' and UUID not in row[3]


def test_one_row_is_vertical_where_the_command_wants_it():
    for vertical, head in ((True, '| Field | Value |'), (False, '| A | B |')):
        stream = io.StringIO()
        table_layout.FittedTable(table.TableFormatter(), 100, vertical).emit_list(
            ('A', 'B'), [('1', '2')], stream, ARGS)
        assert stream.getvalue().splitlines()[1] == head
    stream = io.StringIO()
    table_layout.FittedTable(table.TableFormatter(), 100, True).emit_list(
        ('A', 'B'), [('1', '2'), ('3', '4')], stream, ARGS)
    assert stream.getvalue().splitlines()[1] == '| A | B |'


def test_a_name_that_begins_as_a_time_makes_no_table_wide():
    evil = '2026-11-28T15:00:00' + 'x' * 200
    (cells,) = table_layout.fit_rows(('Name', 'At'), [(evil, '2026-11-28T15:00:00+00:00')], 60)
    assert table_layout.measure_table(('Name', 'At'), [cells]) <= 60
    assert cells[0].replace('\n', '') == evil
