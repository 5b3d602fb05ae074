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

"""Quarantines."""

import enum

from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views


class QuarantineList(values.Resource):
    """The quarantines in force, by kind and name."""

    quarantines: list[resources.Quarantine]


class LiftedKind(enum.StrEnum):
    """A kind of quarantine that an operator can lift."""

    INSTANCE = 'instance'
    HOST = 'host'
    DISKS = 'disks'
    CELLS = 'cells'


class LiftedQuarantine(values.RequestModel):
    """The quarantine to lift."""

    kind: LiftedKind
    name: values.Name


@endpoints.register_endpoint('GET', '/v1/quarantines', 'quarantine:list',
                             endpoints.Access.READER)
def list_quarantines(call: calls.Call) -> QuarantineList:
    """List the quarantines of instances, hosts, hosts with local disks, and pairs of cells.

    Services that executors found out of order are listed, too; their quarantines end by themselves.
    """
    return QuarantineList(quarantines=[
        resources.Quarantine.from_entry(entry)
        for entry in stored_views.list_quarantines(call.session)])


@endpoints.register_endpoint('DELETE', '/v1/quarantines', 'quarantine:delete',
                             endpoints.Access.MANAGER)
def lift_quarantine(call: calls.Call, query: LiftedQuarantine) -> None:
    """Lift a quarantine: the next cycle may plan with the instance or host again."""
    operator_decisions.lift_quarantine(call.session, query.kind.value, query.name)
