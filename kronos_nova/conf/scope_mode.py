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

"""The mode of a scope: whether its plans wait for approval, and by how many people."""

import dataclasses
from typing import Any

from kronos_nova.conf import value_type

AUTO, APPROVE = 'auto', 'approve'
MODES = (AUTO, APPROVE)
MOST_APPROVALS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeMode:
    """The mode in which the plans of one scope are carried out."""

    scope: str
    mode: str

    def __str__(self) -> str:
        return f'{self.scope}:{self.mode}'


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeApprovals:
    """The number of people who must approve a plan of one scope."""

    scope: str
    number: int

    def __str__(self) -> str:
        return f'{self.scope}:{self.number}'


class ScopeModeType(value_type.ValueType):
    """The type of ``SCOPE:MODE``; a scope's name may have colons."""

    NAME = 'scope mode'

    def __call__(self, value: Any) -> ScopeMode:
        if isinstance(value, ScopeMode):
            return value
        scope, mode = _split_setting(value)
        if not scope or mode not in MODES:
            raise ValueError(f'{value!r} says no mode of a scope; write its name, a colon, and '
                             f'{AUTO} or {APPROVE}, such as rack-1:{APPROVE}')
        return ScopeMode(scope, mode)


class ScopeApprovalsType(value_type.ValueType):
    """The type of ``SCOPE:NUMBER``; a scope's name may have colons."""

    NAME = 'scope approvals'

    def __call__(self, value: Any) -> ScopeApprovals:
        if isinstance(value, ScopeApprovals):
            return value
        scope, number = _split_setting(value)
        if not scope or number not in map(str, range(1, MOST_APPROVALS + 1)):
            raise ValueError(f'{value!r} says no number of approvals; write the name of a scope, a '
                             f'colon, and a number from 1 to {MOST_APPROVALS}, such as rack-1:2')
        return ScopeApprovals(scope, int(number))


def _split_setting(value: Any) -> tuple[str, str]:
    """Return the scope and its setting, which stands behind the last colon."""
    scope, _, setting = str(value).rpartition(':')
    return scope.strip(), setting.strip()
