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

"""Handlers of requests: one module for each kind of resource."""

import importlib

#: The modules, in the order of the OpenAPI document.
_MODULES = ('scopes', 'plans', 'tasks', 'pauses', 'quarantines',
            'hosts', 'instances', 'policies', 'verdicts', 'drains', 'campaigns',
            'moves', 'events', 'views')


def load_handlers() -> None:
    """Import the modules, which register their endpoints; a repeated call does nothing."""
    for name in _MODULES:
        importlib.import_module(f'{__name__}.{name}')
