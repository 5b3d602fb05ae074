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

"""``openstack rebalance failure list``: the newest tasks that have failed."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc.columns import Column


class ListFailures(command.ListResources):
    """List the newest tasks that have failed, and their errors."""

    columns = (
        Column('Instance', columns.read_name('instance_name', 20)),
        Column('To', columns.read_name('to_host', 20)),
        Column('Completed At', columns.read_time('completed_at')),
        Column('Error', columns.read_sentence('error', 27)),
        Column('Task', columns.read_text('id'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return self.client.list_rows('/v1/tasks', 'tasks', {'state': ['failed']}, limit=20)
