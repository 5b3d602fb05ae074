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

"""A stand-in for neutron: an API without networks, for servers without NICs."""

from collections.abc import Callable
from collections.abc import Iterable
import json
from typing import Any

EXTENSIONS = ('binding', 'binding-extended', 'security-group')
QUOTAS = (
    'port',
    'network',
    'subnet',
    'floatingip',
    'security_group',
    'security_group_rule',
    'router',
)


def answer(method: str, path: str, host: str) -> tuple[str, Any]:
    """HTTP status and JSON body for a request; a body of None is no body."""
    parts = path.strip('/').split('/')
    if parts == ['']:
        link = {'rel': 'self', 'href': f'http://{host}/v2.0/'}
        return '200 OK', {'versions': [{'id': 'v2.0', 'status': 'CURRENT', 'links': [link]}]}
    if parts == ['v2.0']:
        return '200 OK', {'resources': []}
    if parts == ['v2.0', 'extensions']:
        return '200 OK', {
            'extensions': [
                {
                    'alias': alias,
                    'name': alias,
                    'description': '',
                    'links': [],
                    'updated': '2026-01-01T00:00:00Z',
                }
                for alias in EXTENSIONS
            ]
        }
    if len(parts) >= 3 and parts[1] == 'quotas':
        return '200 OK', {'quota': dict.fromkeys(QUOTAS, -1)}
    if method == 'GET' and len(parts) == 2:
        return '200 OK', {parts[1].replace('-', '_'): []}
    if method == 'DELETE':
        return '204 No Content', None
    error = {'type': 'NotFound', 'message': f'{path} is not here', 'detail': ''}
    return '404 Not Found', {'NeutronError': error}


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """The WSGI application; it authenticates no client."""
    status, body = answer(
        environ['REQUEST_METHOD'], environ['PATH_INFO'], environ['HTTP_HOST']
    )
    text = b'' if body is None else json.dumps(body).encode()
    start_response(
        status, [('Content-Type', 'application/json'), ('Content-Length', str(len(text)))]
    )
    return [text]
