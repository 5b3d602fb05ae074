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


"""Names of the processes that write to the database; each name identifies its machine.

SQLite serves one machine: its write-ahead log is shared memory. So the store must notice when
processes of two machines use one file. Containers of one machine may have different host names,
and a machine has another boot ID after a restart: two names are of different machines when host
name and boot ID both differ.
"""

from collections.abc import Iterable
import os
import pwd
import socket

from oslo_utils import uuidutils

#: A random number that Linux draws when it starts; the same in every container.
BOOT_ID = '/proc/sys/kernel/random/boot_id'
MOUNTS = '/proc/self/mounts'

#: File systems that several machines can mount.
NETWORK = frozenset({
    'afs', 'beegfs', 'ceph', 'cifs', 'fuse.ceph', 'fuse.ceph-fuse', 'fuse.glusterfs',
    'fuse.sshfs', 'gfs2', 'glusterfs', 'lustre', 'ncpfs', 'nfs', 'nfs4', 'ocfs2', 'smb3',
    'smbfs'})

REMEDY = ('SQLite serves one machine: run engine and executors on this one only, or use MariaDB '
          'or PostgreSQL.')


def boot_id() -> str:
    """Return this kernel's boot ID; empty where the kernel has none."""
    try:
        with open(BOOT_ID) as f:
            return f.read().strip()
    except OSError:
        return ''


def name_process() -> str:
    """Return a new name for this process, at most 255 characters."""
    return f'{socket.gethostname()}:{boot_id()}:{os.getpid()}:{uuidutils.generate_uuid()}'


def name_operator() -> str:
    """Name the real user of this process, and the machine.

    Any user can set environment variables: a name from these is only shown, as not authenticated.
    """
    name = _read_user_name()
    claimed = next((os.environ[variable] for variable in ('SUDO_USER', 'LOGNAME', 'USER')
                    if os.environ.get(variable)), name)
    other = '' if claimed == name else f' (not authenticated: {_format_printable(claimed)[:64]})'
    return f'local:{name}@{socket.gethostname()}{other}'


def name_local_person() -> str:
    """Name the real user of this process, as approvals do.
    """
    return f'local:{_read_user_name()}'


def _read_user_name() -> str:
    """Return the name of the real user of this process."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f'uid {uid}'


def _format_printable(text: str) -> str:
    return ' '.join(text.encode('utf-8', 'replace').decode().split())


def list_other_machines(names: Iterable[str]) -> list[str]:
    """Return the host names of processes on other machines, sorted."""
    host, boot = socket.gethostname(), boot_id()
    host_names = set()
    for text in names:
        parts = text.rsplit(':', 3)
        if len(parts) == 4 and parts[1] and boot and parts[0] != host and parts[1] != boot:
            host_names.add(parts[0])
    return sorted(host_names)


def named_elsewhere(hosts: Iterable[str]) -> list[str]:
    """Return the host names that are not this machine's, short or full, sorted."""
    mine = {socket.gethostname(), socket.getfqdn(), 'localhost'}
    mine |= {host.partition('.')[0] for host in mine}
    return sorted(host for host in set(hosts) if host not in mine)


def network_file_system(path: str, mounts: str = MOUNTS) -> str | None:
    """Return the type of the path's file system if several machines can mount it, else None."""
    try:
        with open(mounts) as f:
            lines = [line.split() for line in f]
    except OSError:
        return None
    path = os.path.realpath(path)
    # \040 and the like stand for blanks in names.
    points = [(fields[1].encode().decode('unicode_escape'), fields[2])
              for fields in lines if len(fields) > 2]
    holders = [(point, kind) for point, kind in points
               if os.path.commonpath([path, point]) == point]
    # Of two mounts on one point the later one is seen.
    kind = max(enumerate(holders), key=lambda h: (len(h[1][0]), h[0]),
               default=(0, ('/', '')))[1][1]
    return kind if kind in NETWORK else None


def find_sqlite_problem(path: str, hosts: Iterable[str]) -> str | None:
    """Return why a SQLite file cannot serve, by its location and by the executors' hosts.

    None: no problem is known.
    """
    if (kind := network_file_system(path)) is not None:
        return f'file {path} is on {kind}, and SQLite must not be on a network file system'
    if named := named_elsewhere(hosts):
        return (f'file {path} is SQLite, and [executor] hosts names other machines: '
                f'{", ".join(named)}')
    return None
