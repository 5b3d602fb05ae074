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

"""``kronos report``: the scores and the plan of a scope, as a file for a browser."""

import argparse
from collections.abc import Iterator
import contextlib
import os
import shutil
import stat
import sys
import tempfile

from kronos_nova import exception
from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import report_pages
from kronos_nova.rebalancer.report import page

#: A report has this mark among its first bytes.
_MARK = f'<meta name="generator" content="{page.GENERATOR} '.encode()
_HEAD = 2048


class WriteReport(command.BaseCommand):
    """Write a report as one HTML file that needs nothing else, on a screen or on paper.

    Without --plan and --snapshot the command reads the cloud as a planning cycle does, plans as one
    would now, and changes nothing. The report has each host's scores before and after, the moves,
    their waves, the imbalance over time, the refused candidates by rule, and the parts of the cloud
    that were not considered. It contains names that tenants chose: only the owner of a new file can
    read it.
    """

    examples = ('-o report.html',
                '--snapshot DIR --scope ssd -o report.html --config-file kronos.conf')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        what = parser.add_mutually_exclusive_group()
        what.add_argument('--plan', metavar='UUID',
                          help='Of this stored plan and its tasks; see kronos plan list.')
        what.add_argument('--snapshot', metavar='DIR',
                          help='Of this one, not the cloud: as kronos-record or SIGUSR1 to '
                               'kronos-engine wrote it.')
        parser.add_argument('--scope', metavar='NAME', help='Of this scope alone.')
        parser.add_argument('-o', '--output', metavar='FILE', required=True,
                            help='What to write; - is standard output. A report of ours that is '
                                 'there is replaced.')
        parser.add_argument('--force', action='store_true',
                            help='Replace a file that is no report of ours, too.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.run_guarded(lambda: self._write(parsed_args))

    def _write(self, args: argparse.Namespace) -> None:
        if args.output != '-':
            refuse_foreign_file(args.output, args.force)
        with self.open_session(cloud_state.Session, args) as session:
            text = report_pages.render_report(session, plan=args.plan, scope=args.scope)
        if args.output == '-':
            sys.stdout.write(text)
        else:
            write_report(args.output, text)


def refuse_foreign_file(path: str, force: bool) -> None:
    """Refuse a path that cannot be written, before the report is computed.

    :raises ConfigError: another file exists at the path. ``force`` allows another file, but never a
        device or a directory.
    """
    with _convert_os_errors(path):
        try:
            file_stat = os.stat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISREG(file_stat.st_mode):
            raise _make_config_error(path, 'it is no file', 'Name one, or - for standard output.')
        if not force:
            with open(path, 'rb') as f:
                if _MARK not in f.read(_HEAD):
                    raise _make_config_error(path, 'it is there, and is no report of ours',
                                             'Name another file, or replace it with --force.')


def write_report(path: str, text: str) -> None:
    """Write the report.

    A new file is readable by its owner alone, as snapshots are; a replaced file keeps its mode.

    :raises ConfigError: the file cannot be written; nothing is left behind.
    """
    target = os.path.realpath(path)
    with _convert_os_errors(path):
        descriptor, temporary = tempfile.mkstemp('.html', '.kronos-report-',
                                                 os.path.dirname(target))
        try:
            with open(descriptor, 'w', encoding='utf-8') as f:
                f.write(text)
            if os.path.exists(target):
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


@contextlib.contextmanager
def _convert_os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise _make_config_error(path, f'it cannot be written ({os.strerror(e.errno or 0)})',
                                 'Name a file in a directory that you may write to.') from None


def _make_config_error(path: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=f'-o {path}', problem=problem,
                                 remedy=remedy)
