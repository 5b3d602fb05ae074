# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Migrated databases with the accounts in them, kept so that only the first start migrates."""

import base64
import hashlib
from importlib import metadata
import os
import pathlib
import sys

from tools.cloud import accounts
from tools.cloud import config
from tools.cloud import mariadb
from tools.cloud.client import Cloud
from tools.cloud.run import Run

DATABASES = ('keystone', 'placement', 'glance', 'nova_api', 'nova', 'nova_cell0')
PACKAGES = ('keystone', 'openstack-placement', 'glance', 'nova', 'oslo.db', 'alembic', 'SQLAlchemy')


def key() -> str:
    """Names what a seed depends on: the packages' versions and the code that makes it."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        digest.update(f'{package}={metadata.version(package)}\n'.encode())
    for module in (__file__, accounts.__file__):
        digest.update(pathlib.Path(module).read_bytes())
    return digest.hexdigest()[:16]


def file(run: Run) -> pathlib.Path:
    return run.layout.cache / f'databases-{key()}.sql'


def create_databases(run: Run) -> None:
    mariadb.execute(run, [f'CREATE DATABASE {d} CHARACTER SET utf8mb4' for d in DATABASES])


def write_keys(run: Run) -> None:
    """The key repositories of keystone, as keystone-manage would make them."""
    for repository in ('fernet', 'credential'):
        directory = run.layout.etc / repository
        directory.mkdir(mode=0o700)
        for index in ('0', '1'):
            (directory / index).write_bytes(base64.urlsafe_b64encode(os.urandom(32)))


def migrate_keystone(run: Run) -> None:
    """Schema and administrator of keystone."""
    conf = ['--config-file', str(run.layout.etc / 'keystone.conf')]
    url = f'{run.url("keystone")}/v3'
    bootstrap = ['bootstrap', '--bootstrap-password', config.PASSWORD,
                 '--bootstrap-region-id', config.REGION]
    for interface in ('admin', 'internal', 'public'):
        bootstrap += [f'--bootstrap-{interface}-url', url]
    run.task(
        'migrate-keystone',
        [sys.executable, '-m', 'tools.cloud.manage', 'keystone.cmd.manage',
         '--', *conf, 'db_sync', '--', *conf, *bootstrap],
    )()


def migrate_others(run: Run) -> None:
    """Schemas of placement, glance and nova, all at once, and nova's two cells."""
    bin_directory, etc = pathlib.Path(sys.prefix, 'bin'), run.layout.etc
    nova = ['--config-file', str(etc / 'nova.conf')]
    tasks = [
        run.task(
            'migrate-placement',
            [f'{bin_directory}/placement-manage', '--config-file', f'{etc}/placement.conf',
             'db', 'sync'],
        ),
        run.task(
            'migrate-glance',
            [f'{bin_directory}/glance-manage', '--config-file', f'{etc}/glance-api.conf',
             'db_sync'],
        ),
        run.task(
            'migrate-nova',
            [sys.executable, '-m', 'tools.cloud.manage', 'nova.cmd.manage',
             '--', *nova, 'api_db', 'sync',
             '--', *nova, 'cell_v2', 'map_cell0',
             '--database_connection', mariadb.url(run, 'nova_cell0'),
             '--', *nova, 'db', 'sync',
             '--', *nova, 'cell_v2', 'create_cell', '--name', 'cell1'],
            env={'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'},
        ),
    ]
    for finish in tasks:
        finish()


def create_accounts(run: Run) -> None:
    """Accounts through keystone's API, then keep everything for later starts."""
    accounts.create(Cloud(run.ports), run.ports)
    for old in run.layout.cache.glob('databases-*.sql'):
        old.unlink()
    mariadb.dump(run, DATABASES, file(run))


def point_to(run: Run) -> None:
    """Put this run's ports where databases hold addresses: catalogue and cell mappings."""
    statements = [
        'UPDATE keystone.endpoint e JOIN keystone.service s ON e.service_id = s.id '
        f"SET e.url = '{run.url(name)}{path}' WHERE s.type = '{service_type}'"
        for name, (service_type, path) in
        {**accounts.SERVICES, 'keystone': ('identity', '/v3')}.items()
    ]
    statements += [
        f"UPDATE nova_api.cell_mappings SET database_connection = '{mariadb.url(run, database)}'"
        f" WHERE name = '{cell}'"
        for cell, database in (('cell0', 'nova_cell0'), ('cell1', 'nova'))
    ]
    statements.append(
        f"UPDATE nova_api.cell_mappings SET transport_url = '{config.transport_url(run.ports)}'"
        " WHERE name = 'cell1'"
    )
    mariadb.execute(run, statements)
