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


"""The configuration of a daemon, and its log."""

from collections.abc import Sequence
import sys

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import version
from kronos_nova.conf import option_names
from kronos_nova.conf import opts
from kronos_nova.conf import secret_mask
from kronos_nova.feed import raw_cache
from kronos_nova.wiring import tools


def configure_daemon(prog: str, argv: Sequence[str] | None = None,
                     cli_opts: Sequence[cfg.Opt] = ()) -> cfg.ConfigOpts:
    """Read the configuration and set up logging, once per process.

    Without a log file the log goes to standard error.

    :raises SystemExit: 1 with one line on stderr: a file or value is wrong.
    """
    conf = cfg.CONF
    logging.register_options(conf)
    opts.register(conf)
    raw_cache.register(conf)
    if cli_opts:
        conf.register_cli_opts(list(cli_opts))
    try:
        conf(list(sys.argv[1:] if argv is None else argv), project='kronos', prog=prog,
             version=version.read_release())
    except cfg.Error as e:
        tools.exit_with_error(prog, f'{opts.format_error(e)} Correct the configuration file or the '
                              'command line.')
    if wrong := opts.wrong_values(conf):
        tools.exit_with_error(prog, str(wrong[0]))
    conf.set_default('use_stderr', True)
    # The pool logs a traceback when the database fails; the store logs the error itself.
    logging.set_defaults(default_log_levels=[
        *logging.get_default_log_levels(), 'sqlalchemy.pool=CRITICAL'])
    logging.setup(conf, 'kronos')
    secret_mask.install_mask(conf)
    option_names.warn_of_misspelt(conf)
    return conf
