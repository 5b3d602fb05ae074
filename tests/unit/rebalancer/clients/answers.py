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

"""A service that answers from a table, in place of openstacksdk's proxy.

For what no real Nova can be brought to say at a chosen moment; the rest is
tested against a real one in tests/functional.
"""

import types
from typing import Any


class Response:
    def __init__(self, body: Any, status: int = 200) -> None:
        self.body = body
        self.status_code = status
        self.headers = {'x-openstack-request-id': 'req-1'}

    def json(self) -> Any:
        if isinstance(self.body, bytes):
            raise ValueError('not JSON')
        return self.body


class Answers:
    """``answers[path]``: bodies or Responses given in turn, the last one
    for ever. Stands for a connection and for its proxies."""

    def __init__(self, maximum: str = '2.96') -> None:
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.maximum = maximum
        self.user: str | None = None

    @property
    def compute(self) -> 'Answers':
        return self

    placement = compute

    def get_endpoint_data(self) -> Any:
        return types.SimpleNamespace(max_microversion=self.maximum)

    @property
    def session(self) -> Any:
        return types.SimpleNamespace(get_user_id=lambda: self.user, get_auth_headers=dict)

    def get_endpoint(self) -> str:
        return 'http://nova'

    def request(self, path: str, method: str, microversion: str, **_rest: Any) -> Response:
        """Of a table's ``'METHOD path'``."""
        return self.get(f'{method} {path}', {}, microversion)

    def get(self, path: str, params: dict[str, Any], microversion: str, **_rest: Any) -> Response:
        self.asked.append((path, params, microversion))
        turns = self.answers[path]
        answer = turns.pop(0) if len(turns) > 1 else turns[0]
        return answer if isinstance(answer, Response) else Response(answer)


def server(uuid: str, host: str | None = 'host1', **fields: Any) -> dict[str, Any]:
    """A server as Nova shows it at 2.96."""
    return {
        'id': uuid, 'name': 'a', 'status': 'ACTIVE', 'tenant_id': 'p', 'locked': False,
        'image': {'id': 'image-1'}, 'config_drive': '',
        'flavor': {'vcpus': 2, 'ram': 1024, 'disk': 10, 'ephemeral': 5, 'swap': 1500},
        'OS-EXT-SRV-ATTR:host': host, 'OS-EXT-SRV-ATTR:instance_name': 'instance-1',
        'OS-EXT-STS:task_state': None, 'server_groups': [],
        'pinned_availability_zone': None} | fields


def server_group(uuid: str, **fields: Any) -> dict[str, Any]:
    return {'id': uuid, 'name': 'g', 'policy': 'anti-affinity', 'rules': {},
            'members': []} | fields


def migration(number: int, **fields: Any) -> dict[str, Any]:
    """A live migration of ``vm`` from host1 to host2."""
    return {
        'id': number, 'uuid': f'm{number}', 'instance_uuid': 'vm', 'status': 'running',
        'migration_type': 'live-migration', 'source_compute': 'host1',
        'dest_compute': 'host2', 'created_at': '1970-01-01T00:00:10.500000',
        'updated_at': None} | fields
