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

"""The fragments of the live page: figures, escapes, and no change without one."""

import dataclasses
import re

import pytest

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import live_page
from kronos_nova.rebalancer.report import live_section
from kronos_nova.rebalancer.report import live_values
from kronos_nova.rebalancer.report import page
from kronos_nova.rebalancer.report import rendering
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.store import rows
from tests.unit.rebalancer.report import made
from tests.unit.rebalancer.report import parsed
from tests.unit.rebalancer.store import cases

NOW = made.NOW
NASTY_ROLES = {}
CARD = live_values.ScopeCard('scope', (values.PolicyLine('cpu', 0.15, 0.6, 0.2),), NOW - 60, False,
                             1, 0, 2, None, ())


def make_scope(names=made.plain, hosts=8, **changes):
    """Return a live scope with each kind of move."""
    section = dataclasses.replace(made.of_cloud(names, hosts), columns=live_section.COLUMNS,
                                  started=NOW, moves=made.moves(names, tasks=True))
    section = dataclasses.replace(section, lines=heat.sort_by_load(section.lines))
    card = dataclasses.replace(CARD, name=names('scope'), problems=(names('problem'),))
    states = {'submitted': (True, False), 'queued': (False, False)}
    return dataclasses.replace(live_values.LiveScope(card, section, tuple(
        live_values.LiveMove(line, made.UUID.format(0), 2048,
                             *states.get(line.state, (False, True)))
        for line in section.moves), (names('sentence'),)), **changes)


def make_overview(names=made.plain):
    line = made.moves(names, tasks=True)[2]
    return live_values.Overview(
        NOW, (dataclasses.replace(CARD, name=names('scope'), policies=made.policies(names)),
              live_values.ScopeCard(names('new'), (), None, True, 0, 0, 0, names('reason'),
                                    (names('problem'),))),
        (live_values.WaitingPlan(made.UUID.format(0), names('scope'), NOW, NOW + 60, 3, 0.5,
                                 None, ((names('approver'), NOW, 2),), 2),),
        (live_values.PauseLine(None, NOW, None, names('person'), names('reason')),
         live_values.PauseLine(names('scope'), NOW, NOW + 60, names('person'), names('reason'))),
        (live_values.FailedMove(line, names('scope'), made.UUID.format(0), NOW, names('remedy')),),
        24, made.campaigns(names))


def make_nasty(role):
    """Return a name of its own for each role; a role has the same one each time."""
    number = NASTY_ROLES.setdefault(role, len(NASTY_ROLES))
    return f'{made.NASTY[number % len(made.NASTY)]} {number}'


def render_all(names, hosts=80):
    plan = dataclasses.replace(made.of_plan(names), lines=made.of_cloud(names).lines)
    return (live_page.render_overview(make_overview(names)),
            live_page.render_failures(make_overview(names)),
            live_page.render_scope(make_scope(names, hosts)), live_page.render_plan(plan))


def test_a_campaign_shows_its_progress_and_each_host_that_has_begun():
    document = parsed.parse(live_page.render_overview(make_overview()))
    assert [(bar['value'], bar['max']) for bar in document.of('progress')] == [
        ('2', '5'), ('3', '3')]
    text = ' '.join(' '.join(document.texts).split())
    assert 'failed since' in text and '2 of 5 hosts' in text, text
    assert 'Unreadable campaign' in text
    assert f'Correct windows of campaign {made.UUID.format(2)}' in text


def test_shutdowns_are_named_where_a_plan_waits_and_beside_each_move():
    overview = parsed.parse(live_page.render_overview(make_overview()))
    text = ' '.join(' '.join(overview.texts).split())
    assert '2 instances will be shut down, moved cold and started again.' in text, text
    plan = made.of_plan()
    lines = tuple(dataclasses.replace(line, method=method) for line, method in zip(
        plan.moves, ('offline', 'live', 'cold'), strict=False))
    text = ' '.join(' '.join(parsed.parse(live_page.render_plan(
        dataclasses.replace(plan, moves=lines))).texts).split())
    assert text.count('offline (shut down, moved cold and started again)') == 1
    assert text.count(', cold') == 1 and ', live' not in text


def test_the_live_page_and_the_report_draw_a_campaign_alike():
    context = {'campaigns': made.campaigns()}
    environment = rendering.build_environment()
    drawn = environment.from_string(
        "{% import 'parts.html' as parts %}{% include 'campaigns.html' %}").render(context)
    assert 'Hosts of campaign' in drawn
    report = page.render_page(made.report())
    assert drawn in live_page.render_overview(make_overview()) and drawn in report


@pytest.mark.parametrize('place', range(4))
def test_names_become_texts_and_no_attribute_but_labels(place):
    plain, nasty = (parsed.parse(render_all(names)[place]) for names in (made.plain, make_nasty))
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]
    for tag, attributes in nasty.elements:
        assert tag not in ('script', 'style', 'img', 'link', 'iframe', 'form', 'a')
        for name, value in attributes.items():
            assert not name.startswith('on') and name not in ('style', 'href', 'src', 'action')
            if name.startswith('data-') and name != 'data-label':
                assert re.fullmatch('[0-9a-f-]+', value), (name, value)


def test_fragment_without_a_change_is_the_same_text():
    """The page replaces nothing then: it must not depend on the time of the rendering."""
    later = dataclasses.replace(make_scope(), section=dataclasses.replace(
        make_scope().section, seen=NOW + 500.0))
    assert live_page.render_scope(later) == live_page.render_scope(make_scope())
    later_overview = dataclasses.replace(make_overview(), at=NOW + 500.0)
    assert live_page.render_overview(later_overview) == live_page.render_overview(make_overview())


def test_few_hosts_are_squares_and_moves_under_way_lines_between_them():
    scope = make_scope(hosts=8)
    lines = {line.name for line in scope.section.lines}
    under_way = dataclasses.replace(
        scope.moves[3], line=dataclasses.replace(scope.moves[3].line, from_host='host 0',
                                                 to_host='host 5'))
    assert under_way.under_way and {'host 0', 'host 5'} <= lines
    moves = (*scope.moves[:3], under_way, *scope.moves[4:])
    document = parsed.parse(live_page.render_scope(dataclasses.replace(scope, moves=moves)))
    squares = [svg for svg in document.of('svg') if svg.get('class') == 'squares']
    assert len(squares) == 2 * len(scope.section.policies)
    flights = [path for path in document.of('path') if path.get('class') == 'flight']
    assert [flight['data-move'] for flight in flights] == ['4'] * len(squares)
    places = {line.name: place for place, line in enumerate(scope.section.lines)}
    step = heat.SIDE + heat.GAP
    begin = re.match(r'M([\d.]+) ', flights[0]['d'])
    end = re.search(r' ([\d.]+) ([\d.]+)$', flights[0]['d'])
    assert int(float(begin[1]) // step) == places['host 0']
    assert int(float(end[1]) // step) == places['host 5']


def test_rows_name_their_place_among_the_squares_and_their_move():
    scope = make_scope(hosts=200)
    document = parsed.parse(live_page.render_scope(scope))
    rows_of_hosts = [row['data-host'] for row in document.of('tr') if 'data-host' in row]
    assert rows_of_hosts[:heat.FIRST] == [str(n) for n in range(heat.FIRST)]
    moving = [place for place, line in enumerate(scope.section.lines)
              if place >= heat.FIRST and (line.gives or line.takes)]
    assert rows_of_hosts[heat.FIRST:] == [str(place) for place in moving]
    assert [row['data-move'] for row in document.of('tr') if 'data-move' in row] == [
        str(move.line.number) for move in scope.moves]


def test_arrows_are_drawn_for_moves_that_are_not_over():
    document = parsed.parse(live_page.render_scope(make_scope()))
    arrows = [path for path in document.of('path') if path.get('class', '').startswith('arrow')]
    assert len(arrows) == sum(not move.ended for move in make_scope().moves) == 2
    over = dataclasses.replace(make_scope(), moves=make_scope().moves[:3])
    document = parsed.parse(live_page.render_scope(over))
    assert not [path for path in document.of('path') if 'arrow' in path.get('class', '')]


def test_each_scope_can_be_chosen_and_each_plan_that_waits_shown_and_approved():
    document = parsed.parse(live_page.render_overview(make_overview()))
    buttons = document.of('button')
    assert [b['data-show-scope'] for b in buttons if 'data-show-scope' in b] == ['0', '1']
    assert [b['data-show-plan'] for b in buttons if 'data-show-plan' in b] == [made.UUID.format(0)]
    approve, = [b for b in buttons if 'data-approve-plan' in b]
    assert 'hidden' in approve, 'the page shows it to those who may approve'
    assert f'openstack rebalance plan approve {made.UUID.format(0)}' in document.text
    assert 'Approved by' in document.text
    assert document.text.count('Another person must approve') == 1


def test_scope_that_needs_a_look_is_the_one_farthest_above_its_threshold():
    def card(name, before):
        return dataclasses.replace(CARD, name=name, policies=(
            values.PolicyLine('cpu', 0.15, before, None),))

    overview = dataclasses.replace(make_overview(), cards=(
        card('unknown', None), card('calm', 0.1), card('hot', 0.4), card('warm', 0.3)))
    assert overview.find_worst_scope() == 'hot'
    assert dataclasses.replace(overview, cards=()).find_worst_scope() is None


def plan_move(task, before, after):
    return model.Move(task.instance_uuid, task.from_host, task.to_host, task.phase,
                      changes=(model.ScoreChange('p0', *before, *after),))


def test_planned_scores_are_those_after_the_last_task_that_is_not_over():
    tasks = [cases.make_task('plan', from_host='a', to_host='b', state=state)
             for state in (TaskState.COMPLETED, TaskState.QUEUED, TaskState.QUEUED)]
    changes = [((0.9, 0.8), (0.1, 0.2)), ((0.8, 0.7), (0.2, 0.3)), ((0.7, 0.6), (0.3, 0.4))]
    plan = rows.PlanRow('plan', NOW, False, 1, model.Plan('scope', tuple(
        plan_move(task, *change) for task, change in zip(tasks, changes, strict=True))))

    def find(*chosen):
        return live_section._map_planned_scores(
            [rows.TaskRow(task) for task in chosen], {'plan': plan})

    assert find(tasks[1], tasks[2]) == {('a', 'p0'): 0.6, ('b', 'p0'): 0.4}
    assert find(tasks[1]) == {('a', 'p0'): 0.7, ('b', 'p0'): 0.3}
    assert find() == {}
    elsewhere = dataclasses.replace(tasks[2], to_host='c')
    assert find(tasks[1], elsewhere) == {('a', 'p0'): 0.6, ('b', 'p0'): 0.3}, (
        'a task that goes to an alternate tells nothing about the planned destination')


def test_style_sheet_is_that_of_the_report_and_more():
    style = live_page.render_style()
    assert style.startswith(rendering.render_style()) and '.flight' in style
    assert 'url(' not in style and '@import' not in style
