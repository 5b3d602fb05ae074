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

"""Tables fit 100 columns, colours need a terminal, and names of tenants stay harmless."""

import io
import json
import re
import sys
import time
import types

from cliff import utils as cliff_utils
import pytest
import wcwidth

from kronos_nova import activity
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.osc import client
from kronos_nova.osc import drain
from tests.fixtures import terminals
from tests.unit.rebalancer.store import cases

WIDTH = 100
#: As long as Nova and the database take them; two of them fill two cells a character.
LONG = {'host': 'compute-' + 'h' * 240 + '.example', 'wide': '\u8a08\u7b97' * 120,
        'scope': 'rack-' + 's' * 200, 'evil': 'web\x1b]0;x\x07\x1b[31m\n\r\u202e\x00-1'}


@pytest.fixture
def crowded(store):
    """A database with long names in all places that a table shows; (plan, claimed task)."""
    now = store.now()

    def make_task(plan_id, scope, **more):
        return cases.make_task(plan_id, scope, from_host=LONG['host'], to_host=LONG['wide'],
                               created_at=now, not_before=now, alternates=(LONG['host'],), **more)

    makes = [lambda plan_id, scope: make_task(plan_id, scope, instance_name=LONG['evil']),
             lambda plan_id, scope: make_task(plan_id, scope, instance_name=LONG['wide'],
                                              state=TaskState.PENDING)]
    plan_id = cases.new_id()
    tasks = [make(plan_id, LONG['scope']) for make in makes]
    plan = model.Plan(
        LONG['scope'], tuple(model.Move(
            task.instance_uuid, task.from_host, task.to_host, task.phase, gain=0.2,
            changes=(model.ScoreChange('cpu', 0.5, 0.4, 0.1, 0.2),)) for task in tasks),
        policies=(model.PolicyReport('p' * 250, 0.4, 0.1, 0.15, age=12.0),),
        warnings=('the ' + 'very ' * 60 + 'long warning',), rejections={'claims': 3},
        reason='r' * 200, draining=frozenset({LONG['host']}),
        held=(model.Rejection('cooldown', LONG['wide']),))
    lease = store.leases.acquire_lease(LONG['scope'], 'engine-' + 'e' * 200, 3600, 'hash')
    store.plans.save_plan(lease, plan, tasks, plan_id=plan_id, now=now, dry_run=False, cooldown=0,
                          instance_cooldown=0)
    claimed = cases.claim(store, now=now + 1)
    store.pauses.pause_scope(LONG['scope'], now, seconds=3600, paused_by='o' * 255,
                             reason='because ' * 30)
    store.quarantine.count_refusal(LONG['host'], now, limit=1, seconds=60, reason='full ' * 40)
    campaign_id = cases.new_id()
    store.campaigns.create_campaign(model.Campaign(
        campaign_id, LONG['scope'], f'{"r" * 190} [campaign {campaign_id}]', 1, now, 'o' * 255,
        hosts=tuple(model.CampaignHost(name, n, since=now)
                    for n, name in enumerate((LONG['host'], LONG['wide'])))), 'x')
    store.campaigns.pause_campaign(lease, campaign_id, 'o' * 255, 'because ' * 60)
    return plan_id, claimed.task.task_id


def list_commands(plan_id, task_id):
    yield from (('scope', 'list'), ('scope', 'show', LONG['scope']), ('plan', 'list'),
                ('plan', 'show', plan_id), ('task', 'list'), ('task', 'show', task_id),
                ('pause', 'list'), ('quarantine', 'list'), ('campaign', 'list'),
                ('campaign', 'show'),
                ('pause', 'create', '--scope', LONG['scope'], '--reason', 'x ' * 400),
                ('plan', 'approve', plan_id), ('task', 'cancel', task_id, '--reason', 'x'))


def test_tables_fit_a_hundred_columns(openstack, crowded):
    for arguments in list_commands(*crowded):
        status, output, error = openstack.run(*arguments)
        lines = output.splitlines()
        widths = {wcwidth.wcswidth(line) for line in lines}
        assert status == 0 and len(lines) > 3, error
        assert len(widths) == 1 and max(widths) <= WIDTH, (arguments, widths)
        assert all(c.isprintable() or c == '\n' for c in output)


def test_long_tables_and_formats_for_programs_have_whole_names(openstack, crowded):
    for arguments in (('task', 'list', '--long'), ('task', 'list', '-f', 'json'),
                      ('task', 'list', '-f', 'value')):
        output = openstack.read(*arguments)
        assert LONG['host'] in output
    assert '...' in openstack.read('task', 'list')


def test_names_of_tenants_are_printable_in_every_format(openstack, crowded):
    shown = 'web?]0;x??[31m????-1'
    for form in ('table', 'json', 'yaml', 'csv', 'value'):
        output = openstack.read('task', 'list', '--long', '-f', form)
        assert shown in output and all(c.isprintable() or c in '\r\n' for c in output)
    names = {row['Instance'] for row in json.loads(openstack.read('task', 'list', '-f', 'json'))}
    assert shown in names


def test_keys_that_print_alike_stay_two():
    assert client.make_printable({'a\x1b': [1], 'a\x07': ['b\n'], 'c': {'d': None}}) == {
        'a?': [1], 'a??': ['b?'], 'c': {'d': None}}


class Terminal(io.StringIO):
    """A standard output that says that it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(('setting', 'more', 'coloured'), [
    (('TERM', 'xterm'), (), True), (('NO_COLOR', '1'), (), False), (('TERM', 'dumb'), (), False),
    (('TERM', 'xterm'), ('--max-width', '80'), True),
    (('TERM', 'xterm'), ('-f', 'json'), False)])
def test_colours_need_a_terminal_and_a_word(openstack, crowded, monkeypatch, setting, more,
                                            coloured):
    plain = openstack.read('task', 'list', *more)
    assert '\x1b' not in plain
    monkeypatch.delenv('NO_COLOR', raising=False)
    monkeypatch.setenv(*setting)
    terminal = Terminal()
    monkeypatch.setattr(sys, 'stdout', terminal)
    openstack.read('task', 'list', *more)
    assert ('\x1b[33mpending\x1b[0m' in terminal.getvalue()) is coloured
    assert re.sub(r'\x1b\[\d+m', '', terminal.getvalue()) == plain


def test_a_terminal_sees_that_the_service_has_not_answered_yet(openstack, server, monkeypatch):
    monkeypatch.setattr(activity, 'INTERVAL', 0.05)
    monkeypatch.setattr(server, 'answer', answer_late)
    for arguments, shown in ((('scope', 'list'), True),
                             (('task', 'show', 'abcd', '--wait'), False)):
        terminal = terminals.Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, 'stderr', terminal.stream)
            openstack.run(*arguments)
        assert ('Waiting for kronos-api, ' in terminal.close()) is shown
    assert openstack.run('scope', 'list')[2] == ''


def test_a_command_with_a_bar_leaves_the_line_of_an_earlier_command_alone():
    """A shell keeps the client from one command to the next."""
    earlier = activity.ActivityLine(None)
    kept = types.SimpleNamespace(show_work=earlier.show_work)
    app = types.SimpleNamespace(client_manager=types.SimpleNamespace(rebalance=kept))
    watch = drain.WatchDrain(app, None)
    assert watch.client is kept and kept.show_work != earlier.show_work


def answer_late(environ, start_response):
    time.sleep(0.3)
    start_response('200 OK', [('Content-Type', 'application/json')])
    return [b'{"scopes": [], "tasks": [], "next": null}']


def test_a_terminal_of_any_width_shows_the_same_text_with_colours(openstack, crowded, monkeypatch):
    monkeypatch.delenv('NO_COLOR', raising=False)
    monkeypatch.setenv('TERM', 'xterm')
    for columns in (40, 80, 100, 200):
        shown = {}
        for colours in (False, True):
            if not colours:
                monkeypatch.setenv('NO_COLOR', '1')
            else:
                monkeypatch.delenv('NO_COLOR')
            terminal = terminals.Terminal(columns)
            with monkeypatch.context() as patch:
                patch.setattr(sys, 'stdout', terminal.stream)
                patch.setattr(cliff_utils, 'terminal_width', lambda columns=columns: columns)
                openstack.read('task', 'list')
            shown[colours] = terminal.close()
        assert '\x1b[33m' in shown[True]
        assert re.sub(r'\x1b\[\d+m', '', shown[True]) == shown[False]
        assert all(c.isprintable() or c == '\n' for c in shown[False])
