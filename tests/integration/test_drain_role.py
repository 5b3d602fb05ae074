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

"""The tests of drains through kronos-api, with its database role, on real servers."""

import inspect

from tests.integration import test_api_role
from tests.unit.api import test_drains

# The tests, and the fixtures that the module defines for them.
for _name, _value in vars(test_drains).items():
    if inspect.isfunction(_value) and _name.startswith('test_') or isinstance(
            _value, type(test_drains.nova)):
        globals()[_name] = _value
urls, store = test_api_role.urls, test_api_role.store
conf, client = test_api_role.conf, test_api_role.client
