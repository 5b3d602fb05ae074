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

#: Who has paused a scope whose breaker is open.
NAME = 'the circuit breaker'
#: Combined imbalance differs by so much from one sample to the next.
NOISE = 0.01
#: Fewer failures than this are no rate.
LEAST_FAILURES = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The combined imbalance before a plan, as it foresaw it, and as the first
    trusted scores showed it that its last move could not change any more."""

    plan_id: str
    before: float
    foreseen: float
    realised: float

    @property
    def worse(self) -> bool:
        return self.realised > self.before + NOISE


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
        told = ', '.join(f'{o.plan_id} {o.before:.3f} -> {o.realised:.3f} (foreseen '
                         f'{o.foreseen:.3f})' for o in reversed(last))
        return (f'{worse_plans} plans in a row left a larger combined imbalance than they found: '
                f'{told}. See whether the profiles\' unit and capacities are right')
    if failed >= LEAST_FAILURES and failed > failure_rate * ended:
        return (f'{failed} of the last {ended} migrations failed, more than breaker_failure_rate '
                f'({failure_rate:g}). See the errors of the tasks and nova-compute\'s logs')
    return None
