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

"""Base of the commands that request moves: each move with its verdict, and the stored plan."""

import argparse
from collections.abc import Iterable
import dataclasses
import sys
from typing import Any

from kronos_nova.cli import command


class RequestTable(command.TableCommand):
    """A table of requested moves.

    ``stored_note`` and ``refused_note``: what standard error says after a plan was stored, or not.
    """

    columns = ('Instance', 'From', 'To', 'Verdict', 'Task')
    stored_note: str
    refused_note: str

    def rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(args) as session:
            found = self.request_moves(session, args, command.format_single_line(args.reason))
        # Programs read the table on standard output.
        if found.plan_id:
            sys.stderr.write(f'Plan {found.plan_id} is stored; executors begin within their '
                             f'poll_interval. {self.stored_note}\n')
        elif self.is_refused(found, args.dry_run):
            self.status = 1
            sys.stderr.write(f'Nothing was stored: {self.refused_note}\n')
        return [command.format_printable_row(dataclasses.astuple(row)) for row in found.rows]

    def request_moves(self, session: Any, args: argparse.Namespace, reason: str) -> Any:
        """Return the plan_requests.RepeatVerdicts; store the plan unless it is a dry run."""
        raise NotImplementedError

    def is_refused(self, found: Any, dry_run: bool) -> bool:
        """Return whether the exit status is 1 although no error is raised."""
        return not dry_run
