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

"""The client of kronos-api: requests by keystoneauth, pages, and errors as one line."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import Any
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as auth_errors
from osc_lib import exceptions

from kronos_nova import version
from kronos_nova.text import printable

SERVICE_TYPE = 'rebalance'
#: Rows of a page where all rows are wanted; the service may send fewer.
_PAGE = 1000
#: Statuses of a service that may answer again.
_PASSING = (502, 503, 504)
_NO_SUCH_VERSION = 406
#: Seconds without a byte of an answer.
_TIMEOUT = 60.0

Document = dict[str, Any]


class UnavailableError(exceptions.CommandError):
    """The service does not answer now, and may answer later."""


def connect(config: Any, session: Any, microversion: str) -> 'RebalanceClient':
    """Return the client of a cloud.

    :param config: openstacksdk's CloudRegion, which knows clouds.yaml and the environment.
    :param session: keystoneauth's session, with the identity.
    """
    return RebalanceClient(adapter.Adapter(
        session=session, service_type=config.get_service_type(SERVICE_TYPE),
        service_name=config.get_service_name(SERVICE_TYPE),
        interface=config.get_interface(SERVICE_TYPE),
        region_name=config.get_region_name(SERVICE_TYPE),
        endpoint_override=config.get_endpoint(SERVICE_TYPE),
        connect_retries=config.get_connect_retries(SERVICE_TYPE),
        default_microversion=microversion,
        client_name=version.DISTRIBUTION, client_version=version.read_release()))


class RebalanceClient:
    """Sends requests to kronos-api. Answers hold printable text alone.

    Names in them may come from tenants. ``show_work``: receives a text when a request begins, and
    '' at its end.
    """

    def __init__(self, connection: adapter.Adapter) -> None:
        self._connection = connection
        self.show_work: Callable[[str], object] = lambda what: None

    def send(self, method: str, path: str, *, query: Mapping[str, Any] | None = None,
             body: Mapping[str, Any] | None = None) -> Any:
        """Return the document of the answer; None: it is empty.

        :raises UnavailableError: the service does not answer now.
        :raises CommandError: the service, Keystone or the catalog refuses the request.
        """
        self.show_work('Waiting for kronos-api')
        try:
            answer = self._connection.request(
                path, method, params=query, json=body, raise_exc=False, timeout=_TIMEOUT,
                microversion_service_type=SERVICE_TYPE, headers={'Accept': 'application/json'})
        except auth_errors.EndpointNotFound as e:
            raise exceptions.CommandError(_format_line(
                f'{e}: the catalog has no service of type {SERVICE_TYPE} there. openstack catalog '
                'list shows the services; rebalance_endpoint_override in clouds.yaml names the '
                'address of kronos-api without the catalog')) from None
        except auth_errors.SSLError as e:
            raise exceptions.CommandError(_format_line(
                f'kronos-api cannot be trusted: {e}. --os-cacert or cacert in clouds.yaml names '
                'the file of its certificate authority')) from None
        except auth_errors.ConnectionError as e:
            # The rest repeats the address, with the names of classes.
            problem = re.sub(r': HTTPS?ConnectionPool.*', '', str(e), flags=re.DOTALL)
            raise UnavailableError(_format_line(
                f'kronos-api does not answer: {problem}. openstack catalog show {SERVICE_TYPE} '
                'shows its address')) from None
        except auth_errors.ClientException as e:
            raise exceptions.CommandError(_format_line(e)) from None
        finally:
            self.show_work('')
        if answer.status_code >= 400:
            kind = UnavailableError if answer.status_code in _PASSING else exceptions.CommandError
            raise kind(describe_error(answer))
        try:
            return make_printable(answer.json()) if answer.content else None
        except ValueError:
            raise exceptions.CommandError(_format_line(
                f'{answer.url} is not kronos-api, as its answer is no JSON. Correct the endpoint '
                f'of the service {SERVICE_TYPE} in the catalog')) from None

    def list_rows(self, path: str, key: str, query: Mapping[str, Any] | None = None,
                  limit: int | None = None, *,
                  note_unreadable: Callable[[Document], None] = lambda row: None,
                  ) -> Iterator[Document]:
        """Yield the rows of a list that comes in pages.

        :param key: the name of the list in the answer.
        :param limit: the most rows; None: all.
        :param note_unreadable: called with each row that the service could not read.
        """
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        left = limit
        while left is None or left > 0:
            page = self.send('GET', path, query={
                **asked, 'limit': _PAGE if left is None else min(left, _PAGE)})
            rows = page[key] if left is None else page[key][:left]
            yield from rows
            left = None if left is None else left - len(rows)
            unreadable = page.get('unreadable', ())
            for row in unreadable:
                note_unreadable(row)
            if page['next'] is None or not (rows or unreadable):
                return
            # The address is encoded, so it has names that are not printable as they are.
            (asked['marker'],) = urllib.parse.parse_qs(
                urllib.parse.urlsplit(page['next']).query)['marker']


def describe_error(answer: Any) -> str:
    """Return one line about an answer that is an error.

    It has the detail, the code that never changes, and the ID of the request in the service's log.
    """
    request_id = answer.headers.get('X-Openstack-Request-Id') or 'unknown'
    try:
        error = answer.json()['errors'][0]
        remedy = '; choose another one with --os-rebalance-api-version'
        return _format_line(f'{_strip_stop(error["detail"])} ({error["code"]}, HTTP '
                            f'{answer.status_code}, request {error["request_id"] or request_id})'
                            f'{remedy if answer.status_code == _NO_SUCH_VERSION else ""}')
    except (ValueError, LookupError, TypeError):
        return _format_line(
            f'{answer.url} answered {answer.status_code} {answer.reason} (request {request_id}), '
            'which is no answer of kronos-api. Look at the proxy before it, and at the endpoint of '
            f'the service {SERVICE_TYPE} in the catalog')


def make_printable(value: Any) -> Any:
    """Return a document whose text, also in keys, is printable.

    Two keys that print alike stay two keys.
    """
    if isinstance(value, str):
        return printable.format_printable(value)
    if isinstance(value, list):
        return [make_printable(part) for part in value]
    if isinstance(value, dict):
        shown: Document = {}
        for key, part in value.items():
            name = make_printable(key)
            while name in shown:
                name += '?'
            shown[name] = make_printable(part)
        return shown
    return value


def _strip_stop(text: object) -> str:
    return str(text).rstrip('.')


def _format_line(text: object) -> str:
    return printable.format_printable(printable.format_single_line(str(text)))
