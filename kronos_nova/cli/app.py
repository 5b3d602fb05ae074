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

"""Entry point of the ``kronos`` command.

Its subcommands are the entry points of the ``kronos_nova.cli`` namespace, so
that a plug-in can bring its own.
"""

from importlib import metadata
import sys

from kronos_nova import version
from kronos_nova.wiring import extras

with extras.needs_extra('kronos'):
    from cliff import app
    from cliff import commandmanager


class CommandCatalogue(commandmanager.CommandManager):
    """The subcommands by their entry points.

    Only the module of the command that runs is imported; cliff itself would import every module.
    """

    def load_commands(self, namespace: str) -> None:
        self.group_list.append(namespace)
        for entry in metadata.entry_points(group=namespace):
            self.commands[entry.name.replace('_', ' ')] = entry


class KronosApplication(app.App):
    """The command without its subcommands."""

    NAME = 'kronos'  # independent of the script's name


@extras.needs_extra('kronos')
def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    kronos = KronosApplication(
        description='Inspect and steer kronos-nova.',
        version=version.read_release(),
        command_manager=CommandCatalogue('kronos_nova.cli'),
        deferred_help=True,
    )
    return int(kronos.run(sys.argv[1:] if argv is None else argv))
