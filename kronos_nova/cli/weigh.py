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


"""``kronos weigh``: explain and tune the choice of nova-scheduler."""

import argparse
import re
from typing import Any

from cliff import lister

from kronos_nova.cli import command


class ExplainWeights(command.BaseCommand, lister.Lister):
    """Show why nova-scheduler would choose a host for a request.

    Runs Nova's own filters and weighers, as nova.conf enables them, over the cloud as it is now:
    run it where nova-scheduler runs. Nothing is claimed, written or sent. A column of a weigher is
    its normalised value x the multiplier = its part of the sum; in a table, weighers that add
    nothing to any host are left out unless --long is given.
    """

    examples = ('--flavor m1.large', '--flavor m1.large --set kronos_weight_multiplier=4')
    config = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add = parser.add_argument_group('request').add_argument
        add('--flavor', required=True, metavar='FLAVOR', help='Its name or id.')
        add('--image', metavar='IMAGE',
            help='Its name or UUID, looked up in Glance. Default: an image without properties.')
        add('--group', metavar='UUID', help='The server group that the instances are to be in.')
        add('--project', metavar='ID', help='The project that asks.')
        add('--availability-zone', metavar='ZONE',
            help='As in the request. Default: [DEFAULT] default_schedule_zone of nova.conf.')
        add('--hint', action='append', default=[], metavar='KEY=VALUE',
            help='A scheduler hint; repeatable.')
        add('--boot-from-volume', action='store_true', help='The root disk is a volume.')
        add('--num', type=int, default=1, metavar='N',
            help='Instances in the request: where each would go (default: 1).')
        add = parser.add_argument_group('explanation').add_argument
        add('--config-file', action='append', default=[], metavar='FILE',
            help='nova.conf; repeatable. Default: where nova-scheduler looks for it.')
        add('--set', action='append', default=[], dest='settings', metavar='NAME=VALUE',
            help='Also show what would change if a multiplier of [filter_scheduler] '
                 '(metrics.weight_multiplier for the one of [metrics]) or an option of [kronos] '
                 'had this value; repeatable. Metadata of aggregates still override it.')
        add('--aggregate', metavar='AGGREGATE',
            help='Show only the hosts of this one (name, id or UUID). The request is not '
                 'limited to it: ranks and normalised values are those among all hosts. To '
                 'limit the request, use --availability-zone or a flavor.')
        add('--wait', type=float, default=60.0, metavar='SECONDS',
            help='At most so long for the first scores (default: 60).')
        add('--long', action='store_true',
            help='A table with every weigher, raw values and whole reasons.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        found: list[tuple[tuple[str, ...], list[Any]]] = []

        def run() -> None:
            from kronos_nova.cli import weight_explanation

            found.append(weight_explanation.explain_request(
                parsed_args, bool(getattr(self.app_args, 'debug', False))))

        self.guarded(run)
        return found[0]


class TuneMultipliers(command.BaseCommand, lister.Lister):
    """Replay recorded boots and load against several multipliers.

    Instances that booted in the past are placed again by Nova's own weigher classes, as nova.conf
    enables them, and ours with each multiplier; the load of each instance is the recorded one.
    Shown are the overload and the spread that follow without any move, and the moves that the
    rebalancer makes later. If nova.conf enables KronosCapacityFilter, boot_ceiling is kept as well.
    Nothing is changed anywhere. The first row is history.
    """

    examples = ('--from -7d --config-file /etc/kronos/kronos.conf',
                '--trace week.json --multiplier 2 --multiplier 8')
    config = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        # "-2d" is a time and no option.
        parser._negative_number_matcher = re.compile(r'-[\d.]')
        add = parser.add_argument_group('replay').add_argument
        add('--config-file', action='append', default=[], metavar='FILE',
            help='kronos.conf: [prometheus], [engine], [executor]; repeatable.')
        add('--nova-conf', action='append', default=[], metavar='FILE',
            help='nova.conf: the weighers and their multipliers; repeatable. Default: where '
                 'nova-scheduler looks for it, else Nova\'s defaults.')
        add('--policies', action='append', default=[], metavar='FILE',
            help='A policy file, as in [kronos] policies_file; repeatable, each with aggregates of '
                 'its own. Default: [engine] policies_file.')
        add('--aggregate', action='append', default=[], metavar='NAME=X',
            help='As if metadata kronos_weight_multiplier of the aggregate were X, in every trial '
                 'but that of 0; repeatable. Other metadata are as recorded.')
        add('--multiplier', action='append', default=[], metavar='M',
            help='A kronos_weight_multiplier to try; repeatable. 0, which is Nova alone, is '
                 'always tried. Default: 0.5, 1, 2, 4, 8, 16; negative ones with mode: pack.')
        add('--set', action='append', default=[], dest='settings', metavar='NAME=VALUE',
            help='Another option of nova.conf for every trial, as in kronos weigh explain; '
                 'repeatable.')
        add('--trace', metavar='FILE',
            help='Cloud and load, as kronos simulate --record wrote them.')
        add('--from', dest='start', metavar='TIME',
            help='First time: 2026-11-01T00:00:00Z, epoch seconds, or -2d. Default: the whole '
                 'trace. Without a trace, Nova and Prometheus are read.')
        add('--to', dest='end', default='now', metavar='TIME',
            help='Last time (default: now; of a trace, its last time).')
        add('--step', metavar='DURATION',
            help='Between two looks at the load (default: 5m; of a trace, its own).')
        add('--snapshot', metavar='DIR', help='The cloud, as kronos-record wrote it.')
        add('--record', metavar='FILE', help='Also write the data read into this trace file.')
        add('--ceiling', default='0.8', metavar='SCORE',
            help='A host with a higher score is overloaded (default: 0.8).')
        add('--lag', metavar='DURATION',
            help='Until metrics show a move whole: the longest range in the queries (default: '
                 '[engine] settle_seconds).')
        add('--bandwidth', default='250', metavar='MIB_PER_SECOND',
            help='What one migration copies (default: 250).')
        add('--without-moves', action='store_true',
            help='Leave the rebalancer out: faster, and no moves are counted.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        found: list[tuple[tuple[str, ...], list[Any]]] = []

        def run() -> None:
            from kronos_nova.cli import weight_trials

            with self.open_session(parsed_args, live=False) as session:
                found.append(weight_trials.run(
                    session, parsed_args, bool(getattr(self.app_args, 'debug', False))))

        self.guarded(run)
        return found[0]
