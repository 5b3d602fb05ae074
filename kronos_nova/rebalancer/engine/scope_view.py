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

"""The input of a cycle's plan for one scope."""

import dataclasses
from typing import Self

from kronos_nova import model
from kronos_nova.rebalancer.store import plan_approvals


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeView:
    """A scope of the cloud with its history.

    ``waiting``: the plan that alone holds the scope, until people have approved it; None: no plan
    waits, or something else holds the scope as well. ``overtaken``: tasks that end when the plan is
    stored.
    """

    cluster: model.Cluster
    history: model.MoveHistory
    waiting: plan_approvals.WaitingPlan | None = None
    overtaken: tuple[model.Task, ...] = ()

    def replace_history(self, history: model.MoveHistory) -> Self:
        """Return the view with another history."""
        return dataclasses.replace(self, history=history)
