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

"""``kronos policy preset list|show``: the policy files that are shipped."""

import argparse
import sys
from typing import Any

from cliff import command
from cliff import lister

SHOW = 'kronos policy preset show'


class ListPresets(lister.Lister):
    """List the policy files that are shipped, and what has to be scraped for them.

    Policies in parentheses are disabled in the file. Example: kronos policy preset list
    """

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        from kronos_nova import presets

        nested = parsed_args.formatter in ('json', 'yaml')
        return ('Name', 'For', 'Exporters', 'Policies'), [
            (name, presets.about(name).purpose, _listed(presets.about(name).exporters, nested),
             _listed(_policies(presets.read(name)), nested)) for name in presets.names()]


class ShowPreset(command.Command):
    """Print a policy file that is shipped.

    Example: kronos policy preset show spread-inovex > /etc/kronos/policies.yaml
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='One of kronos policy preset list.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from kronos_nova.cmd import _tool

        def run() -> int:
            sys.stdout.write(_text(parsed_args.name))
            sys.stdout.flush()
            return 0

        if status := _tool.guarded(SHOW, run):
            raise SystemExit(status)


def _text(name: str) -> str:
    """:raises ConfigError: there is no such preset."""
    from kronos_nova import exception
    from kronos_nova import presets
    from kronos_nova.cmd import _tool

    try:
        return presets.read(name)
    except KeyError:
        raise exception.ConfigError(
            path=SHOW, field='NAME', problem=f'there is no preset {_tool.shown(name)!r}',
            remedy=f'There are: {", ".join(presets.names())}.') from None


def _policies(text: str) -> list[str]:
    import yaml

    return [entry['name'] if entry.get('enabled', True) else f'({entry["name"]})'
            for entry in yaml.safe_load(text)['policies']]


def _listed(names: Any, nested: bool) -> Any:
    return list(names) if nested else ', '.join(names)
