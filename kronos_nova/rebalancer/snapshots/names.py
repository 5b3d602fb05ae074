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


"""Anonymous names, the same ones for the same salt: HMAC-SHA256 (RFC 2104).

An identifier keeps its shape, since Nova's, Placement's and the metrics' must still fit each
other: a UUID becomes a UUID, the parts of a host's name between dots become parts, so that a short
name still is the short form of its FQDN.
"""

from collections.abc import Iterable
import hashlib
import hmac
import re
import uuid

#: Default names in Nova and in Kronos 0.2.0, where the operator has chosen none.
COMMON = frozenset({'', 'nova', '_unassigned_'})

_UUID = re.compile(r'[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}')
_HEX = re.compile(r'[0-9a-fA-F]{32}')
_PORT = re.compile(r'(?P<host>[^:]+)(?P<port>:[0-9]{1,5})')
_ADDRESS = re.compile(r'[0-9.]+|.*:.*')
_TEXT = re.compile(r'#[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`')
_WORD = re.compile(r'[A-Za-z_:][\w:.-]*')
_PROMQL = frozenset({
    'and', 'atan2', 'bool', 'by', 'end', 'group_left', 'group_right', 'ignoring', 'inf', 'nan',
    'offset', 'on', 'or', 'start', 'unless', 'without'})


class AnonymousNames:
    """Anonymous names.

    :param salt: a secret; its owner can test a guess.
    :param identifiers: UUIDs whose order is to be kept: each new one begins with its place among
        them, so a reader learns that place.
    :param hosts: hosts whose order is to be kept, in the same way.
    """

    def __init__(self, salt: bytes, identifiers: Iterable[str] = (),
                 hosts: Iterable[str] = ()) -> None:
        self._salt = salt
        self._places = {text: place for place, text in enumerate(sorted(set(identifiers)))}
        first: dict[str, int] = {}
        for place, text in enumerate(sorted(set(hosts))):
            first.setdefault(text.split('.', 1)[0].lower(), place)
        self._host_places = first
        #: Texts that were renamed.
        self.seen: set[str] = set()
        self._words_of: frozenset[str] = frozenset()

    def rename_identifier(self, text: str) -> str:
        """Rename the ID of an instance, group, provider or project, or an instance's name."""
        if text in COMMON:
            return text
        self.seen.add(text)
        digest = self._compute_digest('identifier', text)
        place = self._places.get(text)
        if _UUID.fullmatch(text):
            if place is not None:
                digest = f'{place:08x}{digest[8:]}'
            return str(uuid.UUID(hex=digest[:32], version=4))
        if _HEX.fullmatch(text):
            return digest[:32]
        return f'n{digest[:20]}' if place is None else f'n{place:08x}{digest[:20]}'

    def rename_host(self, text: str) -> str:
        """Rename a service host, a hypervisor, or a label that names one; keep a port."""
        if text in COMMON:
            return text
        self.seen.add(text)
        match = _PORT.fullmatch(text)
        name, port = (match['host'], match['port']) if match else (text, '')
        parts = [name] if _ADDRESS.fullmatch(name) else name.split('.')
        return '.'.join(self._rename_part(part, first=not n) for n, part in enumerate(parts)) + port

    def _rename_part(self, text: str, first: bool) -> str:
        """Rename a part of a host's name; capitals stay capitals.

        Labels that differ only in the case of letters name the same host, so both get the same
        digest.
        """
        lowered = text.lower()
        digest = self._compute_digest('host', lowered)[:12]
        place = self._host_places.get(lowered) if first else None
        out = f'h{digest}' if place is None else f'h{place:06x}{digest}'
        return out if text == lowered else out.upper()

    def rename_scope(self, text: str) -> str:
        """Rename an aggregate or an availability zone."""
        if text in COMMON:
            return text
        self.seen.add(text)
        return f'a{self._compute_digest("scope", text)[:16]}'

    def rename_custom_name(self, text: str) -> str:
        """Rename a trait or resource class when it is CUSTOM_, an operator's own."""
        if not text.startswith('CUSTOM_'):
            return text
        self.seen.add(text)
        return f'CUSTOM_{self._compute_digest("custom", text)[:16].upper()}'

    def freeze_words(self) -> None:
        """Fix the set of words to rename: from now on the same query always becomes the same."""
        self._words_of = frozenset(self.seen)

    def rename_query(self, text: str) -> str:
        """Return a PromQL query without its comments and with its texts renamed.

        Its metrics, functions and time ranges stay. Words that were renamed elsewhere are renamed
        here as well.

        Call it when everything else has been renamed, and :meth:`freeze_words`.
        """
        parts, end = [], 0
        for match in _TEXT.finditer(text):
            parts.append(self._rename_words(text[end:match.start()]))
            quoted = match[0]
            if not quoted.startswith('#'):
                parts.append(quoted if len(quoted) == 2
                             else f'"q{self._compute_digest("text", quoted)[:12]}"')
            end = match.end()
        return ''.join([*parts, self._rename_words(text[end:])])

    def _rename_words(self, text: str) -> str:
        def rename_word(match: re.Match[str]) -> str:
            word = match[0]
            if word in self._words_of and word not in _PROMQL and text[match.end():][:1] != '(':
                return f'm_{self._compute_digest("word", word)[:12]}'
            return word
        return _WORD.sub(rename_word, text)

    def _compute_digest(self, kind: str, text: str) -> str:
        return hmac.new(self._salt, f'{kind}\0{text}'.encode(), hashlib.sha256).hexdigest()
