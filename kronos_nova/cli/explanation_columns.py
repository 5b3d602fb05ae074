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


"""An explanation as rows: nested for JSON and YAML, flat for CSV, short for people."""

from collections.abc import Collection
import math
from typing import Any

from kronos_nova.weighing import findings

#: Characters of a reason that a table shows.
REASON = 60
NESTED = ('json', 'yaml')


class HostColumns:
    """The columns and rows that explain each host.

    :param after: the explanation with ``--set``, or None.
    :param hosts: the hosts to show; None: all.
    :param form: cliff's formatter.
    :param whole: every weigher, raw values and whole reasons in a table.
    """

    def __init__(self, before: findings.ChoiceExplanation, after: findings.ChoiceExplanation | None,
                 hosts: Collection[str] | None, form: str, whole: bool) -> None:
        self._before = before
        self._after = after
        self._form = form
        self._whole = whole or form not in ('table', *NESTED)
        # Weighers' columns are those of the newer run.
        self._shown = after or before
        self._lines = [line for line in before.lines if hosts is None or line.host in hosts]
        self._later = {(line.host, line.node): line for line in after.lines} if after else {}
        self._policies = sorted({name for line in self._lines if line.scores
                                 for name in line.scores.policies})
        self._weighers = [name for name in self._shown.weighers if self._whole or any(
            name in line.weights and line.weights[name].weighted_share
            for line in self._shown.lines)]

    def list_column_names(self) -> tuple[str, ...]:
        if self._form in NESTED:
            return ('host', 'node', 'aggregates', 'rank', 'sum', 'instances', 'filtered_by',
                    'why', 'scores', 'headroom', 'weighers', *(['with_set'] if self._after else []))
        later = self._after is not None
        return (
            'Rank', *(['Rank with --set'] if later else []), 'Host',
            *(['Instances'] if len(self._before.chosen) > 1 else []),
            *(['Instances with --set'] if later and len(self._before.chosen) > 1 else []),
            'Sum', *(['Sum with --set'] if later else []),
            *(f'Score {name}' for name in self._policies), 'Headroom',
            *(head for name in self._weighers for head in self._list_weigher_heads(name)),
            'Filtered by', 'Why')

    def render_host_rows(self) -> list[tuple[Any, ...]]:
        if self._form in NESTED:
            return [self._build_nested_row(line) for line in self._lines]
        return [self._build_flat_row(line) for line in self._lines]

    def list_notes(self) -> list[str]:
        """Return the notes to print beside the rows."""
        notes = list(self._before.notes)
        neutral_weighers = [name for name in self._shown.weighers if name not in self._weighers]
        if neutral_weighers and self._form == 'table' and any(
                line.weights for line in self._shown.lines):
            notes.append(f'Weighers that add 0 to every host: {", ".join(neutral_weighers)}.')
        if self._after is not None:
            notes += [f'With --set: {note}' for note in self._after.notes
                      if note not in self._before.notes]
            notes.append(f'Chosen: {_format_first_host(self._before)}; with --set: '
                         f'{_format_first_host(self._after)}.')
        return notes

    # Nested.

    def _build_nested_row(self, line: findings.HostLine) -> tuple[Any, ...]:
        row: tuple[Any, ...] = (
            line.host, line.node, list(line.aggregates), line.rank, _drop_infinite(line.total),
            _list_instance_numbers(self._before, line), line.filtered_by or None, line.why or None,
            line.scores.policies if line.scores else {},
            line.scores.headroom if line.scores else None, _build_weights(line))
        if self._after is None:
            return row
        later = self._later.get((line.host, line.node))
        return (*row, None if later is None else {
            'rank': later.rank, 'sum': _drop_infinite(later.total),
            'instances': _list_instance_numbers(self._after, later),
            'filtered_by': later.filtered_by or None, 'why': later.why or None,
            'scores': later.scores.policies if later.scores else {},
            'headroom': later.scores.headroom if later.scores else None,
            'weighers': _build_weights(later)})

    # Flat.

    def _list_weigher_heads(self, name: str) -> list[str]:
        if self._form == 'table':
            return [name.replace('Weigher', '', 1)]
        return [f'{name} {what}' for what in (
            'raw', 'normalised', 'multiplier', 'aggregates', 'product')]

    def _build_flat_row(self, line: findings.HostLine) -> tuple[Any, ...]:
        after, several = self._after, len(self._before.chosen) > 1
        later = self._later.get((line.host, line.node))
        newest = line if after is None else later
        scores = line.scores
        cells: list[Any] = [line.rank]
        if after is not None:
            cells.append(later.rank if later else None)
        cells.append(line.host)
        if several:
            cells.append(len(_list_instance_numbers(self._before, line)))
            if after is not None:
                cells.append(len(_list_instance_numbers(after, line)))
        cells.append(line.total)
        if after is not None:
            cells.append(later.total if later else None)
        cells += [scores.policies.get(name) if scores else None for name in self._policies]
        cells.append(scores.headroom if scores else None)
        for name in self._weighers:
            cells += self._list_weigher_cells(newest.weights.get(name) if newest else None)
        cells += [line.filtered_by, line.why]
        return tuple(self._format_cell(cell) for cell in cells)

    def _list_weigher_cells(self, weight: findings.WeigherShare | None) -> list[Any]:
        if self._form != 'table':
            if weight is None:
                return [None] * 5
            return [weight.raw, weight.normalised, weight.multiplier,
                    ', '.join(weight.aggregates), weight.weighted_share]
        if weight is None:
            return [None]
        # Adding 0.0 turns a -0.0 into 0.0.
        text = (f'{weight.normalised + 0.0:.3f} x {weight.multiplier:g} = '
                f'{weight.weighted_share + 0.0:.3f}')
        if self._whole:
            text = f'{weight.raw:g}: {text}'
        if weight.aggregates:
            text += f' ({", ".join(weight.aggregates)})'
        return [text]

    def _format_cell(self, value: Any) -> Any:
        if self._form != 'table':
            return escape_unprintable(value) if isinstance(value, str) else value
        if value is None or value == '':
            return '-'
        if isinstance(value, float):
            return f'{value:.3f}'
        text = escape_unprintable(str(value))
        return text if self._whole or len(text) <= REASON else text[:REASON - 3] + '...'


def escape_unprintable(text: str) -> str:
    """Escape unprintable characters as Python does: tenants and others choose the names."""
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def _build_weights(line: findings.HostLine) -> dict[str, Any]:
    return {name: {'raw': _drop_infinite(w.raw), 'normalised': _drop_infinite(w.normalised),
                   'multiplier': _drop_infinite(w.multiplier), 'aggregates': list(w.aggregates),
                   'product': _drop_infinite(w.weighted_share)}
            for name, w in line.weights.items()}


def _drop_infinite(value: float | None) -> float | None:
    # JSON has finite numbers only; Nova's metrics weigher may return any.
    return value if value is not None and math.isfinite(value) else None


def _list_instance_numbers(explanation: findings.ChoiceExplanation,
                           line: findings.HostLine) -> list[int]:
    """Return the numbers of the request's instances that go to the host; 1 is the first."""
    return [number for number, place in enumerate(explanation.chosen, 1)
            if place == (line.host, line.node)]


def _format_first_host(explanation: findings.ChoiceExplanation) -> str:
    return explanation.chosen[0][0] if explanation.chosen else 'no host'
