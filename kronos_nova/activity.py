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


"""The work that a command is busy with, and for how long: a line on a terminal."""

import contextlib
import threading
import time
from typing import TextIO

from kronos_nova.text import progress

#: Seconds of work before the line appears, and between two changes of the line.
INTERVAL = 1.0


class ActivityLine:
    """One line that a thread overwrites while the command works or waits for an answer.

    :param stream: standard error; nothing but messages is written unless it is a terminal.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._lock = threading.Lock()
        self._work, self._since, self._shown = '', 0.0, 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def show_work(self, what: str) -> bool:
        """Begin some work, or go on with other work; '': all is done, and the line is erased.

        :returns: whether a person can see the line.
        """
        with self._lock:
            self._erase()
            self._work, self._since = what, time.monotonic()
        if not what and self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        elif what and self._thread is None and self._is_terminal:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self._is_terminal

    def write_message(self, text: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._erase()
            self._write(f'{text}\n')

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            with self._lock:
                seconds = time.monotonic() - self._since
                if self._work and seconds >= INTERVAL:
                    self._draw(f', {seconds:.0f} s')

    def _draw(self, ending: str) -> None:
        if self._stream is not None:
            width = progress.measure_line(self._stream)
            line = self._work[:max(0, width - len(ending))] + ending
            self._write('\r' + line[:width].ljust(width))
            self._shown = width

    def _erase(self) -> None:
        if self._shown:
            self._write('\r' + ' ' * self._shown + '\r')
            self._shown = 0

    def _write(self, text: str) -> None:
        """Write to the stream; one that is closed, or a terminal that is gone, ends no command."""
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
