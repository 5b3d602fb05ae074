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

"""Base of the option types that parse their text into an object of our own."""

from typing import Any

from oslo_config import types


class ValueType(types.ConfigType):
    """Option type whose ``__call__`` parses the text; ``str`` of the object gives it back."""

    #: Name of the type in help and sample configuration.
    NAME: str

    def __init__(self, type_name: str | None = None) -> None:
        super().__init__(type_name or self.NAME)

    def __repr__(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def _formatter(self, value: Any) -> str:
        return str(value)
