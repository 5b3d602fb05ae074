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


"""Kronos's wire format: its topics, fields and version 1.0.

Pure conversion. We trust a message only as far as we can check it, and even then it is a wake-up
or news: the task table is the truth.

Neighbouring releases talk to each other. A reader ignores a field that it does not know, and has a
default for one that an older release did not send. A version differs by more than its second
number only where the releases cannot understand each other.
"""

from collections.abc import Callable
from collections.abc import Mapping
import datetime
import hashlib
import re
from typing import Any, TypeVar
import uuid

from kronos_nova import exception
from kronos_nova import model

_T = TypeVar('_T')

VERSION = '1.0'
METHOD = 'execute_migration'
COMPLETED = 'migration.completed'
FAILED = 'migration.failed'

_COMPATIBLE = re.compile(r'1\.[0-9]{1,4}')
_PLAIN = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}')
_HASHED = re.compile(r'.*-[0-9a-f]{16}', re.DOTALL)
_NAME = 255
_TEXT = 4096
_LIST = 1000
_PHASES = 32
_PHASE = re.compile(r'[a-z_]{1,32}')
#: Later than any clock may say (the year 5138).
_LATEST = 1e11
#: Control characters, line breaks and halves of characters: names have none, and they could
#: forge lines of a log.
_CONTROL = re.compile('[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]')


def format_slug(scope: str, *, aggregate: bool = False) -> str:
    """Return a scope's part of a topic name: at most 128 ASCII characters.

    Plain names stay as Kronos wrote them; any other becomes its plain characters and a hash.
    Different scopes never share a slug.

    :param aggregate: the scope is an aggregate even if it is called ``_unassigned_``.
    """
    reserved = aggregate and scope == model.UNASSIGNED
    if _PLAIN.fullmatch(scope) and not _HASHED.fullmatch(scope) and not reserved:
        return scope
    digest = hashlib.sha256(scope.encode('utf-8', 'surrogatepass')).hexdigest()[:16]
    plain = re.sub(r'[^A-Za-z0-9_.]+', '-', scope)[:100].strip('-')
    return f'{plain or "aggregate"}-{digest}'


def migrations_topic(scope: str, *, aggregate: bool = False) -> str:
    return f'kronos.migrations.{format_slug(scope, aggregate=aggregate)}'


def results_topic(scope: str, *, aggregate: bool = False) -> str:
    return f'kronos.results.{format_slug(scope, aggregate=aggregate)}'


def plans_topic(scope: str, *, aggregate: bool = False) -> str:
    return f'kronos.plans.{format_slug(scope, aggregate=aggregate)}'


def planner_id(scope: str, *, aggregate: bool = False) -> str:
    return f'kronos-engine-{format_slug(scope, aggregate=aggregate)}'


def publisher_id(scope: str, *, aggregate: bool = False) -> str:
    return f'kronos-executor-{format_slug(scope, aggregate=aggregate)}'


def to_wire(task: model.Task) -> dict[str, Any]:
    """Return the message of a task: Kronos's fields, and ours after them."""
    return {
        'task_id': task.task_id, 'plan_id': task.plan_id, 'aggregate': task.aggregate,
        'policy_names': list(task.policy_names), 'instance_uuid': task.instance_uuid,
        'instance_name': task.instance_name, 'from_host': task.from_host,
        'to_host': task.to_host, 'improvement': task.improvement, 'phase': task.phase.value,
        'priority': task.priority, 'max_retries': task.max_retries,
        'retry_count': task.retry_count, 'not_before': task.not_before,
        'created_at': format_time(task.created_at), 'version': VERSION, 'wave': task.wave,
        'requires': list(task.requires), 'alternates': list(task.alternates),
        'alternate_improvements': list(task.alternate_improvements),
        'deadline': task.deadline}


def from_wire(data: object, now: float | None = None) -> model.Task:
    """Return the task of a message.

    :param now: epoch seconds; a message past its deadline is refused.
    :raises MessageError: names the field.
    """
    read = _MessageReader(data)
    read.read_version()
    task = model.Task(
        task_id=read.read_uuid('task_id'), plan_id=read.read_uuid('plan_id'),
        aggregate=read.read_name('aggregate'), instance_uuid=read.read_uuid('instance_uuid'),
        from_host=read.read_name('from_host'), to_host=read.read_name('to_host'),
        phase=read.read_phase('phase'), policy_names=read.read_items('policy_names', _parse_name),
        instance_name=read.read_text('instance_name', default='', limit=_NAME),
        improvement=read.read_number('improvement', -1e9, 1e9, default=0.0),
        priority=read.read_integer('priority', 0, 1000, default=5),
        max_retries=read.read_integer('max_retries', 0, 1000, default=3),
        retry_count=read.read_integer('retry_count', 0, 1000, default=0),
        not_before=read.read_number('not_before', 0, _LATEST, default=0.0),
        created_at=read.read_time('created_at', default=0.0),
        wave=read.read_integer('wave', 0, 100000, default=0),
        requires=read.read_items('requires', _parse_uuid),
        alternates=read.read_items('alternates', _parse_name),
        alternate_improvements=read.read_items('alternate_improvements', _parse_improvement),
        deadline=read.optional_number('deadline', 0, _LATEST))
    if task.from_host == task.to_host:
        raise exception.MessageError(field='to_host', problem='it is from_host')
    if now is not None and task.deadline is not None and task.deadline <= now:
        raise exception.MessageError(field='deadline', problem='it is over')
    return task


def to_payload(result: model.TaskResult) -> dict[str, Any]:
    """Return the payload of a result, with Kronos's fields; no error is an empty string there."""
    return {
        'task_id': result.task_id, 'plan_id': result.plan_id, 'aggregate': result.aggregate,
        'instance_uuid': result.instance_uuid, 'from_host': result.from_host,
        'to_host': result.to_host, 'success': result.success, 'error': result.error or '',
        'error_type': result.error_type or '', 'duration_seconds': result.duration_seconds,
        'retry_count': result.retry_count, 'completed_at': format_time(result.completed_at),
        'attempts': [_attempt_payload(attempt) for attempt in result.attempts]}


def _attempt_payload(attempt: model.Attempt) -> dict[str, Any]:
    return {
        'to_host': attempt.to_host, 'started_at': format_time(attempt.started_at),
        'ended_at': format_time(attempt.ended_at), 'error_type': attempt.error_type,
        'error': attempt.error, 'migration_uuid': attempt.migration_uuid,
        'phases': dict(attempt.phases)}


def from_payload(data: object) -> model.TaskResult:
    """Return the result of a payload.

    :raises MessageError: names the field.
    """
    read = _MessageReader(data)
    return model.TaskResult(
        task_id=read.read_uuid('task_id'), plan_id=read.read_uuid('plan_id'),
        aggregate=read.read_name('aggregate'), instance_uuid=read.read_uuid('instance_uuid'),
        from_host=read.read_name('from_host'), to_host=read.read_name('to_host'),
        success=read.read_boolean('success'), error=read.optional_text('error'),
        error_type=read.optional_text('error_type'),
        duration_seconds=read.read_number('duration_seconds', 0, _LATEST, default=0.0),
        retry_count=read.read_integer('retry_count', 0, 1000, default=0),
        completed_at=read.read_time('completed_at', default=0.0),
        attempts=read.read_items('attempts', _parse_attempt))


def _parse_attempt(data: object) -> model.Attempt:
    """Return the attempt of a payload.

    :raises ValueError: names the field.
    """
    try:
        read = _MessageReader(data)
        return model.Attempt(
            to_host=read.read_name('to_host'), started_at=read.read_time('started_at', default=0.0),
            ended_at=read.read_time('ended_at', default=0.0),
            error_type=read.optional_text('error_type'), error=read.optional_text('error'),
            migration_uuid=read.optional_uuid('migration_uuid'), phases=read.read_seconds('phases'))
    except exception.MessageError as e:
        raise ValueError(f'has an attempt whose {e.kwargs["field"]} {e.kwargs["problem"]}') \
            from None


def format_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


_MISSING: Any = object()


def _parse_name(value: object) -> str:
    if (not isinstance(value, str) or not value or len(value) > _NAME
            or _CONTROL.search(value)):
        raise ValueError(f'must be text of 1 to {_NAME} characters, without control characters')
    return value


def _parse_uuid(value: object) -> str:
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError('must be a UUID')
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise ValueError('must be a UUID') from None


def _parse_improvement(value: object) -> float:
    if (isinstance(value, bool) or not isinstance(value, int | float)
            or not -1e9 <= value <= 1e9):  # NaN is neither
        raise ValueError('must be numbers from -1e+09 to 1e+09')
    return float(value)


class _MessageReader:
    """Reader that takes checked values out of a received message."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, Mapping):
            raise exception.MessageError(field='(all)', problem='must be a mapping')
        self._data = data

    def _read_field(self, field: str, convert: Callable[[Any], Any],
                    default: Any = _MISSING) -> Any:
        value = self._data.get(field, default)
        if value is _MISSING:
            raise exception.MessageError(field=field, problem='is missing')
        try:
            return convert(value)
        except ValueError as e:
            raise exception.MessageError(field=field, problem=str(e)) from None

    def read_version(self) -> None:
        wire_version = self._data.get('version', VERSION)
        if not isinstance(wire_version, str) or not _COMPATIBLE.fullmatch(wire_version):
            raise exception.MessageError(field='version', problem='must be 1.x')

    def read_uuid(self, field: str) -> str:
        return str(self._read_field(field, _parse_uuid))

    def optional_uuid(self, field: str) -> str | None:
        return None if self._data.get(field) is None else self.read_uuid(field)

    def read_name(self, field: str) -> str:
        return str(self._read_field(field, _parse_name))

    def read_text(self, field: str, *, default: str, limit: int = _TEXT) -> str:
        def parse_text(value: object) -> str:
            if not isinstance(value, str) or len(value) > limit:
                raise ValueError(f'must be text of at most {limit} characters')
            return value
        return str(self._read_field(field, parse_text, default))

    def optional_text(self, field: str) -> str | None:
        if self._data.get(field) in (None, ''):
            return None
        return _CONTROL.sub(' ', self.read_text(field, default=''))

    def read_phase(self, field: str) -> model.Phase:
        def parse_phase(value: object) -> model.Phase:
            if not isinstance(value, str) or value not in set(model.Phase):
                raise ValueError('must be one of ' + ', '.join(model.Phase))
            return model.Phase(value)
        return model.Phase(self._read_field(field, parse_phase))

    def read_boolean(self, field: str) -> bool:
        def parse_boolean(value: object) -> bool:
            if not isinstance(value, bool):
                raise ValueError('must be true or false')
            return value
        return bool(self._read_field(field, parse_boolean))

    def read_integer(self, field: str, low: int, high: int, *, default: int) -> int:
        def parse_integer(value: object) -> int:
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f'must be a whole number from {low} to {high}')
            return value
        return int(self._read_field(field, parse_integer, default))

    def read_number(self, field: str, low: float, high: float, *, default: float) -> float:
        def parse_number(value: object) -> float:
            if (isinstance(value, bool) or not isinstance(value, int | float)
                    or not low <= value <= high):  # NaN is neither
                raise ValueError(f'must be a number from {low:g} to {high:g}')
            return float(value)
        return float(self._read_field(field, parse_number, default))

    def optional_number(self, field: str, low: float, high: float) -> float | None:
        if self._data.get(field) is None:
            return None
        return self.read_number(field, low, high, default=low)

    def read_seconds(self, field: str) -> dict[str, float]:
        """Return seconds by the names of phases; keep those that a later release has added."""
        def parse_seconds(value: object) -> dict[str, float]:
            if not isinstance(value, Mapping) or len(value) > _PHASES or not all(
                    isinstance(name, str) and _PHASE.fullmatch(name) and not isinstance(
                        number, bool) and isinstance(number, int | float)
                    and 0 <= number <= _LATEST for name, number in value.items()):
                raise ValueError('must be seconds by the names of phases')
            return {name: float(number) for name, number in value.items()}
        return dict(self._read_field(field, parse_seconds, {}))

    def read_time(self, field: str, *, default: float) -> float:
        """Return the epoch seconds of an ISO 8601 time; without an offset it is UTC."""
        def parse_time(value: object) -> float:
            if value is default:
                return default
            if not isinstance(value, str) or len(value) > 64:
                raise ValueError('must be an ISO 8601 time')
            try:
                moment = datetime.datetime.fromisoformat(value)
                if moment.tzinfo is None:
                    moment = moment.replace(tzinfo=datetime.UTC)
                seconds = moment.timestamp()
                if not 0 <= seconds <= _LATEST:
                    raise ValueError
                return seconds
            except (ValueError, OverflowError):
                raise ValueError('must be an ISO 8601 time since 1970') from None
        return float(self._read_field(field, parse_time, default))

    def read_items(self, field: str, convert: Callable[[object], _T]) -> tuple[_T, ...]:
        def all_of(value: object) -> tuple[_T, ...]:
            if not isinstance(value, list | tuple) or len(value) > _LIST:
                raise ValueError(f'must be a list of at most {_LIST} items')
            return tuple(convert(item) for item in value)
        return tuple(self._read_field(field, all_of, ()))
