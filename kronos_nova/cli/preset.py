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

"""``kronos policy preset list|show``: the policy files in this package."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

from kronos_nova.cli import command


class ListPresets(command.TableCommand):
    """List the policy files in this package, and the exporters that they need.

    Policies in parentheses are disabled in the file.
    """

    columns = ('Name', 'For', 'Exporters', 'Policies')
    examples = ('', '-f json')
    config = None

    def rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        from kronos_nova import presets

        nested = command.is_nested_format(args)
        for name in presets.names():
            about = presets.about(name)
            yield (name, about.purpose, _format_names(about.exporters, nested),
                   _format_names(_list_policies(presets.read(name)), nested))


class ShowPreset(command.BaseCommand):
    """Print a policy file of this package."""

    examples = ('spread-inovex > /etc/kronos/policies.yaml',)
    config = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='One of kronos policy preset list.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.guarded(lambda: sys.stdout.write(_read_preset(parsed_args.name)))


def _read_preset(name: str) -> str:
    """Return the text of a preset.

    :raises ConfigError: the preset does not exist.
    """
    from kronos_nova import exception
    from kronos_nova import presets
    from kronos_nova.wiring import tools

    try:
        return presets.read(name)
    except KeyError:
        raise exception.ConfigError(
            path='command line', field='NAME',
            problem=f'no preset {tools.format_printable(name)!r}',
            remedy=f'There are: {", ".join(presets.names())}.') from None


def _list_policies(text: str) -> list[str]:
    import yaml

    return [entry['name'] if entry.get('enabled', True) else f'({entry["name"]})'
            for entry in yaml.safe_load(text)['policies']]


def _format_names(names: Any, nested: bool) -> Any:
    return list(names) if nested else ', '.join(names)
