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

"""A request as its handler sees it: the configuration, the session, and the address."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import threading
from typing import Any

from oslo_config import cfg
from oslo_context import context
from werkzeug import exceptions as http_errors

from kronos_nova.rebalancer.operations import calculation_turns
from kronos_nova.rebalancer.operations import live_views
from kronos_nova.rebalancer.operations import published_cloud
from kronos_nova.rebalancer.operations import reading_cache
from kronos_nova.rebalancer.operations import sessions

#: Characters that the database keeps of an operator's name.
OPERATOR_LENGTH = 255


class WaitingPlaces:
    """Places for requests that wait in this process: each takes a thread.

    :param number: of the places.
    """

    def __init__(self, number: int) -> None:
        self._places = threading.Semaphore(number)

    @contextlib.contextmanager
    def take_place(self, wanted: bool) -> Iterator[bool]:
        """Hold a place; yield False where the request does not want one, or all are taken."""
        taken = wanted and self._places.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                self._places.release()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One request to a handler.

    ``url``: the URL of its path, without the query. ``cloud``: the readings of the cloud;
    ``calculations``: the turns of requests that plan; ``waits``: the places of requests that wait
    for events; ``views``: the rendered views; all of the whole process. ``is_admitted`` returns
    whether a policy rule admits the identity. ``access``: the token of the user with its catalog,
    which keystonemiddleware has confirmed, for requests to Nova; None without keystonemiddleware.
    """

    conf: cfg.ConfigOpts
    session: sessions.DatabaseSession
    url: str
    cloud: reading_cache.ReadingCache
    calculations: calculation_turns.CalculationTurns
    waits: WaitingPlaces
    views: live_views.RenderedViews
    identity: context.RequestContext
    is_admitted: Callable[[str], bool]
    access: Any = None

    def check_rules(self, *rules: str) -> None:
        """Check that policy rules admit the identity, besides that of the endpoint.

        :param rules: names without the prefix ``kronos:``.
        :raises HTTPException: 403: a rule does not.
        """
        for rule in rules:
            if not self.is_admitted(f'kronos:{rule}'):
                raise http_errors.Forbidden(
                    f'Policy rule kronos:{rule} does not admit user {self.identity.user_id}; this '
                    'request needs it as well.')

    @property
    def readings(self) -> Sequence[published_cloud.PublishedReading]:
        """The newest readings of the cloud, the latest first.

        :raises KronosException: no engine has published one, or it cannot be read.
        """
        return self.cloud.list_readings(self.session.store)

    def require_rule(self, rule: str) -> None:
        """Check that a policy rule besides that of the endpoint admits the identity.

        :raises Forbidden: it does not.
        """
        if not self.is_admitted(rule):
            raise make_refusal(rule, self.identity)


def make_refusal(rule: str, identity: context.RequestContext) -> http_errors.Forbidden:
    """Return the error for an identity that a policy rule does not admit."""
    return http_errors.Forbidden(
        f'Policy rule {rule} does not admit user {identity.user_id} with the '
        f'roles {", ".join(identity.roles) or "(none)"} in project '
        f'{identity.project_id or "(none)"}.')


def read_identity(environ: Mapping[str, Any]) -> context.RequestContext | None:
    """Return the identity that keystonemiddleware has confirmed; None: it has confirmed none.

    The middleware removes the headers of an identity from the request of a client.
    """
    if environ.get('HTTP_X_IDENTITY_STATUS') != 'Confirmed':
        return None
    return context.RequestContext.from_environ(
        {name: _decode_header(value) if name.startswith('HTTP_X_') else value
         for name, value in environ.items()}, request_id=environ.get('openstack.request_id'))


def find_access(environ: Mapping[str, Any]) -> Any:
    """Return the token of the user as keystonemiddleware has confirmed it; None without one.

    keystonemiddleware's own plug-in would send Nova the token of our account as well.
    """
    return getattr(environ.get('keystone.token_auth'), 'user', None)


def _decode_header(value: Any) -> Any:
    """Return a header's value; WSGI decodes its bytes as Latin-1, and Keystone sends UTF-8."""
    try:
        return value.encode('latin-1').decode() if isinstance(value, str) else value
    except UnicodeError:
        return value


def format_operator(identity: context.RequestContext) -> str:
    """Return the name that the database keeps with each decision of the identity.

    The IDs and roles come first. The user chooses the name, which may be long: it comes last, and
    is cut. A name from the command line begins with ``local:``.
    """
    text = (f'keystone:{identity.user_id} project {identity.project_id or "none"} '
            f'roles {",".join(sorted(identity.roles)) or "none"} ({identity.user_name})')
    return ''.join(c if c.isprintable() else '?' for c in text)[:OPERATOR_LENGTH]


def name_person(identity: context.RequestContext) -> str:
    """Return the name of the person: several approvals of one person count once."""
    return f'keystone:{identity.user_id}'
