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

"""Disable a nova-compute for ``kronos drain start``, and list the servers left on a host."""

from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import records

#: The version of all other reads; since 2.53 a PUT of a service takes status and reason.
VERSION = '.'.join(map(str, nova_api.BASE))
POLICY = 'os_compute_api:os-services:update'
LISTED = 'os_compute_api:os-services:list'


def read_service(connection: Any, host: str) -> tuple[str, model.Service]:
    """Return the UUID of a host's nova-compute and the service, as Nova shows it now.

    :raises ApiError: it is not listed, its cell is down, or Nova cannot be read.
    """
    nova = api.ServiceApi(connection, 'Nova', 'compute')
    what = _format_service_name(host)
    body = nova.get('/os-services', what, LISTED, VERSION,
                    {'binary': 'nova-compute', 'host': host})
    service_records = [r for r in nova.read_records(body, 'services', what)
                       if r.get('host') == host]
    if len(service_records) != 1:
        raise api.ApiError('Nova', what, 'it is not listed')
    service = nova_records.parse_service(service_records[0])
    return records.JsonRecord('Nova', 'compute service',
                              service_records[0]).read_identity('id'), service


def disable_service(connection: Any, uuid: str, host: str, reason: str) -> None:
    """Disable the service, so that Nova schedules nothing there and engines see the reason.

    :param uuid: of its service.
    :raises ApiError: Nova refused; or its answer was lost, and the service is not disabled for the
        reason, or cannot be looked up: then ``sent`` is true.
    """
    nova = api.ServiceApi(connection, 'Nova', 'compute')
    what = f'disable the {_format_service_name(host)}'
    try:
        response = nova.put(f'/os-services/{uuid}', what, VERSION,
                            {'status': 'disabled', 'disabled_reason': reason})
    except api.ApiError as e:
        if e.sent:
            return _check_disabled(connection, host, reason, e)
        raise
    if response.status_code == 200:
        return None
    error = api.ApiError('Nova', what, nova.describe_refusal(response, POLICY),
                         response.status_code)
    if response.status_code >= 500:
        return _check_disabled(connection, host, reason, error)
    raise error


def _check_disabled(connection: Any, host: str, reason: str, lost: api.ApiError) -> None:
    """Look up whether a request without a usable answer took effect; raise ApiError if it did not.
    """
    try:
        _uuid, service = read_service(connection, host)
    except api.ApiError as e:
        raise api.ApiError(
            'Nova', lost.what, f'{lost.problem}, and whether the host is disabled now cannot be '
                               f'looked up ({e.problem})', lost.status, sent=True) from None
    if service.enabled or service.disabled_reason != reason:
        how = 'enabled' if service.enabled else 'disabled for another reason'
        raise api.ApiError(
            'Nova', lost.what, f'{lost.problem}; looked up after that, the host is still {how}',
            lost.status, sent=True)


def list_left_servers(connection: Any, host: str) -> list[str]:
    """Return UUIDs of all servers on the host, by the rights that a planning cycle needs.

    :raises ApiError: they could not be read.
    """
    nova = api.ServiceApi(connection, 'Nova', 'compute')
    return sorted(str(r['id']) for r in nova.read_pages(
        '/servers/detail', 'servers', f'servers on {api.format_printable(host)}',
        'os_compute_api:servers:detail:get_all_tenants', VERSION,
        {'all_tenants': '1', 'host': host}))


def _format_service_name(host: str) -> str:
    return f'service nova-compute on {api.format_printable(host)}'
