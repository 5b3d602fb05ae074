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


"""The database can be reached and has this release's schema."""

from collections.abc import Iterator
import os
import socket

import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from kronos_nova import exception
from kronos_nova.cmd.checks import base
from kronos_nova.cmd.checks import broker
from kronos_nova.rebalancer.store import api

LOCAL = frozenset({'localhost', '127.0.0.1', '::1'})


def check(context: base.Context) -> Iterator[base.Item]:
    path = _file(context)
    if path is not None:
        yield from _remote_executor(context, path)
        if not os.path.exists(path):
            yield _future_file(path)
            return
    try:
        store = api.Store(context.conf)
        try:
            store.check()
            where = store.engine.url.render_as_string(hide_password=True)
        finally:
            store.close()
    except exception.StoreError as e:
        yield base.failed('database', f'the database {e.kwargs.get("problem", e)}',
                          e.kwargs.get('remedy', 'See [database] connection.'))
        return
    yield base.ok('database', where)


def _file(context: base.Context) -> str | None:
    """The path of an SQLite database."""
    try:
        url = sa.engine.make_url(context.conf.database.connection or '')
    except sa_exc.ArgumentError:
        return None
    if url.get_backend_name() != 'sqlite' or url.database in (None, '', ':memory:'):
        return None
    return url.database


def _future_file(path: str) -> base.Item:
    """Looked at without making it: it would belong to whoever runs this."""
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return base.ok('database', f'{path} is made by the first daemon that starts')
    return base.failed('database', f'{path} cannot be made: no right to write to {folder}',
                       'Make the directory for the user of the daemons, and run this as them.')


def _remote_executor(context: base.Context, path: str) -> Iterator[base.Item]:
    """A broker on another host means that executors may be elsewhere too."""
    if context.conf.engine.dry_run:
        return
    url = broker.address(context.conf)
    mine = LOCAL | {socket.gethostname(), socket.getfqdn()}
    if url is not None and any(host.hostname not in mine for host in url.hosts):
        yield base.warning(
            'database: SQLite', f'{path} is a file of this host: an executor on another host '
            'has no part in it and moves nothing',
            'Run kronos-executor on this host only, or use MariaDB or PostgreSQL.')
