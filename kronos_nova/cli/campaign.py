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

"""``kronos campaign plan``: the forecast of a campaign over many hosts."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import sys

from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaigns
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.text import progress

#: Instances that stay on a host and are named; all are counted.
NAMED = 20
#: Hosts that a row names at most.
HOSTS_NAMED = 10


class PlanCampaign(command.TableCommand):
    """Forecast a campaign that empties hosts one after the other, for a reboot or an upgrade.

    Each step empties one or more hosts, which are enabled again before the next step. No instance
    moves onto a host that is still to come, where it would move again, as long as the search finds
    room elsewhere. Reads the cloud as a planning cycle does, or a snapshot, and changes nothing.
    The exit status is 1 when an instance would stay on a host, or engines would not carry it out.
    """

    columns = ('What', 'Verdict', 'Detail')
    examples = ('--aggregate rack-12', 'compute-01 compute-02 compute-03 --together 1')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('hosts', nargs='*', metavar='HOST',
                            help='Their names as compute services.')
        command.add_snapshot(parser)
        parser.add_argument('--aggregate', metavar='NAME',
                            help='All compute hosts of this aggregate.')
        parser.add_argument('--together', type=int, metavar='N',
                            help='Most hosts that are emptied at a time. Without it: as many as '
                                 '[engine] max_drain_fraction lets engines drain.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with (self.open_session(cloud_state.Session, args) as session,
              progress.ProgressLine(sys.stderr) as line):
            forecast = campaigns.plan_campaign(session, args.hosts, args.aggregate, args.together,
                                               line.show_progress)
        rows = [command.format_printable_row(row) for row in _render_rows(forecast)]
        self.status = int(rows[-1][1] != 'possible')
        return rows


def _render_rows(forecast: campaign_forecasts.CampaignForecast) -> Iterator[tuple[str, str, str]]:
    for obstacle in forecast.obstacles:
        yield 'engines', 'refuse', obstacle
    for number, step in enumerate(forecast.steps, 1):
        detail = f'{_name_hosts(step.hosts)}: {plurals.count_noun(len(step.moves), "move")}'
        if step.again:
            detail += f', {step.again} to hosts that are still to come'
        if step.seconds is not None and step.moves:
            detail += f', about {_format_minutes(step.seconds)}'
        yield f'step {number}', 'empties', detail
    for host, blocked in forecast.staying.items():
        for instance in blocked[:NAMED]:
            yield (f'instance {instance.instance_uuid}', 'later' if instance.later else 'stays',
                   f'on {host}: {instance.reason}')
        if len(blocked) > NAMED:
            yield (f'host {host}', 'stays',
                   f'{plurals.count_noun(len(blocked) - NAMED, "more instance")}')
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
    if any(not instance.later for blocked in forecast.staying.values() for instance in blocked):
        return ('conclusion', 'blocked', f'{_count_kept(forecast)}; {text}')
    if forecast.staying:
        return ('conclusion', 'waits', f'{_count_kept(forecast)} for now; {text}')
    return 'conclusion', 'waits' if forecast.obstacles else 'possible', text


def _count_kept(forecast: campaign_forecasts.CampaignForecast) -> str:
    return (f'{plurals.count_noun(len(forecast.staying), "host")} would keep instances: '
            f'{_name_hosts(tuple(forecast.staying))}')


def _name_hosts(hosts: Sequence[str]) -> str:
    """Return the names of the hosts, or of the first and the number of others."""
    more = len(hosts) - HOSTS_NAMED
    return ', '.join(hosts[:HOSTS_NAMED]) + (
        f' and {plurals.count_noun(more, "more host")}' if more > 0 else '')


def _format_minutes(seconds: float) -> str:
    return (plurals.count_noun(max(1, round(seconds / 60)), 'minute') if seconds < 7200 else
            f'{seconds / 3600:.1f} hours')
