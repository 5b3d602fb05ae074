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

"""CPU features: the destination must have those that a guest started with."""

from kronos_nova import model
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

PREFIX = 'HW_CPU_'


def cpu_traits(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that lacks a HW_CPU_* trait of the source.

    The rule applies with ``require_cpu_compatibility``.
    """
    if not view.options.require_cpu_compatibility:
        return None
    source, destination = view.find_host(move.from_host), view.find_host(move.to_host)
    if source is None or destination is None:
        return model.Rejection('cpu-traits', 'a host is unknown to Nova')
    lacking = sorted(t for t in source.traits - destination.traits if t.startswith(PREFIX))
    if not lacking:
        return None
    return model.Rejection('cpu-traits', f'host {move.to_host} lacks {", ".join(lacking[:5])}')


CPU_TRAITS_RULE = rules.Rule(
    cpu_traits,
    codes={
        'cpu-traits': rules.RejectionCode(
            meaning='require_cpu_compatibility is set, and the destination lacks a CPU feature of '
                    'the source.',
            remedy='the destination has the CPU features, or cpu_models of both hosts are levelled',
            retry=rules.RetryClass.ELSEWHERE)})
