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
import math
import re
import sys
from typing import Any

from cliff import lister

from kronos_nova import exception
from kronos_nova.cli import command
from kronos_nova.cli import explanation_columns
from kronos_nova.cli import simulate
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.weighing import findings
from kronos_nova.weighing import nova_setup
from kronos_nova.wiring import tools

Table = tuple[tuple[str, ...], list[command.Row]]


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

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        tables: list[Table] = []
        self.run_guarded(lambda: tables.append(explain_request(
            parsed_args, bool(getattr(self.app_args, 'debug', False)))))
        return tables[0]


def explain_request(args: argparse.Namespace, debug: bool,
                    configure: Any = nova_setup.configure_nova) -> Table:
    """Explain the request, without and with ``--set``.

    :param configure: opens Nova; a process that has opened it passes its own function.
    :returns: column names, and a row for each host.
    :raises KronosException: bad input, or an input cannot be read.
    """
    order = findings.BootOrder(
        flavor=args.flavor, image=args.image, group=args.group, project=args.project,
        availability_zone=args.availability_zone, hints=tuple(map(_parse_hint, args.hint)),
        boot_from_volume=args.boot_from_volume, count=args.num)
    if not 1 <= args.num <= 10_000:
        raise _make_option_error('--num', 'it is no number from 1 to 10000')
    if not 0 <= args.wait <= 86_400:
        raise _make_option_error('--wait', 'it is no number of seconds from 0 to 86400')
    conf = configure(args.config_file, debug)
    # Nova may be missing, and configure() has chosen how it threads, which it does when imported.
    from kronos_nova.weighing import explanation  # noqa: PLC0415

    choice = explanation.explain_choice(conf, order, args.wait, args.settings, args.aggregate)
    table = explanation_columns.HostColumns(choice.before, choice.after, choice.hosts,
                                            args.formatter, args.long)
    for text in table.list_notes():
        sys.stderr.write('kronos weigh explain: '
                         f'{explanation_columns.escape_unprintable(text)}\n')
    return table.list_column_names(), table.render_host_rows()


def _parse_hint(text: str) -> tuple[str, str]:
    key, sign, value = text.partition('=')
    if not sign or not key:
        raise _make_option_error('--hint', f'{text!r} is not KEY=VALUE')
    return key, value


def _make_option_error(option: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=option, problem=problem,
                                 remedy='See kronos weigh explain --help.')


class TuneMultipliers(command.BaseCommand, lister.Lister):
    """Replay recorded boots and load against several multipliers.

    Instances that booted in the past are placed again by Nova's own weigher classes, as nova.conf
    enables them, and ours with each multiplier; the load of each instance is the recorded one.
    Shown are the overload and the spread that follow without any move, and the moves that the
    rebalancer makes later. If nova.conf enables KronosCapacityFilter, boot_ceiling is kept as well.
    Nothing is changed anywhere. The first row is history.
    """

    examples = ('--from -7d',
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

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        tables: list[Table] = []
        self.run_guarded(lambda: tables.append(self._tune(parsed_args)))
        return tables[0]

    def _tune(self, args: argparse.Namespace) -> Table:
        multipliers = [_parse_multiplier(text) for text in args.multiplier]
        with self.open_session(cloud_state.Session, args, live=False) as session, \
                command.open_bar(session) as show_progress:
            _ = session.conf  # the configuration that is read later sets up the log
            nova = nova_setup.configure_offline(
                args.nova_conf, bool(getattr(self.app_args, 'debug', False)))
            # Nova may be missing.
            from kronos_nova.weighing import multiplier_tuner  # noqa: PLC0415

            tuned = multiplier_tuner.tune_multipliers(
                session, nova, simulate.parse_source(args), multipliers,
                policies_files=args.policies, settings_texts=args.settings,
                of_aggregates=dict(map(_parse_aggregate, args.aggregate)),
                ceiling=simulate.parse_number('--ceiling', args.ceiling, 0.0, 1.0),
                lag=simulate.parse_lag(args.lag),
                bandwidth=simulate.parse_bandwidth(args.bandwidth),
                rebalanced=not args.without_moves, progress=show_progress)
        for text in (*tuned.warnings,
                     f'Recommended: kronos_weight_multiplier = {tuned.advice.multiplier:g}: '
                     f'{tuned.advice.why}'):
            sys.stderr.write(f'{self.prog}: {tools.format_printable(text)}\n')
        return _build_table(args.formatter, tuned.measures, tuned.trials, tuned.advice)


def _build_table(form: str, measures: list[str], trials: list[Any], advice: Any) -> Table:
    """Return the trials as rows; nested where the format allows it."""
    nested = form in ('json', 'yaml')
    names = (
        ('multiplier', 'recommended', 'booted', 'elsewhere', 'without_room',
         'overload_host_minutes', 'spread', 'empty_hosts', 'moves',
         'overload_host_minutes_with_moves') if nested else
        ('Multiplier', 'Recommended', 'Booted', 'Elsewhere', 'Without room',
         'Overload, host-minutes', *(f'Mean max - min {name}' for name in measures),
         'Empty hosts', 'Moves later', 'Overload with moves'))
    rows = []
    for trial in trials:
        recommended = trial.multiplier is not None and trial.multiplier == advice.multiplier
        if nested:
            rows.append((
                trial.multiplier, recommended, trial.count.booted, trial.count.elsewhere,
                trial.count.without_room, trial.overload, trial.spread, trial.empty_hosts,
                trial.moves, trial.overload_moved))
            continue
        label = ('history' if trial.multiplier is None
                 else '0 (Nova alone)' if trial.multiplier == 0 else f'{trial.multiplier:g}')
        cells = (label, '*' if recommended else '', trial.count.booted, trial.count.elsewhere,
                 trial.count.without_room, trial.overload,
                 *(trial.spread[name] for name in measures), trial.empty_hosts, trial.moves,
                 trial.overload_moved)
        rows.append(tuple(_format_cell(cell) for cell in cells) if form == 'table' else cells)
    return names, rows


def _format_cell(value: Any) -> Any:
    if value is None:
        return '-'
    if isinstance(value, float):
        return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.4g}'
    return value


def _parse_multiplier(text: str, option: str = '--multiplier') -> float:
    try:
        multiplier = float(text)
    except ValueError:
        multiplier = math.nan
    if not math.isfinite(multiplier):
        raise exception.ConfigError(
            path='the command line', field=option, problem=f'{text!r} is no number',
            remedy='Give such as 2 or -0.5.')
    return multiplier + 0.0


def _parse_aggregate(text: str) -> tuple[str, float]:
    """Return the name and the multiplier of ``--aggregate NAME=X``."""
    name, sign, value = text.rpartition('=')
    if not sign or not name:
        raise exception.ConfigError(
            path='the command line', field='--aggregate', problem=f'{text!r} is not NAME=X',
            remedy='Give such as gpu=-2.')
    return name, _parse_multiplier(value, '--aggregate')
