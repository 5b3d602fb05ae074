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


"""A process that answers queries as a Prometheus would, with one series per host."""

from collections.abc import Iterator
import contextlib
from http import server
import json
import multiprocessing
import multiprocessing.connection
from typing import Any


def body(hosts: int) -> bytes:
    """An instant vector as Prometheus writes it, with the labels of a
    ``max by (instance, nodename, job)``."""
    return json.dumps({'status': 'success', 'data': {'resultType': 'vector', 'result': [
        {'metric': {'instance': f'10.{i >> 16}.{i >> 8 & 255}.{i & 255}:9100',
                    'job': 'node-exporter', 'host': f'cn{i}'},
         'value': [1763719200.781, repr((i * 7919 % 900) / 999.7)]} for i in range(hosts)]}},
        separators=(',', ':')).encode()


def serve(hosts: int, pipe: multiprocessing.connection.Connection) -> None:
    """Answer every query; say on which port."""
    answer = body(hosts)

    class Handler(server.BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get('Content-Length', 0)))
            self.send_response(200)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as listening:
        pipe.send(listening.server_port)
        listening.serve_forever()


@contextlib.contextmanager
def running(hosts: int) -> Iterator[str]:
    """The URL of one; it is ended afterwards."""
    fresh = multiprocessing.get_context('spawn')
    ours, theirs = fresh.Pipe()
    process = fresh.Process(target=serve, args=(hosts, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise SystemExit('The server of answers did not start.')
        yield f'http://127.0.0.1:{ours.recv()}'
    finally:
        process.kill()
        process.join()
