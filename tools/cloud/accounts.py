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

"""Service users and the catalogue."""

from collections.abc import Mapping
from typing import Any

from tools.cloud import config
from tools.cloud.client import Cloud

#: user -> (service type, path of its endpoint)
SERVICES = {
    'nova': ('compute', '/v2.1'),
    'placement': ('placement', ''),
    'glance': ('image', ''),
    'neutron': ('network', ''),
    'kronos': ('rebalance', ''),
}


def create(cloud: Cloud, ports: Mapping[str, int]) -> None:
    """Make them in a keystone that has just been bootstrapped."""

    def keystone(method: str, path: str, body: Any = None) -> Any:
        return cloud.call(method, 'keystone', f'/v3{path}', body)

    project = keystone(
        'POST', '/projects', {'project': {'name': 'service', 'domain_id': 'default'}}
    )['project']['id']
    roles = {role['name']: role['id'] for role in keystone('GET', '/roles')['roles']}
    if 'service' not in roles:
        made = keystone('POST', '/roles', {'role': {'name': 'service'}})
        roles['service'] = made['role']['id']
    for name, (service_type, path) in SERVICES.items():
        account = {'name': name, 'password': config.PASSWORD, 'domain_id': 'default'}
        user = keystone('POST', '/users', {'user': account})['user']['id']
        for role in ('admin', 'service'):
            keystone('PUT', f'/projects/{project}/users/{user}/roles/{roles[role]}')
        service = keystone(
            'POST', '/services', {'service': {'name': name, 'type': service_type}}
        )['service']['id']
        for interface in ('public', 'internal'):
            endpoint = {
                'service_id': service,
                'interface': interface,
                'region_id': config.REGION,
                'url': f'http://127.0.0.1:{ports[name]}{path}',
            }
            keystone('POST', '/endpoints', {'endpoint': endpoint})
