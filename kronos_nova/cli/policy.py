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

"""``kronos policy lint`` and ``preset``: check policy files offline, and show ours."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

import yaml

from kronos_nova import exception
from kronos_nova import presets
from kronos_nova.checks import base
from kronos_nova.checks import policy_lint
from kronos_nova.cli import command
from kronos_nova.conf import config_sessions
from kronos_nova.wiring import tools


class LintPolicies(command.TableCommand):
    """Check policy files: fields, weights, and the PromQL of every query.

    Every problem is shown with its file, field and remedy, and an error of syntax with its
    place. PromQL is parsed offline with the extra "promql", else by the Prometheus of
    kronos.conf. The exit status is 1 when something is wrong, and 2 when nothing is wrong but
    PromQL could not be parsed.
    """

    columns = ('File', 'Field', 'Status', 'What', 'What to do')
    examples = ('/etc/kronos/policies.yaml',)
    config = ('kronos.conf, for [prometheus]; repeatable. It is read only where PromQL cannot be '
              'parsed offline.')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('files', nargs='+', metavar='FILE', help='A policy file; repeatable.')
        parser.add_argument('--scrape-interval', type=_parse_seconds, default=60.0,
                            metavar='SECONDS',
                            help='How often exporters are scraped, for ranges that hold too few '
                                 'samples (default: 60).')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(config_sessions.ConfigSession, args, live=False) as session:
            lint_rows = policy_lint.lint_policy_files(session, args.files, args.scrape_interval)
        states = {row.item.status for row in lint_rows}
        self.status = (1 if base.CheckStatus.FAILED in states else
                       2 if base.CheckStatus.SKIPPED in states else 0)
        return [command.format_printable_row((row.path, row.item.name, row.item.status,
                                              row.item.text, row.item.remedy)) for row in lint_rows]


class ListPresets(command.TableCommand):
    """List the policy files in this package, and the exporters that they need.

    Policies in parentheses are disabled in the file.
    """

    columns = ('Name', 'For', 'Exporters', 'Policies')
    examples = ('', '-f json')
    config = None

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        nested = command.is_nested_format(args)
        for name in presets.list_presets():
            about = presets.describe_preset(name)
            yield (name, about.purpose, _format_names(about.exporters, nested),
                   _format_names(_list_policies(presets.read_preset(name)), nested))


class ShowPreset(command.BaseCommand):
    """Print a policy file of this package."""

    examples = ('spread-inovex > /etc/kronos/policies.yaml',)
    config = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='One of kronos policy preset list.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.run_guarded(lambda: sys.stdout.write(_read_preset(parsed_args.name)))


def _read_preset(name: str) -> str:
    """Return the text of a preset.

    :raises ConfigError: the preset does not exist.
    """
    try:
        return presets.read_preset(name)
    except KeyError:
        raise exception.ConfigError(
            path='command line', field='NAME',
            problem=f'no preset {tools.format_printable(name)!r}',
            remedy=f'There are: {", ".join(presets.list_presets())}.') from None


def _list_policies(text: str) -> list[str]:
    return [entry['name'] if entry.get('enabled', True) else f'({entry["name"]})'
            for entry in yaml.safe_load(text)['policies']]


def _format_names(names: Any, nested: bool) -> Any:
    return list(names) if nested else ', '.join(names)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number of seconds above 0 and up to 86400; write for example 60')
    return seconds
