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

"""Scopes."""

from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import stored_views


class ScopeList(values.Resource):
    """All scopes, by name."""

    scopes: list[resources.Scope]


@endpoints.register_endpoint('GET', '/v1/scopes', 'scope:list', endpoints.Access.READER)
def list_scopes(call: calls.Call) -> ScopeList:
    """List the scopes with their engines, executors, last cycles and pauses."""
    return ScopeList(scopes=[resources.Scope.from_state(state)
                             for state in stored_views.list_scope_states(call.session)])
