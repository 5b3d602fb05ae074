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

"""Stands in for Ansible's ``package`` and ``apt`` and for ``synchronize``: a line of JSON in
``$CALLS`` tells what a role would have installed or copied. Each name is a link to this file."""

import json
import os
from typing import Any

from ansible.plugins import action


class ActionModule(action.ActionBase):
    """An action that changes nothing."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        with open(os.environ['CALLS'], 'a', encoding='utf-8') as stream:
            print(json.dumps([self._task.action, self._task.args]), file=stream)
        return {'changed': False, 'failed': self._task.action == 'synchronize'}
