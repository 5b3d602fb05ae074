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

"""The few API calls the sandbox makes, at pinned microversions and over keystoneauth alone."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
import time
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import session as ksa_session
from keystoneauth1.identity import v3

from tools.cloud import config

COMPUTE_VERSION = '2.96'
PLACEMENT_VERSION = '1.39'
#: The trait that nova-compute gives its provider last.
OWNER = 'OWNER_NOVA'
#: keystoneauth's parent of HTTP errors and of connection failures
ApiError = ksa_exceptions.ClientException


class Cloud:
    """Administrator of the cloud whose services listen on the given ports.

    Every method raises ApiError when the service refuses or does not answer.
    """

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        auth = v3.Password(
            auth_url=f'http://127.0.0.1:{ports["keystone"]}/v3',
            username='admin',
            password=config.PASSWORD,
            project_name='admin',
            user_domain_id='default',
            project_domain_id='default',
        )
        self.session = ksa_session.Session(auth, timeout=60)
        # loopback only: no proxy or CA bundle of the caller's environment
        self.session.session.trust_env = False

    def call(self, method: str, service: str, path: str, body: Any = None) -> Any:
        """One request; returns the JSON answer, or None for an empty body."""
        versions = {
            'nova': {'OpenStack-API-Version': f'compute {COMPUTE_VERSION}'},
            'placement': {'OpenStack-API-Version': f'placement {PLACEMENT_VERSION}'},
        }
        response = self.session.request(
            f'http://127.0.0.1:{self._ports[service]}{path}',
            method,
            json=body,
            headers={'Accept': 'application/json', **versions.get(service, {})},
        )
        return response.json() if response.content else None

    def _nova(self, method: str, path: str, body: Any = None) -> Any:
        return self.call(method, 'nova', f'/v2.1{path}', body)

    def compute_services(self, binary: str | None = None) -> list[dict[str, Any]]:
        query = f'?binary={binary}' if binary else ''
        return list(self._nova('GET', f'/os-services{query}')['services'])

    def hypervisors(self) -> list[dict[str, Any]]:
        """Names and states; details would ask every nova-compute for its uptime, one by one."""
        return list(self._nova('GET', '/os-hypervisors')['hypervisors'])

    def resource_providers(self) -> list[dict[str, Any]]:
        """Those that nova-scheduler considers: a nova-compute has reported each."""
        found = self.call('GET', 'placement', f'/resource_providers?required={OWNER}')
        return list(found['resource_providers'])

    def servers(self) -> list[dict[str, Any]]:
        """All servers of all projects, over all pages."""
        path: str | None = '/servers/detail?all_tenants=1&limit=1000'
        servers: list[dict[str, Any]] = []
        while path:
            page = self._nova('GET', path)
            servers += page['servers']
            links = {link['rel']: link['href'] for link in page.get('servers_links', [])}
            path = links['next'].split('/v2.1', 1)[1] if 'next' in links else None
        return servers

    def server(self, uuid: str) -> dict[str, Any]:
        return dict(self._nova('GET', f'/servers/{uuid}')['server'])

    def boot(self, name: str, flavor: str, image: str, hints: Mapping[str, str] | None = None,
             **extra: Any) -> str:
        """Ask for a server without NICs; returns its UUID at once.

        :param hints: for the scheduler.
        :param extra: further fields of the server.
        """
        server = {
            'name': name, 'flavorRef': flavor, 'imageRef': image, 'networks': 'none', **extra,
        }
        body = {'server': server, **({'os:scheduler_hints': dict(hints)} if hints else {})}
        return str(self._nova('POST', '/servers', body)['server']['id'])

    def delete(self, uuid: str) -> None:
        self._nova('DELETE', f'/servers/{uuid}')

    def live_migrate(self, uuid: str, host: str | None) -> None:
        """Ask for a live migration; success is only seen in ``migrations``."""
        action = {'os-migrateLive': {'host': host, 'block_migration': 'auto'}}
        self._nova('POST', f'/servers/{uuid}/action', action)

    def migrations(self, uuid: str | None = None) -> list[dict[str, Any]]:
        """Migrations, newest first, of one server or of all."""
        query = f'?instance_uuid={uuid}' if uuid else ''
        found = self._nova('GET', f'/os-migrations{query}')['migrations']
        return sorted(found, key=lambda m: int(m['id']), reverse=True)

    def set_service(self, host: str, status: str, reason: str | None = None) -> None:
        """Enable or disable the nova-compute of a host (``status`` enabled | disabled)."""
        [service] = self._nova('GET', f'/os-services?binary=nova-compute&host={host}')['services']
        if 'id' not in service:
            raise ApiError(f'Nova cannot read the service of {host}: its cell is down')
        body = {'status': status, **({'disabled_reason': reason} if reason else {})}
        self._nova('PUT', f'/os-services/{service["id"]}', body)

    def create_aggregate(
        self, name: str, hosts: Iterable[str], metadata: Mapping[str, str]
    ) -> int:
        """An aggregate with these hosts and metadata; returns its id."""
        made = self._nova('POST', '/os-aggregates', {'aggregate': {'name': name}})
        path = f'/os-aggregates/{made["aggregate"]["id"]}/action'
        self._nova('POST', path, {'set_metadata': {'metadata': dict(metadata)}})
        for host in hosts:
            self._nova('POST', path, {'add_host': {'host': host}})
        return int(made['aggregate']['id'])

    def delete_aggregate(self, aggregate: int, hosts: Iterable[str]) -> None:
        """Remove the hosts from the aggregate, then the aggregate."""
        for host in hosts:
            self._nova('POST', f'/os-aggregates/{aggregate}/action',
                       {'remove_host': {'host': host}})
        self._nova('DELETE', f'/os-aggregates/{aggregate}')

    def ensure_flavor(self, name: str, vcpus: int, ram_mb: int, disk_gb: int) -> str:
        """The id of the flavor, which is made unless one has this name."""
        for flavor in self._nova('GET', '/flavors')['flavors']:
            if flavor['name'] == name:
                return str(flavor['id'])
        body = {'flavor': {'name': name, 'vcpus': vcpus, 'ram': ram_mb, 'disk': disk_gb}}
        return str(self._nova('POST', '/flavors', body)['flavor']['id'])

    def find_image(self, name: str) -> str | None:
        """The id of the active image of this name."""
        for image in self.call('GET', 'glance', f'/v2/images?name={name}')['images']:
            if image['status'] == 'active':
                return str(image['id'])
        return None

    def create_image(self, name: str, data: bytes, **properties: str) -> str:
        """Upload a public image and return its id.

        :param properties: disk_format, container_format and what else Nova reads.
        """
        image = self.call('POST', 'glance', '/v2/images',
                          {'name': name, 'visibility': 'public', **properties})
        self.session.put(
            f'http://127.0.0.1:{self._ports["glance"]}/v2/images/{image["id"]}/file',
            data=data,
            headers={'Content-Type': 'application/octet-stream'},
        )
        return str(image['id'])

    def ensure_image(self, name: str) -> str:
        """The id of a tiny raw image, which is made unless one has this name."""
        return self.find_image(name) or self.create_image(
            name, b'x' * 1024, disk_format='raw', container_format='bare')


def parse_time(text: str) -> float:
    """Return the epoch seconds of a time in Nova's answers, which is in UTC."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()


def poll(
    ready: Callable[[], bool], what: str, timeout: float = 180, interval: float = 0.3
) -> None:
    """Wait until ``ready``.

    :raises TimeoutError: it was not so within ``timeout`` seconds
    """
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f'{what}: not so after {timeout:.0f} s')
        time.sleep(interval)
