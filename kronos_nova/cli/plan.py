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

from kronos_nova.cli import _command
from kronos_nova.cli import _database

SHOWN = 20


class ListPlans(_database.DatabaseTable):
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
        parser.add_argument('--limit', type=_database.parse_limit, default=SHOWN, metavar='N',
                            help=f'At most so many; {SHOWN} unless told.')
        return parser

    def rows(self, conf: Any, store: Any, args: argparse.Namespace) -> Iterable[_command.Row]:
        from kronos_nova.cli import _plans
        from kronos_nova.wiring import times
        from kronos_nova.wiring import tools

        plans = store.plans(args.limit, args.scope)
        if not plans and args.scope is not None:
            _database.check_scope(conf, store, args.scope)
        ended = _plans.count_task_states(store.tasks_of([p.plan_id for p in plans]))
        asked = store.asked_by([p.plan_id for p in plans])
        return [(p.plan_id, tools.format_printable(p.plan.scope), times.format_time(p.created_at),
                 p.dry_run,
                 len(p.plan.moves), ended.get(p.plan_id, ''), p.plan.measured,
                 p.plan.combined_after, tools.format_printable(p.plan.reason or ''),
                 tools.format_printable(asked.get(p.plan_id, ''))) for p in plans]


class ShowPlan(_database.ShowStored):
    """A plan with its moves, the state of each, and the rejected candidates, by rule."""

    kind = 'plan'
    remedy = 'kronos plan list shows the newest; [engine] keep_days is how long they are kept'

    def look(self, store: Any, uuid: str, nested: bool) -> _database.Shown | None:
        row = store.plan(uuid)
        return None if row is None else _render_plan(
            row, store.tasks_of([uuid]), store.realised([uuid]).get(uuid),
            store.decisions(uuid), store.swaps_of(uuid), nested)


def _render_plan(row: Any, tasks: Sequence[Any], realised: float | None, decisions: Sequence[Any],
                 swaps: Sequence[Any], nested: bool) -> _database.Shown:
    from kronos_nova.cli import _plans
    from kronos_nova.wiring import times
    from kronos_nova.wiring import tools

    plan = row.plan
    of = {t.task.instance_uuid: t for t in tasks}
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
        row.dry_run,
        tools.format_printable(plan.reason or ''), plan.measured, plan.combined_after, realised,
        _plans.format_policies(plan.policies, nested), moves, rejections,
        _plans.format_texts([no.detail for no in plan.held], nested),
        _plans.format_texts(sorted(plan.draining), nested),
        _plans.format_texts([no.detail for no in plan.undrained], nested),
        _plans.format_texts(plan.warnings, nested), plan.truncated,
        [_render_decision(d) for d in decisions] if nested else '\n'.join(
            '{tasks} {verb} by {decided_by} at {decided_at}'.format_map(said)
            + (f': {said["reason"]}' if said['reason'] else '')
            for said in map(_render_decision, decisions)), _format_swaps(plan, swaps, nested))


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
    from kronos_nova.cli import _plans
    from kronos_nova.wiring import tools

    return {
        **_plans.build_move_effects(move), 'instance_uuid': move.instance_uuid,
        'phase': str(move.phase),
        'wave': move.wave, 'improvement': move.improvement, 'requires': list(move.requires),
        'alternates': [tools.format_printable(host) for host in move.alternates],
        'task_id': None if task is None else task.task.task_id,
        'state': None if task is None else str(task.task.state)}
