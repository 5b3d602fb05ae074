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

"""The filter that keeps new instances off spare hosts, which wait for evacuated instances."""

from typing import Any

from kronos_nova.filters import base


class SpareHostFilter(base.KronosFilter):
    """Refuse a boot on a host of an aggregate with the metadata ``spare=true``."""

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        return hosts if moving else [host for host in hosts if not _is_spare(host)]


def _is_spare(host: Any) -> bool:
    return any(aggregate.metadata.get('spare') == 'true' for aggregate in host.aggregates)
