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


"""Circuit breakers: they stop the rebalancer when it does more harm than good.

Pure rules; the store keeps the outcomes that they judge, the engine pauses the scope.
"""

from collections.abc import Sequence
import dataclasses
import math

from kronos_nova import model
from kronos_nova import plurals

#: Name under which an open breaker pauses its scope.
NAME = 'the circuit breaker'
#: Difference of the combined imbalance between two samples that is noise.
NOISE = 0.01
#: Smallest number of failures that makes a rate.
LEAST_FAILURES = 3
#: Difference of the overload of a plan's hosts between two samples that is noise: one host a
#: tenth above its ceiling.
OVERLOAD_NOISE = 0.1
#: Rounding error of a product with a load's growth.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class PlanOutcome:
    """Combined imbalance before a plan, as predicted, and as measured afterwards.

    ``realised`` is from the first trusted scores that the plan's last move could not change any
    more. ``packing``: set for a plan of mode pack, which is judged by it alone.
    """

    plan_id: str
    before: float
    foreseen: float
    realised: float
    packing: 'PackOutcome | None' = None

    @property
    def is_worse(self) -> bool:
        if self.packing is not None:
            return self.packing.is_worse
        return self.realised > self.before + NOISE

    def __str__(self) -> str:
        """Return the plan's id with its imbalances: before, realised and foreseen."""
        if self.packing is not None:
            return f'{self.plan_id} {self.packing}'
        return (f'{self.plan_id} {self.before:.3f} -> {self.realised:.3f} (foreseen '
                f'{self.foreseen:.3f})')


@dataclasses.dataclass(frozen=True, slots=True)
class PackOutcome:
    """Packing of a scope before a plan, as predicted, and as scores showed it afterwards.

    ``growth``: factor of the scope's load since the plan.
    """

    before: model.PackingDensity
    foreseen: model.PackingDensity
    realised: model.PackingDensity
    growth: float = 1.0

    @property
    def is_worse(self) -> bool:
        """True if more hosts are in use, or overload is higher, than found and predicted."""
        hosts = max(self.before.hosts_in_use, self.foreseen.hosts_in_use)
        overload = max(self.before.overload, self.foreseen.overload)
        return (self.realised.hosts_in_use > math.ceil(hosts * self.growth - ROUNDING)
                or self.realised.overload > overload + OVERLOAD_NOISE)

    def __str__(self) -> str:
        return (f'{self.before.hosts_in_use} -> '
                f'{plurals.count_noun(self.realised.hosts_in_use, "host")} in use '
                f'(foreseen {self.foreseen.hosts_in_use}), overload {self.before.overload:.3f} '
                f'-> {self.realised.overload:.3f} (foreseen {self.foreseen.overload:.3f})')


def find_trip_reason(outcomes: Sequence[PlanOutcome], failed: int, ended: int, *, worse_plans: int,
                     failure_rate: float) -> str | None:
    """Return why the scope must be paused, None: it need not be.

    :param outcomes: outcomes of the scope's plans, newest first.
    :param failed: number of recent migrations, out of ``ended``, that failed.
    :param worse_plans: number of harmful plans in a row that trips the breaker; 0: never.
    :param failure_rate: a larger fraction of failures trips the breaker; 1: never.
    """
    last = outcomes[:worse_plans]
    if worse_plans and len(last) == worse_plans and all(o.is_worse for o in last):
        outcomes_text = ', '.join(str(o) for o in reversed(last))
        harm = ('a larger combined imbalance than they found'
                if all(o.packing is None for o in last) else
                'more hosts in use or more overload than they found and foresaw'
                if all(o.packing is not None for o in last) else
                'the scope in a worse state than they found it in')
        return (f'{plurals.count_noun(worse_plans, "plan")} in a row left {harm}: '
                f'{outcomes_text}. See whether the profiles\' unit and capacities are right')
    if failed >= LEAST_FAILURES and failed > failure_rate * ended:
        return (f'{failed} of the last {ended} migrations failed, more than breaker_failure_rate '
                f'({failure_rate:g}). See the errors of the tasks and nova-compute\'s logs')
    return None


def describe_result(outcome: PlanOutcome) -> str:
    """Describe the measured result of a plan for the log."""
    if outcome.packing is not None:
        return str(outcome)
    return (f'{outcome.plan_id} found a combined imbalance of {outcome.before:.4f}, foresaw '
            f'{outcome.foreseen:.4f} and left {outcome.realised:.4f}')


def clear_moves(plan: model.Plan, reason: str) -> model.Plan:
    """Return the plan without its moves, because a breaker has paused the scope."""
    return dataclasses.replace(
        plan, moves=(), swaps=(), combined_after=plan.combined_before, packing_before=None,
        packing_after=None, reason=reason)
