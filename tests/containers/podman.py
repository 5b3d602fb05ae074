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

"""Podman with storage and configuration of its own, on a machine without systemd.

runc in place of crun, cgroupfs in place of systemd, and the network of the host are what works
in a container or a small virtual machine, too. Images and containers lie in a temporary directory;
the configuration and the storage of the machine stay as they are.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import datetime
import json
import os
from pathlib import Path
import resource
import shutil
import subprocess
import threading
import time
from typing import Any

from tests import ci

CONFIGURATION = '''\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"

[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
netns = "host"
log_driver = "k8s-file"
'''
STORAGE = '''\
[storage]
driver = "overlay"
graphroot = "{top}/root"
runroot = "{top}/run"
'''
#: Seconds between two looks at the health, which are systemd's work elsewhere.
HEALTH_INTERVAL = 2.0


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a container; ``exit_code`` is that of one that died."""

    status: str
    container: str
    image: str
    at: datetime.datetime
    exit_code: int


def read_limit(kind: int) -> int:
    """Return how much of a resource a process of this machine may have, 4096 at most."""
    hard = resource.getrlimit(kind)[1]
    return 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)


class Podman:
    """Images and containers below one directory, which :meth:`close` removes."""

    def __init__(self, top: Path) -> None:
        for name in ('podman', 'buildah', 'runc'):
            ci.program(name, name)
        self.top = top
        # Podman asks for more than a machine may give that is itself a container.
        (top / 'containers.conf').write_text(CONFIGURATION.format(
            files=read_limit(resource.RLIMIT_NOFILE), processes=read_limit(resource.RLIMIT_NPROC)))
        (top / 'storage.conf').write_text(STORAGE.format(top=top))
        #: With it each program that calls podman uses ours.
        self.environment = {
            **os.environ, 'CONTAINERS_CONF': str(top / 'containers.conf'),
            'CONTAINERS_STORAGE_CONF': str(top / 'storage.conf'),
            'DISABLE_HC_SYSTEMD': 'true', 'TMPDIR': str(top)}
        #: When a check of a container, by its ID, was first in order.
        self._healthy_at: dict[str, datetime.datetime] = {}
        self._ended = threading.Event()
        self._health = threading.Thread(target=self._look_after_health, daemon=True)
        self._health.start()

    def attempt(self, *command: str, minutes: float = 5,
                cwd: Path | None = None) -> tuple[int, str]:
        """Exit status and output of a program that uses our storage."""
        done = subprocess.run(command, env=self.environment, cwd=cwd, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors='replace', timeout=minutes * 60, check=False)
        return done.returncode, done.stdout

    def call(self, *arguments: str, minutes: float = 5, cwd: Path | None = None) -> str:
        """The output of a command of podman; it has to succeed."""
        return self.run('podman', *arguments, minutes=minutes, cwd=cwd)

    def run(self, *command: str, minutes: float = 5, cwd: Path | None = None) -> str:
        """The output of a program that uses our storage; it has to succeed."""
        status, output = self.attempt(*command, minutes=minutes, cwd=cwd)
        assert status == 0, f'{" ".join(command)}: exit status {status}\n{output[-6000:]}'
        return output

    def inspect(self, container: str) -> dict[str, Any]:
        return dict(json.loads(self.call('container', 'inspect', container))[0])

    def list_events(self, since: datetime.datetime, *statuses: str) -> list[Event]:
        """Return the events of containers with these statuses, oldest first."""
        said = self.call('events', '--stream=false', '--since', since.isoformat(), '--format',
                         'json', '--filter', 'type=container')
        events = [Event(each['Status'], each['Name'], each['Image'],
                        datetime.datetime.fromisoformat(each['Time']),
                        each.get('ContainerExitCode', 0))
                  for each in map(json.loads, said.splitlines())]
        return [event for event in events if event.status in statuses]

    def read_size(self, image: str) -> int:
        """Bytes of an image with all its layers."""
        return int(json.loads(self.call('image', 'inspect', image))[0]['Size'])

    def wait_healthy(self, container: str, seconds: float = 120) -> float:
        """Wait until its health check says healthy; an ended container is a failure.

        :returns: the seconds from its start to the first check that was in order.
        """
        def look() -> bool:
            described = self.inspect(container)
            assert described['State']['Status'] in ('created', 'running'), self.call(
                'logs', container)
            return self.read_health(container) == 'healthy' and described['Id'] in self._healthy_at

        self.wait(look, f'{container} is healthy', seconds, container)
        described = self.inspect(container)
        started = datetime.datetime.fromisoformat(described['State']['StartedAt'])
        return (self._healthy_at[described['Id']] - started).total_seconds()

    def read_health(self, container: str) -> str:
        state = self.inspect(container)['State']
        return str((state.get('Health') or state.get('Healthcheck') or {}).get('Status', ''))

    def wait(self, ready: Callable[[], bool], what: str, seconds: float,
             container: str | None = None) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            said = self.attempt('podman', 'logs', container)[1][-3000:] if container else ''
            assert time.monotonic() < deadline, f'{what}: not so after {seconds:g} s\n{said}'
            time.sleep(0.5)

    def close(self) -> None:
        """Remove every container, and all files."""
        self._ended.set()
        self._health.join()
        self.attempt('podman', 'rm', '--all', '--force', '--time', '5')
        self.attempt('podman', 'umount', '--all')
        # The storage itself is a mount of the overlay driver.
        for path in (self.top / 'root/overlay', self.top / 'root'):
            subprocess.run(['umount', '--recursive', str(path)], check=False, capture_output=True)
        shutil.rmtree(self.top, ignore_errors=True)

    def _look_after_health(self) -> None:
        """Run the health checks of running containers, as podman's timers do under systemd."""
        while not self._ended.wait(HEALTH_INTERVAL):
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                for container in self.attempt('podman', 'ps', '--no-trunc', '--quiet')[1].split():
                    status, _ = self.attempt('podman', 'healthcheck', 'run', container, minutes=0.5)
                    if status == 0:
                        self._healthy_at.setdefault(container,
                                                    datetime.datetime.now(datetime.UTC))
