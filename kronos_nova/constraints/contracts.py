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

"""Contracts: what may be done to an instance, as its owner, its flavor and the operator state it.

The strictest statement counts. A tenant can only keep an instance where it is, and only as far as
the operator's cap allows: no text that a tenant writes makes an instance movable that another rule
holds, or blocks a drain beyond the cap.
"""

from collections.abc import Iterator
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import service_state
from kronos_nova.constraints import view as views

#: Codes of limits that hold at some times alone.
_PASSING = ('contract-hours', 'contract-max-moves')


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the moves of an instance, after the operator's cap and deadline.

    ``grade``: the moves that it forbids while it ``holds``: hours may be open, and moves be left.
    ``stated``: its contract; None: it is an opt-out.
    """

    grade: model.Disruption
    rejection: model.Rejection
    stated: model.Contract | None = None
    holds: bool = True


def contract(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that a contract, or an opt-out, forbids.

    A grade of ``drain-only`` forbids moves for balance, packing and repairs. Grade ``never`` also
    forbids drains and requested moves. An instance outside its hours, or with all its moves used
    up, has grade ``never`` for as long, but for the way back of a swap.
    """
    return next((limit.rejection for limit in list_limits(view, move)
                 if limit.holds and _is_forbidden(limit.grade, move.phase)), None)


def find_method_obstacle(view: views.CloudView, move: model.Move,
                         method: model.MoveMethod) -> str | None:
    """Return why a contract forbids to shut down and move a running instance; None: it does not."""
    instance = view.find_instance(move.instance_uuid)
    if method is not model.MoveMethod.OFFLINE or instance is None or instance.status != 'ACTIVE':
        return None
    return next((
        f'{method}: {limit.rejection.detail}' if limit.stated is None
        else f'{method}: its contract says {limit.stated}' for limit in list_limits(view, move)
        if limit.holds and limit.grade.rank > model.Disruption.COLD_OK.rank), None)


def find_parking_obstacle(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Return why an instance may not move twice in a swap, by a parking host; None: it may.

    The second move may be forbidden when its turn comes.
    """
    return next((
        model.Rejection(limit.rejection.rule,
                        f'instance {move.instance_uuid} waits on no parking host, as its contract '
                        f'limits moves: {limit.stated}')
        for limit in list_limits(view, move)
        if limit.rejection.rule in _PASSING and _is_forbidden(limit.grade, move.phase)), None)


def may_hold_moves(instance: model.Instance) -> bool:
    """Return False for an instance that no contract of its own ever keeps from a live migration."""
    return any(
        stated.hours or stated.max_moves or stated.unreadable
        or (stated.disruption is not None
            and stated.disruption.rank > model.Disruption.LIVE.rank)
        for stated in instance.contracts)


def map_counted_seconds(cluster: model.Cluster) -> dict[str, int]:
    """Return the instances whose contracts count moves, with the longest time for which they do."""
    return {uuid: max(quotas) for uuid, instance in cluster.instances.items() if instance.contracts
            and (quotas := [stated.max_moves.seconds for stated in instance.contracts
                            if stated.max_moves is not None])}


def describe_unreadable(cluster: model.Cluster, shown: int = 10) -> list[str]:
    """Return a warning for each instance of the scope with a value that cannot be read.

    :param shown: most instances that are named.
    """
    warnings = [
        f'instance {uuid}: its contract cannot be read and is taken as never, as far as '
        f'strongest_for_tenants allows: {"; ".join(map(str, unreadable))}'
        for uuid, instance in sorted(cluster.instances.items()) if instance.contracts
        and instance.host in cluster.scope_hosts
        and (unreadable := [stated for stated in instance.contracts if stated.unreadable])]
    more = len(warnings) - shown
    return warnings[:shown] + ([f'the contracts of {more} more instances cannot be read']
                               if more > 0 else [])


def list_limits(view: views.CloudView, move: model.Move) -> Iterator[Limit]:
    """Yield all that limits the moves of an instance, as far as the operator lets it count."""
    instance = view.find_instance(move.instance_uuid)
    if instance is None:
        return
    options = view.options.contracts
    if instance.project_id and instance.project_id in view.options.opted_out_projects:
        yield Limit(options.opt_out, model.Rejection(
            'project-opted-out', f'the project of instance {instance.uuid} is in '
                                 'opted_out_projects'))
    ignored = move.phase in service_state.LEAVING and _ignores_tenants(options, view.taken_at)
    if instance.opted_out is not None and not ignored:
        yield Limit(options.opt_out, model.Rejection(
            'owner-opted-out', f'instance {instance.uuid} was opted out by its owner '
                               f'({instance.opted_out})'))
    for stated in instance.contracts:
        if not (ignored and stated.source.is_tenants):
            yield from _list_stated_limits(view, instance, stated)


def _list_stated_limits(view: views.CloudView, instance: model.Instance,
                        stated: model.Contract) -> Iterator[Limit]:
    options, who = view.options.contracts, f'instance {instance.uuid}'
    never = _cap_grade(stated, model.Disruption.NEVER, options)
    if stated.disruption is not None:
        yield Limit(_cap_grade(stated, stated.disruption, options), model.Rejection(
            'contract-disruption', f'{who} has the contract disruption {stated.disruption} '
                                   f'({stated.source})'), stated)
    returns = view.is_returning(instance.uuid)
    if stated.hours is not None:
        zone = options.timezone
        yield Limit(never, model.Rejection(
            'contract-hours', f'{who} begins to move only in its hours "{stated.hours}" {zone} '
                              f'({stated.source})'), stated,
            holds=not returns and not stated.hours.is_open(view.taken_at, zone))
    if stated.max_moves is not None:
        since = view.taken_at - stated.max_moves.seconds
        times = [at for at in view.list_move_times(instance.uuid) if at > since]
        yield Limit(never, model.Rejection(
            'contract-max-moves', f'{who} has used up its moves, {stated.max_moves} '
                                  f'({stated.source})'), stated,
            holds=not returns and len(times) >= stated.max_moves.moves)
    if stated.unreadable:
        yield Limit(never, model.Rejection(
            'contract-unreadable', f'{who} has a contract that cannot be read: '
                                   f'{", ".join(stated.unreadable)} ({stated.source})'), stated)


def _cap_grade(stated: model.Contract, grade: model.Disruption,
               options: model.ContractOptions) -> model.Disruption:
    """Return the grade, at most the operator's cap where a tenant has stated it."""
    if not stated.source.is_tenants:
        return grade
    return min(grade, options.strongest_for_tenants, key=lambda g: g.rank)


def _ignores_tenants(options: model.ContractOptions, now: float) -> bool:
    return options.ignore_after is not None and now >= options.ignore_after


def _is_forbidden(grade: model.Disruption, phase: model.Phase) -> bool:
    if grade is model.Disruption.NEVER:
        return True
    return grade is model.Disruption.DRAIN_ONLY and phase not in service_state.LEAVING


CONTRACT_RULE = rules.Rule(
    contract, kind=rules.RuleKind.ALONE,
    codes={
        'project-opted-out': rules.RejectionCode(
            meaning='Its project is in opted_out_projects.',
            remedy='the project leaves [engine] opted_out_projects',
            retry=rules.RetryClass.FINAL),
        'owner-opted-out': rules.RejectionCode(
            meaning='Its metadata or tags say so.',
            remedy='its owner takes the metadata or the tag away',
            retry=rules.RetryClass.FINAL),
        'contract-disruption': rules.RejectionCode(
            meaning='Its contract does not allow moves of this phase.',
            remedy='metadata or tag: its owner weakens kronos:disruption, or [contracts] '
                   'strongest_for_tenants or ignore_after does; flavor: it is resized to another '
                   'one, or moved by hand; project: [contracts] file changes',
            retry=rules.RetryClass.FINAL),
        'contract-hours': rules.RejectionCode(
            meaning='Its contract allows moves at other hours.',
            remedy='its hours begin (kronos:hours)',
            retry=rules.RetryClass.FINAL),
        'contract-max-moves': rules.RejectionCode(
            meaning='It was moved as often as its contract allows.',
            remedy='its earlier moves become old enough (kronos:max_moves)',
            retry=rules.RetryClass.FINAL),
        'contract-unreadable': rules.RejectionCode(
            meaning='A value of its contract cannot be read, so the most careful one counts.',
            remedy='the value is corrected where the text says; flavor: it is resized to another '
                   'one, or moved by hand',
            retry=rules.RetryClass.FINAL)})
