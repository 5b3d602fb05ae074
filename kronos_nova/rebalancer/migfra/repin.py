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

"""repin vm: pins virtual processors of a running server to those of its host."""

from collections.abc import Callable
from collections.abc import Sequence
import re
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.migfra import names
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import requests

#: Extra specs by which a flavor has dedicated processors without a policy.
_DEDICATED = re.compile(r'resources[a-zA-Z0-9_-]*:PCPU|hw:cpu_dedicated_mask')
#: Host, instance UUID, map, and the CPU policy of its flavor.
Repin = Callable[[str, str, Any, str | None], None]


def cpu_policy(instance: model.Instance) -> str | None:
    """Return the CPU policy of the flavor, also by its resource class, else of the image.

    Source: nova.virt.hardware, get_cpu_policy_constraint and numa_get_constraints.
    """
    specs = instance.extra_specs or {}
    if any(_DEDICATED.fullmatch(key) for key in specs) or instance.claims.get('PCPU'):
        return 'dedicated'
    return (specs.get('hw:cpu_policy')
            or (instance.image_properties or {}).get('hw_cpu_policy'))


class PinHandler:
    """The handler of repin vm.

    :param repin: pins, or raises RepinError.
    """

    name = 'pins'
    kinds = frozenset({MigfraRequestKind.REPIN})

    def __init__(self, conf: cfg.ConfigOpts, nova: nova_api.NovaApi, hosts: names.ScopesByHost,
                 repin: Repin) -> None:
        self._conf = conf.migfra
        self._nova = nova
        self._hosts = hosts
        self._repin = repin

    def begin_pass(self, due: Sequence[requests.MigfraRequest]) -> None:
        return None

    def end_pass(self) -> None:
        return None

    def continue_request(self, request: requests.MigfraRequest,
                         now: float) -> request_handler.MigfraRequestResult | None:
        task = request_handler.parse_task(request)
        assert isinstance(task, protocol.RepinVm)
        projects = request_handler.list_permitted_projects(self._conf.allow or (), self._hosts,
                                                           request, task)
        try:
            instance = names.resolve_server(self._nova, task.vm_name, projects,
                                            request.host).instance
            self._repin(request.host, instance.uuid, task.vcpu_map, cpu_policy(instance))
        except names.NotMeant as e:
            raise request_handler.MigfraRequestRefusal(str(e)) from None
        except (exception.RepinError, exception.ConfigError) as e:
            raise request_handler.MigfraRequestRefusal(str(e)) from None
        return request_handler.MigfraRequestResult(replies.build_single_result(
            MigfraRequestKind.REPIN, task.id, self._conf.scheduler,
            replies.InstanceResult(task.vm_name, replies.SUCCESS)), False)

    def release_pass_data(self) -> None:
        return None

    def close(self) -> None:
        return None
