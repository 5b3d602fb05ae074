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

"""The session of an operator: configuration, policies, database and cloud, each opened once."""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import functools
import os
import threading
from typing import Any, TYPE_CHECKING

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import policy
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.conf import secret_mask

# Every command imports this module: modules that only some commands need are imported when they
# are first used.
if TYPE_CHECKING:
    from kronos_nova.rebalancer.clients import collector as collectors
    from kronos_nova.rebalancer.operations import cloud_state
    from kronos_nova.rebalancer.planning import planner
    from kronos_nova.rebalancer.store import api
    from kronos_nova.sources import base

LOG = logging.getLogger(__name__)

#: Seconds after which the session says that it still reads the cloud.
NOTICE_AFTER = 3.0
READING = ('Still reading Nova, Placement and metrics; a server that does not answer is retried '
           'for a while.')


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


class Session:
    """Configuration, policies, database and cloud for the functions of ``operations``.

    Each is opened or read at its first use and kept until the session ends. Functions that order
    moves or a drain read the cloud again. A session belongs to one thread::

        with operations.Session('/etc/kronos/kronos.conf') as session:
            for scope in operations.list_hosts(session):
                ...

    :param files: kronos.conf files; none: those in the places where oslo.config looks.
    :param snapshot: a directory that kronos-record wrote; the cloud is read from it, not from
        Nova, Placement and metrics.
    :param operator: the name that is stored with each decision; None: the user of the process and
        its machine.
    :param configure: reads the files into the options.
    :param notify: receives each notice for the operator.
    """

    def __init__(self, *files: str, snapshot: str | None = None, operator: str | None = None,
                 configure: Callable[[cfg.ConfigOpts, Sequence[str]], None] = read_files,
                 notify: Callable[[str], None] = LOG.warning) -> None:
        self.snapshot = snapshot
        self._files = files
        self._operator = operator
        self._configure = configure
        self._notify = notify
        self._opened = contextlib.ExitStack()
        self._stands_in = False

    def __enter__(self) -> 'Session':
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, the source of metrics and the connection, if they were opened.

        A part that cannot be closed is logged: the results of the session hold.
        """
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
        return policy_files.load(self.conf.engine.policies_file)

    @functools.cached_property
    def store(self) -> 'api.Store':
        """The database of [database] connection, at the schema of this release.

        A SQLite file that does not exist is an empty database, and is not made: it would belong to
        the user of this process, not to the user of the daemons.

        :raises StoreError: the database cannot be used.
        """
        from kronos_nova.rebalancer.store import api
        from kronos_nova.rebalancer.store import database

        path = database.sqlite_file(self.conf.database.connection)
        empty = path is not None and not os.path.exists(path)
        if empty:
            self._notify_of_missing_file(str(path))
            # The steps of the schema do not concern an operator.
            logging.getLogger('alembic').logger.setLevel(logging.WARNING)
        store = api.Store.from_url('sqlite://') if empty else api.Store(self.conf)
        self._close_at_end(store.close)
        self._stands_in = empty
        if empty:
            store.upgrade()
        store.check()
        return store

    @property
    def existing_store(self) -> 'api.Store':
        """The database, for functions that write to it or that need one of its rows.

        :raises StoreError: the database cannot be used, or its SQLite file does not exist.
        """
        from kronos_nova.rebalancer.store import database

        database.must_exist(self.conf.database.connection)
        if self._stands_in:  # a daemon has made the file since
            del self.store
        return self.store

    @functools.cached_property
    def operator(self) -> str:
        """The name that the database keeps with each decision of this session."""
        from kronos_nova.rebalancer.store import process_identity

        return process_identity.name_operator() if self._operator is None else self._operator

    @functools.cached_property
    def connection(self) -> Any:
        """The openstacksdk connection to Nova and Placement; it logs in when it is first used.

        :raises ConfigError: [nova] does not say how to log in.
        """
        from kronos_nova.rebalancer.clients import connection

        made = connection.make_connection(self.conf)
        self._close_at_end(made.close)
        return made

    @functools.cached_property
    def collector(self) -> 'collectors.CloudCollector':
        """The reader of Nova and Placement."""
        from kronos_nova.rebalancer.clients import collector

        return collector.CloudCollector(self.conf, self.connection)

    @functools.cached_property
    def source(self) -> 'base.ScoreSource':
        """The source of metrics that [engine] source names.

        :raises PluginNotFound: no package has it.
        """
        source: base.ScoreSource = plugins.load(plugins.SOURCES, self.conf.engine.source)(self.conf)
        self._close_at_end(source.close)
        return source

    @functools.cached_property
    def cloud(self) -> 'cloud_state.CloudState':
        """The cloud as the next cycle would see it, or the cloud of the snapshot.

        Only the engine that asked Placement knows Placement's refusals; they are missing.

        :raises KronosException: a part cannot be read.
        """
        return self.cloud_for_requests.hold_for_approval()

    @functools.cached_property
    def cloud_for_requests(self) -> 'cloud_state.CloudState':
        """The cloud for an operator's request: no plan that waits for approval holds its scope.

        :raises KronosException: a part cannot be read.
        """
        return self.read_cloud(self.policies)

    def forget_cloud(self) -> None:
        """Read the cloud again at its next use, for a function that changes it.

        :raises ConfigError: the session reads a snapshot, which shows the past.
        """
        if self.snapshot is not None:
            raise exception.ConfigError(
                path=self.snapshot, field='snapshot',
                problem='it shows the past, and a request would change the cloud of today',
                remedy='Ask without the snapshot.')
        for name in ('cloud', 'cloud_for_requests'):
            vars(self).pop(name, None)

    def read_cloud(self, policies: policy.PolicySet) -> 'cloud_state.CloudState':
        """Read the cloud, with the metrics of the given policies.

        :raises KronosException: a part cannot be read.
        """
        from kronos_nova.rebalancer.operations import cloud_state
        from kronos_nova.rebalancer.planning import planning_settings

        if self.snapshot is not None:
            return cloud_state.read_snapshot(self.conf, policies, self.snapshot)
        planning_settings.list_planned_scopes(self.conf, policies)  # before anything is opened
        store, collector, source = self.store, self.collector, self.source
        notice = threading.Timer(NOTICE_AFTER, self._notify, [READING])
        notice.daemon = True
        notice.start()
        try:
            return cloud_state.read_cloud(self.conf, policies, store, collector, source)
        finally:
            notice.cancel()

    def build_request(self, cluster: model.Cluster,
                      cloud: 'cloud_state.CloudState | None' = None) -> 'planner.PlanRequest':
        """Build the request from which the next cycle would plan a scope.

        :param cluster: with its scope set.
        :param cloud: with the samples and the history of the scope; None: :attr:`cloud`.
        """
        from kronos_nova.rebalancer.operations import cloud_state

        return cloud_state.build_request(self.conf, self.policies,
                                         self.cloud if cloud is None else cloud, cluster)

    def _notify_of_missing_file(self, path: str) -> None:
        """Say that an empty table comes from a database that is not there."""
        if not self.conf.config_file and not self.conf.config_dir:
            self._notify('No configuration file was found: name one by --config-file, or write '
                         '/etc/kronos/kronos.conf.')
        self._notify(f'The database file {path} does not exist, and is shown as an empty database. '
                     'The first daemon makes it; if one runs, correct [database] connection.')
