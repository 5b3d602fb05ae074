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

"""The deadline of a drain: its check, its record, and the instances that do not leave in time."""

from collections.abc import Mapping
import contextlib
import dataclasses
import datetime

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import times

#: A time in epoch seconds, or a duration from now on; None: a drain has no deadline.
Deadline = float | datetime.timedelta | None
#: Earliest deadline, in seconds from now: engines plan the first moves in their next cycle.
SHORTEST_SECONDS = 300.0
_LONGEST, _CLOCKS = drain_orders.LONGEST_SECONDS, drain_orders.CLOCK_SECONDS
#: Smallest risk at which an instance is expected not to converge.
_EXPECTED = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class LateInstance:
    """An instance that is not expected to leave by the deadline, with the reason."""

    instance_uuid: str
    reason: str


def resolve_deadline(deadline: Deadline, now: float) -> float | None:
    """Return a deadline in epoch seconds, without fractions.

    A time may be a minute nearer or farther, since clocks differ; a duration may not.

    :raises ConfigError: it has passed, or is too near or too far away.
    """
    if deadline is None:
        return None
    clocks = _CLOCKS
    if isinstance(deadline, datetime.timedelta):
        # Larger numbers are no time that a calendar can show.
        clocks, deadline = 0.0, now + min(deadline.total_seconds(), _LONGEST + _CLOCKS)
    if deadline <= now:
        raise _make_error(f'{times.format_time(times.clamp_time(deadline))} has passed')
    if deadline - now < SHORTEST_SECONDS - clocks:
        raise _make_error('it is less than 5 minutes away')
    if deadline - now > _LONGEST + clocks:
        raise _make_error('it is more than 30 days away')
    return float(int(deadline))


def _make_error(problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path='request', field='deadline', problem=problem,
        remedy='Nothing is changed. Give a time, or a duration such as 2h, from 5 minutes to 30 '
               'days away')


class DeadlineOrder:
    """The deadline that a person sets for the drain of a host; None: the person gives none.

    ``change_text``: a sentence on an earlier deadline once the order was written; '': there was
    none.
    """

    def __init__(self, store: api.Store, host: str, deadline: float | None, operator: str) -> None:
        self.store, self.host, self.deadline, self.operator = store, host, deadline, operator
        self.change_text = ''
        self._before: drain_orders.DrainOrder | None = None
        self._written: drain_orders.DrainOrder | None = None

    def write_order(self, service: model.Service, reason: str, text: str) -> str:
        """Store the deadline of a drain that begins or that gets another reason.

        Such a drain keeps the deadline that it has, unless the person gives another.

        :param service: the host's nova-compute as it is now.
        :param reason: its disabled_reason during the drain.
        :param text: the reason of the audit row.
        :returns: the same with the change.
        """
        orders, before = self.store.drain_orders, self._find_earlier()
        at = None if before is None else times.format_time(before.at)
        self._before = self._written = orders.find_order(self.host)
        if self.deadline is not None:
            text += f' (deadline {self._set_deadline(self.deadline, reason, at)})'
        elif before is not None and self._before is not None and model.find_drain_deadline(
                {self.host: before}, service) is not None:
            self._written = dataclasses.replace(self._before, disabled_reason=reason)
            orders.replace_order(self._written)
            self.change_text = f'The drain keeps its deadline {at}.'
            text += f' (keeps the deadline {at})'
        elif self._before is not None:
            self._written = None
            orders.end_orders([self.host])
            if at is not None:
                self.change_text = f'The deadline {at} of an earlier drain is removed.'
                text += f' (removes the deadline {at} of an earlier drain)'
        return text

    def _find_earlier(self) -> model.DrainDeadline | None:
        return self.store.drain_orders.map_deadlines(self.store.now()).get(self.host)

    def _set_deadline(self, deadline: float, reason: str, earlier: str | None) -> str:
        """Store the new deadline; return it with the earlier one for the audit row."""
        self._written = drain_orders.DrainOrder(self.host, deadline, reason, self.store.now(),
                                                self.operator)
        self.store.drain_orders.replace_order(self._written)
        at = times.format_time(deadline)
        if earlier is None:
            return at
        self.change_text = f'It takes the place of the deadline {earlier}.'
        return f'{at}, in place of {earlier}'

    def keep_order(self) -> None:
        """Let :meth:`restore_order` change nothing: the drain may have begun."""
        self._before = self._written

    def restore_order(self) -> None:
        """Undo :meth:`write_order`, because the drain did not begin; without a database it stays.

        Then it counts for no drain, since the host has not this reason.
        """
        if self._written != self._before:
            with contextlib.suppress(exception.StoreError):
                self.store.drain_orders.restore_order(self.host, self._written, self._before)

    def change_order(self, service: model.Service, options: model.PlanningOptions) -> None:
        """Set the deadline of a drain that goes on; without one it keeps its own.

        :raises ConflictError: engines do not drain the host.
        """
        before = self._find_earlier()
        earlier = None if before is None else model.find_drain_deadline(
            {self.host: before}, service)
        at = None if earlier is None else times.format_time(earlier)
        if self.deadline is None:
            self.change_text = '' if at is None else f'The drain keeps its deadline {at}.'
            return
        why = drain_requests.find_drain_refusal(service, options)
        if why is not None:
            raise exception.ConflictError(
                path='request', field='deadline',
                problem=f'host {self.host} is not drained: {why}',
                remedy='Nothing is changed. Leave the deadline out, or end that first')
        self._before = self.store.drain_orders.find_order(self.host)
        text = self._set_deadline(self.deadline, service.disabled_reason or '', at)
        try:
            self.store.audit.record_command(self.operator, audits.DEADLINE_SET,
                                            f'host {self.host}', text)
        except exception.StoreError:
            self.restore_order()
            raise


def list_late_instances(check: drains.DrainCheck, host: str, deadline: float, now: float,
                        ends: Mapping[str, float], expected: Mapping[str, float],
                        risks: Mapping[str, float]) -> tuple[LateInstance, ...]:
    """List the instances that are not expected to leave the host by the deadline.

    An instance that leaves after the plan waits for the end of the plan or for its contract, and
    then takes its own time at least.

    :param ends: seconds until the migrations of the plan end, by instance; empty: no migration has
        been measured, and only those that stay or that contracts hold are listed.
    :param expected: seconds of a migration alone, by instance.
    :param risks: the chance that a live migration does not converge, by instance.
    """
    late = {}
    for move in check.plan.moves:
        uuid, end = move.instance_uuid, now + ends.get(move.instance_uuid, 0.0)
        if move.from_host != host:
            continue
        if end > deadline:
            late[uuid] = (f'it is expected to leave at {times.format_time(end)}, by measured '
                          'migrations')
        elif risks.get(uuid, 0.0) >= _EXPECTED:
            late[uuid] = f'a risk of {risks[uuid]:.0%} that its live migration does not converge'
    plan_end = now + max(ends.values(), default=0.0)
    for blocked in check.blocked:
        uuid = blocked.instance_uuid
        movable_from = plan_end if blocked.movable_from is None else blocked.movable_from
        end = movable_from + expected.get(uuid, 0.0)
        if not blocked.later:
            late[uuid] = f'it stays: {blocked.reason}'
        elif end > deadline:
            late[uuid] = (f'it is not expected to leave before {times.format_time(end)}: '
                          f'{blocked.reason}')
    return tuple(LateInstance(uuid, reason) for uuid, reason in sorted(late.items()))
