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

"""The tests of requests to kronos-api, with a database role of its own, on real servers."""

import inspect

from oslo_config import cfg
import pytest
import sqlalchemy as sa

from kronos_nova.api import application
from kronos_nova.conf import opts
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import api_role
from kronos_nova.rebalancer.store import schema as revisions
from kronos_nova.rebalancer.store import tables
from tests.integration import servers
from tests.unit.api import conftest
from tests.unit.api import test_requests

ROLE = 'kronos_api'
PASSWORD = 'secret'

for _name, _function in vars(test_requests).items():
    # The others move the file of SQLite.
    if (_name.startswith('test_') and inspect.isfunction(_function)
            and 'tmp_path' not in inspect.signature(_function).parameters):
        globals()[_name] = _function
signing = test_requests.signing


@pytest.fixture(scope='module', params=['mariadb', 'postgresql'])
def urls(request, tmp_path_factory):
    """The URL of the owner, and that of the role, whose rights are those that we print."""
    with getattr(servers, request.param)(tmp_path_factory.mktemp(request.param)) as url:
        owner = api.Store.from_url(url)
        owner.upgrade()
        create = (f"CREATE USER '{ROLE}'@'%' IDENTIFIED BY '{PASSWORD}'"
                  if request.param == 'mariadb' else
                  f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
        with owner.engine.begin() as connection:
            for statement in (create, *api_role.list_grants(owner.engine, ROLE)):
                connection.exec_driver_sql(statement.rstrip(';').replace('%', '%%'))
        owner.close()
        yield url, sa.make_url(url).set(username=ROLE, password=PASSWORD).render_as_string(
            hide_password=False)


@pytest.fixture
def store(urls):
    """The store of the owner, empty."""
    store = api.Store.from_url(urls[0])
    with store.engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            if table is not tables.gate:
                connection.execute(sa.delete(table))
    yield store
    store.close()


@pytest.fixture
def conf(urls, store):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('connection', urls[1], group='database')
    conf.set_override('operator_projects', [conftest.OPERATORS], group='kronos_api')
    conf.set_override('max_limit', 200, group='kronos_api')
    conf.set_override('aggregates', ['blue'], group='engine')
    return conf


@pytest.fixture
def client(conf):
    return conftest.Client(application.make_routes(conf))


def test_role_changes_no_schema_and_erases_no_trace(urls):
    """A thief of its password changes no decision and no audit row, and removes none."""
    engine = sa.create_engine(urls[1])
    refused = [f'DROP TABLE {name}' for name in tables.metadata.tables]
    refused += [f'DELETE FROM {name}' for name in tables.metadata.tables
                if name not in api_role.WRITTEN['DELETE']]
    refused += ["INSERT INTO executor (name, seen_at) VALUES ('x', 1)",
                f"UPDATE {revisions.VERSION_TABLE} SET version_num = '0001'",
                "UPDATE audit SET by_name = 'bob'", "UPDATE decision SET decided_by = 'bob'",
                "UPDATE plan SET document = ''", 'CREATE TABLE more (id INTEGER)']
    for statement in refused:
        with (pytest.raises(sa.exc.DBAPIError, match='(?i)denied|permission|must be owner'),
              engine.begin() as connection):
            connection.exec_driver_sql(statement)
    engine.dispose()
