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

"""uWSGI with our file and the command of the systemd unit: its start and its end."""

import contextlib
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.fixtures import free_ports

ROOT = pathlib.Path(__file__).parents[3]
PATIENCE = 60
KEYSTONE = ('[keystone_authtoken]\nauth_type = password\nauth_url = http://127.0.0.1:{port}/v3\n'
            'username = a\npassword = b\nproject_name = c\nhttp_request_max_retries = 0\n')


class Served:
    """The service as systemd would start it, and its messages to systemd."""

    def __init__(self, directory: pathlib.Path, conf: str) -> None:
        self.port = free_ports.reserve_port()
        (directory / 'kronos.conf').write_text(conf)
        ini = directory / 'kronos-api.ini'
        ini.write_text((ROOT / 'etc/kronos/kronos-api.ini').read_text().replace(
            ':9588', f':{self.port}'))
        (command,) = [line.partition('=')[2] for line in (
            ROOT / 'etc/systemd/kronos-api.service').read_text().splitlines()
            if line.startswith('ExecStart=')]
        program, *arguments = shlex.split(command.replace('/etc/kronos/kronos-api.ini', str(ini)))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listener.bind(str(directory / 'notify'))
        self._log = directory / 'log'
        with self._log.open('wb') as log:
            self.process = subprocess.Popen(
                [pathlib.Path(sys.executable).with_name(program),
                 *(word for word in arguments if word != '$KRONOS_API_OPTIONS')],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, 'NOTIFY_SOCKET': str(directory / 'notify'),
                     'OS_KRONOS_CONFIG_FILES': str(directory / 'kronos.conf')})

    def wait_until_ready(self) -> None:
        """Wait for what systemd waits for; raise TimeoutError when it does not come."""
        self._listener.settimeout(PATIENCE)
        while 'READY=1' not in self._listener.recv(4096).decode().splitlines():
            pass

    def list_notifications(self) -> list[str]:
        """Return the lines that were sent until now."""
        self._listener.setblocking(False)
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines += self._listener.recv(4096).decode().splitlines()
        return lines

    def ask(self, path: str, token: str | None = None) -> int:
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.port}{path}',
            headers={} if token is None else {'X-Auth-Token': token})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            with e:
                return e.code

    def read_log(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self._listener.close()


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(conf: str) -> Served:
        started.append(Served(tmp_path, conf))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_ready_service_answers_and_ends_without_failure(serve):
    served = serve(KEYSTONE.format(port=free_ports.reserve_port()))
    served.wait_until_ready()
    assert served.ask('/healthcheck') == 200
    served.process.send_signal(signal.SIGTERM)
    # Workers may take worker-reload-mercy, 60 s, until the master ends them.
    assert served.process.wait(2 * PATIENCE) == 0, served.read_log()


@pytest.mark.turns(2)
def test_wrong_configuration_is_a_failure_and_never_ready(serve):
    served = serve('[kronos_api]\nmax_limit = 0\n')
    assert served.process.wait(PATIENCE) != 0
    notifications = served.list_notifications()
    assert notifications and 'READY=1' not in notifications
    assert '[kronos_api] max_limit' in served.read_log()


@pytest.mark.turns(2)
def test_request_under_way_is_answered_after_sigterm(serve):
    """Keystone has the token and is slow: the service waits for it, and ends then."""
    with socket.create_server(('127.0.0.1', 0)) as keystone:
        keystone.settimeout(PATIENCE)
        served = serve(KEYSTONE.format(port=keystone.getsockname()[1]))
        served.wait_until_ready()
        statuses: list[int] = []
        asking = threading.Thread(target=lambda: statuses.append(served.ask('/v1/plans', 'token')))
        asking.start()
        asked, _address = keystone.accept()
        with asked:
            served.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE
            while 'kill' not in served.read_log():
                assert time.monotonic() < deadline, served.read_log()
                time.sleep(0.05)
            time.sleep(0.5)
            assert served.process.poll() is None and statuses == []
        keystone.close()
        asking.join(PATIENCE)
    assert statuses == [503], served.read_log()
    assert served.process.wait(PATIENCE) == 0
