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

"""The nova-compute services of both hosts: each must be able to do its part."""

from kronos_nova import model
from kronos_nova.constraints import view as views

#: Phases whose moves also leave a disabled host.
LEAVING = (model.Phase.EVACUATE, model.Phase.REQUESTED)


def service_state(view: views.View, move: model.Move) -> model.Rejection | None:
    """Refuse a move unless the destination is up and enabled, and the source up and enabled.

    A drain, or a move that an operator requested, also leaves a disabled source. Live migration
    needs the source's nova-compute, so a host that is down gives nothing. A parity test compares
    the rule with Nova's ComputeFilter.
    """
    for host in (move.from_host, move.to_host):
        service = view.service(host)
        if service is None:
            return model.Rejection('service-unknown', f'host {host} has no nova-compute service')
        if not service.up:
            why = 'forced down' if service.forced_down else 'down'
            return model.Rejection('service-down', f'host {host}: nova-compute is {why}')
    destination = view.service(move.to_host)
    source = view.service(move.from_host)
    assert destination is not None and source is not None
    if not destination.enabled:
        return model.Rejection('service-disabled', f'host {move.to_host}: nova-compute is '
                                                   'disabled')
    if not source.enabled and move.phase not in LEAVING:
        return model.Rejection('source-disabled', f'host {move.from_host} is disabled: only a '
                                                  'drain takes instances from it')
    return None


def closed_host(view: views.View, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that is being emptied, or that refuses moves."""
    return view.closed(move.to_host)


def drain_over(view: views.View, move: model.Move) -> model.Rejection | None:
    """Refuse a drain's move, also a planned one, when its host is enabled again."""
    source = view.service(move.from_host)
    if move.phase is model.Phase.EVACUATE and source is not None and source.enabled:
        return model.Rejection('drain-over', f'host {move.from_host} is enabled again: its drain '
                                             'is over')
    return None
