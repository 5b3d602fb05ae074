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

"""``kronos policy lint``: find errors in policy files before an engine reads them."""

import argparse
from collections.abc import Iterable

from kronos_nova.cli import command


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

    def rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        from kronos_nova.cli import policy_findings

        with self.open_session(args, live=False) as session:
            found = policy_findings.lint_files(session, args.files, args.scrape_interval)
        self.status = policy_findings.compute_exit_status(found)
        return [command.format_printable_row((row.path, row.item.name, row.item.status,
                                               row.item.text,
                                               row.item.remedy)) for row in found]


def _parse_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= 86_400:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number of seconds above 0 and up to 86400; write for example 60')
    return found
