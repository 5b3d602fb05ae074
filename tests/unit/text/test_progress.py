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

"""The progress bar is for people at a terminal."""

import io

from kronos_nova.text import progress
from tests.fixtures import terminals


def test_progress_is_written_to_terminals_alone():
    stream = io.StringIO()
    bar = progress.ProgressLine(stream)
    bar.show_progress('reading', 0.5)
    bar.erase_line()
    assert stream.getvalue() == ''


def on_terminal(use):
    """What a terminal is sent."""
    terminal = terminals.Terminal()
    use(progress.ProgressLine(terminal.stream))
    return terminal.close()


def test_a_terminal_gets_one_line_that_is_written_over_and_cleared():
    def use(bar):
        for part in (-1.0, 0.5, 0.5, 2.0):
            bar.show_progress('calm.yaml', part)
        bar.erase_line()
        bar.erase_line()

    sent = on_terminal(use)
    assert '\n' not in sent
    lines = [line.rstrip() for line in sent.split('\r')]
    assert lines[2] == f'[{"#" * 20}{"." * 20}]  50% calm.yaml'
    assert lines[1].startswith(f'[{"." * 40}]') and lines[3].startswith(f'[{"#" * 40}]')
    assert [lines[0], *lines[4:]] == ['', '', '']


def test_a_long_name_does_not_wrap():
    sent = on_terminal(lambda bar: bar.show_progress('x' * 500, 0.1))
    assert len(sent) == 80


def test_a_narrow_terminal_keeps_one_line():
    terminal = terminals.Terminal(30)
    bar = progress.ProgressLine(terminal.stream)
    bar.show_progress('reading', 0.5)
    bar.erase_line()
    assert {len(part) for part in terminal.close().split('\r')} == {0, 29}


def test_closed_standard_error_gets_nothing():
    bar = progress.ProgressLine(None)
    bar.show_progress('reading', 0.5)
    bar.erase_line()


def test_a_terminal_of_unknown_size_has_lines_of_usual_length():
    terminal = terminals.Terminal(0)
    assert progress.measure_line(terminal.stream) == 79
    terminal.close()
    assert progress.measure_line(io.StringIO()) == 79
