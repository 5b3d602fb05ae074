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

"""Format parts of a stored plan: as data for programs, else as lines of text."""

from collections import Counter
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import model


def policies(reports: Sequence[model.PolicyReport], nested: bool) -> Any:
    from kronos_nova.wiring import tools

    if nested:
        return [{'name': tools.shown(p.name), 'imbalance_measured': p.measured,
                 'imbalance_before': p.imbalance_before,
                 'imbalance_after': p.imbalance_after, 'threshold': p.threshold,
                 'skipped': p.skipped, 'reason': _text(p.reason), 'age_seconds': p.age}
                for p in reports]
    return '\n'.join(
        f'{tools.shown(p.name)}: ' + (
            _text(p.reason) or 'skipped' if p.skipped else
            f'{tools.shown(p.measured)} to {tools.shown(p.imbalance_after)} '
            f'(threshold {p.threshold:.4f})')
        + _age(p) for p in reports)


def measured(reports: Sequence[model.PolicyReport], nested: bool) -> Any:
    """Show each policy's measured imbalance and, apart from it, the planned one."""
    from kronos_nova.wiring import tools

    if nested:
        return policies(reports, nested)
    return '\n'.join(
        f'{tools.shown(p.name)}: ' + (
            _text(p.reason) or 'skipped' if p.skipped else
            f'measured {tools.shown(p.measured)} (threshold {p.threshold:.4f})'
            + ('' if p.imbalance_after == p.measured else
               f', planned {tools.shown(p.imbalance_after)}'))
        + _age(p) for p in reports)


def effects(move: model.Move) -> dict[str, Any]:
    """Return what a move does to its hosts, as :mod:`move_effects` reads it."""
    from kronos_nova.wiring import tools

    return {'from_host': tools.shown(move.from_host), 'to_host': tools.shown(move.to_host),
            'gain': move.gain,
            'changes': [{**dataclasses.asdict(change), 'policy': tools.shown(change.policy)}
                        for change in move.changes]}


def _age(report: model.PolicyReport) -> str:
    return '' if report.age is None else f', samples {report.age:.0f} s old'


def _text(said: str | None) -> str | None:
    from kronos_nova.wiring import tools

    return None if said is None else tools.shown(said)


def texts(said: Sequence[str], nested: bool) -> Any:
    from kronos_nova.wiring import tools

    shown = [tools.shown(text) for text in said]
    return shown if nested else '\n'.join(shown)


def states(tasks: Sequence[Any]) -> dict[str, str]:
    """Count each plan's tasks by state; return the counts as text, by plan."""
    numbers: dict[str, Counter[str]] = {}
    for row in tasks:
        numbers.setdefault(row.task.plan_id, Counter())[str(row.task.state)] += 1
    return {plan_id: ', '.join(f'{n} {state}' for state, n in sorted(found.items()))
            for plan_id, found in numbers.items()}
