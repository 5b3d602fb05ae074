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

"""Carry out ``kronos drain start``: disable a host that can be emptied."""

import argparse
from collections.abc import Callable
import shlex
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.cli import _cloud
from kronos_nova.cli import _database
from kronos_nova.cli import _drain
from kronos_nova.cli import _stores
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import compute_service
from kronos_nova.rebalancer.clients import connection as connections
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.strategies import drain_requests

START = 'kronos drain start'


def start(args: argparse.Namespace) -> tuple[_drain.Answer, bool]:
    """Check the host, then disable it, unless it is disabled for that reason already.

    :returns: the result of the check, and whether this call disabled the host.
    :raises KronosException: the host cannot be emptied, engines would not empty it, it is disabled
        for another reason, the database cannot be written, or Nova refused. Nothing is changed
        then, unless only Nova's answer was lost.
    """
    conf, _policies = _cloud.read_configuration(
        START, args.config_file, 'Drains a host.', live=True)
    options = engine_conf.build_options(conf)
    _drained_by_engines(options, args.reason)
    answer = _drain.check_drain(args)
    # Open the database first: nothing is changed without an audit row.
    store = _stores.open_store(conf, reads_only=False)
    try:
        return answer, _disable_host(
            args, answer, options, connections.make_connection(conf),
            lambda command, reason: store.audit(
                _database.read_operator_name(), command, f'host {args.host}', reason))
    finally:
        store.close()


def _disable_host(args: argparse.Namespace, answer: _drain.Answer, options: model.Options,
                  connection: Any, record: Callable[[str, str], None]) -> bool:
    """Disable the host; return False if it is disabled for that reason already.

    :param record: writes an audit row of a command and a reason. The row is there before the host
        is disabled; a second one follows when Nova refuses or does not answer.
    :raises ConfigError: a problem is in the way, or Nova refused.
    """
    try:
        uuid, service = compute_service.read_service(connection, args.host)
        if not service.enabled and service.disabled_reason == args.reason:
            return False
        if not args.force:
            _refuse_without_force(args, answer, service, options)
        record(audits.DRAIN_STARTED, args.reason)
        try:
            compute_service.disable_service(connection, uuid, args.host, args.reason)
        except api.ApiError as e:
            record('drain failed', str(e))
            raise
    except api.ApiError as e:
        raise exception.ConfigError(
            path='command line', field=args.host, problem=str(e).rstrip('.'),
            remedy=_by_hand(args, changed=e.sent)) from None
    return True


def _drained_by_engines(options: model.Options, reason: str) -> None:
    """Check that engines would empty the host.

    :raises ConfigError: no engine of this configuration would.
    """
    if options.dry_run:
        raise _make_config_error('[engine] dry_run', 'it is set, and then nothing is moved',
                                 'Unset it.')
    if not options.evacuate_disabled_hosts:
        raise _make_config_error('[engine] evacuate_disabled_hosts',
                                 'it is not set: engines leave disabled '
                                                         'hosts alone', 'Set it for them, too.')
    service = model.Service('', status='disabled', disabled_reason=reason)
    if (why := drain_requests.find_drain_refusal(service, options)) is not None:
        raise exception.ConfigError(
            path='command line', field='--reason', problem=f'engines would not drain it: {why}',
            remedy='Give a reason that [engine] drain_reason_regex matches and that does not '
                   f'begin with {drain_requests.AUTOMATIC}')


def _make_config_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='kronos.conf', field=field, problem=problem, remedy=remedy)


def _refuse_without_force(args: argparse.Namespace, answer: _drain.Answer, service: model.Service,
                          options: model.Options) -> None:
    """Raise unless the host is enabled and would become empty.

    :raises ConfigError: it is not; ``--force`` skips this check.
    """
    if not service.enabled:
        for_what = ('without a reason' if not service.disabled_reason else
                    f'for the reason {service.disabled_reason!r}')
        drained = drain_requests.find_drain_refusal(service, options)
        raise exception.ConfigError(
            path='command line', field=args.host,
            problem=f'it is disabled already, {for_what} (Nova records neither the time nor '
                    'the user), and engines '
                    + ('empty it' if drained is None else 'leave it alone'),
            remedy='Nothing is changed; --force puts this reason in the place of that one.')
    staying = [b for b in answer.check.blocked if not b.later]
    if not (staying or answer.in_the_way):
        return
    raise exception.ConfigError(
        path='command line', field=args.host,
        problem=(f'{plurals.count_noun(len(staying), "instance")} would stay, the first '
                 f'{staying[0].instance_uuid}: '
                 f'{staying[0].reason}' if staying else
                 '; '.join(answer.in_the_way)),
        remedy='kronos drain check has them all; --force disables the host all the same.')


def _by_hand(args: argparse.Namespace, *, changed: bool) -> str:
    """Return the next step after Nova failed to disable the host.

    :param changed: Nova may have disabled it nevertheless.
    """
    command = ('openstack compute service set --disable --disable-reason '
               f'{shlex.quote(args.reason)} {shlex.quote(args.host)} nova-compute')
    return (('See openstack compute service list whether it is disabled now; if not, disable it '
             'yourself: ' if changed else 'Nothing is changed. Or disable it yourself: ')
            + command)
