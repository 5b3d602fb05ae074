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
import dataclasses

from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaigns
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_starts
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import campaigns as stored_campaigns

#: Characters of a reason: Nova's disabled_reason takes 255, and has the campaign's ID as well.
REASON_LENGTH = 200
_STATES = model.CampaignHostState
_BEGUN = frozenset(state for state in _STATES if state.is_begun)

DONE = stored_campaigns.HostOrder(
    'campaign done', frozenset({_STATES.HELD, _STATES.IN_DOUBT, _STATES.FAILED}),
    _STATES.RETURNING)
REPEAT = stored_campaigns.HostOrder(
    'campaign repeat', frozenset({_STATES.IN_DOUBT, _STATES.FAILED}), _STATES.HELD)
SKIP = stored_campaigns.HostOrder(
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
                   report_progress: Callable[[str, float], None] = lambda what, part: None,
                   ) -> tuple[model.Campaign, campaign_forecasts.CampaignForecast]:
    """Forecast a campaign and order it; engines begin in their next cycle.

    :raises KronosException: an input cannot be read, a host cannot be emptied, engines would not
        carry the campaign out, another one has the scope or a host, or the database cannot be
        written. Nothing is changed then.
    """
    session.forget_cloud()
    store = session.existing_store
    windows = campaigns.parse_windows(request.windows)
    campaign_id = uuidutils.generate_uuid()
    reason = f'{request.reason[:REASON_LENGTH]} {model.CAMPAIGN_MARK}{campaign_id}]'
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
    forecast = campaigns.plan_campaign(session, request.hosts, request.aggregate,
                                       request.together, report_progress,
                                       windows=request.windows, work_seconds=request.work_seconds,
                                       max_seconds=request.max_seconds)
    if not request.force:
        _refuse_without_force(forecast)
    ordered = [host for step in forecast.steps for host in step.hosts]
    now = store.now()
    campaign = model.Campaign(
        campaign_id, cluster.scope, reason,
        request.together or min(
            campaigns.TOGETHER, campaigns.count_drainable(cluster, options, names)), now,
        session.operator, windows=windows, migrations=forecast.migrations,
        seconds=None if forecast.unforecast else forecast.seconds, hosts=tuple(
            model.CampaignHost(host, position, since=now) for position, host in enumerate(
                [*ordered, *(host for host in names if host not in ordered)])))
    store.campaigns.create_campaign(
        campaign, audits.append_flags(request.reason, force=request.force))
    return campaign, forecast


def pause_campaign(session: sessions.DatabaseSession, scope: str | None,
                   reason: str) -> model.Campaign:
    """Pause a campaign that runs: no further host begins, and no work does.

    :param scope: its scope; None: that of the only campaign.
    :raises KronosException: the scope has no campaign, or it does not run.
    """
    return _order_state(session, scope, (model.CampaignState.RUNNING,),
                        model.CampaignState.PAUSED, 'campaign paused', reason)


def resume_campaign(session: sessions.DatabaseSession, scope: str | None,
                    reason: str = '') -> model.Campaign:
    """Let a campaign that pauses go on; see :func:`pause_campaign`."""
    return _order_state(session, scope, (model.CampaignState.PAUSED,),
                        model.CampaignState.RUNNING, 'campaign resumed', reason)


def abort_campaign(session: sessions.DatabaseSession, scope: str | None,
                   reason: str) -> model.Campaign:
    """End a campaign; see :func:`pause_campaign`.

    Hosts that are being emptied are enabled. Hosts where the work may have begun are enabled when
    it is done.
    """
    return _order_state(
        session, scope, (model.CampaignState.RUNNING, model.CampaignState.PAUSED),
        model.CampaignState.ABORTING, 'campaign aborted', reason)


def order_host(session: sessions.DatabaseSession, host: str, order: stored_campaigns.HostOrder,
               reason: str = '') -> model.Campaign:
    """Give an order for a host of a campaign: DONE, REPEAT or SKIP.

    :raises KronosException: no live campaign has the host, or its state does not admit the order.
    """
    store = session.existing_store
    for campaign in store.campaigns.list_live_campaigns():
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
    raise exception.ConfigError(
        path='command line', field='HOST', problem=f'{host}: no campaign that goes on has it',
        remedy='kronos campaign status shows the hosts')


def _order_state(session: sessions.DatabaseSession, scope: str | None,
                 before: Collection[model.CampaignState], after: model.CampaignState,
                 command: str, reason: str) -> model.Campaign:
    store = session.existing_store
    campaign = find_live_campaign(store.campaigns.list_live_campaigns(), scope)
    if not store.campaigns.order_state(campaign.campaign_id, before, after, command=command,
                                       by=session.operator, reason=reason):
        raise exception.ConflictError(
            path='request', field=f'campaign {campaign.campaign_id}',
            problem=f'it is {campaign.state}, and not {" or ".join(before)}',
            remedy='Nothing is changed')
    return campaign


def find_live_campaign(live: Sequence[model.Campaign], scope: str | None) -> model.Campaign:
    """Return the campaign of a scope; None: the only one.

    :raises ConfigError: no campaign goes on, or several do.
    """
    found = [campaign for campaign in live if scope in (None, campaign.scope)]
    if len(found) == 1:
        return found[0]
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
    staying = {host: [b for b in blocked if not b.later]
               for host, blocked in forecast.staying.items()}
    stuck = {host: blocked for host, blocked in staying.items() if blocked}
    if not stuck and not forecast.obstacles and not forecast.unforecast:
        return
    first = next(iter(stuck), None)
    if first is None and not forecast.obstacles:
        raise exception.ConflictError(
            path='request', field='campaign',
            problem=f'{plurals.count_noun(len(forecast.unforecast), "host")} '
            f'{plurals.choose_form(len(forecast.unforecast), "was", "were")} not forecast in time, '
            f'the first {forecast.unforecast[0]}',
            remedy='Give the forecast more time, or start the campaign over fewer hosts; with '
                   'force it begins, and waits at hosts that cannot be emptied')
    raise exception.ConflictError(
        path='request', field='campaign',
        problem='; '.join(forecast.obstacles) if first is None else
        f'{plurals.count_noun(len(stuck), "host")} would keep instances, the first {first}: '
        f'{stuck[first][0].instance_uuid}: {stuck[first][0].reason}',
        remedy='kronos campaign plan has them all. Leave these hosts out, or repeat with force: '
               'the campaign then waits at them')
