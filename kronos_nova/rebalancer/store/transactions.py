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


"""Transactions: what the store's repositories need of the store."""

from collections.abc import Callable
import contextlib
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova.rebalancer.store import rows

_T = TypeVar('_T')


class TransactionRunner(Protocol):
    """The part of the store that runs transactions."""

    def run_transaction(self, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step`` in one transaction; a deadlock or a lost race calls it again."""

    def run_read(self, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step``, which writes nothing."""

    def run_under_lease(self, lease: rows.ScopeLease, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step`` in a transaction that holds the lease.

        :raises LeaseLost: nothing was written.
        """

    def open_long_runner(self) -> contextlib.AbstractContextManager[Callable[..., Any]]:
        """Yield a function that runs transactions that may take minutes."""

    def now(self) -> float:
        """Return the time of the clock that decides when leases end."""

    def build_now_clause(self) -> ColumnElement[float]:
        """Return the time of the clock that decides when leases end, as SQL."""


class Repository:
    """Methods for some of the store's tables, each of which is one transaction."""

    def __init__(self, runner: TransactionRunner) -> None:
        self._runner = runner
