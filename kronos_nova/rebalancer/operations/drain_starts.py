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

"""The start of a drain: disable a host that can be emptied, and approve its moves if wanted."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import shlex

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.operations import beginning_drains
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_approvals
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drain_deadlines
from kronos_nova.rebalancer.operations import nova_users
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.strategies import drain_requests

#: Returns a drain that begins at the same time; None: none does.
FindRival = Callable[[], beginning_drains.BeginningDrain | None]


@dataclasses.dataclass(frozen=True, slots=True)
class StartedDrain:
    """A drain that has begun.

    ``changed``: this call disabled the host; else it was disabled for that reason already.
    ``approval``: None, unless the moves of the drain were to be approved. ``deadline_change``: a
    sentence on the deadline that the host had before; '': none.
    """

    check: drain_checks.DrainAnswer
    changed: bool
    approval: drain_approvals.DrainApproval | None = None
    deadline_change: str = ''


def start_drain(session: cloud_state.Session, host: str, *, reason: str, force: bool = False,
                approve: bool = False, deadline: drain_deadlines.Deadline = None,
                service: compute_service.ComputeService | None = None,
                take_turn: drain_approvals.TakeTurn = contextlib.nullcontext) -> StartedDrain:
    """Check the host, then disable it, unless it is disabled for that reason already.

    :param reason: Nova's disabled_reason of the host.
    :param force: also when instances would stay, or the host is disabled for another reason.
    :param approve: approve the moves of the drain, where plans wait for approval.
    :param deadline: when the host is to be empty; None: a drain that goes on keeps its deadline.
    :param service: the host's nova-compute for the person who asks; None: for the user of [nova],
        and the session reads the services with the cloud.
    :param take_turn: returns a context in which the drain is calculated.
    :raises KronosException: the host cannot be emptied, engines would not empty it, it is disabled
        for another reason, the database cannot be written, or Nova refused. Nothing is changed
        then, unless only Nova's answer was lost.
    """
    session.forget_cloud()
    # Nothing is changed without an audit row.
    store = session.existing_store
    began = store.now()
    order = drain_deadlines.DeadlineOrder(
        store, host, drain_deadlines.resolve_deadline(deadline, began), session.operator)
    if service is not None:
        # Other hosts may have been disabled since the cloud was read.
        session.present_services = _list_services(service, reason)
    options = session.cloud_for_requests.options or engine_conf.build_options(session.conf)
    require_draining_engines(options, reason)
    with take_turn():
        check = drain_checks.check_drain(session, host, beside_plans=approve,
                                         deadline=order.deadline)

    def find_rival() -> beginning_drains.BeginningDrain | None:
        cluster = drain_checks.find_host_cluster(session.cloud_for_requests, host)
        return beginning_drains.find_beginning_drain(
            store, cluster, began, beginning_drains.count_rival_seconds(session.conf), host=host)

    changed = _disable_host(
        service or session.find_service(host), reason, force, check, options,
        lambda command, text: store.audit.record_command(
            session.operator, command, f'host {host}', text), approve, find_rival, order)
    session.present_services = {**session.present_services, host: model.Service(
        host, status='disabled', disabled_reason=reason)}
    return StartedDrain(check, changed, drain_approvals.approve_drain(
        session, host, reason=reason, take_turn=take_turn) if approve else None,
        order.change_text)


def _list_services(service: compute_service.ComputeService,
                   reason: str) -> dict[str, model.Service]:
    """Return all nova-computes by host, as Nova shows them now.

    :raises ConfigError: Nova refused, or cannot be read.
    """
    try:
        return service.list_services()
    except api.ApiError as e:
        raise nova_users.make_error(e, service.host, _format_manual_steps(
            service.host, reason, changed=False)) from None


def _disable_host(service: compute_service.ComputeService, reason: str, force: bool,
                  check: drain_checks.DrainAnswer, options: model.PlanningOptions,
                  record: Callable[[str, str], None], approve: bool = False,
                  find_rival: FindRival = lambda: None,
                  order: drain_deadlines.DeadlineOrder | None = None) -> bool:
    """Disable the host; return False if it is disabled for that reason already.

    :param record: writes an audit row of a command and a reason. The row is there before the host
        is disabled; a second one follows when Nova refuses or does not answer.
    :param approve: the audit row says that the moves are to be approved.
    :param find_rival: returns a drain that begins at the same time, so that the check has not seen
        its host disabled; see :mod:`beginning_drains`.
    :param order: writes the deadline before all else: a database without the rights for that
        leaves nothing half done.
    :raises ConfigError: a problem is in the way, or Nova refused.
    """
    host = service.host
    try:
        uuid, present = service.read_service()
        if not present.enabled and present.disabled_reason == reason:
            if order is not None:
                order.change_order(present, options)
            return False
        if not force:
            _refuse_without_force(host, check, present, options)
        text = audits.append_flags(reason, force=force, approve=approve)
        with _order_deadline(order, present, reason, text) as text:
            record(audits.DRAIN_STARTED, text)
            rival = None if force else find_rival()
            if rival is not None:
                record(audits.DRAIN_FAILED, rival.clause)
                raise exception.ConflictError(
                    path='request', field=host,
                    problem=f'{rival}, and the check of this drain has not counted that',
                    remedy=f'Nothing is changed. {rival.remedy}. With force the host is disabled '
                           'all the same')
            try:
                service.disable(uuid, reason)
            except api.ApiError as e:
                if e.sent and order is not None:
                    order.keep_order()
                record(audits.DRAIN_UNANSWERED if e.sent else audits.DRAIN_FAILED, str(e))
                raise
    except api.ApiError as e:
        raise nova_users.make_error(
            e, host, _format_manual_steps(host, reason, changed=e.sent)) from None
    return True


@contextlib.contextmanager
def _order_deadline(order: drain_deadlines.DeadlineOrder | None, present: model.Service,
                    reason: str, text: str) -> Iterator[str]:
    """Write the deadline of a drain, and yield the reason of the audit row with it.

    Restore the earlier one after an error, unless the order is to be kept.
    """
    if order is None:
        yield text
        return
    text = order.write_order(present, reason, text)
    try:
        yield text
    except Exception:
        order.restore_order()
        raise


def require_draining_engines(options: model.PlanningOptions, reason: str) -> None:
    """Check that engines would empty the host.

    :raises ConfigError: no engine of this configuration would.
    """
    if options.dry_run:
        raise _make_option_error('[engine] dry_run', 'it is set, and then nothing is moved',
                                 'Unset it')
    if not options.evacuate_disabled_hosts:
        raise _make_option_error('[engine] evacuate_disabled_hosts',
                                 'it is not set: engines leave disabled hosts alone',
                                 'Set it for them, too')
    service = model.Service('', status='disabled', disabled_reason=reason)
    if (why := drain_requests.find_drain_refusal(service, options)) is not None:
        raise exception.ConfigError(
            path='request', field='reason', problem=f'engines would not drain it: {why}',
            remedy='Give a reason that [engine] drain_reason_regex matches and that does not '
                   f'begin with {drain_requests.AUTOMATIC}')


def _make_option_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConflictError(path='kronos.conf', field=field, problem=problem, remedy=remedy)


def _refuse_without_force(host: str, check: drain_checks.DrainAnswer, service: model.Service,
                          options: model.PlanningOptions) -> None:
    """Raise unless the host is enabled and would become empty.

    :raises ConflictError: it is not; force skips this check.
    """
    if not service.enabled:
        drained = drain_requests.find_drain_refusal(service, options)
        raise exception.ConflictError(
            path='request', field=host,
            problem=f'it is disabled already, {format_disabled_reason(service)} (Nova records '
                    'neither the time nor the user), and engines '
                    + ('empty it' if drained is None else 'leave it alone'),
            remedy='Nothing is changed. With force this reason takes the place of that one')
    staying = [b for b in check.check.blocked if not b.later]
    if not (staying or check.in_the_way):
        return
    raise exception.ConflictError(
        path='request', field=host,
        problem=(f'{plurals.count_noun(len(staying), "instance")} would stay, the first '
                 f'{staying[0].instance_uuid}: '
                 f'{staying[0].reason}' if staying else
                 '; '.join(check.in_the_way)),
        remedy='The check of the drain has them all. With force the host is disabled all the same')


def format_disabled_reason(service: model.Service) -> str:
    """Return for which reason a service is disabled, as a clause."""
    if not service.disabled_reason:
        return 'without a reason'
    return f'for the reason {service.disabled_reason!r}'


def _format_manual_steps(host: str, reason: str, *, changed: bool) -> str:
    """Return the next step after Nova failed to disable the host.

    :param changed: Nova may have disabled it nevertheless.
    """
    command = ('openstack compute service set --disable --disable-reason '
               f'{shlex.quote(reason)} {shlex.quote(host)} nova-compute')
    return (('See openstack compute service list whether it is disabled now; if not, disable it '
             'yourself: ' if changed else 'Nothing is changed. Or disable it yourself: ')
            + command)
