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

"""Write a report whole or not at all, and overwrite no foreign file."""

from collections.abc import Iterator
import contextlib
import os
import shutil
import stat
import tempfile

from kronos_nova import exception
from kronos_nova.rebalancer.report import page

#: A report has this mark among its first bytes.
_MARK = f'<meta name="generator" content="{page.GENERATOR} '.encode()
_HEAD = 2048


def refuse_foreign_file(path: str, force: bool) -> None:
    """Refuse a path that cannot be written, before the report is computed.

    :raises ConfigError: another file exists at the path. ``force`` allows another file, but never a
        device or a directory.
    """
    with _convert_os_errors(path):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISREG(found.st_mode):
            raise _make_config_error(path, 'it is no file', 'Name one, or - for standard output.')
        if not force:
            with open(path, 'rb') as f:
                if _MARK not in f.read(_HEAD):
                    raise _make_config_error(path, 'it is there, and is no report of ours',
                                             'Name another file, or replace it with --force.')


def write(path: str, text: str) -> None:
    """Write the report.

    A new file is readable by its owner alone, as snapshots are; a replaced file keeps its mode.

    :raises ConfigError: the file cannot be written; nothing is left behind.
    """
    target = os.path.realpath(path)
    with _convert_os_errors(path):
        descriptor, made = tempfile.mkstemp('.html', '.kronos-report-', os.path.dirname(target))
        try:
            with open(descriptor, 'w', encoding='utf-8') as f:
                f.write(text)
            if os.path.exists(target):
                shutil.copymode(target, made)
            os.replace(made, target)
        except BaseException:
            os.unlink(made)
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
