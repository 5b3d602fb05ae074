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

"""Width of text on a terminal: measure it, cut it, wrap it. Unprintable characters are gone."""

from collections.abc import Iterator
import unicodedata

_MARK = '...'


def measure_width(text: str) -> int:
    """Return the number of cells that a line takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_measure_character, text))


def cut_text(text: str, width: int) -> str:
    """Return at most ``width`` cells of a line; three dots stand for the rest."""
    if measure_width(text) <= width:
        return text
    return _take_prefix(text, width - len(_MARK), 0) + _MARK


def wrap_text(text: str, width: int) -> str:
    """Return the text with lines of at most ``width`` cells.

    A line breaks at a blank, and inside a word only if the word is longer. Lines that go on are
    indented as the first one.
    """
    return '\n'.join(part for line in text.split('\n') for part in _wrap_line(line, width))


def _wrap_line(line: str, width: int) -> Iterator[str]:
    indent = line[:len(line) - len(line.lstrip(' '))][:width // 2]
    rest = line
    while len(head := _take_prefix(rest, width)) < len(rest):
        at = head.rfind(' ') if rest[len(head)] != ' ' else len(head)
        if at <= len(indent):
            at = len(head)
        yield rest[:at].rstrip(' ')
        rest = indent + rest[at:].lstrip(' ')
        if rest == indent:
            return
    yield rest


def _take_prefix(text: str, width: int, least: int = 1) -> str:
    """Return the longest prefix of at most ``width`` cells; at least so many characters."""
    taken = 0
    for number, character in enumerate(text):
        taken += _measure_character(character)
        if taken > width:
            return text[:max(number, least)]
    return text


def _measure_character(character: str) -> int:
    if character.isascii() or character == '\ufe0f':  # It can make the symbol before it wide.
        return 1
    if unicodedata.category(character) in ('Mn', 'Me'):
        return 0
    return 2 if unicodedata.east_asian_width(character) in 'WF' else 1
