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

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.text import plan_lines
from kronos_nova.wiring import tools


def format_policies(reports: Sequence[model.PolicyReport], nested: bool) -> Any:
    if nested:
        return [{'name': tools.format_printable(p.name), 'imbalance_measured': p.measured_imbalance,
                 'imbalance_before': p.imbalance_before,
                 'imbalance_after': p.imbalance_after, 'threshold': p.threshold,
                 'skipped': p.skipped, 'reason': _format_reason(p.reason), 'age_seconds': p.age}
                for p in reports]
    return '\n'.join(_format_policy(p, plan_lines.format_policy_change) for p in reports)


def format_measured_policies(reports: Sequence[model.PolicyReport], nested: bool) -> Any:
    """Show each policy's measured imbalance and, apart from it, the planned one."""
    if nested:
        return format_policies(reports, nested)
    return '\n'.join(_format_policy(p, plan_lines.format_measured_policy) for p in reports)


def _format_policy(report: model.PolicyReport, format_values: Callable[..., str]) -> str:
    name = tools.format_printable(report.name)
    line = (plan_lines.format_skipped_policy(name, _format_reason(report.reason))
            if report.skipped else
            format_values(name, report.measured_imbalance, report.imbalance_after,
                          report.threshold))
    return line + plan_lines.format_sample_age(report.age)


def build_move_effects(move: model.Move) -> dict[str, Any]:
    """Return what a move does to its hosts, as :mod:`move_effects` reads it."""
    return {'from_host': tools.format_printable(move.from_host),
            'to_host': tools.format_printable(move.to_host),
            'gain': move.gain,
            'changes': [{**dataclasses.asdict(change),
                         'policy': tools.format_printable(change.policy)}
                        for change in move.changes]}


def _format_reason(reason: str | None) -> str | None:
    return None if reason is None else tools.format_printable(reason)


def format_texts(texts: Sequence[str], nested: bool) -> Any:
    shown = [tools.format_printable(text) for text in texts]
    return shown if nested else '\n'.join(shown)
