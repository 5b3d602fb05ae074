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

"""The definition of a rule: its judge, and all that other parts derive from it.

Planner, checker, executor, masks, reports and ``kronos why-not`` read it from here.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import enum

from kronos_nova import model
from kronos_nova.constraints import view as views

Judge = Callable[[views.CloudView, model.Move], model.Rejection | None]


class RuleKind(enum.Enum):
    """The moves for which a rule's verdict holds, and the parts that ask the rule."""

    #: The verdict holds for all destinations: the rule ignores the destination.
    ALONE = 'alone'
    #: The verdict holds for this move.
    MOVE = 'move'
    #: The verdict holds until other moves have ended, and for all destinations.
    IN_FLIGHT = 'in-flight'
    #: The rule reads scores: the planner alone asks it, and not for a way back.
    METRICS = 'metrics'
    #: The rule finds that a plan is out of date: the executor alone asks it.
    PRE_FLIGHT = 'pre-flight'
    #: The rule judges an instance whose host has failed: the failover certificate alone asks it.
    FAILURE = 'failure'


class CloudFact(enum.Enum):
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


class RetryClass(enum.Enum):
    """The executor's reaction to a rejection right before a move."""

    #: Try the next alternate; after the last one the task ends. The instance is not at fault.
    ELSEWHERE = 'elsewhere'
    #: Try the next alternate; after the last one try all again, ``retry_backoff`` later: room may
    #: come.
    NO_ROOM = 'no-room'
    #: Try the same destination later.
    PASSING = 'passing'
    #: End the task: no destination differs, and waiting does not help.
    FINAL = 'final'
    #: End the task and quarantine the instance: the plan was made for another state.
    QUARANTINE = 'quarantine'
    #: End the task: the instance was deleted.
    GONE = 'gone'


@dataclasses.dataclass(frozen=True, slots=True)
class RejectionCode:
    """A stable name under which a rule rejects a move, with its texts for operators.

    ``meaning``: why the move is rejected, as in ``doc/source/reference/rules.rst``. ``remedy``: the
    change that would make the rule allow the move, and who could make it; None: no change helps,
    Nova itself does not make such a move. ``retry`` None: no executor meets the code, since the
    rule reads metrics or supposes a failure.
    """

    meaning: str
    remedy: str | None
    retry: RetryClass | None


def _always(options: model.PlanningOptions) -> bool:
    return True


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A rule: ``judge`` rejects a move, under one of ``codes``, or returns None.

    ``reads``: all that the judge reads of instance and hosts, beside their names. A mask then
    judges the instances and hosts that do not differ in these facts only once, for all phases and
    all other moves. None: the rule is judged move by move. ``enabled``: False where the judge
    refuses nothing under these options. ``keys``: keys of extra specs, image properties and
    aggregate metadata that the judge compares by name: an anonymised snapshot keeps them.
    """

    judge: Judge
    codes: Mapping[str, RejectionCode]
    kind: RuleKind = RuleKind.MOVE
    reads: frozenset[CloudFact] | None = None
    enabled: Callable[[model.PlanningOptions], bool] = _always
    keys: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Name of a rule that allows a move."""
        return self.judge.__name__.replace('_', '-')
