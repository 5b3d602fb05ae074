# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Lines that name each step, with the seconds since the command began."""

import sys
import time
from typing import TextIO


class Progress:
    """Prints steps; ``out`` is standard output unless a test says otherwise."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def step(self, text: str) -> None:
        print(f'{self.seconds:6.1f} s  {text}', file=self._out, flush=True)

    def say(self, text: str = '') -> None:
        print(text, file=self._out, flush=True)
