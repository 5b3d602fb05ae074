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
import dataclasses
import datetime

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import times

#: A time in epoch seconds, or a duration from now on; None: a drain has no deadline.
Deadline = float | datetime.timedelta | None
#: Latest deadline, in seconds from now.
LONGEST = 30 * 86400.0
#: The clocks of an operator and of the database differ by so many seconds at most.
_CLOCKS = 60.0
#: Smallest risk at which an instance is expected not to converge.
_EXPECTED = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class LateInstance:
    """An instance that is not expected to leave by the deadline, with the reason."""

    instance_uuid: str
    reason: str


def resolve_deadline(deadline: Deadline, now: float) -> float | None:
    """Return a deadline in epoch seconds, without fractions.

    :raises ConfigError: it has passed, or is too far away.
    """
    if deadline is None:
        return None
    if isinstance(deadline, datetime.timedelta):
        # Larger numbers are no time that a calendar can show.
        at = now + min(deadline.total_seconds(), LONGEST + 2 * _CLOCKS)
    else:
        at = deadline
    if at <= now:
        raise _make_error(f'{times.format_time(max(at, 0.0))} has passed')
    if at - now > LONGEST + _CLOCKS:
        raise _make_error('it is more than 30 days away')
    return float(int(at))


def _make_error(problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path='request', field='deadline', problem=problem,
        remedy='Nothing is changed. Give a later time, or a duration such as 2h, of at most 30 '
               'days')


@dataclasses.dataclass(frozen=True, slots=True)
class DeadlineOrder:
    """The deadline that a person sets for the drain of a host; None: the drain has none."""

    store: api.Store
    host: str
    deadline: float | None
    operator: str

    def write(self) -> None:
        """Store the deadline in the place of that of an earlier drain."""
        self.store.drain_orders.replace_deadline(self.host, self.deadline, self.store.now(),
                                                 self.operator)

    def append_deadline(self, reason: str) -> str:
        """Return the reason of an audit row with the deadline."""
        if self.deadline is None:
            return reason
        return f'{reason} (deadline {times.format_time(self.deadline)})'

    def change(self, service: model.Service, options: model.PlanningOptions) -> None:
        """Set the deadline of a drain that goes on; without one it keeps its own.

        :raises ConflictError: engines do not drain the host.
        """
        if self.deadline is None:
            return
        why = drain_requests.find_drain_refusal(service, options)
        if why is not None:
            raise exception.ConflictError(
                path='request', field='deadline',
                problem=f'host {self.host} is not drained: {why}',
                remedy='Nothing is changed. Leave the deadline out, or end that first')
        self.store.audit.record_command(
            self.operator, audits.DEADLINE_SET, f'host {self.host}',
            times.format_time(self.deadline))
        self.write()


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
