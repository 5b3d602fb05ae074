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

"""The campaign of a scope, carried on after each cycle of its engine.

:mod:`campaign_steps` judges each host and :mod:`campaign_forecasts` chooses the next ones; this
module reads and writes the database, and asks Nova. Each state is written before the engine acts on
it, under the scope's lease.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.engine import campaign_verifier
from kronos_nova.rebalancer.engine import host_services
from kronos_nova.rebalancer.engine import host_work
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.engine import step_search
from kronos_nova.rebalancer.operations import beginning_drains
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.planning import campaign_steps
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.text import times

LOG = logging.getLogger(__name__)

#: Name with which an engine pauses a campaign.
AUTHOR = 'kronos-engine'
#: Steps in a row that give way because of Nova before a campaign pauses.
MOST_REFUSALS = 3


class CampaignConductor:
    """Carries the campaign of a scope on, one step for each host in a cycle.

    :param find_service: returns the nova-compute of a host, for the user of [nova].
    :param owner: name of the engine.
    :param clock: epoch seconds of this machine, those of the reading of the cloud.
    :param monotonic: seconds, for the search.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store,
                 find_service: host_services.FindService, programs: host_work.ProgramRunner,
                 announcer: notifications.PlanAnnouncer, owner: str, clock: Callable[[], float],
                 monotonic: Callable[[], float]) -> None:
        self._conf = conf
        self._store = store
        self._services = host_services.HostServices(
            store, find_service, beginning_drains.count_rival_seconds(conf))
        self._work = host_work.HostWork(conf, programs, owner)
        self._announcer = announcer
        self._owner = owner
        self._clock = clock
        self._monotonic = monotonic
        self._verifier = campaign_verifier.CampaignVerifier(conf, store, clock)
        self._search = step_search.StepSearch(monotonic)

    def conduct_campaign(self, lease: store_rows.ScopeLease,
                         outcome: planning_pipeline.PassOutcome) -> None:
        """Carry the campaign of the scope on, if it has one; after an error the next cycle does.

        :param outcome: of the cycle, from the reading of the cloud that the steps follow.
        """
        try:
            self._conduct_campaign(lease, outcome)
        except exception.KronosException as e:
            LOG.warning('Scope %s: %s Its campaign goes on in a later cycle.', lease.scope, e)
        except Exception:
            LOG.exception('Scope %s: its campaign does not go on in this cycle, for a reason that '
                          'is a defect of ours', lease.scope)

    def _conduct_campaign(self, lease: store_rows.ScopeLease,
                          outcome: planning_pipeline.PassOutcome) -> None:
        self._services.begin_cycle()
        self._services.enable_left_hosts(lease, outcome.cluster)
        campaign = self._find_campaign(lease)
        if campaign is None:
            return
        now = self._store.now()
        settings = self._build_settings(campaign, outcome, now)
        taken_at = now - (self._clock() - outcome.cluster.taken_at)
        holds = beginning_drains.map_disabling_holds(
            self._store, campaign, outcome.cluster, outcome.request.options, taken_at,
            settings.late_seconds)
        before = campaign.begun_hosts
        for begun in before:
            host: model.CampaignHost | None = begun
            while host is not None:
                reading = self._read_host(campaign, host, outcome.cluster, taken_at,
                                          holds.get(host.host))
                step = campaign_steps.judge_host(campaign, host, reading, now, settings)
                host = self._take_step(lease, campaign, host, step, now)
        # A step may have paused it, or the last host may be over.
        campaign = self._find_campaign(lease)
        if campaign is None or campaign.begun_hosts:
            if campaign is not None and campaign.state is model.CampaignState.RUNNING:
                self._record_waits(lease, campaign, '')
            return
        returned = step_search.find_returned_host(campaign, before)
        if returned is None:
            self._go_on(lease, campaign, outcome, settings, now, taken_at)
        elif campaign.state is model.CampaignState.RUNNING:
            # Later, so that drains of people that are ordered again find a gap.
            self._record_waits(lease, campaign, self._judge_return(lease, campaign, returned))

    def _find_campaign(self, lease: store_rows.ScopeLease) -> model.Campaign | None:
        """Return the live campaign of the scope; None: engines may carry no campaign on.

        One that is not authorized pauses. It, and one whose signature cannot be verified now, has
        only its hosts that are on their way back.
        """
        try:
            campaign, problem = self._verifier.find_campaign(lease)
        except exception.SigningKeyError as e:
            LOG.warning('Scope %s: %s Its campaign goes on in a later cycle.', lease.scope, e)
            campaign = self._store.campaigns.find_live_campaign(lease.scope)
            return campaign and campaign_verifier.select_way_back(campaign, lease.scope)
        if campaign is None or problem is None:
            return campaign
        self._pause_campaign(lease, campaign, f'it is not authorized: {problem}')
        return campaign_verifier.select_way_back(campaign, lease.scope)

    # The hosts that have begun.

    def _build_settings(self, campaign: model.Campaign, outcome: planning_pipeline.PassOutcome,
                        now: float) -> campaign_steps.StepSettings:
        group = self._conf.campaign
        return campaign_steps.StepSettings(
            bool(group.command), bool(group.check_command),
            self._find_hold(campaign, outcome, now), float(group.return_timeout),
            beginning_drains.count_rival_seconds(self._conf))

    def _find_hold(self, campaign: model.Campaign, outcome: planning_pipeline.PassOutcome,
                   now: float) -> str | None:
        """Return why no host begins, and no work, at the moment; None: nothing holds them."""
        cluster = outcome.request.cluster
        hold = (outcome.request.history.paused
                or (planning_holds.silent_cell(cluster.unreadable_hosts)
                    if cluster.unreadable_hosts else None)
                or planning_holds.find_outage_reason(cluster, outcome.request.options))
        if hold is not None:
            return hold
        opening = maintenance_windows.find_opening(
            campaign.windows, now, self._conf.engine.freeze_timezone)
        if opening > now:
            return f'the next window opens at {times.format_time(opening)}'
        return None

    def _read_host(self, campaign: model.Campaign, host: model.CampaignHost,
                   cluster: model.Cluster, taken_at: float,
                   hold: str | None) -> campaign_steps.HostReading:
        found = cluster.hosts.get(host.host)
        providers = [] if found is None or found.provider is None else [
            found.provider, *found.nested]
        claimed = {name for provider in providers for name, amount in provider.used.items()
                   if amount}
        instances = sum(i.host == host.host for i in cluster.instances.values()) + len(
            drains.list_incoming_instances(cluster, host.host))
        return campaign_steps.HostReading(
            cluster.services.get(host.host), instances, claimed, taken_at,
            self._work.poll_program(campaign, host, cluster.services.get(host.host)), hold)

    def _take_step(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                   host: model.CampaignHost, step: campaign_steps.HostStep,
                   now: float) -> model.CampaignHost | None:
        """Write what changes, then do the deed; return the host in a new state, which goes on."""
        values: dict[str, Any] = {}
        if step.state is not None:
            values = {'state': step.state.value, 'since': now, 'worker': None}
        if step.state is model.CampaignHostState.HELD:
            host = dataclasses.replace(host, announced_at=None)
            values['announced_at'] = None
        if step.disabled:
            values['disabled_at'] = now
            self._record_refusals(lease, campaign, 0)
        detail = step.detail or step.trouble
        if step.state is not None or detail != host.detail:
            values['detail'] = detail
        if step.trouble and campaign.state is model.CampaignState.RUNNING:
            self._pause_campaign(lease, campaign, step.trouble)
        if values and not self._store.campaigns.change_host(lease, campaign.campaign_id, host,
                                                            **values):
            return None  # an operator was faster
        if step.deed is not None:
            self._do_deed(lease, campaign, host, step.deed, now)
        if step.state is None:
            return None
        self._work.forget_command(campaign, host)
        LOG.info('Campaign %s: host %s is %s now%s', campaign.campaign_id, host.host, step.state,
                 f': {step.detail}' if step.detail else '')
        return dataclasses.replace(host, state=step.state, since=now, worker=None,
                                   detail=detail) if step.state.is_begun else None

    def _do_deed(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                 host: model.CampaignHost, deed: campaign_steps.Deed, now: float) -> None:
        """Do the deed; what fails is tried again in the next cycle."""
        try:
            if deed is campaign_steps.Deed.ANNOUNCE:
                if self._announcer.announce_held_host(campaign, host):
                    self._store.campaigns.change_host(lease, campaign.campaign_id, host,
                                                      announced_at=now)
            elif deed is campaign_steps.Deed.BEGIN_WORK:
                self._begin_work(lease, campaign, host, now)
            elif deed is campaign_steps.Deed.DISABLE:
                self._services.disable_host(lease, campaign, host.host)
            else:
                self._services.enable_host(lease, campaign, host)
        except api.ApiError as e:
            LOG.warning('Campaign %s: host %s: %s. A later cycle tries again.',
                        campaign.campaign_id, host.host, e)
            # Not while an earlier request may still come.
            if deed is campaign_steps.Deed.DISABLE and not e.sent and host.asked_at is None:
                self._store.campaigns.return_hosts(
                    lease, campaign.campaign_id, [host.host], now,
                    campaign_steps.describe_return(str(e)))
            else:
                self._store.campaigns.change_host(lease, campaign.campaign_id, host, detail=str(e))

    def _begin_work(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                    host: model.CampaignHost, now: float) -> None:
        """Run the command for a held host, once.

        :raises ApiError: Nova cannot be read; nothing was begun.
        """
        service = self._services.find_service(host.host)
        _uuid, present = service.read_service()
        left = service.list_left_servers()
        if present.enabled or present.disabled_reason != campaign.reason or left:
            LOG.warning('Campaign %s: host %s is held, but Nova shows it enabled, or with %d '
                        'servers; the command waits', campaign.campaign_id, host.host, len(left))
            return
        if not self._store.campaigns.begin_work(lease, campaign.campaign_id, host.host,
                                                self._owner, now):
            return
        # An engine that stood still since then may no longer run the command.
        if not self._works_here(campaign, host.host):
            LOG.warning('Campaign %s: the command of host %s is not run: this engine stood still, '
                        'and the host is no longer its own', campaign.campaign_id, host.host)
            return
        problem = self._work.start_command(campaign, host)
        if problem is not None:
            self._store.campaigns.change_host(
                lease, campaign.campaign_id, dataclasses.replace(
                    host, state=model.CampaignHostState.WORKING),
                state=model.CampaignHostState.FAILED.value, since=now, worker=None,
                detail=problem)
            self._pause_campaign(
                lease, campaign, f'the command of host {host.host} was not run: {problem}; kronos '
                                 'campaign repeat runs it again')

    def _works_here(self, campaign: model.Campaign, host: str) -> bool:
        """Return whether the database says that this engine runs the command of a host."""
        found = self._store.campaigns.find_live_campaign(campaign.scope)
        return found is not None and found.campaign_id == campaign.campaign_id and any(
            (h.host, h.state, h.worker) == (host, model.CampaignHostState.WORKING, self._owner)
            for h in found.hosts)

    def _pause_campaign(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                        because: str) -> None:
        if self._store.campaigns.pause_campaign(lease, campaign.campaign_id, AUTHOR, because):
            LOG.error('Campaign %s pauses: %s', campaign.campaign_id, because)
            self._announcer.announce_campaign(campaign, model.CampaignState.PAUSED,
                                              self._store.now(), because)

    # The next step.

    def _go_on(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
               outcome: planning_pipeline.PassOutcome, settings: campaign_steps.StepSettings,
               now: float, taken_at: float) -> None:
        """Begin the next step, or end a campaign whose hosts are all over."""
        to_come = campaign.select_hosts(model.CampaignHostState.TO_COME)
        if not to_come:
            self._end_campaign(lease, campaign, now)
            return
        if campaign.state is not model.CampaignState.RUNNING:
            return
        waits = settings.may_begin
        if waits is None:
            found = self._search.choose_hosts(campaign, to_come, outcome,
                                              now - settings.late_seconds)
            waits = found if isinstance(found, str) else self._begin_step(
                lease, campaign, found, outcome, settings, now, taken_at)
        self._record_waits(lease, campaign, waits or '')

    def _record_waits(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                      waits: str) -> None:
        """Write why no further host begins, if that is news."""
        if waits == campaign.waits:
            return
        self._store.campaigns.record_waits(lease, campaign.campaign_id, waits)
        if waits:
            LOG.info('Campaign %s waits: %s', campaign.campaign_id, waits)

    def _begin_step(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                    chosen: step_search.ChosenHosts, outcome: planning_pipeline.PassOutcome,
                    settings: campaign_steps.StepSettings, now: float,
                    taken_at: float) -> str | None:
        """Let the next hosts begin; return why all had to give way, None: a host goes on.

        One look for drains that begin is enough for all hosts: a later drain sees their rows, and
        a look for each host would give way to a drain that gives way to this step.
        """
        campaigns, campaign_id = self._store.campaigns, campaign.campaign_id
        begun = campaigns.begin_step(lease, campaign_id, chosen.hosts, opened=chosen.opened,
                                     now=now)
        rival = beginning_drains.find_beginning_drain(
            self._store, outcome.cluster, taken_at, settings.late_seconds,
            campaign_id=campaign_id)
        if begun and rival is not None:
            campaigns.return_hosts(lease, campaign_id, [host.host for host in begun], now,
                                   campaign_steps.describe_return(rival.clause))
        for host in begun if rival is None else ():
            LOG.info('Campaign %s: host %s is next', campaign_id, host.host)
            self._do_deed(lease, campaign, host, campaign_steps.Deed.DISABLE, now)
        after = campaigns.find_campaign(campaign_id)
        if after is None or after.begun_hosts:
            return None
        returned = step_search.find_returned_host(after, begun)
        return None if returned is None else self._judge_return(lease, after, returned)

    def _judge_return(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                      host: model.CampaignHost) -> str:
        """Return why a campaign waits whose last step gave way; pause it if Nova is often why."""
        refusals = campaign.refusals + 1 if campaign_steps.is_refused(host) else 0
        if refusals >= MOST_REFUSALS:
            self._pause_campaign(
                lease, campaign, f'{MOST_REFUSALS} steps in a row gave way because of Nova, '
                f'the last one with host {host.host}, which is {host.detail}; kronos campaign '
                'resume tries again, and skip leaves the host out')
            refusals = 0
        self._record_refusals(lease, campaign, refusals)
        return f'host {host.host} is {host.detail}; a later cycle plans the step again'

    def _record_refusals(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                         number: int) -> None:
        """Write how many steps in a row gave way because of Nova, if that is news.

        The next engine goes on with the number, so that also engines that change pause.
        """
        if number != campaign.refusals:
            self._store.campaigns.record_refusals(lease, campaign.campaign_id, number)

    def _end_campaign(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                      now: float) -> None:
        if self._store.campaigns.end_campaign(lease, campaign, now):
            state = (model.CampaignState.ABORTED if campaign.state is model.CampaignState.ABORTING
                     else model.CampaignState.DONE)
            LOG.info('Campaign %s is %s', campaign.campaign_id, state)
            self._announcer.announce_campaign(campaign, state, now, campaign.held_because)
