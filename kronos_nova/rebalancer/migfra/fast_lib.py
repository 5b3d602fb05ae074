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

"""Messages of the original fast-lib, translated into the words of the protocol. Pure.

fast-lib writes names and ids without quotes, so YAML reads some as numbers; its optional fields may
be null, and a few fields are of its libvirt. Sources: its Task_container, Start, Stop, Migrate and
Swap_with, of all released versions.
"""

from collections.abc import Callable
from typing import Any

from kronos_nova.conf import plain_yaml

#: Fields that say how migfra works inside; Nova has its own ways.
IGNORED = frozenset({'concurrent-execution', 'driver', 'transport'})
#: Items of lists repeat fields of the whole task.
_REPEATED = frozenset({'time-measurement'})
_LISTS = {'start vm': 'vm-configurations', 'stop vm': 'list', 'suspend vm': 'list',
          'resume vm': 'list'}


class UnsupportedRequest(Exception):
    """A request that Nova cannot fulfil."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f'{field}: {problem}')
        self.field = field
        self.problem = problem


def translate_message(data: dict[Any, Any], note: Callable[[str], None]) -> dict[Any, Any]:
    """Return a message in the words of the protocol.

    :param note: takes a text about each ignored field.
    :raises UnsupportedRequest: it requests something that Nova does not have.
    """
    if data.get('task') == 'quit':
        raise UnsupportedRequest('task',
                                 'quit: kronos-migfra serves many hosts, and is stopped as a '
                                  'service')
    message = _drop_ignored_fields(data, '', note)
    kind = str(message.get('task'))
    name = _LISTS.get(kind)
    if name == 'list' and 'list' not in message and 'vm-configurations' in message:
        message['list'] = message.pop('vm-configurations')  # before fast-lib had lists
    if name is not None and isinstance(message.get(name), list):
        message[name] = [_adapt_item(item, f'{name}.{number}.', note)
                         for number, item in enumerate(message[name])]
    if kind in (*_LISTS, 'repin vm') and 'time-measurement' in message:
        del message['time-measurement']
        note(f'time-measurement is ignored: results of {kind} have none')
    if 'vm-name' in message:
        message['vm-name'] = _restore_spelling(message['vm-name'])
    if isinstance(message.get('parameter'), dict):
        message['parameter'] = _adapt_parameter(message['parameter'], note)
    for name in ('destination', 'host'):
        if name in message:
            message[name] = _restore_spelling(message[name])
    if isinstance(message.get('destinations'), list):
        message['destinations'] = [_restore_spelling(host) for host in message['destinations']]
    return message


def _adapt_item(item: Any, path: str, note: Callable[[str], None]) -> Any:
    if not isinstance(item, dict):
        return item
    adapted_item = _drop_ignored_fields(item, path, note)
    for name in _REPEATED & adapted_item.keys():
        del adapted_item[name]
        note(f'{path}{name} is ignored: the task has it')
    if 'ivshmem' in adapted_item:
        raise UnsupportedRequest(f'{path}ivshmem', 'Nova has no shared memory between servers')
    if 'vm-name' in adapted_item:
        adapted_item['vm-name'] = _restore_spelling(adapted_item['vm-name'])
    return adapted_item


def _adapt_parameter(parameter: dict[Any, Any], note: Callable[[str], None]) -> dict[Any, Any]:
    adapted = _drop_ignored_fields(parameter, 'parameter.', note)
    if 'retry_counter' in adapted and 'retry-counter' not in adapted:
        adapted['retry-counter'] = adapted.pop('retry_counter')
    if isinstance(adapted.get('live-migration'), bool) and 'migration-type' not in adapted:
        # fast-lib before migration-type; one that is not live is paused.
        adapted['migration-type'] = 'live' if adapted.pop('live-migration') else 'warm'
    if 'pscom-hook-procs' in adapted:
        adapted['pscom-hook-procs'] = _parse_processes(adapted['pscom-hook-procs'], 'parameter.')
    partner = adapted.get('swap-with')
    if partner is not None and not isinstance(partner, dict):
        adapted['swap-with'] = {'vm-name': _restore_spelling(partner)}
    elif isinstance(partner, dict):
        partner = _drop_ignored_fields(partner, 'parameter.swap-with.', note)
        if 'vm-name' in partner:
            partner['vm-name'] = _restore_spelling(partner['vm-name'])
        if 'pscom-hook-procs' in partner:
            partner['pscom-hook-procs'] = _parse_processes(partner['pscom-hook-procs'],
                                                           'parameter.swap-with.')
        adapted['swap-with'] = partner
    return adapted


def _drop_ignored_fields(
        data: dict[Any, Any], path: str, note: Callable[[str], None]) -> dict[Any, Any]:
    """Leave out fields that are null or ignored."""
    for name in data:
        if name in IGNORED:
            note(f'{path}{name} is ignored: Nova decides about it')
    return {name: value for name, value in data.items()
            if value is not None and name not in IGNORED}


def _restore_spelling(value: Any) -> Any:
    """Return a name that YAML reads as a number as it was written: 010 is not 8."""
    return value.spelling if isinstance(value, plain_yaml.SpelledInteger
                                        | plain_yaml.SpelledFloat) else value


def _parse_processes(value: Any, path: str) -> Any:
    """Return the number of processes, which fast-lib writes as text."""
    if value == 'auto':
        raise UnsupportedRequest(f'{path}pscom-hook-procs',
                                 'auto: Nova does not tell which processes a '
                                                     'server has; give their number')
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
