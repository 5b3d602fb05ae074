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

"""The registry of endpoints: one row for each function that answers a request."""

from collections.abc import Callable
import dataclasses
import enum
import inspect
import typing
from typing import Any

import pydantic

from kronos_nova.api import calls

Handler = typing.TypeVar('Handler', bound=Callable[..., Any])


class Access(enum.StrEnum):
    """The persons who may use an endpoint unless the operator's policy file says otherwise.

    Readers and managers are those of ``[kronos_api] operator_projects``. A manager may do what a
    reader may, and an administrator both.
    """

    READER = 'reader'
    MANAGER = 'manager'
    ADMIN = 'admin'


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path with a function that answers.

    ``path``: with names in braces, as OpenAPI writes them. ``rule``: the policy rule.
    ``path_names`` are arguments of the handler; ``query`` and ``body`` check that part of a
    request, None: the handler takes none. ``response``: the model of the answer; None: the answer
    is empty, with status 204.
    """

    method: str
    path: str
    rule: str
    access: Access
    handler: Callable[..., Any]
    path_names: tuple[str, ...]
    query: type[pydantic.BaseModel] | None
    body: type[pydantic.BaseModel] | None
    response: type[pydantic.BaseModel] | None

    @property
    def operation_id(self) -> str:
        """The name of the operation in the OpenAPI document."""
        return self.handler.__name__

    @property
    def handler_docstring(self) -> str:
        """The handler's docstring: a summary line, and paragraphs."""
        return inspect.cleandoc(self.handler.__doc__ or '')


#: All endpoints, in the order of their registration.
ENDPOINTS: list[Endpoint] = []


def register_endpoint(method: str, path: str, rule: str,
                      access: Access) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of a method and a path.

    Its first parameter is the :class:`calls.Call`. ``query`` and ``body``, if it has them, are
    annotated with the models that check them; each other parameter is a UUID of the path.

    :param rule: the policy rule without the prefix ``kronos:``.
    """
    def register_handler(handler: Handler) -> Handler:
        hints = typing.get_type_hints(handler)
        names = list(inspect.signature(handler).parameters)
        if hints[names[0]] is not calls.Call:
            raise TypeError(f'{handler.__name__} does not take a Call first')
        response = hints['return']
        ENDPOINTS.append(Endpoint(
            method, path, f'kronos:{rule}', access, handler,
            tuple(name for name in names[1:] if name not in ('query', 'body')),
            hints.get('query'), hints.get('body'),
            None if response is type(None) else response))
        return handler

    return register_handler
