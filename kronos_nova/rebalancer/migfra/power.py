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

What was asked of Nova is noted before it is asked. All four may be asked twice: a server that
is what it is to be is not asked again, and Nova refuses what does not fit its status.
"""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import power
from kronos_nova.rebalancer.migfra import handling
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import probes
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra.protocol import Kind
from kronos_nova.rebalancer.store import requests

LOG = logging.getLogger(__name__)

ACTIONS = {Kind.START: power.START, Kind.STOP: power.STOP, Kind.SUSPEND: power.PAUSE,
           Kind.RESUME: power.UNPAUSE}
#: Nova is asked again when nothing has come of it for so many seconds.
AGAIN_SECONDS = 30.0


class Failed(Exception):
    """What is asked for one server cannot be had; the text says why."""


class PowerHandler:
    """:param note: writes the progress of a request.
    :param busy: whether a migration of ours has paused it, or may do so.
    :param answers: whether SSH answers at an address; it may block for a while.
    """

    name = 'servers'
    kinds = frozenset(ACTIONS)

    def __init__(self, conf: cfg.ConfigOpts, nova: nova_api.NovaApi, hosts: names.Hosts,
                 note: Callable[[requests.Request, dict[str, Any]], None],
                 busy: Callable[[str], bool] = lambda uuid: False,
                 answers: Callable[[str], bool] | None = None) -> None:
        self._conf = conf.migfra
        self._nova = nova
        self._hosts = hosts
        self._note = note
        self._busy = busy
        self._aliases = names.aliases(conf.migfra.pci_aliases)
        if conf.migfra.ssh_probe and not conf.migfra.ssh_probe_networks:
            raise exception.ConfigError(
                path='kronos.conf', field='[migfra] ssh_probe_networks',
                problem='ssh_probe is true and no network is named',
                remedy='Name the networks of the instances, or set ssh_probe = false.')
        self._probes = probes.Probes(answers or power.answers_ssh)

    def rest(self) -> None:
        return None

    def close(self) -> None:
        self._probes.close()

    def step(self, request: requests.Request, now: float) -> handling.Ended | None:
        task = handling.task(request)
        kind = Kind(task.task)
        assert isinstance(task, protocol.ServersTask)
        items = list(task.vm_configurations if isinstance(task, protocol.StartVm)
                     else task.list)
        projects = handling.permitted(self._conf.allow or (), self._hosts, request, task)
        progress = {'items': request.progress.get('items') or [{} for _ in items]}
        for item, known in zip(items, progress['items'], strict=True):
            if 'done' in known:
                continue
            try:
                done = self._item(request, task, item, known, progress, projects, now)
            except (Failed, names.NotMeant, power.PowerRefused) as e:
                known['done'] = str(e)
            except api.ApiError as e:
                self._late(request, known, str(e), now)
            else:
                if done:
                    known['done'] = ''
            if 'done' in known:
                self._note(request, progress)
        if not all('done' in known for known in progress['items']):
            return None
        found = [replies.One(self._named(item),
                             replies.ERROR if known['done'] else replies.SUCCESS, known['done'])
                 for item, known in zip(items, progress['items'], strict=True)]
        return handling.Ended(replies.of_list(kind, task.id, self._conf.scheduler,
                                              found), any(one.failed for one in found))

    @staticmethod
    def _named(item: Any) -> str:
        return item.vm_name or ''

    def _late(self, request: requests.Request, known: dict[str, Any], why: str,
              now: float) -> None:
        """Once it has taken too long, what was in the way is the answer."""
        if now - known.get('since', request.received_at) > self._conf.start_seconds:
            known['done'] = f'{why}; it was waited for {self._conf.start_seconds} s'

    def _item(self, request: requests.Request, task: protocol.Task, item: Any,
              known: dict[str, Any], progress: dict[str, Any], projects: frozenset[str] | None,
              now: float) -> bool:
        """:returns: whether it is as it is to be."""
        kind = Kind(task.task)
        action = ACTIONS[kind]
        if 'uuid' not in known:
            self._refuse(task, item)
        found = names.server(self._nova, known.get('uuid') or item.vm_name, projects,
                             request.host)
        instance = found.instance
        if 'uuid' not in known:
            if kind is Kind.START:
                self._fits(item, found)
            known.update(uuid=instance.uuid, since=now)
            self._note(request, progress)
        if self._busy(instance.uuid):
            # It may be paused for the time of a migration, and is not to stay so.
            self._late(request, known, 'it is being migrated', now)
            return False
        if instance.status == action.wanted and instance.task_state is None:
            reached = kind is not Kind.START or self._reached(found)
            if reached is False:
                self._late(request, known, 'it is ACTIVE, but its SSH does not answer at '
                                           + ', '.join(found.addresses), now)
            return bool(reached)
        if instance.task_state is None and instance.status not in action.admitted:
            raise Failed(f'it is {instance.status}: {kind} is for servers that are '
                         f'{" or ".join(sorted(action.admitted))}')
        if instance.locked:
            raise Failed('it is locked by its owner or an administrator')
        if instance.task_state is None and now - known.get(
                'asked', float('-inf')) > AGAIN_SECONDS:
            known['asked'] = now
            self._note(request, progress)
            power.ask(self._nova, instance.uuid, action)
            LOG.info('Request %s: instance %s: %s asked of Nova', request.request_id,
                     instance.uuid, action.name)
        self._late(request, known, f'it is {instance.status}'
                   + (f' ({instance.task_state})' if instance.task_state else ''), now)
        return False

    @staticmethod
    def _refuse(task: protocol.Task, item: Any) -> None:
        """What Nova has no such thing as."""
        if isinstance(item, protocol.Configuration):
            if item.xml is not None:
                raise Failed('xml: Nova makes the domains of its servers itself; create the '
                             'server with its flavor and image, and name it')
            if item.transient:
                raise Failed('transient: Nova keeps every server until it is deleted')
        undefine = getattr(item, 'undefine', None)
        if isinstance(task, protocol.StopVm) and (
                task.undefine if undefine is None else undefine):
            raise Failed('undefine: servers are never deleted for whoever asks over MQTT; delete '
                         'it in Nova')

    def _fits(self, item: Any, found: nova_api.Server) -> None:
        """Memory, processors and devices are a flavor's, and nobody's to choose anew."""
        instance = found.instance
        if item.memory is not None and item.memory != instance.memory_mb * 1024:
            raise Failed(f'memory: its flavor has {instance.memory_mb * 1024} KiB, not '
                         f'{item.memory}; resize it in Nova')
        if item.vcpus is not None and item.vcpus != instance.vcpus:
            raise Failed(f'vcpus: its flavor has {instance.vcpus}, not {item.vcpus}; resize it '
                         'in Nova')
        wanted = {(pci.vendor, pci.device) for pci in item.pci_ids}
        if not wanted:
            return
        has = names.devices(instance, self._aliases)
        if has is None or not wanted <= has:
            missing = min(wanted - (has or set()), default=min(wanted))
            raise Failed(f'pci-ids: its flavor has no device {missing[0]:#06x}:{missing[1]:#06x} '
                         'that [migfra] pci_aliases tells of')

    def _reached(self, found: nova_api.Server) -> bool | None:
        """Return whether the server answers; None while the probe is under way.

        A server without an address in the allowed networks counts as started.
        """
        if not self._conf.ssh_probe:
            return True
        addresses = [probed for address in found.addresses if (probed := power.find_probe_address(
            address, self._conf.ssh_probe_networks)) is not None]
        return not addresses or self._probes.reached(found.instance.uuid, addresses)

