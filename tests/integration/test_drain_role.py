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

for _name, _function in vars(test_drains).items():
    if _name.startswith('test_') and inspect.isfunction(_function):
        globals()[_name] = _function
urls, store = test_api_role.urls, test_api_role.store
conf, client = test_api_role.conf, test_api_role.client
nova, person, publisher = test_drains.nova, test_drains.person, test_drains.publisher
host_c = test_drains.host_c
