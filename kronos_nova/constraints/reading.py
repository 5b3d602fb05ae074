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


"""Declarations of the facts that a rule compares, so that masks know which instances and hosts the
rule cannot tell apart."""

from collections.abc import Callable
import dataclasses
import enum
from typing import Any, TypeVar

from kronos_nova import model

_Rule = TypeVar('_Rule', bound=Callable[..., Any])


class Fact(enum.Enum):
    """A fact that a rule about an instance and a destination may read."""

    #: Metadata of the aggregates of either host.
    AGGREGATES = 'aggregates'
    #: Type and version of either host's hypervisor.
    HYPERVISOR = 'hypervisor'
    #: Traits in a host's tree by which a flavor tells hosts apart, the tree's
    #: inventories by class, and the classes that an instance with extra specs claims.
    FLAVOR_TRAITS = 'flavor-traits'
    EXTRA_SPECS = 'extra-specs'
    IMAGE_PROPERTIES = 'image-properties'
    PROJECT = 'project'
    STATUS = 'status'
    #: Whether the instance claims a vGPU.
    VGPU = 'vgpu'


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """The facts that a rule reads when ``enabled`` returns true."""

    facts: frozenset[Fact]
    enabled: Callable[[model.Options], bool]


_declared: dict[Callable[..., Any], Declaration] = {}


def declare_facts(*facts: Fact, enabled: Callable[[model.Options], bool] = lambda options: True,
                  ) -> Callable[[_Rule], _Rule]:
    """Declare all facts that the rule reads of instance and hosts, beside their names.

    :param enabled: false where the rule refuses nothing under these options.
    """
    def record_declaration(rule: _Rule) -> _Rule:
        _declared[rule] = Declaration(frozenset(facts), enabled)
        return rule

    return record_declaration


def find_declaration(rule: Callable[..., Any]) -> Declaration | None:
    """Return the rule's declaration; None: no mask may stand for the rule."""
    return _declared.get(rule)
