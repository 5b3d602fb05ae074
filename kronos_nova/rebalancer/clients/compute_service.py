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

"""Disable and enable the nova-compute of a host, and list the servers left there."""

from typing import Any

from oslo_utils import uuidutils

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import records

#: The version of all other reads; since 2.53 a PUT of a service takes status and reason.
VERSION = '.'.join(map(str, nova_api.BASE))
POLICY = 'os_compute_api:os-services:update'
LISTED = 'os_compute_api:os-services:list'


class ComputeService:
    """The nova-compute of one host.

    :param connection: an openstacksdk connection.
    :param account: the user of the connection, for people.
    """

    def __init__(self, connection: Any, host: str, account: str = api.OUR_ACCOUNT) -> None:
        self._nova = api.ServiceApi(connection, 'Nova', 'compute', account)
        self.host = host
        self._name = f'service nova-compute on {api.format_printable(host)}'

    def read_service(self) -> tuple[str, model.Service]:
        """Return the UUID of the service, and the service as Nova shows it now.

        :raises ApiError: it is not listed, its cell is down, or Nova cannot be read.
        """
        nova, what = self._nova, self._name
        body = nova.get('/os-services', what, LISTED, VERSION,
                        {'binary': 'nova-compute', 'host': self.host})
        service_records = [r for r in nova.read_records(body, 'services', what)
                           if r.get('host') == self.host]
        if len(service_records) != 1:
            raise api.ApiError('Nova', what, 'it is not listed', 404)
        service = nova_records.parse_service(service_records[0])
        return records.JsonRecord('Nova', 'compute service',
                                  service_records[0]).read_identity('id'), service

    def list_services(self) -> dict[str, model.Service]:
        """Return all nova-computes by host, as Nova shows them now.

        Those in a cell that does not answer have the status model.UNKNOWN.

        :raises ApiError: the user may not list them, or Nova cannot be read.
        """
        what = 'compute services'
        body = self._nova.get('/os-services', what, LISTED, VERSION, {'binary': 'nova-compute'})
        services = [nova_records.parse_service_of_any_cell(record)
                    for record in self._nova.read_records(body, 'services', what)]
        return {service.host: service for service in services}

    def list_left_servers(self) -> list[str]:
        """Return the UUIDs of all servers on the host.

        :raises ApiError: they could not be read.
        """
        return sorted(str(r['id']) for r in self._nova.read_pages(
            '/servers/detail', 'servers', f'servers on {api.format_printable(self.host)}',
            'os_compute_api:servers:detail:get_all_tenants', VERSION,
            {'all_tenants': '1', 'host': self.host}))

    def check_update_right(self) -> None:
        """Check that Nova lets the user update compute services; nothing is changed.

        Nova judges the user before it looks for the service, and no service has this UUID.

        :raises ApiError: Nova refuses the user, or cannot be asked.
        """
        what = 'update compute services'
        uuid = uuidutils.generate_uuid()
        response = self._nova.put(f'/os-services/{uuid}', what, VERSION, {'status': 'enabled'})
        if response.status_code != 404:
            raise api.ApiError('Nova', what, self._nova.describe_refusal(response, POLICY),
                               response.status_code)
        if uuid not in api.find_error_message(response):
            raise api.ApiError('Nova', what, 'its address in the catalog answers 404, and not '
                               'that the service does not exist')

    def disable(self, uuid: str, reason: str) -> None:
        """Disable the service, so that Nova schedules nothing there and engines see the reason.

        :param uuid: of the service.
        :raises ApiError: Nova refused; or its answer was lost, and the service is not disabled for
            the reason, or cannot be looked up: then ``sent`` is true.
        """
        self._update(uuid, f'disable the {self._name}', model.Service(
            self.host, status='disabled', disabled_reason=reason))

    def enable(self, uuid: str) -> None:
        """Enable the service; see :meth:`disable`."""
        self._update(uuid, f'enable the {self._name}', model.Service(self.host))

    def _update(self, uuid: str, what: str, wanted: model.Service) -> None:
        body = {'status': wanted.status}
        if wanted.disabled_reason is not None:
            body['disabled_reason'] = wanted.disabled_reason
        try:
            response = self._nova.put(f'/os-services/{uuid}', what, VERSION, body)
        except api.ApiError as e:
            if e.sent:
                return self._check_updated(wanted, e)
            raise
        if response.status_code == 200:
            return None
        error = api.ApiError('Nova', what, self._nova.describe_refusal(response, POLICY),
                             response.status_code)
        if response.status_code >= 500:
            return self._check_updated(wanted, error)
        raise error

    def _check_updated(self, wanted: model.Service, lost: api.ApiError) -> None:
        """Look up whether a request without a usable answer took effect.

        :raises ApiError: it did not, or that cannot be looked up.
        """
        try:
            _uuid, service = self.read_service()
        except api.ApiError as e:
            raise api.ApiError(
                'Nova', lost.what, f'{lost.problem}, and whether the host is {wanted.status} now '
                                   f'cannot be looked up ({e.problem})', lost.status,
                sent=True) from None
        if (service.status, service.disabled_reason) == (wanted.status, wanted.disabled_reason):
            return
        how = ('disabled for another reason' if service.status == wanted.status
               else service.status)
        raise api.ApiError(
            'Nova', lost.what, f'{lost.problem}; looked up after that, the host is still {how}',
            lost.status, sent=True)
