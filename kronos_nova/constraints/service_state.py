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
from kronos_nova.constraints import rules
from kronos_nova.constraints import view as views

#: Phases whose moves also leave a disabled host.
LEAVING = (model.Phase.EVACUATE, model.Phase.REQUESTED)


def service_state(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a move unless the destination is up and enabled, and the source up and enabled.

    A drain, or a move that an operator requested, also leaves a disabled source. Live migration
    needs the source's nova-compute, so a host that is down gives nothing. A parity test compares
    the rule with Nova's ComputeFilter.
    """
    for host in (move.from_host, move.to_host):
        rejection = _judge_reachable(view, host)
        if rejection is not None:
            return rejection
    rejection = receiving_service(view, move)
    if rejection is not None:
        return rejection
    source = view.find_service(move.from_host)
    assert source is not None
    if not source.enabled and move.phase not in LEAVING:
        return model.Rejection('source-disabled', f'host {move.from_host} is disabled: only a '
                                                  'drain takes instances from it')
    return None


def receiving_service(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that is not up and enabled."""
    rejection = _judge_reachable(view, move.to_host)
    if rejection is not None:
        return rejection
    destination = view.find_service(move.to_host)
    assert destination is not None
    if not destination.enabled:
        return model.Rejection('service-disabled', f'host {move.to_host}: nova-compute is '
                                                   'disabled')
    return None


def _judge_reachable(view: views.CloudView, host: str) -> model.Rejection | None:
    service = view.find_service(host)
    if service is None:
        return model.Rejection('service-unknown', f'host {host} has no nova-compute service')
    if not service.up:
        why = 'forced down' if service.forced_down else 'down'
        return model.Rejection('service-down', f'host {host}: nova-compute is {why}')
    return None


SERVICE_STATE_RULE = rules.Rule(
    service_state,
    codes={
        'service-unknown': rules.RejectionCode(
            meaning='A host has no nova-compute service.',
            remedy='a nova-compute of the host registers with Nova',
            retry=rules.RetryClass.ELSEWHERE),
        'service-down': rules.RejectionCode(
            meaning='A nova-compute is down or forced down.',
            remedy='nova-compute of the host comes up, or is no longer forced down',
            retry=rules.RetryClass.ELSEWHERE),
        'service-disabled': rules.RejectionCode(
            meaning='The destination is disabled.',
            remedy='the host is enabled (openstack compute service set --enable)',
            retry=rules.RetryClass.ELSEWHERE),
        'source-disabled': rules.RejectionCode(
            meaning='The source is disabled, and this is no drain.',
            remedy='it is a drain (evacuate_disabled_hosts), or the host is enabled',
            retry=rules.RetryClass.ELSEWHERE)})


#: Its codes are those of ``service_state``.
RECEIVING_SERVICE_RULE = rules.Rule(receiving_service, kind=rules.RuleKind.FAILURE, codes={})


def closed_host(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a destination that is being emptied or is to be, or that refuses moves."""
    return view.judge_closed_host(move.to_host)


CLOSED_HOST_RULE = rules.Rule(
    closed_host,
    codes={
        'host-draining': rules.RejectionCode(
            meaning='The destination is being emptied.',
            remedy='its drain ends, or the host is enabled again',
            retry=rules.RetryClass.ELSEWHERE),
        'host-quarantined': rules.RejectionCode(
            meaning='The destination refused moves lately.',
            remedy='kronos quarantine lift host, when its refusals are understood',
            retry=rules.RetryClass.ELSEWHERE),
        'host-to-come': rules.RejectionCode(
            meaning='A campaign still has to empty the destination.',
            remedy='the campaign reaches the host, leaves it out (kronos campaign skip), or ends',
            retry=rules.RetryClass.ELSEWHERE)})


def drain_over(view: views.CloudView, move: model.Move) -> model.Rejection | None:
    """Refuse a drain's move, also a planned one, when its host is enabled again."""
    source = view.find_service(move.from_host)
    if move.phase is model.Phase.EVACUATE and source is not None and source.enabled:
        return model.Rejection('drain-over', f'host {move.from_host} is enabled again: its drain '
                                             'is over')
    return None


DRAIN_OVER_RULE = rules.Rule(
    drain_over, kind=rules.RuleKind.PRE_FLIGHT,
    codes={
        'drain-over': rules.RejectionCode(
            meaning='The source of a drain is enabled again.',
            remedy=None,
            retry=rules.RetryClass.ELSEWHERE)})
