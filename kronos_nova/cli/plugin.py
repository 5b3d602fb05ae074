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

"""``kronos plugin list``: list the installed plug-ins, and try to load them."""

import argparse
from collections.abc import Iterator
from importlib import metadata

from kronos_nova.cli import command
from kronos_nova.wiring import tools

NAMESPACES = (
    'kronos_nova.filters',
    'kronos_nova.weighers',
    'kronos_nova.sources',
    'kronos_nova.strategies',
    'kronos_nova.executors',
    'kronos_nova.hooks',
)


class ListPlugins(command.TableCommand):
    """List every installed filter, weigher, source, strategy, executor and hook."""

    columns = ('Namespace', 'Name', 'Class', 'Distribution', 'Loads')
    examples = ('',)
    config = None

    def render_rows(self, args: argparse.Namespace) -> Iterator[command.Row]:
        """Return one row per entry point, in the order of NAMESPACES, then by name."""
        tools.native_threads()  # a plug-in may load oslo.service, which would choose
        return _render_rows()


def _render_rows() -> Iterator[tuple[str, ...]]:
    for namespace in NAMESPACES:
        for entry in sorted(metadata.entry_points(group=namespace), key=lambda e: e.name):
            origin = entry.dist.name if entry.dist else ''
            yield namespace, entry.name, entry.value, origin, _try_plugin_load(entry)


def _try_plugin_load(entry: metadata.EntryPoint) -> str:
    """Return ``yes`` or the reason: a foreign plug-in may fail in any way at import."""
    try:
        entry.load()
    except Exception as error:
        return f'no: {error}'
    return 'yes'
