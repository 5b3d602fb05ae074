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


"""A reader of a snapshot's files: strict JSON of bounded size, or one clear error.

A snapshot is untrusted: a name in it is data and never a path, only regular files are read, and
their content is checked before use.
"""

import collections
import functools
import json
import os
import stat
from typing import Any, TypeVar

import pydantic

from kronos_nova import exception

MAX_BYTES = 64 * 1024 * 1024

AGAIN = 'Correct the file or record the snapshot again.'

#: A name that people read in a table: no control characters.
Name = pydantic.StringConstraints(min_length=1, max_length=255,
                                  pattern=r'^[^\x00-\x1f\x7f-\x9f]+$')

T = TypeVar('T')


class UnreadableFile(pydantic.BaseModel):
    """The placeholder of a file whose content could not be read when it was recorded."""

    model_config = pydantic.ConfigDict(strict=True)

    unknown: bool = False
    error: str = pydantic.Field('no reason was recorded', max_length=4096)


def make_placeholder(problem: str) -> dict[str, Any]:
    """Build the placeholder of a part that could not be read."""
    return {'unknown': True, 'error': problem}


def has_file(directory: str, path: str) -> bool:
    return os.path.lexists(os.path.join(directory, path))


def load_document(directory: str, path: str, *, numbers: bool = False) -> Any:
    """Return the JSON document of one file.

    :param path: relative to the snapshot, one of our own constants or of a listing; never a name
        out of a file.
    :param numbers: admit NaN and Infinity, which Kronos 0.2.0 wrote.
    :raises SnapshotError: the file cannot be read, or is not JSON, or too large.
    """
    whole = os.path.join(directory, path)
    text = _read(whole)

    def parse_special_number(name: str) -> float:
        if not numbers:
            raise ValueError(f'{name} is not a number')
        return float(name)

    try:
        return json.loads(text, object_pairs_hook=_build_unique_object,
                          parse_constant=parse_special_number)
    except RecursionError:
        raise make_error(whole, 'it is nested too deeply') from None
    except ValueError as e:
        raise make_error(whole, f'it is not valid JSON ({clean_text(e)})') from None


def parse_file(directory: str, path: str, kind: Any, *, numbers: bool = False) -> Any:
    """Return the checked content of one file.

    :param kind: a type that pydantic can check.
    :raises SnapshotError: the file cannot be used, or was recorded as unknown.
    """
    data = load_document(directory, path, numbers=numbers)
    whole = os.path.join(directory, path)
    if isinstance(data, dict) and data.get('unknown') is True:
        unreadable = check_type(whole, UnreadableFile, data)
        raise exception.SnapshotError(
            path=whole, problem=f'it was recorded as unknown ({clean_text(unreadable.error)})',
            remedy='Record the snapshot again when that has been put right.')
    return check_type(whole, kind, data)


def check_type(whole: str, kind: Any, data: Any) -> Any:
    """Return ``data`` as ``kind``, or raise an error that names the first wrong field."""
    try:
        return _make_adapter(kind).validate_python(data)
    except pydantic.ValidationError as e:
        errors = e.errors(include_url=False, include_context=False, include_input=False)
        more = f' ({len(errors) - 1} more errors)' if len(errors) > 1 else ''
        raise make_error(whole, f'{_format_location(errors[0]["loc"])}: '
                         f'{clean_text(errors[0]["msg"])}{more}') from None


def make_error(whole: str, problem: str) -> exception.SnapshotError:
    return exception.SnapshotError(path=whole, problem=problem, remedy=AGAIN)


def clean_text(text: object, limit: int = 200) -> str:
    """Return foreign text for a message: one line, printable, bounded."""
    line = ''.join(c if c.isprintable() else '?' for c in ' '.join(str(text).split()))
    return line if len(line) <= limit else line[:limit - 3] + '...'


@functools.lru_cache(maxsize=64)
def _make_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def _format_location(loc: tuple[int | str, ...]) -> str:
    """Format pydantic's location as ``[compute-1][3].uuid``."""
    parts = [f'[{part}]' if isinstance(part, int) else f'.{clean_text(part, 64)}' for part in loc]
    return ''.join(parts).removeprefix('.') or 'document'


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; refuse a key that comes twice."""
    out = dict(pairs)
    if len(out) != len(pairs):
        counts = collections.Counter(key for key, _value in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f'key {clean_text(twice, 64)!r} is written twice')
    return out


def _read(whole: str) -> str:
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = os.open(whole, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, 'rb') as f:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise make_error(whole, 'it is not a regular file')
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise exception.SnapshotError(
            path=whole, problem=f'it cannot be read ({os.strerror(e.errno or 0)})',
            remedy='Name the directory that kronos-record printed, and see its '
                   'permissions.') from None
    if len(data) > MAX_BYTES:
        raise make_error(whole, f'it is larger than {MAX_BYTES // 1024 ** 2} MiB')
    try:
        return data.decode('utf-8')
    except UnicodeDecodeError:
        raise make_error(whole, 'it is not UTF-8 text') from None
