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


"""The line of work: on terminals alone, erased at its end, and never in the way of a message."""

import contextlib
import io
import os
import threading
import time

import pytest

from kronos_nova import activity
from tests.fixtures import terminals

DEADLINE = 60


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(activity, 'INTERVAL', 0.02)


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def read_screen(sent):
    """Return the lines that a terminal shows; each carriage return overwrites its line."""
    lines = []
    for line in sent.split('\n'):
        shown = ''
        for part in line.split('\r'):
            shown = part + shown[len(part):]
        lines.append(shown.rstrip())
    return lines


def test_other_streams_get_messages_alone():
    before = threading.active_count()
    stream = io.StringIO()
    for line in (activity.ActivityLine(stream), activity.ActivityLine(None)):
        line.show_work('Reading')
        assert threading.active_count() == before
        line.write_message('note')
        time.sleep(0.1)
        line.show_work('')
    assert stream.getvalue() == 'note\n'


def test_line_has_the_work_with_its_seconds_and_is_erased():
    terminal = terminals.Terminal()
    line = activity.ActivityLine(terminal.stream)
    line.show_work('Reading')
    wait_for(lambda: 'Reading, 0 s' in terminal.sent)
    line.write_message('note')
    line.show_work('Computing')
    wait_for(lambda: 'Computing, 0 s' in terminal.sent)
    line.show_work('')
    line.show_work('')
    time.sleep(0.1)
    sent = terminal.close()
    assert read_screen(sent) == ['note', '']
    assert read_screen(sent.partition('note')[0] + '\n')[0] == ''


def test_short_work_has_no_line(monkeypatch):
    monkeypatch.setattr(activity, 'INTERVAL', 30.0)
    terminal = terminals.Terminal()
    line = activity.ActivityLine(terminal.stream)
    begun = time.monotonic()
    line.show_work('Reading')
    line.show_work('')
    assert time.monotonic() - begun < 10 and terminal.close() == ''


def test_long_work_does_not_wrap():
    terminal = terminals.Terminal()
    line = activity.ActivityLine(terminal.stream)
    line.show_work('x' * 500)
    wait_for(lambda: 'x' in terminal.sent)
    line.show_work('')
    assert all(len(part) < 80 for part in terminal.close().split('\r'))


def test_a_narrow_terminal_keeps_one_line_with_the_seconds():
    terminal = terminals.Terminal(24)
    line = activity.ActivityLine(terminal.stream)
    line.show_work('Reading Nova and Placement')
    wait_for(lambda: 'Reading Nova and P, 0 s' in terminal.sent)
    line.show_work('')
    assert {len(part) for part in terminal.close().split('\r')} == {0, 23}


def test_a_terminal_that_is_gone_ends_no_command(monkeypatch):
    failures = []
    monkeypatch.setattr(threading, 'excepthook', failures.append)
    ours, descriptor = os.openpty()
    stream = os.fdopen(descriptor, 'w')
    line = activity.ActivityLine(stream)
    line.show_work('Reading')
    os.close(ours)
    time.sleep(0.2)
    line.write_message('note')
    line.show_work('')
    with contextlib.suppress(OSError):
        stream.close()
    assert failures == []


def test_a_caller_learns_whether_a_person_sees_the_line():
    terminal = terminals.Terminal()
    line = activity.ActivityLine(terminal.stream)
    assert line.show_work('Reading') is True
    line.show_work('')
    terminal.close()
    assert activity.ActivityLine(io.StringIO()).show_work('Reading') is False
    assert activity.ActivityLine(None).show_work('Reading') is False
