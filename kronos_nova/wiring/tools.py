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


"""Configuration, errors and tables of the commands that are no daemons.

They print only their result on standard output. Log and errors go to standard error: a configured
log file belongs to the daemons.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import json
import sys
from typing import Any, NoReturn
import warnings

from oslo_config import cfg
from oslo_log import log as logging
from oslo_service import backend
import prettytable
import yaml

from kronos_nova import exception
from kronos_nova import version
from kronos_nova.conf import opts
from kronos_nova.conf import secret_mask
from kronos_nova.text import printable

LOG = logging.getLogger(__name__)
#: The name by which commands call it.
format_printable = printable.format_printable


def configure_command(conf: cfg.ConfigOpts, prog: str, argv: Sequence[str] | None,
                      cli_opts: Sequence[cfg.Opt], description: str, *,
                      strict: bool = True) -> None:
    """Read the configuration files and the command line; log to stderr.

    :param conf: with all needed options registered.
    :param strict: also leave when a value is out of its bounds.
    :raises SystemExit: 1 with one line on stderr: a file or value is wrong.
    """
    logging.register_options(conf)
    conf.register_cli_opts(list(cli_opts))
    try:
        conf(list(sys.argv[1:] if argv is None else argv), project='kronos', prog=prog,
             version=version.read_release(), description=description)
    except cfg.Error as e:
        exit_with_error(prog, f'{opts.format_error(e)} Correct the configuration file or the '
                              'command line.')
    if strict and (wrong := opts.wrong_values(conf)):
        exit_with_error(prog, str(wrong[0]))
    for name, value in (('log_config_append', None), ('log_file', None), ('log_dir', None),
                        ('use_syslog', False), ('use_journal', False), ('use_stderr', True)):
        conf.set_override(name, value)
    logging.set_defaults(default_log_levels=[
        *logging.get_default_log_levels(), 'alembic.runtime.plugins=WARNING'])
    logging.setup(conf, 'kronos')
    secret_mask.install_mask(conf)


def native_threads() -> None:
    """Keep oslo.service off eventlet, which it loads by default.

    Call it first: oslo.messaging loads oslo.service. A process that has chosen already, such as a
    test runner with Nova in it, stays as it is. Warnings of libraries that look for eventlet, and
    the log of the choice, do not concern an operator and are suppressed.
    """
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    backend.LOG.setLevel(logging.WARNING)
    with contextlib.suppress(backend.exceptions.BackendAlreadySelected):
        backend.init_backend(backend.BackendType.THREADING)


def silence_libraries(conf: cfg.ConfigOpts) -> None:
    """Silence warnings and the log, unless with --debug.

    This is for commands whose result shows the errors; messages of libraries would only confuse.
    """
    if not conf.debug:
        warnings.simplefilter('ignore')
        logging.getLogger(None).logger.manager.disable = logging.CRITICAL


def exit_with_error(prog: str, text: str) -> NoReturn:
    """Print one clear line on standard error and exit with 1."""
    sys.stderr.write(f'{prog}: {format_printable(secret_mask.mask_text(" ".join(text.split())))}\n')
    raise SystemExit(1)


def run_guarded(prog: str, run: Callable[[], int]) -> int:
    """Run a command; print an error of ours as one line, never as a traceback."""
    try:
        return run()
    except exception.KronosException as e:
        exit_with_error(prog, str(e))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe; Python must not fail when it closes standard output.
        sys.stdout = None
        return 1
    except Exception as e:
        LOG.debug('%s', prog, exc_info=True)
        exit_with_error(prog, f'unexpected error {type(e).__name__}: {e}. This is a defect of '
                              'ours: run it with --debug and report its output.')


def print_document(document: Any, form: str) -> None:
    """Print plain data as ``json`` or ``yaml``."""
    if form == 'json':
        print(json.dumps(document, indent=2, sort_keys=True, allow_nan=False))
    else:
        print(yaml.safe_dump(document, default_flow_style=False, sort_keys=True), end='')


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return aligned columns; unprintable characters in a cell become ``?``."""
    table = prettytable.PrettyTable(list(heads), align='l')
    for row in rows:
        table.add_row([format_printable(cell) for cell in row])
    return str(table.get_string())
