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

"""Drawings are complete, have each mark at its place, and stay readable."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova.rebalancer.report import arrows
from kronos_nova.rebalancer.report import curve
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import scale
from kronos_nova.rebalancer.report import summary
from kronos_nova.rebalancer.report import timeline
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words
from tests.unit import clouds
from tests.unit.rebalancer.report import made


@pytest.mark.parametrize(('score', 'band'), [
    (0.0, 0), (0.0999, 0), (0.1, 1), (0.3, 3), (0.7, 7), (0.95, 9), (1.0, 9), (1.7, 9), (-0.2, 0)])
def test_a_score_has_the_band_that_its_first_decimal_says(score, band):
    assert heat.compute_band(score) == band


@clouds.examples(50)
@hypothesis.given(st.integers(0, 900))
def test_the_map_has_each_host_once_with_hot_and_moving_hosts_in_sight(count):
    lines = [made.line(f'h{n:03}', n, max(1, count), made.plain) for n in range(count)]
    ranking = heat.sort_by_load(lines[::-1])
    loads = [line.load.before for line in ranking]
    known = [load for load in loads if load is not None]
    assert loads == [*sorted(known, reverse=True), *[None] * (len(loads) - len(known))]
    found = heat.arrange_hosts(ranking)
    assert [*found.hottest, *(line for part in found.parts for line in part.lines)] == list(ranking)
    in_sight = {line.name for line in (*found.hottest, *found.moving)}
    assert {line.name for line in lines if line.gives or line.takes} <= in_sight
    assert not {line.name for line in found.hottest} & {line.name for line in found.moving}
    for part in found.parts:
        assert ranking[part.first - 1] == part.lines[0]
        assert ranking[part.last - 1] == part.lines[-1]


@clouds.examples(50)
@hypothesis.given(st.lists(st.none() | st.floats(0, 1), max_size=300))
def test_each_known_score_is_one_square_of_its_band_inside_the_drawing(scores):
    found = heat.draw_squares(scores)
    assert found.unknown == scores.count(None)
    assert sum(found.counts) == len(scores) - found.unknown
    width, height = heat.compute_squares_size(len(scores))
    for band, path in found.paths:
        assert path.count('M') == found.counts[band] == sum(
            1 for score in scores if score is not None and heat.compute_band(score) == band)
        for square in path.split('M')[1:]:
            x, y = map(int, square.partition('h')[0].split())
            assert 0 <= x <= width - heat.SIDE and 0 <= y <= height - heat.SIDE


def test_every_move_is_in_one_arrow_between_its_hosts():
    moves = made.moves(made.plain)
    found = arrows.draw_arrows(moves)
    assert sorted(n for arrow in found.arrows for n in arrow.numbers) == [m.number for m in moves]
    left, right = ({end.name: end for end in side} for side in (found.left, found.right))
    for arrow in found.arrows:
        assert {(m.from_host, m.to_host, m.phase) for m in moves if m.number in arrow.numbers} == {
            (arrow.from_host, arrow.to_host, arrow.phase)}
        assert arrow.path.split('C')[0].endswith(f' {left[arrow.from_host].y:g}')
        assert arrow.path.endswith(f' {right[arrow.to_host].y:g}')
    assert sum(end.moves for end in found.left) == sum(end.moves for end in found.right) == 6


def test_moves_between_the_same_hosts_are_one_wider_arrow():
    move = made.moves(made.plain)[0]
    found = arrows.draw_arrows([dataclasses.replace(move, number=n) for n in (1, 2, 3)])
    (arrow,) = found.arrows
    assert arrow.numbers == (1, 2, 3) and arrow.width > arrows.draw_arrows([move]).arrows[0].width


def test_arrows_have_the_hosts_that_take_part_alone_the_hottest_on_top():
    section = made.of_cloud(hosts=50)
    moves = [dataclasses.replace(m, from_host=f'host {40 - m.number}', to_host='host 49')
             for m in section.moves]
    found = arrows.draw_arrows(moves, section.lines)
    assert [end.name for end in found.left] == [f'host {n}' for n in range(34, 40)]
    assert [end.name for end in found.right] == ['host 49']


def test_of_very_many_arrows_the_widest_are_drawn_and_the_rest_counted():
    move = made.moves(made.plain)[0]
    moves = [dataclasses.replace(move, number=n, to_host=f'to {n}') for n in range(500)]
    moves += [dataclasses.replace(move, number=n, to_host='often') for n in (500, 501)]
    found = arrows.draw_arrows(moves)
    assert len(found.arrows) == arrows.MOST and found.left_out == 101
    assert any(arrow.to_host == 'often' for arrow in found.arrows)


@pytest.mark.parametrize('section', [made.of_cloud(), made.of_plan()],
                         ids=['planned', 'as it went'])
def test_every_move_has_its_row_in_its_wave_inside_the_drawing(section):
    found = timeline.draw_timeline(section)
    assert [row.number for wave in found.waves for row in wave.rows] == [1, 2, 3, 4, 5, 6]
    assert [wave.number for wave in found.waves] == [0, 1]
    for wave in found.waves:
        for row in wave.rows:
            assert wave.y < row.y < wave.y + wave.height <= found.height
            assert wave.x <= row.x <= wave.x + wave.width <= found.width
            for bar in row.bars:
                assert bar.width > 0 and bar.x + bar.width <= found.width


def test_a_wave_that_is_only_planned_begins_beside_the_one_before():
    first, second = timeline.draw_timeline(made.of_cloud()).waves
    assert second.x >= first.x + first.width
    assert [tick.text for tick in first.ticks][0] == '+0 s'
    places = [row.x for row in first.rows]
    assert places == sorted(places) and len(set(places)) == 3


def test_a_bar_is_as_long_as_its_try_and_says_how_it_ended():
    rows = {row.number: row for wave in timeline.draw_timeline(made.of_plan()).waves
            for row in wave.rows}
    done, (failed, again) = rows[1].bars[0], rows[2].bars
    assert (done.kind, failed.kind, again.kind) == ('done', 'failed', 'done')
    assert again.width / done.width == pytest.approx(130 / 85, rel=0.01)
    assert failed.text.endswith('25 s: error') and rows[4].bars[0].kind == 'running'
    assert 'still under way' in rows[4].bars[0].text and rows[6].bars == ()


def test_a_curve_is_broken_where_the_imbalance_is_not_known():
    combined, first, second = curve.draw_curves(made.of_cloud())
    assert len(combined.lines) == 2 and len(first.lines) == 2 and len(second.lines) == 1
    assert (combined.threshold, combined.title) == (None, 'Combined')
    assert first.threshold is not None and first.title == 'policy 1'


def test_curves_show_predicted_and_realised_values_at_the_same_time():
    dots = curve.draw_curves(made.of_cloud())[0].dots
    kinds = [dot.kind for dot in dots]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        'foreseen': 6, 'realised': 2, 'shown': 1}
    realised = [dot for dot in dots if dot.kind == 'realised']
    assert all(any(d.kind == 'foreseen' and d.x == dot.x for d in dots) for dot in realised)


def test_one_plan_alone_is_no_curve():
    section = made.of_cloud()
    assert curve.draw_curves(dataclasses.replace(section, points=section.points[:1])) == ()


@clouds.examples(100)
@hypothesis.given(st.floats(1e-6, 1e6), st.floats(0, 1e9), st.integers(1, 9))
def test_an_axis_has_few_marks_all_on_it(span, low, most):
    axis = scale.LinearScale(low, low + span, 10.0, 500.0)
    for marks in (scale.list_time_ticks(axis, most), scale.list_number_ticks(axis, most)):
        assert len(marks) <= most + 2
        assert all(10.0 <= mark.place <= 500.0 for mark in marks)


@pytest.mark.parametrize(('value', 'top'), [
    (0, 0.1), (0.15, 0.2), (0.2, 0.2), (0.55, 0.6), (0.84, 1.0), (1.0, 1.0), (1.3, 2.0)])
def test_the_top_of_an_axis_is_the_next_round_number(value, top):
    assert scale.round_axis_top(value) == pytest.approx(top)


def test_a_summary_names_moves_improvement_and_exceeded_thresholds():
    said = summary.list_sentences(made.of_plan())
    assert said[0] == '6 instances of 3 hosts move to 6 hosts, in 2 waves.'
    assert 'from 0.5000 to 0.2000' in said[1] and 'showed 0.2500' in said[2]
    assert 'Above its threshold then: policy 1.' in said
    assert 'Not believed: policy 2.' in said
    assert said[-1] == 'Tasks: 1 cancelled, 2 completed, 1 failed, 1 queued, 1 submitted.'


def test_a_summary_of_nothing_says_why_and_claims_nothing():
    said = summary.list_sentences(values.ScopeSection('s', 0.0, reason='all is well', dry_run=True))
    assert said == ('Nothing is moved: all is well.', 'The combined imbalance is not known.',
                    'It is the plan of a dry run: no move is carried out.')


@pytest.mark.parametrize(('seconds', 'text'), [
    (0, '+0 s'), (90, '+90 s'), (120, '+2 min'), (150.4, '+2 min 30 s'), (3600, '+60 min')])
def test_an_offset_is_written_as_people_say_it(seconds, text):
    assert words.format_offset(seconds) == text


def test_a_time_that_no_calendar_has_is_its_last():
    assert words.format_timestamp(1e300) == '9999-12-31T00:00:00+00:00'
