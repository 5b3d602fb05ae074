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

"""``kronos task count``: how many tasks each scope has in each state."""

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.rebalancer.operations import stored_views


class CountTasks(database_command.DatabaseTable):
    """Numbers of tasks that are not over, by scope and state."""

    columns = ('Scope', 'State', 'Tasks')
    examples = ('', '-f json')

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        found = Counter((row.task.aggregate, str(row.task.state))
                        for row in stored_views.list_tasks(session))
        for (scope, state), number in sorted(found.items()):
            yield *command.format_printable_row((scope, state)), number
