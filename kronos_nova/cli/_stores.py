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

"""Open the database for commands."""

import os
import sys
from typing import Any


def open_store(conf: Any, *, reads_only: bool) -> Any:
    """Open the database that the configuration names, at this release's schema.

    :param reads_only: a SQLite file that does not exist is an empty database, and is not made:
        it would belong to the user of the command, not to that of the daemons.
    :raises StoreError: it cannot be used.
    """
    from oslo_log import log as logging

    from kronos_nova.rebalancer.store import api
    from kronos_nova.rebalancer.store import database

    path = database.sqlite_file(conf.database.connection)
    empty = reads_only and path is not None and not os.path.exists(path)
    if empty and path is not None:
        _note_missing(conf, path)
        # The steps of the schema do not concern an operator.
        logging.getLogger('alembic').logger.setLevel(logging.WARNING)
        conf.set_override('connection', 'sqlite://', 'database')
    else:
        database.must_exist(conf.database.connection)
    store = api.Store(conf)
    try:
        if empty:
            store.upgrade()
        store.check()
    except BaseException:
        store.close()
        raise
    return store


def _note_missing(conf: Any, path: str) -> None:
    """Say that an empty table comes from a database that is not there."""
    from kronos_nova.wiring import tools

    if not conf.config_file and not conf.config_dir:
        sys.stderr.write('No configuration file was found: name one by --config-file, or write '
                         '/etc/kronos/kronos.conf.\n')
    sys.stderr.write(tools.format_printable(
        f'The database file {path} does not exist, and is shown as an empty database. The first '
        'daemon makes it; if one runs, correct [database] connection.') + '\n')
