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

"""What ``kronos drain start`` and ``watch`` do: disable a host, and look until it is empty."""

import argparse
from collections.abc import Callable
import dataclasses
import difflib
import re
import time
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.cli import _cloud
from kronos_nova.cli import _drain
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import connection as connections
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import switching
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.rebalancer.strategies import orders

START = 'kronos drain start'
WATCH = 'kronos drain watch'


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An instance that was on the host, or is: its newest task, if it has one."""

    instance_uuid: str
    to_host: str
    state: str
    seconds: float | None
    error: str


def start(args: argparse.Namespace) -> _drain.Answer:
    """Check, then disable the host.

    :raises KronosException: it cannot be emptied, engines would not, or Nova refused.
    """
    conf, _policies = _cloud.configuration(
        START, args.config_file, 'Drains a host.', live=True)
    _drained_by_engines(conf, args.reason)
    answer = _drain.answer(args)
    staying = [b for b in answer.check.blocked if not b.later]
    if not args.force and (staying or answer.held or answer.check.obstacles):
        first = staying[0] if staying else None
        raise exception.ConfigError(
            path=START, field=args.host,
            problem=(f'{len(staying)} instances would stay, the first {first.instance_uuid}: '
                     f'{first.reason}' if first is not None else
                     '; '.join(answer.check.obstacles) or answer.check.plan.reason),
            remedy='kronos drain check has them all; --force disables the host all the same.')
    try:
        switching.disable(connections.connect(conf), args.host, args.reason)
    except api.ApiError as e:
        raise exception.ConfigError(
            path=START, field=args.host, problem=str(e),
            remedy='Nothing is changed, unless the connection broke: see openstack compute '
                   'service list. Or disable it yourself: openstack compute service set '
                   f'--disable --disable-reason {args.reason!r}') from None
    return answer


def _drained_by_engines(conf: Any, reason: str) -> None:
    """:raises ConfigError: no engine of this configuration would empty the host."""
    service = model.Service('', status='disabled', disabled_reason=reason)
    if conf.engine.dry_run:
        raise _wrong('[engine] dry_run', 'it is set, and then nothing is moved', 'Unset it.')
    if not conf.engine.evacuate_disabled_hosts:
        raise _wrong('[engine] evacuate_disabled_hosts', 'it is not set: engines leave disabled '
                                                         'hosts alone', 'Set it for them, too.')
    if (service.disabled_reason or '').startswith(orders.AUTOMATIC):
        raise _wrong('--reason', f'{orders.AUTOMATIC} begins the reasons that Nova gives itself',
                     'Give another one.')
    if not re.search(conf.engine.drain_reason_regex, reason):
        raise _wrong('--reason', 'it does not match [engine] drain_reason_regex '
                                 f'{conf.engine.drain_reason_regex!r}', 'Give one that does.')


def _wrong(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path=START, field=field, problem=problem, remedy=remedy)


def watch(args: argparse.Namespace, tell: Callable[[list[Row]], None],
          wait: Callable[[float], None] = time.sleep) -> tuple[bool, list[Row]]:
    """Look until the host is empty, or ``args.timeout`` seconds are over.

    :param tell: told of each look.
    :returns: whether it is empty, and the last look.
    :raises KronosException: Nova or the database cannot be read at all.
    """
    conf, _policies = _cloud.configuration(
        WATCH, args.config_file, 'Watches a drain.', live=True)
    database.must_exist(conf.database.connection)
    store = store_api.Store(conf)
    connection = connections.connect(conf)
    nova = nova_api.NovaApi(connection)
    begun = time.time()
    try:
        store.check()
        while True:
            try:
                here = _left(nova, connection, args.host)
            except api.ApiError as e:
                raise exception.ConfigError(path='command line', field=args.host, problem=str(e),
                                            remedy='See kronos-test-config.') from None
            rows = _rows(here, store.tasks_from(args.host, begun - args.since))
            tell(rows)
            # Nova-compute has its part until the last task from or to it is over.
            if not here and not any(args.host in (f.from_host, f.to_host, *f.alternates)
                                    for f in store.flights()):
                return True, rows
            if time.time() - begun >= args.timeout:
                return False, rows
            wait(min(args.interval, max(0.1, begun + args.timeout - time.time())))
    finally:
        store.close()


def _left(nova: nova_api.NovaApi, connection: Any, host: str) -> list[str]:
    """Before and after the list of servers Nova is asked for its services: it leaves out the
    servers of a cell that is down, and of services it says so.

    :raises ApiError: also when there is no such host.
    """
    services = nova.services()
    if host not in services:
        near = difflib.get_close_matches(host, list(services), 1, 0.8)
        raise api.ApiError('Nova', 'compute services', 'there is no such compute host'
                           + (f'; is {near[0]} meant?' if near else ''))
    here = switching.left_on(connection, host)
    nova.services()
    return here


def _rows(here: list[str], tasks: list[store_rows.TaskRow]) -> list[Row]:
    newest: dict[str, store_rows.TaskRow] = {}
    for row in tasks:  # oldest first
        newest[row.task.instance_uuid] = row
    found = []
    for uuid in sorted({*here, *newest}):
        if uuid not in newest:
            found.append(Row(uuid, '', 'waits', None, ''))
            continue
        row = newest[uuid]
        ended = None if row.completed_at is None or row.submitted_at is None else (
            row.completed_at - row.submitted_at)
        found.append(Row(uuid, row.task.to_host, str(row.task.state), ended, row.error or ''))
    return found
