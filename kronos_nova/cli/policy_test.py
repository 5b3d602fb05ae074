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

"""``kronos policy test``: compare the results of each query with Nova."""

import argparse
from collections.abc import Iterable

from kronos_nova.checks import base
from kronos_nova.checks import policy_queries
from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.wiring import tools


class TestPolicies(command.TableCommand):
    """Run the queries of policies and compare the results with Nova.

    For each query: series, which label values are Nova's hosts or instances and which are not,
    missing ones, duplicates and range; for each policy the age of its samples, the share of their
    hosts' load that instances explain, and the verdict of an engine. Likely mistakes in units are
    named. The exit status is 1 when a check fails. The command changes nothing.
    """

    columns = ('Policy', 'Query', 'Check', 'Status', 'What', 'What to do')
    examples = ('', 'new.yaml --policy cpu')
    config = 'kronos.conf, for [prometheus], [nova] and [engine]; repeatable.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('file', nargs='?', metavar='FILE',
                            help='The policy file. Default: [engine] policies_file.')
        parser.add_argument('--policy', action='append', default=[], metavar='NAME',
                            help='Test this one alone, also when it is disabled; repeatable. '
                                 'Default: those that are enabled.')
        parser.add_argument('--long', action='store_true',
                            help='Every name, not the first five.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            tools.silence_libraries(session.conf)
            details = policy_queries.examine_policies(
                session, args.file, [tools.format_printable(name) for name in args.policy],
                every=args.long)
        for detail in details:
            item = detail.item
            if item.status is base.CheckStatus.FAILED:
                self.status = 1
            yield command.format_printable_row((detail.policy, detail.field, item.name, item.status,
                                                item.text, item.remedy))
