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

"""Types of the fields of requests and answers."""

import datetime
from typing import Annotated, Any

import pydantic

#: 9999-12-31, the last day of a datetime.
_LAST = 253402214400.0
#: Control characters would spoil a log, a table or a database that takes no NUL.
_NO_CONTROLS = r'^[^\x00-\x1f\x7f]+$'

#: Name of an aggregate, a host or an instance.
Name = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=255,
                                                 pattern=_NO_CONTROLS)]
#: One line with at least one character that is not blank.
Reason = Annotated[str, pydantic.StringConstraints(
    max_length=1000, pattern=r'^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$')]
#: A reason as Nova keeps it with a disabled service.
DisabledReason = Annotated[str, pydantic.StringConstraints(
    max_length=255, pattern=r'^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$')]
#: A UUID as Nova and our database write it. Some databases compare without regard to case.
UUID_PATTERN = r'^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
Uuid = Annotated[str, pydantic.StringConstraints(pattern=UUID_PATTERN)]
#: The beginning of a UUID, with its hyphens.
UUID_PREFIX_PATTERN = (
    r'^([0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f]{0,4}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{0,4}'
    r'|[0-9a-f]{8}(-[0-9a-f]{4}){2}-[0-9a-f]{0,4}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{0,12})$')
UuidPrefix = Annotated[str, pydantic.StringConstraints(
    min_length=4, max_length=36, pattern=UUID_PREFIX_PATTERN)]


def make_time(seconds: float) -> datetime.datetime:
    """Return epoch seconds as a time in UTC."""
    return datetime.datetime.fromtimestamp(min(max(seconds, 0.0), _LAST), datetime.UTC)


def make_optional_time(seconds: float | None) -> datetime.datetime | None:
    """Return epoch seconds as a time in UTC; None stays None."""
    return None if seconds is None else make_time(seconds)


def read_time(at: datetime.datetime | None) -> float | None:
    """Return a time in epoch seconds; a time without a zone is UTC, and None stays None."""
    if at is None:
        return None
    return (at.replace(tzinfo=datetime.UTC) if at.tzinfo is None else at).timestamp()


class RequestModel(pydantic.BaseModel):
    """A part of a request: an unknown field is an error."""

    model_config = pydantic.ConfigDict(extra='forbid')


class Resource(pydantic.BaseModel):
    """A part of an answer."""

    model_config = pydantic.ConfigDict(frozen=True)


def list_field(**more: Any) -> Any:
    """Return a field that is an empty list unless the client sets it."""
    return pydantic.Field(default_factory=list, **more)
