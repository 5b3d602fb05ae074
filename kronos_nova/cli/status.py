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
from collections.abc import Iterable
from typing import Any

from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.cli import plan_text
from kronos_nova.rebalancer.operations import scope_liveness
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.text import times
from kronos_nova.wiring import tools


class ShowStatus(database_command.DatabaseTable):
    """A row for each scope that engines plan, or have planned within a day.

    One scope alone is shown with all its values, one below the other.

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
    wide = frozenset({'Dry run', 'Policies', 'Overdue', 'Executors', 'Draining'})
    shows_one_vertically = True
    examples = ('', '-f json')

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        nested = command.is_nested_format(args)
        for state in stored_views.list_scope_states(session):
            yield _render_row(state, nested)


def _render_row(state: Any, nested: bool) -> tuple[Any, ...]:
    cycle = state.cycle
    return (
        tools.format_printable(state.scope),
        tools.format_printable(state.owner) if state.owner is not None
        else '' if nested else scope_liveness.describe_missing_engine(
            state.dry_run, state.planned_at, state.now),
        '' if state.planned_at is None else times.format_time(state.planned_at),
        _format_failure(cycle), state.dry_run, None if cycle.at is None else cycle.moves,
        tools.format_printable(cycle.reason or ''),
        plan_text.format_measured_policies(cycle.policies, nested),
        _format_counts(state.tasks, nested), state.overdue,
        _format_counts(state.executors, nested),
        state.draining, '' if state.pause is None else tools.format_printable(state.pause))


def _format_failure(cycle: Any) -> str:
    if cycle.error is None or cycle.failed_at is None:
        return ''
    return f'{times.format_time(cycle.failed_at)}: {tools.format_printable(cycle.error)}'


def _format_counts(numbers: Any, nested: bool) -> Any:
    """Format counts by name; two names that print alike stay two counts."""
    if nested:  # The serialisers of JSON and YAML escape unprintable characters.
        return dict(sorted(numbers.items()))
    return ', '.join(f'{number} {tools.format_printable(name)}'
                     for name, number in sorted(numbers.items()))
