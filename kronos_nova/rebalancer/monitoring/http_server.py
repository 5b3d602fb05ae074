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


"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP, for containers and Prometheus."""

from collections.abc import Callable
from collections.abc import Iterable
import json
import socket
import socketserver
import threading
from typing import Any, Self
from wsgiref import simple_server

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.monitoring import health as healths

LOG = logging.getLogger(__name__)

#: Seconds of silence after which a client is disconnected.
PATIENCE = 5.0

#: The header Accept -> content type and text of /metrics.
Metrics = Callable[[str], tuple[str, bytes]]
_JSON = 'application/json'


def build_application(health: healths.DaemonHealth,
                      metrics: Metrics | None = None) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application.

    ``/healthz`` is 503 when the process should be restarted, ``/readyz`` also when part of its work
    cannot be done now; both are JSON with ``status``, ``problems`` and facts.
    """
    def render_health(page: Callable[[], list[str]]) -> tuple[str, str, bytes]:
        problems = [secret_mask.mask_text(text) for text in page()]
        return '503 Service Unavailable' if problems else '200 OK', _JSON, _dump_json(
            {'status': 'failing' if problems else 'ok', 'problems': problems, **health.map_facts()})

    def render_metrics(page: Metrics, accept: str) -> tuple[str, str, bytes]:
        try:
            return '200 OK', *page(accept)
        except Exception:
            LOG.exception('/metrics failed for a reason that is a defect of ours')
            return '500 Internal Server Error', _JSON, _dump_json(
                {'problems': ['a defect of ours; see the log']})

    pages: dict[str, Callable[[str], tuple[str, str, bytes]]] = {
        '/healthz': lambda accept: render_health(health.find_restart_reason),
        '/readyz': lambda accept: render_health(health.find_unready_reason)}
    if metrics is not None:
        pages['/metrics'] = lambda accept: render_metrics(metrics, accept)

    def answer_request(environ: dict[str, Any],
                       start_response: Callable[..., Any]) -> Iterable[bytes]:
        page = pages.get(environ.get('PATH_INFO', ''))
        method = environ.get('REQUEST_METHOD', '')
        if page is None:
            status, kind, data = '404 Not Found', _JSON, _dump_json({'pages': sorted(pages)})
        elif method not in ('GET', 'HEAD'):
            status, kind, data = '405 Method Not Allowed', _JSON, _dump_json(
                {'methods': ['GET', 'HEAD']})
        else:
            status, kind, data = page(environ.get('HTTP_ACCEPT', ''))
        start_response(status, [
            ('Content-Type', kind), ('Content-Length', str(len(data))),
            ('Cache-Control', 'no-store'), ('X-Content-Type-Options', 'nosniff')])
        return [] if method == 'HEAD' else [data]

    return answer_request


def _dump_json(body: dict[str, Any]) -> bytes:
    return (json.dumps(body, indent=2, sort_keys=True) + '\n').encode()


class _QuietHandler(simple_server.WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug('%s: %s', self.address_string(), format % args)

    def address_string(self) -> str:
        return str(self.client_address[0])


class _ThreadedServer(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True
    #: Several processes must not share the port.
    allow_reuse_port = False

    def server_bind(self) -> None:
        # WSGIServer asks DNS for its name, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug('A request of %s was cut off', client_address, exc_info=True)


class MonitoringServer:
    """Serves one daemon's health in threads of its own.

    :param option: the option with the port, for messages.
    :param metrics: the page /metrics; without it the page does not exist.
    :raises ConfigError: the address cannot be listened on.
    """

    def __init__(self, health: healths.DaemonHealth, address: str, port: int, option: str,
                 metrics: Metrics | None = None) -> None:
        server = type('_Server', (_ThreadedServer,), {
            'address_family': socket.AF_INET6 if ':' in address else socket.AF_INET})
        try:
            self._server = server((address, port), _QuietHandler)
        except (OSError, OverflowError) as e:
            raise exception.ConfigError(
                path='the configuration', field=f'[monitoring] {option}',
                problem=f'{address} port {port} cannot be listened on ({e})',
                remedy='Choose a free port, 0 for none; listen_address has to be one of this '
                       'host.') from None
        self._server.set_app(build_application(health, metrics))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name='kronos-monitoring', daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def start_monitor(conf: cfg.ConfigOpts, health: healths.DaemonHealth, option: str,
                  metrics: Metrics | None = None) -> MonitoringServer | None:
    """Return a running monitor; None where the option's port is 0."""
    port = conf.monitoring[option]
    if not port:
        return None
    address = conf.monitoring.listen_address
    monitor = MonitoringServer(health, address, port, option, metrics).start()
    LOG.info('Health is served at http://%s:%d/healthz and /readyz, metrics at /metrics',
             f'[{address}]' if ':' in address else address, port)
    return monitor
