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

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import rules
from kronos_nova.constraints import service_state
from kronos_nova.constraints import view as views
from kronos_nova.model import contracts as agreements
from kronos_nova.model import movement_hours
from kronos_nova.text import times as time_texts

#: Codes of limits that hold at some times alone.
PASSING = frozenset({'contract-hours', 'contract-max-moves', 'contract-notice'})
#: The longest time for which an owner waives notices, in seconds: a later time has no effect.
LONGEST_RELEASE = 30 * 86400


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the moves of an instance, after the operator's cap and deadline.

    ``grade``: the moves that it forbids while it ``holds``: hours may be open, and moves be left.
    ``stated``: its contract; None: it is an opt-out. ``notice``: the seconds of notice that it asks
    for.
    """

    grade: model.Disruption
    rejection: model.Rejection
    stated: model.Contract | None = None
    holds: bool = True
    notice: int | None = None

    @property
    def description(self) -> str:
        return (self.rejection.detail if self.stated is None
                else f'its contract says {self.stated}')


def contract(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move that a contract, or an opt-out, forbids.

    A grade of ``drain-only`` forbids moves for balance, packing and repairs. Grade ``never`` also
    forbids drains and requested moves. An instance outside its hours, with all its moves used up,
    or whose owner has not had notice, has grade ``never`` for as long, but for the way back of a
    swap.
    """
    return next((limit.rejection for limit in list_forbidding_limits(view, move) if limit.holds),
                None)


def list_forbidding_limits(view: views.CloudView, move: model.Move,
                           options: model.ContractOptions | None = None) -> Iterator[Limit]:
    """Yield the limits that forbid the move while they hold; ``options`` as in list_limits."""
    return (limit for limit in list_limits(view, move, options)
            if _is_forbidden(limit.grade, move.phase))


def find_movable_from(view: views.CloudView, move: model.Move, since: float | None = None,
                      options: model.ContractOptions | None = None) -> float | None:
    """Return when contracts allow the move (epoch seconds), if all stays as it is.

    Where notice has not been given, the time counts from now. None: a contract forbids the move at
    all times of the next year.

    :param since: the earliest time, as another rule holds the move until then; None: now.
    :param options: None: those of the view.
    """
    limits = list(list_forbidding_limits(view, move, options))
    if any(limit.holds and limit.rejection.rule not in PASSING for limit in limits):
        return None
    if since is None and not any(limit.holds for limit in limits):
        return view.taken_at
    start = max((_find_end(view, move, limit) for limit in limits), default=view.taken_at)
    return find_opening(view, limits, start if since is None else max(start, since))


def find_opening(view: views.CloudView, limits: Iterable[Limit], start: float) -> float | None:
    """Return when the hours of all limits are open, ``start`` or later; None: not within a year."""
    options = view.options.contracts
    hours = tuple(sorted({limit.stated.hours for limit in limits if limit.stated is not None
                          and limit.stated.hours is not None
                          and limit.rejection.rule == 'contract-hours'}, key=str))
    return movement_hours.find_opening(
        hours, start, options.timezone, options.begin_within) if hours else start


def find_needed_notice(view: views.CloudView, move: model.Move) -> int | None:
    """Return the seconds of notice that the move waits for, at most; None: it waits for none.

    A notice that was given is waited for, too, until its time has come.
    """
    return max((limit.notice for limit in list_forbidding_limits(view, move)
                if limit.holds and limit.notice is not None), default=None)


def has_notice(view: views.CloudView, uuid: str) -> bool:
    """Return whether the owner of the instance has notice of its next move."""
    return _find_live_notice(view, uuid) is not None


def _find_end(view: views.CloudView, move: model.Move, limit: Limit) -> float:
    """Return the time from which a number of moves, or a notice, holds no more; hours are left out.
    """
    stated, at = limit.stated, view.taken_at
    if stated is None:
        return at
    if limit.rejection.rule == 'contract-max-moves' and stated.max_moves is not None:
        completed = sorted(view.list_move_times(move.instance_uuid))[-stated.max_moves.moves:]
        if len(completed) < stated.max_moves.moves:
            return at
        return max(at, completed[0] + stated.max_moves.seconds)
    if limit.notice is not None and limit.holds:
        notice = _find_live_notice(view, move.instance_uuid)
        return max(at, limit.notice + (view.taken_at if notice is None else notice.noticed_at))
    return at


def count_in_full(options: model.ContractOptions) -> model.ContractOptions:
    """Return the options without the caps and deadlines for what owners state.

    They let an instance move, and do not make a long interruption welcome.
    """
    return dataclasses.replace(options, strongest_for_tenants=model.Disruption.NEVER,
                               ignore_after=None, opt_out=model.Disruption.NEVER)


def find_method_obstacle(view: views.CloudView, move: model.Move,
                         method: model.MoveMethod) -> str | None:
    """Return why a contract forbids to shut down and move a running instance; None: it does not.

    A notice says when an instance moves, not how.
    """
    if method is not model.MoveMethod.OFFLINE:
        return None
    limit = next(list_shutdown_limits(view, move), None)
    return None if limit is None else f'{method}: {limit.description}'


def list_shutdown_limits(view: views.CloudView, move: model.Move,
                         options: model.ContractOptions | None = None) -> Iterator[Limit]:
    """Yield the limits that forbid now to shut down and move a running instance.

    Notices are left out.

    :param options: None: those of the view.
    """
    instance = view.find_instance(move.instance_uuid)
    if instance is None or instance.status != 'ACTIVE':
        return iter(())
    return (limit for limit in list_limits(view, move, options)
            if limit.holds and limit.notice is None
            and limit.grade.rank > model.Disruption.COLD_OK.rank)


def lacks_shutdown_notice(view: views.CloudView, instance: model.Instance) -> bool:
    """Return whether its owner asks for notice, and the one of its next move names no shutdown."""
    if (not any(stated.notify is not None for stated in instance.contracts)
            or view.is_returning(instance.uuid) or _is_released(instance, view.taken_at)):
        return False
    notice = _find_live_notice(view, instance.uuid)
    return notice is None or not notice.may_shut_down


def find_parking_obstacle(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Return why an instance may not move twice in a swap, by a parking host; None: it may.

    The second move may be forbidden when its turn comes.
    """
    return next((
        model.Rejection(limit.rejection.rule,
                        f'instance {move.instance_uuid} waits on no parking host, as its contract '
                        f'limits moves: {limit.stated}')
        for limit in list_limits(view, move)
        if limit.rejection.rule in PASSING and _is_forbidden(limit.grade, move.phase)), None)


def may_hold_moves(instance: model.Instance) -> bool:
    """Return False for an instance that no contract of its own ever keeps from a live migration."""
    return any(
        stated.hours or stated.max_moves or stated.unreadable or stated.notify
        or (stated.disruption is not None
            and stated.disruption.rank > model.Disruption.LIVE.rank)
        for stated in instance.contracts)


def map_counted_seconds(cluster: model.Cluster) -> dict[str, int]:
    """Return the scope's instances whose contracts count moves, with the longest time for that.

    A cloud without a scope has all instances in it.
    """
    return {uuid: max(quotas) for uuid, instance in cluster.instances.items() if instance.contracts
            and _is_planned(cluster, instance)
            and (quotas := [stated.max_moves.seconds for stated in instance.contracts
                            if stated.max_moves is not None])}


def list_notified_instances(cluster: model.Cluster) -> frozenset[str]:
    """Return the scope's instances whose contracts ask for notice."""
    return frozenset(uuid for uuid, instance in cluster.instances.items() if instance.contracts
                     and _is_planned(cluster, instance)
                     and any(stated.notify for stated in instance.contracts))


def _is_planned(cluster: model.Cluster, instance: model.Instance) -> bool:
    """Return whether the instance is on a host of the scope; without a scope each one is."""
    return not cluster.scope_hosts or instance.host in cluster.scope_hosts


def describe_unreadable(cluster: model.Cluster, shown: int = 10) -> list[str]:
    """Return a warning for each instance of the scope with a value that cannot be read.

    :param shown: most instances that are named.
    """
    stating = [instance for uuid, instance in sorted(cluster.instances.items())
               if instance.contracts and instance.host in cluster.scope_hosts]
    warnings = [
        f'instance {instance.uuid}: its contract cannot be read and is taken as never, as far as '
        f'strongest_for_tenants allows: {"; ".join(map(str, unreadable))}'
        for instance in stating
        if (unreadable := [stated for stated in instance.contracts if stated.unreadable])]
    ignored = [
        f'instance {instance.uuid}: {plurals.count_noun(stated.ineffective, "key")} of its '
        f'{stated.source} '
        f'{plurals.choose_form(stated.ineffective, "begins", "begin")} with {agreements.PREFIX} '
        f'and {plurals.choose_form(stated.ineffective, "has", "have")} no effect: the key is '
        'unknown, or the time of a release cannot be read'
        for instance in stating for stated in instance.contracts if stated.ineffective]
    return [*_limit_warnings(warnings, shown, 'the contracts of {} more instances cannot be read'),
            *_limit_warnings(ignored, shown, '{} more sources have keys without effect')]


def _limit_warnings(warnings: list[str], shown: int, rest: str) -> list[str]:
    more = len(warnings) - shown
    return warnings[:shown] + ([rest.format(more)] if more > 0 else [])


def list_limits(view: views.CloudView, move: model.Move,
                options: model.ContractOptions | None = None) -> Iterator[Limit]:
    """Yield all that limits the moves of an instance, as far as the operator lets it count.

    :param options: None: those of the view.
    """
    instance = view.find_instance(move.instance_uuid)
    if instance is None:
        return
    options = options or view.options.contracts
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
            yield from _list_stated_limits(view, instance, stated, options)


def _list_stated_limits(view: views.CloudView, instance: model.Instance,
                        stated: model.Contract,
                        options: model.ContractOptions) -> Iterator[Limit]:
    who = f'instance {instance.uuid}'
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
            holds=not returns and not stated.hours.is_open(view.taken_at, zone,
                                                           options.begin_within))
    if stated.max_moves is not None:
        since = view.taken_at - stated.max_moves.seconds
        times = [at for at in view.list_move_times(instance.uuid) if at > since]
        yield Limit(never, model.Rejection(
            'contract-max-moves', f'{who} has used up its moves, {stated.max_moves} '
                                  f'({stated.source})'), stated,
            holds=not returns and len(times) >= stated.max_moves.moves)
    if stated.notify is not None:
        since = view.taken_at
        notice = _find_live_notice(view, instance.uuid)
        noticed = notice is not None and notice.noticed_at + stated.notify.seconds <= since
        released = _is_released(instance, since)
        yield Limit(never, model.Rejection(
            'contract-notice', f'{who} begins to move {stated.notify} after its owner had notice'
                               f'{_describe_notice(notice, stated.notify)} ({stated.source})'),
            stated, holds=not (returns or noticed or released), notice=stated.notify.seconds)
    if stated.unreadable:
        yield Limit(never, model.Rejection(
            'contract-unreadable', f'{who} has a contract that cannot be read: '
                                   f'{", ".join(stated.unreadable)} ({stated.source})'), stated)


def _is_released(instance: model.Instance, now: float) -> bool:
    """Return whether the owner of the instance waives notices now."""
    return any(stated.release is not None and now < stated.release <= now + LONGEST_RELEASE
               for stated in instance.contracts)


def _find_live_notice(view: views.CloudView, uuid: str) -> model.MoveNotice | None:
    """Return the notice of the instance's next move, unless it has lapsed."""
    notice, instance = view.find_notice(uuid), view.find_instance(uuid)
    if (notice is None or instance is None or notice.used_at is not None
            or notice.host != instance.host or notice.valid_until <= view.taken_at):
        return None
    return notice


def _describe_notice(notice: model.MoveNotice | None, period: model.NoticePeriod) -> str:
    if notice is None:
        return ', and no notice was given yet'
    at = time_texts.format_time(notice.noticed_at + period.seconds)
    return f': from {at} on, as announced at {time_texts.format_time(notice.noticed_at)}'


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
        'contract-notice': rules.RejectionCode(
            meaning='Its contract asks for notice before a move, whose time has not come.',
            remedy='the time of the notice comes, or its owner releases it (kronos:release); an '
                   'engine gives the notice when a drain, or balance, needs the move',
            retry=rules.RetryClass.FINAL),
        'contract-unreadable': rules.RejectionCode(
            meaning='A value of its contract cannot be read, so the most careful one counts.',
            remedy='the value is corrected where the text says; flavor: it is resized to another '
                   'one, or moved by hand',
            retry=rules.RetryClass.FINAL)})
