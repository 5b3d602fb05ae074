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


"""Cache of frequent statements: to build one takes several times as long as to execute it."""

from collections.abc import Callable
from collections.abc import Hashable
import functools
import inspect
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

_P = ParamSpec('_P')
_Statement = TypeVar('_Statement', bound=sa.Executable)
#: Rows of a batch, about: a server deletes them in a few hundredths of a second.
BATCH = 500
_TYPES = {float: sa.Double, int: sa.BigInteger, str: sa.String}


@functools.lru_cache(maxsize=500)
def _build_statement(build: Callable[..., Any], *shape: Hashable) -> Any:
    """Build the statement, with a bound parameter for each number and text.

    :param shape: the type of each bound argument, and the value of any other.
    """
    # No column has such a name: in an UPDATE that would be taken for a new value.
    return build(*(sa.bindparam(f'given_{name}', type_=_TYPES[shape_part])
                   if shape_part in _TYPES else shape_part
                   for name, shape_part in zip(_list_parameters(build), shape, strict=True)))


@functools.cache
def _list_parameters(build: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(build).parameters)


def build_once(build: Callable[_P, _Statement]) -> Callable[_P, tuple[_Statement, dict[str, Any]]]:
    """Build a statement once; bind its numbers, texts and literals at each execution.

    Any other argument (None, states, scopes, a clock) is hashable, and makes a statement of its
    own.

    :returns: a function with the arguments of ``build``, but by position alone; it returns the
        arguments of ``Connection.execute``.
    """
    def bind_arguments(*arguments: Any) -> tuple[Any, dict[str, Any]]:
        values = [argument.value if isinstance(argument, sa.BindParameter) else argument
                  for argument in arguments]
        # NumPy's floats have types of their own.
        values = [float(argument) if isinstance(argument, float) else argument
                  for argument in values]
        shape: list[Any] = [type(value) if type(value) in _TYPES else value
                                 for value in values]
        return _build_statement(build, *shape), {
            f'given_{name}': value for name, value, kind in zip(
                _list_parameters(build), values, shape, strict=True) if kind in _TYPES}
    return bind_arguments  # type: ignore[return-value]


def delete_oldest(connection: sa.Connection, column: sa.Column[Any], limit: float,
                  *conditions: sa.ColumnElement[bool]) -> bool:
    """Delete a batch of a table's rows whose column is below the limit, the smallest first.

    :returns: whether more are left.
    """
    old = sa.and_(column < limit, *conditions)
    last = connection.scalar(
        sa.select(column).where(old).order_by(column).limit(1).offset(BATCH))
    # Rows of the same value go together, so that each batch makes progress.
    until = sa.true() if last is None else column <= last
    connection.execute(sa.delete(column.table).where(old, until))
    return last is not None
