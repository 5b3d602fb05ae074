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

"""Waiting for the end of a campaign, with a bar, and the reasons why it pauses or waits."""

import argparse
import datetime
import time
from typing import Any, TextIO

from osc_lib import exceptions

from kronos_nova import plurals
from kronos_nova.osc import client
from kronos_nova.osc import command
from kronos_nova.text import printable
from kronos_nova.text import progress

#: States of a campaign that goes on.
LIVE = ('running', 'paused', 'aborting')
#: Seconds between two looks.
INTERVAL = 10.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--wait``, ``--watch`` and ``--timeout``."""
    command.add_wait_options(
        parser, 'the campaign has ended; exit with 1 unless it is done', ' of a host', '7d',
        'The campaign goes on.')


def wait_for_campaign(rebalance: client.RebalanceClient, campaign_id: str,
                      args: argparse.Namespace, stderr: TextIO) -> client.Document:
    """Return a campaign once it has ended.

    :raises CommandError: the time is up, or the operator stops.
    """
    end = time.monotonic() + args.timeout
    states: dict[str, str] = {}
    hold = problem = ''
    try:
        with progress.ProgressLine(stderr) as bar:
            while True:
                try:
                    campaign, problem = dict(rebalance.send(
                        'GET', f'/v1/campaigns/{campaign_id}')), ''
                except client.UnavailableError as e:
                    campaign, problem = {}, f' {e}'
                if campaign:
                    if args.watch:
                        _write_changes(campaign, states, stderr)
                    if campaign['state'] not in LIVE:
                        return campaign
                    if (found := _describe_hold(campaign)) != hold:
                        bar.erase_line()
                        stderr.write(f'{found or "Nothing holds the campaign any longer."}\n')
                        hold = found
                    if not args.watch:
                        bar.show_progress(
                            f'{campaign["host_over_count"]} of '
                            f'{plurals.count_noun(campaign["host_count"], "host")} over',
                            campaign['host_over_count'] / campaign['host_count'])
                left = end - time.monotonic()
                if left <= 0:
                    raise exceptions.CommandError(
                        f'--timeout: campaign {campaign_id} has not ended after '
                        f'{args.timeout:.0f} s, and goes on.{problem}')
                time.sleep(min(left, INTERVAL))
    except KeyboardInterrupt:
        raise exceptions.CommandError(
            f'stopped waiting; campaign {campaign_id} goes on. openstack rebalance campaign show '
            'shows it') from None


def _describe_hold(campaign: client.Document) -> str:
    """Return a line on why no further host begins; empty: nothing holds the campaign."""
    if campaign['held_because']:
        verb = 'paused' if campaign['state'] == 'paused' else 'aborted'
        text = f'The campaign is {verb} by {campaign["held_by"]}: {campaign["held_because"]}'
    elif campaign['waits']:
        text = f'The campaign waits: {campaign["waits"]}'
    else:
        return ''
    return printable.format_printable(text)


def _write_changes(campaign: client.Document, states: dict[str, str], stderr: Any) -> None:
    now = datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
    for host in campaign['hosts']:
        before, state = states.get(host['host']), host['state']
        if before != state:
            detail = f': {host["detail"]}' if host['detail'] else ''
            stderr.write(printable.format_printable(
                f'{now} host {host["host"]}: {f"{before} to " if before else ""}{state}{detail}')
                + '\n')
            states[host['host']] = state
    stderr.flush()
