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


"""kronos-manage: the database's schema, old rows and audit, and the keys that sign tasks."""

from collections.abc import Callable
from collections.abc import Sequence
import os
from typing import Any

from kronos_nova import exception
from kronos_nova import plurals
from kronos_nova.text import times
from kronos_nova.wiring import extras

PROG = 'kronos-manage'

with extras.needs_extra(PROG):
    from oslo_config import cfg

    from kronos_nova.conf import contracts
    from kronos_nova.conf import opts
    from kronos_nova.conf import policies
    from kronos_nova.constraints import metric_lag
    from kronos_nova.rebalancer.authorization import key_repository
    from kronos_nova.rebalancer.store import api
    from kronos_nova.rebalancer.store import api_role
    from kronos_nova.rebalancer.store import database
    from kronos_nova.rebalancer.store import process_identity
    from kronos_nova.rebalancer.store import schema
    from kronos_nova.wiring import tools

DESCRIPTION = ('Upgrade the schema of the database, delete old plans, show the audit, or make and '
               'rotate the keys that sign tasks.')


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Run one action of ``db`` or ``signing-key``.

    :returns: 0; 1 with one line on stderr when the action failed.
    """
    conf = cfg.ConfigOpts()
    opts.register(conf)
    tools.configure_command(conf, PROG, argv, [cfg.SubCommandOpt(
        'category', title='commands', handler=_add_parsers)], DESCRIPTION, strict=False)
    action: Callable[[Any], int] = conf.category.action
    return tools.run_guarded(PROG, lambda: action(conf))


def _add_parsers(categories: Any) -> None:
    actions = categories.add_parser('db', help='The database.').add_subparsers(
        dest='db_action', required=True)
    sync = actions.add_parser('sync', help='Make or upgrade the schema. Daemons do so too when '
                                           'they start; run it first to see its messages.')
    sync.set_defaults(action=_sync_schema)
    version = actions.add_parser('version', help='Print the schema revision; exit with 1 when '
                                                 'it is not this release\'s.')
    version.set_defaults(action=_print_version)
    purge = actions.add_parser('purge', help='Delete plans, and tasks that have ended. Live '
                                             'tasks, running cooldowns and quarantines, leases '
                                             'and the moves of the last hours stay, and so '
                                             'do completed moves for [engine] keep_days: '
                                             'contracts of instances count them.')
    purge.add_argument('--older-than', required=True, metavar='AGE',
                       help='What ended longer ago: 30d, 12h, 1w, or seconds.')
    purge.set_defaults(action=_purge_plans)
    audit = actions.add_parser('audit', help='Print who has changed something by which command, '
                                             'and why, the newest first.')
    audit.add_argument('--limit', type=int, default=50, metavar='NUMBER',
                       help='Print at most so many. Default: 50.')
    audit.set_defaults(action=_print_audit)
    grants = actions.add_parser('grants', help='Print the SQL that gives the database role of '
                                               'kronos-api its rights. Nothing is changed.')
    grants.add_argument('role', metavar='ROLE', help='The name of the role, which exists.')
    grants.set_defaults(action=_print_grants)
    keys = categories.add_parser('signing-key', help='The keys that sign tasks and approvals.')
    actions = keys.add_subparsers(dest='key_action', required=True)
    create = actions.add_parser('create', help='Make [signing] key_repository with its first keys, '
                                               'on one controller. Copy it to the others, and its '
                                               'public keys to the hosts of executors.')
    create.set_defaults(action=_create_keys)
    rotate = actions.add_parser('rotate', help='Sign with the next key from now on, and make a new '
                                               'next one. Rotate on one controller alone, and copy '
                                               'the directory again.')
    rotate.set_defaults(action=_rotate_keys)
    show = actions.add_parser('list', help='List the keys of this host.')
    show.set_defaults(action=_list_keys)


def _sync_schema(conf: Any) -> int:
    store = api.Store(conf)
    try:
        store.refuse_other_machines(conf.executor.hosts)
        store.upgrade()
        # A later release may be ahead of this one.
        revision = schema.read_current_revision(store.engine)
        store.audit.record_command(
            process_identity.name_operator(), 'db sync', f'schema {revision}')
    finally:
        store.close()
    print(f'The schema is at revision {revision}.')
    return 0


def _print_version(conf: Any) -> int:
    database.must_exist(conf.database.connection)
    engine = database.create_engine(conf)
    try:
        revision = schema.read_current_revision(engine)
    finally:
        engine.dispose()
    print(revision or 'none')
    schema.check_revision(revision)
    return 0


def _purge_plans(conf: Any) -> int:
    try:
        age = times.parse_duration(conf.category.older_than)
    except ValueError as e:
        raise exception.ConfigError(path=PROG, field='--older-than', problem=str(e),
                                    remedy='Write an age such as 30d.') from None
    database.must_exist(conf.database.connection)
    store = api.Store(conf)
    try:
        store.check()
        count = store.history.purge_records(
            store.now() - age, judged=conf.engine.breaker_worse_plans,
            remembered=metric_lag.compute_retention(_read_query_window(conf)),
            counted=contracts.count_remembered_seconds(conf),
            audited_before=store.now() - conf.engine.keep_audit_days * 86400)
        store.audit.record_command(
            process_identity.name_operator(), 'db purge', plurals.count_noun(count, 'plan'),
            f'older than {conf.category.older_than}')
    finally:
        store.close()
    print(f'{plurals.count_noun(count, "plan")} that ended more than '
          f'{conf.category.older_than} ago: deleted.')
    return 0


def _print_audit(conf: Any) -> int:
    database.must_exist(conf.database.connection)
    store = api.Store(conf)
    try:
        store.check()
        entries = store.audit.list_newest_entries(max(1, conf.category.limit))
    finally:
        store.close()
    for entry in entries:
        words = (entry.by, entry.command, entry.target, entry.reason)
        print(times.format_time(entry.at),
              *(tools.format_printable(word) for word in words if word))
    return 0


def _read_query_window(conf: Any) -> float:
    """Return the seconds that queries look back; 0 without a policy file."""
    path = conf.engine.policies_file
    return policies.load_policies(path).lookback_seconds if os.path.exists(path) else 0.0


def _print_grants(conf: Any) -> int:
    engine = database.create_engine(conf)
    try:
        for statement in api_role.list_grants(engine, conf.category.role):
            print(statement)
    finally:
        engine.dispose()
    return 0


def _create_keys(conf: Any) -> int:
    directory = _get_key_directory(conf)
    key_repository.create_keys(directory)
    print(f'{directory} has a key that signs, and the next one.')
    return 0


def _rotate_keys(conf: Any) -> int:
    number = key_repository.rotate_keys(_get_key_directory(conf), conf.signing.max_active_keys)
    print(f'Key {number} signs from now on.')
    return 0


def _list_keys(conf: Any) -> int:
    for key in key_repository.KeyRepository(_get_key_directory(conf)).list_keys():
        print(key)
    return 0


def _get_key_directory(conf: Any) -> str:
    """Return the directory of the keys.

    :raises ConfigError: none is configured.
    """
    directory = str(conf.signing.key_repository)
    if not directory:
        raise exception.ConfigError(
            path='kronos.conf', field='[signing] key_repository', problem='it names no directory',
            remedy='Name one, such as /etc/kronos/signing-keys.')
    return directory
