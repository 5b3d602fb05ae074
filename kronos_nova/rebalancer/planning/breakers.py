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


"""Circuit breakers: when the rebalancer does more harm than good, it stops.

Pure rules; the store keeps what they judge, the engine pauses the scope.
"""

from collections.abc import Sequence
import dataclasses
import math

from kronos_nova import model

#: Who has paused a scope whose breaker is open.
NAME = 'the circuit breaker'
#: Combined imbalance differs by so much from one sample to the next.
NOISE = 0.01
#: Fewer failures than this are no rate.
LEAST_FAILURES = 3
#: The overload of the hosts that a plan packs differs by so much from one sample to the next:
#: one of them a tenth above its ceiling.
OVERLOAD_NOISE = 0.1
#: Of a product with a load's growth.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The combined imbalance before a plan, as it foresaw it, and as the first
    trusted scores showed it that its last move could not change any more.

    ``packing``: of a plan of mode pack, which is judged by it alone.
    """

    plan_id: str
    before: float
    foreseen: float
    realised: float
    packing: 'PackOutcome | None' = None

    @property
    def worse(self) -> bool:
        if self.packing is not None:
            return self.packing.worse
        return self.realised > self.before + NOISE

    def __str__(self) -> str:
        """Return the plan's id and what it found, left and foresaw."""
        if self.packing is not None:
            return f'{self.plan_id} {self.packing}'
        return (f'{self.plan_id} {self.before:.3f} -> {self.realised:.3f} (foreseen '
                f'{self.foreseen:.3f})')


@dataclasses.dataclass(frozen=True, slots=True)
class PackOutcome:
    """How densely a scope was packed before a plan, as the plan predicted it, and as
    scores showed it afterwards. ``growth``: of the scope's load since the plan."""

    before: model.Packing
    foreseen: model.Packing
    realised: model.Packing
    growth: float = 1.0

    @property
    def worse(self) -> bool:
        """More hosts in use, or more overload, than the plan found and predicted."""
        hosts = max(self.before.hosts_in_use, self.foreseen.hosts_in_use)
        overload = max(self.before.overload, self.foreseen.overload)
        return (self.realised.hosts_in_use > math.ceil(hosts * self.growth - ROUNDING)
                or self.realised.overload > overload + OVERLOAD_NOISE)

    def __str__(self) -> str:
        return (f'{self.before.hosts_in_use} -> {self.realised.hosts_in_use} hosts in use '
                f'(foreseen {self.foreseen.hosts_in_use}), overload {self.before.overload:.3f} '
                f'-> {self.realised.overload:.3f} (foreseen {self.foreseen.overload:.3f})')


def tripped(outcomes: Sequence[Outcome], failed: int, ended: int, *, worse_plans: int,
            failure_rate: float) -> str | None:
    """Why the scope is to be paused, or None.

    :param outcomes: of the scope's plans, newest first.
    :param failed: migrations that failed lately, of ``ended``.
    :param worse_plans: so many plans in a row that made things worse; 0: never.
    :param failure_rate: a larger part of failures; 1: never.
    """
    last = outcomes[:worse_plans]
    if worse_plans and len(last) == worse_plans and all(o.worse for o in last):
        told = ', '.join(str(o) for o in reversed(last))
        harm = ('a larger combined imbalance than they found'
                if all(o.packing is None for o in last) else
                'more hosts in use or more overload than they found and foresaw'
                if all(o.packing is not None for o in last) else
                'the scope in a worse state than they found it in')
        return (f'{worse_plans} plans in a row left {harm}: {told}. See '
                'whether the profiles\' unit and capacities are right')
    if failed >= LEAST_FAILURES and failed > failure_rate * ended:
        return (f'{failed} of the last {ended} migrations failed, more than breaker_failure_rate '
                f'({failure_rate:g}). See the errors of the tasks and nova-compute\'s logs')
    return None
