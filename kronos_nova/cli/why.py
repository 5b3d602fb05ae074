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

"""``kronos why-not``: every rule with its verdict on a move that was not made."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from kronos_nova.cli import command

PHASES = ('spread', 'pack', 'evacuate', 'affinity', 'requested')


class WhyNot(command.TableCommand):
    """Show why an instance is not moved to a host.

    Reads the cloud as a planning cycle does, or a snapshot, and changes nothing. Each rule is
    judged with nothing else planned; then come the effect of the move on each policy, and the
    change that each refusing rule needs. The last row sums it up.
    """

    columns = ('What', 'Verdict', 'Detail')
    examples = ('INSTANCE HOST --config-file /etc/kronos/kronos.conf',
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

    def rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        from kronos_nova import model
        from kronos_nova.rebalancer.operations import move_verdicts

        with self.open_session(args) as session:
            answer = move_verdicts.judge_move(session, args.instance, args.host,
                                              model.Phase(args.phase) if args.phase else None)
        return map(command.format_printable_row, render_answer_rows(answer))


def render_answer_rows(answer: Any) -> Iterator[tuple[str, str, str]]:
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
    yield 'conclusion', 'refused' if answer.refused else 'passed', answer.conclusion


def _format_effect(effect: Any) -> str:
    text = (f'imbalance {effect.before:.4f} to {effect.after:.4f} '
            f'(threshold {effect.threshold:.4f})')
    if effect.fill_before is not None and effect.fill_after is not None:
        text += (f'; fill of the host {effect.fill_before:.4f} to {effect.fill_after:.4f} '
                 f'(ceiling {effect.ceiling:g})')
    return text
