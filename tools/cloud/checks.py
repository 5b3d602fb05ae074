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

"""What the machine must offer, found out before anything is started."""

import importlib.metadata
import os
import pathlib
import shutil

from tools.cloud import errors
from tools.cloud import rabbitmq
from tools.cloud import run
from tools.cloud.hypervisors.base import Hypervisor

#: program -> Debian package
PROGRAMS = {
    'mariadbd': 'mariadb-server',
    'mariadb-install-db': 'mariadb-server',
    'mariadb': 'mariadb-client',
    'mariadb-dump': 'mariadb-client',
    rabbitmq.SERVER: 'rabbitmq-server',
    'memcached': 'memcached',
    'prometheus': 'prometheus',
}
PYTHON_PACKAGES = ('nova', 'openstack-placement', 'keystone', 'glance', 'waitress', 'PyMySQL',
                   'prometheus_client')
#: Measured: 1.2 GB of services, rounded up; a hypervisor names what each host needs.
BASE_MIB = 1300
DISK_MIB = 1500


def available_memory_mib() -> int:
    """Memory that is available without swapping, within a control group's limit."""
    meminfo = dict(
        line.split(':', 1) for line in pathlib.Path('/proc/meminfo').read_text().splitlines()
    )
    available = int(meminfo['MemAvailable'].split()[0]) // 1024
    group = pathlib.Path('/sys/fs/cgroup')
    try:
        limit = (group / 'memory.max').read_text().strip()
        if limit != 'max':
            used = int((group / 'memory.current').read_text())
            available = min(available, (int(limit) - used) // 1024 // 1024)
    except (OSError, ValueError):
        pass  # no control groups of version 2 hereand so no limit of theirs
    return available


def machine(directory: pathlib.Path, hosts: int, hypervisor: Hypervisor) -> None:
    """Check programs, Python packages, memory and disk.

    :raises errors.NotPossibleHere: names the missing part and the remedy
    """
    path = f'{os.environ.get("PATH", "")}:{run.PATH}'
    missing = sorted({
        package for program, package in {**PROGRAMS, **hypervisor.programs}.items()
        if shutil.which(program, path=path) is None
    })
    if missing:
        raise errors.NotPossibleHere(
            f'Debian packages are missing: apt-get install {" ".join(missing)}'
        )
    absent = []
    for name in PYTHON_PACKAGES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    if absent:
        raise errors.NotPossibleHere(
            f'Python packages are missing: {" ".join(absent)}: start through tools/sandbox, '
            'which installs them into .venv'
        )
    needed, there = BASE_MIB + hypervisor.host_memory_mib * hosts, available_memory_mib()
    if there < needed:
        raise errors.NotPossibleHere(
            f'{hosts} hosts need {needed} MiB of memory and {there} MiB are available: '
            'free some, or use fewer --hosts'
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free // 1024 // 1024
    if free < DISK_MIB:
        raise errors.NotPossibleHere(
            f'{directory} has {free} MiB free and {DISK_MIB} are needed: choose another --dir'
        )
