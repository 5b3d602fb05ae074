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
"""Policies of the engines."""

from kronos_nova.api import calls
from kronos_nova.api import cloud_resources
from kronos_nova.api import endpoints
from kronos_nova.api import values


class PolicySetList(values.Resource):
    """The policies of each engine, with the scopes that it plans."""

    policy_sets: list[cloud_resources.PolicySet]


@endpoints.register_endpoint('GET', '/v1/policies', 'policy:list', endpoints.Access.READER)
def list_policies(call: calls.Call) -> PolicySetList:
    """List the policies by which engines plan."""
    return PolicySetList(policy_sets=[cloud_resources.PolicySet.from_reading(reading)
                                      for reading in call.readings])
