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

"""``kronos explain move`` and ``why-not``: why a move was planned, and the verdict on any move."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from kronos_nova import model
from kronos_nova.cli import command
from kronos_nova.cli import plan_text
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import move_verdicts
from kronos_nova.text import move_effects
from kronos_nova.text import times


class ExplainMove(command.TableCommand):
    """Explain why a move was planned, its expected effect, and today's verdict of the rules.

    The reasons and the expected effects of the plan are in the database. Then the cloud is read as
    a planning cycle does, and the move judged as kronos why-not does, if the instance is where it
    was.
    """

    columns = ('What', 'Verdict', 'Detail')
    examples = ('TASK', 'TASK --stored')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('task', metavar='TASK', help='Its UUID; see kronos task list and '
                                                         'kronos plan show.')
        parser.add_argument('--stored', action='store_true',
                            help='The database alone: the cloud is not read.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args, live=not args.stored) as session:
            task_and_plan = move_verdicts.explain_move(session, args.task, stored=args.stored)
        return map(command.format_printable_row,
                   (*_render_plan_rows(task_and_plan), *_render_verdict_rows(task_and_plan)))


def _render_plan_rows(task_and_plan: Any) -> Iterator[tuple[str, str, str]]:
    task, plan = task_and_plan.row.task, task_and_plan.plan.plan
    yield 'move', str(task.phase), (
        f'instance {task.instance_uuid} from {task.from_host} to {task.to_host}, wave {task.wave} '
        f'of plan {task.plan_id}')
    yield 'planned', times.format_time(task_and_plan.plan.created_at), _WHY[str(task.phase)]
    for report in plan.policies:
        yield f'policy {report.name}', 'then', report.reason or (
            f'imbalance {report.imbalance_before:.4f} to {report.imbalance_after:.4f} by the whole '
            f'plan (threshold {report.threshold:.4f})')
    yield from _render_effect_rows(task, plan)
    for number, host in enumerate(task.alternates):
        known = task.alternate_improvements
        yield f'alternate {host}', (f'{known[number]:.4f}' if number < len(known) else ''), (
            'where it goes if the destination refuses')
    for uuid in task.requires:
        yield 'requires', '', f'the move of instance {uuid} comes first'
    for attempt in task_and_plan.row.attempts:
        yield 'attempt', attempt.error_type or 'completed', (
            f'to {attempt.to_host} at {times.format_time(attempt.ended_at)}'
            + (f': {attempt.error}' if attempt.error else ''))
    yield 'state', str(task.state), task_and_plan.row.error or ''


def _render_effect_rows(task: Any, plan: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the effects of the move on its hosts and on the imbalance."""
    if plan.combined_before is None:
        return
    whole = (f'of the combined imbalance, which the whole plan lowers from '
             f'{plan.combined_before:.4f} to {plan.combined_after:.4f}')
    move = next((plan_text.build_move_effects(m) for m in plan.moves
                 if m.instance_uuid == task.instance_uuid and m.to_host == task.to_host
                 and m.gain is not None), None)
    if move is None:  # an alternate, or a plan of an earlier release
        yield 'improvement', f'{task.improvement:.4f}', whole
        return
    hosts = move_effects.describe_hosts(move)
    if hosts:
        yield 'hosts', 'by the move', hosts
    yield 'gain', f'{move["gain"]:.4f}', f'{whole}: so much is lost without this move alone'


_WHY = {
    'spread': 'to lower the imbalance of the scope',
    'pack': 'to empty a host, or to relieve one that is filled above its ceiling',
    'evacuate': 'its host is disabled and drained, or room is made for such a drain',
    'affinity': 'to repair a server group whose rule is violated',
    'requested': 'an operator asked for it; kronos plan show says who',
}


def _render_verdict_rows(task_and_plan: Any) -> Iterator[tuple[str, str, str]]:
    if task_and_plan.answer is not None:
        yield from _render_answer_rows(task_and_plan.answer)
    elif task_and_plan.elsewhere is not None:
        yield 'today', '', task_and_plan.elsewhere


PHASES = ('spread', 'pack', 'evacuate', 'affinity', 'requested')


class WhyNot(command.TableCommand):
    """Show why an instance is not moved to a host.

    Reads the cloud as a planning cycle does, or a snapshot, and changes nothing. Each rule is
    judged with nothing else planned; then come the effect of the move on each policy, and the
    change that each refusing rule needs. The last row sums it up.
    """

    columns = ('What', 'Verdict', 'Detail')
    examples = ('INSTANCE HOST',
                'INSTANCE HOST --phase evacuate')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('instance', metavar='INSTANCE', help='Its UUID.')
        parser.add_argument('host', metavar='HOST', help='Its name as a compute service.')
        command.add_snapshot(parser)
        parser.add_argument('--phase', choices=PHASES,
                            help='Strategy that would move it; default: spread, or pack where '
                                 'the policy file packs.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            answer = move_verdicts.judge_move(session, args.instance, args.host,
                                              model.Phase(args.phase) if args.phase else None)
        return map(command.format_printable_row, _render_answer_rows(answer))


def _render_answer_rows(answer: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (what, verdict, detail) for each part of a why_not.MoveAnswer."""
    for text in answer.holds:
        yield 'scope', 'waits', text
    for verdict in answer.verdicts:
        yield verdict.rule, 'passed' if verdict.passed else 'refused', verdict.detail
    for effect in answer.effects:
        change = effect.after - effect.before
        verdict = 'same' if abs(change) < 5e-5 else 'worse' if change > 0 else 'better'
        yield f'policy {effect.policy}', verdict, _format_effect(effect)
    for rule, remedy in answer.changes:
        yield (f'to allow {rule}', 'impossible' if remedy is None else 'change',
               remedy or 'Nova does not do it')
    if answer.shutdown is not None:
        yield 'shutdown', _judge_shutdown(answer.shutdown), answer.shutdown.text
    yield 'conclusion', 'refused' if answer.refused else 'passed', answer.conclusion


def _judge_shutdown(verdict: Any) -> str:
    if verdict.obstacle is not None:
        return 'later' if verdict.waits else 'refused'
    return 'passed' if verdict.is_late else 'if late'


def _format_effect(effect: Any) -> str:
    text = (f'imbalance {effect.before:.4f} to {effect.after:.4f} '
            f'(threshold {effect.threshold:.4f})')
    if effect.fill_before is not None and effect.fill_after is not None:
        text += (f'; fill of the host {effect.fill_before:.4f} to {effect.fill_after:.4f} '
                 f'(ceiling {effect.ceiling:g})')
    return text
