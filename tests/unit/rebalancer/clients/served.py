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

"""A service on a real socket that answers from a table: for what depends on connections too."""

from collections.abc import Iterator
import contextlib
import errno
from http import server
import json
import threading
import time
import types
from typing import Any
from urllib import parse

from keystoneauth1 import adapter
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
import pytest
import urllib3.connection


class Served:
    """``answers['GET /path']``: turns, the last one for ever. A turn is a body; or (status,
    body); bytes are sent as they are, and None hangs up. ``asked``: (method, path, query,
    body, microversion) in order."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, dict[str, str], Any, str | None]] = []
        self.connection: Any = None

    def turn(self, of: str) -> tuple[int, Any]:
        turns = self.answers[of]
        answer = turns.pop(0) if len(turns) > 1 else turns[0]
        return answer if isinstance(answer, tuple) else (200, answer)

    def number(self, method: str) -> int:
        """Of requests."""
        return sum(asked[0] == method for asked in self.asked)


@contextlib.contextmanager
def serving(answers: dict[str, list[Any]]) -> Iterator[Served]:
    """``connection`` has a proxy for compute that asks it."""
    served = Served(answers)

    class Handler(server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = parse.urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get('Content-Length', 0)))
            served.asked.append((
                self.command, parts.path, dict(parse.parse_qsl(parts.query)),
                json.loads(sent) if sent else None,
                self.headers.get('OpenStack-API-Version')))
            status, body = served.turn(f'{self.command} {parts.path}')
            if body is None:
                self.close_connection = True
                return
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(server.ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing: a client that hangs up is part of the tests."""

    with Server(('127.0.0.1', 0), Handler) as httpd:
        url = f'http://127.0.0.1:{httpd.server_port}'
        ks = session.Session(auth=token_endpoint.Token(url, 'secret'), timeout=5)
        served.connection = types.SimpleNamespace(session=ks, **{
            name: adapter.Adapter(ks, service_type=name, endpoint_override=url)
            for name in ('compute', 'placement')})
        threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield served
        finally:
            httpd.shutdown()


def close_while_sending(
        monkeypatch: pytest.MonkeyPatch, served: Served, method: str, times: int = 1) -> None:
    """Let requests of this method reach the server, and close their connections while they are
    sent.

    urllib3 swallows ECONNRESET there, and then uses the socket that is closed.
    """
    send, left = urllib3.connection.HTTPConnection.request, [times]

    def request(connection: Any, sent_method: str, *args: Any, **kwargs: Any) -> None:
        before = served.number(method)
        send(connection, sent_method, *args, **kwargs)
        if sent_method != method or not left[0]:
            return
        left[0] -= 1
        end = time.monotonic() + 10
        while served.number(method) == before and time.monotonic() < end:
            time.sleep(0.01)
        connection.sock.close()
        connection.sock = None
        raise ConnectionResetError(errno.ECONNRESET, 'Connection reset by peer')

    monkeypatch.setattr(urllib3.connection.HTTPConnection, 'request', request)


def service(host: str, status: str = 'enabled', reason: str | None = None,
            state: str = 'up') -> dict[str, Any]:
    """As Nova lists it at 2.72."""
    return {'id': f'id-{host}', 'binary': 'nova-compute', 'host': host, 'zone': 'nova',
            'status': status, 'state': state, 'forced_down': False, 'disabled_reason': reason}
