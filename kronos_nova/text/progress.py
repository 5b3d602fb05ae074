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

from typing import Self, TextIO

WIDTH = 40


class ProgressLine:
    """One line that is overwritten.

    :param stream: standard error; nothing is written unless it is a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if stream.isatty() else None
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
        line = f'[{"#" * filled}{"." * (WIDTH - filled)}] {part:4.0%} {what}'[:79]
        if line != self._last:
            self._stream.write(f'\r{line:<79}')
            self._stream.flush()
            self._last = line

    def erase_line(self) -> None:
        """Erase the line."""
        if self._stream is not None and self._last:
            self._stream.write(f'\r{"":<79}\r')
            self._stream.flush()
            self._last = ''
