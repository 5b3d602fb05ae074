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


"""Tables of ``kronos``: colours on a terminal alone, and no orders to it in names."""

import argparse
import os
import re
import subprocess
import sys

import pytest
import wcwidth

from kronos_nova.cli import command
from kronos_nova.cli import status
from tests import commands
from tests.fixtures import stores
from tests.fixtures import terminals
from tests.unit.cli import test_planned
from tests.unit.osc import test_tables

crowded = test_tables.crowded
PROGRAM = 'import sys; from kronos_nova.cli.app import main; sys.exit(main())'


@pytest.fixture
def store(tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    (tmp_path / 'kronos.conf').write_text(
        f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n')
    yield store
    store.close()


def run(tmp_path, *arguments):
    """Return the standard output of a command that must succeed; it is no terminal."""
    done = commands.main('kronos_nova.cli.app', *arguments, '--config-file',
                         tmp_path / 'kronos.conf')
    assert (done.returncode, done.stderr) == (0, '')
    return done.stdout


def read_terminal(tmp_path, *arguments, **settings):
    """Return what a terminal is sent by a command that must succeed."""
    environment = {**os.environ, 'TERM': 'xterm', **settings}
    if 'NO_COLOR' not in settings:
        environment.pop('NO_COLOR', None)
    terminal = terminals.Terminal(2000)
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', PROGRAM, *arguments, '--config-file',
         tmp_path / 'kronos.conf'], stdout=terminal.stream, stderr=subprocess.PIPE, check=False,
        env=environment)
    assert (done.returncode, done.stderr) == (0, b'')
    return terminal.close()


def list_commands(plan_id, task_id):
    return [('status',), ('plan', 'list'), ('plan', 'show', plan_id), ('task', 'list'),
            ('task', 'show', task_id), ('pause', 'list'), ('quarantine', 'list'),
            ('campaign', 'status')]


def test_a_terminal_gets_the_plain_table_with_colours_beside_the_words(crowded, tmp_path):
    arguments = ('task', 'list')
    shown = read_terminal(tmp_path, *arguments)
    plain = read_terminal(tmp_path, *arguments, NO_COLOR='1')
    assert '\x1b[33mpending\x1b[0m' in shown and '\x1b[36mclaimed\x1b[0m' in shown
    assert '\x1b' not in plain and re.sub(r'\x1b\[\d+m', '', shown) == plain
    assert '\x1b' not in read_terminal(tmp_path, *arguments, '-f', 'value')
    assert '\x1b' not in run(tmp_path, *arguments)


def test_names_and_reasons_give_a_terminal_no_orders(crowded, store, tmp_path):
    evil = 'h\x1b]0;x\x07\x1b[31m\r\u202e'
    store.quarantine.count_refusal(evil, store.now(), limit=1, seconds=60, reason=evil)
    store.pauses.pause_scope(None, store.now(), seconds=60, paused_by=evil, reason=evil)
    for arguments in list_commands(*crowded):
        for form in ('table', 'value'):
            shown = run(tmp_path, *arguments, '-f', form)
            assert all(c.isprintable() or c == '\n' for c in shown), arguments
    for arguments in (('pause', 'list'), ('quarantine', 'list')):
        assert 'h?]0;x??[31m??' in run(tmp_path, *arguments)


def test_a_cell_of_a_table_has_no_control_character_but_ends_of_lines():
    for form in ('table', 'csv', 'value'):
        arguments = argparse.Namespace(formatter=form)
        assert command.format_cells(arguments, ('a\x1b[2J\n\x9bb', None, 3, True)) == (
            'a?[2J\n?b', '', 3, True)
    arguments = argparse.Namespace(formatter='json')
    assert command.format_cells(arguments, ('a\x1b',)) == ('a\x1b',)


def measure(output):
    widths = {wcwidth.wcswidth(line) for line in output.splitlines()}
    assert len(widths) == 1, output
    return widths.pop()


def test_tables_fit_a_hundred_columns_and_wide_ones_have_all(crowded, tmp_path):
    plan_id, task_id = crowded
    for arguments in list_commands(plan_id, task_id):
        shown = run(tmp_path, *arguments)
        assert measure(shown) <= test_tables.WIDTH, arguments
    assert measure(run(tmp_path, 'status', '--wide')) > 1000
    narrow, wide = (run(tmp_path, 'task', 'list', *more).splitlines()[1].split()
                    for more in ((), ('--wide',)))
    assert 'Task' in narrow and 'Instance' not in narrow and {'Instance', 'Method'} <= set(wide)
    assert measure(run(tmp_path, 'task', 'list', '-c', 'Instance')) == 40
    for width, head in ((500, False), (5000, True)):
        shown = run(tmp_path, 'task', 'list', '--max-width', width)
        assert ('| Instance' in shown) is head and measure(shown) <= width
    assert 'Method' in run(tmp_path, 'task', 'list', '-f', 'csv').splitlines()[0]
    assert task_id in run(tmp_path, 'task', 'list')


@pytest.mark.parametrize('arguments', [
    'host list', 'drain list', 'why-nothing', 'what-if --drain compute-01',
    'drain check compute-07',
    'failover check', 'campaign plan compute-01 compute-02'])
def test_answers_about_a_cloud_fit_a_hundred_columns(arguments):
    shown = test_planned.ask(*arguments.split()).stdout
    assert 60 < measure(shown) <= test_tables.WIDTH
    assert measure(test_planned.ask(*arguments.split(), '--wide').stdout) >= measure(shown)


def test_status_of_one_scope_is_vertical_and_whole(store, tmp_path):
    lines = run(tmp_path, 'status').splitlines()
    assert lines[1].split() == ['|', 'Field', '|', 'Value', '|']
    assert [line.split('|')[1].strip() for line in lines[3:-1]] == list(status.ShowStatus.columns)
    store.leases.acquire_lease('red', 'engine', 30, 'hash')
    assert run(tmp_path, 'status').splitlines()[1].split()[1] == 'Scope'


def test_a_column_that_sorts_the_rows_is_shown(crowded, tmp_path):
    shown = run(tmp_path, 'task', 'list', '--sort-column', 'not_before', '--sort-column', 'METHOD')
    heads = shown.splitlines()[1]
    assert 'Not before' in heads and 'Method' in heads and 'Instance' not in heads
