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


"""A Nova whose hypervisors report trees, and reshape them when they are restarted; and
others who write to Placement in the moment in which Nova does."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import types
from typing import Any

import fixtures
from nova import exception as nova_exception
from nova.scheduler.client import report
from nova.virt import fake
from oslo_utils import uuidutils
from placement import db_api
from placement.objects import allocation as allocations
from placement.objects import resource_provider

#: Of this aggregate are all hosts, and what is shared with them.
EVERYWHERE = uuidutils.generate_uuid()
#: What a host has beside VCPU, MEMORY_MB and DISK_GB.
DEVICES = {'VGPU': 4, 'CUSTOM_FPGA': 4}
#: Class by the child that has it; all else is on the root.
CARD = {'VGPU': 'gpu'}


class TreeDriver(fake.MediumFakeDriver):  # type: ignore[misc]
    """A hypervisor that can live-migrate vGPUs.

    ``layouts``: by node, as CARD. Another one than before is a reshape: as Nova demands
    it is done when nova-compute starts, with the allocations of what runs.
    """

    layouts: dict[str, dict[str, str]] = {}

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        resources: dict[str, Any] = super().get_available_resource(nodename)
        return {**resources, 'hypervisor_version': 8002000}

    def update_provider_tree(self, provider_tree: Any, nodename: str,
                             allocations: dict[str, Any] | None = None) -> None:
        layout = self.layouts.get(nodename, CARD)
        before = {name: uuid for uuid in provider_tree.get_provider_uuids(nodename)
                  for name in provider_tree.data(uuid).inventory}
        names = {name: f'{nodename}_{child}' for name, child in layout.items()}
        known = {provider_tree.data(uuid).name: uuid
                 for uuid in provider_tree.get_provider_uuids(nodename)}
        moved = {name: uuid for name, uuid in before.items()
                 if known.get(names.get(name, nodename)) != uuid}
        if moved and allocations is None:
            raise nova_exception.ReshapeNeeded()
        super().update_provider_tree(provider_tree, nodename)
        provider_tree.update_aggregates(nodename, [EVERYWHERE])
        inventories = dict(provider_tree.data(nodename).inventory)
        for name, total in DEVICES.items():
            inventories[name] = {**inventories['VCPU'], 'total': total, 'max_unit': total,
                                 'reserved': 0, 'allocation_ratio': 1.0}
        for child in sorted(set(names.values()) - known.keys()):
            provider_tree.new_child(child, nodename)
        for owner in sorted({nodename, *known, *names.values()}):
            provider_tree.update_inventory(owner, {
                name: inventory for name, inventory in inventories.items()
                if names.get(name, nodename) == owner})
        for consumer in (allocations or {}).values():
            _move(consumer['allocations'], {
                name: (uuid, provider_tree.data(names.get(name, nodename)).uuid)
                for name, uuid in moved.items()})


def _move(held: dict[str, Any], ways: dict[str, tuple[str, str]]) -> None:
    """Each class from one provider to another, in what a consumer has."""
    for name, (source, destination) in ways.items():
        amount = held.get(source, {}).get('resources', {}).pop(name, None)
        if amount is not None:
            held.setdefault(destination, {'resources': {}})['resources'][name] = amount
    for uuid in [uuid for uuid, allocation in held.items() if not allocation['resources']]:
        del held[uuid]


def reshape_one_tree(client: Any, context: Any, old_tree: Any, new_tree: Any,
                     held: dict[str, Any]) -> Any:
    """A reshape by Nova, of the host's tree alone.

    Nova 34 compares it with all that it knows, and so takes a provider that shares with
    the host for one that is to be emptied; Placement refuses where that is in use.
    """
    scope = getattr(new_tree, 'scope_rp_uuid', None)
    return _RESHAPE(client, context, old_tree if scope is None else old_tree.subtree(scope),
                    new_tree, held)


_RESHAPE = report.SchedulerReportClient._set_up_and_do_reshape


class Contention(fixtures.Fixture):  # type: ignore[misc]
    """Other clients that write while Nova writes allocations of an instance.

    ``provider``: by method, the number of requests that find the generation of a provider
    raised each time that Placement itself tries. ``before``: by method, a function to call
    once before such a request. ``answers``: method and status of all such requests.
    """

    def __init__(self) -> None:
        self.provider: dict[str, int] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.answers: list[tuple[str, int]] = []
        self._raising = False

    def _setUp(self) -> None:
        # Nova waits up to 6 s between its tries.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.scheduler.client.report.time', types.SimpleNamespace(
                sleep=lambda seconds: None, time=report.time.time)))
        for method in ('put', 'post'):
            self._watch(method)
        write = allocations._set_allocations

        def contended(context: Any, allocs: list[Any]) -> Any:
            if self._raising:
                self._raise_generation(context, next(a for a in allocs if a.used))
            return write(context, allocs)

        self.useFixture(fixtures.MonkeyPatch(
            'placement.objects.allocation._set_allocations', contended))

    @staticmethod
    def _raise_generation(context: Any, alloc: Any) -> None:
        """As the commit of another's request does it."""
        provider = resource_provider.ResourceProvider.get_by_uuid(
            context, alloc.resource_provider.uuid)
        with db_api.placement_context_manager.writer.using(context):
            provider.increment_generation()

    def _watch(self, method: str) -> None:
        send = getattr(report.SchedulerReportClient, method)

        def watched(client: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            if not url.startswith('/allocations'):
                return send(client, url, *args, **kwargs)
            self.before.pop(method, lambda: None)()
            with self._contended(method):
                answer = send(client, url, *args, **kwargs)
            self.answers.append((method, answer.status_code))
            return answer

        self.useFixture(fixtures.MonkeyPatch(
            f'nova.scheduler.client.report.SchedulerReportClient.{method}', watched))

    @contextlib.contextmanager
    def _contended(self, method: str) -> Iterator[None]:
        left = self.provider.get(method, 0)
        self._raising = left > 0
        self.provider[method] = max(0, left - 1)
        try:
            yield
        finally:
            self._raising = False
