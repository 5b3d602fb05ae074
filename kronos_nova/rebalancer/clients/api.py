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

"""One REST service: requests, pages and versions, with readable errors.

Reads are validated and never retried silently: a caller that wants a second try says so. Each
method returns data or raises an :class:`ApiError`, however odd the answer was.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import ssl
from typing import Any
from urllib import parse

from keystoneauth1 import discover
from keystoneauth1 import exceptions as ks_exceptions
from openstack import exceptions as sdk_exceptions
from urllib3 import exceptions as urllib3_exceptions

from kronos_nova.conf import secret_mask

#: Statuses that a second reading can cure: a record that was listed a moment ago is
#: gone, also as the marker of the next page (400).
PASSING = (400, 404, 409)

KEYSTONE = 'Keystone'

#: The user of the login of daemons and commands.
OUR_ACCOUNT = 'the user of [nova]'

_MESSAGE_LENGTH = 300

_NO_CONNECTION = (
    urllib3_exceptions.NewConnectionError, urllib3_exceptions.ConnectTimeoutError,
    ConnectionRefusedError, ssl.SSLCertVerificationError)


#: Errors that leave no service to use: credentials, catalogue, certificate.
_NO_SERVICE = (
    ks_exceptions.Unauthorized, ks_exceptions.SSLError, ks_exceptions.EndpointNotFound,
    ks_exceptions.CatalogException, ks_exceptions.DiscoveryFailure,
    sdk_exceptions.ServiceDisabledException, sdk_exceptions.NotSupported)


class ApiError(Exception):
    """A request that gave no usable answer.

    :param service: ``Nova`` or ``Placement``.
    :param what: the request in words.
    :param problem: a readable clause; no secret, no traceback.
    :param status: the HTTP status, None when no answer came.
    :param sent: no answer came, yet the request may have taken effect.
    :param unreachable: the service does not answer at all: no other request would fare better.
    :param outage: the service that does not work, which may be Keystone; None: this request alone
        failed. 401 and 5xx are outages of the service itself.
    """

    def __init__(self, service: str, what: str, problem: str, status: int | None = None,
                 sent: bool = False, unreachable: bool = False,
                 outage: str | None = None) -> None:
        super().__init__(f'{service}: {what}: {problem}')
        self.service = service
        self.what = what
        self.problem = problem
        self.status = status
        self.sent = sent
        self.unreachable = unreachable
        if outage is None and status is not None and (status == 401 or status >= 500):
            outage = service
        self.outage = outage


class TooLate(ApiError):
    """A request that was not sent, because its time had passed."""


def format_printable(text: object) -> str:
    """Return foreign text as one line of bounded length, without secrets: it may repeat our token.
    """
    line = secret_mask.mask_text(' '.join(str(text).split()))
    if not line.isprintable():
        line = ''.join(c for c in line if c.isprintable())
    return line[:_MESSAGE_LENGTH]


def find_error_message(response: Any) -> str:
    """Return the message in an OpenStack error body; empty when the body has none."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return ''
    if not isinstance(body, dict):
        return ''
    errors = body.get('errors')
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return format_printable(errors[0].get('detail', ''))
    for value in body.values():
        if isinstance(value, dict) and 'message' in value:
            return format_printable(value['message'])
    return ''


def connection_problem(error: Exception) -> str:
    """Describe why no answer came, without secrets from the URL and the body."""
    match error:
        case ks_exceptions.ConnectTimeout():
            return 'no answer in time'
        case ks_exceptions.SSLError():
            return 'TLS failed; check [nova] cafile and the endpoint\'s certificate'
        case ks_exceptions.ConnectFailure():
            return 'the endpoint cannot be reached'
        case ks_exceptions.Unauthorized():
            return 'Keystone refused the credentials of [nova]'
        case (ks_exceptions.EndpointNotFound() | ks_exceptions.CatalogException()
              | sdk_exceptions.ServiceDisabledException()):
            return 'the service catalogue has no endpoint for it; check [nova] region_name ' \
                   'and interface'
        case ks_exceptions.DiscoveryFailure() | sdk_exceptions.NotSupported():
            return 'the endpoint cannot be reached, or is another service\'s'
    return f'the request failed ({type(error).__name__})'


def never_sent(error: BaseException | None) -> bool:
    """Return whether the request certainly did not leave: no connection was made.

    keystoneauth gives a refused connection and one that broke later the same class; urllib3's error
    is further down the chain.
    """
    while error is not None:
        if isinstance(error, _NO_CONNECTION):
            return True
        error = error.__cause__ or error.__context__
    return False


class ServiceApi:
    """Reads of one service through one proxy of a connection.

    :param connection: an openstacksdk connection.
    :param service: name for people.
    :param service_type: the proxy's attribute on the connection.
    :param account: the user of the connection, for people.
    """

    def __init__(self, connection: Any, service: str, service_type: str,
                 account: str = OUR_ACCOUNT) -> None:
        self._connection = connection
        self._account = account
        self.service = service
        self._service_type = service_type

    @property
    def sdk_proxy(self) -> Any:
        """openstacksdk's proxy: a keystoneauth adapter."""
        return getattr(self._connection, self._service_type)

    def _build_error(self, what: str, error: Exception, *, sent: bool = False,
                     problem: str | None = None, outage: str | None = None) -> ApiError:
        """Return the error for one of keystoneauth's or openstacksdk's.

        :param outage: the service that failed; None: the requested service, or Keystone where only
            Keystone raises such an error.
        """
        if outage is None:
            outage = KEYSTONE if isinstance(error, ks_exceptions.HttpError) else self.service
        if isinstance(error, sdk_exceptions.ServiceDisabledException):
            # openstacksdk remembers a missing endpoint for ever, and the catalogue
            # comes with the token; a corrected catalogue must take effect.
            getattr(self._connection, '_proxies', {}).pop(self._service_type, None)
            self._connection.session.invalidate()
        return ApiError(self.service, what, problem or connection_problem(error), sent=sent,
                        unreachable=never_sent(error) or isinstance(error, _NO_SERVICE),
                        outage=outage)

    def log_in(self, what: str) -> None:
        """Get a token, so that a later failure is not Keystone's.

        :raises ApiError: Keystone gave none.
        """
        try:
            self._connection.session.get_auth_headers()
        except ks_exceptions.Unauthorized as exc:
            raise self._build_error(what, exc) from None
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException) as exc:
            raise self._build_error(
                what, exc, problem=f'Keystone gave no token: {connection_problem(exc)}',
                outage=KEYSTONE) from None

    def read_newest_microversion(self) -> tuple[int, ...]:
        """Return the newest microversion that the service offers.

        :raises ApiError: the service did not say.
        """
        what = 'supported API versions'
        self.log_in(what)
        try:
            data = self.sdk_proxy.get_endpoint_data()
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException) as exc:
            raise self._build_error(what, exc) from None
        if data is None or not data.max_microversion:
            raise ApiError(self.service, what, 'the endpoint does not name any; check that it '
                                               'is the right one and answers')
        return tuple(int(part) for part in discover.normalize_version_number(
            data.max_microversion))

    def get(self, path: str, what: str, policy: str, version: str,
            params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object at a path, with the retries of [nova].

        :param policy: the rule that an administrator must grant for it.
        :raises ApiError: the answer is not 200 with an object.
        """
        self.log_in(what)
        try:
            response = self.sdk_proxy.get(
                path, params=dict(params or {}), microversion=version, raise_exc=False,
                headers={'Accept': 'application/json'})
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException) as exc:
            raise self._build_error(what, exc) from None
        if response.status_code != 200:
            raise ApiError(self.service, what, self.describe_refusal(response, policy),
                           response.status_code)
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise ApiError(self.service, what, 'the answer is not a JSON object')
        return body

    def post(self, path: str, what: str, version: str, body: Mapping[str, Any],
             may_send: Callable[[], bool] = lambda: True) -> Any:
        """Send a POST request once: no layer below may repeat it.

        Log in before, so that a failed login is not taken for a failed request.

        :param may_send: called directly before the request is sent.
        :returns: the response with any status.
        :raises TooLate: ``may_send`` returned False, and the request was not sent.
        :raises ApiError: no answer; ``sent`` tells whether the request may be at work.
        """
        return self._send_once('POST', path, what, version, may_send, json=body)

    def put(self, path: str, what: str, version: str, body: Mapping[str, Any]) -> Any:
        """Send a PUT request once; see :meth:`post`."""
        return self._send_once('PUT', path, what, version, lambda: True, json=body)

    def delete(self, path: str, what: str, version: str) -> Any:
        """Send a DELETE request without a body once; see :meth:`post`."""
        return self._send_once('DELETE', path, what, version, lambda: True)

    def user_id(self) -> str | None:
        """Return the id of our user in Keystone; None with an authentication that has no users.

        :raises ApiError: Keystone did not answer.
        """
        try:
            own_id = self.sdk_proxy.session.get_user_id()
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException) as exc:
            raise self._build_error('own user', exc) from None
        return str(own_id) if own_id else None

    def _send_once(self, method: str, path: str, what: str, version: str,
                   may_send: Callable[[], bool], **body: Any) -> Any:
        self.log_in(what)
        try:
            proxy = self.sdk_proxy
            proxy.get_endpoint()
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException) as exc:
            raise self._build_error(what, exc) from None
        if not may_send():
            raise TooLate(self.service, what, 'this process stood still before it could send it')
        try:
            return proxy.request(
                path, method, microversion=version, raise_exc=False, redirect=False,
                connect_retries=0, status_code_retries=0, **body)
        except (ks_exceptions.ClientException, sdk_exceptions.SDKException) as exc:
            lost = not never_sent(exc)
            broke = lost and isinstance(exc, ks_exceptions.ConnectFailure)
            raise self._build_error(what, exc, sent=lost,
                                    problem='the connection broke' if broke else None) from None

    def describe_refusal(self, response: Any, policy: str) -> str:
        """Describe an answer that is not a success, as a clause."""
        message = find_error_message(response)
        quoted = f': {message}' if message else ''
        if response.status_code in (401, 403):
            return (f'HTTP {response.status_code}{quoted}; {self._account} needs a role that '
                    f'policy {policy} allows')
        return f'HTTP {response.status_code}{quoted}'

    def read_records(self, body: Mapping[str, Any], key: str, what: str) -> list[dict[str, Any]]:
        """Return the list of objects under ``key``.

        :raises ApiError: it is missing or something else.
        """
        objects = body.get(key)
        if not isinstance(objects, list) or not all(isinstance(r, dict) for r in objects):
            raise ApiError(self.service, what, f'the answer has no list {key!r}')
        return objects

    def read_pages(self, path: str, key: str, what: str, policy: str, version: str,
                   params: Mapping[str, Any] | None = None,
                   identity: str = 'id') -> Iterator[dict[str, Any]]:
        """Yield every record of a collection, following its `next` links.

        Only the query of a link is used: behind a proxy its host and scheme are often wrong. A
        record that slips onto the next page is yielded once.

        :raises ApiError: a page could not be read.
        """
        query: dict[str, Any] = dict(params or {})
        yielded_ids: set[Any] = set()
        while True:
            body = self.get(path, what, policy, version, query)
            page_records = self.read_records(body, key, what)
            if not all(isinstance(r.get(identity), str | int) for r in page_records):
                raise ApiError(self.service, what, f'the answer has a record without {identity}')
            fresh = [r for r in page_records if r[identity] not in yielded_ids]
            yielded_ids.update(r[identity] for r in fresh)
            yield from fresh
            following = _parse_next_link(body.get(f'{key}_links'))
            if following is None:
                return
            if not fresh:
                raise ApiError(self.service, what, 'its pages do not come to an end')
            query = following


def _parse_next_link(links: Any) -> dict[str, str] | None:
    if not isinstance(links, list):
        return None
    for link in links:
        if isinstance(link, dict) and link.get('rel') == 'next':
            href = link.get('href')
            try:
                return dict(parse.parse_qsl(parse.urlsplit(href).query)) if href else {}
            except (TypeError, ValueError, AttributeError):
                return {}
    return None
