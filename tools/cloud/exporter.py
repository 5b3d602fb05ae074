# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``python -m tools.cloud.exporter STATE LOAD VCPUS MEMORY_MB``: the exporters of every host.

``/HOST/node`` and ``/HOST/libvirt`` are one scrape target each. As often as Prometheus
scrapes, it asks Nova where guests run; the control file has their load.
"""

from http import server as http_server
import json
import pathlib
import sys
import threading
import time
from typing import Any, Protocol

from tools.cloud import client
from tools.cloud import exposition
from tools.cloud import load
from tools.cloud import state


def guests(servers: list[dict[str, Any]]) -> list[load.Guest]:
    """The running ones of Nova's server details."""
    return [
        load.Guest(
            uuid=s['id'],
            host=s['OS-EXT-SRV-ATTR:host'],
            domain=s['OS-EXT-SRV-ATTR:instance_name'],
            name=s['name'],
            flavor=s['flavor']['original_name'],
            vcpus=s['flavor']['vcpus'],
            memory_mb=s['flavor']['ram'],
            project_id=s['tenant_id'],
            user_id=s['user_id'],
        )
        for s in servers
        if s['OS-EXT-SRV-ATTR:host'] and s['OS-EXT-STS:vm_state'] == 'active'
    ]


class Scrapable(Protocol):
    """Exporters of several hosts behind one port.

    :ivar ready: whether the hosts and their guests are known yet.
    """

    ready: bool

    def scrape(self, path: str) -> bytes | None:
        """Return the exposition text of a target; None for an unknown one."""


class Exporter:
    """The integrator, fed by Nova and the control file, read by scrapes."""

    def __init__(
        self, cloud: client.Cloud, load_file: pathlib.Path, integrator: load.Integrator,
        refresh_seconds: float = 1.0,
    ) -> None:
        self._cloud = cloud
        self._refresh_seconds = refresh_seconds
        self._load_file = load_file
        self._integrator = integrator
        self._loads = load.Loads()
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self.ready = False

    def read_loads(self) -> None:
        """Take up a changed control file; a bad one is reported once and not taken."""
        try:
            stat = self._load_file.stat()
        except FileNotFoundError:
            self._loads, self._stamp = load.Loads(), None
            return
        stamp = stat.st_mtime_ns, stat.st_ino
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._loads = load.parse(json.loads(self._load_file.read_text()))
            except (ValueError, OSError) as e:
                print(f'{self._load_file}: {e}; the previous loads stay', flush=True)

    def refresh(self) -> None:
        """Ask Nova once; when it does not answer the guests stay where they were."""
        self.read_loads()
        running = guests(self._cloud.servers())
        with self._lock:
            self._integrator.set(running, self._loads, time.time())
        self.ready = True

    def refresh_for_ever(self) -> None:
        said = ''
        while True:
            started = time.monotonic()
            try:
                self.refresh()
                said = ''
            except (client.ApiError, KeyError) as e:
                if str(e) != said:
                    print(f'Nova: {e!r}', flush=True)
                said = str(e)
            time.sleep(max(0.1, self._refresh_seconds - (time.monotonic() - started)))

    def scrape(self, path: str) -> bytes | None:
        """The exposition text of a target; None for an unknown one."""
        host, _, kind = path.strip('/').partition('/')
        with self._lock:
            if host not in self._integrator.hosts or kind not in ('node', 'libvirt'):
                return None
            now = time.time()
            self._integrator.advance(now)
            if kind == 'node':
                return exposition.node(host, self._integrator.hosts[host], now)
            return exposition.libvirt(
                [c for (h, _), c in self._integrator.guests.items() if h == host]
            )


def handler(exporter: Scrapable) -> type[http_server.BaseHTTPRequestHandler]:
    """The request handler of an exporter."""

    class Handler(http_server.BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def do_GET(self) -> None:
            if not exporter.ready:
                self._reply(503, b'# Nova has not been read yet\n')
                return
            text = exporter.scrape(self.path)
            if text is None:
                self._reply(404, b'# /HOST/node or /HOST/libvirt\n')
            else:
                self._reply(200, text)

        def _reply(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header('Content-Type', 'text/plain; version=0.0.4; charset=utf-8')
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: a line per scrape is noise."""

    return Handler


def main() -> None:
    state_file, load_file, vcpus, memory_mb = sys.argv[1:]
    current = state.load(pathlib.Path(state_file))
    if current is None:
        sys.exit(f'{state_file}: no sandbox is up')
    integrator = load.Integrator(
        current.hosts, int(vcpus), float(memory_mb) * load.MIB, time.time()
    )
    exporter = Exporter(client.Cloud(current.ports), pathlib.Path(load_file), integrator,
                        current.scrape_seconds)
    threading.Thread(target=exporter.refresh_for_ever, daemon=True).start()
    address = '127.0.0.1', current.ports['exporter']
    http_server.ThreadingHTTPServer(address, handler(exporter)).serve_forever()


if __name__ == '__main__':
    main()
