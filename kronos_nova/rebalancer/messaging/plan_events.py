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

"""Events of plans, drains, notices, campaigns and outages, for listeners: names and payloads.

The version and the form of times are those of :mod:`messages`. No payload has a name that a tenant
gave.
"""

from collections.abc import Mapping
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.messaging import messages

PLANNED = 'plan.created'
LAPSED = 'lapsed'
UNAVAILABLE = 'service.unavailable'
ANNOUNCED = 'move.announced'
HOST_HELD = 'campaign.host_held'
DRAINING, DRAINED, UNDRAINED = 'drain.started', 'drain.completed', 'drain.stopped'


def plan_payload(plan: model.Plan, plan_id: str, created_at: float, state: model.TaskState,
                 methods: Mapping[str, model.MoveMethod]) -> dict[str, Any]:
    """Return the payload of ``plan.created``.

    :param state: the state of the plan's tasks: ``pending`` where they wait for approval.
    :param methods: the method of each move, by instance.
    """
    return {
        'version': messages.VERSION, 'plan_id': plan_id, 'aggregate': plan.scope,
        'created_at': messages.format_time(created_at), 'state': state.value,
        'combined_before': plan.combined_before, 'combined_after': plan.combined_after,
        'policies': [{'name': p.name, 'threshold': p.threshold,
                      'imbalance_before': p.imbalance_before,
                      'imbalance_after': p.imbalance_after} for p in plan.policies],
        'moves': [{'instance_uuid': m.instance_uuid, 'from_host': m.from_host,
                   'to_host': m.to_host, 'phase': m.phase.value, 'wave': m.wave,
                   'requires': list(m.requires), 'alternates': list(m.alternates),
                   'improvement': m.improvement, 'method': methods[m.instance_uuid].value}
                  for m in plan.moves]}


def format_decision_event(verb: str) -> str:
    """Return the event of an operator's decision on a plan: ``plan.approved`` and the like."""
    return f'plan.{verb}'


def decision_payload(scope: str, plan_id: str, at: float, tasks: int, by: str = '',
                     reason: str = '') -> dict[str, Any]:
    """Return the payload of a decision on a plan; ``decided_by`` is empty where the plan lapses."""
    return {'version': messages.VERSION, 'plan_id': plan_id, 'aggregate': scope,
            'at': messages.format_time(at), 'tasks': tasks, 'decided_by': by, 'reason': reason}


def drain_payload(scope: str, host: str, at: float, instances: int) -> dict[str, Any]:
    """Return the payload of drain events; ``instances`` are left on the host."""
    return {'version': messages.VERSION, 'aggregate': scope, 'host': host,
            'at': messages.format_time(at), 'instances': instances}


def format_campaign_event(state: model.CampaignState) -> str:
    """Return the event of a campaign that pauses or has ended, such as ``campaign.done``."""
    return f'campaign.{state}'


def campaign_payload(campaign: model.Campaign, at: float, reason: str) -> dict[str, Any]:
    """Return the payload of ``campaign.paused``, ``campaign.done`` and ``campaign.aborted``."""
    return {'version': messages.VERSION, 'aggregate': campaign.scope,
            'campaign_id': campaign.campaign_id, 'at': messages.format_time(at), 'reason': reason}


def held_host_payload(campaign: model.Campaign, host: model.CampaignHost) -> dict[str, Any]:
    """Return the payload of ``campaign.host_held``: the host is empty, and may be rebooted."""
    return {'version': messages.VERSION, 'aggregate': campaign.scope,
            'campaign_id': campaign.campaign_id, 'host': host.host,
            'at': messages.format_time(host.since)}


def notice_payload(scope: str, notice: model.MoveNotice) -> dict[str, Any]:
    """Return the payload of ``move.announced``: an instance is to leave its host."""
    return {'version': messages.VERSION, 'aggregate': scope, 'instance_uuid': notice.instance_uuid,
            'project_id': notice.project_id, 'from_host': notice.host,
            'reason': notice.reason.value, 'noticed_at': messages.format_time(notice.noticed_at),
            'movable_from': messages.format_time(notice.movable_from),
            'valid_until': messages.format_time(notice.valid_until),
            'may_shut_down': notice.may_shut_down}


def outage_payload(service: str, problem: str, scope: str, at: float) -> dict[str, Any]:
    """Return the payload of ``service.unavailable``: a task of a scope has met a new outage."""
    return {'version': messages.VERSION, 'service': service, 'problem': problem, 'aggregate': scope,
            'at': messages.format_time(at)}
