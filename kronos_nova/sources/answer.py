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


"""Parsing of Prometheus answers into vectors of finite numbers, or into a reason why not.

The format is that of https://prometheus.io/docs/prometheus/latest/querying/api (JSON envelope,
instant vectors, range vectors).
"""

from collections.abc import Iterator
import json
import math
from typing import Any

from kronos_nova import model

#: How many names a warning shows.
SHOWN = 5


class MalformedAnswer(Exception):
    """An answer that breaks the API's format; the text is for operators."""


def clean_text(text: Any, limit: int = 300) -> str:
    """Return foreign text for a message: one line, printable, bounded."""
    line = ' '.join(str(text).split())
    line = ''.join(c if c.isprintable() else '?' for c in line)
    return line if len(line) <= limit else line[:limit - 3] + '...'


def find_error_text(body: bytes) -> str:
    """Return Prometheus's own words about an error; empty when it gives none."""
    try:
        document = _parse_document(body)
    except MalformedAnswer:
        return ''
    return f'({clean_text(document["error"])})' if document.get('error') else ''


def parse_success_data(body: bytes, document: dict[str, Any] | None = None) -> Any:
    """Return ``data`` of a successful answer.

    :param document: the body, when it has been parsed already.
    :raises MalformedAnswer: the answer is not a successful one.
    """
    document = document if document is not None else _parse_document(body)
    if document.get('status') != 'success':
        raise MalformedAnswer(f'it answers {clean_text(document.get("status"), 40)} '
                              f'{find_error_text(body)}'.rstrip())
    return document.get('data')


def parse_vector(query: str, label: str, body: bytes, max_series: int,
                 sole: bool = False) -> model.QueryResult:
    """Parse an instant vector into values by one label.

    Values that are not finite (NaN, +Inf) are left out with a warning, as are series without the
    label; label values that come twice are in ``duplicates`` only. An answer that its server
    calls degraded is refused: its gaps are unknown.

    :param label: '' keeps nothing and only checks the answer.
    :param sole: one series without the label is allowed; its key is ''.
    :raises MalformedAnswer: the answer is not a vector, or too large.
    """
    result = _parse_series(body, 'vector', 'an instant vector', max_series)
    if not label:
        return model.QueryResult(query, model.SourceHealth.HEALTHY)
    if sole and len(result) == 1:
        metric, value = _parse_sample(result[0])
        if not metric.get(label) and math.isfinite(value):
            return model.QueryResult(query, model.SourceHealth.HEALTHY, series={'': value})
    return _collect_values(query, label, result)


def parse_matrix(body: bytes,
                 max_series: int) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    """Return the series of a range query, as (metric, [(time, value), ...]).

    Values may be NaN or infinite. A degraded answer is refused.

    :raises MalformedAnswer: the answer is not a matrix, or too large.
    """
    result = _parse_series(body, 'matrix', 'series over time', max_series)
    return [(_parse_metric(item), list(_parse_points(item))) for item in result]


def _parse_series(body: bytes, kind: str, called: str, max_series: int) -> list[Any]:
    """Return the series of a whole answer of one kind, decoded once."""
    document = _parse_document(body)
    data = parse_success_data(body, document)
    degraded = _find_degradation(document)
    if degraded:
        raise MalformedAnswer(f'degraded answer: {degraded}')
    if not isinstance(data, dict) or data.get('resultType') != kind:
        result_type = data.get('resultType') if isinstance(data, dict) else None
        raise MalformedAnswer(f'the query returns a {clean_text(result_type, 40)}, not {called}')
    result = data.get('result')
    if not isinstance(result, list):
        raise MalformedAnswer('the answer has no list of series')
    if len(result) > max_series:
        raise MalformedAnswer(f'the answer has {len(result)} series, more than max_series '
                              f'({max_series}); aggregate the query')
    return result


def _parse_metric(item: Any) -> dict[str, str]:
    metric = item.get('metric') if isinstance(item, dict) else None
    if not isinstance(metric, dict) or not all(isinstance(v, str) for v in metric.values()):
        raise MalformedAnswer('the answer holds something that is no series')
    return metric


def _parse_points(item: Any) -> Iterator[tuple[float, float]]:
    values = item.get('values')
    if not isinstance(values, list):
        raise MalformedAnswer('the answer holds a series without plain values')
    try:
        for at, value in values:
            if not math.isfinite(float(at)):
                raise ValueError
            yield float(at), float(value)
    except (TypeError, ValueError, OverflowError):
        raise MalformedAnswer('the answer holds a sample that is no pair of a time and a '
                              'number') from None


def _collect_values(query: str, label: str, result: list[Any]) -> model.QueryResult:
    series: dict[str, float] = {}
    known_names: set[str] = set()
    duplicates: set[str] = set()
    not_numbers: list[str] = []
    unlabelled: list[str] = []
    for item in result:
        metric, value = _parse_sample(item)
        name = metric.get(label)
        if not isinstance(name, str) or not name:
            unlabelled.append(clean_text(json.dumps(metric, sort_keys=True), 80))
            continue
        if name in known_names:
            duplicates.add(name)
            series.pop(name, None)
            continue
        known_names.add(name)
        if math.isfinite(value):
            series[name] = value
        else:
            not_numbers.append(name)
    warnings = []
    if not_numbers:
        warnings.append(f'{len(not_numbers)} values are not finite and left out: '
                        f'{label} {_format_names(not_numbers)}')
    if unlabelled:
        warnings.append(f'{len(unlabelled)} series have no label {label}: '
                        f'{_format_names(unlabelled)}')
    error = None
    if result and len(unlabelled) == len(result):
        error, series = f'no series has the label {label}: {_format_names(unlabelled)}', {}
    whole = not warnings and not duplicates
    return model.QueryResult(
        query, model.SourceHealth.HEALTHY if whole else model.SourceHealth.PARTIAL, series=series,
        error=error, warnings=tuple(warnings), missing_labels=tuple(unlabelled),
        duplicates=tuple(sorted(duplicates)))


def _parse_sample(item: Any) -> tuple[dict[str, Any], float]:
    if not isinstance(item, dict) or not isinstance(item.get('metric'), dict):
        raise MalformedAnswer('the answer holds something that is no series')
    value = item.get('value')
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        raise MalformedAnswer('the answer holds a series without a plain value')
    try:
        return item['metric'], float(value[1])
    except ValueError:
        raise MalformedAnswer(f'the answer holds the value {clean_text(value[1], 40)!r}') from None


def _find_degradation(document: dict[str, Any]) -> str:
    """Return the server's reason to call its answer incomplete; empty when it has none."""
    warnings = document.get('warnings')
    if isinstance(warnings, list) and warnings:
        return clean_text(warnings[0], 200)
    if document.get('isPartial'):
        return 'isPartial: some storage nodes did not answer'
    return ''


def _parse_document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise MalformedAnswer('the answer is not JSON') from None
    if not isinstance(document, dict):
        raise MalformedAnswer('the answer is not a JSON object')
    return document


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _format_names(names: list[str]) -> str:
    more = f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''
    return ', '.join(clean_text(name, 80) for name in sorted(names)[:SHOWN]) + more
