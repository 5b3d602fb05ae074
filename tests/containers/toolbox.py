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

"""In place of the container kolla_toolbox: what its modules do in Keystone and in MariaDB.

``python -m tests.containers.toolbox SANDBOX`` reads the name of a module and its arguments.
"""

import json
from pathlib import Path
import sys
from typing import Any

from tools.cloud import mariadb
from tools.cloud import state
from tools.cloud.client import Cloud
from tools.cloud.layout import Layout
from tools.cloud.run import Run

COLLECTIONS = {'project': 'projects', 'user': 'users', 'role': 'roles', 'service': 'services'}


class Identity:
    """Keystone by names."""

    def __init__(self, run: Run) -> None:
        self._cloud = Cloud(run.ports)

    def ensure(self, kind: str, name: str, **more: Any) -> str:
        """Return the id of the project, user or role of this name, and make it if need be."""
        path = f'/v3/{COLLECTIONS[kind]}'
        for existing in self._cloud.call('GET', 'keystone',
                                         f'{path}?name={name}')[COLLECTIONS[kind]]:
            return str(existing['id'])
        made = self._cloud.call('POST', 'keystone', path, {kind: {'name': name, **more}})
        return str(made[kind]['id'])

    def set_endpoint(self, service: str, interface: str, region: str, url: str) -> None:
        """Make the endpoint, or give it another address."""
        given = {'service_id': self.ensure('service', service), 'interface': interface,
                 'region_id': region, 'url': url}
        for existing in self._cloud.call('GET', 'keystone', '/v3/endpoints')['endpoints']:
            if all(existing[name] == given[name] for name in ('service_id', 'interface')):
                self._cloud.call('PATCH', 'keystone', f'/v3/endpoints/{existing["id"]}',
                                 {'endpoint': {'url': url}})
                return
        self._cloud.call('POST', 'keystone', '/v3/endpoints', {'endpoint': given})

    def assign(self, user: str, project: str, role: str) -> None:
        ids = {kind: self.ensure(kind, name) for kind, name in (
            ('user', user), ('project', project), ('role', role))}
        self._cloud.call('PUT', 'keystone', f'/v3/projects/{ids["project"]}/users/{ids["user"]}'
                                            f'/roles/{ids["role"]}')


def act(run: Run, module: str, arguments: dict[str, Any]) -> None:
    identity = Identity(run)
    if module == 'catalog_service':
        identity.ensure('service', arguments['name'], type=arguments['service_type'])
    elif module == 'endpoint':
        identity.set_endpoint(arguments['service'], arguments['endpoint_interface'],
                              arguments['region'], arguments['url'])
    elif module == 'project':
        identity.ensure('project', arguments['name'])
    elif module == 'identity_user':
        identity.ensure('user', arguments['name'], password=arguments['password'])
    elif module == 'identity_role':
        identity.ensure('role', arguments['name'])
    elif module == 'role_assignment':
        identity.assign(arguments['user'], arguments['project'], arguments['role'])
    elif module == 'mysql_db':
        mariadb.execute(run, [f'CREATE DATABASE IF NOT EXISTS {arguments["name"]}'])
    elif module == 'mysql_user':
        database, _, rights = arguments['priv'].partition(':')
        user = f"'{arguments['name']}'@'{arguments['host']}'"
        mariadb.execute(run, [
            f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{arguments['password']}'",
            f'GRANT {rights} ON {database} TO {user}'])
    else:
        raise ValueError(f'no module {module} here')


if __name__ == '__main__':
    layout = Layout(Path(sys.argv[1]))
    current = state.load(layout.state)
    assert current is not None
    wanted = json.load(sys.stdin)
    act(Run(layout, current), wanted['module'].rpartition('.')[2], wanted['arguments'])
