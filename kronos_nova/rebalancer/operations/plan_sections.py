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

"""The section of a stored plan, and the imbalance over time, for the report and the live page."""

from collections.abc import Mapping
from collections.abc import Sequence
import time

from kronos_nova.rebalancer.report import stored_section
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows


def build_section(store: api.Store, row: rows.PlanRow, stagger: float,
                  limit: int) -> values.ScopeSection:
    """Build the section of a plan, with the tasks and the operators' decisions.

    :param stagger: seconds between the starts of two moves of a wave, as configured now.
    :param limit: number of the scope's plans that make up the imbalance over time.
    """
    plans = store.plans.list_plans(limit, row.plan.scope)
    if row.plan_id not in {p.plan_id for p in plans}:
        plans = [*plans, row]
    realised = _read_realised_imbalances(store, plans)
    return stored_section.build_section(
        row, store.tasks.list_tasks_of_plans([row.plan_id]), realised=realised.get(row.plan_id),
        past=stored_section.build_points(plans, realised, row.plan_id,
                                         _list_dropped_plans(store, plans)),
        now=time.time(), stagger=stagger,
        decisions=[_format_decision(decision)
                   for decision in store.approvals.list_decisions(row.plan_id)])


def build_points(store: api.Store,
                 plans: Sequence[rows.PlanRow]) -> tuple[values.PlanPoint, ...]:
    """Return the points of plans on the curve of the imbalance over time."""
    return stored_section.build_points(plans, _read_realised_imbalances(store, plans),
                                       dropped=_list_dropped_plans(store, plans))


def _read_realised_imbalances(store: api.Store,
                              plans: Sequence[rows.PlanRow]) -> Mapping[str, float | None]:
    """Return the measured imbalance after each plan, by plan.

    Dry runs and plans without moves are left out.
    """
    return store.outcomes.find_measured_imbalances(
        [row.plan_id for row in plans if row.plan.moves and not row.dry_run])


def _list_dropped_plans(store: api.Store, plans: Sequence[rows.PlanRow]) -> frozenset[str]:
    return stored_section.list_dropped_plans(store.tasks.list_tasks_of_plans(
        [row.plan_id for row in plans if row.plan.moves]))


def _format_decision(decision: plan_decisions.StoredDecision) -> str:
    return (f'{words.format_timestamp(decision.decided_at)}: {decision.tasks} {decision.verb} by '
            f'{decision.decided_by}' + (f': {decision.reason}' if decision.reason else ''))
