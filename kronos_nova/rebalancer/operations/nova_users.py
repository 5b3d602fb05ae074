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

"""Requests to Nova for one person: by the login of [nova], or with the person's own token."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
from typing import TYPE_CHECKING

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model

if TYPE_CHECKING:
    from keystoneauth1 import access as ks_access

    from kronos_nova.rebalancer.clients import api
    from kronos_nova.rebalancer.clients import compute_service

#: The user of a token, in errors.
PERSON = 'your user'


@contextlib.contextmanager
def open_service(conf: cfg.ConfigOpts, access: 'ks_access.AccessInfo | None',
                 host: str) -> Iterator['compute_service.ComputeService']:
    """Yield the nova-compute of a host, for the user of a token that Keystone has confirmed.

    Nova decides what the user may do. No other account is involved.

    :param access: the token with its catalog; None: the request has none.
    :raises NovaForbiddenError: the request has no token.
    """
    # openstacksdk takes 15 MB, and most processes of kronos-api never ask Nova.
    from kronos_nova.rebalancer.clients import compute_service  # noqa: PLC0415
    from kronos_nova.rebalancer.clients import connection  # noqa: PLC0415

    if access is None:
        raise exception.NovaForbiddenError(
            path='kronos-api', field=host, problem='the request has no token for Nova',
            remedy='See that keystonemiddleware checks the tokens')
    with contextlib.closing(connection.make_user_connection(conf, access)) as nova:
        yield compute_service.ComputeService(nova, host, PERSON)


def list_updatable_services(
        service: 'compute_service.ComputeService') -> Mapping[str, model.Service]:
    """Return all nova-computes by host, if Nova lets the user update them.

    :raises ConfigError: Nova refuses the user, or cannot be read.
    """
    with _explain_refusal(service):
        service.check_update_right()
        return service.list_services()


def require_update_right(service: 'compute_service.ComputeService') -> None:
    """Check that Nova lets the user update compute services.

    :raises ConfigError: Nova refuses the user, or cannot be asked.
    """
    with _explain_refusal(service):
        service.check_update_right()


@contextlib.contextmanager
def _explain_refusal(service: 'compute_service.ComputeService') -> Iterator[None]:
    from kronos_nova.rebalancer.clients import api  # noqa: PLC0415

    try:
        yield
    except api.ApiError as e:
        raise make_error(e, service.host, 'Nothing is changed') from None


def make_error(error: 'api.ApiError', host: str, remedy: str) -> exception.ConfigError:
    """Return the error of Nova for people and for clients of kronos-api."""
    kind: type[exception.ConfigError] = exception.NovaUnavailableError
    if error.status in (401, 403):
        kind = exception.NovaForbiddenError
    elif error.status is not None and error.status < 500:
        kind = exception.NotFoundError if error.status == 404 else exception.ConfigError
    return kind(path='Nova', field=host, problem=str(error).rstrip('.'), remedy=remedy)
