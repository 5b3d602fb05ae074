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


"""Colours of states: on terminals that want them, beside the word, and in no name."""

import argparse
import io
import os
import re
import textwrap

from cliff.formatters import table
import pytest

from kronos_nova.text import state_colours
from tests.fixtures import terminals

ARGS = argparse.Namespace(max_width=0, fit_width=False, print_empty=False, formatter='table')
HEADS = ('What', 'State')
ROWS = [('failed', 'failed'), ('x', '2 queued, 1 completed'), ('y', 'enabled, quarantined')]


def render(formatter, rows=ROWS, args=ARGS):
    stream = io.StringIO()
    formatter.emit_list(HEADS, rows, stream, args)
    return stream.getvalue()


def strip(text):
    return re.sub(r'\x1b\[\d+m', '', text)


@pytest.mark.parametrize(('column', 'text', 'expected'), [
    ('State', 'failed', '\x1b[31mfailed\x1b[0m'),
    ('state', 'no nova-compute, held', '\x1b[31mno nova-compute\x1b[0m, \x1b[33mheld\x1b[0m'),
    ('Tasks', '2 queued, 1 failed', '2 queued, \x1b[31m1 failed\x1b[0m'),
    ('State', 'pending,\nrunning', '\x1b[33mpending\x1b[0m,\n\x1b[36mrunning\x1b[0m'),
    ('State', 'up, disabled: new memory', 'up, \x1b[33mdisabled\x1b[0m: new memory'),
    ('State', 'failed ,done', '\x1b[31mfailed\x1b[0m ,\x1b[32mdone\x1b[0m'),
    ('State', ': failed', ': failed'),
    ('Can Be Emptied', 'True', '\x1b[32mTrue\x1b[0m'),
    ('Failing', 'a\n\nb', '\x1b[31ma\x1b[0m\n\n\x1b[31mb\x1b[0m'),
    ('Paused', 'yes', '\x1b[33myes\x1b[0m'), ('Paused', 'no', 'no'), ('Paused', '', ''),
    ('State', 'unfailed', 'unfailed'), ('State', 'failed to run', 'failed to run'),
    ('Instance', 'failed', 'failed'), ('Name', 'unknown', 'unknown')])
def test_states_have_colours_and_names_none(column, text, expected):
    assert state_colours.colour_text(column, text) == expected
    assert strip(expected) == text


def test_columns_keep_their_width():
    plain, coloured = (render(f) for f in (
        table.TableFormatter(), state_colours.ColouredTable(table.TableFormatter())))
    assert strip(coloured) == plain
    assert re.findall(r'\x1b\[\d+m([^\x1b]*)\x1b\[0m', coloured) == [
        'failed', '1 completed', 'quarantined']


def test_a_single_thing_has_colours_in_its_states():
    streams = [io.StringIO(), io.StringIO()]
    formatter = table.TableFormatter()
    for shown, stream in zip((formatter, state_colours.ColouredTable(formatter)), streams,
                             strict=True):
        shown.emit_one(('name', 'state', 'error'), ('failed', 'failed', None), stream, ARGS)
    plain, coloured = (stream.getvalue() for stream in streams)
    assert coloured.count('\x1b[31mfailed\x1b[0m') == 1 and strip(coloured) == plain


class TextualWrapping(table.TableFormatter):
    """Wraps cells as prettytable 3.5 does, which counts colours as text."""

    def emit_list(self, column_names, data, stdout, parsed_args):
        super().emit_list(column_names, [
            tuple(textwrap.fill(cell, 8) for cell in row) for row in data], stdout, parsed_args)


def test_a_table_whose_wrapping_would_cut_a_colour_has_none():
    assert '\x1b' not in render(state_colours.ColouredTable(TextualWrapping()))
    assert render(state_colours.ColouredTable(TextualWrapping())) == render(TextualWrapping())


@pytest.mark.parametrize(('environment', 'wanted'), [
    ({}, True), ({'TERM': 'xterm', 'NO_COLOR': ''}, True), ({'NO_COLOR': '1'}, False),
    ({'TERM': 'dumb'}, False)])
def test_colours_need_a_terminal_whose_user_wants_them(environment, wanted):
    terminal = terminals.Terminal()
    assert state_colours.wants_colours(terminal.stream, environment) is wanted
    assert not state_colours.wants_colours(io.StringIO(), environment)
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, 'w') as pipe:
        assert not state_colours.wants_colours(pipe, environment)
    os.close(read_end)
    assert terminal.close() == ''
