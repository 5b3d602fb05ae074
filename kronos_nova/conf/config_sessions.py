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

"""The configuration of a session: options, policies and the source of metrics, each read once."""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import functools
from typing import Any, Self

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import plugins
from kronos_nova import policy
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.conf import secret_mask

LOG = logging.getLogger(__name__)


def read_files(conf: cfg.ConfigOpts, files: Sequence[str]) -> None:
    """Read the configuration files; mask their secrets in the log of this process.

    :param files: empty: those in the places where oslo.config looks.
    :raises ConfigError: a file cannot be read, or a value is wrong.
    """
    try:
        conf([part for path in files for part in ('--config-file', path)], project='kronos',
             prog='kronos')
    except cfg.Error as e:
        raise exception.ConfigError(
            path=', '.join(files) or 'kronos.conf', field='configuration files',
            problem=opts.format_error(e).rstrip('.'),
            remedy='Correct the file, or name another one.') from None
    if wrong := opts.wrong_values(conf):
        raise wrong[0]
    secret_mask.install_mask(conf)


class ConfigSession:
    """Configuration, policies and metrics for functions that read neither database nor cloud.

    Each is opened or read at its first use and kept until the session ends. A session belongs to
    one thread.

    :param files: kronos.conf files; none: those in the places where oslo.config looks.
    :param configure: reads the files into the options.
    :param notify: receives each notice for the operator.
    :param show_work: receives the name of each long work when it begins; '' when it is over. It
        returns whether a person can see it.
    """

    def __init__(self, *files: str,
                 configure: Callable[[cfg.ConfigOpts, Sequence[str]], None] = read_files,
                 notify: Callable[[str], None] = LOG.warning,
                 show_work: Callable[[str], bool] = lambda what: False) -> None:
        self._files = files
        self._configure = configure
        self._notify = notify
        self.show_work = show_work
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, the source of metrics and the connection, if they were opened.

        A part that cannot be closed is logged: the results of the session hold.
        """
        self.show_work('')
        self._opened.close()

    def _close_at_end(self, close: Callable[[], object]) -> None:
        def close_or_log() -> None:
            try:
                close()
            except Exception as e:
                LOG.warning('A part of the session cannot be closed: %s: %s', type(e).__name__, e)

        self._opened.callback(close_or_log)

    @functools.cached_property
    def conf(self) -> cfg.ConfigOpts:
        """The options of kronos.conf.

        :raises ConfigError: a file cannot be read, or a value is wrong.
        """
        conf = cfg.ConfigOpts()
        opts.register(conf)
        self._configure(conf, self._files)
        return conf

    @functools.cached_property
    def policies(self) -> policy.PolicySet:
        """The policies of [engine] policies_file.

        :raises ConfigError: the file cannot be used.
        """
        return policy_files.load_policies(self.conf.engine.policies_file)

    @functools.cached_property
    def metrics_source(self) -> Any:
        """The source of metrics that [engine] source names.

        :raises PluginNotFound: no package has it.
        """
        source = plugins.load_plugin(plugins.SOURCES, self.conf.engine.source)(self.conf)
        self._close_at_end(source.close)
        return source
