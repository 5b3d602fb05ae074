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

"""Reading the fields of an API record: the right type, or a named problem."""

from collections.abc import Mapping
from typing import Any

from kronos_nova.rebalancer.clients import api


class Record:
    """A JSON object whose fields are read with their types.

    :param kind: what it is, for messages.
    :param identity: key of the field that names it in messages.
    """

    def __init__(self, service: str, kind: str, data: Mapping[str, Any],
                 identity: str = 'id') -> None:
        self._service = service
        self._what = f'{kind} {api.printable(data.get(identity, "without " + identity))}'
        self._data = data

    def bad(self, problem: str) -> api.ApiError:
        """The error that this record has a problem."""
        return api.ApiError(self._service, self._what, problem)

    def has(self, key: str) -> bool:
        return key in self._data

    def has_value(self, key: str) -> bool:
        """It is there, and neither null nor empty; the key must be there."""
        return bool(self._get(key))

    def _get(self, key: str) -> Any:
        if key not in self._data:
            raise self.bad(f'field {key!r} is missing')
        return self._data[key]

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise self.bad(f'field {key!r} is not a text')
        return value

    def optional_text(self, key: str) -> str | None:
        """None for null and for the empty text; the key must be there."""
        value = self._get(key)
        if value is None or value == '':
            return None
        if not isinstance(value, str):
            raise self.bad(f'field {key!r} is not a text')
        return value

    def integer(self, key: str) -> int:
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(f'field {key!r} is not an integer')
        return value

    def number(self, key: str) -> float:
        value = self._get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.bad(f'field {key!r} is not a number')
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.bad(f'field {key!r} is not true or false')
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.bad(f'field {key!r} is not a list of texts')
        return tuple(value)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.bad(f'field {key!r} is not an object')
        return value

    def part(self, key: str) -> 'Record':
        """An object inside the record; its problems name the record."""
        inner = Record(self._service, '', self.mapping(key))
        inner._what = f'{self._what}, {key}'
        return inner

    def amounts(self, key: str) -> dict[str, int]:
        """Non-negative integers by name."""
        part = self.part(key)
        out = {name: part.integer(name) for name in self.mapping(key)}
        if any(v < 0 for v in out.values()):
            raise self.bad(f'field {key!r} has a negative amount')
        return out
