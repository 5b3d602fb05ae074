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

"""Disables a nova-compute: the one thing that ``kronos drain start`` asks of Nova."""

from typing import Any

from kronos_nova.rebalancer.clients import api

#: Services have UUIDs, and a PUT of one takes status and reason.
VERSION = '2.53'
POLICY = 'os_compute_api:os-services:update'
LISTED = 'os_compute_api:os-services:list'


def disable(connection: Any, host: str, reason: str) -> None:
    """Nova's scheduler sends nothing more to the host, and engines see the reason.

    :raises ApiError: there is no such service, or Nova refused or did not answer.
    """
    nova = api.Api(connection, 'Nova', 'compute')
    what = f'service nova-compute on {api.printable(host)}'
    body = nova.get('/os-services', what, LISTED, VERSION,
                    {'binary': 'nova-compute', 'host': host})
    found = [r for r in nova.records(body, 'services', what) if r.get('host') == host]
    if len(found) != 1 or not isinstance(found[0].get('id'), str):
        raise api.ApiError('Nova', what, 'it is not listed')
    response = nova.put(f'/os-services/{found[0]["id"]}', f'disable the {what}', VERSION,
                        {'status': 'disabled', 'disabled_reason': reason})
    if response.status_code != 200:
        raise api.ApiError('Nova', f'disable the {what}', nova.refusal(response, POLICY),
                           response.status_code)


def left_on(connection: Any, host: str) -> list[str]:
    """UUIDs of all servers on the host.

    :raises ApiError: they could not be read.
    """
    nova = api.Api(connection, 'Nova', 'compute')
    return sorted(str(r['id']) for r in nova.pages(
        '/servers', 'servers', f'servers on {api.printable(host)}',
        'os_compute_api:servers:index:get_all_tenants', VERSION,
        {'all_tenants': '1', 'host': host}))
