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

"""A progress bar for people: on a terminal only, never on standard output."""

import os
from typing import Self, TextIO

WIDTH = 40
#: Most cells of a line that is overwritten.
_LINE = 79


def measure_line(stream: TextIO) -> int:
    """Return the cells of a line that is overwritten: a longer one would wrap, and stay."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    # A terminal of unknown size says 0.
    return min(_LINE, columns - 1) if columns > 1 else _LINE


class ProgressLine:
    """One line that is overwritten.

    :param stream: standard error; nothing is written unless it is a terminal. None: it is closed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._last = ''

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.erase_line()

    def show_progress(self, what: str, part: float) -> None:
        """Show that ``part`` in [0, 1] of ``what`` is done."""
        if self._stream is None:
            return
        filled = int(WIDTH * min(1.0, max(0.0, part)))
        width = measure_line(self._stream)
        line = f'[{"#" * filled}{"." * (WIDTH - filled)}] {part:4.0%} {what}'[:width]
        if line != self._last:
            self._stream.write(f'\r{line:<{width}}')
            self._stream.flush()
            self._last = line

    def erase_line(self) -> None:
        """Erase the line."""
        if self._stream is not None and self._last:
            self._stream.write(f'\r{"":<{measure_line(self._stream)}}\r')
            self._stream.flush()
            self._last = ''
