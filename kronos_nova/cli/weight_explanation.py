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


"""Run ``kronos weigh explain``: nova.conf, the request, both runs, output."""

import argparse
import sys
from typing import Any

from kronos_nova import exception
from kronos_nova.cli import explanation_columns as columns
from kronos_nova.weighing import nova_setup
from kronos_nova.weighing import settings

PROG = 'kronos weigh explain'


def explain_request(args: argparse.Namespace, debug: bool,
                    configure: Any = nova_setup.configure_nova) -> tuple[
                        tuple[str, ...], list[tuple[Any, ...]]]:
    """Explain the request, without and with ``--set``.

    :param configure: opens Nova; a process that has opened it passes its own function.
    :returns: column names, and a row for each host.
    :raises KronosException: bad input, or an input cannot be read.
    """
    hints = tuple(_parse_hint(text) for text in args.hint)
    if not 1 <= args.num <= 10_000:
        raise make_option_error('--num', 'it is no number from 1 to 10000')
    if not 0 <= args.wait <= 86_400:
        raise make_option_error('--wait', 'it is no number of seconds from 0 to 86400')
    conf = configure(args.config_file, debug)
    wanted = settings.parse(conf, args.settings)
    # Import after configure(), which makes Nova run on native threads.
    from kronos_nova.weighing import explanation
    from kronos_nova.weighing import request_spec

    order = request_spec.BootOrder(
        flavor=args.flavor, image=args.image, group=args.group, project=args.project,
        availability_zone=args.availability_zone, hints=hints,
        boot_from_volume=args.boot_from_volume, count=args.num)
    shown = explanation.aggregate_hosts(args.aggregate) if args.aggregate else None
    before, after = explanation.compare_settings(conf, order, args.wait, wanted)
    table = columns.HostColumns(before, after, shown, args.formatter, args.long)
    for text in table.notes():
        sys.stderr.write(f'{PROG}: {columns.escape_unprintable(text)}\n')
    return table.names(), table.rows()


def _parse_hint(text: str) -> tuple[str, str]:
    key, sign, value = text.partition('=')
    if not sign or not key:
        raise make_option_error('--hint', f'{text!r} is not KEY=VALUE')
    return key, value


def make_option_error(option: str, problem: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=option, problem=problem,
                                 remedy=f'See {PROG} --help.')
