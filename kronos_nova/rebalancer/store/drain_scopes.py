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

"""Drains whose hosts have gone to another scope."""

from collections.abc import Mapping

import sqlalchemy as sa

from kronos_nova.rebalancer.store import tables


def move_drains(connection: sa.Connection, scope: str, targets: Mapping[str, str]) -> None:
    """Let drains of a scope go on in other scopes, from their begin.

    :param targets: the new scope of each host.
    """
    drain = tables.drain
    for host, target in sorted(targets.items()):
        begins = {row.scope: row.since for row in connection.execute(
            sa.select(drain).where(drain.c.host == host, drain.c.scope.in_([scope, target])))}
        if scope not in begins:
            continue
        connection.execute(sa.delete(drain).where(
            drain.c.host == host, drain.c.scope.in_(list(begins))))
        connection.execute(sa.insert(drain).values(
            scope=target, host=host, since=min(begins.values())))
