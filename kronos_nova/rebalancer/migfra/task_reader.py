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

"""The reader of migfra's messages: it returns a task of :mod:`protocol`, or refuses the message.

Pure but for YAML.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import re
from typing import Any

import pydantic

from kronos_nova import exception
from kronos_nova.conf import plain_yaml
from kronos_nova.rebalancer.migfra import fast_lib
from kronos_nova.rebalancer.migfra import protocol

MAX_BYTES = 256 * 1024
MAX_DEPTH = 8
MAX_NODES = 20_000

#: An id of the protocol.
_ID = r'[A-Za-z0-9._-]{1,64}'
#: Characters of an id that a refusal repeats, or that another dialect has; and its largest number.
ID_LENGTH = 255
ID_NUMBER = 2**63


class MessageRefused(exception.KronosException):
    """A message that is no task of ours.

    ``request_id`` and ``kind`` are the message's, None where they cannot be read; ``named``: the
    instances that it names, as far as these can be read.
    """

    msg_fmt = '%(field)s: %(problem)s'
    code = 'kronos.migfra.refused'

    def __init__(self, field: str, problem: str, request_id: str | int | None = None,
                 kind: protocol.MigfraRequestKind | None = None, named: Sequence[str] = ()) -> None:
        super().__init__(field=field, problem=problem)
        self.request_id = request_id
        self.kind = kind
        self.named = tuple(named)


def parse_task(payload: bytes, host: str,
               dialect: protocol.MessageDialect = protocol.MessageDialect.STRICT,
               note: Callable[[str], None] = lambda text: None) -> protocol.Task:
    """Return the task in a message of ``fast/migfra/<host>/task``.

    :param note: takes a text about each ignored field.
    :raises MessageRefused: the message has no valid task; nothing may be done.
    """
    data = _load_document(payload)
    if not isinstance(data, dict):
        raise MessageRefused('message', 'it is no mapping of fields')
    kind = data.get('task')
    known = protocol.KINDS.get(kind) if isinstance(kind, str) else None
    identity = (read_id(data.get('id')),
                None if known is None else protocol.MigfraRequestKind(str(kind)),
                find_names(data, None if known is None else protocol.MigfraRequestKind(str(kind))))
    if dialect is protocol.MessageDialect.FAST_LIB:
        try:
            data = fast_lib.translate_message(data, note)
        except fast_lib.UnsupportedRequest as e:
            raise MessageRefused(e.field, e.problem, *identity) from None
        if identity[0] is not None:
            data['id'] = identity[0]
    if known is None:
        raise MessageRefused('task', f'must be one of {", ".join(protocol.KINDS)}', *identity)
    if (field := _decimal_device(data)) is not None:
        raise MessageRefused(field,
                             'is hexadecimal, but written as a decimal number: write it with 0x, '
                             'as in 0x15b3, or in quotes as lspci -nn shows it', *identity)
    if (wrong := _judge_id(data, dialect)) is not None:
        raise MessageRefused('id', wrong, *identity)
    try:
        # In JSON there are no dates and the like, which YAML reads out of plain text.
        task = known.model_validate_json(_dump_json(data))
    except (TypeError, OverflowError, RecursionError):
        raise MessageRefused('message', 'it has a value that is no text, number, list or truth',
                             *identity) from None
    except pydantic.ValidationError as e:
        field, problem = _format_first_error(e)
        raise MessageRefused(field, problem, *identity) from None
    if task.host is not None and task.host != host:
        raise MessageRefused('host', f'the task came on the topic of {host}', *identity)
    return task


def read_id(value: object) -> str | int | None:
    """Return an id as a result may repeat it; None for any other value.

    A number that is not written in plain decimals is repeated as the text that it was.
    """
    if isinstance(value, plain_yaml.SpelledInteger | plain_yaml.SpelledFloat):
        plain = (isinstance(value, plain_yaml.SpelledInteger) and abs(value) <= ID_NUMBER
                 and str(value) == value.spelling)
        value = int(value) if plain else value.spelling
    if type(value) is int:
        return value if abs(value) <= ID_NUMBER else None
    if isinstance(value, str) and 0 < len(value) <= ID_LENGTH and value.isprintable():
        return value
    return None


def _judge_id(data: dict[Any, Any], dialect: protocol.MessageDialect) -> str | None:
    """Return the problem of a message's id, or None."""
    request_id = data.get('id')
    if dialect is protocol.MessageDialect.FAST_LIB:
        return None if request_id is None or read_id(request_id) is not None else (
            f'should be a number, or printable text of at most {ID_LENGTH} characters')
    if 'id' not in data:
        # A field that is misspelt says more.
        return None if any(isinstance(name, str) and name.lower() == 'id' for name in data) \
            else 'it is missing'
    if not isinstance(request_id, str):
        return 'should be a valid string'
    return None if re.fullmatch(_ID, request_id) else f'should match pattern {_ID}'


def find_names(data: Mapping[Any, Any], kind: protocol.MigfraRequestKind | None) -> tuple[str, ...]:
    """Return a message's names of its instances; one that cannot be read is empty text."""
    if kind in (protocol.MigfraRequestKind.MIGRATE, protocol.MigfraRequestKind.REPIN):
        return (_readable_name(data.get('vm-name')),)
    items = data.get('vm-configurations' if kind is protocol.MigfraRequestKind.START else 'list')
    if kind in (None, protocol.MigfraRequestKind.EVACUATE) or not isinstance(items, list):
        return ()
    return tuple(_readable_name(item.get('vm-name') if isinstance(item, dict) else None)
                 for item in items[:protocol.MAX_LIST])


def _readable_name(value: object) -> str:
    readable = read_id(value)
    return '' if readable is None else str(readable)


def _decimal_device(data: dict[str, Any]) -> str | None:
    """Return the field of a device identifier that is a decimal number, or None.

    Its digits are ambiguous: 8086 reads as 0x1f96, but is printed on the cards of 0x8086.
    """
    machines = data.get('vm-configurations')
    for number, machine in enumerate(machines if isinstance(machines, list) else ()):
        devices = machine.get('pci-ids') if isinstance(machine, dict) else None
        for place, device in enumerate(devices if isinstance(devices, list) else ()):
            for name, value in device.items() if isinstance(device, dict) else ():
                if isinstance(value, int) and not isinstance(
                        value, bool | plain_yaml.SpelledHexadecimal):
                    return _format_plain(f'vm-configurations.{number}.pci-ids.{place}.{name}')
    return None


def parse_stored_task(document: str) -> protocol.Task:
    """Return the task from the JSON of a task that :func:`parse_task` returned."""
    return protocol.KINDS[json.loads(document)['task']].model_validate_json(document)


def _dump_json(data: object) -> str:
    """Return a document as JSON.

    :raises TypeError: it cannot be written as JSON.
    """
    try:
        return json.dumps(data)
    except ValueError as e:  # an integer of thousands of digits
        raise TypeError(str(e)) from None


def _load_document(payload: bytes) -> object:
    if len(payload) > MAX_BYTES:
        raise MessageRefused('message', f'it is longer than {MAX_BYTES // 1024} KiB')
    try:
        return plain_yaml.load_yaml(payload.decode('utf-8'), depth=MAX_DEPTH, nodes=MAX_NODES,
                                    spelling=True)
    except UnicodeDecodeError:
        raise MessageRefused('message', 'it is not UTF-8 text') from None
    except plain_yaml.PlainYamlError as e:
        line = f'line {e.line}' if e.line else 'message'
        raise MessageRefused(line, _format_plain(e.problem)) from None


def _format_first_error(error: pydantic.ValidationError) -> tuple[str, str]:
    """Return the field and the problem of the first error; do not repeat the value."""
    # A field that is misspelt says more than that it is missing.
    first_error = min(error.errors(include_url=False, include_input=False, include_context=False),
                      key=lambda e: e['type'] != 'extra_forbidden')
    where = '.'.join(str(part) for part in first_error['loc']) or 'message'
    problem = first_error['msg'].removeprefix('Value error, ')
    if first_error['type'] == 'extra_forbidden':
        problem = 'no such field'
    elif first_error['type'] == 'missing':
        problem = 'it is missing'
    return _format_plain(where), _format_plain(problem[:1].lower() + problem[1:])


def _format_plain(text: str) -> str:
    """Return text that may stand in a log and a result: it quotes the message."""
    return ''.join(c if c.isprintable() else '?' for c in text)[:200]
