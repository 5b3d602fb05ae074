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

"""Processes that are ours for certain: by pid, start time and a mark in their environment."""

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import dataclasses
import os
import pathlib
import signal
import time

#: environment variable that carries the sandbox's directory into everything it starts
MARK = 'KRONOS_SANDBOX_DIR'
PAGE = os.sysconf('SC_PAGE_SIZE')
TICKS = os.sysconf('SC_CLK_TCK')


@dataclasses.dataclass(frozen=True)
class Process:
    """A started process; ``start`` is its start time in clock ticks since the machine's boot."""

    name: str
    pid: int
    start: int


def start_time(pid: int) -> int | None:
    """The start time of a living process; None when it is gone or a zombie."""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the command in parentheses may hold spaces and parentheses itself
    fields = stat[stat.rindex(')') + 2:].split()
    return None if fields[0] in 'ZX' else int(fields[19])


def boot_id() -> str:
    """Names the machine's present boot: pids and start times mean nothing across another."""
    return pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()


def is_alive(process: Process) -> bool:
    """Whether this very process still runs, not another one that got its pid."""
    return start_time(process.pid) == process.start


def marked(directory: pathlib.Path) -> list[Process]:
    """Every process, of any parent, that was started for this directory.

    One that is just being executed has no environment yet and is not found. libvirtd
    hands QEMU only few variables: one is the directory of temporary files, which for
    processes of a host lies below ours.
    """
    return _list_by_environment(
        lambda variable: variable == f'{MARK}={directory}'.encode()
        or variable.startswith(f'TMPDIR={directory}/data/'.encode()))


def list_with_variable(name: str, value: str) -> list[Process]:
    """List every process that has this environment variable with this value."""
    return _list_by_environment(f'{name}={value}'.encode().__eq__)


def _list_by_environment(is_wanted: Callable[[bytes], bool]) -> list[Process]:
    found = []
    for entry in pathlib.Path('/proc').iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if not any(map(is_wanted, (entry / 'environ').read_bytes().split(b'\0'))):
                continue
            name = (entry / 'comm').read_text().strip()
        except OSError:  # gone meanwhile, or another user's
            continue
        start = start_time(int(entry.name))
        if start is not None:
            found.append(Process(name, int(entry.name), start))
    return found


def memory(pid: int) -> tuple[int, int]:
    """Proportional and private memory of a process in bytes; zeros when it is gone."""
    proportional = private = 0
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()[1:]:
            key, value = line.split(':')
            if key == 'Pss':
                proportional += int(value.split()[0]) * 1024
            elif key.startswith('Private_') and key != 'Private_Hugetlb':
                private += int(value.split()[0]) * 1024
    return proportional, private


def measure_process(pid: int) -> dict[str, float] | None:
    """Return resident KiB, threads, descriptors and CPU seconds; None when it is gone."""
    try:
        entry = pathlib.Path(f'/proc/{pid}')
        stat = (entry / 'stat').read_text().rpartition(') ')[2].split()
        return {
            'rss_kib': int(stat[21]) * PAGE / 1024,
            'threads': int(stat[17]),
            'descriptors': len(list((entry / 'fd').iterdir())),
            'cpu': (int(stat[11]) + int(stat[12])) / TICKS,
        }
    except OSError:
        return None


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def stop(processes: Iterable[Process], grace: float) -> list[Process]:
    """SIGTERM, ``grace`` seconds, SIGKILL; returns what lives on all the same."""
    left = [p for p in processes if is_alive(p)]
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        _signal(left, number)
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            reap()
            left = [p for p in left if is_alive(p)]
            if left:
                time.sleep(0.05)
    return left


def reap() -> None:
    """Collect ended children, where they are ours, so that none stays a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
