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


"""``kronos quarantine list`` and ``lift``: instances and hosts in quarantine, and why."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.text import times

KINDS = ('instance', 'host', 'disks', 'cells')


class ListQuarantines(database_command.DatabaseTable):
    """Instances and hosts in quarantine, since when, until when, and why.

    Kind disks: imbalance moves take no instance from this host, because Nova said that its disks
    would have to be copied. Kind cells: no instance is moved between these two hosts, because Nova
    did not find one host from the other. Kind service: Nova, Placement or Keystone does not work,
    and tasks wait; this ends when the service works again.
    """

    columns = ('Kind', 'Name', 'Since', 'Until', 'Reason')
    examples = ('',)

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        for q in stored_views.list_quarantines(session):
            yield command.format_printable_row((q.kind, q.name, times.format_time(q.since),
                                                 '' if q.until is None
                                                 else times.format_time(q.until), q.reason))


class LiftQuarantine(database_command.DatabaseCommand):
    """End a quarantine: the next cycle may plan with the instance or host again."""

    examples = ('instance UUID', 'host compute-07')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('kind', choices=KINDS)
        parser.add_argument('name', help='The UUID of the instance, or the name of the host; of '
                                         'cells both names, as the list shows them.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        kind, name = parsed_args.kind, parsed_args.name

        def lift_quarantine(session: Any) -> None:
            operator_decisions.lift_quarantine(session, kind, name)
            sys.stdout.write(f'{kind} {name} is free again.\n')

        self.run_in_session(parsed_args, lift_quarantine)
