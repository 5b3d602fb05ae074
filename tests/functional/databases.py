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

"""Nova's databases, each a file of SQLite, with connections that stay open.

oslo.db opens a file of SQLite again for every transaction and closes it afterwards.
With Nova that is a third of a test's time; and the thread that closes the last
connection empties the log of the file under a lock, so that another writer gets "database
is locked".

To make the SQL of each statement again in each test is an eighth of a test's time.
"""

from collections.abc import Callable
import types
from typing import Any
import weakref

import fixtures
from sqlalchemy import pool

from tests.fixtures import sqlite_engines

_POOLS: 'weakref.WeakSet[Kept]' = weakref.WeakSet()


class Kept(pool.QueuePool):
    """As many connections as are used at a time."""

    #: It logs by this name; tests show what is not SQLAlchemy's.
    __module__ = pool.QueuePool.__module__

    def __init__(self, creator: Callable[..., Any], **options: Any) -> None:
        super().__init__(creator, **{**options, 'pool_size': 0})
        _POOLS.add(self)


class KeptConnections(fixtures.Fixture):

    def _setUp(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'oslo_db.sqlalchemy.engines.pool',
            types.SimpleNamespace(**{**vars(pool), 'NullPool': Kept})))
        self.addCleanup(self._close)

    @staticmethod
    def _close() -> None:
        for each in list(_POOLS):
            each.dispose()
            _POOLS.discard(each)


class SharedStatements(fixtures.Fixture):

    def _setUp(self) -> None:
        context = sqlite_engines.share_statements()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
