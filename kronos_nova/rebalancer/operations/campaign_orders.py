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

"""Orders of operators for campaigns: start, pause, resume and abort, and the end of the work."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_views
from kronos_nova.rebalancer.operations import campaigns
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_approvals
from kronos_nova.rebalancer.operations import drain_starts
from kronos_nova.rebalancer.operations import nova_users
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import campaign_rows
from kronos_nova.rebalancer.store import campaigns as stored_campaigns

if TYPE_CHECKING:
    from kronos_nova.rebalancer.clients import compute_service

#: Characters of a reason: Nova's disabled_reason takes 255, and has the campaign's ID as well.
REASON_LENGTH = 200
_STATES = model.CampaignHostState
_BEGUN = frozenset(state for state in _STATES if state.is_begun)

HostOrder = stored_campaigns.HostOrder

DONE = HostOrder(
    'campaign done', frozenset({_STATES.HELD, _STATES.IN_DOUBT, _STATES.FAILED}),
    _STATES.RETURNING)
REPEAT = HostOrder(
    'campaign repeat', frozenset({_STATES.IN_DOUBT, _STATES.FAILED}), _STATES.HELD)
SKIP = HostOrder(
    'campaign skip', (_BEGUN | {_STATES.TO_COME}) - {_STATES.WORKING, _STATES.WITHDRAWN},
    _STATES.WITHDRAWN)
#: What an order needs, in words.
_NEEDS = {DONE.command: 'is held for the work, or whose command failed or is in doubt',
          REPEAT.command: 'has a command that failed or is in doubt',
          SKIP.command: 'is not over, and whose command does not run'}


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignRequest:
    """A campaign that a person asks for.

    ``together``: most hosts that are emptied at a time; None: see campaigns.plan_campaign.
    ``force``: also if instances would stay, or engines would not carry it out now, or hosts were
    not forecast in time. ``work_seconds`` and ``max_seconds``: see campaigns.plan_campaign.
    """

    hosts: Collection[str]
    aggregate: str | None
    reason: str
    together: int | None = None
    windows: Sequence[str] = ()
    force: bool = False
    work_seconds: float = 0.0
    max_seconds: float = campaigns.MAX_SECONDS


def start_campaign(session: cloud_state.Session, request: CampaignRequest,
                   report_progress: Callable[[str, float], None] = lambda what, part: None, *,
                   service: 'compute_service.ComputeService | None' = None,
                   take_turn: drain_approvals.TakeTurn = contextlib.nullcontext,
                   repeats_expired: Callable[[], bool] = lambda: False,
                   ) -> tuple[model.Campaign, campaign_forecasts.CampaignForecast]:
    """Forecast a campaign and order it; engines begin in their next cycle.

    :param report_progress: see :func:`campaigns.plan_campaign`; an error that it raises ends the
        forecast, and nothing is changed.
    :param service: a nova-compute for the person who asks: Nova must let this person update compute
        services, as engines will. None: the person is an operator of this machine.
    :param take_turn: returns a context in which the campaign is calculated.
    :param repeats_expired: see :func:`campaigns.plan_campaign`.
    :raises KronosException: an input cannot be read, a host cannot be emptied, engines would not
        carry the campaign out, another one has the scope or a host, the database cannot be
        written, or Nova refuses the person. Nothing is changed then.
    """
    session.forget_cloud()
    store = session.existing_store
    windows = campaigns.parse_windows(request.windows)
    campaign_id = uuidutils.generate_uuid()
    reason = f'{request.reason[:REASON_LENGTH]} {model.CAMPAIGN_MARK}{campaign_id}]'
    if service is not None:
        session.present_services = nova_users.list_updatable_services(service)
    cloud = session.cloud_for_requests
    options = cloud.options or engine_conf.build_options(session.conf)
    drain_starts.require_draining_engines(options, reason)
    names, cluster = campaigns.find_hosts(cloud, request.hosts, request.aggregate)
    for host in names:
        if not cluster.services[host].enabled:
            raise exception.ConflictError(
                path='request', field=host,
                problem='it is disabled already, '
                        + drain_starts.format_disabled_reason(cluster.services[host]),
                remedy='Enable it, or leave it out: a campaign enables each host that it has '
                       'disabled, and no other')
    with take_turn():
        forecast = campaigns.plan_campaign(session, request.hosts, request.aggregate,
                                           request.together, report_progress,
                                           windows=request.windows,
                                           work_seconds=request.work_seconds,
                                           max_seconds=request.max_seconds,
                                           repeats_expired=repeats_expired)
    if not request.force:
        _refuse_without_force(forecast)
    ordered = [host for step in forecast.steps for host in step.hosts]
    now = store.now()
    campaign = model.Campaign(
        campaign_id, cluster.scope, reason,
        forecast.together or request.together or min(
            campaigns.TOGETHER, campaigns.count_drainable(cluster, options, names)), now,
        session.operator, windows=windows, migrations=forecast.migrations,
        seconds=None if forecast.unforecast else forecast.seconds, hosts=tuple(
            model.CampaignHost(host, position, since=now) for position, host in enumerate(
                [*ordered, *(host for host in names if host not in ordered)])))
    store.campaigns.create_campaign(
        dataclasses.replace(campaign, authorization=session.campaign_signer.sign_campaign(
            campaign, session.person, now)),
        audits.append_flags(request.reason, force=request.force))
    return campaign, forecast


def pause_campaign(session: sessions.DatabaseSession, scope: str | None, reason: str,
                   campaign_id: str | None = None) -> model.Campaign:
    """Pause a campaign that runs: no further host begins, and no work does.

    :param scope: its scope; None: that of the only campaign.
    :param campaign_id: the campaign, in place of a scope.
    :raises KronosException: the scope has no campaign, or it does not run.
    """
    campaign = _choose_campaign(session, scope, campaign_id)
    return _order_state(session, campaign, (model.CampaignState.RUNNING,),
                        model.CampaignState.PAUSED, 'campaign paused', reason)


def resume_campaign(session: sessions.DatabaseSession, scope: str | None, reason: str = '',
                    campaign_id: str | None = None) -> model.Campaign:
    """Let a campaign that pauses go on; see :func:`pause_campaign`.

    The person signs the campaign.

    :raises KronosException: also: no key has signed the campaign before.
    """
    campaign = _choose_campaign(session, scope, campaign_id)
    return _order_state(
        session, campaign, (model.CampaignState.PAUSED,), model.CampaignState.RUNNING,
        'campaign resumed', reason, session.campaign_signer.sign_again(
            campaign, session.person, session.existing_store.now())
        if campaign.state is model.CampaignState.PAUSED else None)


def abort_campaign(session: sessions.DatabaseSession, scope: str | None, reason: str,
                   campaign_id: str | None = None) -> model.Campaign:
    """End a campaign; see :func:`pause_campaign`.

    Hosts that are being emptied are enabled. Hosts where the work may have begun are enabled when
    it is done.
    """
    campaign = _choose_campaign(session, scope, campaign_id)
    return _order_state(
        session, campaign, (model.CampaignState.RUNNING, model.CampaignState.PAUSED),
        model.CampaignState.ABORTING, 'campaign aborted', reason)


def order_host(session: sessions.DatabaseSession, host: str, order: HostOrder,
               reason: str = '', campaign_id: str | None = None) -> model.Campaign:
    """Give an order for a host of a campaign: DONE, REPEAT or SKIP.

    :param campaign_id: the campaign; None: the one that has the host.
    :raises KronosException: no live campaign has the host, or its state does not admit the order.
    """
    store = session.existing_store
    live = (store.campaigns.list_live_campaigns() if campaign_id is None
            else [_choose_campaign(session, None, campaign_id)])
    for campaign in live:
        if isinstance(campaign, model.UnreadableCampaign):
            continue
        found = next((h for h in campaign.hosts
                      if h.host == host and not h.state.is_over), None)
        if found is None:
            continue
        if store.campaigns.order_host(campaign.campaign_id, host, order, by=session.operator,
                                      reason=reason):
            return campaign
        raise exception.ConflictError(
            path='request', field=host, problem=f'it is {found.state} in campaign '
            f'{campaign.campaign_id}, and the order needs a host that {_NEEDS[order.command]}',
            remedy='kronos campaign status shows the hosts')
    for campaign in live:
        campaign_rows.require_readable(campaign)  # it may have the host
    raise exception.ConfigError(
        path='command line', field='HOST', problem=f'{host}: no campaign that goes on has it'
        if campaign_id is None else f'{host}: campaign {campaign_id} does not have it, or it is '
                                    'over there',
        remedy='kronos campaign status shows the hosts')


def _order_state(session: sessions.DatabaseSession, campaign: model.Campaign,
                 before: Collection[model.CampaignState], after: model.CampaignState,
                 command: str, reason: str, authorization: str | None = None) -> model.Campaign:
    if not session.existing_store.campaigns.order_state(
            campaign.campaign_id, before, after, command=command, by=session.operator,
            reason=reason, authorization=authorization):
        raise exception.ConflictError(
            path='request', field=f'campaign {campaign.campaign_id}',
            problem=f'it is {campaign.state}, and not {" or ".join(before)}',
            remedy='Nothing is changed')
    return campaign


def _choose_campaign(session: sessions.DatabaseSession, scope: str | None,
                     campaign_id: str | None) -> model.Campaign:
    """Return the campaign that a person means.

    :raises KronosException: none goes on, or several do.
    """
    if campaign_id is None:
        return find_live_campaign(session.existing_store.campaigns.list_live_campaigns(), scope)
    campaign = campaign_views.read_campaign(session, campaign_id)
    if campaign.state.is_terminal:
        raise exception.ConflictError(path='request', field=f'campaign {campaign_id}',
                                      problem=f'it is {campaign.state}',
                                      remedy='Nothing is changed')
    return campaign


def find_live_campaign(live: Sequence[campaign_rows.Found], scope: str | None) -> model.Campaign:
    """Return the campaign of a scope; None: the only one.

    :raises ConfigError: no campaign goes on, or several do, or it is unreadable.
    """
    found = [campaign for campaign in live if scope in (None, campaign.scope)]
    if len(found) == 1:
        return campaign_rows.require_readable(found[0])
    raise exception.ConfigError(
        path='command line', field='--scope',
        problem='no campaign goes on' + ('' if scope is None else f' in scope {scope}')
        if not found else f'{len(found)} campaigns go on',
        remedy='kronos campaign status lists them' if not found else
        'Name one of ' + ', '.join(campaign.scope for campaign in found))


def _refuse_without_force(forecast: campaign_forecasts.CampaignForecast) -> None:
    """Raise unless the forecast empties each host, and engines would carry it out.

    :raises ConflictError: they would not; force skips this check.
    """
    stuck, unjudged = forecast.stuck, forecast.unjudged
    if not stuck and not forecast.obstacles and not forecast.unforecast and not unjudged:
        return
    first = next(iter(stuck), None)
    if first is not None or forecast.obstacles:
        raise exception.ConflictError(
            path='request', field='campaign',
            problem='; '.join(forecast.obstacles) if first is None else
            f'{plurals.count_noun(len(stuck), "host")} would keep instances, the first {first}: '
            f'{stuck[first][0].instance_uuid}: {stuck[first][0].reason}',
            remedy='kronos campaign plan has them all. Leave these hosts out, or repeat with '
                   'force: the campaign then waits at them')
    if forecast.unforecast:
        raise exception.ConflictError(
            path='request', field='campaign',
            problem=f'{plurals.count_noun(len(forecast.unforecast), "host")} '
            f'{plurals.choose_form(len(forecast.unforecast), "was", "were")} not forecast in time, '
            f'the first {forecast.unforecast[0]}',
            remedy='Give the forecast more time, or start the campaign over fewer hosts; with '
                   'force it begins, and waits at hosts that cannot be emptied')
    host, (instance, *_others) = next(iter(unjudged.items()))
    raise exception.ConflictError(
        path='request', field='campaign',
        problem=f'{plurals.count_noun(len(unjudged), "host")} '
        f'{plurals.choose_form(len(unjudged), "was", "were")} not forecast to the end, the first '
        f'{host}: {instance.instance_uuid}: {instance.reason}',
        remedy='Leave these hosts out, or repeat with force: the campaign begins, and waits at '
               'hosts that cannot be emptied')
