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

"""Lines about the moves of a plan."""

from collections.abc import Mapping
from typing import Any

from kronos_nova.text import plan_lines


def format_move(move: Mapping[str, Any]) -> str:
    """Return a move and its task, and on a second line its effects."""
    reference = move['task']
    return plan_lines.format_move({
        **move, 'instance_uuid': move['instance_id'],
        'task_id': None if reference is None else reference['id'],
        'state': None if reference is None else reference['state']})
