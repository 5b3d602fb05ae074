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
"""Lines about moves, and the phrases that programs share."""

import pathlib

import pytest

import kronos_nova
from kronos_nova.text import plan_lines


def test_the_phrase_for_a_shutdown_is_written_in_one_place():
    """Commands, the API, the report and the scripts of the live page get it from there."""
    package = pathlib.Path(kronos_nova.__file__).parent
    # A line may end in the middle.
    words = plan_lines.SHUT_DOWN.partition(',')[2].strip()
    places = [path.relative_to(package).as_posix() for path in package.rglob('*')
              if path.suffix in {'.py', '.js', '.html'}
              and words in path.read_text(encoding='utf-8')]
    assert places == ['text/plan_lines.py']


def test_method_has_no_words_where_the_move_is_live_or_its_method_is_not_known():
    assert [plan_lines.format_method(method) for method in ('live', None, 'cold', 'offline')] == [
        '', '', ', cold', f', offline ({plan_lines.SHUT_DOWN})']


@pytest.mark.parametrize(('causes', 'holds', 'moves', 'reason', 'expected'), [
    ((), ('paused: storm',), None, None, 'nothing: paused: storm'),
    ((), (), 1, None, 'the next cycle would make 1 move'),
    ((), ('sustain_for',), 0, 'below the thresholds', 'nothing: below the thresholds'),
    (('no live engine: none', 'no live executor: none'), (), 2, None,
     'nothing: no live engine, no live executor; a cycle would plan 2 moves'),
    (('dry run: set',), (), 0, 'balanced', 'nothing: dry run; balanced')])
def test_conclusion_names_what_stops_the_moves(causes, holds, moves, reason, expected):
    assert plan_lines.format_conclusion(causes, holds, moves, reason) == expected
