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


"""Scores from a snapshot: the recorded answers of a source.

A query is found by its exact text. A policy file with another query has no answer here; that is
an error, never an empty answer. Samples keep the age that they had at the recording.
"""

import dataclasses
import datetime
import math
import os
from typing import Annotated, Any

from oslo_config import cfg
import pydantic

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.sources import base
from kronos_nova.sources import snapshot_files as files

MAX_FILES = 1000

#: Field of a policy -> prefix of its file's name.
PREFIXES = {'imbalance_query': 'imbalance', 'vm_profile_query': 'vm_profile',
            'capacity_query': 'capacity', 'host_capacity_query': 'host_capacity',
            'vm_mean_query': 'vm_mean', 'vm_deviation_query': 'vm_deviation',
            'vm_dirty_rate_query': 'vm_dirty_rate', 'age_query': 'age'}

Number = Annotated[int, pydantic.Strict()] | Annotated[float, pydantic.Strict()]
Text = Annotated[str, pydantic.StringConstraints(max_length=65536)]
Name = Annotated[str, files.Name]


class RecordedAnswer(pydantic.BaseModel):
    """A file of ``prometheus/``.

    ``label``, ``duplicates``, ``error``, ``unknown``, ``age`` and ``taken_at`` are ours; Kronos
    0.2.0 has the others.
    """

    model_config = pydantic.ConfigDict(strict=True)

    query: Text
    health: Text = 'HEALTHY'
    series: dict[Text, Number] = {}
    missing_labels: list[Text] = []
    warnings: list[Text] = []
    label: Text | None = None
    duplicates: list[Text] = []
    error: Text | None = None
    unknown: bool = False
    age: Annotated[float, pydantic.Field(allow_inf_nan=False)] | None = None
    taken_at: Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)] | None = None


class SnapshotMeta(pydantic.BaseModel):
    """The content of ``meta.json``. ``files`` is ours: all files that were written."""

    model_config = pydantic.ConfigDict(strict=True)

    recorded_at: str
    policy_names: list[Name] = []
    aggregates: list[Name] = []
    files: list[Name] = []


def read_meta(directory: str) -> tuple[SnapshotMeta, float]:
    """Return the content of ``meta.json``, and when the snapshot was recorded (epoch seconds).

    :raises SnapshotError: the directory is no snapshot, or not whole.
    """
    path = os.path.join(directory, 'meta.json')
    meta: SnapshotMeta = files.parse_file(directory, 'meta.json', SnapshotMeta)
    try:
        at = datetime.datetime.fromisoformat(meta.recorded_at)
        if at.tzinfo is None:
            at = at.replace(tzinfo=datetime.UTC)
        recorded_at = at.timestamp()
    except (ValueError, OverflowError):
        raise files.make_error(path, 'recorded_at: it is not a time in ISO 8601') from None
    lost = [name for name in meta.files if not files.has_file(directory, name)]
    if lost:
        raise exception.SnapshotError(
            path=path,
            problem=f'files: {files.clean_text(lost[0], 80)} was recorded and is missing',
            remedy='Copy the whole directory.')
    return meta, recorded_at


class SnapshotSource(base.MetricsSource):
    """A source of the answers in ``prometheus/*.json``.

    :param conf: not used; every source gets it.
    :param directory: the snapshot.
    :raises ConfigError: no directory is given: a daemon cannot use this source.
    :raises SnapshotError: the snapshot cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts | None = None, directory: str | None = None) -> None:
        if directory is None:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] source', problem='snapshot is no live source',
                remedy='Write source = prometheus; kronos-replay plans from a snapshot.')
        self._directory = directory
        _meta, self.recorded_at = read_meta(directory)
        self._answers = {name: read_answer(directory, name)
                         for name in list_answer_files(directory)}

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        imbalance, answer = self._find_answer(policy, 'imbalance_query', policy.host_label)
        assert imbalance is not None
        imbalance, age = self._apply_recorded_age(policy, imbalance)
        return model.PolicySamples(
            policy=policy.name, imbalance=imbalance, age=age,
            profile=self._find_answer(policy, 'vm_profile_query',
                                      policy.vm_profile_label)[0] if profile else None,
            capacity=self._find_answer(policy, 'capacity_query', policy.host_label)[0],
            host_capacity=self._find_answer(policy, 'host_capacity_query', policy.host_label)[0],
            mean=self._find_answer(policy, 'vm_mean_query',
                                   policy.vm_profile_label)[0] if profile else None,
            deviation=self._find_answer(policy, 'vm_deviation_query',
                                        policy.vm_profile_label)[0] if profile else None,
            dirty_rate=self._find_answer(policy, 'vm_dirty_rate_query',
                                         policy.vm_profile_label)[0] if profile else None,
            taken_at=self.recorded_at if answer is None or answer.taken_at is None
            else answer.taken_at)

    def health(self) -> tuple[model.SourceHealth, str]:
        return model.SourceHealth.HEALTHY, f'snapshot with {len(self._answers)} answers'

    def _apply_recorded_age(self, policy: policies.Policy,
                            imbalance: model.QueryResult) -> tuple[model.QueryResult, float | None]:
        """Return the imbalance, and its age as recorded.

        Without a recorded age it is unverified, as for a policy without ``age_query``.
        """
        result, answer = self._find_answer(policy, 'age_query', policy.host_label)
        if result is None or imbalance.error is not None:
            return imbalance, None
        if answer is None:
            return dataclasses.replace(imbalance, warnings=(
                *imbalance.warnings, f'{result.error}: age not verified')), None
        if result.error is not None:
            return dataclasses.replace(imbalance, health=result.health, series={},
                                       error=f'age_query: {result.error}'), None
        return imbalance, answer.age

    def _find_answer(self, policy: policies.Policy, field: str,
                     label: str) -> tuple[model.QueryResult | None, RecordedAnswer | None]:
        """Return the recorded answer to the query in a policy's field, as result and file content.

        Return (None, None) when the policy has no such query.
        """
        query: str | None = getattr(policy, field)
        if query is None:
            return None, None
        own = f'{PREFIXES[field]}_{policy.name}.json'
        if own in self._answers and self._answers[own].unknown:
            return _build_result(self._answers[own], query), self._answers[own]
        same = {name: a for name, a in self._answers.items() if a.query == query}
        fitting = {name: a for name, a in same.items() if a.label in (label, None)}
        if own in fitting:
            chosen = fitting[own]
        elif fitting:
            chosen = fitting[min(fitting)]
        else:
            why = (f'was recorded by another label than {label}' if same
                   else 'is not in the snapshot, which knows a query by its exact text')
            return model.QueryResult(query, model.SourceHealth.UNREACHABLE,
                                     error=f'{field} of policy {policy.name} {why}'), None
        return _build_result(chosen, query), chosen


def list_answer_files(directory: str) -> list[str]:
    path = os.path.join(directory, 'prometheus')
    try:
        names = sorted(n for n in os.listdir(path) if n.endswith('.json'))
    except OSError as e:
        raise files.make_error(path, f'it cannot be read ({os.strerror(e.errno or 0)})') from None
    if len(names) > MAX_FILES:
        raise files.make_error(path, f'it holds {len(names)} files, more than {MAX_FILES}')
    return names


def read_answer(directory: str, name: str) -> RecordedAnswer:
    path = os.path.join('prometheus', name)
    data = files.load_document(directory, path, numbers=True)
    recorded_answer: RecordedAnswer = files.check_type(os.path.join(directory, path),
                                                       RecordedAnswer, data)
    return recorded_answer


def _build_result(answer: RecordedAnswer, query: str) -> model.QueryResult:
    """Build the result that a live source would return: finite numbers, or an error."""
    health = _parse_health(answer.health)
    error = answer.error
    if answer.unknown and error is None:
        error = 'it was recorded as unknown'
    if error is None and (health is model.SourceHealth.UNREACHABLE
                          or (health is model.SourceHealth.STALE and answer.taken_at is None)):
        error = f'it was recorded as {health}'
    warnings = [files.clean_text(w, 300) for w in answer.warnings]
    series: dict[str, float] = {}
    for label, value in answer.series.items():
        number = _convert_number(value)
        if math.isfinite(number):
            series[label] = number
        else:
            warnings.append(f'{files.clean_text(label, 80)}: {number} is left out')
            health = model.SourceHealth.PARTIAL if health is model.SourceHealth.HEALTHY else health
    for label in answer.duplicates:
        series.pop(label, None)
    return model.QueryResult(
        query=query, health=health, series={} if error is not None else series,
        error=None if error is None else files.clean_text(error, 500), warnings=tuple(warnings),
        missing_labels=tuple(files.clean_text(x, 300) for x in answer.missing_labels),
        duplicates=tuple(answer.duplicates))


def _parse_health(text: str) -> model.SourceHealth:
    try:
        return model.SourceHealth(text.upper())
    except ValueError:
        return model.SourceHealth.UNREACHABLE


def _convert_number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
