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

"""The real routes of kronos-api on a loopback port, and OpenStackClient in this process."""

import contextlib
import logging
import threading
import warnings

from openstackclient import shell
from osc_lib import clientmanager
from oslo_middleware import request_id
import pytest
from werkzeug import serving

from kronos_nova.api import application
from tests.unit.api import conftest as api_fixtures

store = api_fixtures.store
conf = api_fixtures.conf


class QuietHandler(serving.WSGIRequestHandler):
    """Writes nothing on standard error, which the tests read."""

    def log(self, type, message, *args):
        pass


class Server:
    """The routes behind the headers that keystonemiddleware sets.

    ``requests`` has method, path, query and microversion of each; ``answer``: a WSGI application
    that takes the place of the routes.
    """

    def __init__(self, routes):
        self.roles, self.user, self.requests, self.answer = 'admin', 'a' * 32, [], None
        self._routes = request_id.RequestId(routes)
        self._server = serving.make_server('127.0.0.1', 0, self._serve, threaded=True,
                                           request_handler=QuietHandler)
        self.url = f'http://127.0.0.1:{self._server.port}'
        self._thread = threading.Thread(target=self._server.serve_forever,
                                        kwargs={'poll_interval': 0.02}, daemon=True)
        self._thread.start()

    def _serve(self, environ, start_response):
        self.requests.append((environ['REQUEST_METHOD'], environ['PATH_INFO'],
                              environ['QUERY_STRING'], environ.get('HTTP_OPENSTACK_API_VERSION')))
        if self.answer is not None:
            return self.answer(environ, start_response)
        return self._routes({
            **environ, 'HTTP_X_IDENTITY_STATUS': 'Confirmed', 'HTTP_X_USER_ID': self.user,
            'HTTP_X_USER_NAME': 'alice', 'HTTP_X_PROJECT_ID': api_fixtures.OPERATORS,
            'HTTP_X_ROLES': self.roles}, start_response)

    def stop(self):
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()


@pytest.fixture
def server(conf):
    server = Server(application.make_routes(conf))
    yield server
    server.stop()


@contextlib.contextmanager
def undo_global_settings():
    """Take back what a shell leaves in its process, which is made for one command."""
    # The descriptor of the client manager keeps the first client.
    vars(clientmanager.ClientManager)['rebalance']._handle = None
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {logger: logger.level for logger in (root, *root.manager.loggerDict.values())
              if isinstance(logger, logging.Logger)}
    with warnings.catch_warnings():
        try:
            yield
        finally:
            for handler in set(root.handlers) - set(handlers):
                root.removeHandler(handler)
            for logger, level in levels.items():
                # Each call empties the caches of all loggers.
                if logger.level != level:
                    logger.setLevel(level)


class Client:
    """``openstack rebalance`` with an address in place of a catalog."""

    def __init__(self, url, capsys):
        self.url, self.options, self.address, self._capsys = url, (), None, capsys

    def run(self, *arguments):
        """Return (status, standard output, standard error) of a command."""
        self._capsys.readouterr()
        with undo_global_settings():
            try:
                status = shell.OpenStackShell().run(
                    [*(('--os-auth-type', 'none', '--os-endpoint', self.url)
                       if self.address is None else self.address), *self.options,
                     'rebalance', *arguments])
            except SystemExit as e:  # argparse
                status = e.code
        return status, *self._capsys.readouterr()

    def read(self, *arguments):
        """Return standard output of a command that must succeed."""
        status, output, error = self.run(*arguments)
        assert status == 0, error
        return output

    def fail(self, *arguments):
        """Return the one line of a command that must fail."""
        status, output, error = self.run(*arguments)
        assert status == 1 and output == '' and 'Traceback' not in error
        (line,) = error.splitlines()
        return line


@pytest.fixture
def openstack(server, capsys, monkeypatch):
    for name in ('OS_CLOUD', 'OS_REBALANCE_API_VERSION'):
        monkeypatch.delenv(name, raising=False)
    return Client(server.url, capsys)
