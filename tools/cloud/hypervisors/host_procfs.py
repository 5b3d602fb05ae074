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

"""``python -m tools.cloud.hypervisors.host_procfs DIRECTORY HOST...``: /proc as each host has it.

All hosts run on one machine, so node_exporter would report the machine's load for each.
This program writes ``DIRECTORY/HOST/proc/stat`` and ``meminfo`` twice a second: the
processor time and the resident memory of the host's QEMU processes, on a host of
:data:`CORES` processors and :data:`MEMORY_KB` of memory. A guest thus loads its host
equally on every machine.
"""

import contextlib
import os
import pathlib
import sys
import time

CORES = 1
MEMORY_KB = 4 * 1024 * 1024
INTERVAL = 0.5
TICKS = os.sysconf('SC_CLK_TCK')
PAGE_KB = os.sysconf('SC_PAGE_SIZE') // 1024


def read_usage(pid: int) -> tuple[int, int, int]:
    """Return start time and used processor time in ticks, and resident KiB.

    :raises OSError: the process has ended
    """
    stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    # The command in parentheses may hold spaces and parentheses.
    fields = stat[stat.rindex(')') + 2:].split()
    return int(fields[19]), int(fields[11]) + int(fields[12]), int(fields[21]) * PAGE_KB


class HostUsage:
    """Processor time and memory of the QEMU processes of one host.

    :param pid_files: libvirt's directory of ``DOMAIN.pid`` files.
    """

    def __init__(self, pid_files: pathlib.Path) -> None:
        self._pid_files = pid_files
        #: pid and start time of a process -> its ticks at the last look.
        self._seen: dict[tuple[int, int], int] = {}
        self.busy = 0
        self.memory_kb = 0

    def update(self) -> None:
        """Add the processor time since the last update, also of migrations that arrive."""
        seen: dict[tuple[int, int], int] = {}
        self.memory_kb = 0
        for file in self._pid_files.glob('*.pid'):
            with contextlib.suppress(OSError, ValueError):
                pid = int(file.read_text())
                start, ticks, memory = read_usage(pid)
                seen[pid, start] = ticks
                self.busy += ticks - self._seen.get((pid, start), 0)
                self.memory_kb += memory
        self._seen = seen


def format_stat(busy: int, idle: int) -> str:
    """Return /proc/stat of a host with these ticks, its processors alike."""
    def line(name: str, parts: int) -> str:
        return f'{name} {busy // parts} 0 0 {idle // parts} 0 0 0 0 0 0\n'

    boot = int(time.time() - time.monotonic())
    return (line('cpu ', 1) + ''.join(line(f'cpu{n}', CORES) for n in range(CORES))
            + f'intr 0\nctxt 0\nbtime {boot}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n')


def format_meminfo(used_kb: int) -> str:
    """Return /proc/meminfo of a host where this much is used."""
    free = max(0, MEMORY_KB - used_kb)
    return f'MemTotal: {MEMORY_KB} kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n'


def _replace(file: pathlib.Path, text: str) -> None:
    temporary = file.with_suffix('.new')
    temporary.write_text(text)
    temporary.replace(file)


def main() -> None:
    directory, hosts = pathlib.Path(sys.argv[1]), sys.argv[2:]
    usages = {host: HostUsage(directory / host / 'run/qemu') for host in hosts}
    idle = dict.fromkeys(hosts, 0)
    for host in hosts:
        (directory / host / 'proc').mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    while True:
        for host, usage in usages.items():
            usage.update()
            elapsed = int((time.monotonic() - started) * TICKS * CORES)
            # A counter never falls, also where guests use more than the host has.
            idle[host] = max(idle[host], elapsed - usage.busy)
            _replace(directory / host / 'proc/stat', format_stat(usage.busy, idle[host]))
            _replace(directory / host / 'proc/meminfo', format_meminfo(usage.memory_kb))
        time.sleep(INTERVAL)


if __name__ == '__main__':
    main()
