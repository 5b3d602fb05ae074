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

"""``kronos status``: engine, last cycle, tasks and holds of each scope."""

import argparse
from collections import Counter
from collections.abc import Iterable
import dataclasses
from typing import Any

from kronos_nova.cli import _command
from kronos_nova.cli import _database


class Status(_database.DatabaseTable):
    """A row for each scope that engines plan, or have planned within a day.

    Policies has the measured imbalances. The planned value stands apart: the imbalance after moves
    that wait for approval, moves under way and the last plan.

    Engine names the holder of the scope's lease; a dry run takes none. Without a lease, the column
    says when the scope was last planned. Moves, reason and policies are from the last cycle that
    came to a plan, in a dry run from the newest plan with a new reason. Failing says why cycles
    have failed since then. Executors are those that serve the scope and were seen within three
    minutes, or have begun some of its tasks, each with its number of begun tasks.
    """

    columns = ('Scope', 'Engine', 'Planned at', 'Failing', 'Dry run', 'Moves', 'Reason',
               'Policies', 'Tasks', 'Overdue', 'Executors', 'Draining', 'Paused')
    examples = ('--config-file /etc/kronos/kronos.conf', '-f json')

    def rows(self, conf: Any, store: Any, args: argparse.Namespace) -> Iterable[_command.Row]:
        return _render_rows(conf, store, _command.is_nested_format(args))


def _render_rows(conf: Any, store: Any, nested: bool) -> list[tuple[Any, ...]]:
    from kronos_nova import model
    from kronos_nova.cli import _liveness
    from kronos_nova.cli import _plans
    from kronos_nova.rebalancer.store import rows as store_rows
    from kronos_nova.wiring import times
    from kronos_nova.wiring import tools

    census, plans = store.census(), store.newest_plans()
    tasks: dict[str, Counter[str]] = {}
    for (scope, _phase, state), number in census.tasks.items():
        tasks.setdefault(scope, Counter())[state] += number
    workers: dict[str, Counter[str]] = {}
    for row in store.in_states(store_rows.IN_FLIGHT):
        workers.setdefault(row.task.aggregate,
                           Counter())[tools.format_printable(row.worker or '')] += 1
    for scope in {*conf.engine.aggregates, model.UNASSIGNED, *census.scopes}:
        for name, served in census.executors.items():
            if served is None or scope in served:
                workers.setdefault(scope, Counter())[tools.format_printable(name)] += 0
    configured = [*conf.engine.aggregates,
                  *[model.UNASSIGNED] * conf.engine.include_unassigned_hosts]
    # A scope that was removed long ago has no row; only its plans remain.
    found = []
    for scope in sorted({*configured, *census.scopes}):
        seen, plan = census.scopes.get(scope), plans.get(scope)
        pause = next((p for p in census.pauses if p.scope in (None, scope)), None)
        at = (seen.planned_at if seen is not None and seen.planned_at is not None
              else plan.created_at if plan is not None else None)
        last = _choose_last_cycle(seen, plan)
        found.append((
            tools.format_printable(scope),
            tools.format_printable(seen.owner) if seen is not None and seen.leased
            else '' if nested else _liveness.describe_missing_engine(
                None if plan is None else plan.dry_run, at, store.now()),
            '' if at is None else times.format_time(at), _format_failure(last),
            None if plan is None else plan.dry_run,
            None if last.at is None else last.moves, tools.format_printable(last.reason or ''),
            _plans.format_measured_policies(last.policies, nested),
            _format_counts(tasks.get(scope, {}), nested), census.overdue.get(scope, 0),
            _format_counts(workers.get(scope, {}), nested), 0 if seen is None else seen.draining,
            '' if pause is None else tools.format_printable(pause)))
    return found


def _choose_last_cycle(seen: Any, plan: Any) -> Any:
    """Return the last cycle; where the newest plan is newer, a cycle with its fields.

    The plan is newer in a dry run, and after an upgrade from an earlier release.
    """
    from kronos_nova.rebalancer.store import rows

    cycle = rows.Cycle() if seen is None else seen.cycle
    if plan is None or (cycle.at is not None and cycle.at >= plan.created_at):
        return cycle
    return dataclasses.replace(
        cycle, at=plan.created_at, moves=len(plan.plan.moves), reason=plan.plan.reason,
        policies=plan.plan.policies)


def _format_failure(cycle: Any) -> str:
    from kronos_nova.wiring import times
    from kronos_nova.wiring import tools

    if cycle.error is None or cycle.failed_at is None:
        return ''
    return f'{times.format_time(cycle.failed_at)}: {tools.format_printable(cycle.error)}'


def _format_counts(numbers: Any, nested: bool) -> Any:
    if nested:
        return dict(sorted(numbers.items()))
    return ', '.join(f'{number} {name}' for name, number in sorted(numbers.items()))
