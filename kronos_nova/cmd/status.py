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

"""kronos-status: ``upgrade check`` says what to do before this release runs."""

from collections.abc import Sequence
import os
from pathlib import Path
import sys
from typing import Any

from kronos_nova import exception
from kronos_nova.wiring import extras

PROG = 'kronos-status'

with extras.needs_extra(PROG):
    from oslo_config import cfg
    from oslo_log import log as logging
    from oslo_upgradecheck import upgradecheck

    from kronos_nova.cmd import upgrades
    from kronos_nova.conf import messaging
    from kronos_nova.conf import opts
    from kronos_nova.conf import policies
    from kronos_nova.conf import scheduler
    from kronos_nova.rebalancer.store import database
    from kronos_nova.rebalancer.store import schema as schemas
    from kronos_nova.wiring import tools


class UpgradeChecks(upgradecheck.UpgradeCommands):
    """The checks, in the order of their report."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self._conf = conf

    def policies(self) -> Any:
        return _make_result(*check_policies(self._conf))

    def options(self) -> Any:
        return _make_result(*check_options(self._conf))

    def nova(self) -> Any:
        return _make_result(*check_nova(self._conf))

    def broker(self) -> Any:
        return _make_result(*check_broker(self._conf))

    def leftovers(self) -> Any:
        return _make_result(*check_leftovers(self._conf))

    def schema(self) -> Any:
        return _make_result(*check_schema(self._conf))

    _upgrade_checks = (
        ('Policies', policies), ('Options', options), ('Nova\'s filters and weighers', nova),
        ('Broker options', broker), ('Kronos 0.2.0', leftovers), ('Database schema', schema))


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run ``upgrade check``.

    :returns: 0 ready, 1 ready with warnings, 2 not ready, 255 a check broke.
    """
    tools.native_threads()
    conf = cfg.CONF
    logging.register_options(conf)
    opts.register(conf)
    try:
        return int(upgradecheck.main(
            conf, 'kronos', UpgradeChecks(conf),
            argv=list(sys.argv[1:] if argv is None else argv)))
    except cfg.Error as e:
        tools.exit_with_error(PROG, f'{opts.format_error(e)} Correct the configuration file.')


def check_policies(conf: Any) -> tuple[str, str]:
    """Check that the policy file loads with this release; return (code, details)."""
    try:
        policies.load_policies(conf.engine.policies_file)
    except exception.PolicyFileError as error:
        return 'FAILURE', str(error)
    return _check_scheduler(conf)


def _check_scheduler(conf: Any) -> tuple[str, str]:
    """Check the policy files of a nova.conf in the same way, if one was given."""
    scheduler.register(conf)
    if not scheduler.is_configured(conf):
        return 'SUCCESS', ''
    errors, doubts = scheduler.check_policy_files(conf)
    if errors:
        return 'FAILURE', ' '.join(map(str, errors))
    return ('WARNING', ' '.join(doubts)) if doubts else ('SUCCESS', '')


def check_options(conf: Any) -> tuple[str, str]:
    """Check that this release knows the options and allows their values; return (code, details)."""
    wrong = [str(error) for error in opts.wrong_values(conf)]
    code, details = upgrades.check_options(_list_config_files(conf))
    return ('FAILURE', ' '.join([*wrong, details]).strip()) if wrong else (code, details)


def check_nova(conf: Any) -> tuple[str, str]:
    """Check the filters and weighers in a nova.conf for mistakes; return (code, details)."""
    return upgrades.check_nova([
        argument for path in _list_config_files(conf) for argument in ('--config-file', path)])


def check_leftovers(conf: Any) -> tuple[str, str]:
    """Check for parts of Kronos 0.2.0 that are still there; return (code, details)."""
    try:
        policy_set = policies.load_policies(conf.engine.policies_file)
    except exception.PolicyFileError:
        policy_set = None  # the check of the policies reports this
    return upgrades.check_leftovers(_list_config_files(conf), policy_set)


def _list_config_files(conf: Any) -> list[str]:
    """Return the files that were read, those of directories after the others."""
    return [*(conf.config_file or ()),
            *(str(path) for folder in conf.config_dir or ()
              for path in sorted(Path(folder).glob('*.conf')))]


def check_broker(conf: Any) -> tuple[str, str]:
    """Check if the deprecated options of [messaging] are still used; return (code, details)."""
    if messaging.transport_url(conf) is None:
        return 'SUCCESS', ''
    return 'WARNING', ('[messaging] is deprecated. Set transport_url in [DEFAULT] and remove '
                       'the options of [messaging].')


def check_schema(conf: Any) -> tuple[str, str]:
    """Check that the database answers and its schema is known here; return (code, details).

    A daemon upgrades an older schema or an empty database when it starts; it refuses the schema of
    a later release or of a pre-release. This check does not create a missing SQLite file, which
    would belong to the user of this command.
    """
    path = database.sqlite_file(conf.database.connection)
    if path is not None and not os.path.lexists(path):
        return 'SUCCESS', f'{path} is made by the first daemon that starts.'
    try:
        engine = database.create_engine(conf)
        try:
            revision = schemas.read_current_revision(engine)
            schemas.refuse_unknown_revision(revision)
        finally:
            engine.dispose()
    except exception.StoreError as error:
        return 'FAILURE', str(error)
    newest = schemas.get_head_revision()
    if revision in (None, newest):
        return 'SUCCESS', ''
    if schemas.admits_head(revision, newest):
        return 'WARNING', (f'The schema is at revision {revision} of a later release, which admits '
                           f'this release; it needs {newest}. Go on with the upgrade.')
    return 'WARNING', (f'The schema is at revision {revision}, this release needs {newest}. Back '
                       'the database up: the next daemon that starts upgrades it, and the earlier '
                       f'release {_describe_return(revision, newest)} on it again.')


def _describe_return(revision: str, newest: str) -> str:
    return 'starts' if schemas.admits_head(newest, revision) else 'does not start'


def _make_result(code: str, details: str) -> Any:
    return upgradecheck.Result(upgradecheck.Code[code], details)
