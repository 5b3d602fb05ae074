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

"""``python -m tools.cloud.host_reboots DIR reboot|check HOST``: what a campaign does at a host.

A "reboot" restarts the host's nova-compute, and ends once the new process has reported to Nova; a
check tells whether the process is another one than before. Each reboot is on record in a file, with
the servers that Nova had on the host at that moment.
"""

import dataclasses
import json
import os
import pathlib
import shlex
import signal
import sys
import time
from typing import Any

from tools.cloud import errors
from tools.cloud import processes
from tools.cloud import state
from tools.cloud.client import ApiError
from tools.cloud.client import Cloud
from tools.cloud.client import parse_time
from tools.cloud.client import poll
from tools.cloud.layout import CHECKOUT
from tools.cloud.layout import Layout
from tools.cloud.run import Run

#: The process that forks a nova-compute for each host.
PARENT = 'nova-computes'
#: Seconds that a host is away, and within which its nova-compute ends, and reports again.
AWAY_SECONDS, END_SECONDS, REPORT_SECONDS = 3.0, 60.0, 120.0
#: Statuses of Nova's migrations that are over, and no longer concern a host.
OVER = frozenset({'completed', 'confirmed', 'reverted', 'error', 'failed', 'cancelled', 'done'})


@dataclasses.dataclass(frozen=True)
class Reboot:
    """A line of the record: the beginning of a reboot, or its end with the new process.

    ``servers``: those that Nova had on the host, or on their way from or to it, just before.
    """

    campaign: str
    host: str
    at: float
    ended: bool
    pid: int
    start: int
    servers: tuple[str, ...] = ()


def get_record_path(layout: Layout) -> pathlib.Path:
    return layout.kronos / 'reboots.jsonl'


def read_record(layout: Layout) -> list[Reboot]:
    """Return the lines of the record in order."""
    try:
        text = get_record_path(layout).read_text()
    except FileNotFoundError:
        return []
    return [Reboot(**{**row, 'servers': tuple(row['servers'])})
            for row in map(json.loads, text.splitlines())]


def add_to_record(layout: Layout, reboot: Reboot) -> None:
    with open(os.open(get_record_path(layout), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
              'w') as file:
        file.write(json.dumps(dataclasses.asdict(reboot)) + '\n')


def write_programs(run: Run) -> tuple[pathlib.Path, pathlib.Path]:
    """Write the programs for [campaign] command and check_command; return their paths."""
    paths = []
    for deed in ('reboot', 'check'):
        path = run.layout.etc / f'{deed}-host'
        path.touch(mode=0o700)
        words = (f'PYTHONPATH={CHECKOUT}', f'{processes.MARK}={run.layout.root}', sys.executable,
                 '-m', 'tools.cloud.host_reboots', str(run.layout.root), deed)
        path.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$1"\n')
        paths.append(path)
    return paths[0], paths[1]


def find_compute(layout: Layout, host: str) -> processes.Process | None:
    """Return the nova-compute of a host, whose process has the host's name."""
    return next((process for process in processes.marked(layout.root)
                 if process.name == host[:15]), None)


def is_rebooting(layout: Layout, host: str) -> bool:
    """Return whether the program that reboots the host runs."""
    for process in processes.marked(layout.root):
        try:
            words = pathlib.Path(f'/proc/{process.pid}/cmdline').read_bytes().split(b'\0')
        except OSError:
            continue
        if b'reboot' in words and host.encode() in words:
            return True
    return False


def list_servers(cloud: Cloud, host: str) -> tuple[str, ...]:
    """Return the servers on a host, and those on their way from or to it, as Nova has them."""
    there = {server['id'] for server in cloud.servers()
             if server['OS-EXT-SRV-ATTR:host'] == host}
    return tuple(sorted(there | {
        migration['instance_uuid'] for migration in cloud.migrations()
        if migration['status'] not in OVER
        and host in (migration['source_compute'], migration['dest_compute'])}))


def has_reported(cloud: Cloud, host: str, since: float) -> bool:
    """Return whether the nova-compute of a host has reported to Nova since then."""
    try:
        service = find_service(cloud, host)
    except ApiError:
        return False
    return service['state'] == 'up' and parse_time(service['updated_at']) > since


def find_service(cloud: Cloud, host: str) -> dict[str, Any]:
    """Return the nova-compute of a host as Nova lists it."""
    return next(service for service in cloud.compute_services('nova-compute')
                if service['host'] == host)


def reboot_host(layout: Layout, host: str, campaign: str) -> str | None:
    """Restart the nova-compute of an empty host; return why not, or None.

    :raises TimeoutError: the process does not end, does not start, or does not report.
    """
    current = state.load(layout.state)
    parent = next((process for process in current.processes
                   if process.name == PARENT and processes.is_alive(process)), None) \
        if current is not None else None
    before = find_compute(layout, host)
    if current is None or parent is None or before is None:
        return f'no nova-compute of {host} runs'
    cloud = Cloud(current.ports)
    servers = list_servers(cloud, host)
    add_to_record(layout, Reboot(campaign, host, time.time(), False, before.pid, before.start,
                                 servers))
    if servers:
        return f'{host} has {len(servers)} servers, or expects them'
    os.kill(before.pid, signal.SIGTERM)
    poll(lambda: not processes.is_alive(before), f'nova-compute of {host} has ended', END_SECONDS)
    time.sleep(AWAY_SECONDS)
    started_at = time.time()
    os.kill(parent.pid, signal.SIGHUP)
    poll(lambda: has_reported(cloud, host, started_at), f'nova-compute of {host} reports',
         REPORT_SECONDS)
    after = find_compute(layout, host)
    if after is None:
        return f'nova-compute of {host} ended after its first report'
    add_to_record(layout, Reboot(campaign, host, time.time(), True, after.pid, after.start))
    return None


def check_host(layout: Layout, host: str, campaign: str) -> str | None:
    """Return why a host has not come back from its reboot, or None."""
    begun = [reboot for reboot in read_record(layout)
             if (reboot.campaign, reboot.host, reboot.ended) == (campaign, host, False)]
    now = find_compute(layout, host)
    if not begun:
        return f'no reboot of {host} is on record'
    if now is None:
        return f'no nova-compute of {host} runs'
    if (now.pid, now.start) == (begun[-1].pid, begun[-1].start):
        return f'nova-compute of {host} is the process of before (pid {now.pid})'
    return None


def main() -> int:
    directory, deed, host = sys.argv[1:]
    layout = Layout(pathlib.Path(directory))
    act = {'reboot': reboot_host, 'check': check_host}[deed]
    try:
        problem = act(layout, host, os.environ.get('KRONOS_CAMPAIGN', ''))
    except (ApiError, TimeoutError, errors.SandboxError) as e:
        problem = str(e)
    if problem is not None:
        print(problem, file=sys.stderr)
    return int(problem is not None)


if __name__ == '__main__':
    sys.exit(main())
