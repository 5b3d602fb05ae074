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


"""One context of TLS for the connections of PyMySQL.

Without options of TLS PyMySQL 1.2 tries it on each connection, and verifies no certificate. Still
it reads those of all authorities of the system each time: 0.8 MiB and 30 ms for each connection,
and for each try while a server is away.
"""

import functools
import ssl
from typing import Any

import sqlalchemy as sa
import sqlalchemy.event


def share_context(engine: sa.Engine) -> None:
    """Let connections of the engine share the context where no option of TLS is set."""
    kind = _make_connection_class()

    @sqlalchemy.event.listens_for(engine, 'do_connect')
    def open_connection(dialect: Any, record: Any, arguments: Any,
                        keywords: dict[str, Any]) -> Any:
        return kind(*arguments, **keywords)


@functools.cache
def _make_connection_class() -> type:
    # PyMySQL is optional.
    from pymysql import connections  # type: ignore[import-untyped]  # noqa: PLC0415

    class Connection(connections.Connection):
        """A connection that makes a context of its own for options of TLS alone."""

        shared: ssl.SSLContext | None = None

        def _create_ssl_ctx(self, options: Any) -> Any:
            if options:
                return super()._create_ssl_ctx(options)
            if Connection.shared is None:
                Connection.shared = super()._create_ssl_ctx(options)
            return Connection.shared

    return Connection
