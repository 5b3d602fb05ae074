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


"""Limits for psycopg2, which waits for ever for the answer to a statement.

libpq's own limits notice a dead machine, but not one that takes bytes and never answers. psycopg2
lets one function of the process wait; ours waits in the same way, and gives up on connections that
have a limit.
"""

import select
import time
from typing import Any

import sqlalchemy as sa
import sqlalchemy.event

#: The server ends a statement after its limit; so many seconds later we do.
GRACE_SECONDS = 1.0


def limit_waits(engine: sa.Engine, seconds: float) -> None:
    """Limit how long connections of the engine wait for an answer."""
    # psycopg2 is optional
    from psycopg2 import extensions  # type: ignore[import-untyped]  # noqa: PLC0415

    class Connection(extensions.connection):
        """A connection with a limit for each answer."""

        kronos_seconds = seconds + GRACE_SECONDS

    extensions.set_wait_callback(_wait)

    @sqlalchemy.event.listens_for(engine, 'do_connect')
    def set_connection_factory(dialect: Any, record: Any, arguments: Any,
                               keywords: dict[str, Any]) -> None:
        keywords['connection_factory'] = Connection


def _wait(connection: Any) -> None:
    """Wait until the connection has its answer.

    :raises OperationalError: the connection's limit is over; psycopg2 closes it.
    """
    # psycopg2 is optional
    import psycopg2  # noqa: PLC0415
    from psycopg2 import extensions  # noqa: PLC0415

    seconds = getattr(connection, 'kronos_seconds', None)
    end = None if seconds is None else time.monotonic() + seconds
    while (state := connection.poll()) != extensions.POLL_OK:
        remaining = None if end is None else max(0.0, end - time.monotonic())
        waiter = select.poll()
        waiter.register(connection.fileno(), select.POLLIN if state == extensions.POLL_READ
                        else select.POLLOUT)
        if not waiter.poll(None if remaining is None else remaining * 1000) and remaining == 0.0:
            # By these words SQLAlchemy knows that the connection is lost.
            raise psycopg2.OperationalError(
                f'could not receive data from server: timed out after {seconds:g} s')
