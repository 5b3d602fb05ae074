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


"""The check of the database: it can be reached and has this release's schema."""

from collections.abc import Iterator
import os

from kronos_nova import exception
from kronos_nova.checks import base
from kronos_nova.checks import broker
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.rebalancer.executors import contract_agreement
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import process_identity

LOCAL = frozenset({'127.0.0.1', '::1'})


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    path = database.sqlite_file(context.conf.database.connection)
    hosts = context.conf.executor.hosts
    if path is not None:
        yield from _remote_executor(context, path)
        if not os.path.exists(path):
            yield _future_file(path, process_identity.find_sqlite_problem(path, hosts))
            return
    try:
        store = api.Store(context.conf)
        try:
            store.refuse_other_machines(hosts)
            store.check()
            where = database.redact_url(store.engine.url)
            settings = store.leases.list_engine_settings(None)
        finally:
            store.close()
    except exception.StoreError as e:
        yield base.report_failure('database', f'the database {e.kwargs.get("problem", e)}',
                                  e.kwargs.get('remedy', 'See [database] connection.'))
        return
    yield base.report_ok('database', where)
    if others := contract_agreement.list_other_scopes(
            contracts_conf.digest_settings(context.conf), settings):
        yield base.report_warning(
            'database: contracts', f'engines of {", ".join(others)} have other options of '
            '[contracts], or another file of contracts',
            'Give all engines and executors the same of both, and restart them.')


def _future_file(path: str, unsound: str | None) -> base.CheckItem:
    """Check the place of a missing SQLite file. Create none: the user of this check would own it.
    """
    if unsound is not None:
        return base.report_failure('database', f'the database {unsound}', process_identity.REMEDY)
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return base.report_ok('database', f'{path} is made by the first daemon that starts')
    return base.report_failure('database', f'{path} cannot be made: no right to write to {folder}',
                               'Make the directory for the user of the daemons, and run this as '
                               'them.')


def _remote_executor(context: base.CheckContext, path: str) -> Iterator[base.CheckItem]:
    """Warn when the broker is on another host: executors may run elsewhere too."""
    if context.conf.engine.dry_run or context.conf.executor.hosts:
        return
    url = broker.parse_transport_url(context.conf)
    if url is not None and process_identity.named_elsewhere(
            host.hostname for host in url.hosts if host.hostname not in LOCAL):
        yield base.report_warning(
            'database: SQLite', f'{path} is a file of this host: an executor on another host '
            'has no part in it and moves nothing',
            'See that kronos-executor runs on this host only, and say so in [executor] hosts; or '
            'use MariaDB or PostgreSQL.')
