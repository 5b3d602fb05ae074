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

"""The weigher that prefers hosts with few instances."""

from typing import Any

from oslo_config import cfg

from kronos_nova.scheduler import runtime
from kronos_nova.weighers import optional

runtime.CONF.register_opts([cfg.FloatOpt(
    'crowd_weight_multiplier', default=0.0,
    help='Weight of the number of instances on a host. 0: off.')], group='filter_scheduler')


class CrowdWeigher(optional.OptionalWeigher):
    """Charge each host its number of instances, as a part of the largest number."""

    OPTION = 'crowd_weight_multiplier'

    def costs(self, hosts: list[Any], spec: Any) -> list[float]:
        most = max(host.num_instances for host in hosts)
        return [host.num_instances / most if most else 0.0 for host in hosts]
