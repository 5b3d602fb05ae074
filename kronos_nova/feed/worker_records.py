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

"""Records that the workers of nova-scheduler publish for kronos-engine.

Each worker keeps one record under one of MAX_WORKERS cache keys, so that the engine can read all
records without a list of workers. A worker takes a free key, looks at it before each write, and
takes another one when a second worker has come to it. A record carries its own time; an old one
counts as absent, and its key is free.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
import socket
import time
from typing import Any
import zlib

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.feed import byte_stores
from kronos_nova.feed import raw_cache
from kronos_nova.sources import answer

LOG = logging.getLogger(__name__)

KEY = 'kronos_nova.worker.'
VERSION = 1
#: Workers of all hosts together that can publish a record.
MAX_WORKERS = 256
#: Seconds after which a record counts as absent; a clock may be ahead by as much.
MAX_AGE = 120.0
#: Seconds that reading all records may take.
MAX_READ_SECONDS = 10.0
#: Entries in one record; with MAX_TEXT they bound its size.
MAX_FILES = 16
MAX_PLUGINS = 16
MAX_FAULTS = 32
MAX_TEXT = 200
#: More than any counter, and any time since the epoch.
MAX_NUMBER = 2.0 ** 53


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """Scores by one policy file: how many hosts have one, and the age of the oldest sample.

    With 0 ``hosts`` Nova decides alone; ``reason`` says why.
    """

    path: str
    hosts: int
    age: float | None
    reason: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class PluginWork:
    """Requests that a filter or weigher judged, the seconds these took, and hosts it refused."""

    requests: int
    seconds: float
    refused_hosts: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class FaultCount:
    """Swallowed errors of one kind, and when the newest one came (epoch)."""

    number: int
    newest: float


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerRecord:
    """The work of one process of nova-scheduler since its start.

    ``plugins`` by name of the class; ``faults`` by place and name of the exception.
    """

    host: str
    pid: int
    started_at: float
    written_at: float
    files: tuple[FileState, ...] = ()
    plugins: Mapping[str, PluginWork] = dataclasses.field(default_factory=dict)
    faults: Mapping[tuple[str, str], FaultCount] = dataclasses.field(default_factory=dict)

    @property
    def owner(self) -> tuple[str, int, float]:
        """Identity of the process, which differs when another one gets its number."""
        return self.host, self.pid, self.started_at

    def is_fresh(self, now: float) -> bool:
        return now - MAX_AGE < self.written_at < now + MAX_AGE


class WorkerIdentity:
    """Host, number and start of this process; renewed after a fork."""

    def __init__(self) -> None:
        self._pid = 0
        self._started_at = 0.0

    def make_record(self, **fields: Any) -> WorkerRecord:
        """Return a record of this process, written now."""
        now = time.time()
        if self._pid != os.getpid():
            self._pid, self._started_at = os.getpid(), round(now, 3)
        return WorkerRecord(socket.gethostname()[:MAX_TEXT], self._pid, self._started_at, now,
                            **fields)


class RecordSlot:
    """The cache key of this worker's record; used on one thread."""

    def __init__(self, cache: raw_cache.RawCache) -> None:
        self._cache = cache
        self._number: int | None = None

    def write(self, record: WorkerRecord) -> None:
        """Keep a record.

        :raises LookupError: every key is taken. A client of memcached raises many kinds.
        """
        self._number = self._find_number(record)
        self._cache.set(f'{KEY}{self._number}', dump_record(record), expire=int(MAX_AGE))

    def _find_number(self, record: WorkerRecord) -> int:
        """Return the number that was ours, or the first free one after the worker's hash."""
        first = self._number
        if first is None:
            first = zlib.crc32(f'{record.host}:{record.pid}'.encode())
        for step in range(MAX_WORKERS):
            number = (first + step) % MAX_WORKERS
            other = self._read(number)
            if (other is None or other.owner == record.owner
                    or not other.is_fresh(record.written_at)):
                return number
        raise LookupError(f'{MAX_WORKERS} workers have records already')

    def _read(self, number: int) -> WorkerRecord | None:
        try:
            return read_record(self._cache, number)
        except (ValueError, byte_stores.RecordRefused):
            return None  # not ours: it is overwritten


@dataclasses.dataclass(frozen=True, slots=True)
class RecordReading:
    """All fresh records by number of their key, and how many records were refused."""

    records: Mapping[int, WorkerRecord]
    refused: int = 0


class RecordReader:
    """Reads the records for kronos-engine; one caller at a time.

    :param conf: with the options of :func:`raw_cache.register`.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._cache: raw_cache.RawCache | None = None

    def renew_connection(self) -> None:
        """Use another connection from now on."""
        self._cache = None

    def read(self) -> RecordReading | None:
        """Return the records that hold now; None: the cache does not answer in time."""
        cache = self._cache
        if cache is None:
            cache = self._cache = raw_cache.RawCache(self._conf)
        deadline = time.monotonic() + MAX_READ_SECONDS
        records: dict[int, WorkerRecord] = {}
        refused = 0
        for number in range(MAX_WORKERS):
            try:
                record = read_record(cache, number)
            except (ValueError, byte_stores.RecordRefused) as e:
                LOG.debug('The record %s%d of a worker is refused: %s', KEY, number, e)
                refused += 1
                continue
            except Exception as e:  # a client of memcached raises many kinds
                LOG.debug('Metrics do without the records of nova-scheduler: %s', e)
                return None
            if time.monotonic() > deadline:
                LOG.debug('Metrics do without the records of nova-scheduler: they take more '
                          'than %g s', MAX_READ_SECONDS)
                return None
            if record is not None and record.is_fresh(time.time()):
                records[number] = record
        return RecordReading(records, refused)


def dump_record(record: WorkerRecord) -> str:
    """Return a record as JSON text of bounded size; entries beyond the bounds are left out."""
    return json.dumps({
        'version': VERSION, 'host': record.host, 'pid': record.pid,
        'started_at': record.started_at, 'written_at': record.written_at,
        'files': [[answer.clean_text(f.path, MAX_TEXT), f.hosts, f.age,
                   answer.clean_text(f.reason, MAX_TEXT)] for f in record.files[:MAX_FILES]],
        'plugins': [[answer.clean_text(name, MAX_TEXT), work.requests, work.seconds,
                     work.refused_hosts]
                    for name, work in sorted(record.plugins.items())[:MAX_PLUGINS]],
        'faults': [[answer.clean_text(where, MAX_TEXT), answer.clean_text(error, MAX_TEXT),
                    fault_count.number,
                    fault_count.newest]
                   for (where, error), fault_count in sorted(
                       record.faults.items(),
                       key=lambda item: item[1].newest, reverse=True)[:MAX_FAULTS]]})


def read_record(cache: raw_cache.RawCache, number: int) -> WorkerRecord | None:
    """Return the record under a key, of any age.

    :raises ValueError, RecordRefused: the record is not one of ours.
    """
    text = cache.get(f'{KEY}{number}')
    return None if text is None else parse_record(text)


def parse_record(text: str) -> WorkerRecord:
    """Return the record that a text holds.

    :raises ValueError: the text is not one of ours.
    """
    document = raw_cache.parse_json(text)
    if not isinstance(document, dict) or document.get('version') != VERSION:
        raise ValueError('it was not written by this version')
    files = [FileState(_parse_text(path), _parse_integer(hosts),
                       None if age is None else _parse_number(age),
                       _parse_text(reason))
             for path, hosts, age, reason in _parse_rows(document, 'files', 4, MAX_FILES)]
    if len({file.path for file in files}) < len(files):
        raise ValueError('it names a policy file twice')
    return WorkerRecord(
        _parse_text(document.get('host')), _parse_integer(document.get('pid')),
        _parse_number(document.get('started_at')), _parse_number(document.get('written_at')),
        tuple(files),
        {_parse_text(name): PluginWork(_parse_integer(requests), _parse_number(seconds),
                                       _parse_integer(refused))
         for name, requests, seconds, refused in _parse_rows(document, 'plugins', 4, MAX_PLUGINS)},
        {(_parse_text(where), _parse_text(error)): FaultCount(_parse_integer(number),
                                                              _parse_number(newest))
         for where, error, number, newest in _parse_rows(document, 'faults', 4, MAX_FAULTS)})


def _parse_rows(document: dict[str, Any], name: str, length: int, most: int) -> list[list[Any]]:
    rows = document.get(name)
    if not isinstance(rows, list) or len(rows) > most or any(
            not isinstance(row, list) or len(row) != length for row in rows):
        raise ValueError(f'{name} is no list of rows')
    return rows


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError('a name is malformed')
    return answer.clean_text(value, MAX_TEXT)


def _parse_integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise ValueError('a value is no count')
    return value


def _parse_number(value: Any) -> float:
    if (not isinstance(value, int | float) or isinstance(value, bool)
            or not 0 <= value <= MAX_NUMBER):
        raise ValueError('a value is no amount')
    return float(value)
