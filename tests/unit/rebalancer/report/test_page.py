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

"""A report as a file: nothing in it runs, nothing comes from elsewhere, all can read it."""

import base64
from collections import Counter
import dataclasses
import hashlib
import re

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import meanings
from kronos_nova.rebalancer.report import page
from kronos_nova.rebalancer.report import rendering
from kronos_nova.rebalancer.report import values
from tests.unit import clouds
from tests.unit.rebalancer.report import made
from tests.unit.rebalancer.report import parsed

#: Everything that a page of ours is made of.
TAGS = {
    'html', 'head', 'meta', 'title', 'style', 'body', 'header', 'nav', 'main', 'section', 'footer',
    'h1', 'h2', 'h3', 'h4', 'p', 'a', 'ul', 'li', 'time', 'span', 'bdi', 'br', 'div', 'dl', 'dt',
    'dd', 'table', 'caption', 'thead', 'tbody', 'tr', 'th', 'td', 'details', 'summary', 'figure',
    'figcaption', 'svg', 'desc', 'defs', 'marker', 'pattern', 'path', 'rect', 'line', 'circle',
    'polyline', 'text', 'tspan', 'progress', 'strong'}


@pytest.fixture(scope='module')
def nasty():
    return parsed.parse(page.render_page(made.nasty()))


@pytest.fixture(scope='module')
def good():
    return parsed.parse(page.render_page(made.report()))


def safe(found):
    """Nothing runs, nothing is loaded, no attribute is a style."""
    assert found.wrong == []
    assert {tag for tag, _ in found.elements} <= TAGS
    for tag, attributes in found.elements:
        for name, value in attributes.items():
            assert not name.startswith('on') and name not in (
                'style', 'src', 'srcset', 'srcdoc', 'action', 'formaction', 'data', 'ping',
                'xlink:href', 'background'), (tag, name)
            if name == 'href':
                assert tag == 'a' and re.fullmatch(r'#scope-\d+', value)
            if name in ('fill', 'marker-end', 'stroke', 'clip-path', 'filter', 'mask'):
                assert re.fullmatch(r'url\(#scope-\d+-(tip|hatch)\)', value)
            if name == 'id' or name in ('aria-labelledby', 'class'):
                assert re.fullmatch(r'[a-z0-9 -]+', value)


def test_names_of_tenants_are_text_and_nothing_else(nasty):
    safe(nasty)
    assert '<script>document.title = "owned"</script>' in nasty.text
    assert '{{ 7 * 7 }}{% raw %}' in nasty.text


def test_a_campaign_shows_its_progress_its_holds_and_its_next_host(good):
    text = re.sub(' ([;.,:])', r'\1', good.text)
    for part in ('2 of 5 hosts of scope scope; paused. reason', '2 to-come, 1 failed, 2 done. '
                 '7 migrations so far; the forecast has 5 more, about 25 minutes.',
                 'Waits: waits', 'host: failed since 2023-11-14 22:13:20 UTC: problem',
                 'Next: next', 'begun 2023-11-14 21:13:20 UTC by person.',
                 '3 of 3 hosts of scope scope; done. 3 done. 1 migration so far.',
                 'by person, ended 2023-11-14 22:12:20 UTC.'):
        assert part in text, (part, text[:3000])


def test_controls_and_marks_that_turn_text_are_not_written(nasty):
    for text in (*nasty.texts, *(v for _, a in nasty.elements for v in a.values() if v)):
        assert not re.search('[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069'
                             '\ud800-\udfff\ufeff]', text), text
    assert '?gnp.exe?' in nasty.text and 'nul? esc?[31m' in nasty.text
    assert '\u05d0\u05d1\u05d2' in nasty.text


def test_a_name_of_either_direction_leaves_its_neighbours_alone(good):
    """Each host, instance, scope and policy that a table names stands in a bdi."""
    isolated = page.render_page(made.report())
    for role in ('host 3', 'instance 2', 'to 4', 'policy 1', 'scope', 'zone', 'warning', 'held'):
        assert f'<bdi>{role}</bdi>' in isolated


def test_the_policy_admits_the_pages_own_style_alone(good, nasty):
    for found in (good, nasty):
        policy, = [m['content'] for m in found.of('meta')
                   if m.get('http-equiv') == 'Content-Security-Policy']
        digest = base64.b64encode(hashlib.sha256(found.style.encode()).digest()).decode()
        assert policy.split('; ') == ["default-src 'none'", f"style-src 'sha256-{digest}'",
                                      "base-uri 'none'", "form-action 'none'"]
        assert 'url(' not in found.style and '@import' not in found.style
        names = [next(iter(a)) for tag, a in found.elements if tag == 'meta']
        assert names[:2] == ['charset', 'http-equiv'], 'before anything that it judges'


def test_a_screen_reader_finds_language_landmarks_headings_and_tables(good):
    assert good.of('html') == [{'lang': 'en'}]
    for landmark in ('header', 'nav', 'main', 'footer', 'h1', 'title'):
        assert good.of(landmark), landmark
    levels = [int(tag[1]) for tag, _ in good.elements if re.fullmatch('h[1-6]', tag)]
    assert all(later - earlier <= 1 for earlier, later in zip(levels, levels[1:], strict=False))
    tables = sum(1 for tag, _ in good.elements if tag == 'table')
    assert tables > 20 and len(good.of('caption')) == tables
    assert all(th.get('scope') in ('row', 'col', 'colgroup') for th in good.of('th'))
    for svg in good.of('svg'):
        assert svg.get('aria-hidden') == 'true' or (
            svg['role'] == 'img' and (svg.get('aria-label') or svg.get('aria-labelledby')))


def test_every_name_that_an_attribute_refers_to_is_there_once(good):
    ids = [a['id'] for _, a in good.elements if 'id' in a]
    assert len(ids) == len(set(ids))
    referred = [name for _, a in good.elements for name in
                a.get('aria-labelledby', '').split()]
    referred += [a['href'][1:] for a in good.of('a')]
    referred += [found for _, a in good.elements for value in a.values() if value
                 for found in re.findall(r'url\(#(.*?)\)', value)]
    assert referred and set(referred) <= set(ids)


def test_scrolling_regions_have_keyboard_focus_and_a_name(good):
    regions = [a for a in good.of('div') if a.get('class') == 'wide']
    assert regions and all(a['tabindex'] == '0' and a['role'] == 'group' and a['aria-label']
                           for a in regions)


def test_each_score_is_a_number_beside_its_colour(good):
    cells = re.findall(r'<td class="h h(\d)[^"]*">(.*?)</td>', page.render_page(made.report()))
    assert len(cells) > 1000
    for band, text in cells:
        number = float(re.sub('<[^>]*>|[▲▼ ]', '', text))
        assert (heat.compute_band(number) == int(band)
                or abs(number * 10 - round(number * 10)) < 0.051)


def test_an_unknown_score_is_shown_as_not_known():
    assert ('<td class="h b"><span aria-hidden="true">–</span><span class="off">not known</span>'
            in page.render_page(made.report()))


def test_the_report_has_each_part_for_each_scope_that_has_a_plan(good):
    for title in ('Policies', 'Heat map', 'Moves', 'Waves on a time line', 'Imbalance over time',
                  'Rejections'):
        assert good.text.count(f' {title}') >= 4, title
    assert good.text.count('Not covered') == 5


def test_a_scope_without_a_plan_says_why(good):
    assert 'No plan: failure' in good.text and 'Nothing is moved: reason.' in good.text


def test_missing_data_is_shown_as_not_stored(good):
    assert 'Not stored.' in good.text


def test_decisions_of_operators_are_shown(good):
    assert good.text.count('Decisions of operators: decision') == 1


def test_every_phase_has_a_line_of_its_own(good):
    drawn = page.render_page(made.report())
    for phase in set(model.Phase) - {model.Phase.SPREAD}:
        assert re.search(rf'\.{phase} {{ stroke-dasharray', good.style), phase
        assert f'class="arrow {phase}"' in drawn
        assert re.search(rf'{phase} (?!solid)[a-z]', good.text)


def test_rules_are_explained_and_unknown_ones_have_a_general_text(good):
    assert f'would-worsen 949 {meanings.explain_rule("would-worsen")}' in good.text
    assert f'rule 1 {meanings.UNKNOWN}' in good.text


def test_of_many_names_the_first_are_written_and_the_rest_counted(good):
    assert good.text.count('warning') == 2 * rendering.NAMED and 'and 10 more' in good.text


def test_real_times_are_shown_for_tasks_and_planned_ones_elsewhere(good):
    assert good.text.count('The course of the tasks, as of 2023-11-14 22:18:20 UTC') == 1
    assert good.text.count('it has no tasks, so real times are unknown') == 2
    kinds = [a.get('class') for a in good.of('rect')]
    assert {kind: kinds.count(kind) for kind in ('done', 'failed', 'running')} == {
        'done': 2, 'failed': 2, 'running': 1}


def test_a_page_declares_its_type_and_version():
    head = page.render_page(made.report())[:2048]
    assert head.startswith('<!DOCTYPE html>') and 'content="kronos report version"' in head


def test_the_same_report_gives_the_same_text():
    assert page.render_page(made.report()) == page.render_page(made.report())


def test_two_thousand_hosts_are_one_megabyte_and_most_are_folded_away():
    text = page.render_page(values.WholeReport('', 0.0, 0.0, '', (made.of_cloud(hosts=2000),)))
    found = parsed.parse(text)
    assert len(text.encode()) < 2**20
    shown = text.split('<details>')[0]
    assert len(re.findall('<td class="h h', shown)) < 300
    assert len(found.of('tr')) > 2000 and len(found.elements) < 40_000


@clouds.examples(60)
@hypothesis.given(st.lists(st.text(st.characters(), max_size=40), min_size=1, max_size=9))
def test_any_names_give_the_same_elements(texts):
    """Equal names stay equal and different ones different, because the drawings compare names."""
    taken = {}

    def names(role):
        return taken.setdefault(role, f'{texts[len(taken) % len(texts)]}{len(taken)}')

    drawn = parsed.parse(page.render_page(made.report(names, large=heat.FEW + 1)))
    safe(drawn)
    assert _counted(drawn) == _counted(
        parsed.parse(page.render_page(made.report(large=heat.FEW + 1))))


def _counted(found):
    """Hosts that nothing is known of stand in the order of their names: not the order."""
    return Counter((tag, *sorted(attributes)) for tag, attributes in found.elements)


def many_moves(number):
    return tuple(values.MoveLine(
        n, made.UUID.format(n), f'from {n}', f'to {n % 7}', 'spread', n // 40, 0.01, 0.0,
        gain=0.0125, changes=(values.HostChange('cpu', values.HostLevel(0.5, 0.38),
                                                values.HostLevel(0.1, 0.22)),))
        for n in range(1, number + 1))


def only(section):
    return parsed.parse(page.render_page(values.WholeReport('x', made.NOW, made.NOW, '1',
                                                            (section,))))


@pytest.mark.parametrize('moves, drawn', [(24, True), (25, False), (100, False)])
def test_many_arrows_become_a_table_by_source(moves, drawn):
    found = only(dataclasses.replace(made.of_cloud(), moves=many_moves(moves)))
    labels = [a.get('aria-label') for _, a in found.elements]
    assert ('Moves as arrows' in labels) is drawn
    assert ('Moves by host, table' in labels) is not drawn


def test_move_shows_scores_of_both_hosts_its_gain_and_its_wave_from_zero():
    found = only(dataclasses.replace(made.of_cloud(), moves=many_moves(1)))
    assert '0.50 \N{RIGHTWARDS ARROW} 0.38' in found.text
    assert '0.10 \N{RIGHTWARDS ARROW} 0.22' in found.text and '0.0125' in found.text
    text = page.render_page(values.WholeReport('x', made.NOW, made.NOW, '1', (
        dataclasses.replace(made.of_cloud(), moves=many_moves(1)),)))
    assert '<td class="n" data-label="Wave">0</td>' in text
    assert '<td class="n" data-label="Wave">1</td>' not in text


def test_small_heat_map_has_a_legend_of_all_bands():
    found = only(made.of_cloud())
    assert 'Colours of scores' in found.text
    assert sum(re.fullmatch(r'h\d', a.get('class') or '') is not None and tag == 'span'
               for tag, a in found.elements) == heat.BANDS


def test_host_names_do_not_wrap_and_state_comes_early():
    found = only(made.of_plan())
    style = rendering.render_style()
    assert '.host, .state { white-space: nowrap; }' in style
    assert found.text.index('State') < found.text.index('Instance From')
    assert not [tag for tag, a in found.elements if (a.get('class') or '') == 'name'
                and a.get('data-label') in ('From', 'To')]


def test_every_cell_of_a_card_has_a_label():
    text = page.render_page(made.report())
    for table in re.findall(r'<table class="cards">.*?</table>', text, re.S):
        body = table.partition('<tbody>')[2]
        assert body and not re.search(r'<td(?![^>]*data-label=)', body)


def test_scope_without_new_moves_names_those_that_wait():
    found = only(dataclasses.replace(
        made.of_cloud(), moves=(), waiting=3,
        no_moves='None is new: 3 moves of plan p wait for approval, see below.'))
    assert 'None is new: 3 moves of plan p wait' in found.text and 'None.' not in found.text
    assert 'Waiting for approval 3' in found.text
