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

"""Candidates side by side, as rows for a table and as one document."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova.rebalancer.backtest import backtest_run as journeys
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import review

FORMAT = 'kronos-simulation-1'


def build_comparison_rows(past: pasts.LoadHistory,
                          reviews: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows (label, value of each candidate ...) in a fixed order."""
    rows: list[tuple[Any, ...]] = [
        (label, *(r[key] for r in reviews)) for label, key in (
            ('moves a day', 'moves_per_day'), ('GiB migrated', 'moved_gib'),
            ('ping-pongs', 'ping_pongs'), ('overload, host-minutes', 'overload_host_minutes'),
            ('energy, kWh', 'energy_kwh'))]
    rows.append(('empty hosts, mean', *(r['empty_hosts']['mean'] for r in reviews)))
    scopes = list(reviews[0]['imbalance'])
    for scope in scopes:
        where = f' in {scope}' if len(scopes) > 1 else ''
        for measure in past.measures:
            rows += [(f'imbalance {measure.name}{where}, {which}',
                      *(r['imbalance'][scope][measure.name][which] for r in reviews))
                     for which in ('mean', 'p95', 'max')]
    rows.append(('why nothing moved, mostly',
                 *(_format_top_reason(r['reasons']) for r in reviews)))
    return rows


def _format_top_reason(counts: dict[str, int]) -> str | None:
    return next((f'{count} x {reason}' for reason, count in counts.items()), None)


def build_document(past: pasts.LoadHistory, reviews: Sequence[dict[str, Any]],
                   question: review.ReviewQuestion,
                   assumptions: journeys.TimingAssumptions) -> dict[str, Any]:
    """Render everything as plain JSON, for programs."""
    window = past.window
    return {
        'format': FORMAT,
        'window': {'from': window.start, 'to': window.end, 'step': window.step,
                   'times': window.count},
        'hosts': len(past.hosts), 'instances': len(past.uuids),
        'measures': [m.name for m in past.measures],
        'assumptions': {
            **dataclasses.asdict(assumptions), 'ceiling': question.ceiling,
            'return_seconds': question.return_seconds,
            'watts': list(question.curve.watts) if question.curve else None,
            'empty_is_off': bool(question.curve and question.curve.empty_is_off),
            'energy_measure': question.energy_measure},
        'warnings': list(past.warnings),
        'candidates': list(reviews),
    }
