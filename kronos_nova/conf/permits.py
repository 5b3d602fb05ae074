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

"""Permits for requests over MQTT: operations x projects x scopes. Without one none is allowed."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova.conf import value_type

ANY = '*'
#: The tasks of migfra, with hyphens for their spaces.
OPERATIONS = ('start-vm', 'stop-vm', 'suspend-vm', 'resume-vm', 'migrate-vm', 'evacuate-node',
              'repin-vm')


@dataclasses.dataclass(frozen=True, slots=True)
class OperationPermit:
    """A permit of ``operations`` on instances of ``projects`` in ``scopes``.

    None stands for all projects or all scopes.
    """

    operations: frozenset[str]
    projects: frozenset[str] | None
    scopes: frozenset[str] | None

    def permits_operation(self, operation: str, scope: str) -> bool:
        return operation in self.operations and (self.scopes is None or scope in self.scopes)

    def __str__(self) -> str:
        """Return the permit as written in the configuration."""
        return ':'.join(ANY if names is None else ','.join(sorted(names))
                        for names in (self.operations, self.projects, self.scopes))


class PermitType(value_type.ValueType):
    """The type of permits: ``OPERATIONS:PROJECTS:SCOPES``.

    Each part holds names with commas between, or ``*``; a scope's name may have colons.
    """

    NAME = 'permit'

    def __call__(self, value: Any) -> OperationPermit:
        if isinstance(value, OperationPermit):
            return value
        parts = str(value).split(':', 2)
        if len(parts) != 3 or not all(part.strip(' ,') for part in parts):
            raise ValueError(f'{value!r} permits nothing; write OPERATIONS:PROJECTS:SCOPES, such '
                             f'as migrate-vm,repin-vm:{ANY}:rack-1')
        operations, projects, scopes = (_parse_names(part) for part in parts)
        if operations is not None and (unknown := operations.difference(OPERATIONS)):
            raise ValueError(f'{min(unknown)!r} is no operation; there are '
                             f'{", ".join(OPERATIONS)}, and {ANY} for all')
        return OperationPermit(frozenset(OPERATIONS) if operations is None else operations,
                               projects, scopes)


def _parse_names(text: str) -> frozenset[str] | None:
    names = frozenset(name.strip() for name in text.split(',')) - {''}
    return None if ANY in names else names


def list_permitted_projects(permits: Sequence[OperationPermit], operation: str,
                            scope: str) -> frozenset[str] | None:
    """Return the projects whose instances the operation may concern in the scope; None: all."""
    projects: frozenset[str] = frozenset()
    for permit in permits:
        if permit.permits_operation(operation, scope):
            if permit.projects is None:
                return None
            projects |= permit.projects
    return projects
