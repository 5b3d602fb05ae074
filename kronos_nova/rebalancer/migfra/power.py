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

"""start, stop, suspend and resume vm: each server of the list on its own.

The handler lists the servers of a host once in a pass, for all requests of that host. A small pool
of threads looks up names and sends actions to Nova. The handler notes an action before it sends it.
All four actions may be sent twice: a server that has the wanted status gets no second action, and
Nova refuses actions that do not fit its status.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
from typing import Any, TypeVar

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import power
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import probes
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import requests

LOG = logging.getLogger(__name__)

ACTIONS = {MigfraRequestKind.START: power.START, MigfraRequestKind.STOP: power.STOP,
           MigfraRequestKind.SUSPEND: power.PAUSE,
           MigfraRequestKind.RESUME: power.UNPAUSE}
#: Seconds without an effect after which an action is sent again.
AGAIN_SECONDS = 30.0
#: Requests to Nova at a time.
THREADS = 8

T = TypeVar('T')
#: Host, name or UUID of a server, and the projects that may be asked for.
_Key = tuple[str, str, frozenset[str] | None]


class PowerFailed(Exception):
    """The request for one server cannot be fulfilled; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class _PendingAction:
    """An action that a thread sends to Nova."""

    request_id: str
    index: int
    outcome: 'futures.Future[bool]'


class PowerHandler:
    """The handler of start, stop, suspend and resume vm.

    :param note: writes the progress of a request.
    :param busy: whether a migration of ours has paused the server, or may do so.
    :param answers: whether SSH answers at an address; it may block for a while.
    """

    name = 'servers'
    kinds = frozenset(ACTIONS)

    def __init__(self, conf: cfg.ConfigOpts, nova: nova_api.NovaApi, hosts: names.ScopesByHost,
                 note: Callable[[requests.MigfraRequest, dict[str, Any]], None],
                 busy: Callable[[str], bool] = lambda uuid: False,
                 answers: Callable[[str], bool] | None = None) -> None:
        self._conf = conf.migfra
        self._nova = nova
        self._hosts = hosts
        self._note = note
        self._busy = busy
        self._aliases = names.parse_pci_aliases(conf.migfra.pci_aliases)
        if conf.migfra.ssh_probe and not conf.migfra.ssh_probe_networks:
            raise exception.ConfigError(
                path='kronos.conf', field='[migfra] ssh_probe_networks',
                problem='ssh_probe is true and no network is named',
                remedy='Name the networks of the instances, or set ssh_probe = false.')
        self._probes = probes.ServerProbes(answers or power.answers_ssh)
        self._pool = futures.ThreadPoolExecutor(
            THREADS, thread_name_prefix='kronos-migfra-servers')
        #: Nova's answers in this pass.
        self._servers_or_errors: dict[_Key, nova_api.Server | Exception] = {}
        #: By UUID the actions of this pass: an earlier reading does not show their effect.
        self._pending_actions: dict[str, _PendingAction] = {}
        #: By request and place in its list why Nova did not take an action in the last pass.
        self._refusals: dict[tuple[str, int], Exception] = {}

    def begin_pass(self, due: Sequence[requests.MigfraRequest]) -> None:
        """List the hosts of the requests, each once, and look up the servers that they name."""
        wanted: dict[_Key, None] = {}
        for request in due:
            # The step of a request that cannot be understood says so, and ends it alone.
            with contextlib.suppress(Exception):
                wanted.update(dict.fromkeys(self._keys(request)))
        self._servers_or_errors = self._read(wanted)
        known = {request.request_id for request in due}
        self._refusals = {key: error for key, error in self._refusals.items() if key[0] in known}

    def end_pass(self) -> None:
        """Wait until Nova has answered each action, so that the next pass reads what follows."""
        for uuid, pending_action in self._pending_actions.items():
            try:
                if pending_action.outcome.result():
                    LOG.info('Request %s: Nova has taken the action for instance %s',
                             pending_action.request_id, uuid)
            except Exception as e:  # The next step of the request judges it.
                self._refusals[pending_action.request_id, pending_action.index] = e
        self._pending_actions.clear()
        self._servers_or_errors.clear()

    def release_pass_data(self) -> None:
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._probes.close()

    def _keys(self, request: requests.MigfraRequest) -> list[_Key]:
        """Return the servers that a request needs."""
        task = request_handler.parse_task(request)
        projects = request_handler.list_permitted_projects(self._conf.allow or (), self._hosts,
                                                           request, task)
        items = _items(task)
        return [(request.host, name, projects)
                for item, known in zip(items, _list_known_states(request, items), strict=True)
                if 'done' not in known and (name := known.get('uuid') or item.vm_name)]

    def _read(self, keys: Iterable[_Key]) -> dict[_Key, nova_api.Server | Exception]:
        keys = list(keys)
        hosts = sorted({host for host, _name, _projects in keys})
        lists = dict(zip(hosts, self._read_each(self._nova.list_servers_on, hosts), strict=True))

        def resolve_by_key(key: _Key) -> nova_api.Server:
            host, name, projects = key
            here = lists[host]
            if isinstance(here, Exception):
                raise here
            return names.resolve_server(self._nova, name, projects, host, here)

        return dict(zip(keys, self._read_each(resolve_by_key, keys), strict=True))

    def _read_each(self, read: Callable[[Any], T], keys: Iterable[Any]) -> list[T | Exception]:
        """Read each in the pool; an error stands in place of the result."""
        def read_or_error(key: Any) -> T | Exception:
            try:
                return read(key)
            except Exception as e:
                return e

        return list(self._pool.map(read_or_error, keys))

    def _read_server(self, key: _Key) -> nova_api.Server:
        if key not in self._servers_or_errors:
            self._servers_or_errors |= self._read([key])
        server_or_error = self._servers_or_errors[key]
        if isinstance(server_or_error, Exception):
            raise server_or_error
        return server_or_error

    def continue_request(self, request: requests.MigfraRequest,
                         now: float) -> request_handler.MigfraRequestResult | None:
        task = request_handler.parse_task(request)
        kind = MigfraRequestKind(task.task)
        items = _items(task)
        projects = request_handler.list_permitted_projects(self._conf.allow or (), self._hosts,
                                                           request, task)
        progress = {'items': _list_known_states(request, items)}
        before = repr(progress)
        asks: list[tuple[int, str]] = []
        for index, (item, known) in enumerate(zip(items, progress['items'], strict=True)):
            if 'done' in known:
                continue
            try:
                uuid = self._judge_item(request, task, index, item, known, projects, now)
            except (PowerFailed, names.NotMeant, power.PowerRefused) as e:
                known['done'] = str(e)
            except api.ApiError as e:
                self._end_if_late(request, known, str(e), now)
            else:
                if uuid is not None:
                    asks.append((index, uuid))
        if repr(progress) != before:
            self._note(request, progress)
        for index, uuid in asks:
            self._submit_action(request, index, uuid, ACTIONS[kind])
        if not all('done' in known for known in progress['items']):
            return None
        instance_results = [
            replies.InstanceResult(self._get_item_name(item),
                                   replies.ERROR if known['done'] else replies.SUCCESS,
                                   known['done'])
            for item, known in zip(items, progress['items'], strict=True)]
        return request_handler.MigfraRequestResult(
            replies.build_list_result(kind, task.id, self._conf.scheduler, instance_results),
            any(result.failed for result in instance_results))

    def _submit_action(self, request: requests.MigfraRequest, index: int, uuid: str,
                       action: power.PowerAction) -> None:
        """Send an action in a thread; :meth:`end_pass` waits for the answer."""
        if uuid not in self._pending_actions:  # one server may stand in a list twice
            self._pending_actions[uuid] = _PendingAction(
                request.request_id, index,
                self._pool.submit(power.request_action, self._nova, uuid, action))

    @staticmethod
    def _get_item_name(item: Any) -> str:
        return item.vm_name or ''

    def _end_if_late(self, request: requests.MigfraRequest, known: dict[str, Any], why: str,
                     now: float) -> None:
        """End the item with the present obstacle if it has taken too long."""
        if now - known.get('since', request.received_at) > self._conf.start_seconds:
            known['done'] = f'{why}; it was waited for {self._conf.start_seconds} s'

    def _judge_item(self, request: requests.MigfraRequest, task: protocol.Task, index: int,
                    item: Any,
                    known: dict[str, Any], projects: frozenset[str] | None,
                    now: float) -> str | None:
        """Judge one server; write its state, and the reason if it is done, into ``known``.

        :returns: its UUID when the action should be sent to Nova.
        """
        kind = MigfraRequestKind(task.task)
        action = ACTIONS[kind]
        if 'uuid' not in known:
            self._check_supported(task, item)
        error = self._refusals.pop((request.request_id, index), None)
        if error is not None:
            raise error
        server = self._read_server((request.host, known.get('uuid') or item.vm_name, projects))
        instance = server.instance
        if 'uuid' not in known:
            if kind is MigfraRequestKind.START:
                self._check_flavor(item, server)
            known.update(uuid=instance.uuid, since=now)
        if instance.uuid in self._pending_actions:
            return None
        if self._busy(instance.uuid):
            # It may be paused for the time of a migration, and must not stay so.
            self._end_if_late(request, known, 'it is being migrated', now)
            return None
        if instance.status == action.wanted and instance.task_state is None:
            reached = kind is not MigfraRequestKind.START or self._has_ssh_answer(server)
            if reached:
                known['done'] = ''
            elif reached is False:
                self._end_if_late(request, known, 'it is ACTIVE, but its SSH does not answer at '
                                           + ', '.join(server.addresses), now)
            return None
        if instance.task_state is None and instance.status not in action.admitted:
            raise PowerFailed(f'it is {instance.status}: {kind} is for servers that are '
                              f'{" or ".join(sorted(action.admitted))}')
        if instance.locked:
            raise PowerFailed('it is locked by its owner or an administrator')
        ask = instance.task_state is None and now - known.get(
            'asked', float('-inf')) > AGAIN_SECONDS
        if ask:
            known['asked'] = now
        self._end_if_late(request, known, f'it is {instance.status}'
                          + (f' ({instance.task_state})' if instance.task_state else ''), now)
        return instance.uuid if ask and 'done' not in known else None

    @staticmethod
    def _check_supported(task: protocol.Task, item: Any) -> None:
        """Raise Failed for fields that Nova has no equivalent of."""
        if isinstance(item, protocol.StartConfiguration):
            if item.xml is not None:
                raise PowerFailed('xml: Nova makes the domains of its servers itself; create the '
                                  'server with its flavor and image, and name it')
            if item.transient:
                raise PowerFailed('transient: Nova keeps every server until it is deleted')
        undefine = getattr(item, 'undefine', None)
        if isinstance(task, protocol.StopVm) and (
                task.undefine if undefine is None else undefine):
            raise PowerFailed('undefine: servers are never deleted over MQTT; delete it in '
                              'Nova')

    def _check_flavor(self, item: Any, server: nova_api.Server) -> None:
        """Raise Failed unless memory, processors and devices are those of the server's flavor."""
        instance = server.instance
        if item.memory is not None and item.memory != instance.memory_mb * 1024:
            raise PowerFailed(f'memory: its flavor has {instance.memory_mb * 1024} KiB, not '
                              f'{item.memory}; resize it in Nova')
        if item.vcpus is not None and item.vcpus != instance.vcpus:
            raise PowerFailed(f'vcpus: its flavor has {instance.vcpus}, not {item.vcpus}; resize '
                              'it in Nova')
        wanted = {(pci.vendor, pci.device) for pci in item.pci_ids}
        if not wanted:
            return
        has = names.list_pci_devices(instance, self._aliases)
        if has is None or not wanted <= has:
            missing = min(wanted - (has or set()), default=min(wanted))
            raise PowerFailed('pci-ids: its flavor has no device '
                              f'{missing[0]:#06x}:{missing[1]:#06x} '
                              'that [migfra] pci_aliases tells of')

    def _has_ssh_answer(self, server: nova_api.Server) -> bool | None:
        """Return whether the server answers; None while the probe is under way.

        A server without an address in the allowed networks counts as started.
        """
        if not self._conf.ssh_probe:
            return True
        addresses = [probed for address in server.addresses if (probed := power.find_probe_address(
            address, self._conf.ssh_probe_networks)) is not None]
        return not addresses or self._probes.has_answered(server.instance.uuid, addresses)


def _items(task: protocol.Task) -> list[Any]:
    """Return the part of a task for each of its servers."""
    assert isinstance(task, protocol.ServersTask)
    return list(task.vm_configurations if isinstance(task, protocol.StartVm) else task.list)


def _list_known_states(request: requests.MigfraRequest,
                       items: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the known state of each server, by its place in the list."""
    states: list[dict[str, Any]] = request.progress.get('items') or [{} for _ in items]
    return states
