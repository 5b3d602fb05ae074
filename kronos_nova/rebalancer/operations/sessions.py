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

"""The session of an operator: configuration, policies, metrics and database, each opened once."""

import functools
import os
import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.conf import config_sessions
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.authorization import campaign_authorization
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import process_identity


class DatabaseSession(config_sessions.ConfigSession):
    """Configuration, policies, metrics and database for functions that read no cloud.

    :param operator: the name that is stored with each decision; None: the user of the process and
        its machine.
    :param person: the person who decides: several approvals of one person count once. None: the
        operator of that name, or the user of the process.
    :param more: the parameters of :class:`ConfigSession`.
    """

    def __init__(self, *files: str, operator: str | None = None, person: str | None = None,
                 **more: Any) -> None:
        super().__init__(*files, **more)
        self._operator, self._person = operator, person
        self._stands_in = False

    @functools.cached_property
    def store(self) -> api.Store:
        """The database of [database] connection, at the schema of this release.

        A SQLite file that does not exist is an empty database, and is not made: it would belong to
        the user of this process, not to the user of the daemons.

        :raises StoreError: the database cannot be used.
        """
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
    def existing_store(self) -> api.Store:
        """The database, for functions that write to it or that need one of its rows.

        :raises StoreError: the database cannot be used, or its SQLite file does not exist.
        """
        database.must_exist(self.conf.database.connection)
        if self._stands_in:  # a daemon has made the file since
            del self.store
        return self.store

    @functools.cached_property
    def operator(self) -> str:
        """The name that the database keeps with each decision of this session."""
        return process_identity.name_operator() if self._operator is None else self._operator

    @property
    def person(self) -> str:
        """The person who decides, as approvals name them."""
        return self._person or self._operator or process_identity.name_local_person()

    def count_needed_approvals(self, scope: str) -> int:
        """Return how many people must approve a plan of the scope; 0: its plans wait for no one."""
        return engine_conf.count_needed_approvals(self.conf, scope)

    @functools.cached_property
    def signer(self) -> task_authorization.TaskSigner:
        """The signer of tasks and approvals."""
        return task_authorization.make_signer(self.conf)

    @property
    def campaign_signer(self) -> campaign_authorization.CampaignAuthorization:
        """The signer of campaigns."""
        return campaign_authorization.make_authorization(self.conf)

    def _notify_of_missing_file(self, path: str) -> None:
        """Say that an empty table comes from a database that is not there."""
        if not self.conf.config_file and not self.conf.config_dir:
            self._notify('No configuration file was found: name one by --config-file, or write '
                         '/etc/kronos/kronos.conf.')
        self._notify(f'The database file {path} does not exist, and is shown as an empty database. '
                     'The first daemon makes it; if one runs, correct [database] connection.')


class SharedDatabase:
    """One database for the sessions of a process with many threads; opened at its first use.

    A process that forks afterwards must make its own.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._lock = threading.Lock()
        self._opener = DatabaseSession(configure=_refuse_configuration)
        self._opener.conf = conf

    def check_keys(self) -> None:
        """Check that approvals can be signed, if they are to be.

        :raises SigningKeyError: no key can sign.
        """
        self._opener.signer.check_keys()

    def make_session(self, operator: str, person: str) -> DatabaseSession:
        """Return a session for one request; it need not be closed.

        :param operator: the name that is stored with each decision.
        :param person: the person who decides: several approvals of one person count once.
        :raises StoreError: the database cannot be used; the next call tries again.
        """
        session = DatabaseSession(operator=operator, person=person, configure=_refuse_configuration)
        session.conf = self._opener.conf
        with self._lock:
            session.store = self._opener.existing_store
            session.signer = self._opener.signer
        return session


def _refuse_configuration(conf: cfg.ConfigOpts, files: object) -> None:
    raise TypeError('a session of a shared database has its configuration')
