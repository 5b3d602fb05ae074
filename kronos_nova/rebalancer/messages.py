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

"""The wire: topics, fields and their validation, as Kronos 0.2.0 has them.

Whoever can reach the broker can write these messages, so every field is
checked and nothing here is an order: a task on the wire only says that its
row may be worth a look.
"""

from collections.abc import Callable
from collections.abc import Mapping
import datetime
import hashlib
import math
import re
from typing import Any
import uuid

from kronos_nova import exception
from kronos_nova import model

VERSION = '1.0'
COMPLETED = 'migration.completed'
FAILED = 'migration.failed'

_PLAIN = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}')
_HOST = re.compile(r'[^\x00-\x20\x7f]{1,255}')


def migrations_topic(scope: str) -> str:
    """Where casts for a scope go."""
    return f'kronos.migrations.{slug(scope)}'


def results_topic(scope: str) -> str:
    """Where notifications of a scope go."""
    return f'kronos.results.{slug(scope)}'


def publisher_id(scope: str) -> str:
    return f'kronos-executor-{slug(scope)}'


def slug(scope: str) -> str:
    """An aggregate's name as a part of an AMQP name (255 bytes in all).

    Plain names stay as they are; any other becomes its plain part and a hash
    of the whole, so that two never share a topic.
    """
    if _PLAIN.fullmatch(scope):
        return scope
    kept = re.sub(r'[^A-Za-z0-9_-]+', '-', scope).strip('-')[:64]
    return f'{kept or "scope"}~{hashlib.sha256(scope.encode()).hexdigest()[:12]}'


def task_to_wire(task: model.Task) -> dict[str, Any]:
    """The ``task`` argument of ``execute_migration``."""
    return {
        'task_id': task.task_id, 'plan_id': task.plan_id, 'aggregate': task.aggregate,
        'policy_names': list(task.policy_names), 'instance_uuid': task.instance_uuid,
        'instance_name': task.instance_name, 'from_host': task.from_host,
        'to_host': task.to_host, 'improvement': task.improvement, 'phase': str(task.phase),
        'priority': task.priority, 'max_retries': task.max_retries,
        'retry_count': task.retry_count, 'not_before': task.not_before,
        'created_at': _iso(task.created_at), 'deadline': task.deadline}


def task_from_wire(data: Any) -> model.Task:
    """:raises MessageError: names the first field that is wrong."""
    fields = _Fields(data)
    return model.Task(
        task_id=fields.uuid('task_id'), plan_id=fields.uuid('plan_id'),
        aggregate=fields.text('aggregate'),
        policy_names=tuple(fields.texts('policy_names')),
        instance_uuid=fields.uuid('instance_uuid'),
        instance_name=fields.text('instance_name', default=''),
        from_host=fields.host('from_host'), to_host=fields.host('to_host'),
        improvement=fields.number('improvement', -1e9, 1e9, default=0.0),
        phase=model.Phase(fields.choice('phase', [str(p) for p in model.Phase])),
        priority=int(fields.number('priority', 0, 100, default=5)),
        max_retries=int(fields.number('max_retries', 0, 100, default=3)),
        retry_count=int(fields.number('retry_count', 0, 100, default=0)),
        not_before=fields.number('not_before', 0, 1e11, default=0.0),
        created_at=fields.moment('created_at'),
        deadline=fields.optional('deadline', lambda: fields.number('deadline', 0, 1e11)))


def result_to_wire(result: model.Result) -> dict[str, Any]:
    """The payload of ``migration.completed`` and ``migration.failed``."""
    return {
        'task_id': result.task_id, 'plan_id': result.plan_id, 'aggregate': result.aggregate,
        'instance_uuid': result.instance_uuid, 'from_host': result.from_host,
        'to_host': result.to_host, 'success': result.success, 'error': result.error,
        'error_type': result.error_type, 'duration_seconds': result.duration_seconds,
        'retry_count': result.retry_count, 'completed_at': _iso(result.completed_at)}


def result_from_wire(data: Any) -> model.Result:
    """:raises MessageError: names the first field that is wrong."""
    fields = _Fields(data)
    success = data.get('success')
    if not isinstance(success, bool):
        raise exception.MessageError(field='success', problem='it must be true or false')
    return model.Result(
        task_id=fields.uuid('task_id'), plan_id=fields.uuid('plan_id'),
        aggregate=fields.text('aggregate'), instance_uuid=fields.uuid('instance_uuid'),
        from_host=fields.host('from_host'), to_host=fields.host('to_host'), success=success,
        error=fields.optional('error', lambda: fields.text('error', limit=4096)),
        error_type=fields.optional('error_type', lambda: fields.text('error_type')),
        duration_seconds=fields.number('duration_seconds', 0, 1e9, default=0.0),
        retry_count=int(fields.number('retry_count', 0, 100, default=0)),
        completed_at=fields.moment('completed_at'))


def _iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat()


class _Fields:
    """Checked access to a message's fields."""

    def __init__(self, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise exception.MessageError(field='(all)', problem='it is not a mapping')
        self._data = data

    def _get(self, name: str) -> Any:
        if name not in self._data:
            raise exception.MessageError(field=name, problem='it is missing')
        return self._data[name]

    def optional(self, name: str, read: Callable[[], Any]) -> Any:
        return None if self._data.get(name) is None else read()

    def text(self, name: str, default: str | None = None, limit: int = 255) -> str:
        value = default if default is not None and name not in self._data else self._get(name)
        if not isinstance(value, str) or len(value) > limit:
            raise exception.MessageError(
                field=name, problem=f'it must be text of at most {limit} characters')
        return value

    def texts(self, name: str) -> list[str]:
        value = self._get(name)
        if (not isinstance(value, list) or len(value) > 100
                or not all(isinstance(v, str) and len(v) <= 128 for v in value)):
            raise exception.MessageError(field=name, problem='it must be a list of names')
        return value

    def host(self, name: str) -> str:
        value = self.text(name)
        if not _HOST.fullmatch(value):
            raise exception.MessageError(field=name, problem='it is no host name')
        return value

    def uuid(self, name: str) -> str:
        value = self.text(name)
        try:
            canonical = str(uuid.UUID(value))
        except ValueError:
            canonical = ''
        if canonical != value.lower():
            raise exception.MessageError(field=name, problem='it is no UUID')
        return canonical

    def choice(self, name: str, allowed: list[str]) -> str:
        value = self.text(name)
        if value not in allowed:
            raise exception.MessageError(
                field=name, problem=f'it must be one of {", ".join(allowed)}')
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = default if default is not None and name not in self._data else self._get(name)
        if (isinstance(value, bool) or not isinstance(value, int | float)
                or not math.isfinite(value) or not low <= value <= high):
            raise exception.MessageError(
                field=name, problem=f'it must be a number from {low:g} to {high:g}')
        return value

    def moment(self, name: str) -> float:
        try:
            return datetime.datetime.fromisoformat(self.text(name, limit=64)).timestamp()
        except (ValueError, OverflowError):
            raise exception.MessageError(
                field=name, problem='it is no ISO 8601 time') from None
