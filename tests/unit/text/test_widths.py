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

"""Text is measured, cut and wrapped by the cells that it takes on a terminal."""

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import pytest
import wcwidth

from kronos_nova.text import printable
from kronos_nova.text import widths

TEXTS = st.text(max_size=80).map(printable.format_printable)


@pytest.mark.parametrize(('text', 'width', 'cut'), [
    ('compute-01', 10, 'compute-01'), ('compute-001', 10, 'compute...'),
    ('\u8a08\u7b97\u6a5f-0001', 8, '\u8a08\u7b97...'), ('', 3, '')])
def test_cut_text_keeps_its_beginning(text, width, cut):
    assert widths.cut_text(text, width) == cut


@pytest.mark.parametrize(('text', 'width', 'wrapped'), [
    ('2 pending, 1 failed', 10, '2 pending,\n1 failed'),
    ('abcdefghij', 4, 'abcd\nefgh\nij'),
    ('  to h1 and h2', 8, '  to h1\n  and h2'),
    ('one\ntwo three', 5, 'one\ntwo\nthree'),
    ('exact fits', 5, 'exact\nfits'), ('', 5, ''), ('a      ', 3, 'a')])
def test_wrapped_lines_break_at_blanks(text, width, wrapped):
    assert widths.wrap_text(text, width) == wrapped


@given(TEXTS, st.integers(4, 30))
@example('\u2e80000', 4)
def test_no_line_is_wider_than_asked_for(text, width):
    assert widths.measure_width(widths.cut_text(text, width)) <= width
    wrapped = widths.wrap_text(text, width)
    assert all(widths.measure_width(line) <= width for line in wrapped.split('\n'))
    assert wrapped.replace('\n', '').replace(' ', '') == text.replace(' ', '')


@given(TEXTS)
def test_width_is_no_less_than_that_of_the_tables(text):
    assert widths.measure_width(text) >= max(wcwidth.wcswidth(text), 0)


def test_a_character_that_is_wider_than_the_line_stays():
    assert widths.wrap_text('\u6f22\u6f22 a', 1) == '\u6f22\n\u6f22\na'
    assert widths.wrap_text('\u6f22', 1) == '\u6f22'
