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
import datetime
import re
from typing import Any

from kronos_nova.rebalancer.clients import api

#: The largest integer that arrays and databases hold.
MOST = 2**63 - 1
_IDENTITY = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}')


class JsonRecord:
    """A JSON object whose fields are read with their types.

    :param kind: the kind of record, for messages.
    :param identity: key of the field that names the record in messages.
    """

    def __init__(self, service: str, kind: str, data: Mapping[str, Any],
                 identity: str = 'id') -> None:
        self._service = service
        self._what = f'{kind} {api.format_printable(data.get(identity, "without " + identity))}'
        self._data = data

    def make_error(self, problem: str) -> api.ApiError:
        """Return the error that this record has a problem."""
        return api.ApiError(self._service, self._what, api.format_printable(problem))

    def has_key(self, key: str) -> bool:
        return key in self._data

    def has_value(self, key: str) -> bool:
        """Return whether the value is neither null nor empty; the key must be there."""
        return bool(self._get(key))

    def _get(self, key: str) -> Any:
        if key not in self._data:
            raise self.make_error(f'field {key!r} is missing')
        return self._data[key]

    def read_text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise self.make_error(f'field {key!r} is not a text')
        return value

    def optional_text(self, key: str) -> str | None:
        """Return the text; None for null and for the empty text; the key must be there."""
        value = self._get(key)
        if value is None or value == '':
            return None
        if not isinstance(value, str):
            raise self.make_error(f'field {key!r} is not a text')
        return value

    def optional_time(self, key: str) -> float | None:
        """Return epoch seconds of a time in ISO 8601, UTC unless it names another zone.

        None for null; the key must be there.
        """
        text = self.optional_text(key)
        if text is None:
            return None
        try:
            moment = datetime.datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
        except (ValueError, OverflowError):
            raise self.make_error(f'field {key!r} is not a time') from None

    def read_integer(self, key: str) -> int:
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.make_error(f'field {key!r} is not an integer')
        return value

    def read_amount(self, key: str, least: int = 0) -> int:
        """Return an integer from least to MOST."""
        value = self.read_integer(key)
        if not least <= value <= MOST:
            raise self.make_error(f'field {key!r} is not a number from {least} to 2**63 - 1')
        return value

    def optional_amount(self, key: str) -> int | None:
        """Return the amount; None where the key is missing or null."""
        return None if self._data.get(key) is None else self.read_amount(key)

    def read_ratio(self, key: str) -> float:
        """Return a finite number, not negative; Placement admits 0."""
        value = self._get(key)
        if (not isinstance(value, int | float) or isinstance(value, bool)
                or not 0 <= value <= MOST):  # NaN is neither
            raise self.make_error(f'field {key!r} is not a number from 0')
        return float(value)

    def read_identity(self, key: str) -> str:
        """Return a UUID, or another text that may stand in a path as one segment."""
        value = self.read_text(key)
        if not _IDENTITY.fullmatch(value):
            raise self.make_error(f'field {key!r} is not a UUID')
        return value

    def read_flag(self, key: str) -> bool:
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.make_error(f'field {key!r} is not true or false')
        return value

    def read_texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.make_error(f'field {key!r} is not a list of texts')
        return tuple(value)

    def read_mapping(self, key: str) -> Mapping[str, Any]:
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.make_error(f'field {key!r} is not an object')
        return value

    def read_part(self, key: str) -> 'JsonRecord':
        """Return an object inside the record; its problems name the record."""
        inner = JsonRecord(self._service, '', self.read_mapping(key))
        inner._what = f'{self._what}, {api.format_printable(key)}'
        return inner

    def texts_by_name(self, key: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        value = self.read_mapping(key)
        if not all(isinstance(v, str) for v in value.values()):
            raise self.make_error(f'field {key!r} has a value that is not a text')
        return dict(value)

    def read_identities(self, key: str) -> list[str]:
        """Return the keys of an object that are UUIDs."""
        uuids = list(self.read_mapping(key))
        if not all(_IDENTITY.fullmatch(name) for name in uuids):
            raise self.make_error(f'field {key!r} has a key that is not a UUID')
        return uuids

    def identity_list(self, key: str) -> tuple[str, ...]:
        """Return a list of UUIDs."""
        uuids = self.read_texts(key)
        if not all(_IDENTITY.fullmatch(name) for name in uuids):
            raise self.make_error(f'field {key!r} has an item that is not a UUID')
        return uuids

    def read_amounts(self, key: str) -> dict[str, int]:
        """Return non-negative integers by name."""
        part = self.read_part(key)
        return {name: part.read_amount(name) for name in self.read_mapping(key)}
