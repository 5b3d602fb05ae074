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


"""Extra specs, image properties and aggregate metadata without their words.

Numbers, operators and what is Nova's own stay; any other word is renamed, the
same everywhere, so that what matched still does. Parts of words do not.
"""

from collections.abc import Mapping
import re

from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import image_properties
from kronos_nova.constraints import live
from kronos_nova.rebalancer.snapshots import names as naming

#: Namespaces whose keys are Nova's; of the first two, values as well.
_NOVA = ('hw', 'quota', 'os', 'pci_passthrough', 'accel', 'capabilities')
_STAND = re.compile(r'[-+]?[0-9.]{1,15}|[<>=!s]{1,3}|<(?:or|in|all-in)>|required|forbidden')
_NAMED = re.compile(r'(trait|resources)([a-zA-Z0-9_-]{0,64}):(.*)')
_FALSE = frozenset({'0', 'f', 'false', 'off', 'n', 'no'})


class Pins:
    """The rules for one snapshot's names."""

    def __init__(self, names: naming.Names) -> None:
        self._names = names

    def extra_specs(self, found: Mapping[str, str]) -> dict[str, str]:
        return {self._key(k): v if k.startswith(('hw:', 'quota:')) else self._text(v)
                for k, v in found.items()}

    def image_properties(self, found: Mapping[str, str]) -> dict[str, str]:
        return {k: v if image_properties.LEGACY.get(k, k) in image_properties.SPELLINGS
                else self._text(v) for k, v in found.items()}

    def metadata(self, found: Mapping[str, str]) -> dict[str, str]:
        """Of an aggregate. A key may be that of an image's property."""
        return {k if _image(k) else self._key(k):
                v if k in image_properties.SPELLINGS else self._text(v)
                for k, v in found.items()}

    def _key(self, key: str) -> str:
        named = _NAMED.fullmatch(key)
        if named:
            return f'{named[1]}{named[2]}:{self._names.standard(named[3])}'
        scope, colon, rest = key.partition(':')
        if colon and scope in _NOVA:
            return key
        if colon and scope == aggregates.SCOPE:
            return f'{scope}:{self._names.identifier(rest)}'
        if key.startswith(aggregate_metadata.TENANT):
            rest = key.removeprefix(aggregate_metadata.TENANT)
            return aggregate_metadata.TENANT + (rest and self._names.identifier(rest))
        return key if key == 'availability_zone' else self._names.identifier(key)

    def _text(self, text: str) -> str:
        return ''.join(self._word(part) for part in re.split(r'([\s,]+)', text))

    def _word(self, word: str) -> str:
        if (not word.strip(', \t\r\n') or _STAND.fullmatch(word)
                or word.lower() in live.TRUE | _FALSE):
            return word
        return self._names.identifier(word)


def _image(key: str) -> bool:
    return key.startswith(('hw_', 'img_', 'os_'))
