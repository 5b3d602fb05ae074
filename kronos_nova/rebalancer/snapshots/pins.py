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

Numbers, operators and Nova's own words stay; any other word is renamed, the same everywhere, so
that equal words still match. An operator that looks into words, or compares their order, becomes a
list of the recorded values that it matches.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import re

from kronos_nova import constraints
from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import extra_specs_ops
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import image_properties
from kronos_nova.constraints import live
from kronos_nova.rebalancer.snapshots import names as naming

#: Namespaces whose keys are Nova's; of the first two, values as well.
_NOVA = ('hw', 'quota', 'os', 'pci_passthrough', 'accel', 'capabilities')
_ALIAS = 'pci_passthrough:alias'
_STAND = re.compile(r'[-+]?[0-9.]{1,15}(?:[eE][-+]?[0-9]{1,3})?|(?i:[-+]?(?:inf|nan))|'
                    r'[<>=!s]{1,3}|<(?:or|in|all-in)>|required|forbidden')
_NAMED = re.compile(r'(trait|resources)([a-zA-Z0-9_-]{0,64}):(.*)')
_FALSE = frozenset({'0', 'f', 'false', 'off', 'n', 'no'})
#: Operators whose verdict a renamed word does not keep.
_INSIDE = frozenset({'<in>', '<all-in>', 's<', 's<=', 's>', 's>='})
_OPERATORS = _INSIDE | {'=', '==', '!=', '>=', '<=', 's==', 's!=', '<or>'}


class ConstraintAnonymiser:
    """The rules for one snapshot's names.

    :param metadata: metadata of every aggregate of the snapshot.
    """

    def __init__(self, names: naming.AnonymousNames,
                 metadata: Iterable[Mapping[str, str]] = ()) -> None:
        self._names = names
        self._rule_keys = frozenset(key for rule in constraints.ALL for key in rule.keys)
        self._recorded: dict[str, set[str]] = {}
        for mapping in metadata:
            for key, value in mapping.items():
                self._recorded.setdefault(key, set()).update(
                    part.strip() for part in value.split(','))

    def rename_extra_specs(self, extra_specs: Mapping[str, str]) -> dict[str, str]:
        return {self._rename_shared_key(k): self._rename_spec_value(k, v)
                for k, v in extra_specs.items()}

    def rename_image_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {k: v if image_properties.LEGACY.get(k, k) in image_properties.SPELLINGS
                else self._rename_value(v) for k, v in properties.items()}

    def rename_metadata(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """Rename the metadata of an aggregate; a value may be several, separated by commas."""
        return {self._rename_shared_key(k): v if k in image_properties.SPELLINGS
                else self._rename_domains(v) if k == failure_domains.KEY else ''.join(
            self._rename_value(part) for part in re.split(
                r'(\s*,\s*|^\s+|\s+$)', v)) for k, v in metadata.items()}

    def rename_domain(self, text: str) -> str:
        """Rename a kind of failure domain, or a kind with a domain or a set."""
        kind, colon, name = text.partition(':')
        return self._rename_value(kind.strip().lower()) + colon + self._rename_value(name.strip())

    def _rename_domains(self, text: str) -> str:
        """Rename the domains of an aggregate; a value that cannot be read stays so."""
        try:
            failure_domains.parse_domains(text)
        except ValueError:
            return self._names.rename_identifier(text)
        return ','.join(map(self.rename_domain, text.split(',')))

    def _rename_spec_value(self, key: str, value: str) -> str:
        """Rename the value of an extra spec."""
        if key.startswith(('hw:', 'quota:')):
            return value
        if key == _ALIAS:
            return ''.join(part if n % 2 else self._rename_value(part)
                           for n, part in enumerate(re.split(r'([\s,:]+)', value)))
        key = key.removeprefix(f'{aggregates.SCOPE}:')
        if key in image_properties.SPELLINGS:
            return value
        operator = next(iter(value.split()), '')
        if operator in _INSIDE:
            matched = sorted(self._rename_value(known) for known in self._recorded.get(key, ())
                             if extra_specs_ops.matches_extra_spec(known, value))
            return ' '.join(f'<or> {known}' for known in matched
                            or [self._names.rename_identifier(value)])
        if operator in _OPERATORS:
            return ''.join(self._rename_value(word) for word in re.split(r'(\s+)', value))
        return self._rename_value(value)

    def _rename_shared_key(self, key: str) -> str:
        """Rename a key by which flavors, images and aggregates are compared."""
        if key in self._rule_keys or key.startswith(('hw_', 'img_', 'os_')):
            return key
        return self._rename_key(key)

    def _rename_key(self, key: str) -> str:
        named = _NAMED.fullmatch(key)
        if named:
            return f'{named[1]}{named[2]}:{self._names.rename_custom_name(named[3])}'
        scope, colon, rest = key.partition(':')
        if colon and scope in _NOVA:
            return key
        if colon and scope == aggregates.SCOPE:
            return f'{scope}:{self._rename_shared_key(rest)}'
        if key.startswith(aggregate_metadata.TENANT):
            return aggregate_metadata.TENANT + self._rename_key_parts(
                key.removeprefix(aggregate_metadata.TENANT))
        return key if key == 'availability_zone' else self._rename_key_parts(key)

    def _rename_key_parts(self, key: str) -> str:
        """Rename a key, but keep whether it has a scope: rules judge only their own scope."""
        return ':'.join(map(self._names.rename_identifier, key.split(':', 1)))

    def _rename_value(self, text: str) -> str:
        word = text.strip(', \t\r\n')
        if not word or _STAND.fullmatch(word) or word.lower() in live.TRUE | _FALSE:
            return text
        return self._names.rename_identifier(text)
