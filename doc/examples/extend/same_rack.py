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

"""Racks of a site, which some flavors do not leave."""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

#: The extra spec of a flavor, and the metadata of an aggregate.
SAME_RACK, RACK = 'site:same_rack', 'rack'


def same_rack(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination outside the source's racks if the flavor has ``site:same_rack=true``.

    The racks of a host are the values of ``rack`` in the metadata of its aggregates. An instance on
    a host without racks goes anywhere.
    """
    instance = view.find_instance(move.instance_uuid)
    if instance is None or (instance.extra_specs or {}).get(SAME_RACK) != 'true':
        return None
    racks = view.aggregates.map_metadata_values(move.from_host).get(RACK, frozenset())
    if not racks or racks & view.aggregates.map_metadata_values(move.to_host).get(RACK,
                                                                                  frozenset()):
        return None
    return model.Rejection('same-rack', f'host {move.to_host} is in no rack of {move.from_host}, '
                                        f'which the flavor of instance {instance.uuid} requires')


SAME_RACK_RULE = rules.Rule(
    same_rack, reads=frozenset({rules.CloudFact.EXTRA_SPECS, rules.CloudFact.AGGREGATES}),
    keys=frozenset({SAME_RACK, RACK}),
    codes={
        'same-rack': rules.RejectionCode(
            meaning='Its flavor has site:same_rack=true, and the destination is in another rack.',
            remedy='the destination joins an aggregate with the rack of the source',
            retry=rules.RetryClass.ELSEWHERE)})
