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

"""Plans and tasks as a command line names them: UUIDs, their beginnings, ``--latest``."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import re

from osc_lib import exceptions

from kronos_nova.osc import client
from kronos_nova.osc import command
from kronos_nova.text import printable

_UUID = re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')
_BEGINNING = re.compile(
    r'[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f]{0,4}|[0-9a-f]{8}(-[0-9a-f]{4}){1,2}-[0-9a-f]{0,4}'
    r'|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{0,11}')


def find_id(rebalance: client.RebalanceClient, kind: str, reference: str) -> str:
    """Return the UUID of a plan, task or campaign.

    :param kind: ``plan``, ``task`` or ``campaign``.
    :param reference: its UUID, or the beginning that no other one has.
    :raises CommandError: no ID begins so, or several do.
    """
    text = reference.lower()
    if _UUID.fullmatch(text):
        return text
    check_beginning(kind, text)
    # The service refuses an order for a row that it cannot read, and says why.
    unreadable: list[client.Document] = []
    rows = list(rebalance.list_rows(f'/v1/{kind}s', f'{kind}s', {'id_prefix': text}, 2,
                                    note_unreadable=unreadable.append))
    return choose_id(kind, text, (row['id'] for row in [*rows, *unreadable]),
                     f'openstack rebalance {kind} list')


def check_beginning(kind: str, text: str) -> None:
    """Fail on a text that cannot begin a UUID, or is too short to name one."""
    if not _BEGINNING.fullmatch(text):
        raise exceptions.CommandError(
            f'<{kind}>: {text!r} is no UUID, and no beginning of one with four characters or more')


def choose_id(kind: str, text: str, ids: Iterable[str], source: str) -> str:
    """Return the one ID that begins with a text.

    :param source: the command that shows the IDs.
    """
    found: list[str] = []
    for candidate in ids:
        if candidate.startswith(text) and candidate not in found:
            found.append(candidate)
        if len(found) == 2:
            raise exceptions.CommandError(
                f'<{kind}>: {text} is the beginning of {found[0]} and of {found[1]}; write more '
                'characters')
    if not found:
        raise exceptions.CommandError(f'<{kind}>: no {kind} begins with {text}; see {source}')
    return found[0]


def add_instance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('instance', metavar='<instance>',
                        help='UUID of the instance, or the whole name if no other instance has '
                             'it.')


def find_instance(rebalance: client.RebalanceClient, reference: str) -> str:
    """Return the UUID of an instance by its UUID or whole name.

    :raises CommandError: no instance has the name, or several have.
    """
    if _UUID.fullmatch(reference.lower()):
        return reference.lower()
    found = [str(row['id']) for row in rebalance.list_rows(
        '/v1/instances', 'instances', {'name': reference}, 3)] if reference else []
    name = printable.format_printable(printable.format_single_line(reference))
    if len(found) > 1:
        raise exceptions.CommandError(
            f'<instance>: {name} is the name of {" and ".join(found[:2])}'
            f'{" and more" if len(found) > 2 else ""}; write a UUID')
    if not found:
        raise exceptions.CommandError(f'<instance>: no instance is called {name}; see openstack '
                                      'rebalance instance list')
    return found[0]


def add_plan(parser: argparse.ArgumentParser, latest: str) -> None:
    """Add the arguments that name a plan.

    :param latest: the help of ``--latest``.
    """
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument('plan', metavar='<plan>', nargs='?',
                       help='UUID of the plan, or the beginning that no other plan has.')
    group.add_argument('--latest', action='store_true', help=latest)
    parser.add_argument('--scope', metavar='<scope>', type=command.parse_text,
                        help='With --latest: of this scope.')


def find_plan(rebalance: client.RebalanceClient, args: argparse.Namespace,
              states: Sequence[str] = ()) -> str:
    """Return the UUID of the plan that the arguments name.

    :param states: ``--latest`` means the newest plan with a task in such a state; without any,
        the newest plan.
    """
    if not args.latest:
        if args.scope is not None:
            raise exceptions.CommandError('--scope: it narrows --latest; leave it out, as the plan '
                                          'has a scope')
        return find_id(rebalance, 'plan', args.plan)
    place = '' if args.scope is None else f' of scope {args.scope}'
    if states:
        for task in rebalance.list_rows('/v1/tasks', 'tasks',
                                        {'scope': args.scope, 'state': list(states)}, 1):
            return str(task['plan_id'])
        raise exceptions.CommandError(
            f'--latest: no plan{place} has a task that is {" or ".join(states)}; see openstack '
            'rebalance plan list')
    for plan in rebalance.list_rows('/v1/plans', 'plans', {'scope': args.scope}, 1):
        return str(plan['id'])
    raise exceptions.CommandError(f'--latest: no plan{place} exists; see openstack rebalance '
                                  'scope list')
