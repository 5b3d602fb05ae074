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

"""Trace files: NumPy's .npz, without pickle, checked before anything uses it.

The layout is documented in doc/source/admin/simulate.rst.
"""

from collections.abc import Mapping
import json
import os
import struct
import tempfile
from typing import Any, BinaryIO
import zipfile
import zlib

import numpy as np

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.sources import ranges
from kronos_nova.sources import snapshot_files as files

FORMAT = 'kronos-trace-1'
#: Most bytes that a trace may hold when it is unpacked.
MAX_BYTES = 8 * 1024 ** 3
#: Largest difference between steps, as a part of one step.
EVEN = 1e-6
#: The last second that a calendar can show.
LAST = 253402214400.0
#: Files of a snapshot that a trace keeps.
CLOUD = ('meta.json', schema.NODES, schema.AGGREGATES, schema.INSTANCES, schema.GROUPS,
         schema.SERVICES, schema.PROVIDERS, schema.SHARING, schema.ALLOCATIONS,
         schema.BY_PROVIDER, schema.TRAITS)
#: Exceptions that the libraries raise for a damaged archive, or for another kind of file.
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, OSError, KeyError,
          RuntimeError, MemoryError, SyntaxError, TypeError)


def write_trace(path: str, trace: recorded_trace.RecordedTrace,
                policy_set: policies.PolicySet) -> None:
    """Write a trace; the file appears whole or not at all.

    :raises TraceError: it could not be written.
    """
    contents: dict[str, Any] = {
        'format': np.array(FORMAT),
        'times': np.array([trace.window.compute_time(i) for i in range(trace.window.count)]),
        'cloud': _encode_text(json.dumps(build_cloud_documents(trace, policy_set), sort_keys=True)),
        'questions': _encode_text(json.dumps([list(q) for q in sorted(trace.answers)]))}
    for number, question in enumerate(sorted(trace.answers)):
        answer = trace.answers[question]
        contents[f'series_{number}'] = _encode_text(json.dumps(
            [list(pair) for pair in zip(answer.keys, answer.marks, strict=True)]))
        contents[f'values_{number}'] = answer.values
    try:
        work = f'{path}.{os.getpid()}.tmp'
        try:
            with open(work, 'xb') as f:
                np.savez_compressed(f, **contents)
            os.replace(work, path)
        finally:
            if os.path.exists(work):
                os.unlink(work)
    except OSError as e:
        raise exception.TraceError(
            path=path, problem=f'it cannot be written ({os.strerror(e.errno or 0)})',
            remedy='Name a file in a directory that you may write to, with room for it.') from None


def build_cloud_documents(trace: recorded_trace.RecordedTrace,
                          policy_set: policies.PolicySet) -> dict[str, Any]:
    """Render the cloud as a snapshot's files, without its answers and cooldowns."""
    unasked = model.QueryResult('', model.SourceHealth.UNREACHABLE, error='not asked')
    documents = writer.build_documents(writer.SnapshotContent(
        now=trace.cluster.taken_at, scopes=trace.scopes, policies=policy_set,
        samples={p.name: model.PolicySamples(p.name, unasked) for p in policy_set.enabled_policies},
        cluster=trace.cluster, histories={}))
    cloud_documents = {name: documents[name] for name in CLOUD if name in documents}
    cloud_documents['meta.json']['files'] = sorted(cloud_documents)
    return cloud_documents


def read_trace(path: str) -> recorded_trace.RecordedTrace:
    """Read a trace.

    :raises TraceError: the file is no trace, or a field in it is wrong.
    """
    try:
        with open(path, 'rb') as f:
            return _TraceReader(path, f).read()
    except OSError as e:
        raise _make_trace_error(path, f'it cannot be read ({os.strerror(e.errno or 0)})',
                                'Name a file that kronos simulate --record has written.') from None


class _TraceReader:
    """Reader of one open file."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self._path = path
        try:
            with zipfile.ZipFile(file) as archive:
                size = sum(info.file_size for info in archive.infolist())
            if size > MAX_BYTES:
                raise _make_trace_error(path, f'it unpacks to {size >> 20} MiB, more than '
                                   f'{MAX_BYTES >> 20} MiB')
            file.seek(0)
            arrays = np.load(file, allow_pickle=False)
        except BROKEN:
            raise _make_trace_error(path, 'it is no .npz file') from None
        self._fields: Mapping[str, Any] = arrays

    def read(self) -> recorded_trace.RecordedTrace:
        form = self._read_field('format')
        if form.shape != () or str(form) != FORMAT:
            raise self._make_field_error('format', f'it is not {FORMAT}')
        window = self._read_window()
        answers = {}
        questions = self._parse_json_field('questions')
        if not isinstance(questions, list):
            raise self._make_field_error('questions', 'it is no list')
        for number, question in enumerate(questions):
            if not (isinstance(question, list) and len(question) == 3
                    and all(isinstance(part, str) for part in question)):
                raise self._make_field_error('questions',
                                             f'[{number}] is no list of query, label and label')
            answers[tuple(question)] = self._read_answer(number, window.count)
        snapshot = self._read_cloud()
        return recorded_trace.RecordedTrace(window=window, cluster=snapshot.cluster,
                                            scopes=snapshot.scopes,
                                            answers=answers, warnings=snapshot.warnings)

    def _read_window(self) -> ranges.QueryWindow:
        times = self._read_field('times')
        if times.ndim != 1 or times.size < 2 or times.dtype.kind not in 'fiu':
            raise self._make_field_error('times', 'it is no list of at least two numbers')
        times = times.astype(np.float64)
        steps = np.diff(times)
        if not (np.isfinite(times).all() and steps[0] > 0 and times[0] >= 0 and times[-1] <= LAST
                and np.abs(steps - steps[0]).max() <= EVEN * steps[0]):
            raise self._make_field_error('times', 'they do not rise by the same step, or are no '
                                                  'epoch seconds')
        return ranges.QueryWindow(float(times[0]), float(steps[0]), int(times.size))

    def _read_answer(self, number: int, count: int) -> recorded_trace.RecordedSeries:
        name = f'series_{number}'
        series = self._parse_json_field(name)
        if not (isinstance(series, list) and all(
                isinstance(pair, list) and len(pair) == 2
                and all(isinstance(part, str) for part in pair) for pair in series)):
            raise self._make_field_error(name, 'it is no list of pairs of labels')
        values = self._read_field(f'values_{number}')
        if values.shape != (count, len(series)) or values.dtype.kind != 'f':
            raise self._make_field_error(f'values_{number}',
                                         f'it is {values.dtype} of shape {values.shape}, '
                                                f'not floats of shape ({count}, {len(series)})')
        if np.isinf(values).any():
            raise self._make_field_error(f'values_{number}',
                                         'it holds an infinite number; NaN is for no sample')
        return recorded_trace.RecordedSeries(tuple(k for k, _mark in series),
                                             tuple(m for _key, m in series),
                                             values.astype(np.float32, copy=False))

    def _read_cloud(self) -> reader.RecordedSnapshot:
        """Read the cloud as a snapshot, which is checked file by file."""
        documents = self._parse_json_field('cloud')
        if not isinstance(documents, dict):
            raise self._make_field_error('cloud', 'it is no object')
        with tempfile.TemporaryDirectory(prefix='kronos-trace-') as work:
            for folder in ('nova', 'placement'):
                os.mkdir(os.path.join(work, folder))
            for name in CLOUD:
                if name in documents:
                    with open(os.path.join(work, name), 'w', encoding='utf-8') as f:
                        json.dump(documents[name], f)
            try:
                return reader.read_snapshot(work)
            except exception.SnapshotError as e:
                where = os.path.relpath(str(e.kwargs['path']), work)
                raise self._make_field_error('cloud', f'{where}: {e.kwargs["problem"]}') from None

    def _parse_json_field(self, name: str) -> Any:
        data = self._read_field(name)
        if data.dtype != np.uint8 or data.ndim != 1:
            raise self._make_field_error(name, 'it is no text as an array of uint8')
        try:
            return json.loads(data.tobytes().decode('utf-8'))
        except (ValueError, RecursionError):
            raise self._make_field_error(name, 'it is not JSON in UTF-8') from None

    def _read_field(self, name: str) -> Any:
        if name not in self._fields:
            raise self._make_field_error(name, 'it is missing')
        try:
            return self._fields[name]
        except BROKEN:
            raise self._make_field_error(name, 'it cannot be unpacked') from None

    def _make_field_error(self, field: str, problem: str) -> exception.TraceError:
        return _make_trace_error(self._path, f'{field}: {problem}')


def _make_trace_error(path: str, problem: str,
                      remedy: str = 'Record the trace again with kronos simulate --record.',
                      ) -> exception.TraceError:
    return exception.TraceError(path=path, problem=files.clean_text(problem, 500), remedy=remedy)


def _encode_text(text: str) -> Any:
    return np.frombuffer(text.encode('utf-8'), dtype=np.uint8)
