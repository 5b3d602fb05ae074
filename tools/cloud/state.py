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

"""The state file: what one sandbox consists of, written before each thing exists."""

import dataclasses
import json
import os
import pathlib

from tools.cloud import errors
from tools.cloud.processes import boot_id
from tools.cloud.processes import Process

VERSION = 1
#: Choices of ``--hypervisor`` and of ``--disks``; the first is the default.
HYPERVISORS = ('fake', 'libvirt')
#: What "up" may set up.
SCENES = ('imbalance',)
DISKS = ('shared', 'local')


@dataclasses.dataclass
class State:
    """Ports by service name, hosts, and processes in the order of their start.

    ``commands`` has the command line and the own environment variables of each process, by
    its name. ``kronos`` tells whether nova-scheduler has this project's plug-ins; ``hypervisor``
    and ``disks`` are the options of ``up``. ``scrape_seconds`` is how often Prometheus scrapes.
    """

    ports: dict[str, int]
    hosts: list[str]
    created: float
    complete: bool = False
    kronos: bool = True
    hypervisor: str = HYPERVISORS[0]
    disks: str = DISKS[0]
    scrape_seconds: int = 1
    boot: str = dataclasses.field(default_factory=boot_id)
    processes: list[Process] = dataclasses.field(default_factory=list)
    commands: dict[str, tuple[list[str], dict[str, str]]] = dataclasses.field(
        default_factory=dict)
    version: int = VERSION

    def save(self, path: pathlib.Path) -> None:
        """Replace the file in one step, readable by its owner only."""
        temporary = path.with_suffix('.new')
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w') as file:
            json.dump(dataclasses.asdict(self), file, indent=1)
        temporary.replace(path)


def load(path: pathlib.Path) -> State | None:
    """Read the state; None without one.

    :raises errors.AlreadyThere: the file is there but cannot be understood
    """
    try:
        raw = json.loads(path.read_text())
        processes = [Process(**p) for p in raw.pop('processes')]
        state = State(processes=processes, **raw)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise errors.AlreadyThere(
            f'{path} is not a state file of this version ({e}): stop what it names, delete it'
        ) from e
    if state.version != VERSION:
        raise errors.AlreadyThere(
            f'{path} has version {state.version}, this checkout knows {VERSION}: '
            'take it down with the checkout that brought it up'
        )
    return state
