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

"""``openstack rebalance campaign``: list, show, start, pause, resume, abort, done, repeat, skip."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions

from kronos_nova.osc import campaign_waits
from kronos_nova.osc import client
from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import references
from kronos_nova.osc.columns import Column
from kronos_nova.text import printable

STATES = ('running', 'paused', 'aborting', 'done', 'aborted')
#: States of hosts that take no order any more: another campaign may have them.
_OVER = ('done', 'skipped')


def _format_hosts(campaign: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    return columns.Cell(campaign['host_over_count'],
                        f'{campaign["host_over_count"]}/{campaign["host_count"]}')


def _describe_hold(campaign: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    hold = campaign['held_because'] or campaign['waits']
    return columns.Cell(hold, printable.format_printable(hold or '') if style.full else
                        str(columns.read_sentence('hold', 19)({'hold': hold}, style)))


def _format_count(count: Mapping[str, Any]) -> str:
    return f'{count["count"]} {count["state"]}'


def _format_host(host: Mapping[str, Any]) -> str:
    detail = f': {host["detail"]}' if host['detail'] else ''
    return printable.format_printable(f'{host["host"]} {host["state"]} since '
                                      f'{columns.format_time(host["since"])}{detail}')


def _format_staying(instance: Mapping[str, Any]) -> str:
    verb = 'leaves later' if instance['leaves_later'] else 'stays'
    return f'{instance["instance_id"]} on {instance["host"]} {verb}: {instance["reason"]}'


#: Fields of a campaign with its hosts.
FIELDS = (
    Column('id', columns.read_text('id')), Column('scope', columns.read_text('scope')),
    Column('state', columns.read_text('state')), Column('reason', columns.read_text('reason')),
    Column('created_at', columns.read_time('created_at')),
    Column('created_by', columns.read_text('created_by')),
    Column('ended_at', columns.read_time('ended_at')),
    Column('windows', columns.read_lines('windows')),
    Column('hosts_together', columns.read_text('hosts_together')),
    Column('hosts_by_state', columns.read_lines('hosts_by_state', _format_count)),
    Column('next_host', columns.read_text('next_host')),
    Column('held_by', columns.read_text('held_by')),
    Column('held_because', columns.read_text('held_because')),
    Column('waits', columns.read_text('waits')),
    Column('migration_count', columns.read_text('migration_count')),
    Column('migrations_left', columns.read_text('migrations_left')),
    Column('expected_seconds_left', columns.read_text('expected_seconds_left')),
    Column('hosts', columns.read_lines('hosts', _format_host)))


class ListCampaigns(command.ListResources):
    """List campaigns, newest first."""

    columns = (
        Column('ID', columns.read_text('id')),
        Column('Scope', columns.read_name('scope', 10)),
        Column('State', columns.read_text('state')),
        Column('Over', _format_hosts),
        Column('Held', _describe_hold),
        Column('Created At', columns.read_time('created_at'), long=True),
        Column('Created By', columns.read_text('created_by'), long=True),
        Column('Next Host', columns.read_text('next_host'), long=True),
        Column('Migrations', columns.read_text('migration_count'), long=True),
        Column('Migrations Left', columns.read_text('migrations_left'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_page_options(parser, 20)
        parser.add_argument('--state', metavar='<state>', action='append', choices=STATES,
                            help=f'Only in this state ({", ".join(STATES)}); repeatable.')
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return self.list_page(args, '/v1/campaigns', 'campaigns', {
            'scope': args.scope, 'changes-since': args.changes_since, 'state': args.state})


class ShowCampaign(command.ShowResource):
    """Show a campaign with its hosts.

    With --wait and --watch the exit status is 1 unless the campaign ends done.
    """

    fields = FIELDS

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_campaign(parser)
        campaign_waits.add_options(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        campaign_id = _find_campaign(self.client, args)
        if not (args.wait or args.watch):
            return dict(self.client.send('GET', f'/v1/campaigns/{campaign_id}'))
        return _wait_for_end(self, campaign_id, args)


class StartCampaign(command.ShowResource):
    """Forecast a campaign, and let engines empty hosts one after the other, for maintenance.

    Nova must allow you to update compute services. Engines disable the next hosts, empty them, hold
    them for the work, and enable them. The forecast alone: kronos campaign plan on a controller.
    With --wait and --watch the exit status is 1 unless the campaign ends done.
    """

    fields = (*FIELDS,
              Column('hosts_together_reason', columns.read_text('hosts_together_reason')),
              Column('step_count', columns.read_text('step_count')),
              Column('instance_count', columns.read_text('instance_count')),
              Column('expected_seconds', columns.read_text('expected_seconds')),
              Column('staying', columns.read_lines('staying', _format_staying)),
              Column('obstacles', columns.read_lines('obstacles')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('hosts', metavar='<host>', nargs='*', type=command.parse_text,
                            help='Names of compute services.')
        parser.add_argument('--aggregate', metavar='<aggregate>', type=command.parse_text,
                            help='All compute hosts of this aggregate.')
        parser.add_argument('--together', metavar='<number>', type=int,
                            help='Most hosts that are emptied at a time. Default: as many as '
                                 'engines drain at a time, eight at most.')
        parser.add_argument('--reason', metavar='<reason>', required=True, type=command.parse_text,
                            help='Why; Nova keeps it with each host, and the audit with your '
                                 'name.')
        parser.add_argument('--window', metavar='<window>', action='append', default=[],
                            type=command.parse_text,
                            help='When a host may begin, and the work: "Sat 22:00-04:00", "Mon-Fri '
                                 '1:30-5:00", "22:00-06:00"; repeatable. By the clocks of '
                                 '[engine] freeze_timezone.')
        parser.add_argument('--force', action='store_true',
                            help='Also when instances would stay on a host, or engines would not '
                                 'carry it out now.')
        campaign_waits.add_options(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        started = dict(self.client.send('POST', '/v1/campaigns', body={
            'hosts': args.hosts, 'aggregate': args.aggregate, 'reason': args.reason,
            'together': args.together, 'windows': args.window, 'force': args.force}))
        campaign = started.pop('campaign')
        if args.wait or args.watch:
            self.warn(f'Campaign {campaign["id"]} has started.')
            campaign = _wait_for_end(self, campaign['id'], args)
        return {**started, **campaign}


def _wait_for_end(shown: command.RebalanceCommand, campaign_id: str,
                  args: argparse.Namespace) -> client.Document:
    """Return the campaign once it has ended, and set the exit status of the command."""
    campaign = campaign_waits.wait_for_campaign(shown.client, campaign_id, args, shown.stderr)
    shown.status = int(campaign['state'] != 'done')
    return campaign


class _CampaignOrder(command.ShowResource):
    """An order for a campaign; ``verb``: the end of its address."""

    fields = FIELDS
    verb: str
    reason_required = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_campaign(parser)
        command.add_reason(parser, self.reason_required)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        campaign_id = _find_campaign(self.client, args)
        return dict(self.client.send('POST', f'/v1/campaigns/{campaign_id}/{self.verb}', body={
            'reason': args.reason}))


class PauseCampaign(_CampaignOrder):
    """Pause a campaign: no further host begins, and no work does.

    Hosts that are being emptied are emptied to the end; hosts that come back are enabled.
    """

    verb = 'pause'


class ResumeCampaign(_CampaignOrder):
    """Let a campaign that pauses go on.

    Nova must allow you to update compute services. A host that another user has enabled while the
    campaign emptied it is disabled again.
    """

    verb = 'resume'
    reason_required = False


class AbortCampaign(_CampaignOrder):
    """End a campaign: hosts that are being emptied are enabled.

    Nova must allow you to update compute services. Hosts that are held for the work, or where it
    has begun, are enabled after openstack rebalance campaign done or skip.
    """

    verb = 'abort'


class _HostOrder(command.ShowResource):
    """An order for a host of a campaign; ``verb``: the end of its address."""

    fields = FIELDS
    verb: str

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='<host>', type=command.parse_text,
                            help='Its name as a compute service.')
        parser.add_argument('--campaign', metavar='<campaign>',
                            help='UUID of its campaign, or the beginning that no other one has. '
                                 'Default: the campaign that has the host and goes on.')
        command.add_reason(parser, required=False)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        campaign_id = (_find_host_campaign(self.client, args.host) if args.campaign is None
                       else references.find_id(self.client, 'campaign', args.campaign))
        return dict(self.client.send('POST', f'/v1/campaigns/{campaign_id}/{self.verb}', body={
            'host': args.host, 'reason': args.reason}))


class EndWork(_HostOrder):
    """Say that the work at a host is done; engines enable the host once it is back.

    Nova must allow you to update compute services.
    """

    verb = 'done'


class RepeatWork(_HostOrder):
    """Run the command for a host again, after it failed or its end is not known.

    Nova must allow you to update compute services. See first whether the command still runs, or has
    done its work.
    """

    verb = 'repeat'


class SkipHost(_HostOrder):
    """Leave a host out of its campaign; engines enable it at once, without the work.

    Nova must allow you to update compute services. To keep a broken host out, disable it for
    another reason first.
    """

    verb = 'skip'


def _add_campaign(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument('campaign', metavar='<campaign>', nargs='?',
                       help='UUID of the campaign, or the beginning that no other one has. '
                            'Default: the only campaign that goes on.')
    group.add_argument('--scope', metavar='<scope>', type=command.parse_text,
                       help='The campaign of this scope that goes on.')


def _find_campaign(rebalance: client.RebalanceClient, args: argparse.Namespace) -> str:
    """Return the UUID of the campaign that the arguments name.

    One that the service cannot read counts: no other one is the only one beside it.

    :raises CommandError: none goes on, or several do.
    """
    if args.campaign is not None:
        return references.find_id(rebalance, 'campaign', args.campaign)
    found, unreadable = _list_live_campaigns(rebalance, args.scope)
    named = [str(row['id']) for row in (*found, *unreadable)]
    if len(named) == 1:
        return named[0]  # The service refuses an order for one that it cannot read, and says why.
    if named:
        raise exceptions.CommandError('. '.join((
            f'<campaign>: {named[0]} and {named[1]} go on; name one, or its --scope',
            *map(command.describe_unreadable, unreadable))))
    place = '' if args.scope is None else f' in scope {args.scope}'
    raise exceptions.CommandError(
        f'<campaign>: no campaign goes on{place}; openstack rebalance campaign list shows all')


def _find_host_campaign(rebalance: client.RebalanceClient, host: str) -> str:
    """Return the UUID of the campaign that goes on and has a host, which is not over there.

    :raises CommandError: none has.
    """
    found, unreadable = _list_live_campaigns(rebalance, None)
    for campaign in found:
        shown = rebalance.send('GET', f'/v1/campaigns/{campaign["id"]}')
        if any(row['host'] == host and row['state'] not in _OVER for row in shown['hosts']):
            return str(campaign['id'])
    problem = f'<host>: no campaign that goes on has the host {printable.format_printable(host)}'
    if unreadable:
        raise exceptions.CommandError(
            f'{problem}, but ' + '; '.join(map(command.describe_unreadable, unreadable)))
    raise exceptions.CommandError(f'{problem}; openstack rebalance campaign show shows the hosts')


def _list_live_campaigns(rebalance: client.RebalanceClient, scope: str | None,
                         ) -> tuple[list[client.Document], list[client.Document]]:
    """Return the campaigns that go on, and apart those that the service cannot read."""
    unreadable: list[client.Document] = []
    return list(rebalance.list_rows('/v1/campaigns', 'campaigns', {
        'scope': scope, 'state': campaign_waits.LIVE}, note_unreadable=unreadable.append)
    ), unreadable
