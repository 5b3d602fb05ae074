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

"""In place of D-Bus and systemd, for kolla-ansible on a machine without them.

kolla-ansible writes a unit for each container and asks systemd to start it. Here the
container is started by podman, and stopped by the command that its unit names.
"""

from pathlib import Path
import re
import shlex
import subprocess

UNITS = Path('/etc/systemd/system')


def call_podman(*arguments):
    return subprocess.run(['podman', *arguments], check=True, capture_output=True, text=True).stdout


class SystemBus:

    def get_object(self, name, path):
        return None


class Interface:
    """What kolla-ansible asks of systemd's manager."""

    def __init__(self, remote_object, name):
        pass

    def StartUnit(self, unit, mode):
        call_podman('start', self._read(unit, 'ExecStart')[-1])

    def StopUnit(self, unit, mode):
        call_podman(*self._read(unit, 'ExecStop')[1:])

    def RestartUnit(self, unit, mode):
        self.StopUnit(unit, mode)
        self.StartUnit(unit, mode)

    def EnableUnitFiles(self, units, runtime, force):
        pass

    def Reload(self):
        pass

    def ListUnits(self):
        said = call_podman('ps', '--all', '--format', '{{.Names}} {{.Status}}')
        for name, status in (line.split()[:2] for line in said.splitlines()):
            yield (f'kolla-{name}-container.service', '', '', '',
                   'running' if status == 'Up' else 'dead')

    def _read(self, unit, command):
        """Return the words of a command of a unit."""
        text = (UNITS / unit).read_text()
        return shlex.split(re.search(rf'^{command}=(.*)$', text, re.MULTILINE).group(1))
