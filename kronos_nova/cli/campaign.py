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

"""``kronos campaign``: forecast, order and follow a campaign that empties many hosts."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import sys
import time
from typing import Any

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import campaign_views
from kronos_nova.rebalancer.operations import campaigns
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.text import printable
from kronos_nova.text import times
from kronos_nova.wiring import tools

#: Instances that stay on a host and are named; all are counted.
NAMED = 20
#: Hosts that a row names at most.
HOSTS_NAMED = 10


class PlanCampaign(command.TableCommand):
    """Forecast a campaign that empties hosts one after the other, for a reboot or an upgrade.

    Each step empties one or more hosts, which are enabled again before the next step. No instance
    moves onto a host that is still to come, where it would move again, as long as the search finds
    room elsewhere. Reads the cloud as a planning cycle does, or a snapshot, and changes nothing.
    The exit status is 1 when an instance would stay on a host, engines would not carry it out, or
    the time was over before all hosts were forecast.
    """

    columns = ('What', 'Verdict', 'Detail')
    examples = ('--aggregate rack-12', 'compute-01 compute-02 compute-03 --together 1',
                '--aggregate rack-12 --window "Sat 22:00-04:00" --work 20m')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_forecast(parser)
        parser.add_argument('--begin', type=_parse_begin, metavar='TIME',
                            help='When the campaign is to be started: 2026-11-28T22:00Z. Default: '
                                 'the time at which the cloud was read.')
        command.add_snapshot(parser)
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with (self.open_session(cloud_state.Session, args) as session,
              command.open_bar(session) as show_progress):
            forecast = campaigns.plan_campaign(
                session, args.hosts, args.aggregate, args.together, show_progress,
                windows=args.window, begin=args.begin, work_seconds=args.work,
                max_seconds=args.max_seconds)
        rows = [command.format_printable_row(row) for row in _render_rows(forecast)]
        self.status = int(rows[-1][1] != 'possible')
        return rows


def _add_forecast(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a forecast: which hosts are emptied, and when."""
    parser.add_argument('hosts', nargs='*', metavar='HOST',
                        help='Their names as compute services.')
    parser.add_argument('--aggregate', metavar='NAME',
                        help='All compute hosts of this aggregate.')
    parser.add_argument('--together', type=int, metavar='N',
                        help='Most hosts that are emptied at a time. Without it: as many as '
                             '[engine] max_drain_fraction lets engines drain, '
                             f'{campaigns.TOGETHER} at most.')
    parser.add_argument('--window', action='append', default=[], metavar='WINDOW',
                        help='When a host may begin, and the work: "Sat 22:00-04:00", '
                             '"Mon-Fri 1:30-5:00", "22:00-06:00"; repeatable. By the clocks of '
                             '[engine] freeze_timezone. Without it: at any time.')
    parser.add_argument('--work', type=command.parse_duration, default=0.0, metavar='DURATION',
                        help='How long the work takes at the hosts of a step, such as 20m; for '
                             'the expected end alone. Default: no time.')
    command.add_max_seconds(parser, campaigns.MAX_SECONDS,
                            'Time of the forecast; hosts that it does not reach are named.')


class StartCampaign(command.BaseCommand):
    """Forecast a campaign, and let engines carry it out, step by step.

    Engines disable the next hosts, empty them, and hold them for the work: [campaign] command does
    it, or an operator, who then says kronos campaign done. Hosts that are back are enabled. The
    reason and the campaign's ID stand in Nova. The user of [nova] needs the right to update
    services.
    """

    examples = ('--aggregate rack-12 --reason "new firmware" --window "Sat 22:00-04:00"',)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_forecast(parser)
        parser.add_argument('--reason', required=True, type=_parse_reason, metavar='TEXT',
                            help='Why; Nova keeps it as disabled_reason of each host.')
        parser.add_argument('--force', action='store_true',
                            help='Also when instances would stay on a host, engines would not '
                                 'carry it out now, or hosts were not forecast in time.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.run_guarded(lambda: self._start_campaign(parsed_args))

    def _start_campaign(self, args: argparse.Namespace) -> None:
        with (self.open_session(cloud_state.Session, args) as session,
              command.open_bar(session) as show_progress):
            campaign, forecast = campaign_orders.start_campaign(
                session, campaign_orders.CampaignRequest(
                    args.hosts, args.aggregate, args.reason, args.together, args.window,
                    args.force, args.work, args.max_seconds), show_progress)
        _kind, verdict, text = _render_conclusion(forecast)
        hosts = plurals.count_noun(len(campaign.hosts), 'host')
        together = (f' It empties {campaign.together} at a time: {forecast.together_reason}.'
                    if forecast.together_reason else '')
        sys.stdout.write(tools.format_printable(
            f'Campaign {campaign.campaign_id} over {hosts} of scope {campaign.scope} has started '
            f'({verdict}: {text}).{together} kronos campaign status shows how far it is.') + '\n')


class ShowCampaigns(database_command.DatabaseTable):
    """Show the campaigns that go on, with each host; --all: also those that have ended.

    The first row of a campaign says how far it is, and why it does not go on.
    """

    columns = ('Campaign', 'Host', 'State', 'Since', 'Detail')
    examples = ('', '--scope ssd', '--all')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME', help='Only that of this scope.')
        parser.add_argument('--all', action='store_true',
                            help=f'Also the last {campaign_views.MOST} that have ended.')
        return parser

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        for campaign in campaign_views.list_campaigns(session, args.scope, ended=args.all):
            if isinstance(campaign, model.UnreadableCampaign):
                yield command.format_printable_row((
                    campaign.campaign_id, '', 'unreadable', '',
                    f'scope {campaign.scope}; {campaign.field}: {campaign.problem}. '
                    f'{campaign.remedy}'))
                continue
            yield command.format_printable_row((
                campaign.campaign_id, '', campaign.state, times.format_time(campaign.created_at),
                campaign_views.describe_campaign(campaign)))
            for host in campaign.hosts:
                yield command.format_printable_row((
                    campaign.campaign_id, host.host, host.state, times.format_time(host.since),
                    host.detail))


class _CampaignOrder(database_command.DatabaseCommand):
    """An order for the campaign of a scope."""

    examples: tuple[str, ...] = ('--reason "network upgrade"', '--scope ssd --reason "a mistake"')
    #: Whether a reason must be given.
    needs_reason = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME',
                            help='An aggregate, or _unassigned_. Default: that of the only '
                                 'campaign.')
        parser.add_argument('--reason', required=self.needs_reason, default='', metavar='TEXT',
                            help='Why; kronos campaign status and the audit say it.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def run_order(session: Any) -> None:
            sys.stdout.write(tools.format_printable(self.give_order(
                session, parsed_args.scope,
                printable.format_single_line(parsed_args.reason))) + '\n')

        self.run_in_session(parsed_args, run_order)

    def give_order(self, session: Any, scope: str | None, reason: str) -> str:
        """Give the order; return what follows, for people."""
        raise NotImplementedError


class PauseCampaign(_CampaignOrder):
    """Begin with no further host, and with no work, until kronos campaign resume.

    Hosts that are being emptied are emptied to the end; hosts that come back are enabled.
    """

    def give_order(self, session: Any, scope: str | None, reason: str) -> str:
        campaign = campaign_orders.pause_campaign(session, scope, reason)
        return f'Campaign {campaign.campaign_id} pauses.'


class ResumeCampaign(_CampaignOrder):
    """Let a campaign that pauses go on.

    A host that another user has enabled while the campaign emptied it is disabled again.
    """

    examples = ('', '--scope ssd')
    needs_reason = False

    def give_order(self, session: Any, scope: str | None, reason: str) -> str:
        campaign = campaign_orders.resume_campaign(session, scope, reason)
        return f'Campaign {campaign.campaign_id} goes on.'


class AbortCampaign(_CampaignOrder):
    """End a campaign.

    Hosts that are being emptied are enabled. Those that are held for the work, or where it has
    begun, are enabled after kronos campaign done or skip.
    """

    def give_order(self, session: Any, scope: str | None, reason: str) -> str:
        campaign = campaign_orders.abort_campaign(session, scope, reason)
        return (f'Campaign {campaign.campaign_id} ends; engines enable the hosts that they were '
                'emptying. kronos campaign status shows the others.')


class _HostOrder(database_command.DatabaseCommand):
    """An order for a host of a campaign."""

    examples = ('compute-07',)
    host_order: Any
    follows: str

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='Its name as a compute service.')
        parser.add_argument('--reason', default='', metavar='TEXT', help='Why; the audit says it.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def give_order(session: Any) -> None:
            campaign_orders.order_host(session, parsed_args.host, self.host_order,
                                       printable.format_single_line(parsed_args.reason))
            sys.stdout.write(tools.format_printable(
                f'Host {parsed_args.host}: {self.follows}') + '\n')

        self.run_in_session(parsed_args, give_order)


class EndWork(_HostOrder):
    """Say that the work at a host is done.

    The engine enables the host once its nova-compute reports and the check succeeds, if there is
    one ([campaign] check_command).
    """

    host_order = campaign_orders.DONE
    follows = 'the engine enables it once it is back.'


class RepeatWork(_HostOrder):
    """Run the command for a host again, after it failed or its end is not known.

    See first whether the command still runs, or has done its work.
    """

    host_order = campaign_orders.REPEAT
    follows = 'the command runs again once the campaign goes on (kronos campaign resume).'


class SkipHost(_HostOrder):
    """Leave a host out of its campaign; the engine enables it at once, without the work.

    To keep a broken host out, disable it for another reason first.
    """

    host_order = campaign_orders.SKIP
    follows = 'the campaign leaves it out.'


def _parse_reason(text: str) -> str:
    """Check the reason of a campaign: Nova's disabled_reason has its ID as well."""
    reason = ' '.join(text.split())
    if not reason or len(reason) > campaign_orders.REASON_LENGTH or not reason.isprintable():
        raise argparse.ArgumentTypeError(
            f'write 1 to {campaign_orders.REASON_LENGTH} printable characters')
    return reason


def _parse_begin(text: str) -> float:
    try:
        return times.parse_time(text, time.time())
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def _render_rows(forecast: campaign_forecasts.CampaignForecast) -> Iterator[tuple[str, str, str]]:
    for obstacle in forecast.obstacles:
        yield 'engines', 'refuse', obstacle
    for number, step in enumerate(forecast.steps, 1):
        detail = f'{_name_hosts(step.hosts)}: {plurals.count_noun(len(step.moves), "move")}'
        if step.again:
            detail += f', {step.again} to hosts that are still to come'
        if step.seconds is not None and step.moves:
            detail += f', about {_format_minutes(step.seconds)}'
        if number <= len(forecast.schedule):
            times_ = forecast.schedule[number - 1]
            detail += (f'; begins {times.format_time(times_.begins_at)}, ends '
                       f'{times.format_time(times_.ends_at)}')
        yield f'step {number}', 'empties', detail
    for host, blocked in forecast.staying.items():
        for instance in blocked[:NAMED]:
            yield (f'instance {instance.instance_uuid}', 'not forecast' if instance.is_cut_off
                   else 'later' if instance.later else 'stays', f'on {host}: {instance.reason}')
        if len(blocked) > NAMED:
            yield (f'host {host}', 'stays',
                   f'{plurals.count_noun(len(blocked) - NAMED, "more instance")}')
    for host in forecast.unforecast:
        yield f'host {host}', 'not forecast', 'not forecast in time (--max-seconds)'
    if forecast.together_reason:
        yield 'together', str(forecast.together), forecast.together_reason
    if forecast.migrations and forecast.seconds is None:
        yield 'time', 'not known', 'no migration is on record'
    yield _render_conclusion(forecast)


def _render_conclusion(forecast: campaign_forecasts.CampaignForecast) -> tuple[str, str, str]:
    emptied = sum(len(step.hosts) for step in forecast.steps)
    text = (f'{plurals.count_noun(emptied, "host")} in '
            f'{plurals.count_noun(len(forecast.steps), "step")}; '
            f'{plurals.count_noun(forecast.migrations, "migration")}, '
            f'{plurals.count_noun(forecast.instances, "instance")} on these hosts')
    if forecast.instances:
        text += f' ({forecast.migrations / forecast.instances:.2f} for each)'
    if forecast.migrations and forecast.seconds is not None:
        text += f', about {_format_minutes(forecast.seconds)} of migrations'
    text += _describe_end(forecast)
    if forecast.stuck:
        return ('conclusion', 'blocked', f'{_count_kept(forecast)}; {text}')
    lacking = [f'{plurals.count_noun(len(hosts), "host")} not forecast {how}' for hosts, how in (
        (forecast.unforecast, 'in time'), (forecast.unjudged, 'to the end')) if hosts]
    if lacking:
        return 'conclusion', 'incomplete', '; '.join((*lacking, text))
    if forecast.staying:
        return ('conclusion', 'waits', f'{_count_kept(forecast)} for now; {text}')
    return 'conclusion', 'waits' if forecast.obstacles else 'possible', text


def _describe_end(forecast: campaign_forecasts.CampaignForecast) -> str:
    """Return when the last step is expected to end, as far as the steps have times."""
    if not forecast.steps or len(forecast.schedule) < len(forecast.steps):
        return ''
    end = times.format_time(forecast.schedule[-1].ends_at)
    return (f'; these hosts are done about {end}' if forecast.staying or forecast.unforecast else
            f'; the expected end is {end}')


def _count_kept(forecast: campaign_forecasts.CampaignForecast) -> str:
    kept = [host for host, blocked in forecast.staying.items()
            if not all(instance.is_cut_off for instance in blocked)]
    return (f'{plurals.count_noun(len(kept), "host")} would keep instances: {_name_hosts(kept)}')


def _name_hosts(hosts: Sequence[str]) -> str:
    """Return the names of the hosts, or of the first and the number of others."""
    more = len(hosts) - HOSTS_NAMED
    return ', '.join(hosts[:HOSTS_NAMED]) + (
        f' and {plurals.count_noun(more, "more host")}' if more > 0 else '')


def _format_minutes(seconds: float) -> str:
    return (plurals.count_noun(max(1, round(seconds / 60)), 'minute') if seconds < 7200 else
            f'{seconds / 3600:.1f} hours')
