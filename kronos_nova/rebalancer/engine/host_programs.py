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

"""Programs of the operator that an engine runs for hosts of campaigns."""

from collections.abc import Callable
import dataclasses
import os
import signal
import tempfile
import time
from typing import IO

from oslo_log import log as logging

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.planning import campaign_steps

LOG = logging.getLogger(__name__)

#: Octets of a program's output that a failure repeats.
OUTPUT = 300
#: Variables of the engine's environment that programs get.
_KEPT = ('PATH', 'HOME', 'LANG', 'TZ')


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    pid: int
    output: IO[bytes]
    ends_at: float


class HostPrograms:
    """Programs that run, by a key. One thread uses it; no call waits for a program.

    :param monotonic: returns seconds, for timeouts.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._runs: dict[str, _Run] = {}
        self._ended: dict[str, campaign_steps.Command | str] = {}

    def start_program(self, key: str, path: str, host: str, seconds: float,
                      **variables: str) -> str | None:
        """Start a program in a session of its own.

        It gets no signal of the engine's, and blocks none: a daemon blocks its signals. A service
        manager may end it with the engine.

        :param seconds: after which :meth:`poll_program` kills it.
        :param variables: for its environment.
        :returns: None, or why it was not started.
        """
        if host.startswith('-'):
            return f'the name of host {api.format_printable(host)} would be an option'
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            output = tempfile.TemporaryFile()
        except OSError as e:
            return f'{path} was not started, since its output has no place: {e.strerror}'
        try:
            pid = os.posix_spawn(
                path, [path, host], environment | variables, setsid=True, setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ), file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 2)])
        except OSError as e:
            output.close()
            return f'{path} was not started: {e.strerror}'
        LOG.info('Host %s: %s runs (process %d)', host, path, pid)
        self._ended.pop(key, None)
        self._runs[key] = _Run(pid, output, self._monotonic() + seconds)
        return None

    def poll_program(self, key: str) -> campaign_steps.Command | str:
        """Return how far a program is, or why it failed, until :meth:`forget_program`."""
        run = self._runs.get(key)
        if run is None:
            return self._ended.get(key, campaign_steps.Command.UNKNOWN)
        ended, status = os.waitpid(run.pid, os.WNOHANG)
        if not ended and self._monotonic() < run.ends_at:
            return campaign_steps.Command.RUNNING
        del self._runs[key]
        with run.output:
            if not ended:
                os.killpg(run.pid, signal.SIGKILL)
                os.waitpid(run.pid, 0)
                self._ended[key] = 'it was killed, since it did not end in time'
            else:
                code = os.waitstatus_to_exitcode(status)
                self._ended[key] = (campaign_steps.Command.SUCCEEDED if code == 0 else
                                    f'exit status {code}{_read_end(run.output)}')
        return self._ended[key]

    def forget_program(self, key: str) -> None:
        """Forget a program that has ended; one that runs goes on."""
        self._ended.pop(key, None)


def _read_end(output: IO[bytes]) -> str:
    """Return the end of a program's output after a colon, in one line; empty without output."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT))
    text = ' '.join(output.read().decode(errors='replace').split())
    return f': {api.format_printable(text)}' if text else ''
