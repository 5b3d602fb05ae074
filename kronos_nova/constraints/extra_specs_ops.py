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


"""Operators of flavors' extra specs, which an aggregate's value fulfils or not.

Source: nova.scheduler.filters.extra_specs_ops; a parity test compares both. Where Nova raises, for
example on a malformed number, nothing matches here: Nova refuses then as well.
"""

from collections.abc import Callable
import operator

_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    '=': operator.ge, '==': operator.eq, '!=': operator.ne, '>=': operator.ge,
    '<=': operator.le}
_TEXTS: dict[str, Callable[[str, str], bool]] = {
    's==': operator.eq, 's!=': operator.ne, 's<': operator.lt, 's<=': operator.le,
    's>': operator.gt, 's>=': operator.ge, '<in>': operator.contains}
ALL_IN = '<all-in>'
OR = '<or>'


def matches_extra_spec(value: str, required: str) -> bool:
    """Return True when a value fulfils an extra spec.

    Extra specs are ``large``, ``>= 4``, ``<or> a <or> b``, ``<in> avx`` ...
    """
    words = required.split()
    if not words or words[0] not in {*_NUMBERS, *_TEXTS, ALL_IN, OR}:
        return value == required
    name, *operands = words
    if name == OR:
        return value in operands[::2]
    if not operands:
        return False
    if name == ALL_IN:
        return all(operand in value for operand in operands)
    if name in _TEXTS:
        return _TEXTS[name](value, operands[0])
    try:
        return _NUMBERS[name](float(value), float(operands[0]))
    except ValueError:
        return False
