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

"""The rule ``breaks-failover``: no plan turns a safe host unsafe. Pure.

It judges the cloud in which all moves of the plan have landed on their destinations. Where a move
fails or takes an alternate, the certificate of the next cycle judges.
"""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner

#: Number of times that moves are left out before all are.
ROUNDS = 4
#: Most hosts that a warning names.
NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True)
class GuardedPlan:
    """A plan under the rule, with the certificate of today and the one after the plan."""

    plan: model.Plan
    today: failover.FailoverCertificate
    after: failover.FailoverCertificate

    def list_new_places(self) -> Mapping[failover.FailedHosts, Mapping[str, str]]:
        """Return the places after the plan of the hosts that are safe today.

        Those that the certificate of today has as well are left out.
        """
        return {hosts: self.after.verdicts[hosts].places
                for hosts, verdict in self.today.verdicts.items()
                if verdict.state is failover.FailureState.SAFE
                and self.after.verdicts[hosts] is not verdict}


def guard_plan(request: planner.PlanningInput, plan: model.Plan,
               previous: failover.FailoverCertificate | None) -> GuardedPlan:
    """Certify each host today and after the plan; warn, or leave out moves, by the option.

    :param previous: the last certificate of the scope.
    """
    failures = list(failover.list_failures(request.cluster, 1))
    today = failover.certify_failures(request, failures, previous)
    if today.hold is not None:
        return GuardedPlan(dataclasses.replace(plan, warnings=(
            *plan.warnings, f'no failover certificate: {today.hold}')), today, today)
    for number in range(ROUNDS + 1):
        if not plan.moves:
            break
        after = failover.certify_failures(request, failures, today, moves=plan.moves)
        broken = _list_broken(today, after)
        if not broken:
            return GuardedPlan(plan, today, after)
        hosts = [verdict.hosts[0] for verdict in broken]
        names = ', '.join(hosts[:NAMED]) + (
            f' and {len(hosts) - NAMED} more' if len(hosts) > NAMED else '')
        if request.options.failover == model.FailoverMode.WARN:
            return GuardedPlan(dataclasses.replace(plan, warnings=(
                *plan.warnings, f'after this plan the instances of {names} would not all find '
                                f'places if the host failed (breaks-failover)')), today, after)
        dropped = (_choose_causes(plan, broken) if number < ROUNDS
                   else {m.instance_uuid for m in plan.moves})
        count = len(plan.moves)
        plan = planner.drop_moves(
            request, plan, dropped, f'moves are left out: with them the instances of {names} would '
                                    f'not all find places if the host failed (breaks-failover)')
        rejections = Counter(plan.rejections)
        rejections['breaks-failover'] += count - len(plan.moves)
        plan = dataclasses.replace(plan, rejections=dict(sorted(rejections.items())))
    return GuardedPlan(plan, today, today)


def _list_broken(today: failover.FailoverCertificate,
                 after: failover.FailoverCertificate) -> list[failover.FailureVerdict]:
    """List today's verdicts of the hosts that the plan turns from safe to not safe."""
    return [verdict for hosts, verdict in today.verdicts.items()
            if verdict.state is failover.FailureState.SAFE
            and after.verdicts[hosts].state is not failover.FailureState.SAFE]


def _choose_causes(plan: model.Plan, broken: Sequence[failover.FailureVerdict]) -> set[str]:
    """Choose the moves to a broken host, or to a place of its instances; else all moves."""
    ends = {host for verdict in broken for host in (*verdict.hosts, *verdict.places.values())}
    return {m.instance_uuid for m in plan.moves if m.to_host in ends} or {
        m.instance_uuid for m in plan.moves}
