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

"""The live page in a real Chromium, with kronos-api by its uWSGI file and a real Keystone."""

import contextlib
import dataclasses
import datetime
import importlib.util
import itertools
import pathlib
import re
import signal
import time
import urllib.request

import pytest
from selenium.webdriver.common.keys import Keys
import sqlalchemy as sa

from benchmarks import live_page as live_benchmark
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import tables
from tests import ci
from tests.fixtures import chromium
from tests.fixtures import live_page
from tests.integration import test_api
from tests.scenarios import loader
from tests.unit.api import published
from tests.unit.rebalancer.report import made
from tests.unit.rebalancer.store import cases

UNAUTHORISED = r'status of 401'
#: Names that a database takes: no half of a surrogate pair.
STORED_NASTY = [name for name in made.NASTY if '\ud800' not in name]
#: Tables of the published cloud and of the scope that an engine plans.
KEPT = ('executor', 'gate', 'lease', 'reading', 'reading_part', 'reading_scope')
#: Places of the hosts among the squares: the hottest is first, the disabled one last.
A, B, C, D = range(4)
#: The elements that make the page itself wider than the window.
OVERHANG = """
if (document.documentElement.scrollWidth <= innerWidth) return [];
return [...document.querySelectorAll('body *')].filter((element) =>
  element.closest('.wide') === null && element.getBoundingClientRect().right > innerWidth).map(
  (element) => element.outerHTML.slice(0, 150));
"""
#: The source of axe-core; Playwright itself is not needed.
AXE_PACKAGE = 'axe_playwright_python'
TAGS = ('wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice')


@pytest.fixture(scope='module')
def service(tmp_path_factory):
    with test_api.run_service(tmp_path_factory.mktemp('page'), dry_run=False) as service:
        yield service


@pytest.fixture(scope='module')
def driver(tmp_path_factory):
    with chromium.drive(tmp_path_factory.mktemp('chromium')) as driver:
        yield driver


@pytest.fixture(autouse=True)
def emptied(service):
    """The rows of the test before are gone, but for the published cloud."""
    with service.store.engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            if table.name not in KEPT:
                connection.execute(sa.delete(table))


@pytest.fixture
def provoked():
    """Patterns of the messages that a test provokes in the console; each must come."""
    return []


@pytest.fixture
def page(driver, service, provoked):
    page = live_page.LivePage(driver, service.url)
    page.resize(1400)
    page.choose_theme('light')
    page.take_console()
    yield page
    lines = page.take_console()
    page.close()
    assert [line for line in lines
            if not any(re.search(pattern, line) for pattern in provoked)] == []
    assert all(any(re.search(pattern, line) for line in lines) for pattern in provoked)


@pytest.fixture(scope='module')
def large(service):
    """Hosts of a scope of 200 hosts, which is published beside the small one."""
    return live_benchmark.publish_cloud(service.store, 200, 1000)


def save_plan(service, *moves, **more):
    """Store a plan whose tasks wait for approval; a move is (instance, from, to, GiB, fields)."""
    now = service.store.now()
    return cases.save(service.store, [
        lambda plan_id, scope, move=move: cases.make_task(plan_id, scope, **{
            'instance_uuid': loader.uuid_of(move[0]), 'instance_name': move[0],
            'from_host': move[1], 'to_host': move[2], 'memory_mb': 1024 * move[3],
            'alternates': (), 'state': TaskState.PENDING, 'created_at': now, 'not_before': now,
            'deadline': now + 3600, **(move[4] if len(move) > 4 else {})})
        for move in moves], now=now, **more)


def save_moves_under_way(service):
    """Store two moves that an executor has begun: a1 from a to b, x0 from b to c."""
    save_plan(service, ('a1', 'a', 'b', 2, {'state': TaskState.QUEUED}),
              ('x0', 'b', 'c', 8, {'state': TaskState.QUEUED, 'phase': model.Phase.EVACUATE}))
    now = service.store.now()
    for _number in range(2):
        assert cases.claim(service.store, now=now) is not None


def save_failed_moves(service, *moves, **more):
    """Store moves that have failed; the name of an instance is its error."""
    plan_id, _tasks, _plan = save_plan(service, *moves, **more)
    now = service.store.now()
    with service.store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).where(tables.task.c.plan_id == plan_id).values(
            state='failed', completed_at=now, updated_at=now, error=tables.task.c.instance_name))


def sign_in(page, password, user='manager'):
    fields = {'user_name': user, 'password': password, 'project_name': 'operators'}
    for name, text in fields.items():
        page.find(f'#password-form [name={name}]').send_keys(text)
    page.find('#password-form button').click()


def is_signed_out(page):
    return (page.find('#sign-in').is_displayed() and not page.find('#content').is_displayed()
            and page.run('return sessionStorage.getItem(arguments[0])', live_page.TOKEN) is None)


def test_password_of_a_keystone_user_signs_in_and_sign_out_forgets(page):
    page.open()
    page.wait(lambda: page.find('#sign-in').is_displayed())
    assert page.read_focus('name') == 'user_name'
    sign_in(page, test_api.PASSWORD)
    page.wait(lambda: page.run(live_page.READY))
    assert page.find('#who').text.startswith('manager in operators')
    page.wait(lambda: page.read_text('#state') == 'Live')
    assert page.find('#password-form [name=password]').get_property('value') == ''
    assert 'blue' in page.find('#overview').text
    page.find('#sign-out').click()
    assert is_signed_out(page)
    assert page.read_text('#overview') == page.read_text('#scope') == ''


@pytest.mark.turns(3)
def test_wrong_password_is_an_error_and_is_cleared(page, provoked):
    provoked.append(UNAUTHORISED)
    page.open()
    sign_in(page, 'wrong')
    page.wait(lambda: page.find('#notice').is_displayed())
    assert page.read_text('#notice').startswith('Keystone does not admit this user')
    assert page.find('#password-form [name=password]').get_property('value') == ''
    assert page.find('#password-form [name=user_name]').get_property('value') == 'manager'
    assert is_signed_out(page)


def test_pasted_token_signs_in(page, service):
    page.open()
    page.find('#token-form [name=token]').send_keys(f' {service.tokens["reader"]} ', Keys.ENTER)
    page.wait(lambda: page.run(live_page.READY))
    assert page.find('#who').text.startswith('reader in operators')
    assert service.tokens['reader'] not in page.driver.page_source


@pytest.mark.parametrize('while_live', [False, True])
@pytest.mark.turns(3)
def test_invalid_token_leads_back_to_the_sign_in(page, service, provoked, while_live):
    provoked.append(UNAUTHORISED)
    if while_live:
        page.open(service.tokens['reader'])
        page.run('sessionStorage.setItem(arguments[0], "expired")', live_page.TOKEN)
        save_plan(service, ('a1', 'a', 'b', 2))
    else:
        page.open()
        page.find('#token-form [name=token]').send_keys('expired', Keys.ENTER)
    page.wait(lambda: page.find('#notice').is_displayed() and is_signed_out(page))
    assert 'no longer' in page.read_text('#notice')


@pytest.mark.turns(3)
def test_user_of_another_project_reads_why(page, service, provoked):
    provoked.append('status of 403')
    page.open()
    page.find('#token-form [name=token]').send_keys(service.tokens['tenant-manager'], Keys.ENTER)
    page.wait(lambda: page.find('#notice').is_displayed())
    assert 'kronos:right:list' in page.read_text('#notice') and is_signed_out(page)


def test_reader_sees_the_command_and_a_manager_the_button(page, service):
    plan_id, _tasks, _plan = save_plan(service, ('a1', 'a', 'b', 2))
    for user, buttons in (('reader', 0), ('manager', 1)):
        page.open(service.tokens[user])
        page.wait(lambda: f'openstack rebalance plan approve {plan_id}'
                  in page.find('#overview').text)
        assert len(page.list_shown('[data-approve-plan]')) == buttons
        assert page.driver.title == '(1) Kronos'


def test_plan_is_approved_by_keyboard_alone(page, service):
    plan_id, tasks, _plan = save_plan(service, ('a1', 'a', 'b', 2), ('b0', 'b', 'c', 4))
    page.open(service.tokens['manager'])
    page.wait(lambda: plan_id in page.read_text('#overview'))
    seen = []
    while page.read_focus('dataset.approvePlan') != plan_id:
        page.press(Keys.TAB)
        seen.append(page.read_focus('outerHTML')[:80])
        assert len(seen) < 40, seen
    assert 'Skip to the content' in seen[0]
    page.press(Keys.ENTER)
    page.wait(lambda: page.find('#approve').is_displayed())
    assert page.read_focus('name') == 'reason'
    assert '2 moves' in page.read_text('#approve-text')
    page.press('night shift', Keys.TAB, Keys.ENTER)
    page.wait(lambda: not page.find('#approve').is_displayed())
    page.wait(lambda: page.read_text('#announce') == '2 tasks may begin.')
    page.wait(lambda: not page.find_all('[data-approve-plan]'))
    assert {service.store.tasks.find_task(task.task_id).task.state for task in tasks} == {
        TaskState.QUEUED}
    entry = service.store.audit.list_newest_entries(1)[0]
    assert entry.by.startswith('keystone:') and entry.by.endswith('(manager)')
    assert entry.reason == 'night shift'
    # The focus is not lost with the button.
    assert page.read_focus('tagName') != 'BODY'


@pytest.mark.turns(3)
def test_dialog_shows_the_error_of_a_plan_that_is_no_longer_there(page, service, provoked):
    provoked.append('status of 4')
    plan_id, _tasks, _plan = save_plan(service, ('a1', 'a', 'b', 2))
    page.open(service.tokens['manager'])
    page.click_shown(f'[data-approve-plan="{plan_id}"]')
    with service.store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(state='cancelled'))
    page.find('#approve button.main').click()
    page.wait(lambda: page.find('#approve .notice').is_displayed())
    assert page.read_text('#approve .notice')
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.find('#approve').is_displayed())


@pytest.mark.turns(3)
def test_page_shows_what_comes_later_without_a_reload(page, service):
    page.open(service.tokens['reader'])
    page.run('window.kept = true')
    plan_id, _tasks, _plan = save_plan(service, ('w0', 'a', 'b', 2))
    page.wait(lambda: plan_id in page.find('#overview').text)
    page.wait(lambda: page.list_shown('tr[data-move]'))
    assert page.driver.title == '(1) Kronos'
    save_failed_moves(service, ('b0', 'b', 'c', 2))
    page.wait(lambda: loader.uuid_of('b0') in page.find('#failures').text)
    save_moves_under_way(service)
    page.wait(lambda: len(page.find_all('svg.squares .flight')) == 4)
    assert page.run('return window.kept')


def test_refresh_right_after_an_event_does_not_hide_what_the_event_tells(page, service):
    """The service gives the same view for a second: a reader who comes back gets the one before."""
    page.open(service.tokens['reader'])
    page.wait(lambda: page.read_text('#state') == 'Live')
    for _try in range(3):
        # Without a refresh of its own that is due.
        time.sleep(2.5)
        page.refresh()
        time.sleep(0.3)
        plan_id, _tasks, _plan = save_plan(service, (f'w{_try}', 'a', 'b', 2))
        page.run('setTimeout(() => document.dispatchEvent(new Event("visibilitychange")), 450)')
        page.wait(lambda plan=plan_id: plan in page.read_text('#overview'), seconds=10)


@pytest.mark.turns(3)
def test_details_focus_and_scroll_survive_a_refresh(page, service):
    save_plan(service, *((f'x{number}', 'a', 'b', 2) for number in range(45)))
    page.open(service.tokens['manager'])
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 45)
    page.run('document.querySelector("#scope details").open = true;'
             'document.querySelector("#scope details .wide").focus(); scrollTo(0, 700)')
    place = page.run('return scrollY')
    assert place > 300
    plan_id, _tasks, _plan = save_plan(service, *((f'y{number}', 'b', 'c', 2)
                                                  for number in range(2)))
    page.wait(lambda: plan_id in page.read_text('#overview'))
    page.wait(lambda: loader.uuid_of('y1') in page.read_text('#scope'))
    assert page.run('return document.querySelector("#scope details").open')
    assert page.run('return document.activeElement === document.querySelector('
                    '"#scope details .wide")')
    shift = page.run('return scrollY') - place
    # A new plan stands above: the browser keeps the same rows below the eye.
    assert 0 <= shift < 400


@pytest.mark.turns(3)
def test_typed_text_and_focus_of_forms_survive_a_refresh(page, service):
    page.open(service.tokens['manager'])
    page.find('#check-form [name=host]').send_keys('a')
    page.find('#filters [name=host]').send_keys('b')
    plan_id, _tasks, _plan = save_plan(service, ('a1', 'a', 'b', 2))
    page.wait(lambda: plan_id in page.read_text('#overview'))
    assert page.find('#check-form [name=host]').get_property('value') == 'a'
    assert page.find('#filters [name=host]').get_property('value') == 'b'
    assert page.run('return document.activeElement.form.id') == 'filters'


@pytest.mark.turns(3)
def test_hover_over_a_square_lights_its_moves_and_the_other_hosts(page, service):
    save_moves_under_way(service)
    page.open(service.tokens['reader'], 'blue')
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 2)
    page.point_at_square(A)
    assert page.list_marked_squares() == page.list_marked_squares(1) == {A, B}
    assert page.list_move_names('.lit') == {'a1'} and page.list_lit_hosts() == {A, B}
    assert page.find('#tip').is_displayed() and page.read_text('#tip').startswith('a: 2 instances')
    page.point_at_square(B, 1)
    assert page.list_marked_squares() == {A, B, C} and page.list_move_names('.lit') == {'a1', 'x0'}
    assert len(page.find_all('.flight.lit')) == 4
    page.point_at(2, 2)
    assert page.list_marked_squares() == page.list_move_names('.lit') == set()
    assert not page.find('#tip').is_displayed()


@pytest.mark.turns(3)
def test_hover_over_a_move_or_host_row_lights_both_ends(page, service):
    save_moves_under_way(service)
    page.open(service.tokens['reader'], 'blue')
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 2)
    (number,) = [row.get_attribute('data-move') for row in page.find_all('tr[data-move]')
                 if 'x0' in row.text]
    page.point_at_element(f'tr[data-move="{number}"] td')
    assert page.list_move_names('.lit') == {'x0'} and page.list_lit_hosts() == {B, C}
    assert page.list_marked_squares() == {B, C}
    page.point_at_element(f'tr[data-host="{A}"] th')
    assert page.list_move_names('.lit') == {'a1'} and page.list_marked_squares() == {A, B}


@pytest.mark.turns(3)
def test_arrow_keys_move_the_cursor_and_say_the_host(page, service):
    save_moves_under_way(service)
    page.open(service.tokens['reader'], 'blue')
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 2)
    page.run('document.querySelector("svg.squares").parentElement.focus()')
    said = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT,
                Keys.ARROW_LEFT, Keys.ARROW_LEFT):
        page.press(key)
        said.append(page.read_text('#announce')[:2])
    assert said == ['a:', 'b:', 'c:', 'b:', 'a:', 'a:']
    assert page.list_marked_squares() == {A, B}
    assert 'a1: a to b, spread' in page.read_text('#announce')
    page.press(Keys.ENTER)
    assert page.find('#check-form [name=host]').get_property('value') == 'a'
    page.press(Keys.ESCAPE)
    assert page.list_marked_squares() == set()


@pytest.mark.turns(3)
def test_filters_by_host_phase_state_and_memory(page, service):
    save_moves_under_way(service)
    page.open(service.tokens['reader'], 'blue')
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 2)

    host = page.find('#filters [name=host]')
    host.send_keys('A')
    assert page.find('#matches').text == '1 host and 1 move match.'
    assert page.list_move_names() == {'a1'}
    assert {row.get_attribute('data-host') for row in page.list_shown('tr[data-host]')} == {str(A)}
    assert page.find('#found').text.startswith('a: cpu 0.80 now')
    assert len(page.list_shown('.flight')) == 2
    assert page.run('return document.querySelector("svg.squares .dim").getAttribute("d")'
                    '.match(/M/g).length') == 3
    page.find('#filters [type=reset]').click()
    page.wait(lambda: page.list_move_names() == {'a1', 'x0'})
    for phase, shown in (('evacuate', {'x0'}), ('spread', {'a1'})):
        select = page.find('#filters [name=phase]')
        select.send_keys(Keys.ARROW_DOWN)
        assert select.get_property('value') == phase
        assert page.list_move_names() == shown
    page.find('#filters [type=reset]').click()
    page.wait(lambda: page.list_move_names() == {'a1', 'x0'})
    page.find('#filters [name=memory]').send_keys('7.5')
    assert page.list_move_names() == {'x0'}
    # A refresh keeps the filter.
    save_plan(service, ('c1', 'c', 'd', 1))
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 3)
    assert page.list_move_names() == {'x0'}


@pytest.mark.turns(3)
def test_pattern_in_a_filter_is_a_text(page, service):
    page.open(service.tokens['reader'], 'blue')
    for text in ('.*', '[', '<b>', '\\'):
        page.find('#filters [name=host]').clear()
        page.find('#filters [name=host]').send_keys(text)
        assert page.find('#matches').text == '0 hosts and 0 moves match.'


@contextlib.contextmanager
def instance_on_d(service):
    """Publish a reading with an instance on the disabled host, and afterwards one without."""
    publisher, uuid = service.publisher, loader.uuid_of('c0')
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(cluster, instances={
        **cluster.instances, uuid: dataclasses.replace(cluster.instances[uuid], host='d')})
    publisher.run_cycle()
    try:
        yield
    finally:
        publisher.collector.cluster = cluster
        publisher.run_cycle()


@pytest.mark.turns(3)
def test_deadline_of_a_drain_is_shown_and_late_once_it_has_passed(page, service):
    store = service.publisher.store
    due = float(int(store.now()) + 7200)
    try:
        with instance_on_d(service):
            cases.order_drain(store, 'd', due, 'new disks')
            page.open(service.tokens['reader'], 'blue')
            text = datetime.datetime.fromtimestamp(due, datetime.UTC).strftime('%F %T')
            page.wait(lambda: f'its deadline is {text} UTC' in page.read_text('#drains tbody'))
            cases.order_drain(store, 'd', 1577836800.0, 'new disks')
            page.open(service.tokens['reader'], 'blue')
            page.wait(lambda: 'late: its deadline was 2020-01-01 00:00:00 UTC'
                      in page.read_text('#drains tbody'))
    finally:
        store.drain_orders.end_orders(['d'])


@pytest.mark.turns(3)
def test_drains_are_listed_and_a_manager_may_stop_them(page, service):
    page.open(service.tokens['reader'], 'blue')
    page.wait(lambda: page.read_text('#drains tbody th') == 'd')
    assert not page.find_all('#drains tbody button')
    page.open(service.tokens['manager'], 'blue')
    page.click_shown('#drains tbody button')
    dialog = page.wait(lambda: page.list_shown('#stop-drain')).pop()
    assert 'Nova enables host d.' in dialog.text
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.list_shown('#stop-drain'))


@pytest.mark.turns(3)
def test_focus_in_the_list_of_drains_survives_a_change_of_the_list(page, service):
    page.open(service.tokens['manager'], 'blue')
    # A process of the service may still show the reading of the test before.
    page.wait(lambda: page.refresh() or page.find('#drains tbody td:nth-of-type(2)').text == '0')
    page.run('document.querySelector("#drains tbody button").focus()')
    page.run('window.kept = document.activeElement')
    with instance_on_d(service):
        page.wait(lambda: page.refresh()
                  or page.find('#drains tbody td:nth-of-type(2)').text == '1')
    assert page.read_focus('innerText') == 'Stop…'
    assert page.run('return document.activeElement !== window.kept')


def read_certificate(page, name):
    """Check the drain of a host; return the text of its certificate."""
    page.run('document.querySelector("#certificate").replaceChildren()')
    page.find('#check-form [name=host]').clear()
    page.find('#check-form [name=host]').send_keys(name, Keys.ENTER)
    page.wait(lambda: f'Drain of {name} is' in page.read_text('#certificate'))
    return page.read_text('#certificate')


def test_drain_is_checked_before_it_can_be_started(page, service, provoked):
    provoked.append('status of 404')
    page.open(service.tokens['manager'])
    page.find('#check-form [name=host]').send_keys('nowhere', Keys.ENTER)
    page.wait(lambda: 'nowhere' in page.read_text('#certificate')
              and page.find_all('#certificate .bad'))
    # The service may still show the reading of the test before, with another place of c0.
    page.wait(lambda: 'Drain of c is not possible' in read_certificate(page, 'c'))
    assert 'its device cannot move' in page.read_text('#certificate')
    assert not page.find_all('#certificate button.main')


@pytest.mark.turns(3)
def test_late_error_of_one_check_does_not_replace_the_certificate_of_the_next(
        page, service, provoked):
    provoked.append('status of 404')
    page.open(service.tokens['manager'])
    page.run('const ask = fetch; window.fetch = async (url, options) => {'
             '  const answer = await ask(url, options);'
             '  if (!String(url).includes("nowhere")) return answer;'
             '  await new Promise((go) => { window.answer = go; });'
             '  setTimeout(() => { window.answered = true; }, 300);'
             '  return answer; }')
    page.find('#check-form [name=host]').send_keys('nowhere', Keys.ENTER)
    page.wait(lambda: page.run('return "answer" in window'))
    assert 'Drain of a is' in read_certificate(page, 'a')
    page.run('window.answer()')
    page.wait(lambda: page.run('return window.answered'))
    assert 'Drain of a is' in page.read_text('#certificate')


def test_check_names_the_shutdown_of_a_late_instance_or_why_not(page, service, tmp_path):
    """An engine with the option on publishes the cloud for a while."""
    uuid = loader.uuid_of('a1')
    published.end_move(service.store, uuid, 'a', 'b', TaskState.FAILED,
                       phase=model.Phase.EVACUATE, error_type='MigrationTimeout',
                       quarantine_seconds=3600.0)
    page.open(service.tokens['manager'])
    assert (f'{uuid} is not shut down after its late live migration: [engine] drain_offline is '
            'never; remedy: ') in read_certificate(page, 'a')
    assert any('[engine] drain_offline is never' in isolated.text
               for isolated in page.find_all('#certificate li bdi')), 'it may contain a reason'
    publisher = published.Publisher(service.store, tmp_path, dry_run=False)
    loads, publisher.source._hosts = publisher.source._hosts, dict.fromkeys('abcd', 0.3)
    done = 'shut down, moved cold and started again'
    try:
        publisher.conf.set_override('drain_offline', 'allow', 'engine')
        publisher.run_cycle()
        page.wait(lambda: done in read_certificate(page, 'a'))
        text = page.read_text('#certificate')
    finally:
        publisher.conf.clear_override('drain_offline', 'engine')
        publisher.source._hosts = loads
        publisher.run_cycle()
    assert f'{uuid} is {done}: its live migration was late' in text
    assert re.search(f'{uuid} moves to . in wave 0, offline', text), text
    page.find('#certificate button.main').click()
    page.wait(lambda: page.find('#drain').is_displayed())
    assert f'1 instance is {done}.' in page.read_text('#drain')
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.find('#drain').is_displayed())


def test_approval_names_the_shutdowns_before_it_is_given(page, service):
    plan_id, _tasks, _plan = save_plan(
        service, ('a1', 'a', 'b', 2, {'method': model.MoveMethod.OFFLINE}), ('x0', 'b', 'c', 2))
    page.open(service.tokens['manager'])
    page.click_shown(f'[data-approve-plan="{plan_id}"]')
    page.wait(lambda: page.find('#approve').is_displayed())
    text = '1 instance will be shut down, moved cold and started again.'
    assert text in page.read_text('#approve') and text in page.find('#overview').text
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.find('#approve').is_displayed())


@pytest.mark.turns(3)
def test_page_is_not_live_while_the_service_is_down_and_then_live_again(page, service, provoked):
    provoked.append('ERR_(CONNECTION|EMPTY_RESPONSE)')
    page.open(service.tokens['reader'])
    page.wait(lambda: page.read_text('#state') == 'Live')
    service.stop(signal.SIGQUIT)
    try:
        page.wait(lambda: page.read_text('#state').startswith('Not live'))
        assert 'blue' in page.find('#overview').text
    finally:
        service.start()
    page.wait(lambda: page.read_text('#state') == 'Live')
    plan_id, _tasks, _plan = save_plan(service, ('a1', 'a', 'b', 2))
    page.wait(lambda: plan_id in page.find('#overview').text)
    page.wait(lambda: not page.find('#notice').is_displayed())


def test_files_have_a_strict_policy_and_no_inline_code(service):
    for name, kind in (('', 'text/html'), ('page.js', 'text/javascript'), ('page.css', 'text/css'),
                       ('icon.svg', 'image/svg+xml')):
        with urllib.request.urlopen(f'{service.url}/page/{name}', timeout=30) as answer:
            headers, body = answer.headers, answer.read().decode()
        policy = dict(part.split(' ', 1) for part in headers['Content-Security-Policy'].split('; '))
        assert policy['default-src'] == policy['frame-ancestors'] == "'none'"
        assert policy['script-src'] == policy['style-src'] == policy['connect-src'] == "'self'"
        assert headers['X-Content-Type-Options'] == 'nosniff'
        assert headers['Referrer-Policy'] == 'no-referrer'
        assert headers['Cross-Origin-Opener-Policy'] == 'same-origin'
        assert headers['Content-Type'] == f'{kind}; charset=utf-8'
        if not name:
            assert not re.search(r'<script(?! type="module" src="page.js"></script>)|<style| style='
                                 r'| on\w+=', body)


def test_names_of_tenants_are_text(page, service):
    save_failed_moves(service, *((f'f{number}', 'a', 'b', 2, {
        'instance_name': name, 'from_host': name, 'to_host': f'to {name}'})
        for number, name in enumerate(STORED_NASTY)))
    plan_id, _tasks, _plan = save_plan(service, *((f'x{number}', 'a', 'b', 2, {
        'instance_name': name, 'from_host': name, 'to_host': 'b'})
        for number, name in enumerate(STORED_NASTY)))
    page.open(service.tokens['manager'], 'blue')
    page.wait(lambda: len(page.find_all('tr[data-move]')) >= len(STORED_NASTY))
    for part in ('#failures', '#scope'):
        assert '<script>document.title = "owned"</script>' in page.read_text(part)
    page.click_shown(f'[data-show-plan="{plan_id}"]')
    page.wait(lambda: page.find('#plan-view').is_displayed())
    page.point_at_element('tr[data-move="1"] td')
    assert page.driver.title == '(1) Kronos'
    assert page.run('return document.querySelectorAll("#content script, #content img, '
                    '#content style, #content [onload], #content [onmouseover]").length') == 0


@pytest.fixture(scope='module')
def axe():
    found = importlib.util.find_spec(AXE_PACKAGE)
    if found is None:
        ci.missing(AXE_PACKAGE)
    return (pathlib.Path(found.submodule_search_locations[0]) / 'axe.min.js').read_text()


def save_everything(service, hosts, scope='blue'):
    """Store a waiting plan, moves under way, failed tasks and a pause; return the plan's UUID."""
    first, *others = hosts
    save_plan(service, (f'{scope} a1', first, others[0], 2, {'state': TaskState.QUEUED}),
              (f'{scope} x0', others[0], others[1], 8, {
                  'state': TaskState.QUEUED, 'phase': model.Phase.EVACUATE}), scope=scope)
    with service.store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).where(
            tables.task.c.state == 'queued').values(state='submitted'))
    save_failed_moves(service, (f'{scope} f0', first, others[1], 2), scope=scope)
    waiting, _tasks, _plan = save_plan(
        service, (f'{scope} w0', first, others[1], 2), (f'{scope} w1', first, others[0], 4),
        scope=scope)
    service.store.pauses.pause_scope(scope, service.store.now(), seconds=None, paused_by='ops',
                                     reason='firmware')
    return waiting


def list_violations(page, axe):
    """Return what axe-core finds on the page as it is, small and large, in both themes."""
    found = []
    for width, theme in itertools.product((320, 1400), ('light', 'dark')):
        page.resize(width)
        page.choose_theme(theme)
        found += [f'{width} {theme} {line}' for line in page.list_violations(axe, TAGS)]
    return found


def test_axe_finds_nothing_on_the_sign_in(page, axe):
    page.open()
    page.wait(lambda: page.find('#sign-in').is_displayed())
    assert list_violations(page, axe) == []


def test_axe_finds_a_missing_label(page, axe):
    page.open()
    page.run('document.querySelector("#token-form label").replaceWith('
             'document.querySelector("#token-form input"))')
    assert any(' label: <input name="token"' in line for line in list_violations(page, axe))


@pytest.mark.parametrize('scope', ['blue', live_benchmark.SCOPE])
@pytest.mark.turns(3)
def test_axe_finds_nothing_on_a_page_with_everything(page, service, axe, large, scope):
    hosts = published.HOSTS if scope == 'blue' else large
    plan_id = save_everything(service, hosts, scope)
    page.open(service.tokens['manager'], scope)
    page.wait(lambda: len(page.find_all('tr[data-move]')) == 5)
    assert list_violations(page, axe) == []
    page.click_shown(f'[data-show-plan="{plan_id}"]')
    page.find('#filters [name=host]').send_keys(hosts[0])
    page.find('#check-form [name=host]').send_keys(hosts[1], Keys.ENTER)
    page.wait(lambda: page.find('#plan-view').is_displayed()
              and page.find_all('#certificate button'))
    assert list_violations(page, axe) == []
    page.click_shown(f'[data-approve-plan="{plan_id}"]')
    page.wait(lambda: page.find('#approve').is_displayed())
    assert list_violations(page, axe) == []
    page.press(Keys.ESCAPE)
    page.find('#drains tbody button').click()
    page.wait(lambda: page.find('#stop-drain').is_displayed())
    assert list_violations(page, axe) == []
    page.press(Keys.ESCAPE)
    open_start(page, hosts)
    assert list_violations(page, axe) == []
    page.press(Keys.ESCAPE)
    page.find('#sign-out').click()


def open_start(page, hosts):
    """Open the dialog that starts a drain, for the first host that can be emptied."""
    for host in hosts:
        page.find('#check-form [name=host]').clear()
        page.find('#check-form [name=host]').send_keys(host, Keys.ENTER)
        page.wait(lambda name=host: f'Drain of {name} is' in page.read_text('#certificate'))
        for button in page.list_shown('#certificate button.main'):
            button.click()
            page.wait(lambda: page.find('#drain').is_displayed())
            return
    raise AssertionError(hosts)


@pytest.mark.turns(3)
def test_dialogs_of_drains_are_reached_and_left_by_keyboard(page, service):
    page.open(service.tokens['manager'], 'blue')
    page.wait(lambda: page.list_shown('#drains tbody button'))
    open_start(page, published.HOSTS)
    assert page.read_focus('name') == 'reason'
    page.press('new firmware', Keys.TAB)
    assert page.read_focus('name') == 'approve'
    page.press(Keys.SPACE, Keys.TAB)
    assert page.read_focus('value') == 'start'
    page.press(Keys.TAB)
    assert page.read_focus('value') == 'cancel'
    page.press(Keys.ENTER)
    page.wait(lambda: not page.find('#drain').is_displayed())
    assert page.read_focus('innerText') == 'Start drain…'
    page.driver.execute_script('document.querySelector("#drains tbody button").focus()')
    page.press(Keys.ENTER)
    page.wait(lambda: page.find('#stop-drain').is_displayed())
    assert page.read_focus('value') == 'stop'
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.find('#stop-drain').is_displayed())
    assert page.read_focus('innerText') == 'Stop…'


def list_overhangs(page):
    found = []
    for width in (320, 768, 1400, 3840):
        page.resize(width)
        found += [f'{width} {element}' for element in page.run(OVERHANG)]
    return found


@pytest.mark.turns(3)
def test_page_does_not_scroll_sideways(page, service, large):
    """No text or table is wider than the page; a wide table has its own scroll bar."""
    page.open()
    page.wait(lambda: page.find('#sign-in').is_displayed())
    assert list_overhangs(page) == []
    for scope, hosts in (('blue', published.HOSTS), (live_benchmark.SCOPE, large)):
        plan_id = save_everything(service, hosts, scope)
        page.open(service.tokens['manager'], scope)
        page.wait(lambda: len(page.find_all('tr[data-move]')) == 5)
        page.click_shown(f'[data-show-plan="{plan_id}"]')
        page.wait(lambda: page.find('#plan-view').is_displayed())
        assert list_overhangs(page) == []
