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


"""Placement's own answers about an instance and a host."""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views


def placement_refused(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination for which Placement had no allocation candidate, or no answer.

    The engine asked Placement about this instance on this host
    (:mod:`kronos_nova.rebalancer.engine.placement_check`).
    """
    if not view.is_refused_by_placement(move.instance_uuid, move.to_host):
        return None
    return model.Rejection('placement-refused', f'Placement had no allocation candidate, or no '
                                                f'answer, for instance {move.instance_uuid} on '
                                                f'host {move.to_host}')


PLACEMENT_REFUSED_RULE = rules.Rule(
    placement_refused,
    codes={
        'placement-refused': rules.RejectionCode(
            meaning='Placement itself was asked within the last 15 minutes and had no allocation '
                    'candidate for the instance on the destination, or twice no answer '
                    '(confirm_moves); only when planning.',
            remedy='Placement has a candidate again; an engine asks in its turn',
            retry=rules.RetryClass.ELSEWHERE)})
