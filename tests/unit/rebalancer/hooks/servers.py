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


"""A program of an operator's, and an Alertmanager, as real HTTP servers on loopback."""

import contextlib
from http import server as http_server
import json
import threading
import time

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.hooks import base

TASK = model.Task(
    task_id='0f6b52ba-6b27-4c1c-9d2c-5a7b2d3e4f50', plan_id='5d1f0c1e-8a4b-4f6d-9c3e-2b1a0f9e8d7c',
    aggregate='rack 1', instance_uuid='a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d', from_host='h1',
    to_host='h2', phase=model.Phase.SPREAD, instance_name='<b>tenant</b>')


def conf(**values):
    """``group_option`` -> value, groups of hooks without their ``hook_``."""
    configuration = cfg.ConfigOpts()
    opts.register(configuration)
    configuration([], default_config_files=[])
    for name, value in values.items():
        group, _, option = name.partition('_')
        configuration.set_override(option, value, group if group == 'mqtt' else f'hook_{group}')
    return configuration


def call(key='k1', marker='', ended=None, parameters=None, task=TASK):
    return base.HookCall(key, task, parameters or {}, marker, ended)


def ended(step, seconds=10.0):
    """Poll the step to its end and pass on its exceptions."""
    until = time.monotonic() + seconds
    try:
        while not step.poll(time.time()):
            assert time.monotonic() < until, 'it does not come to an end'
            time.sleep(0.01)
    finally:
        step.close()


class Server:
    """Notes (method, path, headers, body); each answers (status, headers, body)."""

    def __init__(self, tls=None):
        self.requests = []
        self.answer = lambda method, path, body: (204, {}, b'')
        outer = self

        class Handler(http_server.BaseHTTPRequestHandler):
            def _any(self):
                body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                status, headers, text = outer.answer(self.command, self.path, body)
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in {**headers, 'Content-Length': str(len(text))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_POST = do_DELETE = do_OPTIONS = _any

            def log_message(self, *args):
                pass

        self._server = http_server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f'http{"" if tls is None else "s"}://127.0.0.1:{self._server.server_port}'
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exc):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Alertmanager(Server):
    """Its silences, as the API v2 has them."""

    def __init__(self):
        super().__init__()
        self.silences = {}
        self.answer = self._act

    def _act(self, method, path, body):
        if method == 'POST' and path == '/prefix/api/v2/silences':
            name = f'00000000-0000-4000-8000-{len(self.silences):012}'
            self.silences[name] = {
                **json.loads(body), 'id': name, 'status': {'state': 'active'}}
            return 200, {}, json.dumps({'silenceID': name}).encode()
        if method == 'GET' and path.startswith('/prefix/api/v2/silences?'):
            return 200, {}, json.dumps(list(self.silences.values())).encode()
        name = path.rpartition('/')[2]
        if method == 'DELETE' and name in self.silences:
            self.silences[name]['status'] = {'state': 'expired'}
            return 200, {}, b''
        return 404, {}, b''
