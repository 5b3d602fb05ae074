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

"""The common parts of the handlers of requests.

A handler is called again and again with the state of a request, until it has a reply; state that
must survive a crash is noted before the action.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
from typing import Any, Protocol

from kronos_nova.conf import permits
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.store import requests

#: The source of a request in plans.
SOURCE = 'migfra'
#: Most characters of a request's key in the database.
KEY_LENGTH = 255
#: Writes a request's progress, and with a plan the plan's UUID, before anything follows.
Note = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True, slots=True)
class MigfraRequestResult:
    """The result as it is published, and whether it reports an error.

    ``given_up``: the request ends although some of its tasks may not have begun.
    """

    reply: str
    failed: bool
    given_up: bool = False


class MigfraRequestRefusal(Exception):
    """The request as a whole cannot be fulfilled; the text says why."""


class MigfraRequestHandler(Protocol):
    """The handler of some kinds of requests."""

    name: str
    kinds: frozenset[protocol.MigfraRequestKind]

    def begin_pass(self, due: Sequence[requests.MigfraRequest]) -> None:
        """Read the data for the steps of a pass; keep an error for the step that needs the data."""

    def end_pass(self) -> None:
        """Wait for the work that the steps of the pass have begun."""

    def continue_request(self, request: requests.MigfraRequest,
                         now: float) -> MigfraRequestResult | None:
        """Continue a request as far as possible now; None: look again later.

        :raises MigfraRequestRefusal: no part of the request is done.
        :raises ApiError: Nova did not answer; look again later.
        :raises StoreError: another process has taken it over, or the database is away.
        """

    def release_pass_data(self) -> None:
        """Release what a pass keeps; no request is open."""

    def close(self) -> None:
        """Release all resources; the service ends."""


def list_permitted_projects(permits_: Sequence[permits.OperationPermit], hosts: names.ScopesByHost,
                            request: requests.MigfraRequest,
                            task: protocol.Task) -> frozenset[str] | None:
    """Return the projects whose servers the task may concern; None: all projects.

    :raises MigfraRequestRefusal: the kind of task is not allowed there at all.
    """
    scope = hosts.find_scope(request.host)
    if scope is None:
        raise MigfraRequestRefusal(f'host {request.host} is in no scope that is served here')
    return of_scope(permits_, scope, task.task)


def of_scope(permits_: Sequence[permits.OperationPermit], scope: str,
             kind: protocol.MigfraRequestKind) -> frozenset[str] | None:
    """Return the projects that a kind of task may concern in a scope; None: all projects.

    :raises MigfraRequestRefusal: the kind is not allowed there at all.
    """
    projects = permits.list_permitted_projects(permits_, kind.replace(' ', '-'), scope)
    if projects is not None and not projects:
        raise MigfraRequestRefusal(f'{kind} is not allowed in scope {scope}')
    return projects


def parse_task(request: requests.MigfraRequest) -> protocol.Task:
    """Return the task of a request; it was checked on receipt."""
    return task_reader.parse_stored_task(request.document)


def find_damage(request: requests.MigfraRequest) -> str | None:
    """Return why a stored request cannot be read; None when it can."""
    if request.damaged:
        return 'its progress is no JSON object'
    try:
        task = parse_task(request)
    except Exception as e:  # Any error concerns this request alone.
        return f'its document raises {type(e).__name__}'
    return None if task.task == request.kind else f'its document is of {task.task}'


def list_named_instances(request: requests.MigfraRequest) -> list[str]:
    """Return a request's names of its instances; none for a request that cannot be read."""
    if find_damage(request) is not None:
        return []
    task = parse_task(request)
    if isinstance(task, protocol.StartVm):
        return [item.vm_name or '' for item in task.vm_configurations]
    if isinstance(task, protocol.MigrateVm | protocol.RepinVm):
        return [task.vm_name]
    return [] if isinstance(task, protocol.EvacuateNode) else [
        item.vm_name for item in task.list]


def make_key(host: str, request_id: str | int) -> str:
    """Return the key of a request in the database: ids are unique per host."""
    key = f'{host}/{request_id}'
    if len(key) <= KEY_LENGTH:
        return key
    return f'{host[:100]}/{hashlib.sha256(key.encode()).hexdigest()}'


def find_id(request: requests.MigfraRequest) -> str | int | None:
    """Return the publisher's id; take it from the key of an unreadable request."""
    if find_damage(request) is None:
        return parse_task(request).id
    return request.request_id.removeprefix(f'{request.host}/')


def find_hooks(request: requests.MigfraRequest) -> set[str]:
    """Return the hooks that a stored request brings."""
    task = parse_task(request) if find_damage(request) is None else None
    if not isinstance(task, protocol.MigrateVm | protocol.EvacuateNode):
        return set()
    way = task.parameter
    hooks = {'pause'} if way.migration_type is protocol.MigrationType.WARM else set()
    partner = way.swap_with if isinstance(way, protocol.MigrationParameter) else None
    if way.pscom_hook_procs or (partner is not None and partner.pscom_hook_procs):
        hooks.add('pscom')
    return hooks


def resolve_hosts(task: protocol.Task, aliases: Mapping[str, str]) -> protocol.Task:
    """Put Nova's names in place of aliases of hosts."""
    changed: dict[str, Any] = {}
    if task.host is not None:
        changed['host'] = aliases.get(task.host, task.host)
    if isinstance(task, protocol.MigrateVm):
        changed['destination'] = aliases.get(task.destination, task.destination)
    elif isinstance(task, protocol.EvacuateNode):
        changed['destinations'] = tuple(aliases.get(host, host) for host in task.destinations)
    return task.model_copy(update=changed)


def format_document(task: protocol.Task) -> str:
    """Return the task as the JSON that is stored."""
    return task.model_dump_json(by_alias=True, exclude_none=True)
