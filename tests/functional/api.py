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

"""Nova's and Placement's APIs on real sockets, for openstacksdk.

The applications are those of the process under test. Each stands behind a :class:`Door`,
which can drop answers, fail or hang up as a test demands. The door of Placement records
writing clients: kronos-nova never writes there.
"""

from collections.abc import Callable
from collections.abc import Iterable
import socketserver
import threading
from typing import Any
from wsgiref import simple_server

import fixtures
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack import proxy
from oslo_config import cfg
from placement import deploy

from kronos_nova.conf import opts
from kronos_nova.rebalancer.store import api as store_api
from tests.fixtures import free_ports
from tests.fixtures import stores
from tests.functional import base

# Nova's fixtures replace it to keep its own SDK calls off the network.
_GET_ENDPOINT = proxy.Proxy.get_endpoint

App = Callable[[dict[str, Any], Any], Iterable[bytes]]

#: A header of requests that play nova-compute or an operator.
NOT_OURS = 'X-Not-Ours'
#: Methods that change nothing.
READING = frozenset({'GET', 'HEAD', 'OPTIONS'})


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or is hung up on, is part of the tests."""


class _Quiet(simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class Door:
    """WSGI middleware that counts requests and can misbehave.

    ``lose_answer_of``: the application does its work, then the connection is
    closed without an answer, once, for a request whose method and path it
    accepts. ``answers``: (predicate, status, body) given instead of asking
    the application. ``ours``: requests without the header NOT_OURS.
    """

    def __init__(self, app: App, headers: dict[str, str]) -> None:
        self._app = app
        self._headers = headers
        self.requests: list[tuple[str, str]] = []
        self.ours: list[tuple[str, str]] = []
        self.lose_answer_of: Callable[[str, str], bool] | None = None
        self.answers: list[tuple[Callable[[str, str], bool], str, bytes]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ['REQUEST_METHOD'], environ['PATH_INFO']
        self.requests.append((method, path))
        if environ.get('HTTP_' + NOT_OURS.upper().replace('-', '_')) is None:
            self.ours.append((method, path))
        for matches, status, body in self.answers:
            if matches(method, path):
                start_response(status, [('Content-Type', 'application/json'),
                                        ('Content-Length', str(len(body)))])
                return [body]
        environ.update(self._headers)
        if self.lose_answer_of is not None and self.lose_answer_of(method, path):
            self.lose_answer_of = None
            list(self._app(environ, lambda *_args: None))
            raise _HangUp()
        return self._app(environ, start_response)


class _HangUp(ConnectionAbortedError):
    """wsgiref closes the connection on it and writes no answer."""


class Api(fixtures.Fixture):  # type: ignore[misc]
    """One application on a free loopback port; ``url``, ``door``."""

    def __init__(self, app: App, headers: dict[str, str], path: str = '') -> None:
        self.door = Door(app, headers)
        self._path = path

    def _setUp(self) -> None:
        self.httpd = simple_server.make_server(
            '127.0.0.1', 0, self.door, server_class=_Server, handler_class=_Quiet)
        self.addCleanup(self.httpd.server_close)
        self.addCleanup(self.httpd.shutdown)
        threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f'http://127.0.0.1:{self.httpd.server_port}{self._path}'


class PlacementApi(Api):
    """Placement, to which kronos-nova writes nothing: a test in which it has asked for
    anything but to read fails."""

    def _setUp(self) -> None:
        self.addCleanup(self._assert_only_read)
        super()._setUp()

    def _assert_only_read(self) -> None:
        written = [request for request in self.door.ours if request[0] not in READING]
        if written:
            raise AssertionError(f'kronos-nova wrote to Placement: {written}')


class ApiTestCase(base.NovaTestCase):
    """Nova and Placement reachable by ``self.connection``; ``self.conf`` is
    kronos.conf, with the fake driver's hypervisor type admitted."""

    plugins = False
    #: What Keystone would say of our user.
    user = 'admin'
    roles = 'reader,member,admin'
    project: str | None = None

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'openstack.proxy.Proxy.get_endpoint', _GET_ENDPOINT))
        self.nova_api = self.useFixture(Api(self.api_fixture.app(), {
            'HTTP_X_AUTH_USER': self.user,
            'HTTP_X_AUTH_PROJECT_ID': self.project or self.api_fixture.project_id,
            'HTTP_X_ROLES': self.roles}, '/v2.1'))
        self.placement_api = self.useFixture(PlacementApi(
            deploy.deploy(self.placement.fixture.conf_fixture.conf),
            {'HTTP_X_AUTH_TOKEN': 'admin'}))
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([], default_config_files=[])
        self.conf.set_override('hypervisor_types', ['fake'], 'engine')
        # What a test has just booted may be moved to balance load.
        self.conf.set_override('instance_cooldown', 0, 'engine')
        self.connection = self.connect()

    def connect(self, placement_url: str | None = None) -> connection.Connection:
        """A new connection, to another Placement if wanted."""
        session = ks_session.Session(
            auth=token_endpoint.Token(self.nova_api.url, 'fake'), timeout=base.PATIENCE)
        return connection.Connection(
            session=session, compute_endpoint_override=self.nova_api.url,
            placement_endpoint_override=placement_url or self.placement_api.url)

    def new_store(self, **kwargs: Any) -> store_api.Store:
        """A database of this test, in a file."""
        path = self.useFixture(fixtures.TempDir()).join('kronos.sqlite')
        store = stores.in_file(path, **kwargs)
        self.addCleanup(store.close)
        return store

    def abort(self, server: dict[str, Any]) -> None:
        """Abort the server's live migration and wait for its end."""
        newest = max(self.migrations(server), key=lambda m: int(m['id']))
        self.admin_api.api_delete(f'/servers/{server["id"]}/migrations/{newest["id"]}')
        self.wait_for(
            lambda: [m for m in self.migrations(server)
                     if m['id'] == newest['id'] and m['status'] == 'cancelled'],
            f'the abort of migration {newest["uuid"]}')
        self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})

    @staticmethod
    def closed_port() -> str:
        """Return a URL of a port that no program listens on."""
        return f'http://127.0.0.1:{free_ports.reserve_port()}'
