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

"""``kronos plan list`` and ``show``: the plans of engines and operators, with their results."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from kronos_nova.cli import command
from kronos_nova.cli import database_command

SHOWN = 20


class ListPlans(database_command.DatabaseTable):
    """The newest plans, newest first.

    Empty plans are kept only if they gave a new reason. Asked by names the operator who requested
    the plan; it is empty for plans of engines.
    """

    columns = ('Plan', 'Scope', 'Created at', 'Dry run', 'Moves', 'Tasks', 'Imbalance before',
               'Imbalance after', 'Reason', 'Asked by')
    examples = ('--config-file /etc/kronos/kronos.conf', '--scope ssd --limit 5 -f json')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME', help='Of this scope alone.')
        parser.add_argument('--limit', type=database_command.parse_limit, default=SHOWN,
                            metavar='N', help=f'At most so many; {SHOWN} unless told.')
        return parser

    def rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        from kronos_nova.rebalancer.operations import stored_views
        from kronos_nova.wiring import times
        from kronos_nova.wiring import tools

        for found in stored_views.list_plans(session, args.scope, args.limit):
            row, plan = found.row, found.row.plan
            yield (row.plan_id, tools.format_printable(plan.scope),
                   times.format_time(row.created_at), row.dry_run, len(plan.moves),
                   found.task_states, plan.measured, plan.combined_after,
                   tools.format_printable(plan.reason or ''),
                   tools.format_printable(found.asked_by))


class ShowPlan(database_command.ShowStored):
    """A plan with its moves, the state of each, and the rejected candidates, by rule."""

    kind = 'plan'

    def look(self, session: Any, uuid: str, nested: bool) -> database_command.Shown:
        from kronos_nova.rebalancer.operations import stored_views

        return _render_plan(stored_views.read_plan(session, uuid), nested)


def _render_plan(found: Any, nested: bool) -> database_command.Shown:
    from kronos_nova.cli import plan_text
    from kronos_nova.wiring import times
    from kronos_nova.wiring import tools

    row, plan = found.row, found.row.plan
    of = {t.task.instance_uuid: t for t in found.tasks}
    moves: Any = [_render_move(m, of.get(m.instance_uuid)) for m in plan.moves]
    rejections: Any = dict(sorted(plan.rejections.items()))
    if not nested:
        moves = '\n'.join(
            f'{m["instance_uuid"]} {m["from_host"]} to {m["to_host"]}: {m["phase"]}, wave '
            f'{m["wave"]}' + (f', task {m["task_id"]} {m["state"]}' if m['task_id'] else '')
            + _format_effects(m) for m in moves)
        rejections = ', '.join(f'{rule} {number}' for rule, number in rejections.items())
    return (
        'Plan', 'Scope', 'Created at', 'Dry run', 'Reason', 'Imbalance before',
        'Imbalance foreseen', 'Imbalance realised', 'Policies', 'Moves', 'Rejections', 'Held',
        'Draining', 'Undrained', 'Warnings', 'Truncated', 'Decisions', 'Swaps'), (
        row.plan_id, tools.format_printable(plan.scope), times.format_time(row.created_at),
        row.dry_run, tools.format_printable(plan.reason or ''), plan.measured, plan.combined_after,
        found.realised,
        plan_text.format_policies(plan.policies, nested), moves, rejections,
        plan_text.format_texts([no.detail for no in plan.held], nested),
        plan_text.format_texts(sorted(plan.draining), nested),
        plan_text.format_texts([no.detail for no in plan.undrained], nested),
        plan_text.format_texts(plan.warnings, nested), plan.truncated,
        [_render_decision(d) for d in found.decisions] if nested else '\n'.join(
            '{tasks} {verb} by {decided_by} at {decided_at}'.format_map(said)
            + (f': {said["reason"]}' if said['reason'] else '')
            for said in map(_render_decision, found.decisions)),
        _format_swaps(plan, found.swaps, nested))


def _format_effects(move: Any) -> str:
    """Return the effects of the move on its hosts and the imbalance, on a line of their own."""
    from kronos_nova.rebalancer.planning import move_effects

    found = move_effects.describe_effects(move)
    return f'\n    {found}' if found else ''


def _format_swaps(plan: Any, swaps: Sequence[Any], nested: bool) -> Any:
    """Return the state of each swap, and the plans that undo it.

    A dry run has only the planned swaps.
    """
    found = [{'instances': [m.instance_uuid for m in swap.members], 'state': swap.state,
              'undos': list(swap.undos)} for swap in swaps]
    found = found or [{'instances': [swap.first, swap.second], 'state': 'planned', 'undos': []}
                      for swap in plan.swaps]
    return found if nested else '\n'.join(
        f'{" and ".join(s["instances"])}: {s["state"]}'
        + (f' (plans {", ".join(s["undos"])})' if s['undos'] else '') for s in found)


def _render_decision(decision: Any) -> dict[str, Any]:
    """Return an operator's decision on the plan, as printable fields."""
    from kronos_nova.wiring import times
    from kronos_nova.wiring import tools

    return {'verb': decision.verb, 'tasks': decision.tasks,
            'decided_at': times.format_time(decision.decided_at),
            'decided_by': tools.format_printable(decision.decided_by),
            'reason': tools.format_printable(decision.reason)}


def _render_move(move: Any, task: Any) -> dict[str, Any]:
    """Return a move and the state of its task; a dry run has no tasks."""
    from kronos_nova.cli import plan_text
    from kronos_nova.wiring import tools

    return {
        **plan_text.build_move_effects(move), 'instance_uuid': move.instance_uuid,
        'phase': str(move.phase),
        'wave': move.wave, 'improvement': move.improvement, 'requires': list(move.requires),
        'alternates': [tools.format_printable(host) for host in move.alternates],
        'task_id': None if task is None else task.task.task_id,
        'state': None if task is None else str(task.task.state)}
