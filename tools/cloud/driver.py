# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Nova's fake virt driver with a host's size and live migrations that take their time."""

import threading
import time
from typing import Any

from nova import exception
from nova.compute import power_state
import nova.conf
from nova.virt import fake
from nova.virt import hardware
from nova.virt import node
from oslo_config import cfg

CONF = nova.conf.CONF
CONF.register_opts(
    [
        cfg.IntOpt('vcpus', default=16, min=1, help='Cores of a simulated host.'),
        cfg.IntOpt('memory_mb', default=65536, min=1, help='Its memory in MiB.'),
        cfg.IntOpt('disk_gb', default=1000, min=1, help='Its disk in GiB.'),
        cfg.FloatOpt(
            'migration_seconds', default=2.0, min=0, help='How long a live migration runs.'
        ),
    ],
    group='sandbox',
)


class _Migration:
    """One outgoing live migration: wait for its end, or for an operator to hasten it."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.aborted = False


class SandboxDriver(fake.FakeDriver):  # type: ignore[misc]
    """One node per host, with the identity that nova-compute keeps in ``state_path``.

    The stock driver derives the node's UUID from the process, so that a
    restarted nova-compute refuses to start; and its abort and force-complete
    concern every migration of the process.
    """

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        self.vcpus = CONF.sandbox.vcpus
        self.memory_mb = CONF.sandbox.memory_mb
        self.local_gb = CONF.sandbox.disk_gb
        super().__init__(virtapi, read_only)
        self._migrations: dict[str, _Migration] = {}

    def get_host_uptime(self) -> str:
        return ''

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        resources: dict[str, Any] = super().get_available_resource(nodename)
        resources['uuid'] = node.get_local_node_uuid()
        return resources

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {node.get_local_node_uuid(): name for name in self.get_available_nodes()}

    def get_info(self, instance: Any, use_cache: bool = True) -> Any:
        try:
            return super().get_info(instance, use_cache)
        except exception.InstanceNotFound:
            # a restarted process knows no guests, but its host's guests ran on
            if instance.host != self._host:
                raise
            return hardware.InstanceInfo(state=power_state.RUNNING)

    def live_migration(
        self,
        context: Any,
        instance: Any,
        dest: str,
        post_method: Any,
        recover_method: Any,
        block_migration: bool = False,
        migrate_data: Any = None,
    ) -> None:
        migration = self._migrations.setdefault(instance.uuid, _Migration())
        deadline = time.monotonic() + CONF.sandbox.migration_seconds
        migration.ended.wait(max(0.0, deadline - time.monotonic()))
        del self._migrations[instance.uuid]
        if migration.aborted:
            recover_method(
                context, instance, dest, migrate_data, migration_status='cancelled'
            )
        else:
            post_method(context, instance, dest, block_migration, migrate_data)

    def live_migration_force_complete(self, instance: Any) -> None:
        self._end(instance.uuid, aborted=False)

    def live_migration_abort(self, instance: Any) -> None:
        self._end(instance.uuid, aborted=True)

    def _end(self, uuid: str, aborted: bool) -> None:
        migration = self._migrations.get(uuid)
        if migration is not None:
            migration.aborted = aborted
            migration.ended.set()

    def post_live_migration(
        self, context: Any, instance: Any, block_device_info: Any, migrate_data: Any = None
    ) -> None:
        """On the source: the guest is no longer here."""
        self.destroy(context, instance, network_info=None, block_device_info=block_device_info)
