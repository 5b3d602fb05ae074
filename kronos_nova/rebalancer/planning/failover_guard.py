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

"""The rule ``breaks-failover``: no plan takes the places of instances that have them. Pure.

It judges the cloud in which all moves of the plan have landed on their destinations. Where a move
fails or takes an alternate, the certificate of the next cycle judges. An instance that no host may
take, also after moves, counts for nothing: else one such instance would leave its neighbours
without the rule.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer import failover_checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.search import failure_places

#: Number of times that moves are left out before all are.
ROUNDS = 4
#: Number of times that moves are put back which may break nothing.
RESTORATIONS = 8
#: Most hosts that a warning names.
NAMED = 3
#: How the warning about a whole plan begins.
AFTER = 'after this plan the instances of'


@dataclasses.dataclass(frozen=True, slots=True)
class GuardedPlan:
    """A plan under the rule, with the certificate of today and the one after the plan."""

    plan: model.Plan
    today: failover.FailoverCertificate
    after: failover.FailoverCertificate

    def list_places(self) -> Mapping[failover.FailedHosts, Mapping[str, str]]:
        """Return the places after the plan, by the failed hosts that were searched."""
        return {hosts: verdict.places for hosts, verdict in self.after.verdicts.items()
                if verdict.is_searched}

    def list_excused(self) -> frozenset[str]:
        """Return the instances that need no place after the plan.

        They have none today, or no host may take them, or their host is not safe today:
        :func:`list_broken` compares how many of its instances have places.
        """
        return frozenset(uuid for v in self.today.verdicts.values() for uuid in v.unplaced).union(
            uuid for hosts, v in self.after.verdicts.items()
            for uuid, rejection in v.unplaced.items()
            if rejection.rule in failure_places.EVERYWHERE
            or self.today.verdicts[hosts].state is not failover.FailureState.SAFE)


def guard_plan(request: planner.PlanningInput, plan: model.Plan,
               previous: failover.FailoverCertificate | None,
               expired: Callable[[], bool] = lambda: False, *,
               whole: bool = False) -> GuardedPlan:
    """Certify each host today and after the plan; warn, or leave out moves, by the option.

    :param previous: the last certificate of the scope.
    :param expired: true ends the searches. Moves are then left out where their effect is not
        known.
    :param whole: leave out all moves or none. A search for the moves to leave out certifies again
        and again.
    """
    failures = list(failover.list_failures(request.cluster, 1))
    today = certify_today(request, failures, previous, expired)
    if today.hold is not None:
        return GuardedPlan(_add_warning(plan, f'no failover certificate: {today.hold}'), today,
                           today)

    def certify(moves: Sequence[model.Move]) -> failover.FailoverCertificate:
        return failover.certify_failures(request, failures, today, moves=moves, expired=expired)

    after = certify(plan.moves) if plan.moves else today
    broken = list_broken(today, after)
    if not broken:
        return GuardedPlan(plan, today, after)
    names = _join_names([verdict.hosts[0] for verdict in broken])
    if request.options.failover == model.FailoverMode.WARN:
        return GuardedPlan(_add_warning(
            plan, f'{AFTER} {names} would not all find places if the host failed '
                  f'(breaks-failover)'), today, after)
    why = (f'moves are left out: with them the instances of {names} would not all find places if '
           f'the host failed (breaks-failover)')

    def leave_out(dropped: set[str]) -> tuple[model.Plan, failover.FailoverCertificate]:
        left = planner.drop_moves(request, plan, dropped, why)
        return left, certify(left.moves) if left.moves else today

    everything = {m.instance_uuid for m in plan.moves}
    dropped = everything if whole else _choose_causes(plan.moves, broken)
    best = plan, after
    for number in range(ROUNDS):
        dropped = everything if number == ROUNDS - 1 or expired() else dropped
        best = leave_out(dropped)
        broken = list_broken(today, best[1])
        if not broken:
            break
        dropped = everything - {m.instance_uuid for m in best[0].moves}
        dropped |= _choose_causes(best[0].moves, broken)
    halves = [] if whole else [[m.instance_uuid for m in plan.moves if m.instance_uuid in dropped]]
    for _ in range(RESTORATIONS):
        if not halves or expired():
            break
        back = halves.pop()
        again = leave_out(dropped.difference(back))
        if len(again[0].moves) > len(best[0].moves) and not list_broken(today, again[1]):
            best, dropped = again, dropped.difference(back)
        elif len(back) > 1:
            halves += [back[len(back) // 2:], back[:len(back) // 2]]
    return GuardedPlan(_explain_lack(request, plan, best[0], names), today, best[1])


def certify_today(request: planner.PlanningInput, failures: Sequence[failover.FailedHosts],
                  previous: failover.FailoverCertificate | None,
                  expired: Callable[[], bool]) -> failover.FailoverCertificate:
    """Certify the cloud as it is, kept verdicts too; what the checker refuses is unknown."""
    today = failover.certify_failures(request, failures, previous, expired=expired)
    return set_faulty_verdicts_aside(today, request)


def set_faulty_verdicts_aside(certificate: failover.FailoverCertificate,
                              request: planner.PlanningInput) -> failover.FailoverCertificate:
    """Return the certificate with each verdict unknown of which the checker refuses a place."""
    faults = failover_checker.check_places(
        {v.hosts: v.places for v in certificate.list_verdicts(failover.FailureState.SAFE)},
        request.cluster, request.options, request.history, request.scores,
        sim.compute_ceilings(request.policies, request.options))
    unknown = {hosts: failover.FailureVerdict(
        hosts, failover.FailureState.UNKNOWN,
        fault=failover_checker.describe_faults({hosts: found})) for hosts, found in faults.items()}
    return dataclasses.replace(certificate, verdicts={**certificate.verdicts, **unknown})


def list_broken(today: failover.FailoverCertificate,
                after: failover.FailoverCertificate) -> list[failover.FailureVerdict]:
    """List today's verdicts of the hosts where the plan takes the places of instances.

    A host that is unsafe today is broken only if more instances lose their places than find some.
    """
    placed = {uuid for v in today.verdicts.values() for uuid in v.places}
    broken = []
    for hosts, verdict in today.verdicts.items():
        later = after.verdicts[hosts]
        if later is verdict or not verdict.is_searched:
            continue
        lost = sum(uuid in placed for uuid in later.list_lacking())
        won = (0 if verdict.state is failover.FailureState.SAFE
               else sum(uuid in verdict.unplaced for uuid in later.places))
        if lost > won or not later.is_searched:
            broken.append(verdict)
    return broken


def _choose_causes(moves: Sequence[model.Move],
                   broken: Sequence[failover.FailureVerdict]) -> set[str]:
    """Choose the moves to a broken host, or to a place of its instances; else all moves."""
    ends = {host for verdict in broken for host in (*verdict.hosts, *verdict.places.values())}
    return {m.instance_uuid for m in moves if m.to_host in ends} or {
        m.instance_uuid for m in moves}


def _explain_lack(request: planner.PlanningInput, plan: model.Plan, left: model.Plan,
                  names: str) -> model.Plan:
    """Count the moves that were left out, and name the drains that this stops.

    :param names: the hosts that the whole plan would break.
    """
    rejections = Counter(plan.rejections)
    rejections['breaks-failover'] += len(plan.moves) - len(left.moves)
    remaining = {m.instance_uuid for m in left.moves}
    stopped = sorted({m.from_host for m in plan.moves if m.phase is model.Phase.EVACUATE
                      and m.instance_uuid not in remaining})
    undrained = tuple(model.Rejection(
        'not-drained', f'host {host} keeps instances, because those of {names} would not all find '
                       'places if the host failed (breaks-failover)') for host in stopped)
    return dataclasses.replace(left, rejections=dict(sorted(rejections.items())),
                               undrained=(*left.undrained, *undrained))


def _add_warning(plan: model.Plan, text: str) -> model.Plan:
    """Return the plan with a warning in place of an earlier one of this rule."""
    return dataclasses.replace(plan, warnings=(*(
        w for w in plan.warnings if w != text and not w.startswith(AFTER)), text))


def _join_names(hosts: Sequence[str]) -> str:
    more = len(hosts) - NAMED
    return ', '.join(hosts[:NAMED]) + (f' and {more} more' if more > 0 else '')
